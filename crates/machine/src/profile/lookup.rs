//! What a report asks of a profile: between what was measured a value is interpolated, and beyond it the nearest one holds.

use super::{FlopRate, MemoryRate, Profile, TableRate};
use crate::isa::IsaLevel;
use crate::probes::disk::BestDisk;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

impl Profile {
    /// How fast so many threads together read memory in order, in bytes per second.
    pub fn memory_read_bytes_per_s(&self, threads: usize) -> Option<f64> {
        self.memory_rate(threads, |it| it.read_bytes_per_s.median())
    }

    /// How fast so many threads together copy memory, in bytes per second; a byte counts when it is read and when it is written.
    pub fn memory_copy_bytes_per_s(&self, threads: usize) -> Option<f64> {
        self.memory_rate(threads, |it| it.copy_bytes_per_s.median())
    }

    /// How many independent reads at random places of a table of so many bytes so many threads do together in a second. Between sizes it is
    /// interpolated on the size's logarithm.
    pub fn random_accesses_per_s(&self, table_bytes: u64, threads: usize) -> Option<f64> {
        let mut counts: Vec<usize> = self.tables.iter().map(|it| it.threads).collect();
        counts.dedup();
        let of = |threads: usize| {
            let rates = self.tables.iter().filter(|it| it.threads == threads);
            let point =
                |it: &TableRate| ((it.table_bytes as f64).log2(), it.accesses_per_s.median());
            let points: Vec<_> = rates.map(point).collect();
            between(&points, (table_bytes.max(1) as f64).log2())
        };
        let points = counts.into_iter().map(|it| Some((it as f64, of(it)?)));
        between(&points.collect::<Option<Vec<_>>>()?, threads as f64)
    }

    /// How many floating-point operations so many threads do together in a second with these instructions; a multiply-add is two.
    pub fn flops_per_s(&self, isa: IsaLevel, threads: usize) -> Option<f64> {
        let rates = self.flops.iter().filter(|it| it.isa == isa);
        let point = |it: &FlopRate| (it.threads as f64, it.flops_per_s.median());
        between(&rates.map(point).collect::<Vec<_>>(), threads as f64)
    }

    /// How fast the disk of a directory is read, in bytes per second: of this directory, or of another one on the same filesystem.
    pub fn disk_read_bytes_per_s(&self, dir: &Path) -> Option<f64> {
        Some(self.disk(dir)?.read.bytes_per_s.median())
    }

    /// How fast the disk of a directory is written, in bytes per second; see [`Profile::disk_read_bytes_per_s`].
    pub fn disk_write_bytes_per_s(&self, dir: &Path) -> Option<f64> {
        Some(self.disk(dir)?.write.bytes_per_s.median())
    }

    /// How many bytes per second so many flows at once carry within the host.
    pub fn loopback_bytes_per_s(&self, flows: usize) -> Option<f64> {
        let rates = &self.loopback.as_ref()?.flows;
        let points: Vec<_> = rates
            .iter()
            .map(|it| (it.flows as f64, it.bytes_per_s.median()))
            .collect();
        between(&points, flows as f64)
    }

    /// How many bytes per second a host sends when all send to all: of the slowest one. None where fewer than two hosts were probed.
    pub fn network_bytes_per_s(&self) -> Option<f64> {
        let network = self.network.as_ref()?;
        let sent = |host: usize| {
            let flows = network.all_to_all.iter().filter(|it| it.from == host);
            flows.map(|it| it.bytes_per_s.median()).sum::<f64>()
        };
        (0..network.hosts.len())
            .map(sent)
            .reduce(f64::min)
            .filter(|&it| it > 0.0)
    }

    fn memory_rate(&self, threads: usize, of: impl Fn(&MemoryRate) -> f64) -> Option<f64> {
        let points: Vec<_> = self
            .memory
            .iter()
            .map(|it| (it.threads as f64, of(it)))
            .collect();
        between(&points, threads as f64)
    }

    fn disk(&self, dir: &Path) -> Option<&BestDisk> {
        let path = std::fs::canonicalize(dir).ok()?;
        let exact = self.disks.iter().find(|it| it.dir == path);
        exact.or_else(|| {
            let device = |path: &Path| std::fs::metadata(path).map(|it| it.dev()).ok();
            let ours = device(&path)?;
            self.disks.iter().find(|it| device(&it.dir) == Some(ours))
        })
    }
}

