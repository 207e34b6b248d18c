//! A process that holds shards: it registers with a controller and runs what it is told to.

mod adopted;
mod hosted;
mod local_parts;
mod metrics;
mod prints;
mod spilling;
mod stuck;
mod times;

use super::jobs::host;
use super::wire::{board, epoch, framed, message};
use super::{
    BALANCE_EACH, CONTROLLER_TIME, ClusterError, LASTING_TIME, REDIAL, Rendezvous, VERSION,
};
use crate::{Error, Settings, SpillTo};
use brambling_controller::registry::HEARTBEAT;
use brambling_exchange::transports::local_address_towards;
use brambling_exchange::transports::switchboard::{PartyRefusal, Reception, Switchboard};
use brambling_exchange::transports::tcp::{LinkId, Lost};
use brambling_memory::Memory;
use brambling_memory::held::{self, Held};
use brambling_operators::simd;
use brambling_program::Program;
use brambling_protocol::message::{CutOff, Load, Message, Prepare, Register, RestoredParts};
use brambling_protocol::patience::{ACKNOWLEDGED_WITHIN, Awake, CUT_OFF_AFTER};
use brambling_protocol::{Generation, JobId, JobKey, WorkerId};
use brambling_worker::executor::{Caller, Failure, Pool};
pub use hosted::CAUSE_BYTES_MAX;
use hosted::Hosted;
use local_parts::{LocalJobs, LocalParts};
use metrics::{Done, EndedJobs};
pub use prints::Prints;
use spilling::Spilling;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stuck::Overdue;

/// How often it tells what shards take: as often as a controller looks.
const TIMES: Duration = BALANCE_EACH;
/// So many jobs that were released are remembered.
const DROPPED_MAX: usize = 1_000;
/// How often its jobs are told that time passes.
const TICK: Duration = Duration::from_millis(5);

/// What makes programs of bytes, and callers for them: the part of a worker that knows what clients send.
pub trait Source: Send + Sync {
    /// The program that a client described. What its kernels are to tell the client while they run they print to `prints`: kernels take a
    /// clone of it along.
    ///
    /// # Errors
    /// Why there is none; the client is told.
    fn program(&self, bytes: &[u8], prints: &Prints) -> Result<Program, String>;
    /// Who runs the stages of a program that are its caller's own. Called on the job's thread.
    fn caller(&self) -> Box<dyn Caller>;
    /// A program's job has run here, and its caller is still there: the last occasion to tell what it has [loaded](Prints::loaded).
    fn ended(&self, _prints: &Prints) {}
    /// The stage of the program that prints there whose kernel runs now, as far as that is known. Must not wait.
    fn kernel(&self, _prints: &Prints) -> Option<String> {
        None
    }
    /// The program's job is over, and a kernel of it still runs: ends it, if that can be done. Asked every second. May wait, for an interpreter
    /// for instance.
    fn interrupt(&self, _prints: &Prints) {}
    /// A failure as its client should read it.
    fn explain(&self, failure: &Failure) -> String {
        failure.to_string()
    }
    /// What the client's language makes an exception of, such as a pickle; empty when there is nothing. It reaches the client in
    /// [`Origin::cause`](crate::Origin::cause), if it has at most [`CAUSE_BYTES_MAX`] bytes.
    fn cause(&self, _failure: &Failure) -> Vec<u8> {
        Vec::new()
    }
}

/// How a worker is started.
pub struct WorkerOptions {
    /// Its cluster.
    pub cluster: Rendezvous,
    /// Threads and memory; the rest is as for any job.
    pub settings: Settings,
    /// Where it listens for other workers and clients; none: any port of the address by which it reaches the controller.
    pub bind: Option<SocketAddr>,
}

/// Why a worker ends.
#[derive(Debug)]
pub enum WorkerEnd {
    /// It was asked to.
    Asked,
    /// It was drained: it holds nothing any more.
    Drained,
    /// A kernel ran on for too long after its job was over.
    Stuck {
        /// Of which job.
        job: JobId,
        /// Its stage; empty: not known.
        stage: String,
        /// For how long.
        after: Duration,
    },
    /// The controller has given it up: its jobs go on without it.
    Fenced {
        /// Why.
        why: String,
    },
    /// It cannot take part any more.
    Failed(ClusterError),
}

/// A worker. Dropping it ends it, and its jobs.
pub struct WorkerProcess {
    shared: Arc<WorkerShared>,
    beat: Option<JoinHandle<()>>,
}

