//! A controller that balances: what workers tell goes onto the job's [`Scales`], and what these propose is ordered as any other move.

use crate::balance::{At, Place, Scales};
use crate::{Controller, Job};
use brambling_program::ShardId;
use brambling_protocol::message::Times;
use brambling_protocol::{JobId, WorkerId};
use std::collections::BTreeSet;
use std::time::Duration;

impl Controller {
    /// A job is balanced from now on.
    pub fn put_on(&mut self, job: JobId, scales: Scales) {
        if let Some(job) = self.jobs.get_mut(&job) {
            job.scales = Some(scales);
        }
    }

    /// A worker tells what the shards of a job took there. What comes twice counts twice: a worker says it once.
    pub fn on_times(&mut self, from: WorkerId, times: &Times) {
        let Some(Job { map, scales, .. }) = self.jobs.get_mut(&times.job) else {
            return;
        };
        let Some(scales) = scales else { return };
        for time in &times.shards {
            // Who has sent the shard away tells of what was before, and who speaks of no shard of ours is not heard.
            let entry = map.entry(time.shard).ok().flatten();
            if entry.is_some_and(|entry| entry.owner == from) {
                scales.on_time(from, time);
            }
        }
        scales.on_told(from);
    }

    /// These workers get no shards from now on, unless a user wants it or there is nobody else.
    pub fn leave_out(&mut self, workers: BTreeSet<WorkerId>) {
        self.left_out = workers;
    }

    /// A user has moved a shard: balancing leaves it there.
    pub fn pin(&mut self, job: JobId, shard: ShardId) {
        let job = self.jobs.get_mut(&job);
        if let Some(scales) = job.and_then(|job| job.scales.as_mut()) {
            scales.pin(shard);
        }
    }

    /// The time passes: orders what should move. `free_bytes` knows how much room workers have. To be called several times a period.
    pub fn balance(&mut self, now: Duration, free_bytes: impl Fn(WorkerId) -> u64) {
        let place = |worker: WorkerId| Place {
            worker,
            threads: self.threads.get(&worker).copied().unwrap_or(1),
            free_bytes: free_bytes(worker),
        };
        let stay = |worker: &WorkerId| {
            !self.leaving.contains_key(worker) && !self.left_out.contains(worker)
        };
        let places: Vec<Place> = (self.workers.keys().copied())
            .filter(stay)
            .map(place)
            .collect();
        let mut wanted = Vec::new();
        for (id, job) in &mut self.jobs {
            if let Some(scales) = &mut job.scales {
                let (map, moves) = (&job.map, &job.moves);
                let at = |shard: ShardId| match moves.get(&shard) {
                    Some(moving) => Some(At::Towards(moving.to)),
                    None => Some(At::Here(map.entry(shard).ok()??.owner)),
                };
                let proposed = scales.round(now, &places, at);
                wanted.extend(proposed.into_iter().map(|it| (*id, it)));
            }
        }
        for (job, proposal) in wanted {
            // Whatever forbids it now, the next round sees it.
            let _ = self.order(job, proposal.shard, proposal.to, proposal.bytes);
        }
    }
}
