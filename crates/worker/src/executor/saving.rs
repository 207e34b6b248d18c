//! Owns what a job's shards are asked about cuts, and what a shard gives when it saves. Whoever orders snapshots asks ([`Job::ask`]); shards hear
//! of it when a slice begins, and answer to its [`CutKeeper`]. It never writes anything.
//!
//! # Who may write meanwhile
//! A shard that saves gives handles to its payloads and goes on. Who writes one of them copies it first ([`Steps`](super::steps::Steps)). The copy's room is
//! taken when the handle is given; where the budget has none, the shard waits until what it gave is dropped. So a save never makes a
//! task fail for want of memory. Payloads of an interpreter, which kernels may change in place, are encoded at once, by whoever may run it.

mod restored;

pub use restored::Restored;

use super::board::Board;
use super::job::{Job, LoadedShard};
use brambling_memory::{Class, Reservation, held};
use brambling_program::{
    Code, CutAnswer, CutSite, CutStates, CutTurn, DatasetId, GroupId, GroupState, LoopId, Op,
    Position, ShardId, StageId, Value,
};
use brambling_protocol::frame::CutAsk;
use brambling_protocol::frame::CutWord;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Who hears what shards say of cuts, and gets what they save. Called by the job's threads, which wait for it: it hands on, and returns.
pub trait CutKeeper: Send + Sync + std::fmt::Debug {
    /// A shard was asked where it stands.
    fn stands(&self, shard: ShardId, at: GroupState);
    /// A shard was told of a cut.
    fn answered(&self, cut: u64, shard: ShardId, answer: CutAnswer);
    /// A shard has come to a cut.
    fn captured(&self, cut: u64, capture: Capture);
    /// There is a snapshot of a cut.
    fn committed(&self, _cut: u64) {}
}

/// What shards are asked. One at a time: what is asked next takes the place of what some have not heard.
#[derive(Clone, Debug)]
pub enum CutQuestion {
    /// Where they stand.
    Where,
    /// To save.
    Save(CutRequest),
    /// To forget the cut that they were told of.
    Forget,
}

/// A cut at which all shards are to save.
#[derive(Clone, Debug)]
pub struct CutRequest {
    /// Its number.
    pub id: u64,
    /// The outermost loop at whose top it is.
    pub outermost: LoopId,
    /// The turn.
    pub turn: CutTurn,
    /// Groups whose shards save each for itself, see [`OutermostLoop::free`](brambling_program::OutermostLoop::free).
    pub free: Vec<GroupId>,
    /// Where all stood at the cut of which there is a snapshot: what was not written since is not saved again.
    pub base: Option<Arc<CutStates>>,
}

impl CutRequest {
    /// Where a shard of this code saves that stands there, and when.
    fn site(&self, code: &Code, shard: ShardId, at: u32) -> (CutSite, CutTurn) {
        let site = code.cut_site(self.outermost);
        match self.free.contains(&shard.group) {
            false => (site, self.turn),
            true if at <= site.op() => (site, CutTurn::Next),
            // It has left the loop already.
            true => (code.await_site(self.outermost), CutTurn::Next),
        }
    }
}

/// What a shard saves.
#[derive(Debug)]
pub struct Capture {
    /// The shard.
    pub shard: ShardId,
    /// Where it stands.
    pub state: GroupState,
    /// What may have been written since the base.
    pub values: Vec<(DatasetId, CapturedValue)>,
    /// Room for the copies that writers may need meanwhile; or else what keeps the shard until this is dropped.
    _room: Result<Reservation, Hold>,
}

/// A payload as it was at a cut.
#[derive(Debug)]
pub enum CapturedValue {
    /// A handle.
    Shared(Value),
    /// Its encoding, or why it has none that it could be made of again.
    Encoded(Result<Vec<u8>, String>),
}

/// Keeps a shard where it is.
#[derive(Debug)]
struct Hold {
    is_held: Arc<AtomicBool>,
    job: Weak<Job>,
    number: u32,
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Release: what was saved has been read.
        self.is_held.store(false, Ordering::Release);
        if let Some(job) = self.job.upgrade() {
            job.held.fetch_sub(1, Ordering::AcqRel);
            job.post(self.number);
        }
    }
}

/// What a shard knows of the questions.
#[derive(Debug, Default)]
pub(super) struct CutNews {
    /// How many were asked when it last looked; [`LOOKS`] while it is held.
    asked: u64,
    /// While it is held, how many it had heard.
    before: u64,
    /// The cut that it was told of, and its base.
    told: Option<Arc<CutRequest>>,
    held: Option<Arc<AtomicBool>>,
}

/// Never a count: the shard looks.
const LOOKS: u64 = u64::MAX;

pub(super) struct Saving {
    keeper: Arc<dyn CutKeeper>,
    asked: Asked,
    question: Mutex<CutQuestion>,
    /// The signal whose next outcome names the turn of a cut, and the cut.
    named: Mutex<Option<(StageId, u64)>>,
    /// That signal, plus one; 0 for none. Written under the lock, for whoever gives outcomes to look at without it.
    names_turn: AtomicU32,
    /// The cut that shards were last asked to save at; [`NO_CUT`] when it is void.
    open: AtomicU64,
}

