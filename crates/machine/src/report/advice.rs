//! What to do about a loss whose cause is known: a sentence for each, and none for a job that nothing hinders.
//!
//! Each cause has a function of its own. All of them ask whether time was lost at all before they name a cause.

use serde::{Deserialize, Serialize};

use super::ideal::{Resource, StageReport, share};
use super::threads::WorkerReport;
use super::units::{bytes, count, percent, rate, seconds, setting};
use super::{CALLER, Report, Roofs, balance, phases, units};

/// Less lost time than this is not worth a sentence, as a share of all threads' time.
const WORTH_A_WORD: f64 = 0.10;
/// A shard that takes so many times as long as the mean is named slow.
const SLOW_SHARD: f64 = 1.5;
/// A worker that is no faster than this beside the others is named slow.
const SLOW_WORKER: f64 = 0.7;
/// What a slow worker, or finding tasks, may cost before it is named.
const WORTH_LITTLE: f64 = 0.05;
/// So many shards for each thread even out what a thread takes longer; more of them only cost.
const SHARDS_PER_THREAD: u64 = 8;
/// Tasks that are shorter than this take less than finding them, in seconds.
const SHORT_TASK_S: f64 = 50e-6;
/// A share of the kernels' time that Python takes, from which on it is Python that threads wait for.
const MOSTLY_PYTHON: f64 = 0.5;
/// How long the calling thread is in kernels at least when the pool waits for it.
const BUSY_CALLER: f64 = 0.3;
/// And how little the pool's threads do meanwhile.
const IDLE_POOL: f64 = 0.5;
/// A part of the budget that is worth a word when it was spilled, however fast that went.
const SPILLED_MUCH: f64 = 0.25;
/// A disk that is no faster than this beside those of the others is named slow.
const SLOW_DISK: f64 = 0.6;
/// The network is the cause of waiting when what was sent takes it this much of the wait.
const BUSY_NETWORK: f64 = 0.5;

/// What cost time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// One shard takes much longer than the others.
    SlowShard,
    /// One worker is slower than the others.
    SlowWorker,
    /// More shards than the threads need.
    TinyShards,
    /// Tasks so short that finding them counts.
    ShortTasks,
    /// Python's interpreter, which runs one kernel at a time.
    Interpreter,
    /// A memory budget that is too small.
    Memory,
    /// A disk.
    Disk,
    /// The network.
    Network,
}

/// A cause, and what to do about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// What cost time.
    pub cause: Cause,
    /// A sentence with its figures.
    pub text: String,
}

/// Every cause that is known, the dearest kind first.
pub(super) fn all(report: &Report, roofs: &Roofs) -> Vec<Advice> {
    let found = [
        interpreter(report),
        memory(report),
        slow_worker(report),
        slow_shard(report),
        disk(report, roofs),
        network(report, roofs),
        tiny_shards(report),
    ];
    found
        .into_iter()
        .flatten()
        .map(|(cause, text)| Advice { cause, text })
        .collect()
}

type Found = Option<(Cause, String)>;

fn interpreter(report: &Report) -> Found {
    let python = || report.stages.iter().filter(|stage| stage.python);
    let longest =
        python().max_by(|one, other| one.actual_seconds.total_cmp(&other.actual_seconds))?;
    let compile = format!("compile the kernel of {} with numba", named(longest));
    let waited = report.shares.interpreter;
    if waited >= WORTH_A_WORD {
        return Some((
            Cause::Interpreter,
            format!(
                "the interpreter was waited for {} of the time: {compile}",
                percent(waited)
            ),
        ));
    }
    let kernels: f64 = report.stages.iter().map(|it| it.kernels.seconds).sum();
    let of_python = share(python().map(|stage| stage.actual_seconds).sum(), kernels);
    let idle = pool_that_waits_for_its_caller(report)?;
    (of_python >= MOSTLY_PYTHON).then(|| {
        let text = format!(
            "Python kernels take {} of the kernels' time and run one at a time, while the other threads do nothing for {} of \
             theirs: {compile}",
            percent(of_python),
            percent(idle)
        );
        (Cause::Interpreter, text)
    })
}

