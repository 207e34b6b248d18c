//! Owns a job: a compiled program, its shards, and everything that its threads share while it runs. The pool's threads and
//! whoever reads from peers call it. Its shards and ready queues lie in cells; it never takes a lock to reach them.
#![allow(unsafe_code)] // Shards and ready queues lie in cells; their thread's queue lock says who may touch them.

mod accounts;
mod options;
mod owners;
mod placing;
mod results;

use accounts::JobAccounts;
pub use options::{JobOptions, STALL, WEIGHT_MAX};
pub(super) use owners::{AWAY, BY_MAILBOX};
pub use placing::initial;

use super::biased_lock::BiasedLock;
use super::board::Board;
use super::doorbell::Doorbell;
use super::failure::{Failure, Rank};
use super::meter::{Meter, ShardGauge};
use super::open::{Flows, OpenStreamTask};
use super::parker::Parkers;
use super::ready_queue::ReadyQueue;
use super::remote::Remote;
use super::saving::{CutNews, Restored, Saving};
use super::steps::{GatherKeeper, Steps};
use super::tally::ThreadTally;
use super::times::Notebook;
use super::weights::Weights;
use super::woken::{self, Woken};
use crate::arrivals::{Arrivals, Delivery};
use crate::node::sources;
use crate::shard::Shard;
use crate::waiting::WaitingRoom;
use brambling_exchange::in_process::{InProcess, Keeper, Mailbox};
use brambling_exchange::{SourceRelation, Sources};
use brambling_memory::{Class, OutOfMemory, SpillError, held};
use brambling_program::{
    ExchangeId, ExchangePlan, GroupId, Plan, Position, ShardId, StageId, Turn, Value,
};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Waker;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A shard with its data. Touched only by its owner.
pub(super) struct LoadedShard {
    pub(super) shard: Shard,
    pub(super) cells: Vec<Value>,
    pub(super) steps: Steps,
    /// Bytes of the cells, as the budget knows them.
    pub(super) charged_bytes: u64,
    /// What each of them takes, where there are many.
    pub(super) weights: Weights,
    /// How many tasks a slice may run, from how long the last ones took.
    pub(super) slice_tasks: u32,
    /// What runs, for whoever must say where it went wrong.
    pub(super) running: Option<Position>,
    pub(super) meter: Meter,
    pub(super) done: bool,
    /// Its tasks that will be called again and keep something meanwhile.
    pub(super) open: Vec<OpenStreamTask>,
    pub(super) heard: CutNews,
}

impl LoadedShard {
    /// Where what runs stands among the failures of a job.
    pub(super) fn rank(&self, partition: u32) -> Rank {
        self.running
            .map_or(Rank::After, |at| Rank::At(at.stage, at.turn, partition))
    }
}

/// On lines of its own: shards of different threads lie side by side.
#[repr(align(128))]
pub(super) struct ShardCell {
    pub(super) group: GroupId,
    pub(super) index: u32,
    pub(super) woken: Woken,
    /// Slices begun, going round. Written by the owner.
    pub(super) slices: AtomicU32,
    /// The stage of the task that was begun last. Written by the owner.
    pub(super) stage: AtomicU32,
    pub(super) gauge: ShardGauge,
    /// What anybody has for the shard. Closed while it is not here.
    pub(super) mailbox: Mailbox<Delivery>,
    /// What was taken from there. Touched by the owner, as the body.
    pub(super) arrivals: UnsafeCell<Arrivals>,
    /// Made by the thread that becomes the shard's home, so that its memory is first touched there.
    pub(super) body: UnsafeCell<Option<LoadedShard>>,
}

impl ShardCell {
    /// Which shard it is.
    pub(super) fn id(&self) -> ShardId {
        ShardId {
            group: self.group,
            index: self.index,
        }
    }
}

// SAFETY: the body is touched only by the shard's owner, one thread at a time; ownership is handed on by a
// release of `Job::owners`, acquired by the next owner.
unsafe impl Sync for ShardCell {}

