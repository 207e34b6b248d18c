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

/// The worker with the most uneven shards, and how long its longest is beside their mean; of a worker's only shard,
/// beside those of all workers.
pub(super) fn slowest_shard(ledger: &Ledger) -> Option<(&WorkerEntry, f64)> {
    let shards: u32 = ledger.workers.iter().map(|worker| worker.shards).sum();
    let seconds: f64 = ledger
        .workers
        .iter()
        .map(|worker| worker.mean_shard_s * f64::from(worker.shards))
        .sum();
    let uneven = |worker: &WorkerEntry| {
        let mean = if worker.shards > 1 {
            worker.mean_shard_s
        } else {
            seconds / f64::from(shards)
        };
        (shards > 1 && worker.shards > 0 && mean > 0.0).then(|| worker.longest_shard_s / mean)
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

/// How fast a worker is beside the others: by the bytes that its kernels stream, or by how long its shards run where
/// nobody counts most of them. One shard of more rows makes no slow worker.
pub(super) fn speed(ledger: &Ledger, worker: &WorkerEntry) -> Option<f64> {
    let others: Vec<&WorkerEntry> = ledger
        .workers
        .iter()
        .filter(|other| other.name != worker.name)
        .collect();
    streaming_speed(&others, worker).or_else(|| {
        let middle = middle(others.iter().filter_map(|other| usual_shard_s(other)))?;
        Some(middle / usual_shard_s(worker)?)
    })
}

/// The seconds in which the others would have streamed its bytes, stage by stage, beside those that it took. `None` where
/// stages that stream are less than half of its kernels' time.
fn streaming_speed(others: &[&WorkerEntry], worker: &WorkerEntry) -> Option<f64> {
    let (mut of_others, mut own, mut all) = (0.0, 0.0, 0.0);
    for (index, work) in worker.stages.iter().enumerate() {
        all += work.kernel_s;
        let of_stage = others.iter().filter_map(|other| other.stages.get(index));
        let streaming = of_stage.filter(|work| work.streamed_bytes > 0 && work.kernel_s > 0.0);
        let s_per_byte = middle(streaming.map(|work| work.kernel_s / work.streamed_bytes as f64));
        if let (Some(s_per_byte), true) = (s_per_byte, work.streamed_bytes > 0) {
            of_others += work.streamed_bytes as f64 * s_per_byte;
            own += work.kernel_s;
        }
    }
    (own > 0.0 && own >= 0.5 * all).then(|| of_others / own)
}

/// How long a shard runs, without the longest: it may have more rows. Nobody can tell of one shard.
fn usual_shard_s(worker: &WorkerEntry) -> Option<f64> {
    let shards = f64::from(worker.shards);
    let all_but_one = worker.mean_shard_s * shards - worker.longest_shard_s;
    Some(all_but_one / (shards - 1.0)).filter(|seconds| worker.shards > 1 && *seconds > 0.0)
}

fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}
