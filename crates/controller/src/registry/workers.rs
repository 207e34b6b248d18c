//! Owns workers that come, come back and are lost, and what they hear of the jobs of which they are
//! members. The registry calls it for their messages and their links. It gives nobody up who has a link.

use super::drains::Drain;
use super::{Order, OwnedMessage, PeerLink, Registry, Worker};
use crate::WorkerLoss;
use brambling_protocol::message::{
    EventKind, JobState, Load, Member, Prepare, Register, Registered,
};
use brambling_protocol::{JobKey, PartitionMap, WorkerId};

impl Registry {
    pub(super) fn worker_of(&self, caller: PeerLink) -> Option<WorkerId> {
        let is_it = |(_, worker): &(&WorkerId, &Worker)| worker.caller == Some(caller);
        self.workers.iter().find(is_it).map(|(id, _)| *id)
    }

    pub(super) fn on_register(&mut self, from: PeerLink, register: &Register<'_>) {
        if register.version != self.version {
            let why = format!(
                "the worker is of brambling {} and the controller of {}; install the same version on both",
                register.version, self.version
            );
            return self.refuse(from, why);
        }
        if self.turn_away(from, register.epoch) {
            return;
        }
        let known = register.known_as.filter(|id| {
            let worker = self.workers.get(id);
            // Only the same process: one that was started again under its name holds nothing of
            // what the other one held.
            worker.is_some_and(|worker| worker.epoch == register.epoch)
        });
        // A worker that registers twice on one link keeps its name.
        let known = known.or_else(|| self.worker_of(from));
        // A controller that has taken over knows nobody, and gives everybody the name that they had.
        let before = register
            .known_as
            .filter(|it| self.lasts() && !self.workers.contains_key(it));
        let id = known.or(before).unwrap_or_else(|| {
            self.next_worker += 1;
            WorkerId(self.next_worker)
        });
        self.next_worker = self.next_worker.max(id.0);
        // What was known of the worker still holds until it says something newer.
        let (load, uses, stuck, drain) = match self.workers.remove(&id) {
            Some(before) => (before.load, before.uses, before.stuck, before.drain),
            None => {
                let load = Load {
                    memory_bytes: 0,
                    idle_permille: 1_000,
                    tasks: Vec::new(),
                    running: Vec::new(),
                };
                (load, Vec::new(), Vec::new(), Drain::default())
            }
        };
        let worker = Worker {
            epoch: register.epoch,
            caller: Some(from),
            lost_at: None,
            loss: WorkerLoss::Ended,
            heard_at: self.now,
            pid: register.pid,
            host: register.host.to_owned(),
            threads: register.threads,
            memory_bytes: register.memory_bytes,
            listens_at: register.listens_at,
            load,
            uses,
            stuck,
            drain,
        };
        let is_new = self.heard_of.insert(id);
        self.workers.insert(id, worker);
        if is_new {
            self.note_worker(EventKind::WorkerJoined, id, None);
        }
        self.tell(from, OwnedMessage::Registered(Registered { worker: id }));
        self.tell_lasting(from);
        // Caught up before it is admitted to more: first it releases jobs that nobody asks for any
        // more.
        self.catch_up(from, id, &register.jobs);
        match self.workers[&id].drain {
            Drain::No if self.workers[&id].stuck.is_empty() => self.admit(id),
            Drain::No => {}
            Drain::Asked => {}
            // The worker was told, and perhaps has not heard it.
            Drain::Done => self.tell(from, OwnedMessage::Drained(id)),
        }
        self.begin_next();
    }

    /// A worker that is no member of the jobs that run becomes one.
    pub(super) fn admit(&mut self, worker: WorkerId) {
        let is_in = self.jobs_of(worker);
        let runs = |key: &JobKey| {
            let job = self.job_in(*key);
            job.is_some_and(|job| job.state == JobState::Running && self.has_room_for(worker, job))
        };
        let keys = self.running.keys().copied();
        let keys = keys.filter(|key| runs(key) && !is_in.contains(key));
        let admit = |key| Order::Admit { key, worker };
        self.orders.extend(keys.map(admit).collect::<Vec<_>>());
    }

    /// The job's controller has taken a worker in, and says where shards are: the worker prepares itself, and the client sends it the
    /// program.
    pub fn on_admitted(&mut self, key: JobKey, worker: WorkerId, map: &PartitionMap) {
        let (Some(it), Some(job)) = (self.workers.get(&worker), self.jobs.get_mut(&key.job)) else {
            return;
        };
        let (caller, at) = (it.caller, it.listens_at);
        let Some(prepare) = self.running.get_mut(&key) else {
            return;
        };
        let member = Member { worker, at };
        job.members.push(worker);
        prepare.members.push(member);
        prepare.map = map.entries().collect();
        let (prepare, client) = (prepare.clone(), job.client);
        if let Some(caller) = caller {
            self.tell_prepare(caller, prepare);
        }
        if let Some(client) = client {
            self.tell(client, OwnedMessage::Admitted { key, member });
        }
    }

    /// What a worker may have missed while it had no link: jobs that began, and jobs that nobody asks for any more.
    fn catch_up(&mut self, to: PeerLink, worker: WorkerId, has: &[JobKey]) {
        for &key in has {
            if !self.running.contains_key(&key) {
                self.ask_holding(to, key);
            }
        }
        let is_member = |member: &Member| member.worker == worker;
        let prepares = self.running.values();
        let prepares = prepares.filter(|it| it.members.iter().any(is_member));
        for prepare in prepares.cloned().collect::<Vec<_>>() {
            self.tell_prepare(to, prepare);
        }
    }

    /// A worker hears of a job, and what that weighs.
    pub(super) fn tell_prepare(&mut self, to: PeerLink, prepare: Prepare) {
        let job = prepare.key.job;
        self.tell(to, OwnedMessage::Prepare(prepare));
        let weight = self.jobs[&job].weight;
        if weight != 1 {
            self.tell(to, OwnedMessage::Weigh { job, weight });
        }
    }

    pub(super) fn on_load(&mut self, id: WorkerId, load: Load) {
        for (key, tasks) in &load.tasks {
            if let Some(job) = self.jobs.get_mut(&key.job) {
                let at = (key.generation, id);
                // Workers tell totals, so a message that is lost or comes twice changes no sum.
                let before = job.tasks.insert(at, *tasks).unwrap_or(0);
                self.counts.tasks += tasks.saturating_sub(before);
            }
        }
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.load = load;
        }
    }

    pub(super) fn lose(&mut self, id: WorkerId, worker: &Worker) {
        // Of a job that has ended well its client may not have fetched all.
        let is_wanted = |key: &JobKey| {
            let state = self.jobs[&key.job].state;
            matches!(state, JobState::Running | JobState::Succeeded)
        };
        let keys = self.jobs_of(id).into_iter().filter(is_wanted);
        for key in keys.collect::<Vec<_>>() {
            self.orders.push(Order::Lose {
                key,
                worker: id,
                process: worker.process(),
                how: worker.loss,
            });
        }
    }
}