/// What belongs to one thread: those of the pool, then the caller.
pub(super) struct ThreadState {
    pub(super) queue_lock: BiasedLock,
    pub(super) doorbell: Doorbell,
    /// Its ready queue. Touched under the queue lock only.
    pub(super) ready: UnsafeCell<ReadyQueue>,
    /// How many are queued, for thieves to see.
    pub(super) queued: AlignedCount,
    /// How often its thread has looked for something to do for the job, and found nothing.
    pub(super) looks: AtomicU64,
    /// Whether its last look found nothing.
    pub(super) idle: AtomicBool,
    /// The shards that were placed here, by number.
    pub(super) placed: Range<u32>,
    /// Whether some thread makes them, or has made them.
    pub(super) is_claimed: AtomicBool,
    /// The shard that the thread runs, or [`NONE`]: it may be woken meanwhile, but is not to be stolen; and a panic came from there.
    pub(super) current: AtomicU32,
    /// The CPU that the thread was on when it last read the clock.
    pub(super) cpu: AtomicU32,
    pub(super) tally: ThreadTally,
}

/// No shard.
pub(super) const NONE: u32 = u32::MAX;

#[repr(align(128))]
pub(super) struct AlignedCount(pub(super) AtomicU32);

const _: () = assert!(align_of::<ReadyQueue>() == 128);

// SAFETY: the ready queue is touched only under the queue lock: by its owner, or by a thief that locked it out.
unsafe impl Sync for ThreadState {}

impl ThreadState {
    fn new(shards: usize, placed: Range<u32>) -> ThreadState {
        ThreadState {
            queue_lock: BiasedLock::default(),
            doorbell: Doorbell::new(shards),
            ready: UnsafeCell::new(ReadyQueue::new(shards)),
            queued: AlignedCount(AtomicU32::new(0)),
            looks: AtomicU64::new(0),
            idle: AtomicBool::new(false),
            placed,
            is_claimed: AtomicBool::new(false),
            current: AtomicU32::new(NONE),
            cpu: AtomicU32::new(u32::MAX),
            tally: ThreadTally::default(),
        }
    }

    /// The shard that the thread runs.
    pub(super) fn runs(&self) -> Option<u32> {
        let current = self.current.load(Ordering::Relaxed);
        (current != NONE).then_some(current)
    }
}

/// A job being run. Made by [`Job::new`], run once by [`Pool::run`](super::Pool::run).
pub struct Job {
    /// Before `plan` and `exchanges`, and so dropped before them: [`Steps`] refer to them.
    pub(super) residents: Box<[ShardCell]>,
    pub(super) plan: Plan,
    /// Each shard's home. Not in [`ShardCell`], whose line its owner writes: sources elsewhere ask. None changes when the job has started.
    homes: Box<[AtomicU32]>,
    /// Number of each group's shards.
    numbers: Box<[Box<[u32]>]>,
    /// The thread that each shard belongs to now.
    pub(super) owners: Box<[AtomicU32]>,
    pub(super) thread_states: Box<[ThreadState]>,
    /// Where its threads sleep.
    pub(super) parkers: Parkers,
    /// Where each station's thread keeps how long kernels ran; none when the job is not timed.
    pub(super) notebooks: Box<[Notebook]>,
    pub(super) accounts: JobAccounts,
    /// What remote side the job to other workers; none when all of it is in this process.
    pub(super) remote: Option<Box<Remote>>,
    /// Who hears of its cuts; none where it keeps no snapshots.
    pub(super) saving: Option<Box<Saving>>,
    /// What it begins with, where it does not begin at its start.
    restored: Option<Arc<Restored>>,
    /// The exchanges; none for those that no stage uses.
    pub(super) exchanges: Box<[Option<Box<InProcess>>]>,
    /// By group, the exchanges of which something may come through the mailbox.
    pub(super) mailbox_exchanges: Box<[Box<[ExchangeId]>]>,
    /// What waits for shards here, and was not gathered.
    pub(super) waits: WaitingRoom,
    /// What slows the sources of streams.
    pub(super) flows: Flows,
    pub(super) boards: Box<[Option<Board>]>,
    pub(super) ends: Box<[Board]>,
    /// For how many threads' places the shards have been made.
    pub(super) settled: AtomicU32,
    pub(super) unfinished: AtomicUsize,
    pub(super) stop: AtomicBool,
    /// From this thread on shards are told by doorbell what their marks could tell them: the calling thread, which never looks; all of them while
    /// other jobs run on the threads, which take turns then and do not look while they are away.
    pub(super) ring_from: AtomicU32,
    pub(super) failure: Mutex<Option<(Rank, Failure)>>,
    pub(super) options: JobOptions,
    weight: AtomicU32,
    /// Bytes of pieces in slots, as the budget knows them. Mailboxes know theirs.
    pub(super) exchange_bytes: AtomicI64,
    pub(super) pending: AtomicUsize,
    /// Shards that wait until what they saved is written.
    pub(super) held: AtomicUsize,
    pub(super) caller: Mutex<Option<Thread>>,
    pub(super) started: OnceLock<Instant>,
    pub(super) wall_ns: AtomicUsize,
    weak: Weak<Job>,
}

