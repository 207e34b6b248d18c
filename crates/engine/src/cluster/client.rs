//! A client: runs programs on a cluster, and fetches what they leave.

use super::jobs::ourselves;
use super::prints;
use super::wire::{self, board, epoch, framed};
use super::{ClusterError, Rendezvous, Status, VERSION};
use crate::{Error, Outcome};
use brambling_exchange::transports::switchboard::{Reception, Refused, Switchboard};
use brambling_exchange::transports::tcp::{LinkId, Lost};
use brambling_program::{DatasetId, Plan, ShardId, Value};
use brambling_protocol::message::{self, Accepted, Member, Message, Move, Parts, Submit, parts};
use brambling_protocol::{JobId, WorkerId};
use brambling_worker::executor::{Advance, Caller, Failure, Origin, Tally};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a process that listens may take to answer a greeting.
const GREETING: Duration = Duration::from_secs(6);
/// How long the answer to a question may take.
pub(super) const ANSWER: Duration = Duration::from_secs(10);
/// How often a caller is asked for interruptions.
const LOOKS: Duration = Duration::from_millis(20);
/// How long after it was lost the link to a worker is made again, and for how long that is tried.
const REDIAL: Duration = Duration::from_millis(100);
const REDIALED_FOR: Duration = Duration::from_secs(5);
/// How long workers may take to say where a failure began, and what was printed before it.
const ENDING_TIME: Duration = Duration::from_secs(2);
/// How long workers that are asked for results may say nothing, unless a client says otherwise: longer than it takes to read one large partition.
const SILENCE: Duration = Duration::from_secs(300);
/// How often the controller is asked how far a job is.
const ASKS: Duration = Duration::from_millis(250);

/// A connection to a cluster's controller. Dropping it ends the jobs that it runs there.
///
/// ```no_run
/// use brambling::cluster::{Cluster, Rendezvous};
///
/// let cluster = Cluster::connect(&Rendezvous::find(Some("127.0.0.1:7077"), None, None)?)?;
/// for worker in cluster.status()?.workers {
///     println!("{} on {}: {} threads", worker.id, worker.host, worker.threads);
/// }
/// # Ok::<(), brambling::cluster::ClusterError>(())
/// ```
pub struct Cluster {
    address: SocketAddr,
    board: Switchboard,
    controller: LinkId,
    /// How long workers that are asked for results may say nothing.
    silence: Duration,
    /// One conversation at a time.
    inbox: Mutex<Receiver<Heard>>,
}

/// What comes on the links.
enum Heard {
    Open(LinkId),
    Frame(LinkId, Vec<u8>),
    Lost(LinkId, String),
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({})", self.address)
    }
}

struct Desk(Mutex<Sender<Heard>>);

impl Desk {
    fn hear(&self, heard: Heard) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A client that is being dropped does not listen.
        let _ = sender.send(heard);
    }
}

impl Reception for Desk {
    fn on_open(&self, link: LinkId) {
        self.hear(Heard::Open(link));
    }
    fn on_frame(&self, link: LinkId, frame: &[u8]) -> Result<(), Refused> {
        self.hear(Heard::Frame(link, frame.to_vec()));
        Ok(())
    }
    fn on_lost(&self, link: LinkId, why: &Lost) {
        self.hear(Heard::Lost(link, why.to_string()));
    }
}

/// What a job left on its workers.
struct Fetched {
    values: BTreeMap<(DatasetId, u32), Value>,
    tally: Tally,
}

