//! Owns a job's way through a cluster: it is submitted and waits, begins, ends, is released, and at
//! last forgotten. The registry calls it for clients' messages, and for ends that a job's
//! controller reports. It never moves a shard.

use super::drains::Drain;
use super::recovery::UNKEPT;
use super::{
    Order, OwnedMessage, PeerLink, REMEMBERED, RegisteredJob, Registry, RegistryError, Worker,
};
use crate::placement::{place, place_again};
use brambling_protocol::kept::LogEntry;
use brambling_protocol::message::{Accepted, EventKind, JobState, Member, Prepare, Submit};
use brambling_protocol::{JobId, JobKey, WorkerId};
use std::collections::BTreeMap;

/// The most shards of a job.
const SHARDS_MAX: u64 = 1 << 24;

impl Registry {
    pub(super) fn on_submit(
        &mut self,
        from: PeerLink,
        submit: &Submit<'_>,
    ) -> Result<(), RegistryError> {
        // Taken first, whatever becomes of the submission: all of it was said for this one, and not
        // for the next.
        let columns = self.clients.arranged(from, submit.shards.len())?;
        let brings = self.clients.brought(from);
        let survives = self.clients.survived(from);
        let restores = self.clients.restored(from);
        let asked_as = self.lasting.named(from);
        if let Some(name) = asked_as
            && self.attach(from, name, restores.as_ref())
        {
            return Ok(());
        }
        let shards = submit.shards.iter().copied().map(u64::from).sum();
        if shards > SHARDS_MAX {
            return Err(RegistryError::TooManyShards { shards });
        }
        if submit.version != self.version {
            let why = format!(
                "this process is of brambling {} and the controller of {}; install the same version on both",
                submit.version, self.version
            );
            self.refuse(from, why);
            return Ok(());
        }
        if self.workers.is_empty() && !self.awaits_workers() {
            self.refuse(
                from,
                "the cluster has no workers; start some with `brambling worker --controller HOST:PORT`",
            );
            return Ok(());
        }
        if restores.is_some() && !self.keeps(&survives) {
            self.refuse(from, UNKEPT);
            return Ok(());
        }
        let id = JobId(self.next_job);
        self.next_job += 1;
        let job = RegisteredJob {
            client: Some(from),
            by: self.clients.of(from),
            asked_as,
            columns,
            brings,
            survives,
            ..RegisteredJob::new(
                submit.name.to_owned(),
                submit.shards.clone(),
                self.lasting.first_generation(),
            )
        };
        self.jobs.insert(id, job);
        self.counts.submitted += 1;
        self.log_submitted(id);
        let key = JobKey::new(id, self.lasting.first_generation());
        self.note_job(EventKind::JobSubmitted, key, None);
        self.tell(from, OwnedMessage::Queued(id));
        match restores {
            Some(at) => self.copy_snapshot(id, at),
            None => self.queued.push_back(id),
        }
        self.begin_next();
        Ok(())
    }

    /// Jobs that wait begin, as long as there is room for them.
    pub(super) fn begin_next(&mut self) {
        while self.running.len() < self.jobs_at_once as usize && !self.queued.is_empty() {
            let members: Vec<(WorkerId, u32)> = self
                .taking()
                .map(|(id, worker)| (id, worker.threads))
                .collect();
            // Only the first job is looked at: small jobs would else overtake a large one for ever.
            let first = self.queued[0];
            if members.is_empty() || self.lacks_room(first).is_some() {
                return;
            }
            // Losses in a row: it rests before it begins again.
            if self.jobs[&first].losses.rests(self.now).is_some() {
                return;
            }
            // It may run, and go on as it is.
            if self.adoptions.are_open_for(first) {
                return;
            }
            if let Some(id) = self.queued.pop_front() {
                self.begin(id, &members);
            }
        }
    }

    /// The workers that take new jobs.
    pub(super) fn taking(&self) -> impl Iterator<Item = (WorkerId, &Worker)> {
        let takes = |worker: &Worker| {
            // A worker without a link could not be told, and the others would wait for it.
            worker.caller.is_some()
                && worker.drain == Drain::No
                && worker.stuck.is_empty()
                && !self.is_left_out(worker)
        };
        let workers = self.workers.iter();
        let workers = workers.filter(move |(_, worker)| takes(worker));
        workers.map(|(id, worker)| (*id, worker))
    }

