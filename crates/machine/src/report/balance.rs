//! How evenly a job's work lay: skew, the split of what was sent, and who waited for the last one.

use serde::{Deserialize, Serialize};

use super::ideal::{pool_threads, share};
use crate::ledger::{Ledger, WorkerEntry};

/// How evenly the work lay on workers and shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    /// The busiest worker's seconds in kernels for each of its threads, as a multiple of the mean: 1 is even. Null for one worker.
    pub slowest_worker: Option<f64>,
    /// The longest shard, as a multiple of the mean of the shards beside it: 1 is even. Null for one shard.
    pub slowest_shard: Option<f64>,
    /// What the worker that received the most bytes got more than an even split, as a share of that (paper §6): 0 is even. Null for one worker.
    pub split_imbalance: Option<f64>,
    /// Mean seconds from a worker's last task to the last one of all (paper §7); of threads, in a process alone.
    pub stragglers_seconds: f64,
}

/// Of a whole job.
pub(super) fn of(ledger: &Ledger) -> Balance {
    Balance {
        slowest_worker: slowest_worker(ledger),
        slowest_shard: slowest_shard(ledger).map(|(_, multiple)| multiple),
        split_imbalance: split_imbalance(ledger),
        stragglers_seconds: stragglers(ledger),
    }
}

fn slowest_worker(ledger: &Ledger) -> Option<f64> {
    let busy = |worker: &WorkerEntry| {
        let kernels: f64 = worker
            .threads
            .iter()
            .map(|thread| thread.parts.kernels)
            .sum();
        kernels / pool_threads(worker).max(1) as f64
    };
    over_mean(ledger.workers.iter().map(busy))
}

/// The largest as a multiple of the mean of two or more.
fn over_mean(values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let (count, sum) = (values.clone().count(), values.clone().sum::<f64>());
    let largest = values.fold(0.0, f64::max);
    (count > 1 && sum > 0.0).then(|| largest / (sum / count as f64))
}

/// The worker with the most uneven shards, and how long its longest is beside their mean.
pub(super) fn slowest_shard(ledger: &Ledger) -> Option<(&WorkerEntry, f64)> {
    let uneven = |worker: &WorkerEntry| {
        (worker.shards > 1 && worker.mean_shard_s > 0.0)
            .then(|| worker.longest_shard_s / worker.mean_shard_s)
    };
    let all = ledger
        .workers
        .iter()
        .filter_map(|worker| Some((worker, uneven(worker)?)));
    all.max_by(|one, other| one.1.total_cmp(&other.1))
}

fn split_imbalance(ledger: &Ledger) -> Option<f64> {
    over_mean(
        ledger
            .workers
            .iter()
            .map(|worker| worker.received_bytes as f64),
    )
    .map(|multiple| multiple - 1.0)
}

fn stragglers(ledger: &Ledger) -> f64 {
    if ledger.workers.len() > 1 {
        let last = ledger
            .workers
            .iter()
            .map(|worker| worker.last_task_s)
            .fold(0.0, f64::max);
        let waits = ledger
            .workers
            .iter()
            .map(|worker| (last - worker.last_task_s).max(0.0));
        return waits.sum::<f64>() / ledger.workers.len() as f64;
    }
    let threads: Vec<_> = ledger
        .workers
        .iter()
        .flat_map(|worker| &worker.threads)
        .collect();
    share(
        threads.iter().map(|thread| thread.parts.stragglers).sum(),
        threads.len() as f64,
    )
}

/// How fast a worker's shards run beside those of the others. Its longest shard counts for nothing: one shard of more
/// rows makes no slow worker.
pub(super) fn speed(ledger: &Ledger, worker: &WorkerEntry) -> Option<f64> {
    let mut others: Vec<f64> = ledger
        .workers
        .iter()
        .filter(|other| other.name != worker.name)
        .filter_map(usual_shard_s)
        .collect();
    others.sort_by(f64::total_cmp);
    let middle = *others.get(others.len().checked_sub(1)? / 2)?;
    Some(middle / usual_shard_s(worker)?)
}

fn usual_shard_s(worker: &WorkerEntry) -> Option<f64> {
    let shards = f64::from(worker.shards);
    let without_longest = if worker.shards > 1 {
        (worker.mean_shard_s * shards - worker.longest_shard_s) / (shards - 1.0)
    } else {
        worker.mean_shard_s
    };
    Some(without_longest).filter(|seconds| *seconds > 0.0)
}