impl Job {
    /// How many threads the job was placed on.
    pub fn threads(&self) -> u32 {
        self.thread_states.len() as u32 - 1
    }

    /// The compiled program.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// An exchange that a stage uses.
    #[inline(always)]
    pub(super) fn exchange(&self, id: ExchangeId) -> &InProcess {
        let exchange = self.exchanges[id.index()].as_deref();
        exchange.expect("used by a stage")
    }

    /// Who keeps what a shard gathers in an exchange.
    #[cold]
    pub(super) fn gathers_by(&self, id: ExchangeId, number: u32) -> GatherKeeper {
        let resident = &self.residents[number as usize];
        let exchange = self.exchange(id);
        match exchange.keeper() {
            // A shard that came by a move has no slots here, whatever the exchange keeps for its
            // index.
            _ if self.has_moved(number) => GatherKeeper::Mailbox,
            Keeper::Stamped(stamped) if stamped.serves(resident.index) => GatherKeeper::Stamped,
            Keeper::Slots(slots) if slots.lie_at(resident.index) => GatherKeeper::Slots,
            _ => GatherKeeper::Mailbox,
        }
    }

    /// A signal's outcomes.
    #[inline]
    pub(super) fn board(&self, signal: StageId) -> &Board {
        let board = self.boards[signal.index()].as_ref();
        board.expect("a signal has a board")
    }

    /// Who sends and who receives in it.
    #[inline]
    pub(super) fn ends(&self, id: ExchangeId) -> &ExchangePlan {
        self.plan.exchanges[id.index()]
            .as_ref()
            .expect("used by a stage")
    }

    #[inline]
    pub(super) fn number(&self, group: GroupId, index: u32) -> u32 {
        self.numbers[group.index()][index as usize]
    }

    /// Tasks retired so far: each thread tells its own at the end of a slice.
    pub(super) fn tasks_retired(&self) -> u64 {
        let tasks = |thread_state: &ThreadState| thread_state.tally.tasks.load(Ordering::Relaxed);
        self.thread_states.iter().map(tasks).sum()
    }

    /// Ends the job early. Of the failures until the threads have left it the one of the least rank is told; to a
    /// cluster, the first.
    pub(super) fn fail(&self, rank: Rank, failure: Failure) {
        // Explained before the lock is taken: explaining may wait for the interpreter, and the
        // thread that has the interpreter may wait for this lock.
        let text = self
            .remote
            .as_ref()
            .and_then(|remote| remote.explain(&failure));
        let mut told = held::lock(&self.failure);
        let text = text.filter(|_| told.is_none());
        // Either failure may hold an interpreter's exception, so the one that is not told is
        // dropped after the lock.
        let untold = match &*told {
            Some((least, _)) if rank >= *least => Some((rank, failure)),
            _ => told.replace((rank, failure)),
        };
        drop(told);
        drop(untold);
        if let (Some(remote), Some(text)) = (&self.remote, text) {
            remote.failed(self, &text);
        }
        self.stop();
    }

    /// Ends the job as if its caller had been interrupted.
    pub fn cancel(&self) {
        self.fail(Rank::Interrupted, Failure::Interrupted);
    }

    /// Its share of the threads from now on, 1 to [`WEIGHT_MAX`].
    pub fn weigh(&self, weight: u32) {
        let weight = weight.clamp(1, WEIGHT_MAX);
        self.weight.store(weight, Ordering::Relaxed);
    }

