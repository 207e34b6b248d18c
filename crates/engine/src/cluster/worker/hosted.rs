//! A job on a worker, from its first word to its release. Each has a thread, which runs the stages that are the caller's own.

use super::super::wire::framed;
use super::prints::{Batch, Prints};
use super::times::Told;
use super::{Shared, Source};
use crate::Error;
use crate::recipe::Recipe;
use brambling_exchange::Combining;
use brambling_exchange::transports::switchboard::{Party, Refused};
use brambling_exchange::transports::tcp::{LinkId, Place};
use brambling_memory::Spill;
use brambling_memory::held::{self, Held};
use brambling_program::{Bindings, DatasetId, Plan};
use brambling_protocol::frame::{FAN_OUT, Incoming, Packet};
use brambling_protocol::message::{
    self, BadPart, CutOff, Message, Part, Parts, Prepare, Times, parts,
};
use brambling_protocol::{JobId, PartitionMap, Priority, Sequence, WorkerId};
use brambling_worker::executor::{Carrier, Failure, Job, JobOptions, Membership, Origin, Tally};
use brambling_worker::node::{Node, NodeOptions};
use bytes::Bytes;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

/// How many turns of an exchange are open per destination.
const OPEN_TURNS: u64 = brambling_exchange::OPEN_TURNS;
/// Larger pieces are cut.
const CHUNK_BYTES: usize = 1 << 17;
/// Shards that move are cut into parts of so many bytes.
const PART_BYTES: usize = 1 << 20;
/// Pieces that are sent at once go in frames of about so many bytes.
const FRAME_BYTES: usize = CHUNK_BYTES + (1 << 12);
/// A [cause](crate::cluster::Source::cause) that takes more is left out.
pub const CAUSE_BYTES_MAX: usize = 1 << 19;
/// Failures that are remembered: the controller hears of the first.
const FAILURES_MAX: usize = 4;
/// How long the thread waits before it looks whether its worker is still there.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct Hosted {
    id: JobId,
    shared: Weak<Shared>,
    state: Mutex<State>,
    /// What the controller was told of its shards' times.
    told: Mutex<Told>,
    prints: Prints,
    news: Condvar,
}

#[derive(Default)]
struct State {
    /// Its share of the threads; 0: nobody has said.
    weight: u32,
    /// Why it has no thread.
    failed: Option<String>,
    /// Whether the controller has spoken of it.
    is_known: bool,
    prepared: Option<(WorkerId, Prepare)>,
    /// Who sends the program.
    from: Option<LinkId>,
    parts: Parts,
    program: Option<Vec<u8>>,
    job: Option<Arc<Job>>,
    /// Clients that wait for what the job leaves.
    fetches: Vec<LinkId>,
    is_released: bool,
    /// Whether its thread builds it, or threads run it: its own, and those of the pool.
    runs: bool,
    /// What it did, once it has ended.
    tally: Option<Tally>,
    /// How it failed here: as it is told, and where it began.
    failures: Vec<(String, Origin)>,
}

impl Hosted {
    pub(super) fn start(id: JobId, shared: &Arc<Shared>) -> Arc<Hosted> {
        let hosted = Arc::new(Hosted {
            id,
            shared: Arc::downgrade(shared),
            state: Mutex::default(),
            told: Mutex::default(),
            prints: Prints::default(),
            news: Condvar::new(),
        });
        let serving = hosted.clone();
        let builder = std::thread::Builder::new().name(format!("brambling-job-{}", id.0));
        if let Err(error) = builder.spawn(move || serving.serve()) {
            let why = format!("the system gives no thread for the job: {error}");
            // Not here: whoever makes this job holds the worker's lock.
            hosted.state().failed = Some(why);
        }
        hosted
    }

    pub(super) fn id(&self) -> JobId {
        self.id
    }

    /// Where its kernels print.
    pub(super) fn prints(&self) -> &Prints {
        &self.prints
    }

    /// Whether it has begun and some thread has not left it.
    pub(super) fn runs(&self) -> bool {
        self.state().runs
    }

