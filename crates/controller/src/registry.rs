//! Owns who takes part in a cluster, and whose turn it is: workers register, clients submit jobs.
//! The engine's controller calls it with messages, lost links and the time, and carries out its
//! [`Order`]s. A pure state machine beside [`Controller`](crate::Controller), which has one job
//! each: it never sends or waits itself.
//!
//! # Rules
//! * A worker is known by its process: a link that it makes again gives it its name again, a process that was started again is
//!   another worker. It takes part in the job that runs, from when it comes, and in those that begin after it came.
//! * A worker whose link is lost has [`RETURN_TIME`] to come back. Then it is gone, and every job that has lost shards with it [begins again](recovery), or ends with
//!   an error that names it. A process that gets no CPU keeps its link: it is waited for and [told of](silence), and new jobs begin without it.
//! * A worker that is silent for too long, or that another member of its job cannot reach, is given up as if it had died, and [refused](fences) from then on.
//! * So many jobs run [at a time](Registry::with_jobs_at_once), each on all workers, from
//!   [`Accepted`](brambling_protocol::message::Accepted) until its client is done with it or gone; others wait in the order in which
//!   they came. A worker's threads are shared by the jobs' weights.
//! * What a job has in other processes, and its [`Controller`](crate::Controller), are known by [`JobKey`]: what is said of a generation that the
//!   job is not in any more changes nothing.
//! * A job [begins](room) when each of its workers has room for its floor of the memory there, by its weight; those behind it wait as well. Alone it always
//!   begins.
//! * A client's jobs end with its link, or when any client wants them ended.
//! * A worker on which a kernel still runs though its job is over gets no shards of new jobs, and none that are levelled, until it has ended.
//! * A worker that is drained gets no shards of new jobs. It ends when it has left the job that runs, or when that is over.

mod adoption;
mod clients;
mod counts;
mod deaths;
mod drains;
mod events;
mod fences;
mod jobs;
mod orders;
mod recovery;
mod room;
mod silence;
mod stuck;
mod terms;
mod wishes;
mod workers;

pub use adoption::ADOPTION_TIME;
pub use brambling_protocol::patience::HEARTBEAT;
pub use counts::ClusterCounts;
pub use deaths::{DEATHS, ProcessEnd};
pub use orders::{Apart, Order, OwnedMessage};
pub use recovery::{BACKOFF_TIME, ClusterStore, LOSSES_MAX, NEWCOMER_TIME, POISON_TIME};
pub use terms::CLIENT_TIME;

use crate::WorkerLoss;
use adoption::Adoptions;
use brambling_program::ShardId;
use brambling_protocol::message::{
    Brings, Client, ClusterEvent, DeathKind, EventKind, JobState, JobStatus, Load, Message,
    Prepare, Status, StuckKernel, Survives, WorkerStatus,
};
use brambling_protocol::patience::SILENCE;
use brambling_protocol::{Generation, JobId, JobKey, WorkerId};
use clients::Clients;
use deaths::{Deaths, LossCause};
use drains::Drain;
use fences::Fences;
use recovery::Losses;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use terms::Lasting;

/// How long a worker may be without a link.
pub const RETURN_TIME: Duration = Duration::from_millis(500);
/// How many jobs run at a time, unless the controller is told otherwise: each takes a thread of its own and memory on every worker.
pub const JOBS_AT_ONCE: u32 = 16;
/// The largest weight of a job.
pub const WEIGHT_MAX: u32 = 1_000;
/// Jobs that have ended and are still told of.
pub const REMEMBERED: usize = 100;

/// A link to somebody.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerLink(pub u64);

/// What nobody says who follows the rules; the link is to be ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// A worker's word from somebody who has not registered.
    #[error("it speaks as a worker and has not registered")]
    NotRegistered,
    /// A message that goes the other way.
    #[error("it says what only a controller or a worker says to others")]
    WrongWay,
    /// Bytes that fit no job.
    #[error("a program of {shards} shards is more than a job may have")]
    TooManyShards {
        /// How many.
        shards: u64,
    },
    /// Columns for other groups than the program has.
    #[error("it arranges {arranged} groups of shards and submits {groups}")]
    Arranged {
        /// How many it has spoken of.
        arranged: usize,
        /// How many there are.
        groups: usize,
    },
}