/// The value at `x` on the line through points that ascend; none without points.
fn between(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = points.iter().position(|point| point.0 >= x);
    match (after, points.last()) {
        (None, last) => last.map(|point| point.1),
        (Some(0), _) => Some(points[0].1),
        (Some(at), _) => {
            let ((x0, y0), (x1, y1)) = (points[at - 1], points[at]);
            Some(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::measure::Figure;
    use crate::network::Loopback;
    use crate::probes::disk::{DiskMode, DiskRate};
    use crate::probes::settled::Settled;
    use crate::profile::{FlowRate, LoopbackRates, NetworkRates, PairRate};

    fn settled(value: f64) -> Settled {
        Settled {
            figure: Figure::of(&[value]),
            rounds: 5,
            repeated: 0,
            noisy: false,
        }
    }

    /// A profile of this host with round figures.
    pub fn sample() -> Profile {
        let mut profile = Profile::empty().unwrap();
        let rate = |bytes_per_s| DiskRate {
            bytes_per_s: settled(bytes_per_s),
            block_bytes: 1 << 20,
            streams: 4,
            file_bytes: 1 << 28,
        };
        profile.disks = vec![BestDisk {
            dir: "/".into(),
            mode: DiskMode::Direct,
            read: rate(2e9),
            write: rate(1e9),
            tried: Vec::new(),
        }];
        let memory = |threads, read: f64| MemoryRate {
            threads,
            read_bytes_per_s: settled(read),
            copy_bytes_per_s: settled(read * 0.75),
        };
        profile.memory = vec![memory(1, 10e9), memory(2, 20e9), memory(4, 24e9)];
        let table = |threads, table_bytes, rate| TableRate {
            threads,
            table_bytes,
            accesses_per_s: settled(rate),
        };
        let tables = [
            table(1, 1 << 15, 1e9),
            table(1, 1 << 25, 2e8),
            table(2, 1 << 15, 2e9),
            table(2, 1 << 25, 3e8),
        ];
        profile.tables = tables.to_vec();
        let flops = |isa, threads, rate| FlopRate {
            isa,
            threads,
            flops_per_s: settled(rate),
        };
        profile.flops = vec![
            flops(IsaLevel::V2, 1, 1e10),
            flops(IsaLevel::V3, 1, 4e10),
            flops(IsaLevel::V3, 2, 8e10),
        ];
        profile.loopback = Some(LoopbackRates {
            congestion: "cubic".into(),
            messages: Loopback {
                round_trip_us: 10.0,
                write_us: 1.0,
                pipelined_us: 2.0,
            },
            flows: vec![FlowRate {
                flows: 1,
                bytes_per_s: settled(5e9),
            }],
        });
        profile
    }

    /// Three hosts that send to each other.
    pub fn network() -> NetworkRates {
        let pair = |(from, to, rate)| PairRate {
            from,
            to,
            bytes_per_s: settled(rate),
        };
        let flows = [
            (0, 1, 5.0),
            (0, 2, 5.0),
            (1, 0, 3.0),
            (1, 2, 4.0),
            (2, 0, 9.0),
            (2, 1, 1.0),
        ];
        NetworkRates {
            congestion: vec!["cubic".into(); 3],
            hosts: ["a", "b", "c"].map(str::to_owned).into(),
            pairs: Vec::new(),
            all_to_all: flows.map(pair).into(),
            disks_at_once: Vec::new(),
        }
    }

    #[test]
    fn threads_between_those_measured_are_interpolated_and_more_do_not_help() {
        let profile = sample();
        let read: Vec<_> = [1, 2, 3, 4, 64]
            .map(|it| profile.memory_read_bytes_per_s(it).unwrap())
            .into();
        assert_eq!(read, [10e9, 20e9, 22e9, 24e9, 24e9]);
        assert_eq!(profile.memory_copy_bytes_per_s(2), Some(15e9));
    }

    #[test]
    fn tables_are_interpolated_on_the_logarithm_of_their_size() {
        let rate = |bytes, threads| sample().random_accesses_per_s(bytes, threads).unwrap();
        assert_eq!(rate(1 << 15, 1), 1e9);
        assert_eq!(rate(1 << 20, 1), 6e8);
        assert_eq!(rate(1 << 20, 2), 1.15e9);
        assert_eq!([rate(0, 1), rate(64, 1), rate(1 << 40, 1)], [1e9, 1e9, 2e8]);
        assert_eq!(rate(1 << 25, 9), 3e8);
    }

    #[test]
    fn flops_are_those_of_the_instructions_asked_for() {
        let profile = sample();
        assert_eq!(profile.flops_per_s(IsaLevel::V3, 2), Some(8e10));
        assert_eq!(profile.flops_per_s(IsaLevel::V2, 2), Some(1e10));
        assert_eq!(profile.flops_per_s(IsaLevel::V4, 2), None);
    }

    #[test]
    fn a_directory_without_a_measurement_has_that_of_its_filesystem() {
        let mut profile = sample();
        profile.disks[0].dir = std::fs::canonicalize("/proc/self").unwrap();
        assert_eq!(
            profile.disk_read_bytes_per_s(Path::new("/proc/sys")),
            Some(2e9)
        );
        assert_eq!(
            profile.disk_write_bytes_per_s(Path::new("/proc/self")),
            Some(1e9)
        );
        assert_eq!(profile.disk_read_bytes_per_s(Path::new("/")), None);
        assert_eq!(profile.disk_read_bytes_per_s(Path::new("/absent")), None);
    }

    #[test]
    fn a_host_that_sends_slowest_bounds_the_network() {
        let mut profile = sample();
        assert_eq!(profile.network_bytes_per_s(), None);
        assert_eq!(profile.loopback_bytes_per_s(3), Some(5e9));
        profile.network = Some(network());
        assert_eq!(profile.network_bytes_per_s(), Some(7.0));
        let network = network();
        let (slowest, fastest) = network.extremes().unwrap();
        assert_eq!(
            ((slowest.from, slowest.to), (fastest.from, fastest.to)),
            ((2, 1), (2, 0))
        );
    }

    #[test]
    fn what_was_not_measured_has_no_value() {
        let profile = Profile::empty().unwrap();
        assert_eq!(profile.memory_read_bytes_per_s(1), None);
        assert_eq!(profile.random_accesses_per_s(1 << 20, 1), None);
        assert_eq!(profile.flops_per_s(IsaLevel::V2, 1), None);
        assert_eq!(profile.loopback_bytes_per_s(1), None);
    }
}