pub(in crate::cluster) struct WorkerShared {
    cluster: Rendezvous,
    source: Box<dyn Source>,
    pool: Pool,
    memory: Memory,
    spilling: Option<Arc<Spilling>>,
    stall: Duration,
    stuck_kernel: Duration,
    epoch: u64,
    started: Instant,
    listens_at: SocketAddr,
    /// Links of jobs, and of clients.
    board: OnceLock<Switchboard>,
    /// The link to the controller outside of jobs, with a thread of its own: a busy worker is not taken for a dead one.
    control: OnceLock<Switchboard>,
    state: Mutex<State>,
    /// Something has changed that somebody waits for.
    news: Condvar,
}

#[derive(Default)]
struct State {
    me: Option<WorkerId>,
    link: Option<LinkId>,
    is_open: bool,
    awake: Awake,
    /// Since when there is no link to the controller, and when it is dialed again.
    lost: Option<Parted>,
    again: Option<Instant>,
    end: Option<WorkerEnd>,
    jobs: BTreeMap<JobKey, Arc<Hosted>>,
    /// Jobs of which a controller that has taken over wants to know what is here, and its term.
    asked: BTreeMap<JobKey, u32>,
    /// What their shards have saved.
    local: LocalJobs,
    /// Its controller's jobs outlive it.
    is_lasting: bool,
    /// Of jobs that were released last, the newest generations that were here: a controller that does not know that another has taken over may still speak of them.
    dropped: BTreeMap<JobId, Generation>,
    /// Jobs that were released, and have perhaps not left yet.
    released: Vec<Weak<Hosted>>,
    ended: EndedJobs,
    /// Jobs that are over and were not left by all threads yet.
    overdue: Vec<Overdue>,
    /// Whether the controller was told of some of them.
    told_stuck: bool,
    /// The links of clients.
    clients: BTreeSet<LinkId>,
    /// Why jobs cannot run here: said again on a new link.
    unprepared: BTreeMap<JobKey, String>,
}

/// A worker has no link to its controller.
struct Parted {
    /// Since when, in time in which the worker ran: one that was stopped has not waited meanwhile.
    since: Duration,
    why: String,
    /// The controller's machine does not answer.
    is_cut: bool,
}

impl WorkerProcess {
    /// Starts to listen, and dials the controller.
    ///
    /// # Errors
    /// When a setting cannot be used, nothing can be spilled where that says, an address cannot be bound, or the system gives no threads.
    pub fn start(options: WorkerOptions, source: Box<dyn Source>) -> Result<WorkerProcess, Error> {
        let WorkerOptions {
            cluster,
            settings,
            bind,
        } = options;
        let settings = settings.resolve()?;
        simd::select(settings.isa)?;
        let opened = settings.spill.as_ref().map(SpillTo::open).transpose();
        let opened = opened.map_err(|source| ClusterError::Spill { source })?;
        let system = |source| ClusterError::System { source };
        let spilling = opened.map(Spilling::new).transpose().map_err(system)?;
        let spilling = spilling.map(Arc::new);
        let threads = settings.threads;
        let pool = Pool::new(threads, settings.oversubscribed)
            .map_err(|source| Error::Threads { threads, source })?;
        let bind = match bind {
            Some(bind) => bind,
            None => {
                let address = local_address_towards(cluster.address).map_err(system)?;
                SocketAddr::new(address, 0)
            }
        };
        let epoch = epoch()?;
        let token = cluster.token.clone();
        let receptions = Arc::<OnceLock<Weak<WorkerShared>>>::default();
        let memory = Memory::new(settings.memory_bytes);
        let receives = Arc::new(Clients(receptions.clone()));
        let tls = cluster.tls.as_ref();
        let jobs = board(
            Some(bind),
            token.clone(),
            tls,
            epoch,
            memory.own(),
            receives,
        )
        .map_err(|source| ClusterError::Bind { at: bind, source })?;
        let controls = Arc::new(Control(receptions.clone()));
        let control = board(None, token, tls, epoch, memory.own(), controls).map_err(system)?;
        let shared = Arc::new(WorkerShared {
            cluster,
            source,
            pool,
            memory,
            spilling,
            stall: settings.stall,
            stuck_kernel: settings.stuck_kernel,
            epoch,
            started: Instant::now(),
            listens_at: jobs.listens_at().expect("it was told to listen"),
            board: jobs.into(),
            control: control.into(),
            state: Mutex::new(State {
                lost: Some(Parted {
                    since: Duration::ZERO,
                    why: "it does not answer".into(),
                    is_cut: false,
                }),
                again: Some(Instant::now()),
                ..State::default()
            }),
            news: Condvar::new(),
        });
        assert!(receptions.set(Arc::downgrade(&shared)).is_ok(), "set once");
        let beating = shared.clone();
        let builder = std::thread::Builder::new().name("brambling-beat".into());
        let beat = builder.spawn(move || beating.beat()).map_err(system)?;
        // Nobody waits for it: it may wait for an interpreter that a kernel keeps.
        let ending = shared.clone();
        let builder = std::thread::Builder::new().name("brambling-ends".into());
        builder
            .spawn(move || ending.end_overdue())
            .map_err(system)?;
        Ok(WorkerProcess {
            shared,
            beat: Some(beat),
        })
    }