    fn state(&self) -> Held<'_, State> {
        held::lock(&self.state)
    }

    // ---- what is said to it

    /// The controller has placed it. Why it cannot run, if that is known already.
    pub(super) fn on_prepare(&self, me: WorkerId, prepare: Prepare) -> Option<String> {
        let mut state = self.state();
        // Said again after a link was lost: it is the same.
        if !std::mem::replace(&mut state.is_known, true) {
            state.prepared = Some((me, prepare));
        }
        self.news.notify_all();
        state.failed.take()
    }

    /// Its share of the threads from now on.
    pub(super) fn on_weigh(&self, weight: u32) {
        let mut state = self.state();
        state.weight = weight;
        if let Some(job) = &state.job {
            job.weigh(weight);
        }
    }

    /// Whether nobody has spoken of it but who sends its program there.
    pub(super) fn is_only_from(&self, link: LinkId) -> bool {
        let state = self.state();
        state.from == Some(link) && !state.is_known
    }

    /// Parts come in order; who has lost the link begins again on another.
    pub(super) fn on_part(&self, from: LinkId, part: &Part<'_>) -> Result<(), BadPart> {
        let mut state = self.state();
        if state.from.replace(from) != Some(from) {
            self.prints.waiting().repeat();
        }
        if let Some(whole) = state.parts.take(part)? {
            state.program.get_or_insert(whole);
            drop(state);
            self.news.notify_all();
        }
        Ok(())
    }

    pub(super) fn on_fetch(&self, link: LinkId) {
        self.state().fetches.push(link);
        self.news.notify_all();
    }

    /// Nobody asks for it any more: it ends, if it has not, and its thread with it. Its client may go on without this worker, and hears what
    /// was printed here.
    pub(super) fn release(&self) {
        let printed = self.all_printed();
        let from = self.state().from;
        if let (Some(from), Some(shared)) = (from, self.shared.upgrade()) {
            shared.board().say(from, printed);
            shared.board().say(from, self.packages());
        }
        let mut state = self.state();
        state.is_released = true;
        let job = state.job.clone();
        drop(state);
        if let Some(job) = job {
            job.cancel();
        }
        self.news.notify_all();
    }

    pub(super) fn tick(&self) {
        let job = self.state().job.clone();
        if let Some(job) = job {
            job.on_tick();
        }
        self.send_printed();
    }

    // ---- what its kernels print

    /// Sends its client what was printed, unless it has to show something first.
    fn send_printed(&self) {
        let mut waiting = self.prints.waiting();
        let framed = waiting.next().map(|batch| self.printed(batch));
        drop(waiting);
        let frames: Vec<Bytes> = framed.into_iter().chain(self.packages()).collect();
        if frames.is_empty() {
            return;
        }
        let to = self.state().from;
        if let (Some(to), Some(shared)) = (to, self.shared.upgrade()) {
            shared.board().say(to, frames);
        }
    }

    /// What its kernels have loaded here, if the client has not been told. Who ran nothing of it has loaded nothing for it.
    fn packages(&self) -> Option<Bytes> {
        if !self.prints.waiting().has_unsaid_packages() || self.tally().tasks == 0 {
            return None;
        }
        let mut waiting = self.prints.waiting();
        let packages = waiting.say_packages();
        let packages = packages.iter().map(|(name, version)| (&**name, &**version));
        Some(framed(Message::Packages {
            job: self.id,
            packages: packages.collect(),
        }))
    }

    fn printed(&self, batch: &Batch) -> Bytes {
        framed(batch.message(self.id))
    }

    /// Its client has shown what it was sent, up to this number.
    pub(super) fn on_shown(&self, number: u64) {
        self.prints.waiting().on_shown(number);
        self.send_printed();
    }

    /// All that its kernels have printed and that may not have been shown. What they print from now on goes nowhere.
    pub(super) fn all_printed(&self) -> Vec<Bytes> {
        let mut waiting = self.prints.waiting();
        let all = waiting.close().iter();
        all.map(|batch| self.printed(batch)).collect()
    }

    /// What its shards took since this was asked last; nothing before it runs here.
    pub(super) fn times(&self) -> Vec<Times> {
        let job = self.state().job.clone();
        let Some(job) = job else { return Vec::new() };
        let mut told = held::lock(&self.told);
        told.next(self.id, job.readings())
    }

    /// How many of its shards are here.
    pub(super) fn shards(&self) -> usize {
        let job = self.state().job.clone();
        job.map_or(0, |job| job.readings().count())
    }

    pub(super) fn tally(&self) -> Tally {
        let state = self.state();
        match (&state.job, &state.tally) {
            (Some(job), _) => job.tally(),
            (None, Some(tally)) => *tally,
            (None, None) => Tally::default(),
        }
    }

    // ---- how it fails

    /// A failure as the cluster reads it. Where it began is remembered for the client.
    fn explain(&self, source: &dyn Source, failure: &Failure) -> String {
        let text = source.explain(failure);
        let mut cause = source.cause(failure);
        if cause.len() > CAUSE_BYTES_MAX {
            cause.clear();
        }
        let origin = Origin::of(failure, cause);
        let mut state = self.state();
        if state.failures.len() < FAILURES_MAX {
            let told = origin.map(|origin| (text.clone(), origin));
            state.failures.extend(told);
        }
        text
    }

    /// Where a failure began that the controller has told: it says which worker's it is, and cuts long ones.
    pub(super) fn origin_of(&self, told: &str) -> Option<Origin> {
        let (_, told) = told.split_once(": ")?;
        let state = self.state();
        let mut failures = state.failures.iter();
        let is_it = |(text, _): &&(String, Origin)| !told.is_empty() && text.starts_with(told);
        failures.find(is_it).map(|(_, origin)| origin.clone())
    }

    // ---- its thread

    /// Waits until something can be taken; nothing when the job is released, or its worker has ended.
    fn await_news<R>(&self, mut take: impl FnMut(&mut State) -> Option<R>) -> Option<R> {
        let mut state = self.state();
        loop {
            if state.is_released || self.shared.strong_count() == 0 {
                return None;
            }
            if let Some(taken) = take(&mut state) {
                return Some(taken);
            }
            state = state.wait_at_most(&self.news, PATIENCE);
        }
    }

    fn serve(&self) {
        let Some(((me, prepare), program)) = self.await_both() else {
            return;
        };
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        // What builds the program is its client's code as well.
        self.state().runs = true;
        let made = self.make(&shared, me, &prepare, &program);
        drop(program);
        let job = match made {
            Ok(job) => job,
            Err(why) => {
                self.state().runs = false;
                shared.say_unprepared(self.id, why);
                drop(shared);
                return self.answer_nothing();
            }
        };
        let mut state = self.state();
        state.job = Some(job.clone());
        // It may have been said while the job was made.
        job.weigh(state.weight.max(1));
        if state.is_released {
            job.cancel();
        }
        drop(state);
        self.enter(&shared, me, &prepare, &job);
        let mut caller = shared.source.caller();
        let ended = shared.pool.run(&job, &mut *caller);
        shared.source.ended(&self.prints);
        // The controller hears of failures from the job itself, but not of one that the pool has seen: that it stalled.
        if let Err(failure @ Failure::Stalled { .. }) = &ended {
            shared.say_unprepared(self.id, self.explain(&*shared.source, failure));
        }
        drop((ended, caller, shared));
        self.state().runs = false;
        self.answer(job);
    }

    /// What the controller and the client have to say before the job can be made. Who asks before that what it left hears that
    /// it left nothing here: the job is over, and its shards were elsewhere.
    fn await_both(&self) -> Option<((WorkerId, Prepare), Vec<u8>)> {
        loop {
            let found = self.await_news(|state| match (&state.prepared, &state.program) {
                (Some(_), Some(_)) => state.prepared.take().zip(state.program.take()).map(Ok),
                _ => state.fetches.pop().map(Err),
            })?;
            match found {
                Ok(both) => return Some(both),
                Err(link) => self.say_nothing(link),
            }
        }
    }

    /// The job cannot run here: nobody gets anything.
    fn answer_nothing(&self) {
        while let Some(link) = self.await_news(|state| state.fetches.pop()) {
            self.say_nothing(link);
        }
    }

    fn say_nothing(&self, to: LinkId) {
        if let Some(shared) = self.shared.upgrade() {
            shared.board().say(to, [framed(nothing(self.id))]);
        }
    }

    /// The job, as the client has described it and the controller has placed it.
    fn make(
        &self,
        shared: &Arc<Shared>,
        me: WorkerId,
        prepare: &Prepare,
        program: &[u8],
    ) -> Result<Arc<Job>, String> {
        let program = match Recipe::program(program) {
            Some(known) => known?,
            None => shared.source.program(program, &self.prints)?,
        };
        let plan = Plan::compile(Arc::new(program), &Bindings::default());
        let plan = plan.map_err(|error| Error::from(error).to_string())?;
        if plan.counts != prepare.shards {
            return Err(format!(
                "it builds a program of {:?} shards where its client has {:?}; what builds the program depends on where it runs",
                plan.counts, prepare.shards
            ));
        }
        let mut map = PartitionMap::new(prepare.shards.iter().copied());
        for range in &prepare.map {
            let _ = map.apply(range).map_err(|error| error.to_string())?;
        }
        let placed = (prepare.map.iter())
            .filter(|range| range.entry.owner == me)
            .flat_map(|range| {
                let version = range.entry.version;
                let (group, indices) = (range.group, range.first..range.end);
                indices.map(move |index| (brambling_program::ShardId { group, index }, version))
            });
        let members = prepare.members.iter().map(|member| member.worker);
        let options = NodeOptions {
            me,
            peers: members.filter(|peer| *peer != me).collect(),
            job: self.id,
            generation: prepare.generation,
            open_turns: OPEN_TURNS,
            chunk_bytes: CHUNK_BYTES,
            part_bytes: PART_BYTES,
            frame_bytes: FRAME_BYTES,
            fan_out: FAN_OUT,
            combining: Combining::USUAL,
            budget: shared.budget.clone(),
            spill: (shared.spilling.clone()).map(|spilling| spilling as Arc<dyn Spill>),
        };
        let wire = Wire {
            job: self.id,
            shared: Arc::downgrade(shared),
        };
        let membership = Membership {
            node: Node::new(&plan, map, options),
            carrier: Arc::new(wire),
            placed: placed.collect(),
        };
        let options = JobOptions {
            budget: shared.budget.clone(),
            stall: shared.stall,
            timed_calls: None,
            weight: self.state().weight.max(1),
        };
        Job::member(plan, shared.pool.beds(), options, membership)
            .map_err(|error| error.to_string())
    }

    /// Its links: of two workers the one of the higher name dials, and all of them the controller.
    fn enter(&self, shared: &Arc<Shared>, me: WorkerId, prepare: &Prepare, job: &Arc<Job>) {
        let side = Side {
            id: self.id,
            job: Arc::downgrade(job),
            shared: self.shared.clone(),
        };
        shared.board().enter(self.id, me, Arc::new(side));
        let controller = shared.cluster.address;
        shared
            .board()
            .dial(self.id, WorkerId::CONTROLLER, controller);
        for member in prepare.members.iter().filter(|member| member.worker < me) {
            shared.board().dial(self.id, member.worker, member.at);
        }
    }

    /// Sends what the job left to whoever asks, until it is released.
    fn answer(&self, job: Arc<Job>) {
        let mut job = Some(job);
        let mut left: Option<Job> = None;
        while let Some(link) = self.await_news(|state| state.fetches.pop()) {
            let Some(shared) = self.shared.upgrade() else {
                break;
            };
            if let Some(shared_job) = job.take() {
                shared.board().leave(self.id);
                let tally = shared_job.tally();
                let mut state = self.state();
                (state.job, state.tally) = (None, Some(tally));
                drop(state);
                left = Some(sole(shared_job));
            }
            self.send(&shared, left.as_mut().expect("just made"), link);
        }
        if let Some(shared) = self.shared.upgrade() {
            shared.board().leave(self.id);
        }
        self.state().job = None;
    }

    fn send(&self, shared: &Shared, left: &mut Job, to: LinkId) {
        let spec = left.plan().program.spec();
        let kept = (0..).map(DatasetId).zip(&spec.datasets);
        let kept: Vec<DatasetId> = kept.filter(|(_, it)| it.keep).map(|(id, _)| id).collect();
        for dataset in kept {
            let group = left.plan().group_of_dataset[dataset.index()];
            for index in 0..left.plan().counts[group.index()] {
                // What has come and cannot be read is missing at the client, who says so.
                if !left.holds(dataset, index).unwrap_or(false) {
                    continue;
                }
                let mut bytes = Vec::new();
                left.value(dataset, index).encode(&mut bytes);
                let parts = parts(self.id, &bytes).map(|part| {
                    framed(Message::Partition {
                        dataset,
                        index,
                        part,
                    })
                });
                shared.board().say(to, parts);
            }
        }
        let tally = left.tally();
        // The client compares before it hands anything over.
        shared.board().say(to, self.packages());
        let fetched = Message::Fetched {
            job: self.id,
            tasks: tally.tasks,
            threads: tally.threads,
            busy_ns: tally.busy.as_nanos() as u64,
            peak_bytes: tally.peak_bytes,
        };
        shared.board().say(to, [framed(fetched)]);
    }
}

