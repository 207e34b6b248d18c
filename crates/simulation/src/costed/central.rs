//! A central scheduler: it dispatches every task (Canary, §2 and §5.3).
//!
//! The friendliest that one can be: it sends a task to a core the moment it knows of a free one and has the time to, never to the wrong place,
//! learns of its end as soon as a message can tell, and needs no time for the model between two iterations. What it cannot do is
//! dispatch more tasks than its rate. Spark gives a core its next task when it knows that the last one has ended, and so does this one.

use super::outcome::{CentralOutcome, DurationSummary};
use super::{CostedWork, LinkCosts, Nanos};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Runs the job's iterations with one task for each shard in each: kernels as in [`local`](super::local), dispatched at so many a second.
///
/// # Panics
/// When the rate is not positive.
pub fn central(work: &CostedWork, network: &LinkCosts, tasks_per_s: f64) -> CentralOutcome {
    assert!(tasks_per_s > 0.0, "a scheduler that never dispatches");
    let dispatch = 1e9 / tasks_per_s;
    let slots = work.workers * work.cores;
    // When the scheduler knows that a core is free.
    let mut free: BinaryHeap<Reverse<Nanos>> = (0..slots).map(|_| Reverse(0)).collect();
    let mut scheduler_free = 0.0;
    let (mut began, mut iterations, mut kernels) = (0, Vec::new(), 0);
    for _ in 0..work.iterations {
        let mut ended = began;
        for shard in 0..work.shards() {
            let Reverse(core_free) = free.pop().expect("as many as there are cores");
            let ready = core_free.max(began) as f64;
            scheduler_free = ready.max(scheduler_free) + dispatch;
            let takes = work.kernels_ns(shard);
            let known = scheduler_free as Nanos + takes + 2 * network.latency_ns;
            free.push(Reverse(known));
            ended = ended.max(known);
            kernels += takes;
        }
        iterations.push(ended - began);
        began = ended;
    }
    CentralOutcome {
        virtual_s: began as f64 / 1e9,
        tasks: u64::from(work.shards()) * u64::from(work.iterations),
        iteration_ms: DurationSummary::of(iterations),
        idle: 1.0 - kernels as f64 / (began as f64 * f64::from(slots)),
    }
}