    /// Where other workers and clients reach it.
    pub fn listens_at(&self) -> SocketAddr {
        self.shared.listens_at
    }

    /// Its name in the cluster, once the controller has given it one.
    pub fn name(&self) -> Option<WorkerId> {
        self.shared.state().me
    }

    /// Ends its links outside of jobs, which are made again: for tests.
    #[doc(hidden)]
    pub fn cut(&self) {
        let state = self.shared.state();
        let (control, clients) = (state.link, state.clients.clone());
        drop(state);
        control
            .into_iter()
            .for_each(|link| self.shared.control().hang_up(link));
        clients
            .into_iter()
            .for_each(|link| self.shared.board().hang_up(link));
    }

    /// Kernels that run on though their jobs are over, and shards that a task keeps from moving, of which nobody was told yet, in words.
    pub fn stuck_news(&self) -> Vec<String> {
        self.shared.stuck_news()
    }

    /// Waits for its end, or for a change of its name, at most so long.
    pub fn wait(&self, at_most: Duration) -> Option<WorkerEnd> {
        let state = self.shared.state();
        if state.end.is_some() {
            return self.shared.state_end(state);
        }
        self.shared
            .state_end(state.wait_at_most(&self.shared.news, at_most))
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.end = Some(WorkerEnd::Asked);
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        self.shared.news.notify_all();
        for job in jobs.values() {
            // First: that its jobs end here is no failure of theirs. The controller sees that this worker is gone.
            self.shared.board().leave(job.key());
            job.release();
        }
        if let Some(beat) = self.beat.take() {
            let _ = beat.join();
        }
    }
}

