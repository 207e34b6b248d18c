//! Who takes part in a cluster, and whose turn it is: workers register, clients submit jobs.
//!
//! A pure state machine beside [`Controller`](crate::Controller), which has one job each: messages, lost links and the time go in,
//! [`Order`]s come out.
//!
//! # Rules
//! * A worker is known by its process: a link that it makes again gives it its name again, a process that was started again is
//!   another worker. It takes part in the job that runs, from when it comes, and in those that begin after it came.
//! * A worker whose link is lost has [`RETURN_TIME`] to come back. Then it is gone, and every job of which it is a member ends with an
//!   error that names it. Silence alone ends nothing: a process that gets no CPU keeps its link.
//! * So many jobs run [at a time](Registry::with_jobs_at_once), each on all workers, from [`Accepted`] until its client is done with it or gone; others wait
//!   in the order in which they came. A worker's threads are shared by the jobs' weights.
//! * A client's jobs end with its link, or when any client wants them ended.
//! * A worker that is drained gets no shards of new jobs. It ends when it has left the job that runs, or when that is over.

mod clients;
mod counts;
mod drains;
mod wishes;

pub use counts::{Counts, HEARTBEAT};

use crate::placement::place;
use brambling_program::ShardId;
use brambling_protocol::message::{
    Accepted, Client, JobDetails, JobState, JobStatus, Load, Member, Message, Move, Prepare,
    Register, Registered, Status, Submit, Times, WorkerStatus,
};
use brambling_protocol::{Generation, JobId, PartitionMap, WorkerId};
use clients::Clients;
use drains::Drain;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

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
pub struct Caller(pub u64);

/// What whoever runs the registry has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Say something.
    Tell {
        /// On which link.
        to: Caller,
        /// What.
        what: Told,
    },
    /// A job begins: a controller for it is needed.
    Begin {
        /// Which.
        job: JobId,
        /// Its generation.
        generation: Generation,
        /// Its members.
        members: Vec<WorkerId>,
        /// Where its shards are.
        map: PartitionMap,
    },
    /// The job's controller has to tell its members that it is over.
    Cancel {
        /// Which.
        job: JobId,
        /// Why.
        why: String,
    },
    /// A member of the job is gone: its controller ends it ([`Controller::lose`](crate::Controller::lose)).
    Lose {
        /// Which.
        job: JobId,
        /// Who.
        worker: WorkerId,
        /// Its process, for the error.
        process: String,
    },
    /// A worker has come while the job runs: its controller takes it in ([`Controller::join`](crate::Controller::join)), and the
    /// registry is told where shards are ([`Registry::on_admitted`]).
    Admit {
        /// Which.
        job: JobId,
        /// Who.
        worker: WorkerId,
    },
    /// A shard is to move ([`Controller::order`](crate::Controller::order)); a refusal goes to [`Registry::on_stays`].
    Move {
        /// Of which job.
        job: JobId,
        /// Which.
        shard: ShardId,
        /// Where.
        to: WorkerId,
    },
    /// A worker is to leave the job ([`Controller::drain`](crate::Controller::drain)); [`Registry::on_left`] is to be told when it
    /// has.
    Drain {
        /// Which.
        job: JobId,
        /// Who.
        worker: WorkerId,
    },
    /// A worker tells what the shards of a job took there: the job's controller hears it
    /// ([`Controller::on_times`](crate::Controller::on_times)).
    Weigh {
        /// Who.
        worker: WorkerId,
        /// What.
        times: Times,
    },
    /// The job's controller is not needed any more.
    Forget(JobId),
    /// Somebody asks how the cluster fares: tell them [`Registry::status`].
    Report {
        /// On which link.
        to: Caller,
    },
}

/// What is said: a [`Message`] that owns its texts.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // See the variants of `Message`.
pub enum Told {
    Registered(Registered),
    Prepare(Prepare),
    Release(JobId),
    Queued(JobId),
    Accepted(Accepted),
    Over { job: JobId, failure: Option<String> },
    Refused { why: String },
    Moved(Move),
    Admitted { job: JobId, member: Member },
    Left { job: JobId, worker: WorkerId },
    Drained(WorkerId),
    Jobs(Vec<JobDetails>),
    Weigh { job: JobId, weight: u32 },
}

