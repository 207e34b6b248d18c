//! A controller that balances: what workers tell goes onto the job's [`Scales`], and what these propose is ordered as any other move.

use crate::Controller;
use crate::balance::{Scales, ShardLocation, WorkerCapacity};
use brambling_program::ShardId;
use brambling_protocol::WorkerId;
use brambling_protocol::message::ShardTimes;
use std::collections::BTreeSet;
use std::time::Duration;

impl Controller {
    /// The job is balanced from now on.
    pub fn put_on(&mut self, scales: Scales) {
        self.scales = Some(scales);
    }

    /// A worker tells what shards took there. What comes twice counts twice: a worker says it once.
    pub fn on_times(&mut self, from: WorkerId, times: &ShardTimes) {
        let is_ours = times.key == self.key;
        let Some(scales) = self.scales.as_mut().filter(|_| is_ours) else {
            return;
        };
        for time in &times.shards {
            // A worker that has sent the shard away tells of earlier turns, and one that names a
            // shard which the map does not know is not heard.
            let entry = self.map.entry(time.shard).ok().flatten();
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
    pub fn pin(&mut self, shard: ShardId) {
        if let Some(scales) = &mut self.scales {
            scales.pin(shard);
        }
    }

    /// The time passes: orders what should move. `free_bytes` knows how much room workers have. To be called several times a period.
    pub fn balance(&mut self, now: Duration, free_bytes: impl Fn(WorkerId) -> u64) {
        if self.is_saving() {
            return;
        }
        let Some(scales) = &mut self.scales else {
            return;
        };
        let place = |worker: WorkerId| WorkerCapacity {
            worker,
            threads: self.threads.get(&worker).copied().unwrap_or(1),
            free_bytes: free_bytes(worker),
        };
        let stay = |worker: &WorkerId| {
            !self.leaving.contains_key(worker) && !self.left_out.contains(worker)
        };
        let places: Vec<WorkerCapacity> = (self.workers.keys().copied())
            .filter(stay)
            .map(place)
            .collect();
        // A shard on its way counts where it goes: two rounds would else fill one worker twice.
        let at = |shard: ShardId| match self.moves.get(&shard) {
            Some(moving) => Some(ShardLocation::Towards(moving.to)),
            None => Some(ShardLocation::Here(self.map.entry(shard).ok()??.owner)),
        };
        for proposal in scales.round(now, &places, at) {
            // Whatever forbids the move now, the next round sees it.
            let _ = self.order(proposal.shard, proposal.to, proposal.bytes);
        }
    }
}