impl WorkerShared {
    fn state(&self) -> Held<'_, State> {
        held::lock(&self.state)
    }

    fn state_end(&self, mut state: Held<'_, State>) -> Option<WorkerEnd> {
        state.end.take_if(|end| !matches!(end, WorkerEnd::Asked))
    }

    fn board(&self) -> &Switchboard {
        self.board.get().expect("set at the beginning")
    }

    fn control(&self) -> &Switchboard {
        self.control.get().expect("set at the beginning")
    }

    // ---- the thread that tells that this worker is there

    fn beat(self: &Arc<Self>) {
        let mut reported = Instant::now();
        let mut told = Instant::now();
        let mut busy = Duration::ZERO;
        let mut state = self.state();
        while state.end.is_none() {
            let now = Instant::now();
            let ran = state.awake.look(now - self.started);
            self.dial_if_due(&mut state, now, ran);
            let jobs: Vec<Arc<Hosted>> = state.jobs.values().cloned().collect();
            let link = state.link.filter(|_| state.is_open && state.me.is_some());
            let since = now - reported;
            let due = link.filter(|_| since >= HEARTBEAT);
            let mut load = due.map(|_| self.load(&mut state, since, &mut busy));
            let stuck = due.and_then(|_| self.tell_stuck(&mut state, now));
            self.end_if_stuck(&mut state, now);
            state.local.tick(now);
            drop(state);
            jobs.iter().for_each(|job| job.tick());
            if let Some(load) = &mut load {
                load.running = jobs.iter().flat_map(|job| job.running()).collect();
            }
            if let Some((link, load)) = due.zip(load) {
                let stuck = stuck.map(Message::Stuck);
                let uses = jobs.iter().map(|job| (job.key(), job.in_use_bytes()));
                let said = [Message::Load(load), Message::Uses(uses.collect())];
                let said = said.into_iter().chain(stuck);
                self.control().say(link, said.map(framed));
                self.say_holdings(link);
                reported = now;
            }
            if let Some(link) = link.filter(|_| now - told >= TIMES) {
                let times = jobs.iter().flat_map(|job| job.times());
                let times = times.map(|it| framed(Message::Times(it)));
                self.control().say(link, times);
                told = now;
            }
            state = self.state();
            let patience = if jobs.is_empty() { REDIAL } else { TICK };
            state = state.wait_at_most(&self.news, patience);
        }
    }

    /// How it fares, but for what runs; `busy` is what its threads had worked when this was asked last.
    fn load(&self, state: &mut State, since: Duration, busy: &mut Duration) -> Load {
        let mut tasks = std::mem::take(&mut state.ended.unsaid);
        let Done { busy: all, .. } = state.done(|key, tally| tasks.push((key, tally.tasks)));
        let worked = all.saturating_sub(*busy).as_secs_f64();
        *busy = all;
        let could = since.as_secs_f64() * f64::from(self.pool.threads());
        let idle = (1.0 - worked / could).clamp(0.0, 1.0);
        Load {
            memory_bytes: self.memory.in_use_bytes(),
            idle_permille: (idle * 1_000.0) as u16,
            tasks,
            running: Vec::new(),
        }
    }

    fn dial_if_due(&self, state: &mut State, now: Instant, ran: Duration) {
        if let Some(parted) = &state.lost {
            let so_long = ran.saturating_sub(parted.since);
            let patience = match parted.is_cut {
                _ if state.is_lasting => LASTING_TIME,
                true => CUT_OFF_AFTER,
                false => CONTROLLER_TIME,
            };
            if so_long > patience {
                let at = self.cluster.address;
                state.end = Some(WorkerEnd::Failed(parted.error(state.me, at, so_long)));
                self.news.notify_all();
                return;
            }
        }
        if state.again.is_some_and(|at| at <= now) {
            state.again = None;
            match self.control().visit(self.cluster.address) {
                Ok(link) => state.link = Some(link),
                Err(_) => state.again = Some(now + REDIAL),
            }
        }
    }

    // ---- the controller

    fn register(&self, link: LinkId) {
        let host = host();
        let mut state = self.state();
        state.link = Some(link);
        state.is_open = true;
        (state.lost, state.again) = (None, None);
        let register = Register {
            version: VERSION,
            known_as: state.me,
            epoch: self.epoch,
            pid: std::process::id(),
            host: &host,
            threads: self.pool.threads(),
            memory_bytes: self.memory.budget_bytes(),
            listens_at: self.listens_at,
            jobs: state.jobs.keys().copied().collect(),
        };
        let unsaid = state.unprepared.iter();
        let unsaid = unsaid.map(|(key, why)| Message::Unprepared { key: *key, why });
        let messages = std::iter::once(Message::Register(register)).chain(unsaid);
        self.control().say(link, messages.map(framed));
    }

    fn told(self: &Arc<Self>, message: Message<'_>) -> Result<(), PartyRefusal> {
        match message {
            Message::Registered(registered) => {
                self.state().me = Some(registered.worker);
                self.news.notify_all();
            }
            Message::Refused { why } => {
                let why = why.to_owned();
                self.state().end = Some(WorkerEnd::Failed(ClusterError::Refused { why }));
                self.news.notify_all();
            }
            Message::Fenced { why } => {
                let why = why.to_owned();
                self.state().end.get_or_insert(WorkerEnd::Fenced { why });
                self.news.notify_all();
            }
            Message::Lasting => self.state().is_lasting = true,
            Message::AskHolding { key, term } => self.on_ask(key, term),
            Message::Adopted(key) => drop(self.state().asked.remove(&key)),
            Message::Prepare(prepare) => self.prepare(prepare),
            Message::Weigh { job, weight } => {
                let state = self.state();
                let of_it = state.jobs.values().filter(|it| it.key().job == job);
                let of_it: Vec<Arc<Hosted>> = of_it.cloned().collect();
                drop(state);
                of_it.iter().for_each(|it| it.on_weigh(weight));
            }
            Message::Drained(_) => {
                self.state().end.get_or_insert(WorkerEnd::Drained);
                self.news.notify_all();
            }
            Message::Release(key) => {
                let mut state = self.state();
                state.unprepared.remove(&key);
                state.asked.remove(&key);
                state.drop_generation(key);
                let job = state.jobs.remove(&key);
                let has_ended = job.as_ref().is_some_and(|job| job.has_run());
                if !state.jobs.keys().any(|it| it.job == key.job) {
                    state.local.released(key.job, has_ended, Instant::now());
                }
                job.iter().for_each(|job| state.ended.add(job));
                state.released.retain(|it| it.strong_count() > 0);
                state.released.extend(job.iter().map(Arc::downgrade));
                drop(state);
                job.iter().for_each(|job| job.release());
                self.watch_end(job);
            }
            other => return Err(format!("a controller does not say {other:?}").into()),
        }
        Ok(())
    }

    fn lost_controller(&self, link: LinkId, why: &Lost) {
        let mut state = self.state();
        if state.link != Some(link) {
            return;
        }
        let was_open = std::mem::replace(&mut state.is_open, false);
        state.link = None;
        let now = Instant::now();
        let ran = state.awake.look(now - self.started);
        let before = state.lost.take();
        let since = match &before {
            Some(before) => before.since,
            // That is when it was cut off.
            None if why.is_cut() => ran.saturating_sub(ACKNOWLEDGED_WITHIN),
            None => ran,
        };
        state.lost = Some(Parted {
            since,
            why: why.to_string(),
            is_cut: why.is_cut(),
        });
        // What will not be otherwise the next time.
        let is_for_good = matches!(why, Lost::Greeting(_) | Lost::Tls(_)) && !why.may_pass();
        if !was_open && is_for_good {
            let end = ClusterError::unmet(self.cluster.address, why);
            state.end = Some(WorkerEnd::Failed(end));
            self.news.notify_all();
            return;
        }
        state.again = Some(now + REDIAL);
    }

    /// Tells the controller that another member of a job cannot be reached.
    fn say_cut_off(&self, cut: CutOff<'_>) {
        let state = self.state();
        // Without a link it is lost: while the cut lasts it is told again.
        if let Some(link) = state.link.filter(|_| state.is_open) {
            self.control().say(link, [framed(Message::CutOff(cut))]);
        }
    }

    /// Tells the controller that a job cannot run here.
    fn say_unprepared(&self, key: JobKey, why: String) {
        let mut state = self.state();
        if let Some(link) = state.link.filter(|_| state.is_open) {
            let message = Message::Unprepared { key, why: &why };
            self.control().say(link, [framed(message)]);
        }
        state.unprepared.insert(key, why);
    }

    /// Tells the controller that a job cannot begin here at its snapshot.
    fn say_unrestored(&self, key: JobKey, why: &str) {
        let state = self.state();
        // Without a link: whoever is cut off from the controller is lost there, and the job begins once more.
        if let Some(link) = state.link.filter(|_| state.is_open) {
            let message = Message::Unrestored { key, why };
            self.control().say(link, [framed(message)]);
        }
    }

    /// Tells the controller where what a job begins with came from.
    fn say_restored(&self, restored: RestoredParts) {
        let state = self.state();
        if let Some(link) = state.link.filter(|_| state.is_open) {
            self.control()
                .say(link, [framed(Message::Restored(restored))]);
        }
    }

    // ---- jobs

    /// What a job's shards have saved here.
    fn local_parts(&self, job: JobId) -> Arc<LocalParts> {
        self.state().local.of(job, &self.memory)
    }

    /// The job of this key; who comes first, client or controller, makes it.
    fn hosted(self: &Arc<Self>, key: JobKey) -> Arc<Hosted> {
        let mut state = self.state();
        let hosted = state.jobs.entry(key);
        let hosted = hosted.or_insert_with(|| Hosted::start(key, self));
        hosted.clone()
    }

    /// Earlier generations of a job that are perhaps here still.
    fn older_than(&self, key: JobKey) -> Vec<Arc<Hosted>> {
        let state = self.state();
        let released = state.released.iter().filter_map(Weak::upgrade);
        let is_older = |it: &Arc<Hosted>| it.key().job == key.job && it.key() != key;
        released.filter(is_older).collect()
    }

    /// What a client has begun to send, and the controller never spoke of, is dropped with its link.
    fn lost_client(&self, link: LinkId) {
        let mut state = self.state();
        state.clients.remove(&link);
        let dropped = state.jobs.values().filter(|job| job.is_only_from(link));
        let dropped: Vec<Arc<Hosted>> = dropped.cloned().collect();
        for job in &dropped {
            state.jobs.remove(&job.key());
        }
        drop(state);
        dropped.iter().for_each(|job| job.release());
        self.watch_end(dropped);
    }

    fn prepare(self: &Arc<Self>, prepare: Prepare) {
        let state = self.state();
        let (me, key) = (state.me, prepare.key);
        let was_dropped = state.was_dropped(key);
        drop(state);
        let Some(me) = me.filter(|_| !was_dropped) else {
            return;
        };
        if let Some(why) = self.hosted(key).on_prepare(me, prepare) {
            self.say_unprepared(key, why);
        }
    }
}