/// How long the pool's threads are in no kernel while the calling thread is: a share of their time.
fn pool_that_waits_for_its_caller(report: &Report) -> Option<f64> {
    let threads = || report.workers.iter().flat_map(|worker| &worker.threads);
    let in_kernels = |caller: bool| {
        let mut shares = (0.0, 0.0);
        for thread in threads().filter(|thread| (thread.name == CALLER) == caller) {
            shares = (
                shares.0 + thread.parts.kernels,
                shares.1 + thread.wall_seconds,
            );
        }
        (shares.1 > 0.0).then(|| share(shares.0, shares.1))
    };
    let (caller, pool) = (in_kernels(true)?, in_kernels(false)?);
    (caller >= BUSY_CALLER && pool < IDLE_POOL).then_some(1.0 - pool)
}

fn memory(report: &Report) -> Found {
    let lost = |worker: &WorkerReport| worker.shares.memory + worker.shares.spilling;
    let spilled_much = |worker: &WorkerReport| {
        worker.spilled_bytes as f64 >= SPILLED_MUCH * worker.budget_bytes as f64
    };
    let short = |worker: &&WorkerReport| {
        worker.budget_bytes > 0 && (lost(worker) >= WORTH_LITTLE || spilled_much(worker))
    };
    let worker = report
        .workers
        .iter()
        .filter(short)
        .max_by(|one, other| lost(one).total_cmp(&lost(other)))?;
    let (whose, spilled) = (of_worker(report, worker), worker.spilled_bytes);
    let waited = format!(
        "{} of {whose} time went into waiting for memory",
        percent(worker.shares.memory)
    );
    let went = match (spilled, worker.shares.memory >= WORTH_LITTLE) {
        (0, _) => waited,
        _ if lost(worker) < WORTH_LITTLE => {
            let by = if report.worker_count > 1 {
                format!(" by worker {}", worker.name)
            } else {
                String::new()
            };
            format!("{} were spilled{by}", bytes(spilled as f64))
        }
        (_, true) => format!(
            "{waited}, and {} into spilling {}",
            percent(worker.shares.spilling),
            bytes(spilled as f64)
        ),
        (_, false) => {
            format!(
                "{} of {whose} time went into spilling {}",
                percent(worker.shares.spilling),
                bytes(spilled as f64)
            )
        }
    };
    // What was spilled had found no room beside the most that was held. Who only waited says not how much was missing.
    let would_do = if spilled > 0 {
        worker
            .peak_bytes
            .max(worker.budget_bytes)
            .saturating_add(spilled)
    } else {
        worker.budget_bytes.saturating_mul(2)
    };
    let advised = setting(would_do);
    let verb = if spilled > 0 {
        "would do"
    } else {
        "is the next to try"
    };
    let budget = units::memory(worker.budget_bytes);
    let text = format!(
        "{went}: its memory budget of {budget} is too small; memory = \"{advised}\" {verb} (BRAMBLING_MEMORY={advised})"
    );
    Some((Cause::Memory, text))
}

fn slow_worker(report: &Report) -> Found {
    let slowest = report
        .workers
        .iter()
        .filter_map(|worker| Some((worker, worker.speed?)));
    let (worker, speed) = slowest.min_by(|one, other| one.1.total_cmp(&other.1))?;
    // Whoever is slow where nobody waits for it costs nothing.
    let waited = report.shares.exchange + report.shares.stragglers;
    (speed <= SLOW_WORKER && waited >= WORTH_LITTLE).then(|| {
        let host = if worker.host.is_empty() { String::new() } else { format!(" on {}", worker.host) };
        let text = format!(
            "worker {}{host} runs at {} of the others' speed, and they wait for it {} of the time: see what else runs there, \
             or leave it out",
            worker.name,
            percent(speed),
            percent(waited)
        );
        (Cause::SlowWorker, text)
    })
}

fn slow_shard(report: &Report) -> Found {
    let ledger = report.ledger();
    let (worker, multiple) = balance::slowest_shard(ledger)?;
    // All shards of a slow worker are slow.
    if report.workers.iter().any(|other| {
        other.name == worker.name && other.speed.is_some_and(|speed| speed <= SLOW_WORKER)
    }) {
        return None;
    }
    let waited = report.shares.exchange + report.shares.stragglers;
    let mean = worker.longest_shard_s / multiple;
    let lost = share(worker.longest_shard_s - mean, ledger.wall_s);
    (multiple >= SLOW_SHARD && waited >= WORTH_A_WORD && lost >= WORTH_A_WORD).then(|| {
        let whose = if report.worker_count > 1 { format!(" of worker {}", worker.name) } else { String::new() };
        let text = format!(
            "one shard{whose} takes {multiple:.1} × the mean: {} instead of {}, and {} of all time is spent waiting; more \
             partitions, or a key that spreads its rows, would even it out",
            seconds(worker.longest_shard_s),
            seconds(mean),
            percent(waited)
        );
        (Cause::SlowShard, text)
    })
}

