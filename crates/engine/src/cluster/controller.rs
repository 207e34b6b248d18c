//! The process that knows who takes part and where shards are.

mod log;
mod metrics;
mod snapshots;
mod standby;

use super::jobs::host;
use super::snapshots::SnapshotOptions;
use super::wire::{board, epoch, framed, message};
use super::{Certificates, ClusterError, Token, VERSION};
use brambling_controller::balance::Scales;
use brambling_controller::registry::{
    Apart, ClusterStore, Order, OwnedMessage, PeerLink, Registry,
};
pub use brambling_controller::registry::{JOBS_AT_ONCE, ProcessEnd};
use brambling_controller::{Controller, ControllerEffect, SnapshotSetup};
use brambling_exchange::transports::switchboard::{Party, PartyRefusal, Reception, Switchboard};
use brambling_exchange::transports::tcp::{LinkId, Lost};
use brambling_memory::Budget;
use brambling_program::ShardId;
use brambling_protocol::frame::Incoming;
use brambling_protocol::kept::CutManifest;
use brambling_protocol::message::{
    ClusterEvent, EVENTS_AT_ONCE, JobCuts, KeptPlace, Message, SnapshotEvery, SnapshotStatus,
};
use brambling_protocol::patience::Awake;
use brambling_protocol::{JobId, JobKey, Sequence, WorkerId};
use log::{ClusterLog, Logging};
use metrics::EndedMoves;
use snapshots::SnapshotWriting;
pub use standby::{stand_by, token_of};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the registry is told what time it is.
const TICK: Duration = Duration::from_millis(50);

/// So many events are kept for those who ask.
const EVENTS_KEPT: usize = 10_000;

/// How a controller is started.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// Where it listens; port 0 is any free one.
    pub bind: SocketAddr,
    /// What the processes of its cluster know.
    pub token: Token,
    /// The cluster's certificates, if its processes speak TLS.
    pub tls: Option<Certificates>,
    /// How often it looks whether shards of a job should move to other workers, [`BALANCE_EACH`] for example; none: shards move when somebody
    /// asks for it. Workers tell once a second what shards take, so that more often is of no use.
    pub balance_each: Option<Duration>,
    /// How many jobs run at a time, [`JOBS_AT_ONCE`] for example: they share the workers' threads by their weights, and further ones wait.
    pub jobs_at_once: u32,
    /// Where jobs are saved, if they are.
    pub snapshots: Option<SnapshotOptions>,
    /// A directory with the cluster's log, if its jobs are to outlive this process: another controller goes on from it.
    pub state: Option<String>,
    /// A worker that has told nothing for so long is given up, [`SILENCE`](brambling_protocol::patience::SILENCE) for example: its jobs begin again without it.
    pub silence: Duration,
}

/// How often a controller balances, unless it is told otherwise.
pub const BALANCE_EACH: Duration = Duration::from_secs(1);

/// A controller. Dropping it ends it: workers and clients see that its links end.
pub struct ControllerProcess {
    shared: Arc<ControllerShared>,
    ticker: Option<JoinHandle<()>>,
    address: SocketAddr,
}

struct ControllerShared {
    board: OnceLock<Switchboard>,
    started: Instant,
    state: Mutex<State>,
    ends: Condvar,
    heard: AtomicU64,
    said: AtomicU64,
}

/// What a controller has heard and said since it began: frames, greetings aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// From workers and clients.
    pub heard: u64,
    /// To them. What is sent again on a new link counts once more.
    pub said: u64,
}

struct State {
    registry: Registry,
    /// A machine for each generation of a job that has the cluster.
    jobs: BTreeMap<JobKey, Controller>,
    links: BTreeMap<LinkId, PeerLink>,
    next_caller: u64,
    balance_each: Option<Duration>,
    moves: EndedMoves,
    /// Writes snapshots, where there are any.
    writing: Option<SnapshotWriting>,
    /// Of each job, the snapshots at which it may begin.
    bases: BTreeMap<JobId, Vec<CutManifest>>,
    /// Where each job is saved.
    places: BTreeMap<JobId, String>,
    /// The last cut of each job's generation before this one.
    given: BTreeMap<JobId, u64>,
    awake: Awake,
    has_ended: bool,
    /// Writes the log, where there is one.
    logging: Option<Logging>,
    /// Records that were asked for and are not there yet. Orders behind them wait.
    unlogged: usize,
    held: VecDeque<Order>,
    log_trouble: Option<String>,
    /// What has happened lately, the oldest first.
    events: VecDeque<ClusterEvent>,
    /// What people are to be told.
    news: Vec<String>,
    is_deposed: bool,
}