impl Told {
    /// As it is sent.
    pub fn message(&self) -> Message<'_> {
        match self {
            Told::Registered(it) => Message::Registered(*it),
            Told::Prepare(it) => Message::Prepare(it.clone()),
            Told::Release(job) => Message::Release(*job),
            Told::Queued(job) => Message::Queued(*job),
            Told::Accepted(it) => Message::Accepted(it.clone()),
            Told::Over { job, failure } => Message::Over {
                job: *job,
                failure: failure.as_deref(),
            },
            Told::Refused { why } => Message::Refused { why },
            Told::Moved(it) => Message::Moved(*it),
            Told::Admitted { job, member } => Message::Admitted {
                job: *job,
                member: *member,
            },
            Told::Left { job, worker } => Message::Left {
                job: *job,
                worker: *worker,
            },
            Told::Drained(worker) => Message::Drained(*worker),
            Told::Jobs(jobs) => Message::Jobs(jobs.clone()),
            Told::Weigh { job, weight } => Message::Weigh {
                job: *job,
                weight: *weight,
            },
        }
    }
}

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

/// The most shards of a job.
const SHARDS_MAX: u64 = 1 << 24;

struct Worker {
    epoch: u64,
    caller: Option<Caller>,
    lost_at: Option<Duration>,
    pid: u32,
    host: String,
    threads: u32,
    /// Its budget.
    memory_bytes: u64,
    listens_at: SocketAddr,
    load: Load,
    drain: Drain,
}

struct Job {
    client: Option<Caller>,
    /// Who that is, also after it is gone.
    by: Option<Client>,
    name: String,
    shards: Vec<u32>,
    /// Of the grid that each group is, if it is one.
    columns: Vec<u32>,
    state: JobState,
    failure: Option<String>,
    members: Vec<WorkerId>,
    /// What its members were told, once it has begun.
    prepare: Option<Prepare>,
    /// By worker: tasks that have run.
    tasks: BTreeMap<WorkerId, u64>,
    /// Where its client knows that.
    tasks_total: Option<u64>,
    weight: u32,
}

impl Job {
    fn status(&self, id: JobId) -> JobStatus {
        JobStatus {
            id,
            name: self.name.clone(),
            state: self.state,
            generation: GENERATION,
            position: self.tasks.values().sum(),
            failure: self.failure.clone(),
        }
    }
}

const GENERATION: Generation = Generation(0);

/// The members of a cluster and its jobs.
pub struct Registry {
    version: String,
    workers: BTreeMap<WorkerId, Worker>,
    next_worker: u32,
    jobs: BTreeMap<JobId, Job>,
    next_job: u64,
    /// Those that have begun and were not released.
    running: BTreeSet<JobId>,
    jobs_at_once: u32,
    queued: VecDeque<JobId>,
    /// Who wants to hear what becomes of a shard's move.
    wishes: BTreeMap<(JobId, ShardId), Caller>,
    /// Who wants to hear that a worker has been drained.
    drains: Vec<(WorkerId, Caller)>,
    clients: Clients,
    counts: Counts,
    /// When workers have told how they fare.
    heard: BTreeMap<WorkerId, Duration>,
    orders: Vec<Order>,
}

impl Registry {
    /// A cluster without workers, of this version of the package.
    pub fn new(version: impl Into<String>) -> Registry {
        Registry {
            version: version.into(),
            workers: BTreeMap::new(),
            next_worker: 0,
            jobs: BTreeMap::new(),
            next_job: 1,
            running: BTreeSet::new(),
            jobs_at_once: JOBS_AT_ONCE,
            queued: VecDeque::new(),
            wishes: BTreeMap::new(),
            drains: Vec::new(),
            clients: Clients::default(),
            counts: Counts::default(),
            heard: BTreeMap::new(),
            orders: Vec::new(),
        }
    }