/// An origin as it travels.
pub(super) fn told(origin: &Origin) -> message::Origin<'_> {
    message::Origin {
        kind: origin.kind,
        stage: &origin.stage,
        partition: origin.partition,
        turn: origin.turn,
        message: &origin.message,
        cause: &origin.cause,
    }
}

/// The answer of a worker that has nothing of a job.
pub(super) fn nothing(job: JobId) -> Message<'static> {
    Message::Fetched {
        job,
        tasks: 0,
        threads: 0,
        busy_ns: 0,
        peak_bytes: 0,
    }
}

/// A thread that carries frames may still hold it, for a moment.
fn sole(mut job: Arc<Job>) -> Job {
    loop {
        match Arc::try_unwrap(job) {
            Ok(job) => return job,
            Err(shared) => job = shared,
        }
        std::thread::yield_now();
    }
}

/// Carries a job's frames.
struct Wire {
    job: JobId,
    shared: Weak<Shared>,
}

impl Carrier for Wire {
    fn send(&self, frames: Vec<(WorkerId, Priority, Packet)>) {
        if let Some(shared) = self.shared.upgrade() {
            let frames = frames.into_iter();
            shared
                .board()
                .send(self.job, frames.map(|(to, _, frame)| (to, frame)));
        }
    }
    fn poll(&self) -> bool {
        let shared = self.shared.upgrade();
        shared.is_some_and(|shared| shared.board().poll())
    }
    fn look(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.board().look();
        }
    }
    fn rest(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.board().rest();
        }
    }
    fn resume(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.board().resume();
        }
    }
    fn forget(&self, worker: WorkerId) {
        if let Some(shared) = self.shared.upgrade() {
            shared.board().forget(self.job, worker);
        }
    }
    fn explain(&self, failure: &Failure) -> String {
        let Some(shared) = self.shared.upgrade() else {
            return failure.to_string();
        };
        let hosted = shared.state().jobs.get(&self.job).cloned();
        match hosted {
            Some(hosted) => hosted.explain(&*shared.source, failure),
            None => shared.source.explain(failure),
        }
    }
}