/// The number of no cut.
const NO_CUT: u64 = u64::MAX;

/// On a line of its own: every slice reads it.
#[repr(align(128))]
struct Asked(AtomicU64);

impl Saving {
    pub(super) fn new(keeper: Arc<dyn CutKeeper>) -> Saving {
        Saving {
            keeper,
            asked: Asked(AtomicU64::new(0)),
            question: Mutex::new(CutQuestion::Forget),
            named: Mutex::default(),
            names_turn: AtomicU32::new(0),
            open: AtomicU64::new(NO_CUT),
        }
    }

    /// Whether shards are still to save at a cut.
    pub(super) fn is_open(&self, cut: u64) -> bool {
        cut != NO_CUT && self.open.load(Ordering::Acquire) == cut
    }

    /// Whether a shard has to look.
    #[inline]
    pub(super) fn has_news(&self, heard: &CutNews) -> bool {
        self.asked.0.load(Ordering::Acquire) != heard.asked
    }

    /// Before an outcome is given: if the next turn of its loop is to be a cut's, the board says so. Which cut that is.
    pub(super) fn name_turn(&self, board: &Board, at: Position, outcome: bool) -> Option<u64> {
        // Acquire: pairs with the Release in `name`; whoever sees the mark on the board knows the question.
        if !outcome || self.names_turn.load(Ordering::Acquire) != at.stage.0 + 1 {
            return None;
        }
        // With its cut, under the lock: another may have been asked for meanwhile, and is not to be named yet.
        let cut = {
            let mut named = held::lock(&self.named);
            let (_, cut) = named.take_if(|(signal, _)| *signal == at.stage)?;
            self.names_turn.store(0, Ordering::Relaxed);
            cut
        };
        board.mark_cut(cut, at.turn);
        Some(cut)
    }

    /// The signal's next outcome names the turn of a cut, or no signal's does.
    fn name(&self, signal: Option<(StageId, u64)>) {
        let mut named = held::lock(&self.named);
        *named = signal;
        let its = signal.map_or(0, |(signal, _)| signal.0 + 1);
        // Release: the question was asked before. Once: the signal names one turn.
        self.names_turn.store(its, Ordering::Release);
    }

    /// A slice begins, and the shard has to look. Whether it has to wait.
    #[cold]
    pub(super) fn hear(&self, body: &mut LoadedShard, code: &Code) -> bool {
        // Acquire: what was saved is no longer read.
        let is_held = |held: &Arc<AtomicBool>| held.load(Ordering::Acquire);
        if body.heard.held.as_ref().is_some_and(is_held) {
            return true;
        }
        body.heard.held = None;
        let (asked, question) = {
            let question = held::lock(&self.question);
            // Under the lock that whoever asks has, too: the count is this question's.
            (self.asked.0.load(Ordering::Acquire), question.clone())
        };
        let before = match std::mem::replace(&mut body.heard.asked, asked) {
            LOOKS => body.heard.before,
            before => before,
        };
        // A shard that was held has perhaps heard the last question.
        if before == asked {
            return false;
        }
        let shard = body.shard.id();
        match question {
            CutQuestion::Where => self.keeper.stands(shard, body.shard.group_state()),
            CutQuestion::Forget => {
                body.heard.told = None;
                body.shard.forget_cut(code);
            }
            CutQuestion::Save(request) => {
                let (site, turn) = request.site(code, shard, body.shard.at());
                let answer = body.shard.tell_cut(code, request.id, site, turn);
                self.keeper.answered(request.id, shard, answer);
                body.heard.told = (answer == CutAnswer::Will).then(|| Arc::new(request));
            }
        }
        false
    }

    /// What a shard at its cut has to save, by the cells of its group.
    pub(super) fn cells(&self, job: &Job, body: &LoadedShard) -> Vec<u32> {
        let told = body
            .heard
            .told
            .as_ref()
            .expect("a shard at a cut was told of it");
        let shard = body.shard.id();
        let base = told.base.as_ref().map(|states| states.of(shard));
        let state = body.shard.group_state();
        job.plan.written_between(shard.group, base, &state)
    }