fn tiny_shards(report: &Report) -> Found {
    let spent = report.shares.scheduling;
    if spent < WORTH_LITTLE {
        return None;
    }
    let would_do = report.threads as u64 * SHARDS_PER_THREAD;
    if report.shards > would_do {
        let text = format!(
            "{} shards on {} cores spend {} in scheduling: {} would do",
            count(report.shards),
            count(report.threads as u64),
            percent(spent),
            count(would_do)
        );
        return Some((Cause::TinyShards, text));
    }
    let in_kernels: f64 = report
        .stages
        .iter()
        .map(|stage| stage.kernels.seconds)
        .sum::<f64>()
        * report.threads as f64;
    let task = in_kernels / report.tasks.max(1) as f64;
    (report.tasks > 0 && task < SHORT_TASK_S).then(|| {
        let text = format!(
            "a task takes {}, and finding the next one {} of the time: fewer partitions, or stages that do more at once, would help",
            seconds(task),
            percent(spent)
        );
        (Cause::ShortTasks, text)
    })
}

fn disk(report: &Report, roofs: &Roofs) -> Found {
    let waited = report.shares.disk;
    if waited < WORTH_A_WORD {
        return None;
    }
    let slow = slow_disk(report);
    if let Some((worker, speed)) = slow {
        let text = format!(
            "worker {} reads and writes its disk at {} of the others' speed, and disks were waited for {} of the time",
            worker.name,
            percent(speed),
            percent(waited)
        );
        return Some((Cause::Disk, text));
    }
    let (read, written) = phases::from_disks(report.ledger());
    let verb = if read >= written { "read" } else { "written" };
    let roof = if read >= written {
        roofs.disk_read_bytes_per_s
    } else {
        roofs.disk_write_bytes_per_s
    };
    let limit = roof.map_or(String::new(), |roof| {
        format!(", of which a disk here does {} at most", rate(roof, "B"))
    });
    let text = format!(
        "the disk was waited for {} of the time: {} were {verb}{limit}; a faster disk, or fewer bytes, would help",
        percent(waited),
        bytes(read.max(written))
    );
    Some((Cause::Disk, text))
}

/// The worker whose disk is the slowest, by bytes for each second that its threads waited.
fn slow_disk(report: &Report) -> Option<(&WorkerReport, f64)> {
    let speed = |worker: &WorkerReport| {
        let waited: f64 = worker
            .threads
            .iter()
            .map(|thread| thread.parts.disk + thread.parts.spilling)
            .sum();
        let moved = (worker.disk_read_bytes + worker.disk_written_bytes) as f64;
        (moved > 0.0 && waited > 0.0).then(|| moved / waited * worker.threads.len() as f64)
    };
    let mut speeds: Vec<_> = report
        .workers
        .iter()
        .filter_map(|worker| Some((worker, speed(worker)?)))
        .collect();
    speeds.sort_by(|one, other| one.1.total_cmp(&other.1));
    let (slowest, others) = speeds.split_first()?;
    let middle = others.get(others.len().checked_sub(1)? / 2)?.1;
    Some((slowest.0, slowest.1 / middle)).filter(|(_, speed)| *speed <= SLOW_DISK)
}

fn network(report: &Report, roofs: &Roofs) -> Found {
    let waited = report.shares.exchange;
    let used = report
        .resources
        .iter()
        .find(|used| used.resource == Resource::Network)?;
    let needed = used.ideal_seconds?;
    let roof = roofs.network_bytes_per_s?;
    (waited >= WORTH_A_WORD && needed >= BUSY_NETWORK * waited * report.actual_seconds).then(|| {
        let text = format!(
            "pieces of other workers were waited for {} of the time, and {} at {} take {}: the network bounds this; fewer, \
             larger workers would send less",
            percent(waited),
            bytes(used.amount),
            rate(roof, "B"),
            seconds(needed)
        );
        (Cause::Network, text)
    })
}

fn named(stage: &StageReport) -> String {
    format!("stage \"{}\"", stage.name)
}

fn of_worker(report: &Report, worker: &WorkerReport) -> String {
    if report.worker_count > 1 {
        format!("worker {}'s", worker.name)
    } else {
        "the threads'".into()
    }
}
