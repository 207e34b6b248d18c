//! Owns jobs that ran on while there was no controller: which of them a controller that has taken over goes on with as they are. The registry calls it for
//! workers that come back, and for the time.
//!
//! # Rules
//! * Whoever comes back with a job that the log has is asked what it holds. As soon as members hold all of a generation, that is the job's: nothing of
//!   it begins again, and nobody waits.
//! * After [`ADOPTION_TIME`] a job that was not adopted begins again, at its newest snapshot, when its client is there.
//! * What a worker has of other generations it drops once that is decided.

use super::{JobState, Order, OwnedMessage, PeerLink, Registry};
use crate::Adoption;
use brambling_protocol::message::{Accepted, ClusterEvent, EventKind, Holding, Member, Prepare};
use brambling_protocol::{Generation, JobId, JobKey, WorkerId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A controller that has taken over waits so long for the members of jobs that ran. Shorter: a member that looks for it once more loses its job what it has done
/// since its snapshot. Longer: a job that has lost a member stands still.
pub const ADOPTION_TIME: Duration = Duration::from_secs(5);

/// Jobs of which it is not known yet whether they go on.
#[derive(Default)]
pub(super) struct Adoptions {
    open: BTreeSet<JobId>,
    holdings: BTreeMap<JobId, BTreeMap<WorkerId, Holding>>,
}

impl Adoptions {
    /// A job of the log, which may run.
    pub(super) fn await_members(&mut self, job: JobId) {
        self.open.insert(job);
    }

    pub(super) fn are_open_for(&self, job: JobId) -> bool {
        self.open.contains(&job)
    }

    /// A worker is gone, and what it has said with it.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        for holdings in self.holdings.values_mut() {
            holdings.remove(&worker);
        }
    }

    /// The newest generation of which somebody has something.
    fn newest(&self, job: JobId) -> Option<Generation> {
        let holdings = self.holdings.get(&job)?.values();
        holdings.map(|it| it.key.generation).max()
    }
}

impl Registry {
    /// A worker has this, and the job is not known to run in that generation: it is asked, or drops it.
    pub(super) fn ask_holding(&mut self, to: PeerLink, key: JobKey) {
        let what = match self.adoptions.are_open_for(key.job) {
            true => OwnedMessage::AskHolding {
                key,
                term: self.lasting.term,
            },
            false => OwnedMessage::Release(key),
        };
        self.tell(to, what);
    }

    pub(super) fn on_holding(&mut self, from: PeerLink, worker: WorkerId, holding: Holding) {
        let key = holding.key;
        // Said before it was told what becomes of the job; or its name is another's now.
        if !self.adoptions.are_open_for(key.job) || holding.me != worker {
            let what = match self.running.contains_key(&key) {
                true => OwnedMessage::Adopted(key),
                false => OwnedMessage::Release(key),
            };
            return self.tell(from, what);
        }
        let holdings = self.adoptions.holdings.entry(key.job).or_default();
        holdings.insert(worker, holding);
        self.adopt_if_whole(key.job);
    }

    fn adopt_if_whole(&mut self, id: JobId) {
        let (Some(job), Some(generation)) = (self.jobs.get(&id), self.adoptions.newest(id)) else {
            return;
        };
        let key = JobKey::new(id, generation);
        let holdings = &self.adoptions.holdings[&id];
        if let Some(adoption) = Adoption::of(key, &job.shards, self.lasting.term, holdings) {
            self.adopt(adoption);
        }
    }

    /// The job goes on as it is.
    fn adopt(&mut self, adoption: Adoption) {
        let key = adoption.key;
        let members: Vec<WorkerId> = adoption.members.keys().copied().collect();
        let kept = self.kept_place(key.job);
        let member = |worker: &WorkerId| Member {
            worker: *worker,
            at: self.workers[worker].listens_at,
        };
        let prepare = Prepare {
            key,
            members: members.iter().map(member).collect(),
            shards: self.jobs[&key.job].shards.clone(),
            map: adoption.map.entries().collect(),
            kept: kept.clone().map(|(place, _)| place),
        };
        let job = self.jobs.get_mut(&key.job).expect("the caller has it");
        job.generation = key.generation;
        job.state = JobState::Running;
        job.losses.begins(self.now);
        job.members = members.clone();
        let client = job.client;
        let cut = job.snapshots.last().copied();
        self.queued.retain(|it| *it != key.job);
        self.running.insert(key, prepare);
        self.note(ClusterEvent {
            job: Some(key),
            cut,
            ..ClusterEvent::of(EventKind::JobAdopted)
        });
        self.orders.push(Order::Adopt { adoption, kept });
        for worker in &members {
            if let Some(to) = self.workers[worker].caller {
                self.tell(to, OwnedMessage::Adopted(key));
            }
        }
        self.close_adoption(key.job);
        if let Some(client) = client {
            self.tell_accepted(client, key);
        }
        // Workers that have come meanwhile.
        let others = self.taking().map(|(id, _)| id);
        let others: Vec<WorkerId> = others.filter(|it| !members.contains(it)).collect();
        others.into_iter().for_each(|it| self.admit(it));
    }

    /// A client hears who runs its job.
    pub(super) fn tell_accepted(&mut self, client: PeerLink, key: JobKey) {
        if let Some(prepare) = self.running.get(&key) {
            let members = prepare.members.clone();
            self.tell(client, OwnedMessage::Accepted(Accepted { key, members }));
        }
    }

    /// It is decided what becomes of a job: what is there of generations that do not go on is dropped.
    pub(super) fn close_adoption(&mut self, id: JobId) {
        self.adoptions.open.remove(&id);
        let holdings = self.adoptions.holdings.remove(&id).unwrap_or_default();
        for (worker, Holding { key, .. }) in holdings {
            let caller = self.workers.get(&worker).and_then(|it| it.caller);
            if let Some(to) = caller.filter(|_| !self.running.contains_key(&key)) {
                self.tell(to, OwnedMessage::Release(key));
            }
        }
    }

    /// Jobs whose members have not all come in time begin again.
    pub(super) fn give_up_adoptions(&mut self) {
        if self.adoptions.open.is_empty() || self.now < ADOPTION_TIME {
            return;
        }
        for id in self.adoptions.open.clone() {
            self.close_adoption(id);
        }
        self.begin_next();
    }
}