    /// A shard saves these cells. `alone` runs what may wait for an interpreter. Whether the shard has to wait.
    pub(super) fn save(
        &self,
        job: &Job,
        number: u32,
        (body, cells): (&mut LoadedShard, &[u32]),
        alone: impl FnOnce(&mut dyn FnMut()),
    ) -> bool {
        let shard = body.shard.id();
        let group = &job.plan.groups[shard.group.index()];
        let datasets = &group.datasets;
        let mut encoded: Vec<Option<Result<Vec<u8>, String>>> = vec![None; cells.len()];
        let is_interpreted =
            |cell: &u32| body.cells[*cell as usize].payload_type().is_interpreted();
        if cells.iter().any(is_interpreted) {
            let of = &body.cells;
            alone(&mut || {
                for (cell, encoded) in cells.iter().zip(&mut encoded) {
                    let value = &of[*cell as usize];
                    if value.payload_type().is_interpreted() {
                        let mut bytes = Vec::new();
                        let kept = value.encode_kept(&mut bytes);
                        *encoded = Some(kept.map(|()| bytes));
                    }
                }
            });
        }
        let mut shared_bytes = 0;
        let mut values = Vec::with_capacity(cells.len());
        for (cell, encoded) in cells.iter().zip(encoded) {
            let value = &mut body.cells[*cell as usize];
            let captured = encoded.map_or_else(
                || {
                    shared_bytes += value.bytes() as u64;
                    CapturedValue::Shared(value.share_any())
                },
                CapturedValue::Encoded,
            );
            values.push((datasets[*cell as usize], captured));
        }
        // The payloads may lie elsewhere now.
        body.steps.find_anew();
        let room = job.options.budget.reserve(Class::Resident, shared_bytes);
        let room = room.map_err(|_| {
            let is_held = Arc::new(AtomicBool::new(true));
            body.heard.held = Some(is_held.clone());
            // Meanwhile the watchdog waits as long as that takes: a store may be slow.
            job.held.fetch_add(1, Ordering::AcqRel);
            let job = job.weak();
            Hold {
                is_held,
                job,
                number,
            }
        });
        let waits = room.is_err();
        let told = body.heard.told.take().expect("as above");
        let state = body.shard.group_state();
        body.shard.forget_cut(&job.plan.codes[shard.group.index()]);
        if waits {
            body.heard.before = std::mem::replace(&mut body.heard.asked, LOOKS);
        }
        self.keeper.captured(
            told.id,
            Capture {
                shard,
                state,
                values,
                _room: room,
            },
        );
        waits
    }
}

impl Job {
    /// Asks all shards of a job that keeps snapshots: each hears of it when its next slice begins. Does nothing in a job without a keeper.
    pub fn ask(&self, question: CutQuestion) {
        let Some(saving) = &self.saving else { return };
        let request = match &question {
            CutQuestion::Save(request) => Some(request.clone()),
            CutQuestion::Where | CutQuestion::Forget => None,
        };
        saving.name(None);
        if !matches!(question, CutQuestion::Where) {
            let cut = request.as_ref().map_or(NO_CUT, |request| request.id);
            saving.open.store(cut, Ordering::Release);
        }
        {
            let mut asked = held::lock(&saving.question);
            *asked = question;
            // Release: pairs with the Acquire in `has_news`.
            saving.asked.0.fetch_add(1, Ordering::Release);
        }
        let Some(request) = request else { return };
        // In a cluster shards elsewhere have to hear the question first (`name_cut`).
        if request.turn == CutTurn::Signalled
            && self.remote.is_none()
            && let Some(signal) = self.signal_of(request.outermost)
        {
            saving.name(Some((signal, request.id)));
        }
        // A shard may wait for the loop's end, and have no slice before it.
        (0..self.residents.len() as u32).for_each(|number| self.post(number));
    }

    /// All shards of the cluster have been told of a cut whose turn a signal names: the next outcome does.
    fn name_cut(&self, cut: u64) {
        let Some(saving) = self.saving.as_ref().filter(|saving| saving.is_open(cut)) else {
            return;
        };
        let outermost = match &*held::lock(&saving.question) {
            CutQuestion::Save(request) if request.id == cut => request.outermost,
            _ => return,
        };
        if let Some(signal) = self.signal_of(outermost) {
            saving.name(Some((signal, cut)));
        }
    }

    /// The controller asks about a cut.
    pub(super) fn on_cut_ask(&self, ask: CutAsk) {
        match ask {
            CutAsk::Where => self.ask(CutQuestion::Where),
            CutAsk::Forget => self.ask(CutQuestion::Forget),
            CutAsk::Name { cut } => self.name_cut(cut),
            CutAsk::Committed { cut } => {
                if let Some(saving) = &self.saving {
                    saving.keeper.committed(cut);
                }
            }
            CutAsk::Save(order) => self.ask(CutQuestion::Save(CutRequest {
                id: order.cut,
                outermost: order.outermost,
                turn: order.turn,
                free: order.free,
                base: order.base.map(Arc::new),
            })),
        }
    }

    /// Tells the controller what shards here have done about a cut.
    ///
    /// # Panics
    /// When the job is no member of a cluster.
    pub fn tell_cut(&self, what: CutWord) {
        self.remote().tell_cut(self, what);
    }

    /// The signal that ends an outermost loop.
    fn signal_of(&self, outermost: LoopId) -> Option<StageId> {
        let signal = |code: &Code| match code.cut_site(outermost) {
            CutSite::Jump { test, .. } => match code.ops[test as usize] {
                Op::Test { signal, .. } => Some(signal),
                _ => None,
            },
            CutSite::Again { .. } | CutSite::Await { .. } => None,
        };
        self.plan.codes.iter().find_map(signal)
    }

    /// Whether the end of an outermost loop has been announced.
    pub fn has_ended(&self, outermost: LoopId) -> bool {
        self.ends[outermost as usize].first().is_some()
    }

    /// A root signal's outcome, if it has been given.
    pub fn first_outcome(&self, signal: StageId) -> Option<bool> {
        self.boards[signal.index()].as_ref()?.first()
    }
}