impl Cluster {
    /// Connects to a controller.
    ///
    /// # Errors
    /// When nobody answers there, or another token is known there, or one side uses TLS and the other does not take part in that.
    pub fn connect(at: &Rendezvous) -> Result<Cluster, ClusterError> {
        let (sender, inbox) = channel();
        let desk = Arc::new(Desk(Mutex::new(sender)));
        let system = |source| ClusterError::System { source };
        let board = board(None, at.token.clone(), at.tls.as_ref(), epoch()?, desk);
        let board = board.map_err(system)?;
        let controller = board.visit(at.address).map_err(system)?;
        let missing = |why| ClusterError::NoController {
            at: at.address,
            why,
        };
        match inbox.recv_timeout(GREETING) {
            Ok(Heard::Open(_)) => {}
            Ok(Heard::Lost(_, why)) => return Err(missing(why)),
            Ok(Heard::Frame(..)) => return Err(missing("it speaks before it is asked".into())),
            Err(_) => return Err(missing("it does not answer".into())),
        }
        let cluster = Cluster {
            address: at.address,
            board,
            controller,
            silence: SILENCE,
            inbox: Mutex::new(inbox),
        };
        cluster.say(controller, Message::Introduce(ourselves()));
        // Who says nothing after the greeting is sent away soon, and a client may think for long before it runs something.
        cluster.status()?;
        Ok(cluster)
    }

    /// How long workers may say nothing while they are asked for what a job has left: five minutes unless this says otherwise. A worker that
    /// is there and does not answer for so long ends the run with [`ClusterError::ResultsGone`].
    pub fn silent_at_most(self, silence: Duration) -> Cluster {
        Cluster { silence, ..self }
    }

    /// Where the controller is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How the cluster fares.
    ///
    /// # Errors
    /// When the controller is gone or does not answer.
    pub fn status(&self) -> Result<Status, ClusterError> {
        let deadline = Instant::now() + ANSWER;
        let look = || match Instant::now() < deadline {
            true => Ok(()),
            false => Err(self.gone("it does not answer".into())),
        };
        self.ask(Message::Ask, look, |answer| match answer {
            Message::Status(status) => Some(Ok(status)),
            // Of an earlier conversation that was broken off.
            _ => None,
        })
    }

    /// Moves a shard of a job that runs, or of the only one, to a worker; gives the job when the shard is there. What it computes
    /// stays the same to the last bit. A connection has one conversation at a time: while a program runs on this one, give
    /// another.
    ///
    /// `caller` is asked for interruptions, which leave the order as it is.
    ///
    /// # Errors
    /// Why the shard stays where it is; or what became of the cluster.
    pub fn move_shard(
        &self,
        job: Option<JobId>,
        shard: ShardId,
        to: WorkerId,
        caller: &mut dyn Caller,
    ) -> Result<JobId, Error> {
        let wish = Move { job, shard, to };
        self.ask(
            Message::Move(wish),
            looking(caller),
            |answer| match answer {
                Message::Moved(moved) if (moved.shard, moved.to) == (shard, to) => {
                    moved.job.map(Ok)
                }
                Message::Refused { why } => Some(Err(refused(why).into())),
                _ => None,
            },
        )
    }

    /// Drains a worker: it gets no shards of new jobs, those it has move to the others, by their threads, and when it holds none its
    /// process ends. Gives when it has been told so. `caller` is asked for interruptions, which leave the order as it is.
    ///
    /// # Errors
    /// When there is no such worker, or no other one; or what became of the cluster.
    pub fn drain(&self, worker: WorkerId, caller: &mut dyn Caller) -> Result<(), Error> {
        let question = Message::Drain(worker);
        self.ask(question, looking(caller), |answer| match answer {
            Message::Drained(it) if it == worker => Some(Ok(())),
            Message::Refused { why } => Some(Err(refused(why).into())),
            _ => None,
        })
    }

    /// Asks the controller, and waits for what is an answer; looks now and then whether to go on.
    pub(super) fn ask<R, E: From<ClusterError>>(
        &self,
        question: Message<'_>,
        mut look: impl FnMut() -> Result<(), E>,
        answer: impl Fn(Message<'_>) -> Option<Result<R, E>>,
    ) -> Result<R, E> {
        let inbox = self.inbox();
        self.forget_earlier(&inbox)?;
        self.say(self.controller, question);
        loop {
            look()?;
            match inbox.recv_timeout(LOOKS) {
                Ok(Heard::Frame(link, frame)) if link == self.controller => {
                    let said = wire::message(&frame).map_err(|why| self.broken(why))?;
                    if let Some(answer) = answer(said) {
                        return answer;
                    }
                }
                Ok(Heard::Lost(link, why)) if link == self.controller => {
                    return Err(self.gone(why).into());
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.gone("this side ended".into()).into());
                }
            }
        }
    }