    /// The same with so many jobs at a time, at least one; further ones wait.
    #[must_use]
    pub fn with_jobs_at_once(mut self, jobs: u32) -> Registry {
        self.jobs_at_once = jobs.max(1);
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

    fn tell(&mut self, to: Caller, what: Told) {
        self.orders.push(Order::Tell { to, what });
    }

    fn refuse(&mut self, to: Caller, why: impl Into<String>) {
        self.tell(to, Told::Refused { why: why.into() });
    }

    /// Somebody has said something.
    ///
    /// # Errors
    /// When the link is to be ended: nobody who follows the rules says that.
    pub fn on_message(&mut self, from: Caller, message: Message<'_>) -> Result<(), RegistryError> {
        match message {
            Message::Register(register) => self.on_register(from, &register),
            Message::Load(load) => {
                let worker = self.worker_of(from).ok_or(RegistryError::NotRegistered)?;
                self.on_load(worker, load);
            }
            Message::Times(times) => {
                let worker = self.worker_of(from).ok_or(RegistryError::NotRegistered)?;
                self.orders.push(Order::Weigh { worker, times });
            }
            Message::Unprepared { job, why } => {
                let worker = self.worker_of(from).ok_or(RegistryError::NotRegistered)?;
                self.cancel(job, format!("on worker {worker}: {why}"));
            }
            Message::Arrange { columns } => self.clients.arrange(from, columns),
            Message::Submit(submit) => return self.on_submit(from, &submit),
            Message::Cancel(job) => self.on_cancel(from, job),
            Message::Done(job) => self.on_done(from, job),
            Message::Move(wish) => self.on_move(from, wish),
            Message::Drain(worker) => self.on_drain(from, worker),
            Message::Introduce(client) => self.on_introduce(from, &client),
            Message::Expects { job, tasks } => self.on_expects(from, job, tasks),
            Message::Weigh { job, weight } => self.on_weigh(from, job, weight),
            Message::AskJobs => self.tell(from, Told::Jobs(self.job_details())),
            Message::Ask => self.orders.push(Order::Report { to: from }),
            _ => return Err(RegistryError::WrongWay),
        }
        Ok(())
    }

    /// A link is lost.
    pub fn on_lost(&mut self, caller: Caller, now: Duration) {
        for worker in self.workers.values_mut() {
            if worker.caller == Some(caller) {
                (worker.caller, worker.lost_at) = (None, Some(now));
            }
        }
        self.wishes.retain(|_, by| *by != caller);
        self.drains.retain(|(_, by)| *by != caller);
        self.clients.forget(caller);
        let mut jobs = Vec::new();
        for (id, job) in &mut self.jobs {
            if job.client == Some(caller) {
                job.client = None;
                jobs.push(*id);
            }
        }
        // Those that wait first: else the end of one would begin the next.
        for job in jobs.into_iter().rev() {
            let why = "the client that asked for it is gone";
            self.cancel(job, why.into());
            self.release(job, why);
        }
    }

    /// The time passes. To be called a few times in [`RETURN_TIME`].
    pub fn on_tick(&mut self, now: Duration) {
        let is_gone = |worker: &Worker| {
            let lost = worker.lost_at;
            lost.is_some_and(|at| now.saturating_sub(at) >= RETURN_TIME)
        };
        let gone = self.workers.iter().filter(|(_, it)| is_gone(it));
        for id in gone.map(|(id, _)| *id).collect::<Vec<_>>() {
            let worker = self.workers.remove(&id).expect("just seen");
            self.count_gone(id, &worker, now);
            self.forget_drain(id);
            self.lose(id, &worker);
        }
    }

    // ---- workers

    fn worker_of(&self, caller: Caller) -> Option<WorkerId> {
        let is_it = |(_, worker): &(&WorkerId, &Worker)| worker.caller == Some(caller);
        self.workers.iter().find(is_it).map(|(id, _)| *id)
    }

    fn on_register(&mut self, from: Caller, register: &Register<'_>) {
        if register.version != self.version {
            let why = format!(
                "the worker is of brambling {} and the controller of {}; install the same version on both",
                register.version, self.version
            );
            return self.refuse(from, why);
        }
        let known = register.known_as.filter(|id| {
            let worker = self.workers.get(id);
            worker.is_some_and(|worker| worker.epoch == register.epoch)
        });
        let known = known.or_else(|| self.worker_of(from));
        let id = known.unwrap_or_else(|| {
            self.next_worker += 1;
            WorkerId(self.next_worker)
        });
        let (load, drain) = match self.workers.remove(&id) {
            Some(before) => (before.load, before.drain),
            None => {
                let load = Load {
                    memory_bytes: 0,
                    idle_permille: 1_000,
                    tasks: Vec::new(),
                };
                (load, Drain::default())
            }
        };
        let worker = Worker {
            epoch: register.epoch,
            caller: Some(from),
            lost_at: None,
            pid: register.pid,
            host: register.host.to_owned(),
            threads: register.threads,
            memory_bytes: register.memory_bytes,
            listens_at: register.listens_at,
            load,
            drain,
        };
        self.workers.insert(id, worker);
        self.tell(from, Told::Registered(Registered { worker: id }));
        self.catch_up(from, id, &register.jobs);
        match self.workers[&id].drain {
            Drain::No => self.admit(id),
            Drain::Asked => {}
            // It was told, and perhaps has not heard it.
            Drain::Done => self.tell(from, Told::Drained(id)),
        }
        self.begin_next();
    }

    /// A worker that is no member of the jobs that run becomes one.
    fn admit(&mut self, worker: WorkerId) {
        for &id in &self.running {
            let job = &self.jobs[&id];
            if job.state == JobState::Running && !job.members.contains(&worker) {
                self.orders.push(Order::Admit { job: id, worker });
            }
        }
    }

    /// The job's controller has taken a worker in, and says where shards are: the worker prepares itself, and the client sends it the
    /// program.
    pub fn on_admitted(&mut self, id: JobId, worker: WorkerId, map: &PartitionMap) {
        let (Some(it), Some(job)) = (self.workers.get(&worker), self.jobs.get_mut(&id)) else {
            return;
        };
        let (caller, at) = (it.caller, it.listens_at);
        let Some(prepare) = &mut job.prepare else {
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
            self.tell(client, Told::Admitted { job: id, member });
        }
    }

    /// What a worker may have missed while it had no link: jobs that began, and jobs that nobody asks for any more.
    fn catch_up(&mut self, to: Caller, worker: WorkerId, has: &[JobId]) {
        for &job in has.iter().filter(|job| !self.running.contains(job)) {
            self.orders.push(Order::Tell {
                to,
                what: Told::Release(job),
            });
        }
        let is_member = |member: &Member| member.worker == worker;
        let prepares = self.running.iter();
        let prepares = prepares.filter_map(|job| self.jobs[job].prepare.clone());
        let prepares = prepares.filter(|it| it.members.iter().any(is_member));
        for prepare in prepares.collect::<Vec<_>>() {
            self.tell_prepare(to, prepare);
        }
    }

    /// A worker hears of a job, and what that weighs.
    fn tell_prepare(&mut self, to: Caller, prepare: Prepare) {
        let job = prepare.job;
        self.tell(to, Told::Prepare(prepare));
        let weight = self.jobs[&job].weight;
        if weight != 1 {
            self.tell(to, Told::Weigh { job, weight });
        }
    }

    fn on_load(&mut self, id: WorkerId, load: Load) {
        for (job, tasks) in &load.tasks {
            if let Some(job) = self.jobs.get_mut(job) {
                let before = job.tasks.insert(id, *tasks).unwrap_or(0);
                self.counts.tasks += tasks.saturating_sub(before);
            }
        }
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.load = load;
        }
    }