/// A job's side of its links.
struct Side {
    id: JobId,
    job: Weak<Job>,
    shared: Weak<Shared>,
}

impl Party for Side {
    fn received(&self, peer: WorkerId) -> Sequence {
        let job = self.job.upgrade();
        job.map_or(0, |job| job.received(peer))
    }
    fn on_reconnect(&self, peer: WorkerId, received: Sequence) -> Result<(), Refused> {
        match self.job.upgrade() {
            Some(job) => Ok(job.on_reconnect(peer, received)?),
            None => Err("the job is over here".into()),
        }
    }
    fn place(&self, _peer: WorkerId, begun: &[u8]) -> Option<Place> {
        self.job.upgrade()?.place(begun)
    }
    fn on_frame(&self, peer: WorkerId, frame: Incoming<'_>) -> Result<(), Refused> {
        match self.job.upgrade() {
            Some(job) => Ok(job.on_frame(peer, frame)?),
            None => Ok(()),
        }
    }
    fn on_cut_off(&self, peer: WorkerId, so_long: Duration, why: &str) {
        // Its own link to the controller tells this worker of that.
        if peer == WorkerId::CONTROLLER {
            return;
        }
        if let Some(shared) = self.shared.upgrade() {
            shared.say_cut_off(CutOff {
                job: self.id,
                peer,
                for_ms: so_long.as_millis() as u64,
                why,
            });
        }
    }
}
