//! The least seconds that a job's stages and phases can take on its machines. [`super::Report`] asks; nothing is
//! measured here.
//!
//! Overlap: a stage takes at least as long as the resource that takes the longest, and so does a phase beside its
//! disks and its network. The kernels of a phase's stages follow each other, so their least seconds add up. Stages that
//! read and write files work at once, so that their disks count once, in the phase.

use serde::{Deserialize, Serialize};

use super::roofs::{Roofs, positive};
use crate::ledger::{Ledger, StageEntry, StageWork, TimeParts};

/// What can bound a stage, a phase or a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Resource {
    /// Bytes of memory, in order.
    #[serde(rename = "memory bandwidth")]
    MemoryBandwidth,
    /// Places of memory, out of order.
    #[serde(rename = "random access")]
    RandomAccess,
    /// Floating-point operations.
    #[serde(rename = "arithmetic")]
    Arithmetic,
    /// Kernels whose bytes and operations nobody counts, or nobody has a roof for: their own time.
    #[serde(rename = "kernels")]
    Kernels,
    /// The same, of kernels that Python runs.
    #[serde(rename = "Python kernels")]
    PythonKernels,
    /// Disks.
    #[serde(rename = "disk")]
    Disk,
    /// The network.
    #[serde(rename = "network")]
    Network,
}

impl Resource {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Resource; 7] = [
        Resource::MemoryBandwidth,
        Resource::RandomAccess,
        Resource::Arithmetic,
        Resource::Disk,
        Resource::Network,
        Resource::Kernels,
        Resource::PythonKernels,
    ];

    /// As a sentence names it, and the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Resource::MemoryBandwidth => "memory bandwidth",
            Resource::RandomAccess => "random access",
            Resource::Arithmetic => "arithmetic",
            Resource::Kernels => "kernels",
            Resource::PythonKernels => "Python kernels",
            Resource::Disk => "disk",
            Resource::Network => "network",
        }
    }
}

/// What was used of one resource, and the least seconds that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceUse {
    /// Which.
    pub resource: Resource,
    /// Bytes, places or operations; seconds of threads where the kernels themselves are the resource.
    pub amount: f64,
    /// What one machine does at most per second of it; null where nobody probed, and for kernels.
    pub roof_per_second: Option<f64>,
    /// The least seconds, on all machines of the job; null without a roof.
    pub ideal_seconds: Option<f64>,
}

/// Where a stage stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Outside of loops, and what came before the first task.
    Setup,
    /// In a loop.
    Loop,
}

impl Phase {
    /// As the JSON names it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Setup => "setup",
            Phase::Loop => "loop",
        }
    }

    /// The phase of a stage.
    pub fn of(stage: &StageEntry) -> Phase {
        if stage.in_loop {
            Phase::Loop
        } else {
            Phase::Setup
        }
    }
}

/// What a stage took beside what it could: its kernels, and the disk where it reads or writes files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageReport {
    /// Its name.
    pub name: String,
    /// "compute", "scatter", "gather" or "signal".
    pub kind: String,
    /// Where it stands.
    pub phase: Phase,
    /// Whether Python runs its kernels.
    pub python: bool,
    /// Seconds in its kernels, divided by the job's threads; with what these waited for the disk, where it reads or writes files.
    pub actual_seconds: f64,
    /// The least seconds: those of the resource that takes the longest.
    pub ideal_seconds: f64,
    /// Ideal ÷ actual; null where it took no time.
    pub share_of_ideal: Option<f64>,
    /// The resource that takes the longest; null where it took no time.
    pub bound_by: Option<Resource>,
    /// Its kernels' share of all threads' time.
    pub share_of_time: f64,
    /// What it used.
    pub resources: Vec<ResourceUse>,
    /// Where the time of the moments went that it had most of: mean seconds of a thread, by part.
    pub parts: TimeParts,
    /// Whether it was faster than a roof allows: its data lay in caches, its files in the system's memory. It counts as ideal then.
    pub above_roof: bool,
    /// Whether something was counted that no roof stands for: the ideal is the most that it can be.
    pub at_most: bool,
    /// Its kernels without the disk.
    #[serde(skip)]
    pub(super) kernels: KernelReport,
}

/// What the kernels of a stage took beside what they could.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct KernelReport {
    /// Their seconds, divided by the job's threads.
    pub seconds: f64,
    /// The least seconds.
    pub ideal_seconds: f64,
    /// The resource that takes the longest, disks aside; null where they took no time.
    pub bound_by: Option<Resource>,
}

