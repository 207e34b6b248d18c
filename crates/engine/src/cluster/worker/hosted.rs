//! A job on a worker, from its first word to its release: what is said to it, what is asked of it, and how it fails. Each has a [thread](serving),
//! which makes it and runs the stages that are the caller's own, and [links](links) to the job's other members.

mod given;
mod links;
mod printing;
mod room;
mod saving;
mod serving;

use super::prints::Prints;
use super::times::ReportedTimes;
use super::{Source, WorkerShared};
use brambling_exchange::transports::tcp::LinkId;
use brambling_memory::held::{self, Held};
use brambling_memory::{BudgetShare, Reservation};
use brambling_protocol::message::{
    self, BadPart, Message, Part, Parts, Prepare, RunningTask, ShardTimes,
};
use brambling_protocol::{JobKey, WorkerId};
use brambling_worker::executor::{Failure, Job, Origin, Tally};
use brambling_worker::node::NodeHolding;
use given::Arriving;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Instant;

/// A [cause](crate::cluster::Source::cause) that takes more is left out.
pub const CAUSE_BYTES_MAX: usize = 1 << 19;
/// Failures that are remembered: the controller hears of the first.
const FAILURES_MAX: usize = 4;
pub(super) struct Hosted {
    key: JobKey,
    shared: Weak<WorkerShared>,
    state: Mutex<State>,
    /// What the controller was told of its shards' times.
    told: Mutex<ReportedTimes>,
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
    /// What the client gives of what its program makes.
    given: Arriving,
    /// Room for what has come of the program.
    room: Option<Reservation>,
    /// There was no room for the program.
    is_refused: bool,
    /// Its share of the worker's memory, while it is here.
    share: Option<BudgetShare>,
    job: Option<Arc<Job>>,
    /// Clients that wait for what the job leaves.
    fetches: Vec<LinkId>,
    is_released: bool,
    /// Whether its thread builds it, or threads run it: its own, and those of the pool.
    runs: bool,
    /// It has run to its end, whatever that was.
    has_run: bool,
    /// Its thread has ended, and gave back what the job had of the worker's memory.
    has_left: bool,
    /// What it did, once it has ended, and what was here.
    tally: Option<Tally>,
    held: Option<NodeHolding>,
    /// How it failed here: as it is told, and where it began.
    failures: Vec<(String, Origin)>,
}

impl Hosted {
    pub(super) fn start(key: JobKey, shared: &Arc<WorkerShared>) -> Arc<Hosted> {
        let hosted = Arc::new(Hosted {
            key,
            shared: Arc::downgrade(shared),
            state: Mutex::default(),
            told: Mutex::default(),
            prints: Prints::default(),
            news: Condvar::new(),
        });
        let serving = hosted.clone();
        let builder = std::thread::Builder::new().name(format!("brambling-job-{}", key.job.0));
        if let Err(error) = builder.spawn(move || serving.serve()) {
            let why = format!("the system gives no thread for the job: {error}");
            // Not here: whoever makes this job holds the worker's lock.
            hosted.state().failed = Some(why);
        }
        hosted
    }

    pub(super) fn key(&self) -> JobKey {
        self.key
    }

    /// Where its kernels print.
    pub(super) fn prints(&self) -> &Prints {
        &self.prints
    }

    /// Whether it has begun and some thread has not left it.
    pub(super) fn runs(&self) -> bool {
        self.state().runs
    }

    /// Whether it has run to its end.
    pub(super) fn has_run(&self) -> bool {
        self.state().has_run
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
        if let Some(share) = &state.share {
            share.weigh(weight);
        }
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
        if part.first_byte == 0 {
            let taken = self.take_room(&mut state, part.whole_bytes);
            if let Err(why) = taken {
                drop(state);
                self.refuse(why);
                return Ok(());
            }
        }
        if state.is_refused {
            return Ok(());
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

    /// Does something with the job, while it is here.
    pub(super) fn with_job<R>(&self, act: impl FnOnce(&Job) -> R) -> Option<R> {
        let job = self.state().job.clone();
        job.map(|job| act(&job))
    }

    /// What was here when it had ended, and its client began to fetch that.
    pub(super) fn held_at_end(&self) -> Option<NodeHolding> {
        self.state().held.clone()
    }

    /// What its shards took since this was asked last; nothing before it runs here.
    pub(super) fn times(&self) -> Vec<ShardTimes> {
        let job = self.state().job.clone();
        let Some(job) = job else { return Vec::new() };
        let mut told = held::lock(&self.told);
        told.next(self.key, job.readings())
    }

    /// What of it runs here.
    pub(super) fn running(&self) -> Vec<RunningTask> {
        let job = self.state().job.clone();
        let Some(job) = job else { return Vec::new() };
        let task = |(stage, partition): (&str, u32)| RunningTask {
            key: self.key,
            stage: stage.into(),
            partition,
        };
        job.running().map(task).collect()
    }

    /// Shards of it that are to leave and are kept here for long, in words; each once.
    pub(super) fn kept_news(&self) -> Vec<String> {
        let job = self.state().job.clone();
        let news = job.map(|job| job.kept_news()).unwrap_or_default();
        let text = |news| format!("job {}: {news}", self.key);
        news.into_iter().map(text).collect()
    }

    /// Waits until it has given back what it had here, at most until then: a kernel may run on.
    pub(super) fn await_leaving(&self, deadline: Instant) {
        let mut state = self.state();
        while !state.has_left {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = state.wait_at_most(&self.news, left);
        }
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
}

/// An origin as it travels.
pub(super) fn told(origin: &Origin) -> message::FailureOrigin<'_> {
    message::FailureOrigin {
        kind: origin.kind,
        stage: &origin.stage,
        partition: origin.partition,
        turn: origin.turn,
        message: &origin.message,
        cause: &origin.cause,
    }
}

/// The answer of a worker that has nothing of a job.
pub(super) fn nothing(key: JobKey) -> Message<'static> {
    Message::Fetched {
        key,
        tasks: 0,
        threads: 0,
        busy_ns: 0,
        peak_bytes: 0,
    }
}