struct Worker {
    epoch: u64,
    caller: Option<PeerLink>,
    lost_at: Option<Duration>,
    /// How its link was lost.
    loss: WorkerLoss,
    /// When it last told how it fares, or came.
    heard_at: Duration,
    pid: u32,
    host: String,
    threads: u32,
    /// Its budget.
    memory_bytes: u64,
    listens_at: SocketAddr,
    load: Load,
    /// What each job there has of its budget, as it last said.
    uses: Vec<(JobKey, u64)>,
    stuck: Vec<StuckKernel>,
    drain: Drain,
}

impl Worker {
    /// Its process, for people.
    fn process(&self) -> String {
        format!("process {} on {}", self.pid, self.host)
    }
}

struct RegisteredJob {
    client: Option<PeerLink>,
    /// Who that is, also after it is gone.
    by: Option<Client>,
    /// Its client's name for it, where jobs outlive a controller.
    asked_as: Option<u128>,
    name: String,
    shards: Vec<u32>,
    /// Of the grid that each group is, if it is one.
    columns: Vec<u32>,
    state: JobState,
    failure: Option<String>,
    /// The newest, which is the one that it is in.
    generation: Generation,
    members: Vec<WorkerId>,
    /// Tasks that have run, by generation and worker.
    tasks: BTreeMap<(Generation, WorkerId), u64>,
    /// Where its client knows that.
    tasks_total: Option<u64>,
    weight: u32,
    /// What its members are sent.
    brings: Brings,
    /// What becomes of it when a worker dies.
    survives: Survives,
    losses: Losses,
    /// Cuts of which there are snapshots, the newest last.
    snapshots: Vec<u64>,
    /// When the newest was taken, as far as this controller knows.
    saved_at: Option<Duration>,
}

impl RegisteredJob {
    /// One that waits, of which nothing else is known yet.
    fn new(name: String, shards: Vec<u32>, generation: Generation) -> RegisteredJob {
        RegisteredJob {
            client: None,
            by: None,
            asked_as: None,
            name,
            shards,
            columns: Vec::new(),
            state: JobState::Queued,
            failure: None,
            generation,
            members: Vec::new(),
            tasks: BTreeMap::new(),
            tasks_total: None,
            weight: 1,
            brings: Brings::default(),
            survives: Survives::default(),
            losses: Losses::default(),
            snapshots: Vec::new(),
            saved_at: None,
        }
    }

    fn status(&self, id: JobId, now: Duration) -> JobStatus {
        JobStatus {
            id,
            name: self.name.clone(),
            state: self.state,
            generation: self.generation,
            position: self.position(),
            failure: self.failure.clone(),
            cut: self.snapshots.last().copied(),
            snapshot_age_ms: self
                .saved_at
                .map(|at| now.saturating_sub(at).as_millis() as u64),
            waits: None,
        }
    }

    /// What its generation has done: what others did is void.
    fn position(&self) -> u64 {
        let here = self.tasks.iter().filter(|(at, _)| at.0 == self.generation);
        here.map(|(_, tasks)| tasks).sum()
    }
}

/// The members of a cluster and its jobs.
pub struct Registry {
    version: String,
    workers: BTreeMap<WorkerId, Worker>,
    next_worker: u32,
    /// Workers of which it was told that they came.
    heard_of: BTreeSet<WorkerId>,
    jobs: BTreeMap<JobId, RegisteredJob>,
    next_job: u64,
    /// Those that have begun and were not released, and what their members were told.
    running: BTreeMap<JobKey, Prepare>,
    jobs_at_once: u32,
    queued: VecDeque<JobId>,
    /// Who wants to hear what becomes of a shard's move.
    wishes: BTreeMap<(JobKey, ShardId), PeerLink>,
    /// Who wants to hear that a worker has been drained.
    drains: Vec<(WorkerId, PeerLink)>,
    /// Who wants to hear that a job has been saved.
    saves: Vec<(JobId, PeerLink)>,
    clients: Clients,
    counts: ClusterCounts,
    /// Where jobs are saved, if they are.
    store: Option<ClusterStore>,
    lasting: Lasting,
    adoptions: Adoptions,
    events: Vec<ClusterEvent>,
    deaths: Deaths,
    fences: Fences,
    /// Whoever tells nothing for so long is fenced.
    silence: Duration,
    /// When workers have told how they fare.
    heard: BTreeMap<WorkerId, Duration>,
    /// The time, as it was last told.
    now: Duration,
    orders: Vec<Order>,
}

