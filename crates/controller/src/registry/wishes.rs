//! What clients want done with shards and workers, and what they are told of it.

use super::{JobState, Order, OwnedMessage, PeerLink, Registry};
use brambling_program::ShardId;
use brambling_protocol::message::{ClusterEvent, EventKind, Move};
use brambling_protocol::{JobId, JobKey, WorkerId};

impl Registry {
    /// A client wants a shard moved. It hears when that is there, or why it stays.
    pub(super) fn on_move(&mut self, from: PeerLink, wish: Move) {
        match self.movable(&wish) {
            Ok(key) => {
                let Move { shard, to, .. } = wish;
                // Noted before the order is given: the answer may come at once.
                self.wishes.insert((key, shard), from);
                self.orders.push(Order::Move { key, shard, to });
            }
            Err(why) => self.refuse(from, why),
        }
    }

    /// The job of which a shard is to move, or why it cannot.
    fn movable(&self, wish: &Move) -> Result<JobKey, String> {
        let Move { job, shard, to } = *wish;
        let mut running = self.running.keys().map(|key| key.job);
        let id = match (job, running.next(), running.next()) {
            (Some(job), ..) => job,
            (None, Some(only), None) => only,
            (None, None, _) => {
                return Err(
                    "no job runs; its shards can be moved while one does (`brambling status` lists the jobs)".into(),
                );
            }
            (None, Some(_), Some(_)) => {
                return Err("several jobs run: say whose shard is to move, with --job".into());
            }
        };
        let job = self.jobs.get(&id);
        let job = job.ok_or_else(|| {
            format!("there is no job {id}; `brambling status` lists those that there are")
        })?;
        match job.state {
            JobState::Queued => {
                return Err(format!(
                    "job {id} waits for its turn; move its shards when it runs"
                ));
            }
            JobState::Succeeded | JobState::Failed => return Err(format!("job {id} is over")),
            JobState::Running => {}
        }
        let shards = job.shards.get(shard.group.index());
        if shards.is_none_or(|count| shard.index >= *count) {
            return Err(format!(
                "job {id} has no shard {}.{}; its groups, from 0, have {:?} shards",
                shard.group.0, shard.index, job.shards
            ));
        }
        if !self.workers.contains_key(&to) {
            return Err(format!(
                "there is no worker {to}; `brambling status` lists those that there are"
            ));
        }
        let key = JobKey::new(id, job.generation);
        // Two wishes for a shard would get one answer, which only the later client would hear.
        if self.wishes.contains_key(&(key, shard)) {
            return Err(format!(
                "shard {shard} is on its way already; move it again when it has arrived"
            ));
        }
        Ok(key)
    }

    /// A shard has moved.
    pub fn on_moved(&mut self, key: JobKey, shard: ShardId, to: WorkerId) {
        let event = ClusterEvent::of(EventKind::ShardMoved);
        self.note(ClusterEvent {
            worker: Some(to),
            job: Some(key),
            cause: Some(format!("shard {shard}")),
            ..event
        });
        if let Some(by) = self.wishes.remove(&(key, shard)) {
            let job = Some(key.job);
            self.tell(by, OwnedMessage::Moved(Move { job, shard, to }));
        }
    }

    /// A shard does not move.
    pub fn on_stays(&mut self, key: JobKey, shard: ShardId, why: impl Into<String>) {
        if let Some(by) = self.wishes.remove(&(key, shard)) {
            self.refuse(by, why);
        }
    }

    /// A job is over: what was to move stays.
    pub(super) fn end_wishes(&mut self, job: JobId) {
        let of_job = |(at, _): &(&(JobKey, ShardId), &PeerLink)| at.0.job == job;
        let ended = self.wishes.iter().filter(of_job).map(|(_, by)| *by);
        for by in ended.collect::<Vec<_>>() {
            self.refuse(
                by,
                format!("job {job} is over; its shards stay where they are"),
            );
        }
        self.wishes.retain(|at, _| at.0.job != job);
    }

    /// How many bytes a worker has room for, as it told last.
    pub fn free_bytes(&self, worker: WorkerId) -> u64 {
        let worker = self.workers.get(&worker);
        worker.map_or(0, |it| it.memory_bytes.saturating_sub(it.load.memory_bytes))
    }

    /// How large a shard of a worker that holds so many is thought to be.
    pub fn shard_bytes(&self, worker: WorkerId, held: u32) -> u64 {
        let load = self.workers.get(&worker).map(|worker| &worker.load);
        load.map_or(0, |load| load.memory_bytes) / u64::from(held.max(1))
    }
}