impl ControllerProcess {
    /// Starts to listen.
    ///
    /// # Errors
    /// When the address cannot be bound, or the system gives no threads.
    pub fn start(options: ControllerOptions) -> Result<ControllerProcess, ClusterError> {
        let ControllerOptions {
            bind,
            token,
            tls,
            balance_each,
            jobs_at_once,
            snapshots,
            state: lasting,
            silence,
        } = options;
        let state = State {
            registry: Registry::new(VERSION),
            jobs: BTreeMap::new(),
            links: BTreeMap::new(),
            next_caller: 0,
            balance_each,
            moves: EndedMoves::default(),
            writing: None,
            bases: BTreeMap::new(),
            places: BTreeMap::new(),
            given: BTreeMap::new(),
            awake: Awake::default(),
            has_ended: false,
            logging: None,
            unlogged: 0,
            held: VecDeque::new(),
            log_trouble: None,
            events: VecDeque::new(),
            news: Vec::new(),
            is_deposed: false,
        };
        let shared = Arc::new(ControllerShared {
            board: OnceLock::new(),
            started: Instant::now(),
            state: Mutex::new(state),
            ends: Condvar::new(),
            heard: AtomicU64::new(0),
            said: AtomicU64::new(0),
        });
        let epoch = epoch()?;
        let mut registry = Registry::new(VERSION)
            .with_jobs_at_once(jobs_at_once)
            .with_silence(silence);
        let mut cluster = (epoch, None);
        let mut cuts = BTreeMap::new();
        if let Some(lasting) = &lasting {
            let (log, found) = ClusterLog::take_over(lasting, epoch, bind)?;
            registry = registry.in_term(found.term, &found);
            let logging = Logging::start(log, &shared)?;
            cluster = (found.cluster, Some(logging.log.clone()));
            let jobs = found.jobs.into_iter();
            cuts = jobs.map(|(id, (_, cuts))| (id, cuts)).collect();
            shared.state().logging = Some(logging);
        }
        if let Some(options) = &snapshots {
            let writing = SnapshotWriting::start(options, cluster, &cuts, &shared)?;
            registry = registry.with_store(ClusterStore {
                store: options.store.clone(),
                prefix: writing.prefix.clone(),
                every: options.every,
            });
            shared.state().writing = Some(writing);
        }
        shared.state().registry = registry;
        let reception = Arc::new(ControllerReception(Arc::downgrade(&shared)));
        let board = board(
            Some(bind),
            token,
            tls.as_ref(),
            epoch,
            &Budget::unlimited(),
            reception,
        )
        .map_err(|source| ClusterError::Bind { at: bind, source })?;
        let address = board.listens_at().expect("it was told to listen");
        assert!(shared.board.set(board).is_ok(), "set once");
        let ticking = shared.clone();
        let builder = std::thread::Builder::new().name("brambling-registry".into());
        let ticker = builder
            .spawn(move || ticking.tick())
            .map_err(|source| ClusterError::System { source })?;
        Ok(ControllerProcess {
            shared,
            ticker: Some(ticker),
            address,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has heard and said until now.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            heard: self.shared.heard.load(Ordering::Relaxed),
            said: self.shared.said.load(Ordering::Relaxed),
        }
    }

    /// How many shards have moved until now, in jobs that have ended as well.
    pub fn moves_arrived(&self) -> u64 {
        self.shared.state().moves.arrived
    }

    /// A worker's process of this machine has ended, as whoever started it has seen. What is known already is not told again.
    pub fn process_ended(&self, end: ProcessEnd) {
        let mut state = self.shared.state();
        let now = state.now(&self.shared);
        state.registry.on_process_ended(end, &host(), now);
        state.act(&self.shared);
    }

    /// What people are to be told of it since this was asked last.
    pub fn news(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state().news)
    }