    fn lose(&mut self, id: WorkerId, worker: &Worker) {
        let has_it =
            |(_, job): &(&JobId, &Job)| job.state == JobState::Running && job.members.contains(&id);
        let jobs = self.jobs.iter().filter(has_it).map(|(job, _)| *job);
        for job in jobs.collect::<Vec<_>>() {
            self.orders.push(Order::Lose {
                job,
                worker: id,
                process: format!("process {} on {}", worker.pid, worker.host),
            });
        }
    }

    // ---- jobs

    fn on_submit(&mut self, from: Caller, submit: &Submit<'_>) -> Result<(), RegistryError> {
        let columns = self.clients.arranged(from, submit.shards.len())?;
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
        if self.workers.is_empty() {
            self.refuse(
                from,
                "the cluster has no workers; start some with `brambling worker --controller HOST:PORT`",
            );
            return Ok(());
        }
        let id = JobId(self.next_job);
        self.next_job += 1;
        let job = Job {
            client: Some(from),
            by: self.clients.of(from),
            name: submit.name.to_owned(),
            shards: submit.shards.clone(),
            columns,
            state: JobState::Queued,
            failure: None,
            members: Vec::new(),
            prepare: None,
            tasks: BTreeMap::new(),
            tasks_total: None,
            weight: 1,
        };
        self.jobs.insert(id, job);
        self.counts.submitted += 1;
        self.queued.push_back(id);
        self.tell(from, Told::Queued(id));
        self.begin_next();
        Ok(())
    }

    /// Jobs that wait begin, as long as there is room for them.
    fn begin_next(&mut self) {
        while self.running.len() < self.jobs_at_once as usize && !self.queued.is_empty() {
            let takes = |worker: &Worker| worker.caller.is_some() && worker.drain == Drain::No;
            let workers = self.workers.iter().filter(|(_, worker)| takes(worker));
            let members: Vec<(WorkerId, u32)> =
                workers.map(|(id, worker)| (*id, worker.threads)).collect();
            if members.is_empty() {
                return;
            }
            if let Some(id) = self.queued.pop_front() {
                self.begin(id, &members);
            }
        }
    }

