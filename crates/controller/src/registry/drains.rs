//! Owns the workers that are to end. The registry calls it when a client asks for that, and when
//! jobs let go of a worker. It never ends one that still holds something of a job.

use super::{Order, OwnedMessage, PeerLink, Registry};
use brambling_protocol::message::Prepare;
use brambling_protocol::{JobKey, WorkerId};

/// Whether a worker is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Drain {
    #[default]
    No,
    /// When it holds nothing.
    Asked,
    /// It was told.
    Done,
}

impl Registry {
    /// A client wants a worker drained. It hears when that is done, or why it is not.
    pub(super) fn on_drain(&mut self, from: PeerLink, id: WorkerId) {
        let stays = |(other, it): (&WorkerId, &super::Worker)| {
            *other != id && it.drain == Drain::No && it.caller.is_some()
        };
        let others_stay = self.workers.iter().any(stays);
        let Some(worker) = self.workers.get_mut(&id) else {
            let why =
                format!("there is no worker {id}; `brambling status` lists those that there are");
            return self.refuse(from, why);
        };
        // The last worker cannot go: its shards would have nowhere to go to.
        if worker.drain == Drain::No && !others_stay {
            let why = format!(
                "worker {id} is the last one that takes shards; start another first, with `brambling worker`"
            );
            return self.refuse(from, why);
        }
        let before = worker.drain;
        if before == Drain::No {
            worker.drain = Drain::Asked;
        }
        // Several clients may ask for the same worker, and all are told.
        self.drains.push((id, from));
        let jobs = self.jobs_of(id);
        if jobs.is_empty() {
            return self.end_drain(id);
        }
        if before == Drain::No {
            let drain = |key| Order::Drain { key, worker: id };
            self.orders.extend(jobs.into_iter().map(drain));
        }
    }

    /// The jobs of which a worker is a member.
    pub(super) fn jobs_of(&self, worker: WorkerId) -> Vec<JobKey> {
        let is_member =
            |(_, it): &(&JobKey, &Prepare)| it.members.iter().any(|it| it.worker == worker);
        let of_it = self.running.iter().filter(is_member);
        of_it.map(|(key, _)| *key).collect()
    }

    /// A worker has left a job: it is no member any more, and its end is no loss.
    pub fn on_left(&mut self, key: JobKey, worker: WorkerId) {
        let Some(job) = self.jobs.get_mut(&key.job) else {
            return;
        };
        if let Some(prepare) = self.running.get_mut(&key) {
            prepare.members.retain(|member| member.worker != worker);
        }
        if job.generation == key.generation {
            job.members.retain(|member| *member != worker);
            if let Some(client) = job.client {
                self.tell(client, OwnedMessage::Left { key, worker });
            }
        }
        if let Some(caller) = self.workers.get(&worker).and_then(|it| it.caller) {
            self.tell(caller, OwnedMessage::Release(key));
        }
        self.end_drains();
    }

    /// Who is to end does, once no job that runs has it.
    pub(super) fn end_drains(&mut self) {
        let asked = self
            .workers
            .iter()
            .filter(|(_, it)| it.drain == Drain::Asked);
        for worker in asked.map(|(id, _)| *id).collect::<Vec<_>>() {
            if self.jobs_of(worker).is_empty() {
                self.end_drain(worker);
            }
        }
    }

    fn end_drain(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        // Told once: a worker that loses the link before it has heard is told again when it
        // registers.
        worker.drain = Drain::Done;
        let caller = worker.caller;
        let (those, others) = std::mem::take(&mut self.drains)
            .into_iter()
            .partition(|(it, _)| *it == id);
        self.drains = others;
        let those: Vec<(WorkerId, PeerLink)> = those;
        for to in caller
            .into_iter()
            .chain(those.into_iter().map(|(_, by)| by))
        {
            self.tell(to, OwnedMessage::Drained(id));
        }
    }

    /// A worker is gone: who wanted it drained has that, one way or the other.
    pub(super) fn forget_drain(&mut self, id: WorkerId) {
        for (_, by) in self
            .drains
            .extract_if(.., |(it, _)| *it == id)
            .collect::<Vec<_>>()
        {
            self.refuse(by, format!("worker {id} was lost before it was drained"));
        }
    }

    /// How many threads a worker has.
    pub fn threads(&self, worker: WorkerId) -> u32 {
        self.workers.get(&worker).map_or(1, |worker| worker.threads)
    }
}