impl State {
    fn drop_generation(&mut self, key: JobKey) {
        let dropped = self.dropped.entry(key.job).or_insert(key.generation);
        *dropped = key.generation.max(*dropped);
        if self.dropped.len() > DROPPED_MAX {
            self.dropped.pop_first();
        }
    }

    /// Whether a generation of a job was here that is as new. Where jobs do not outlive a controller, the next one gives the same numbers again.
    fn was_dropped(&self, key: JobKey) -> bool {
        let dropped = self.dropped.get(&key.job);
        self.is_lasting && dropped.is_some_and(|it| key.generation <= *it)
    }
}

impl Parted {
    fn error(&self, me: Option<WorkerId>, at: SocketAddr, so_long: Duration) -> ClusterError {
        let why = self.why.clone();
        match me {
            None => ClusterError::NoController { at, why },
            Some(me) if self.is_cut => ClusterError::CutOff {
                who: format!("worker {me} on {}", host()),
                whom: format!("the controller at {at}"),
                why: format!("for {} s: {why}", so_long.as_secs()),
            },
            Some(_) => ClusterError::ControllerGone { at, why },
        }
    }
}

/// Has the link to the controller.
struct Control(Arc<OnceLock<Weak<WorkerShared>>>);

/// Has the links of clients.
struct Clients(Arc<OnceLock<Weak<WorkerShared>>>);