/// How many there are of what works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size {
    /// Threads of all workers' pools.
    pub threads: f64,
    /// Machines.
    pub hosts: f64,
    /// Seconds of all threads, those that only waited included.
    pub thread_seconds: f64,
}

impl Size {
    pub(super) fn of(ledger: &Ledger) -> Size {
        let mut hosts: Vec<&str> = ledger
            .workers
            .iter()
            .map(|worker| worker.host.as_str())
            .collect();
        hosts.sort_unstable();
        let unknown = hosts.iter().filter(|host| host.is_empty()).count();
        hosts.dedup();
        let known = hosts.iter().filter(|host| !host.is_empty()).count();
        let threads: usize = ledger.workers.iter().map(pool_threads).sum();
        let thread_seconds = ledger
            .workers
            .iter()
            .flat_map(|worker| &worker.threads)
            .map(|thread| thread.wall_s)
            .sum();
        Size {
            threads: threads.max(1) as f64,
            hosts: (unknown + known).max(1) as f64,
            thread_seconds,
        }
    }
}

/// The threads that a worker's kernels can be spread over. The caller takes the place of one of the pool.
pub(super) fn pool_threads(worker: &crate::ledger::WorkerEntry) -> usize {
    let pool = worker
        .threads
        .iter()
        .filter(|thread| thread.name != super::CALLER)
        .count();
    pool.max(usize::from(!worker.threads.is_empty()))
}

/// What all workers did of a stage.
pub(super) fn work(ledger: &Ledger, stage: usize) -> StageWork {
    ledger
        .workers
        .iter()
        .filter_map(|worker| worker.stages.get(stage))
        .fold(StageWork::default(), |sum, work| StageWork {
            kernel_s: sum.kernel_s + work.kernel_s,
            streamed_bytes: sum.streamed_bytes.saturating_add(work.streamed_bytes),
            random_accesses: sum.random_accesses.saturating_add(work.random_accesses),
            table_bytes: sum.table_bytes.max(work.table_bytes),
            flops: sum.flops.saturating_add(work.flops),
            file_read_bytes: sum.file_read_bytes.saturating_add(work.file_read_bytes),
            file_written_bytes: sum
                .file_written_bytes
                .saturating_add(work.file_written_bytes),
        })
}

/// The best rates that a stage of the job reached, per machine and second: what stands in where nobody probed.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    memory: Option<f64>,
    flops: Option<f64>,
}

impl Reached {
    fn by(ledger: &Ledger, size: Size) -> Reached {
        let rates = |amount: fn(&StageWork) -> u64| {
            (0..ledger.stages.len())
                .map(|stage| work(ledger, stage))
                .filter_map(|work| {
                    positive(Some(
                        amount(&work) as f64 / (work.kernel_s / size.threads) / size.hosts,
                    ))
                })
                .reduce(f64::max)
        };
        Reached {
            memory: rates(|work| work.streamed_bytes),
            flops: rates(|work| work.flops),
        }
    }
}

/// Every stage of the job.
pub(super) fn stages(
    ledger: &Ledger,
    roofs: &Roofs,
    spent: &[TimeParts],
    size: Size,
) -> Vec<StageReport> {
    let reached = Reached::by(ledger, size);
    let stage = |(index, entry)| {
        let work = work(ledger, index);
        let judged = judged(entry, work, roofs, reached, size);
        beside_the_disk(judged, &work, spent[index], roofs, size)
    };
    ledger.stages.iter().enumerate().map(stage).collect()
}

fn judged(
    entry: &StageEntry,
    work: StageWork,
    roofs: &Roofs,
    reached: Reached,
    size: Size,
) -> StageReport {
    let actual = work.kernel_s.max(0.0) / size.threads;
    let resources = counted(&work, roofs, size);
    let longest = resources
        .iter()
        .filter_map(|used| Some((used.resource, used.ideal_seconds?)))
        .max_by(|one, other| one.1.total_cmp(&other.1));
    let own = if entry.python {
        Resource::PythonKernels
    } else {
        Resource::Kernels
    };
    let (bound_by, ideal, at_most) = match longest {
        Some((resource, seconds)) => (resource, seconds, false),
        None if resources.is_empty() => (own, actual, false),
        None => (
            own,
            beside_the_best(&work, reached, size).unwrap_or(actual),
            true,
        ),
    };
    let worked = actual > 0.0;
    StageReport {
        name: entry.name.clone(),
        kind: entry.kind.clone(),
        phase: Phase::of(entry),
        python: entry.python,
        actual_seconds: actual,
        ideal_seconds: ideal.min(actual),
        share_of_ideal: worked.then(|| (ideal / actual).min(1.0)),
        bound_by: worked.then_some(bound_by),
        share_of_time: share(work.kernel_s, size.thread_seconds),
        resources,
        parts: TimeParts::default(),
        above_roof: worked && ideal > actual * ABOVE,
        at_most: worked && at_most,
        kernels: KernelReport {
            seconds: actual,
            ideal_seconds: ideal.min(actual),
            bound_by: worked.then_some(bound_by),
        },
    }
}