    /// What an earlier conversation left is of no interest, but that the controller is gone.
    fn forget_earlier(&self, inbox: &Receiver<Heard>) -> Result<(), ClusterError> {
        for heard in inbox.try_iter() {
            if let Heard::Lost(link, why) = heard
                && link == self.controller
            {
                return Err(self.gone(why));
            }
        }
        Ok(())
    }

    /// Runs a program on the cluster's workers, who build it from `bytes`, and fetches the datasets that it keeps.
    ///
    /// `caller` is asked for interruptions and told how far the job is; its stages run on the workers. Jobs share the workers'
    /// threads by `weight`; where a cluster has as many as it runs at once, others wait for their turn.
    ///
    /// # Errors
    /// How the job failed, and on which worker; or what became of the cluster.
    pub fn run(
        &self,
        plan: Plan,
        bytes: &[u8],
        weight: u32,
        caller: &mut dyn Caller,
    ) -> Result<Outcome, Error> {
        let inbox = self.inbox();
        self.forget_earlier(&inbox)?;
        let started = Instant::now();
        let mut talk = Talk {
            cluster: self,
            inbox: &inbox,
            plan: &plan,
            job: None,
            caller,
            started,
            workers: BTreeMap::new(),
            left: BTreeMap::new(),
            again: Vec::new(),
            heard: started,
        };
        let result = talk.run(bytes, weight);
        talk.part();
        let Fetched { values, mut tally } = result?;
        tally.wall = started.elapsed();
        Ok(Outcome::fetched(plan, values, tally))
    }

    fn inbox(&self) -> MutexGuard<'_, Receiver<Heard>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, to: LinkId, message: Message<'_>) {
        self.board.say(to, [framed(message)]);
    }

    pub(super) fn gone(&self, why: String) -> ClusterError {
        ClusterError::ControllerGone {
            at: self.address,
            why,
        }
    }

    fn broken(&self, why: Refused) -> ClusterError {
        ClusterError::Broken {
            who: format!("the controller at {}", self.address),
            why: why.to_string(),
        }
    }
}

/// The link to a worker, and what comes on it.
struct Link {
    member: Member,
    /// The partition that comes in parts.
    parts: Parts,
    is_done: bool,
    /// Whether it was sent the program: who was not holds nothing.
    has_program: bool,
    /// The number of what its kernels print next.
    printed: u64,
    /// Since when there is none.
    lost: Option<Instant>,
}

impl Link {
    fn new(member: Member, lost: Option<Instant>) -> Link {
        Link {
            member,
            parts: Parts::default(),
            is_done: false,
            has_program: false,
            printed: 0,
            lost,
        }
    }
}

/// One program's way to the cluster and back.
struct Talk<'a> {
    cluster: &'a Cluster,
    inbox: &'a Receiver<Heard>,
    plan: &'a Plan,
    job: Option<JobId>,
    caller: &'a mut dyn Caller,
    started: Instant,
    workers: BTreeMap<LinkId, Link>,
    /// Workers that have left the job: the last of what its kernels printed there may still come.
    left: BTreeMap<LinkId, Link>,
    /// Workers to dial again, and when.
    again: Vec<(Instant, Link)>,
    /// When a worker last said something.
    heard: Instant,
}

/// What a conversation comes to.
enum Event {
    Queued(JobId),
    Accepted(Accepted),
    Admitted(Member),
    Left(WorkerId),
    Over(Option<String>),
    Open(LinkId),
    Lost(LinkId, String),
    Partition(DatasetId, u32, Vec<u8>),
    Fetched(LinkId, Tally),
    Origin(LinkId, Option<Origin>),
    AllPrinted(LinkId),
    /// Something that changes nothing.
    None,
}