fn shared(worker: &OnceLock<Weak<WorkerShared>>) -> Option<Arc<WorkerShared>> {
    worker.get()?.upgrade()
}

impl Reception for Control {
    fn on_open(&self, link: LinkId) {
        if let Some(shared) = shared(&self.0) {
            shared.register(link);
        }
    }
    fn on_frame(&self, _: LinkId, frame: &[u8]) -> Result<(), PartyRefusal> {
        match shared(&self.0) {
            Some(shared) => shared.told(message(frame)?),
            None => Ok(()),
        }
    }
    fn on_lost(&self, link: LinkId, why: &Lost) {
        if let Some(shared) = shared(&self.0) {
            shared.lost_controller(link, why);
        }
    }
}

impl Reception for Clients {
    fn on_frame(&self, link: LinkId, frame: &[u8]) -> Result<(), PartyRefusal> {
        let Some(shared) = shared(&self.0) else {
            return Ok(());
        };
        shared.state().clients.insert(link);
        match message(frame)? {
            Message::Program(part) => shared.hosted(part.key).on_part(link, &part)?,
            Message::Partition {
                dataset,
                index,
                part,
            } => {
                let hosted = shared.state().jobs.get(&part.key).cloned();
                if let Some(hosted) = hosted {
                    hosted.on_given(link, (dataset, index), &part)?;
                }
            }
            Message::Fetch(key) => match shared.state().jobs.get(&key) {
                Some(job) => job.on_fetch(link),
                // What never was here has left nothing.
                None => shared.board().say(link, [framed(hosted::nothing(key))]),
            },
            Message::AskOrigin { key, failure } => {
                let hosted = shared.state().jobs.get(&key).cloned();
                let origin = hosted.and_then(|hosted| hosted.origin_of(failure));
                let origin = origin.as_ref().map(hosted::told);
                let answer = Message::Origin { key, origin };
                shared.board().say(link, [framed(answer)]);
            }
            Message::Shown { key, number } => {
                let hosted = shared.state().jobs.get(&key).cloned();
                hosted.iter().for_each(|job| job.on_shown(number));
            }
            Message::AskPrinted(key) => {
                let hosted = shared.state().jobs.get(&key).cloned();
                let printed = hosted.iter().flat_map(|job| job.all_printed());
                let answer = framed(Message::AllPrinted(key));
                shared.board().say(link, printed.chain([answer]));
            }
            other => return Err(format!("a client does not say {other:?}").into()),
        }
        Ok(())
    }

    fn on_lost(&self, link: LinkId, _: &Lost) {
        if let Some(shared) = shared(&self.0) {
            shared.lost_client(link);
        }
    }
}
