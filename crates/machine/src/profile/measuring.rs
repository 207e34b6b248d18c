//! Runs the probes of one host, one after the other: which, how long each may take, and when they are to end.

mod steps;

pub use steps::{MeasureError, Measuring, ProbePart};

use super::{FlopRate, FlowRate, LoopbackRates, MemoryRate, Profile, TableRate};
use crate::crew;
use crate::network::flow::loopback_flows;
use crate::probes::disk::best_of;
use crate::probes::settled::Noise;
use crate::probes::{
    ReadLoop, copy_bandwidth, flops_per_ns, random_accesses_per_s, read_bandwidth,
};
use crate::{cpu, network};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use steps::{ProbeStep, steps};

/// All probes of a host are over after this time.
pub const TIME_MOST: Duration = Duration::from_secs(110);
/// No probe is repeated after this one.
const REPEATS_TIME: Duration = Duration::from_secs(75);
/// What the disks of all directories may take together, repetitions aside.
const DISKS_TIME: Duration = Duration::from_secs(40);
/// So many samples a disk takes, about: half of one in each direction for each combination, and rounds.
const SAMPLES: u32 = 24;
/// A sample of a disk and of a flow takes this time, at most.
const SAMPLE: Duration = Duration::from_millis(600);
/// A disk that is shared is not as steady as memory is.
const DISK_TOLERANCE: f64 = 0.15;
const TOLERANCE: f64 = 0.10;
/// Small messages and flows over the loopback device depend on where the system puts threads.
const LOOPBACK_TOLERANCE: f64 = 0.15;
/// A pass over memory, at least and at most.
const MEMORY_BYTES: (u64, u64) = (256 << 20, 4 << 30);
/// What of the memory that this process may use a probe takes.
const MEMORY_SHARE: u64 = 8;
const COPY_CHUNKS_F64S: [usize; 2] = [256 << 10, 8 << 20];
const TABLES: [u64; 9] = [
    32 << 10,
    128 << 10,
    512 << 10,
    2 << 20,
    8 << 20,
    32 << 20,
    128 << 20,
    512 << 20,
    1 << 30,
];
const TABLE_SAMPLE: Duration = Duration::from_millis(25);

/// Told of what is measured next and the share of the whole that is done, before each sample; false: the user has had enough.
pub type Watch<'a> = &'a mut dyn FnMut(&str, f64) -> bool;

struct Run<'a> {
    profile: Profile,
    begin: Instant,
    dirs: u32,
    /// The share that was done when the step began.
    done: f64,
    step: Progress,
    watch: Watch<'a>,
}

/// How far a step is, about.
struct Progress {
    name: String,
    begin: Instant,
    /// What it takes on a calm machine, in seconds.
    takes: f64,
    /// Its share of the whole.
    share: f64,
}

impl Profile {
    /// Measures this host, in less than two minutes.
    ///
    /// # Errors
    /// When a directory cannot be written to, the system gives no sockets, or `watch` says that it is enough.
    pub fn measure(what: &Measuring, watch: Watch<'_>) -> Result<Profile, MeasureError> {
        let mut run = Run {
            profile: Profile::empty().map_err(MeasureError::Machine)?,
            begin: Instant::now(),
            dirs: what.dirs.len().max(1) as u32,
            done: 0.0,
            step: Progress {
                name: String::new(),
                begin: Instant::now(),
                takes: 0.0,
                share: 0.0,
            },
            watch,
        };
        let steps = steps(what)?;
        let all: f64 = steps.iter().map(ProbeStep::weight).sum();
        for step in steps {
            run.step = Progress {
                name: step.name(),
                begin: Instant::now(),
                takes: step.weight(),
                share: step.weight() / all,
            };
            run.go_on()?;
            run.take(step)?;
            run.done += run.step.share;
        }
        run.profile.measured_at = super::now();
        Ok(run.profile)
    }
}