    pub(super) fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Whether the job's threads have been told to leave it.
    pub fn has_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Whether a thread that works for it alone has to look at the pool's other jobs, or to leave.
    #[inline]
    pub(super) fn calls(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.shares()
    }

    /// Whether other jobs run on its threads.
    pub(super) fn shares(&self) -> bool {
        self.ring_from.load(Ordering::Relaxed) == 0
    }

    /// Other jobs run on its threads from now on, or no longer do.
    pub(super) fn share(&self, shares: bool) {
        let ring_from = if shares { 0 } else { self.threads() };
        // SeqCst: the store comes before whatever makes a thread turn to another job. Pairs with
        // the load in `needs_ringing`.
        self.ring_from.store(ring_from, Ordering::SeqCst);
    }

    pub(super) fn stop(&self) {
        // Set before anybody is woken: a thread that wakes looks at `stop`.
        self.stop.store(true, Ordering::SeqCst);
        self.parkers.wake_all();
        self.wake_caller();
    }

    /// The program has ended for a shard.
    pub(super) fn finish_one(&self, shard: ShardId) {
        if let Some(remote) = &self.remote {
            remote.finished(self, shard);
        } else if self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.note_end();
            self.stop();
        }
    }

    /// Notes how long the job took.
    pub(super) fn note_end(&self) {
        let started = self.started.get();
        // A job may end before its shards are made.
        let took = started.map_or(Duration::ZERO, Instant::elapsed);
        self.wall_ns
            .store(took.as_nanos() as usize, Ordering::Relaxed);
        let ns = self.accounts.asked.elapsed().as_nanos() as u64;
        self.accounts.ended_ns.store(ns, Ordering::Relaxed);
    }

    pub(super) fn weak(&self) -> Weak<Job> {
        self.weak.clone()
    }

    /// What wakes the task of a shard at a position.
    pub(super) fn completion(&self, number: u32, at: Position) -> Waker {
        woken::completion(self.weak.clone(), number, at)
    }

    /// What has a shard looked at.
    pub(super) fn looks(&self, number: u32) -> Waker {
        woken::look(self.weak.clone(), number)
    }

    /// A thread begins to work or ends: in a timed job it takes up its notes, or lays them down.
    pub(super) fn exchange_notes(&self, thread: u32) {
        if let Some(notebook) = self.notebooks.get(thread as usize) {
            notebook.exchange();
        }
    }

    /// The failure of a scatter whose pieces the budget has no room for.
    pub(super) fn no_room_for_pieces(
        &self,
        id: StageId,
        partition: u32,
        source: OutOfMemory,
    ) -> Failure {
        let spec = self.plan.program.spec();
        let stage = &spec.stages[id.index()];
        let exchange = spec
            .sends_to(id)
            .map(|id| spec.exchanges[id.index()].name.clone());
        Failure::OutOfMemory {
            stage: stage.name.clone(),
            partition,
            exchange,
            source,
            // In a cluster the piece would have been spilled if there were a place to spill to.
            spill: (self.remote.is_some()).then(|| Box::new(SpillError::Nowhere)),
        }
    }
}

impl SourceRelation for Job {
    fn sources(&self, exchange: ExchangeId, turn: Turn, destination: ShardId) -> Sources<'_> {
        sources(&self.ends(exchange).links, turn, destination)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for resident in &mut self.residents {
            for delivery in resident.mailbox.close() {
                let mut item = delivery.item;
                if let Some(kept) = item.payload_mut() {
                    self.waits.give_back(kept.take_charge());
                }
            }
            resident.arrivals.get_mut().give_up(&self.waits);
        }
        let charged: u64 = self
            .residents
            .iter_mut()
            .filter_map(|resident| resident.body.get_mut().as_ref())
            .map(|body| body.charged_bytes)
            .sum();
        // Giving back cannot fail.
        let _ = self.options.budget.adjust(Class::Resident, charged, 0);
        let pieces = self.exchange_bytes.load(Ordering::Relaxed).max(0) as u64;
        let _ = self.options.budget.adjust(Class::Exchange, pieces, 0);
    }
}