    fn begin(&mut self, id: JobId, members: &[(WorkerId, u32)]) {
        self.running.insert(id);
        let job = self.jobs.get_mut(&id).expect("a job that waits");
        job.state = JobState::Running;
        job.members = members.iter().map(|(id, _)| *id).collect();
        let (shards, client) = (job.shards.clone(), job.client);
        let map = place(&shards, &job.columns, members);
        let member = |(worker, _): &(WorkerId, u32)| Member {
            worker: *worker,
            at: self.workers[worker].listens_at,
        };
        let to_reach: Vec<Member> = members.iter().map(member).collect();
        self.orders.push(Order::Begin {
            job: id,
            generation: GENERATION,
            members: members.iter().map(|(id, _)| *id).collect(),
            map: map.clone(),
        });
        let prepare = Prepare {
            job: id,
            generation: GENERATION,
            members: to_reach.clone(),
            shards,
            map: map.entries().collect(),
        };
        if let Some(job) = self.jobs.get_mut(&id) {
            job.prepare = Some(prepare.clone());
        }
        let callers = members.iter().filter_map(|(id, _)| self.workers[id].caller);
        for to in callers.collect::<Vec<_>>() {
            self.tell_prepare(to, prepare.clone());
        }
        if let Some(client) = client {
            let members = to_reach;
            self.tell(client, Told::Accepted(Accepted { job: id, members }));
        }
    }

    /// Ends a job that has not ended.
    fn cancel(&mut self, id: JobId, why: String) {
        match self.jobs.get(&id).map(|job| job.state) {
            // Its members are told, and the end comes from there.
            Some(JobState::Running) => self.orders.push(Order::Cancel { job: id, why }),
            Some(JobState::Queued) => {
                self.queued.retain(|queued| *queued != id);
                self.on_over(id, Some(why));
            }
            _ => {}
        }
    }

    /// A job's controller says that it is over.
    pub fn on_over(&mut self, id: JobId, failure: Option<String>) {
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
        self.end_wishes(id);
        self.tell_enders(id);
        if let Some(client) = client {
            self.tell(client, Told::Over { job: id, failure });
        }
    }

    fn on_done(&mut self, from: Caller, id: JobId) {
        if self
            .jobs
            .get(&id)
            .is_some_and(|job| job.client == Some(from))
        {
            let why = "its client is done with it";
            self.cancel(id, why.into());
            self.release(id, why);
        }
    }

    /// Nobody asks for a job any more: its members drop what they have of it, and the next one begins. `why` is how it has ended, if
    /// nothing else has ended it.
    fn release(&mut self, id: JobId, why: &str) {
        self.count_end(id, false);
        if let Some(job) = self.jobs.get_mut(&id) {
            (job.client, job.prepare) = (None, None);
            if !matches!(job.state, JobState::Succeeded) {
                job.state = JobState::Failed;
                job.failure.get_or_insert_with(|| why.to_owned());
            }
        }
        self.tell_enders(id);
        if self.running.remove(&id) {
            let members = self.jobs[&id].members.clone();
            let callers = members.iter().filter_map(|id| self.workers.get(id)?.caller);
            for to in callers.collect::<Vec<_>>() {
                self.tell(to, Told::Release(id));
            }
            self.orders.push(Order::Forget(id));
            self.end_drains();
        }
        self.forget_old();
        self.begin_next();
    }

    fn forget_old(&mut self) {
        let is_old = |(_, job): &(&JobId, &Job)| job.client.is_none();
        let old: Vec<JobId> = self.jobs.iter().filter(is_old).map(|(id, _)| *id).collect();
        for id in &old[..old.len().saturating_sub(REMEMBERED)] {
            self.jobs.remove(id);
        }
    }

    // ---- what is told

    /// How the cluster fares; `held` knows how many shards of a job a worker has.
    pub fn status(&self, held: impl Fn(JobId, WorkerId) -> u32) -> Status {
        let worker = |(id, worker): (&WorkerId, &Worker)| WorkerStatus {
            id: *id,
            pid: worker.pid,
            host: worker.host.clone(),
            threads: worker.threads,
            shards: self.running.iter().map(|job| held(*job, *id)).sum(),
            memory_bytes: worker.load.memory_bytes,
            idle_permille: worker.load.idle_permille,
        };
        // Who was drained only has to hear it.
        let there = self
            .workers
            .iter()
            .filter(|(_, it)| it.drain != Drain::Done);
        Status {
            workers: there.map(worker).collect(),
            jobs: self.jobs.iter().map(|(id, job)| job.status(*id)).collect(),
        }
    }
}