impl Registry {
    /// A cluster without workers, of this version of the package.
    pub fn new(version: impl Into<String>) -> Registry {
        Registry {
            version: version.into(),
            workers: BTreeMap::new(),
            next_worker: 0,
            heard_of: BTreeSet::new(),
            jobs: BTreeMap::new(),
            next_job: 1,
            running: BTreeMap::new(),
            jobs_at_once: JOBS_AT_ONCE,
            queued: VecDeque::new(),
            wishes: BTreeMap::new(),
            drains: Vec::new(),
            saves: Vec::new(),
            clients: Clients::default(),
            counts: ClusterCounts::default(),
            store: None,
            lasting: Lasting::default(),
            adoptions: Adoptions::default(),
            events: Vec::new(),
            deaths: Deaths::default(),
            fences: Fences::default(),
            silence: SILENCE,
            heard: BTreeMap::new(),
            now: Duration::ZERO,
            orders: Vec::new(),
        }
    }

    /// The same with so many jobs at a time, at least one; further ones wait.
    #[must_use]
    pub fn with_jobs_at_once(mut self, jobs: u32) -> Registry {
        self.jobs_at_once = jobs.max(1);
        self
    }

    /// The same, whose jobs are saved in a store.
    #[must_use]
    pub fn with_store(mut self, store: ClusterStore) -> Registry {
        self.store = Some(store);
        self
    }

    /// What has to be done since the last call.
    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// How many workers take part.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// The job that is in this generation.
    fn job_in(&self, key: JobKey) -> Option<&RegisteredJob> {
        let job = self.jobs.get(&key.job);
        job.filter(|job| job.generation == key.generation)
    }

    fn tell(&mut self, to: PeerLink, what: OwnedMessage) {
        self.orders.push(Order::Tell { to, what });
    }

    fn refuse(&mut self, to: PeerLink, why: impl Into<String>) {
        self.tell(to, OwnedMessage::Refused { why: why.into() });
    }

    /// Somebody has said something.
    ///
    /// # Errors
    /// When the link is to be ended: nobody who follows the rules says that.
    pub fn on_message(
        &mut self,
        from: PeerLink,
        message: Message<'_>,
    ) -> Result<(), RegistryError> {
        if self.is_from_fenced(from, &message) {
            return Ok(());
        }
        match message {
            Message::Register(register) => self.on_register(from, &register),
            Message::Load(load) => {
                let worker = self.worker_of(from).ok_or(RegistryError::NotRegistered)?;
                self.on_load(worker, load);
            }
            Message::Stuck(stuck) => {
                let worker = self.worker_of(from).ok_or(RegistryError::NotRegistered)?;
                self.on_stuck(worker, stuck);
            }
            Message::Times(times) => {
                let worker = self.worker_of(from).ok_or(RegistryError::NotRegistered)?;
                self.orders.push(Order::Weigh { worker, times });
            }
            Message::Unprepared { key, why } => {
                let worker = self.worker_of(from).ok_or(RegistryError::NotRegistered)?;
                // The worker may speak of an earlier generation: the job goes on without that one.
                if self.job_in(key).is_some() {
                    self.cancel(key.job, format!("on worker {worker}: {why}"));
                }
            }
            Message::Unrestored { key, why } => {
                let worker = self.worker_of(from).ok_or(RegistryError::NotRegistered)?;
                self.on_unrestored(worker, key, why);
            }
            Message::Restored(restored) => {
                let worker = self.worker_of(from).ok_or(RegistryError::NotRegistered)?;
                self.on_restored(worker, &restored);
            }
            Message::CutOff(cut) => {
                let worker = self.worker_of(from).ok_or(RegistryError::NotRegistered)?;
                self.on_cut_off(worker, &cut);
            }
            Message::Holding(holding) => {
                let worker = self.worker_of(from).ok_or(RegistryError::NotRegistered)?;
                self.on_holding(from, worker, holding);
            }
            Message::Uses(uses) => {
                let worker = self.worker_of(from).ok_or(RegistryError::NotRegistered)?;
                self.on_uses(worker, uses);
            }
            Message::Brings(brings) => self.clients.bring(from, brings),
            Message::Named(name) => self.lasting.name(from, name),
            Message::Survives(survives) => self.clients.survive(from, survives),
            Message::Restore(at) => self.clients.restore(from, at),
            Message::Arrange { columns } => self.clients.arrange(from, columns),
            Message::Submit(submit) => return self.on_submit(from, &submit),
            Message::Cancel(job) => self.on_cancel(from, job),
            Message::Done(job) => self.on_done(from, job),
            Message::Move(wish) => self.on_move(from, wish),
            Message::Drain(worker) => self.on_drain(from, worker),
            Message::Introduce(client) => self.on_introduce(from, &client),
            Message::Expects { job, tasks } => self.on_expects(from, job, tasks),
            Message::Weigh { job, weight } => self.on_weigh(from, job, weight),
            Message::AskEvents(after) => self.orders.push(Order::Events { to: from, after }),
            Message::AskSnapshots => self.orders.push(Order::Snapshots { to: from }),
            Message::Snapshot(job) => self.on_save(from, job),
            Message::AskJobs => self.tell(from, OwnedMessage::Jobs(self.job_details())),
            Message::Ask => self.orders.push(Order::Report { to: from }),
            _ => return Err(RegistryError::WrongWay),
        }
        Ok(())
    }

