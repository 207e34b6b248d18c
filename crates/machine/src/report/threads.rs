//! Where the time of a job's threads went, by part, and what no part explains.

use serde::{Deserialize, Serialize};

use super::ideal::share;
use crate::ledger::{Ledger, Moment, ThreadEntry, TimeParts, WorkerEntry};

/// One thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// "thread 0", or "caller".
    pub name: String,
    /// Seconds from the job's begin to its end.
    pub wall_seconds: f64,
    /// Seconds by part.
    pub parts: TimeParts,
    /// Share of its wall time that no part explains, 0 to 1.
    pub unattributed: f64,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// "here" for a process alone, else the worker's name.
    pub name: String,
    /// Its machine's; empty where nobody knows.
    pub host: String,
    /// Its threads.
    pub threads: Vec<ThreadReport>,
    /// Shares of its threads' time by part, 0 to 1.
    pub shares: TimeParts,
    /// How fast it works, as a share of the others: 0.4 where its shards take 2.5 times as long. Null where nobody can tell.
    pub speed: Option<f64>,
    /// Tasks retired.
    pub tasks: u64,
    /// Shards held at the end.
    pub shards: u32,
    /// Bytes sent to other processes.
    pub sent_bytes: u64,
    /// Bytes received from them.
    pub received_bytes: u64,
    /// Bytes read from disks.
    pub disk_read_bytes: u64,
    /// Bytes written to disks.
    pub disk_written_bytes: u64,
    /// Of those, what was spilled for want of memory.
    pub spilled_bytes: u64,
    /// What the job could take of its memory.
    pub budget_bytes: u64,
    /// The most that it took.
    pub peak_bytes: u64,
    /// Seconds from the job's begin to the end of its last task.
    pub last_task_seconds: f64,
}

/// Every worker of a job.
pub(super) fn workers(ledger: &Ledger) -> Vec<WorkerReport> {
    ledger
        .workers
        .iter()
        .map(|worker| of_worker(ledger, worker))
        .collect()
}

fn of_worker(ledger: &Ledger, worker: &WorkerEntry) -> WorkerReport {
    WorkerReport {
        name: worker.name.clone(),
        host: worker.host.clone(),
        threads: worker.threads.iter().map(of_thread).collect(),
        shares: shares(worker.threads.iter()),
        speed: super::balance::speed(ledger, worker),
        tasks: worker.tasks,
        shards: worker.shards,
        sent_bytes: worker.sent_bytes,
        received_bytes: worker.received_bytes,
        disk_read_bytes: worker.disk_read_bytes,
        disk_written_bytes: worker.disk_written_bytes,
        spilled_bytes: worker.spilled_bytes,
        budget_bytes: worker.budget_bytes,
        peak_bytes: worker.peak_bytes,
        last_task_seconds: worker.last_task_s,
    }
}

fn of_thread(thread: &ThreadEntry) -> ThreadReport {
    ThreadReport {
        name: thread.name.clone(),
        wall_seconds: thread.wall_s,
        parts: thread.parts,
        unattributed: unattributed(thread),
    }
}

/// The share of a thread's time that no part explains, or that its parts are too long.
pub(super) fn unattributed(thread: &ThreadEntry) -> f64 {
    share((thread.wall_s - thread.parts.total()).abs(), thread.wall_s)
}

/// The parts of threads together, as shares of their wall times.
pub(super) fn shares<'a>(threads: impl Iterator<Item = &'a ThreadEntry>) -> TimeParts {
    let (mut sum, mut wall) = (TimeParts::default(), 0.0);
    for thread in threads {
        sum = together(sum, thread.parts);
        wall += thread.wall_s;
    }
    each(sum, |seconds| share(seconds, wall))
}

/// A thread's moments; where nobody wrote them down, one that is the whole of it.
pub(super) fn moments(thread: &ThreadEntry) -> Vec<Moment> {
    if thread.moments.is_empty() && thread.parts.total() > 0.0 {
        return vec![Moment {
            parts: thread.parts,
            ..Moment::default()
        }];
    }
    thread.moments.clone()
}

/// The sums of two.
pub(super) fn together(one: TimeParts, other: TimeParts) -> TimeParts {
    TimeParts {
        kernels: one.kernels + other.kernels,
        scheduling: one.scheduling + other.scheduling,
        exchange: one.exchange + other.exchange,
        memory: one.memory + other.memory,
        disk: one.disk + other.disk,
        interpreter: one.interpreter + other.interpreter,
        spilling: one.spilling + other.spilling,
        startup: one.startup + other.startup,
        stragglers: one.stragglers + other.stragglers,
        other_jobs: one.other_jobs + other.other_jobs,
    }
}

/// Each part by itself.
pub(super) fn each(parts: TimeParts, of: impl Fn(f64) -> f64) -> TimeParts {
    TimeParts {
        kernels: of(parts.kernels),
        scheduling: of(parts.scheduling),
        exchange: of(parts.exchange),
        memory: of(parts.memory),
        disk: of(parts.disk),
        interpreter: of(parts.interpreter),
        spilling: of(parts.spilling),
        startup: of(parts.startup),
        stragglers: of(parts.stragglers),
        other_jobs: of(parts.other_jobs),
    }
}