impl Run<'_> {
    fn take(&mut self, step: ProbeStep) -> Result<(), MeasureError> {
        match step {
            ProbeStep::Disk(dir) => {
                let sample = (DISKS_TIME / self.dirs / SAMPLES).min(SAMPLE);
                let noise = self.noise(DISK_TOLERANCE);
                let found = best_of(&dir, &noise, sample, || self.go_on())?;
                self.profile.disks.push(found);
            }
            ProbeStep::Memory(threads) => self.memory(threads)?,
            ProbeStep::Tables(counts) => self.tables(&counts)?,
            ProbeStep::Flops(isa, threads) => {
                let places = places(threads)?;
                let flops_per_s = self.noise(TOLERANCE).settle(|| {
                    self.go_on()?;
                    Ok::<f64, MeasureError>(flops_per_ns(isa, &places) * 1e9)
                })?;
                self.profile.flops.push(FlopRate {
                    isa,
                    threads,
                    flops_per_s,
                });
            }
            ProbeStep::Messages(flows) => self.loopback(&flows)?,
        }
        Ok(())
    }

    fn go_on(&mut self) -> Result<(), MeasureError> {
        // A step that takes longer than it should stays just below its end.
        let of_step = (self.step.begin.elapsed().as_secs_f64() / self.step.takes).min(0.95);
        let done = self.done + self.step.share * of_step;
        match (self.watch)(&self.step.name, done) {
            true => Ok(()),
            false => Err(MeasureError::Interrupted),
        }
    }

    fn noise(&self, tolerance: f64) -> Noise {
        Noise {
            tolerance,
            repeats_until: self.begin + REPEATS_TIME,
            ends: self.begin + TIME_MOST,
        }
    }

    fn memory(&mut self, threads: usize) -> Result<(), MeasureError> {
        let places = places(threads)?;
        let mut data = touched(memory_f64s()?, &places);
        let read = |read_loop, data: &[f64]| read_bandwidth(read_loop, &[data], &places) * 1e9;
        let fastest = fastest(ReadLoop::available(), |&it| read(it, &data));
        let read_bytes_per_s = self.noise(TOLERANCE).settle(|| {
            self.go_on()?;
            Ok::<f64, MeasureError>(read(fastest, &data))
        })?;
        let half = data.len() / 2;
        let (source, target) = data.split_at_mut(half);
        let target = &mut target[..half];
        // A chunk that leaves every thread several.
        let chunks = COPY_CHUNKS_F64S.map(|it| it.min(half.div_ceil(threads)));
        let mut copy = |chunk| copy_bandwidth(source, target, chunk, &places) * 1e9;
        let chunk = self::fastest(chunks.to_vec(), |&it| copy(it));
        let copy_bytes_per_s = self.noise(TOLERANCE).settle(|| {
            self.go_on()?;
            Ok::<f64, MeasureError>(copy(chunk))
        })?;
        self.profile.memory.push(MemoryRate {
            threads,
            read_bytes_per_s,
            copy_bytes_per_s,
        });
        Ok(())
    }

    fn tables(&mut self, counts: &[usize]) -> Result<(), MeasureError> {
        let usable = usable_memory()? / MEMORY_SHARE;
        let mut found = Vec::new();
        for table_bytes in TABLES.into_iter().filter(|&it| it <= usable.max(TABLES[0])) {
            // Written, since pages that were not are all the same.
            let table: Vec<u64> = (0..table_bytes / 8).collect();
            for &threads in counts {
                let places = places(threads)?;
                let accesses_per_s = self.noise(TOLERANCE).settle(|| {
                    self.go_on()?;
                    Ok::<f64, MeasureError>(random_accesses_per_s(&table, &places, TABLE_SAMPLE))
                })?;
                found.push(TableRate {
                    threads,
                    table_bytes,
                    accesses_per_s,
                });
            }
        }
        found.sort_by_key(|it| (it.threads, it.table_bytes));
        self.profile.tables = found;
        Ok(())
    }

    fn loopback(&mut self, counts: &[usize]) -> Result<(), MeasureError> {
        let messages = network::loopback().map_err(MeasureError::Loopback)?;
        let (mut flows, mut congestion) = (Vec::new(), String::new());
        for &count in counts {
            let bytes_per_s = self.noise(LOOPBACK_TOLERANCE).settle(|| {
                self.go_on()?;
                let found = loopback_flows(count, SAMPLE).map_err(MeasureError::Loopback)?;
                congestion = found.congestion;
                Ok::<f64, MeasureError>(found.bytes_per_s)
            })?;
            flows.push(FlowRate {
                flows: count,
                bytes_per_s,
            });
        }
        self.profile.loopback = Some(LoopbackRates {
            congestion,
            messages,
            flows,
        });
        Ok(())
    }
}