    /// A link is lost.
    pub fn on_lost(&mut self, caller: PeerLink, now: Duration) {
        self.on_end(caller, now, WorkerLoss::Ended);
    }

    /// A link is lost: the other machine does not answer.
    pub fn on_cut(&mut self, caller: PeerLink, now: Duration) {
        self.on_end(caller, now, WorkerLoss::CutOff);
    }

    fn on_end(&mut self, caller: PeerLink, now: Duration, how: WorkerLoss) {
        for worker in self.workers.values_mut() {
            if worker.caller == Some(caller) {
                (worker.caller, worker.lost_at) = (None, Some(now));
                // The worker may come back: how it was lost is told only if it does not.
                worker.loss = how;
            }
        }
        let why = self.clients.gone(caller, how);
        self.wishes.retain(|_, by| *by != caller);
        self.drains.retain(|(_, by)| *by != caller);
        self.saves.retain(|(_, by)| *by != caller);
        self.clients.forget(caller);
        self.lasting.named(caller);
        self.fences.forget(caller);
        let mut jobs = Vec::new();
        for (id, job) in &mut self.jobs {
            if job.client == Some(caller) {
                // Forgotten before the job is ended: nobody is told of its end any more.
                job.client = None;
                jobs.push(*id);
            }
        }
        // Jobs that wait are ended first: the end of another would else begin them.
        for job in jobs.into_iter().rev() {
            self.release(job, &why);
        }
    }

    /// The time passes. To be called a few times in [`RETURN_TIME`].
    pub fn on_tick(&mut self, now: Duration) {
        self.now = now;
        // A lost link alone ends nothing: the process may dial again before the time is over.
        let is_gone = |worker: &Worker| {
            let lost = worker.lost_at;
            lost.is_some_and(|at| now.saturating_sub(at) >= RETURN_TIME)
        };
        let gone = self.workers.iter().filter(|(_, it)| is_gone(it));
        let gone = gone.map(|(id, it)| (*id, it.loss));
        for (id, how) in gone.collect::<Vec<_>>() {
            self.bury(id, now, LossCause::of_link(how));
        }
        self.fence_silent();
        self.give_up_waiting();
        self.give_up_adoptions();
        self.give_up_clients();
        // One that rested after its losses may begin.
        self.begin_next();
    }

    fn bury(&mut self, id: WorkerId, now: Duration, cause: LossCause) {
        let worker = self.workers.remove(&id).expect("the caller saw it");
        self.count_gone(id, &worker, now);
        // One that was drained was to end.
        if worker.drain != Drain::Done {
            let kind = match cause.kind {
                DeathKind::FencedSilent | DeathKind::FencedCutOff => EventKind::WorkerFenced,
                _ => EventKind::WorkerLost,
            };
            let how = format!("{} is gone: {}", worker.process(), cause.in_words);
            self.note_worker(kind, id, Some(how));
            self.record(id, &worker, now, cause);
        }
        self.forget_drain(id);
        self.adoptions.forget(id);
        self.lose(id, &worker);
    }

    /// How the cluster fares; `held` knows how many shards of a job a worker has.
    pub fn status(&self, held: impl Fn(JobKey, WorkerId) -> u32) -> Status {
        let worker = |(id, worker): (&WorkerId, &Worker)| WorkerStatus {
            id: *id,
            pid: worker.pid,
            host: worker.host.clone(),
            threads: worker.threads,
            shards: self.running.keys().map(|key| held(*key, *id)).sum(),
            memory_bytes: worker.load.memory_bytes,
            idle_permille: worker.load.idle_permille,
            stuck: worker.stuck.clone(),
            silent_ms: self.silent_for(worker).as_millis() as u64,
        };
        // A worker that was drained only has to hear it.
        let there = self
            .workers
            .iter()
            .filter(|(_, it)| it.drain != Drain::Done);
        Status {
            workers: there.map(worker).collect(),
            jobs: (self.jobs.iter())
                .map(|(id, job)| job.status(*id, self.now))
                .collect(),
            term: self.lasting.term,
            deaths: self.last_deaths(),
        }
    }
}