    /// Whether another controller has taken over: this one has to end.
    pub fn is_deposed(&self) -> bool {
        self.shared.state().is_deposed
    }

    /// How many workers take part now.
    pub fn workers(&self) -> usize {
        self.shared.state().registry.workers()
    }
}

impl Drop for ControllerProcess {
    fn drop(&mut self) {
        self.shared.state().has_ended = true;
        self.shared.ends.notify_all();
        if let Some(ticker) = self.ticker.take() {
            let _ = ticker.join();
        }
        let writing = self.shared.state().writing.take();
        // Not under the lock: what it writes it tells.
        if let Some(writing) = writing {
            writing.end();
        }
        let logging = self.shared.state().logging.take();
        if let Some(logging) = logging {
            logging.end();
        }
    }
}

impl ControllerShared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn board(&self) -> &Switchboard {
        self.board.get().expect("set before anybody can call")
    }

    fn tick(self: &Arc<Self>) {
        let mut state = self.state();
        while !state.has_ended {
            let now = state.now(self);
            state.registry.on_tick(now);
            state.jobs.values_mut().for_each(Controller::on_tick);
            state.balance(now);
            state.jobs.values_mut().for_each(|it| it.snapshot(now));
            state.act(self);
            let waited = self.ends.wait_timeout(state, TICK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Does something with a job's machine, and then what it asks for.
    fn with_job<R>(
        self: &Arc<Self>,
        key: JobKey,
        act: impl FnOnce(&mut Controller) -> R,
    ) -> Option<R> {
        let mut state = self.state();
        let result = state.jobs.get_mut(&key).map(act);
        state.act(self);
        result
    }
}

impl State {
    /// The time in which this process has run: one that was stopped finds nobody silent for that.
    fn now(&mut self, shared: &ControllerShared) -> Duration {
        self.awake.look(shared.started.elapsed())
    }

    /// Carries out what the machines ask for. Under the lock, so that everybody is told things in their order; nothing here waits.
    fn act(&mut self, shared: &Arc<ControllerShared>) {
        loop {
            let events = self.registry.take_events().into_iter();
            events.for_each(|event| self.note(event));
            self.held.extend(self.registry.take_orders());
            let mut idle = true;
            // What stands behind a record waits until that is in the log.
            while self.unlogged == 0
                && !self.is_deposed
                && let Some(order) = self.held.pop_front()
            {
                idle = false;
                self.order(shared, order);
            }
            let mut effects = Vec::new();
            for (key, machine) in &mut self.jobs {
                effects.extend(machine.take_effects().into_iter().map(|it| (*key, it)));
            }
            if idle && effects.is_empty() {
                return;
            }
            for (key, effect) in effects {
                self.perform(shared, key, effect);
            }
        }
    }

    fn perform(&mut self, shared: &Arc<ControllerShared>, key: JobKey, effect: ControllerEffect) {
        match effect {
            ControllerEffect::Send { to, bytes, .. } => {
                shared.said.fetch_add(1, Ordering::Relaxed);
                shared.board().send(key, [(to, bytes)]);
            }
            ControllerEffect::Commit(manifest) => {
                let place = self.places.get(&key.job).cloned();
                if let (Some(writing), Some(place)) = (&self.writing, place) {
                    writing.commit(key, place, manifest);
                }
            }
            // What it has left goes with the next snapshot.
            ControllerEffect::Discard(_) => {}
            ControllerEffect::Say(line) => self.registry.on_no_snapshot(key, &line),
            ControllerEffect::Lost(loss) => self.registry.on_loss(key, loss),
            ControllerEffect::Ended { failure } => self.registry.on_over(key, failure),
            ControllerEffect::Left { worker } => {
                shared.board().forget(key, worker);
                self.registry.on_left(key, worker);
            }
            ControllerEffect::Moved { shard, to } => {
                self.moves.arrived += 1;
                self.registry.on_moved(key, shard, to);
            }
            ControllerEffect::Stays { shard, to } => {
                self.moves.refused += 1;
                let why = format!(
                    "worker {to} has no room for shard {shard}; move it to another, or make room there"
                );
                self.registry.on_stays(key, shard, why);
            }
        }
    }

    fn balance(&mut self, now: Duration) {
        let State { jobs, registry, .. } = self;
        let stuck = registry.stuck();
        for machine in jobs.values_mut() {
            machine.leave_out(stuck.clone());
            machine.balance(now, |worker| registry.free_bytes(worker));
        }
    }

    /// A shard is to move because a user wants it; what it weighs is guessed from what its holder holds.
    fn order_move(&mut self, key: JobKey, shard: ShardId, to: WorkerId) {
        let Some(machine) = self.jobs.get_mut(&key) else {
            return self
                .registry
                .on_stays(key, shard, format!("there is no job {key}"));
        };
        let entry = machine.map().entry(shard).ok().flatten();
        let bytes = entry.map_or(0, |entry| {
            let held = machine.held(entry.owner);
            self.registry.shard_bytes(entry.owner, held)
        });
        match machine.order(shard, to, bytes) {
            Ok(()) => machine.pin(shard),
            Err(why) => self.registry.on_stays(key, shard, why.to_string()),
        }
    }

    /// A worker takes part in a job that runs.
    fn admit(&mut self, key: JobKey, worker: WorkerId) {
        let Some(machine) = self.jobs.get_mut(&key) else {
            return;
        };
        machine.join(worker);
        machine.weigh(worker, self.registry.threads(worker));
        self.registry.on_admitted(key, worker, machine.map());
    }

    /// Two members of a job cannot reach each other.
    fn part(&mut self, apart: &Apart) {
        if let Some(machine) = self.jobs.get(&apart.key) {
            let held = apart.workers.map(|worker| machine.held(worker));
            self.registry.on_apart(apart, held);
        }
    }

    fn order(&mut self, shared: &Arc<ControllerShared>, order: Order) {
        match order {
            Order::Tell { to, what } => {
                match &what {
                    OwnedMessage::Queued(_) | OwnedMessage::Accepted(_) => {
                        let budgets = Message::Budgets(self.registry.budgets());
                        self.say(shared, to, budgets);
                    }
                    OwnedMessage::Jobs(_) => self.say_waits(shared, to),
                    _ => {}
                }
                self.say(shared, to, what.message());
            }
            Order::Report { to } => {
                let jobs = &self.jobs;
                let status = self.registry.status(|key, worker| {
                    let machine = jobs.get(&key);
                    machine.map_or(0, |machine| machine.held(worker))
                });
                let workers = status.workers.iter();
                let stuck = workers.flat_map(|at| at.stuck.iter().map(|it| (at.id, it.clone())));
                let stuck: Vec<_> = stuck.collect();
                if !stuck.is_empty() {
                    self.say(shared, to, Message::AllStuck(stuck));
                }
                let silences = status.workers.iter();
                let silences = silences.map(|it| (it.id, it.silent_ms)).collect();
                self.say_waits(shared, to);
                if !status.deaths.is_empty() {
                    self.say(shared, to, Message::Deaths(status.deaths.clone()));
                }
                self.say(shared, to, Message::Silences(silences));
                self.say(shared, to, Message::Status(status));
            }
            Order::Begin {
                key,
                members,
                map,
                kept,
            } => {
                let workers = members.iter().copied();
                let machine = Controller::new(key.job, key.generation, map, workers);
                self.begin(shared, key, (machine, members), kept);
            }
            Order::Adopt { adoption, kept } => {
                let key = adoption.key;
                let members = adoption.members.keys().copied().collect();
                self.begin(shared, key, (Controller::adopting(adoption), members), kept);
            }
            Order::Cancel { key, why } => {
                if let Some(machine) = self.jobs.get_mut(&key) {
                    machine.cancel(why);
                }
            }
            Order::Lose {
                key,
                worker,
                process,
                how,
            } => {
                if let Some(machine) = self.jobs.get_mut(&key) {
                    machine.lose(worker, &process, how);
                }
            }
            Order::Part(apart) => self.part(&apart),
            Order::Admit { key, worker } => self.admit(key, worker),
            Order::Move { key, shard, to } => self.order_move(key, shard, to),
            Order::Drain { key, worker } => {
                if let Some(machine) = self.jobs.get_mut(&key) {
                    let held = machine.held(worker);
                    machine.drain(worker, self.registry.shard_bytes(worker, held));
                }
            }
            Order::Weigh { worker, times } => {
                if let Some(machine) = self.jobs.get_mut(&times.key) {
                    machine.on_times(worker, &times);
                }
            }
            Order::Events { to, after } => {
                let later = self.events.iter().filter(|it| it.number > after);
                let later = later.take(EVENTS_AT_ONCE).cloned().collect();
                self.say(shared, to, Message::Events(later));
            }
            Order::Snapshots { to } => {
                let snapshots = Message::Snapshots(self.snapshots());
                self.say(shared, to, snapshots);
            }
            Order::Save(key) => {
                if let Some(machine) = self.jobs.get_mut(&key) {
                    machine.hurry();
                }
            }
            Order::Copy { key, from, into } => {
                self.places.insert(key.job, into.place.clone());
                if let Some(writing) = &self.writing {
                    writing.copy_snapshot(key, from, into.place);
                }
            }
            Order::Log(entry) => {
                if let Some(logging) = &self.logging {
                    self.unlogged += 1;
                    logging.write(entry);
                }
            }
            Order::Clear(place) => {
                let job = self.places.iter().find(|(_, its)| **its == place.place);
                if let (Some(job), Some(writing)) = (job.map(|(job, _)| *job), &self.writing) {
                    self.places.remove(&job);
                    self.given.remove(&job);
                    self.bases.remove(&job);
                    writing.clear(job, place);
                }
            }
            Order::Forget(key) => {
                if let Some(machine) = self.jobs.remove(&key) {
                    self.given.insert(key.job, machine.last_given());
                }
                shared.board().leave(key);
            }
        }
    }

    /// A generation of a job has a machine from now on.
    fn begin(
        &mut self,
        shared: &Arc<ControllerShared>,
        key: JobKey,
        (mut machine, members): (Controller, Vec<WorkerId>),
        kept: Option<(KeptPlace, JobCuts)>,
    ) {
        for worker in members {
            machine.weigh(worker, self.registry.threads(worker));
        }
        if let Some(period) = self.balance_each {
            machine.put_on(Scales::levelling(period));
        }
        if let Some((place, cuts)) = kept {
            machine.keep(self.setup(key, &place, cuts));
            if let Some(writing) = &self.writing {
                writing.raise(key.job, place.place.clone());
            }
            self.places.insert(key.job, place.place);
        }
        self.jobs.insert(key, machine);
        let side = Side {
            key,
            shared: Arc::downgrade(shared),
        };
        shared
            .board()
            .enter(key, WorkerId::CONTROLLER, Arc::new(side));
    }

    /// Something has happened: it gets its number and its time.
    fn note(&mut self, event: ClusterEvent) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        // Whoever has followed the controller before asks for what is new.
        let first = (u64::from(self.registry.term()) << 32) + 1;
        let number = self.events.back().map_or(first, |it| it.number + 1);
        self.events.push_back(ClusterEvent {
            number,
            at_ms: since.unwrap_or_default().as_millis() as u64,
            ..event
        });
        while self.events.len() > EVENTS_KEPT {
            self.events.pop_front();
        }
    }

    fn snapshots(&self) -> Vec<SnapshotStatus> {
        let all = self.bases.iter();
        let all = all.flat_map(|(job, bases)| bases.iter().map(move |it| (*job, it)));
        let status = |(job, it): (JobId, &CutManifest)| SnapshotStatus {
            job,
            name: it.name.clone(),
            cut: it.cut,
            turns: it.turns,
            bytes: it.parts.iter().map(|part| part.bytes).sum(),
            objects: it.objects.len() as u64,
        };
        all.map(status).collect()
    }

    /// How a job is saved that begins.
    fn setup(&self, key: JobKey, place: &KeptPlace, cuts: JobCuts) -> SnapshotSetup {
        let bases = self.bases.get(&key.job).into_iter().flatten();
        let mut at = bases.filter(|it| Some(it.cut) == place.cut);
        let after = self.given.get(&key.job).copied().unwrap_or_default();
        SnapshotSetup {
            program: cuts.program,
            name: self
                .registry
                .name_of(key.job)
                .unwrap_or_default()
                .to_owned(),
            plan: cuts.plan,
            every: cuts.every.unwrap_or(SnapshotEvery::Off),
            base: at.next().cloned(),
            // Generations of this controller's begin there as well.
            after: after.max(self.registry.first_generation().0),
        }
    }

    /// What jobs wait for that have not begun.
    fn say_waits(&self, shared: &ControllerShared, to: PeerLink) {
        let waits = self.registry.waits();
        if !waits.is_empty() {
            let waits = waits.iter().map(|(job, why)| (*job, why.as_str()));
            self.say(shared, to, Message::Waits(waits.collect()));
        }
    }

    fn say(&self, shared: &ControllerShared, to: PeerLink, message: Message<'_>) {
        let link = self.links.iter().find(|(_, caller)| **caller == to);
        if let Some((link, _)) = link {
            shared.said.fetch_add(1, Ordering::Relaxed);
            shared.board().say(*link, [framed(message)]);
        }
    }
}

/// The number after which cuts of a job are numbered, which no other term has.
fn numbers_from(key: JobKey) -> u64 {
    (key.generation.0 >> 32) << 32
}

/// Has the links of workers and clients.
struct ControllerReception(Weak<ControllerShared>);

impl Reception for ControllerReception {
    fn on_frame(&self, link: LinkId, frame: &[u8]) -> Result<(), PartyRefusal> {
        let Some(shared) = self.0.upgrade() else {
            return Ok(());
        };
        shared.heard.fetch_add(1, Ordering::Relaxed);
        let message = message(frame)?;
        let mut state = shared.state();
        let known = state.links.get(&link).copied();
        let caller = known.unwrap_or_else(|| {
            let caller = PeerLink(state.next_caller);
            state.next_caller += 1;
            state.links.insert(link, caller);
            caller
        });
        if let Message::Load(_) = message {
            let now = state.now(&shared);
            state.registry.on_heartbeat(caller, now);
        }
        let done = state.registry.on_message(caller, message);
        state.act(&shared);
        Ok(done?)
    }

    fn on_lost(&self, link: LinkId, why: &Lost) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        let mut state = shared.state();
        if let Some(caller) = state.links.remove(&link) {
            let now = state.now(&shared);
            match why.is_cut() {
                true => state.registry.on_cut(caller, now),
                false => state.registry.on_lost(caller, now),
            }
            state.act(&shared);
        }
    }
}

/// The controller's side of a job's links.
struct Side {
    key: JobKey,
    shared: Weak<ControllerShared>,
}

impl Side {
    /// What a job's machine says; nothing of a job that is forgotten.
    fn with<R>(&self, act: impl FnOnce(&mut Controller) -> R) -> Option<R> {
        self.shared.upgrade()?.with_job(self.key, act)
    }
}

impl Party for Side {
    fn received(&self, peer: WorkerId) -> Sequence {
        self.with(|job| job.received(peer)).unwrap_or(0)
    }

    fn on_reconnect(&self, peer: WorkerId, received: Sequence) -> Result<(), PartyRefusal> {
        Ok(self
            .with(|job| job.on_reconnect(peer, received))
            .unwrap_or(Ok(()))?)
    }

    fn on_frame(&self, peer: WorkerId, frame: Incoming<'_>) -> Result<(), PartyRefusal> {
        if let Some(shared) = self.shared.upgrade() {
            shared.heard.fetch_add(1, Ordering::Relaxed);
        }
        Ok(self
            .with(|job| job.on_frame(peer, frame.bytes()))
            .unwrap_or(Ok(()))?)
    }
}