fn places(threads: usize) -> Result<Vec<usize>, MeasureError> {
    cpu::places(threads).map_err(MeasureError::Machine)
}

fn usable_memory() -> Result<u64, MeasureError> {
    let processor = cpu::Processor::read().map_err(MeasureError::Machine)?;
    Ok(processor.usable_memory_bytes().unwrap_or(MEMORY_BYTES.0))
}

/// What a pass over memory takes: four times the largest cache, and no more than a share of what may be used.
fn memory_f64s() -> Result<usize, MeasureError> {
    let processor = cpu::Processor::read().map_err(MeasureError::Machine)?;
    let cache = processor
        .caches
        .iter()
        .map(|it| it.bytes)
        .max()
        .unwrap_or(0);
    let bytes = (4 * cache).clamp(MEMORY_BYTES.0, MEMORY_BYTES.1);
    Ok((bytes.min(usable_memory()? / MEMORY_SHARE) / 8) as usize)
}

/// Memory that each thread has written a part of, so that on a machine with several memories it lies in all of them.
fn touched(f64s: usize, places: &[usize]) -> Vec<f64> {
    let mut data = vec![0.0; f64s];
    let parts = data.chunks_mut(COPY_CHUNKS_F64S[0]).enumerate();
    let parts: Vec<_> = parts.map(|(at, part)| (at, Mutex::new(part))).collect();
    crew::run(places, |member| {
        let ours = parts
            .iter()
            .filter(|(at, _)| at % member.threads() == member.index());
        for (at, part) in ours {
            part.lock().expect("no panic").fill(1.0 + *at as f64);
        }
    });
    drop(parts);
    data
}

/// The one that is fastest, of one sample of each.
fn fastest<T>(of: Vec<T>, mut rate: impl FnMut(&T) -> f64) -> T {
    let rated = of.into_iter().map(|it| (rate(&it), it));
    let best = rated.max_by(|a, b| a.0.total_cmp(&b.0));
    best.expect("there is one at least").1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::IsaLevel;

    #[test]
    fn what_is_asked_for_is_measured_and_the_share_grows_to_the_whole() {
        let what = Measuring {
            parts: vec![ProbePart::Flops],
            dirs: Vec::new(),
        };
        let mut shares = Vec::new();
        let found = Profile::measure(&what, &mut |_, share| {
            shares.push(share);
            true
        });
        let found = found.unwrap();
        assert!(
            shares.is_sorted() && shares[0] < 0.01 && shares.last() < Some(&1.0),
            "{shares:?}"
        );
        assert!(found.disks.is_empty() && found.memory.is_empty() && found.tables.is_empty());
        assert!(found.flops.iter().all(|it| it.flops_per_s.median() > 1e8));
        assert!(found.loopback.is_none() && found.flops_per_s(IsaLevel::V2, 1).is_some());
    }

    #[test]
    fn whoever_has_had_enough_is_heard_before_the_next_sample() {
        let what = Measuring {
            parts: vec![ProbePart::Flops],
            dirs: Vec::new(),
        };
        let mut asked = 0;
        let stopped = Profile::measure(&what, &mut |_, _| {
            asked += 1;
            asked < 3
        });
        assert!(matches!(stopped, Err(MeasureError::Interrupted)));
        assert_eq!(asked, 3);
    }
}