/// A stage whose kernels are judged, with where its time went. One that reads or writes files waits for the disk as well: it takes at
/// least as long as the disk.
fn beside_the_disk(
    stage: StageReport,
    work: &StageWork,
    parts: TimeParts,
    roofs: &Roofs,
    size: Size,
) -> StageReport {
    let stage = StageReport { parts, ..stage };
    let (read, written) = (work.file_read_bytes as f64, work.file_written_bytes as f64);
    let Some(used) = disk(read, written, roofs, size) else {
        return stage;
    };
    let actual = stage.kernels.seconds + parts.disk;
    let of_disk = used.ideal_seconds.unwrap_or(0.0);
    let (bound_by, ideal, above_roof) = match of_disk > stage.ideal_seconds {
        true => (Some(Resource::Disk), of_disk, of_disk > actual * ABOVE),
        false => (stage.bound_by, stage.ideal_seconds, stage.above_roof),
    };
    let worked = actual > 0.0;
    let mut resources = stage.resources;
    resources.push(used);
    StageReport {
        actual_seconds: actual,
        ideal_seconds: ideal.min(actual),
        share_of_ideal: worked.then(|| (ideal / actual).min(1.0)),
        bound_by: bound_by.filter(|_| worked),
        above_roof: worked && above_roof,
        resources,
        ..stage
    }
}

/// Bytes read from files and written to them, with the least seconds where both have a roof that are there; none of no bytes.
pub(super) fn disk(read: f64, written: f64, roofs: &Roofs, size: Size) -> Option<ResourceUse> {
    let (reading, writing) = (
        positive(roofs.disk_read_bytes_per_s),
        positive(roofs.disk_write_bytes_per_s),
    );
    let seconds = |amount: f64, roof: Option<f64>| match amount > 0.0 {
        true => roof.map(|roof| amount / roof / size.hosts),
        false => Some(0.0),
    };
    let ideal_seconds = seconds(read, reading)
        .zip(seconds(written, writing))
        .map(|(one, other)| one + other);
    (read + written > 0.0).then_some(ResourceUse {
        resource: Resource::Disk,
        amount: read + written,
        roof_per_second: if read >= written { reading } else { writing },
        ideal_seconds,
    })
}

/// A probe is this exact at best, so less is no sign of caches.
const ABOVE: f64 = 1.05;

/// What built-in kernels counted, with the least seconds where there is a roof.
fn counted(work: &StageWork, roofs: &Roofs, size: Size) -> Vec<ResourceUse> {
    let all = [
        (
            Resource::MemoryBandwidth,
            work.streamed_bytes,
            roofs.memory(),
        ),
        (
            Resource::RandomAccess,
            work.random_accesses,
            roofs.random_at(work.table_bytes),
        ),
        (
            Resource::Arithmetic,
            work.flops,
            positive(roofs.flops_per_s),
        ),
    ];
    let counted = all.into_iter().filter(|(_, amount, _)| *amount > 0);
    counted
        .map(|(resource, amount, roof)| used(resource, amount as f64, roof, size))
        .collect()
}

pub(super) fn used(resource: Resource, amount: f64, roof: Option<f64>, size: Size) -> ResourceUse {
    let ideal_seconds = roof.map(|roof| amount / roof / size.hosts);
    ResourceUse {
        resource,
        amount,
        roof_per_second: roof,
        ideal_seconds,
    }
}

/// The seconds at the best rate that a stage of this job reached: the true roof is no lower, so the ideal is no higher.
fn beside_the_best(work: &StageWork, reached: Reached, size: Size) -> Option<f64> {
    let seconds = |amount: u64, rate: Option<f64>| {
        (amount > 0).then(|| rate.map(|rate| amount as f64 / rate / size.hosts))?
    };
    // Whoever reads places out of order is judged by nothing that others do in order.
    if work.random_accesses > 0 {
        return None;
    }
    seconds(work.streamed_bytes, reached.memory).or_else(|| seconds(work.flops, reached.flops))
}

/// A part of a whole; nothing of nothing is nothing.
pub(super) fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 && part.is_finite() {
        (part / whole).max(0.0)
    } else {
        0.0
    }
}