impl Talk<'_> {
    fn run(&mut self, bytes: &[u8], weight: u32) -> Result<Fetched, Error> {
        if self.plan.columns.iter().any(|&columns| columns > 0) {
            let columns = self.plan.columns.clone();
            let arrange = Message::Arrange { columns };
            self.cluster.say(self.cluster.controller, arrange);
        }
        self.cluster.say(
            self.cluster.controller,
            Message::Submit(Submit {
                version: VERSION,
                name: &self.plan.program.spec().name,
                shards: self.plan.counts.clone(),
            }),
        );
        let job = self.queued()?;
        self.job = Some(job);
        if let Some(tasks) = self.plan.task_count() {
            let expects = Message::Expects { job, tasks };
            self.cluster.say(self.cluster.controller, expects);
        }
        if weight != 1 {
            let weigh = Message::Weigh { job, weight };
            self.cluster.say(self.cluster.controller, weigh);
        }
        let accepted = loop {
            match self.next()? {
                Event::Accepted(accepted) => break accepted,
                Event::Over(failure) => return Err(elsewhere(failure, None)),
                _ => {}
            }
        };
        for member in accepted.members {
            self.dial(Link::new(member, None))?;
        }
        loop {
            match self.next()? {
                Event::Open(link) => {
                    let program = parts(job, bytes).map(|part| framed(Message::Program(part)));
                    self.cluster.board.say(link, program);
                    self.worker(link).has_program = true;
                }
                Event::Admitted(member) => self.dial(Link::new(member, None))?,
                Event::Left(worker) => self.part_from(|it| it.member.worker == worker),
                // The controller tells whether that ends the job.
                Event::Lost(link, _) => self.lost(link),
                Event::Over(None) => break,
                Event::Over(failure) => return Err(self.failed(failure)),
                _ => {}
            }
        }
        self.fetch(job)
    }

    /// The name that the controller gives the job. Not interrupted: without the name nobody could end it.
    fn queued(&mut self) -> Result<JobId, Error> {
        let deadline = Instant::now() + ANSWER;
        loop {
            let patience = deadline.saturating_duration_since(Instant::now());
            let heard = self.inbox.recv_timeout(patience);
            let heard = heard.map_err(|_| self.cluster.gone("it does not answer".into()))?;
            if let Event::Queued(job) = self.understand(heard)? {
                return Ok(job);
            }
        }
    }

    fn fetch(&mut self, job: JobId) -> Result<Fetched, Error> {
        // Who came too late for the program holds nothing.
        self.part_from(|worker| !worker.has_program);
        for link in self.workers.keys() {
            self.ask_for_all(*link, job);
        }
        let mut fetched = Fetched {
            values: BTreeMap::new(),
            tally: Tally::default(),
        };
        self.heard = Instant::now();
        while !(self.again.is_empty() && self.workers.values().all(|worker| worker.is_done)) {
            self.expect_answers()?;
            match self.next_by(Some(self.heard + self.cluster.silence))? {
                // Made again: all of it, since what came of it is not known there.
                Event::Open(link) => self.ask_for_all(link, job),
                Event::Left(worker) => self.part_from(|it| it.member.worker == worker),
                Event::Partition(dataset, index, bytes) => {
                    let value = self.decode(dataset, &bytes)?;
                    fetched.values.insert((dataset, index), value);
                }
                Event::Fetched(link, tally) => {
                    (self.worker(link).is_done, self.worker(link).lost) = (true, None);
                    fetched.tally.tasks += tally.tasks;
                    fetched.tally.threads += tally.threads;
                    fetched.tally.busy += tally.busy;
                    fetched.tally.peak_bytes += tally.peak_bytes;
                }
                Event::Lost(link, why) if !self.worker(link).is_done => {
                    let worker = self.worker(link);
                    let since = *worker.lost.get_or_insert_with(Instant::now);
                    if since.elapsed() > REDIALED_FOR {
                        let worker = worker.member.worker.to_string();
                        return Err(ClusterError::ResultsGone { worker, why }.into());
                    }
                    self.lost(link);
                }
                _ => {}
            }
        }
        self.check(&fetched)?;
        Ok(fetched)
    }

    /// What its kernels have printed, and what they have left.
    fn ask_for_all(&self, link: LinkId, job: JobId) {
        self.cluster.say(link, Message::AskPrinted(job));
        self.cluster.say(link, Message::Fetch(job));
    }

    /// Whoever owes results, and has said nothing for long, is not waited for.
    fn expect_answers(&self) -> Result<(), ClusterError> {
        let silence = self.heard.elapsed();
        let owes = self.workers.values().find(|worker| !worker.is_done);
        match owes.filter(|_| silence >= self.cluster.silence) {
            None => Ok(()),
            Some(owes) => Err(ClusterError::ResultsGone {
                worker: owes.member.worker.to_string(),
                why: format!(
                    "it is there, and has said nothing for {} s; look at what it prints, and end it if it does not go on",
                    silence.as_secs()
                ),
            }),
        }
    }

    /// Whether all kept partitions have come.
    fn check(&self, fetched: &Fetched) -> Result<(), Error> {
        let spec = self.plan.program.spec();
        for (dataset, kept) in (0..)
            .map(DatasetId)
            .zip(&spec.datasets)
            .filter(|(_, it)| it.keep)
        {
            let group = self.plan.group_of_dataset[dataset.index()];
            for index in 0..self.plan.counts[group.index()] {
                if !fetched.values.contains_key(&(dataset, index)) {
                    return Err(ClusterError::Broken {
                        who: "the cluster".into(),
                        why: format!("no worker has partition {index} of dataset `{}`", kept.name),
                    }
                    .into());
                }
            }
        }
        Ok(())
    }

    fn decode(&self, dataset: DatasetId, mut bytes: &[u8]) -> Result<Value, Error> {
        let broken = |why: String| ClusterError::Broken {
            who: "a worker".into(),
            why,
        };
        let datasets = &self.plan.program.spec().datasets;
        let kept = datasets.get(dataset.index()).filter(|dataset| dataset.keep);
        let kept = kept.ok_or_else(|| broken("a dataset that the program does not keep".into()))?;
        let table = self.plan.program.payload_type(dataset);
        let unreadable = |why: String| broken(format!("dataset `{}`: {why}", kept.name));
        let value =
            Value::decode(table, &mut bytes).map_err(|error| unreadable(error.to_string()))?;
        match bytes {
            [] => Ok(value),
            _ => Err(unreadable("more bytes than its value has".into()).into()),
        }
    }

    fn dial(&mut self, to: Link) -> Result<(), Error> {
        let visited = self.cluster.board.visit(to.member.at);
        let link = visited.map_err(|source| ClusterError::System { source })?;
        self.workers.insert(link, to);
        Ok(())
    }

    /// Of these workers nothing is expected any more.
    fn part_from(&mut self, are_meant: impl Fn(&Link) -> bool) {
        self.again.retain(|(_, worker)| !are_meant(worker));
        let workers = std::mem::take(&mut self.workers).into_iter();
        let (left, stay): (Vec<_>, Vec<_>) = workers.partition(|(_, it)| are_meant(it));
        self.workers = stay.into_iter().collect();
        self.left.extend(left);
    }

    /// A worker is dialed again after a while.
    fn lost(&mut self, link: LinkId) {
        if let Some(worker) = self.workers.remove(&link) {
            let lost = worker.lost.or(Some(Instant::now()));
            let Link {
                has_program,
                printed,
                ..
            } = worker;
            let again = Link {
                has_program,
                printed,
                ..Link::new(worker.member, lost)
            };
            self.again.push((Instant::now() + REDIAL, again));
        }
    }

    fn dial_again(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        for (due, worker) in std::mem::take(&mut self.again) {
            match due <= now {
                true => self.dial(worker)?,
                false => self.again.push((due, worker)),
            }
        }
        Ok(())
    }

    fn worker(&mut self, link: LinkId) -> &mut Link {
        self.workers.get_mut(&link).expect("a link to a worker")
    }

    /// The job has failed on a worker, which tells more of it.
    fn failed(&mut self, failure: Option<String>) -> Error {
        let origin = self
            .job
            .and_then(|job| self.ending(job, failure.as_deref()));
        elsewhere(failure, origin)
    }

    /// Where a failure began, if a worker knows that. What was printed before it is shown meanwhile. Whoever does not answer soon is not
    /// waited for.
    fn ending(&mut self, job: JobId, failure: Option<&str>) -> Option<Origin> {
        let deadline = Instant::now() + ENDING_TIME;
        let asked = self.workers.iter().filter(|(_, worker)| worker.has_program);
        let mut printing: BTreeSet<LinkId> = asked.map(|(link, _)| *link).collect();
        let mut asked = printing.clone();
        for link in &printing {
            self.cluster.say(*link, Message::AskPrinted(job));
        }
        match failure {
            None => asked.clear(),
            Some(failure) => asked
                .iter()
                .for_each(|link| self.cluster.say(*link, Message::AskOrigin { job, failure })),
        }
        let mut origin = None;
        while !(asked.is_empty() && printing.is_empty()) && Instant::now() < deadline {
            match self.next_by(Some(deadline)) {
                Err(_) => break,
                Ok(Event::Origin(link, None)) => drop(asked.remove(&link)),
                Ok(Event::Origin(_, found)) => {
                    origin = found;
                    asked.clear();
                }
                Ok(Event::AllPrinted(link)) => drop(printing.remove(&link)),
                Ok(Event::Lost(link, _)) => {
                    asked.remove(&link);
                    printing.remove(&link);
                }
                Ok(_) => {}
            }
        }
        origin
    }

    /// The next thing that happens. Meanwhile the caller is asked, and told.
    fn next(&mut self) -> Result<Event, Error> {
        self.next_by(None)
    }

    /// The same, or nothing by some time.
    fn next_by(&mut self, deadline: Option<Instant>) -> Result<Event, Error> {
        let mut asked = Instant::now();
        loop {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Event::None);
            }
            if self.caller.check().is_err() {
                return Err(Failure::Interrupted.into());
            }
            self.dial_again()?;
            match self.inbox.recv_timeout(LOOKS) {
                Ok(heard) => return self.understand(heard),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.cluster.gone("this side ended".into()).into());
                }
            }
            if asked.elapsed() >= ASKS {
                asked = Instant::now();
                self.cluster.say(self.cluster.controller, Message::Ask);
            }
        }
    }

    fn understand(&mut self, heard: Heard) -> Result<Event, Error> {
        let controller = self.cluster.controller;
        match heard {
            Heard::Frame(link, frame) if link == controller => {
                let message = wire::message(&frame).map_err(|why| self.cluster.broken(why))?;
                self.controller_said(message)
            }
            Heard::Lost(link, why) if link == controller => Err(self.cluster.gone(why).into()),
            Heard::Frame(link, frame) => self.worker_said(link, &frame),
            Heard::Open(link) if self.workers.contains_key(&link) => Ok(Event::Open(link)),
            Heard::Lost(link, why) if self.workers.contains_key(&link) => {
                Ok(Event::Lost(link, why))
            }
            // Links of an earlier conversation.
            Heard::Open(_) | Heard::Lost(..) => Ok(Event::None),
        }
    }

    fn controller_said(&mut self, message: Message<'_>) -> Result<Event, Error> {
        Ok(match message {
            Message::Queued(job) => Event::Queued(job),
            Message::Accepted(accepted) if self.job == Some(accepted.job) => {
                Event::Accepted(accepted)
            }
            Message::Admitted { job, member } if self.job == Some(job) => Event::Admitted(member),
            Message::Left { job, worker } if self.job == Some(job) => Event::Left(worker),
            Message::Over { job, failure } if self.job == Some(job) => {
                Event::Over(failure.map(str::to_owned))
            }
            Message::Refused { why } => return Err(refused(why).into()),
            Message::Status(status) => {
                self.show(&status);
                Event::None
            }
            _ => Event::None,
        })
    }

    fn show(&mut self, status: &Status) {
        let ours = status.jobs.iter().find(|job| Some(job.id) == self.job);
        if let Some(job) = ours {
            self.caller.advanced(Advance {
                program: &self.plan.program.spec().name,
                tasks: job.position,
                tasks_total: self.plan.task_count(),
                elapsed: self.started.elapsed(),
            });
        }
    }

    fn worker_said(&mut self, link: LinkId, frame: &[u8]) -> Result<Event, Error> {
        let Some(worker) = self.workers.get_mut(&link) else {
            return self.leaving_said(link, frame);
        };
        self.heard = Instant::now();
        let broken = |why: String| ClusterError::Broken {
            who: format!("worker {}", worker.member.worker),
            why,
        };
        let message = wire::message(frame).map_err(|why| broken(why.to_string()))?;
        Ok(match message {
            Message::Partition {
                dataset,
                index,
                part,
            } => match worker.parts.take(&part) {
                Ok(Some(whole)) => Event::Partition(dataset, index, whole),
                Ok(None) => Event::None,
                Err(why) => return Err(broken(why.to_string()).into()),
            },
            Message::Fetched {
                tasks,
                threads,
                busy_ns,
                peak_bytes,
                ..
            } => {
                let tally = Tally {
                    tasks,
                    threads,
                    busy: Duration::from_nanos(busy_ns),
                    peak_bytes,
                    ..Tally::default()
                };
                Event::Fetched(link, tally)
            }
            Message::Origin { origin, .. } => Event::Origin(link, origin.map(come)),
            Message::Printed(printed) if self.job == Some(printed.job) => {
                self.show_printed(link, &printed);
                Event::None
            }
            Message::AllPrinted(job) if self.job == Some(job) => Event::AllPrinted(link),
            Message::Refused { why } => return Err(refused(why).into()),
            _ => Event::None,
        })
    }

    /// Who has left the job is heard for what its kernels had printed.
    fn leaving_said(&mut self, link: LinkId, frame: &[u8]) -> Result<Event, Error> {
        if self.left.contains_key(&link)
            && let Ok(Message::Printed(printed)) = wire::message(frame)
            && self.job == Some(printed.job)
        {
            self.show_printed(link, &printed);
        }
        Ok(Event::None)
    }

    /// What kernels have printed on a worker. What was shown before has come again on another link.
    fn show_printed(&mut self, link: LinkId, printed: &message::Printed<'_>) {
        let worker = self.workers.get_mut(&link);
        let worker = worker.or_else(|| self.left.get_mut(&link));
        let worker = worker.expect("a link to a worker");
        if printed.number >= worker.printed {
            worker.printed = printed.number.saturating_add(1);
            let lines = prints::shown(worker.member.worker, printed);
            self.caller.printed(&lines);
        }
        let (job, number) = (printed.job, printed.number);
        self.cluster.say(link, Message::Shown { job, number });
    }

    /// Says that this client wants nothing more of the job, and ends the links to workers.
    fn part(&mut self) {
        if let Some(job) = self.job {
            self.cluster
                .say(self.cluster.controller, Message::Done(job));
        }
        for link in self.workers.keys().chain(self.left.keys()) {
            self.cluster.board.hang_up(*link);
        }
    }
}

pub(super) fn refused(why: &str) -> ClusterError {
    let why = why.to_owned();
    ClusterError::Refused { why }
}

/// Whether a caller has not interrupted.
pub(super) fn looking(caller: &mut dyn Caller) -> impl FnMut() -> Result<(), Error> {
    || match caller.check() {
        Ok(()) => Ok(()),
        Err(_) => Err(Failure::Interrupted.into()),
    }
}

fn elsewhere(failure: Option<String>, origin: Option<Origin>) -> Error {
    let failure = failure.unwrap_or_else(|| "the job ended before it began".into());
    let origin = origin.map(Box::new);
    Failure::Elsewhere { failure, origin }.into()
}

/// An origin as a worker has sent it.
fn come(origin: message::Origin<'_>) -> Origin {
    Origin {
        kind: origin.kind,
        stage: origin.stage.to_owned(),
        partition: origin.partition,
        turn: origin.turn,
        message: origin.message.to_owned(),
        cause: origin.cause.to_vec(),
    }
}