    fn begin(&mut self, id: JobId, members: &[(WorkerId, u32)]) {
        let job = self.jobs.get_mut(&id).expect("a job that waits");
        let key = JobKey::new(id, job.generation);
        job.state = JobState::Running;
        job.losses.begins(self.now);
        job.members = members.iter().map(|(id, _)| *id).collect();
        let (shards, client) = (job.shards.clone(), job.client);
        // Without a snapshot nobody has anything that is of use.
        let held = job.losses.take_held().filter(|_| !job.snapshots.is_empty());
        let map = match held {
            Some(held) => place_again(&held, &job.columns, members),
            None => place(&shards, &job.columns, members),
        };
        let member = |(worker, _): &(WorkerId, u32)| Member {
            worker: *worker,
            at: self.workers[worker].listens_at,
        };
        let to_reach: Vec<Member> = members.iter().map(member).collect();
        self.note_job(EventKind::JobBegun, key, None);
        let kept = self.kept_place(id);
        // The job's controller begins before the members are told: their first frames find it.
        self.orders.push(Order::Begin {
            key,
            members: members.iter().map(|(id, _)| *id).collect(),
            map: map.clone(),
            kept: kept.clone(),
        });
        let prepare = Prepare {
            key,
            members: to_reach.clone(),
            shards,
            map: map.entries().collect(),
            kept: kept.map(|(place, _)| place),
        };
        // Kept for workers that come back, or come later.
        self.running.insert(key, prepare.clone());
        let callers = members.iter().filter_map(|(id, _)| self.workers[id].caller);
        for to in callers.collect::<Vec<_>>() {
            self.tell_prepare(to, prepare.clone());
        }
        if let Some(client) = client {
            let members = to_reach;
            self.tell(client, OwnedMessage::Accepted(Accepted { key, members }));
        }
    }

    /// Ends a job that has not ended.
    pub(super) fn cancel(&mut self, id: JobId, why: String) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let key = JobKey::new(id, job.generation);
        match job.state {
            // The job's members are told, and its end comes from there.
            JobState::Running => self.orders.push(Order::Cancel { key, why }),
            JobState::Queued => {
                self.queued.retain(|queued| *queued != id);
                self.end(id, Some(why));
            }
            JobState::Succeeded | JobState::Failed => {}
        }
    }

    /// A job's controller says that it is over.
    pub fn on_over(&mut self, key: JobKey, failure: Option<String>) {
        if self.job_in(key).is_some() {
            self.end(key.job, failure);
        }
    }

    pub(super) fn end(&mut self, id: JobId, failure: Option<String>) {
        // Counted before the state changes: a job that has ended already is not counted again.
        self.count_end(id, failure.is_none());
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.state = match failure {
            None => JobState::Succeeded,
            Some(_) => JobState::Failed,
        };
        job.failure = failure.clone();
        let client = job.client;
        let key = JobKey::new(id, job.generation);
        self.note_job(EventKind::JobEnded, key, failure.clone());
        self.end_saves(id);
        self.end_wishes(id);
        self.tell_enders(id);
        if let Some(client) = client {
            self.tell(client, OwnedMessage::Over { job: id, failure });
        }
    }

    pub(super) fn on_done(&mut self, from: PeerLink, id: JobId) {
        if self
            .jobs
            .get(&id)
            // Anybody may end a job, but only its own client may have it forgotten.
            .is_some_and(|job| job.client == Some(from))
        {
            self.release(id, "its client is done with it");
        }
    }

    /// Nobody asks for a job any more: its members drop what they have of it, and the next one begins. `why` is how it has ended, if
    /// nothing else has ended it.
    pub(super) fn release(&mut self, id: JobId, why: &str) {
        // First: a controller that another has taken over from tells nobody to end what that one goes on with.
        self.log(LogEntry::Released(id));
        self.cancel(id, why.to_owned());
        self.count_end(id, false);
        if let Some(job) = self.jobs.get_mut(&id) {
            job.client = None;
            if !matches!(job.state, JobState::Succeeded) {
                job.state = JobState::Failed;
                // The first failure is the one that people read.
                job.failure.get_or_insert_with(|| why.to_owned());
            }
        }
        self.tell_enders(id);
        self.close_adoption(id);
        self.queued.retain(|queued| *queued != id);
        self.release_members(id);
        if let Some((place, _)) = self.kept_place(id) {
            self.orders.push(Order::Clear(place));
        }
        self.forget_old();
        // Begun last: by now the room and the place of this job are free.
        self.begin_next();
    }

    /// Whoever has something of a job drops it.
    pub(super) fn release_members(&mut self, id: JobId) {
        let (released, others) = std::mem::take(&mut self.running)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(key, _)| key.job == id);
        self.running = others;
        for (key, Prepare { members, .. }) in released {
            let worker = |it: &Member| self.workers.get(&it.worker)?.caller;
            for to in members.iter().filter_map(worker).collect::<Vec<_>>() {
                self.tell(to, OwnedMessage::Release(key));
            }
            self.orders.push(Order::Forget(key));
            self.end_drains();
        }
    }

    fn forget_old(&mut self) {
        // Those that wait for their client are not over.
        let is_over =
            |job: &RegisteredJob| matches!(job.state, JobState::Succeeded | JobState::Failed);
        let is_old = |(_, job): &(&JobId, &RegisteredJob)| job.client.is_none() && is_over(job);
        let old: Vec<JobId> = self.jobs.iter().filter(is_old).map(|(id, _)| *id).collect();
        for id in &old[..old.len().saturating_sub(REMEMBERED)] {
            self.jobs.remove(id);
        }
    }
}
