//! Owns a job's remote side to the other workers of a cluster: its node, what carries frames, and
//! which shards come and go. Slices and idle threads call it, and whoever reads from peers. It
//! never encodes, decodes, reads or writes anything while the node is locked.
//!
//! The node is behind a lock, which neither compute stages nor gathers take. What it asks for is carried out after the lock was
//! released ([`performing`]), so that nobody waits for a carrier inside, and nothing is encoded, decoded, read or written there. Two threads may then
//! carry out what the node said in another order: a shard that has not been unpacked yet is posted in vain, and the unpacking finds all; frames
//! have their numbers already; what comes for a shard that has just left is given back to the node.

mod assemblies;
mod merging;
mod moving;
mod performing;
mod transport;

pub use transport::{Membership, Transport};

use super::failure::{Failure, Rank};
use super::held_shards::HeldShards;
use super::job::Job;
use crate::node::{Node, NodeError, NodeHolding};
use crate::parts::{Packing, Unpacking};
use crate::piece_data::{Encoded, PieceData};
use crate::pieces::Spares;
use crate::waiting::ExchangeTurn;
use assemblies::Assemblies;
use brambling_exchange::in_process::Waiters;
use brambling_exchange::read_target::ReadTarget;
use brambling_exchange::{CombiningTree, Item, OPEN_TURNS, RouterError};
use brambling_memory::held::{self, Held};
use brambling_program::{ExchangeId, GroupId, Plan, Position, ShardId, StageId};
use brambling_protocol::frame::{CutWord, Frame, Incoming};
use brambling_protocol::{Sequence, WorkerId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Sources are told of every so many turns that a destination has retired: they may be K ahead of what they were told.
const TOLD_EACH: u64 = if OPEN_TURNS < 2 { 1 } else { OPEN_TURNS / 2 };

pub(super) struct Remote {
    node: Mutex<Node>,
    carrier: Arc<dyn Transport>,
    /// By number: whether the shard starts here.
    placed: Box<[bool]>,
    /// By exchange.
    spares: Box<[Arc<Spares>]>,
    /// By exchange: where pieces are merged on their way, and by whose shards.
    trees: Box<[Option<(CombiningTree, GroupId)>]>,
    /// By exchange: destinations here whose sources are to be told what they have retired.
    due: Box<[Waiters]>,
    /// By number: whether the shard has to leave.
    leaving: Box<[AtomicBool]>,
    /// Shards that have come and were not unpacked yet, by number.
    arrived: Mutex<BTreeMap<u32, Unpacking>>,
    /// Whether something waits for a flush.
    unsent: AtomicBool,
    /// Whether anything is due.
    is_due: AtomicBool,
    /// Large pieces of which some parts have come.
    assemblies: Mutex<Assemblies>,
    /// Whether what comes is read to where it will lie. Not where it may be spilled: a piece's memory is free once all of its parts are.
    reads_in_place: bool,
    /// Larger pieces are cut.
    chunk_bytes: usize,
    /// And so are shards.
    part_bytes: usize,
    /// Shards that are to leave, and that a task keeps.
    pub(super) kept: HeldShards,
    /// Bytes of frames that were sent, and that have come.
    pub(super) sent_bytes: AtomicU64,
    pub(super) received_bytes: AtomicU64,
}

impl Remote {
    /// # Errors
    /// When a shard cannot be here: the node was not fresh, or its map has another program's shards.
    pub(super) fn new(
        membership: Membership,
        plan: &Plan,
        numbers: &[Box<[u32]>],
        shards: usize,
    ) -> Result<Remote, NodeError> {
        let program = &plan.program;
        let Membership {
            mut node,
            carrier,
            placed: shards_here,
        } = membership;
        let reads_in_place = node.spill().is_none();
        let mut placed = vec![false; shards];
        for (shard, version) in shards_here {
            node.settle(shard, version)?;
            placed[numbers[shard.group.index()][shard.index as usize] as usize] = true;
        }
        let exchanges = || (0..program.spec().exchanges.len() as u32).map(ExchangeId);
        let ends = |exchange: ExchangeId| plan.exchanges[exchange.index()].as_ref();
        let tree = |exchange| ends(exchange).and_then(|_| node.combining(exchange));
        let destinations = |exchange| ends(exchange).map_or(0, |it| it.links.destination_count());
        Ok(Remote {
            trees: exchanges().map(tree).collect(),
            due: exchanges()
                .map(|exchange| Waiters::new(destinations(exchange) as usize))
                .collect(),
            chunk_bytes: node.chunk_bytes(),
            part_bytes: node.part_bytes(),
            node: Mutex::new(node),
            carrier,
            placed: placed.into(),
            spares: exchanges()
                .map(|exchange| Arc::new(Spares::new(program.piece_type(exchange))))
                .collect(),
            leaving: (0..shards).map(|_| AtomicBool::new(false)).collect(),
            arrived: Mutex::default(),
            unsent: AtomicBool::new(true),
            is_due: AtomicBool::new(false),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            kept: HeldShards::default(),
            assemblies: Mutex::default(),
            reads_in_place,
        })
    }

    pub(super) fn starts_here(&self, number: u32) -> bool {
        self.placed[number as usize]
    }

    /// Whether an exchange's pieces are merged on their way.
    pub(super) fn merges(&self, exchange: ExchangeId) -> bool {
        self.trees[exchange.index()].is_some()
    }

    /// Whether pieces may be spilled here.
    pub(super) fn spills(&self) -> bool {
        !self.reads_in_place
    }

    #[inline]
    pub(super) fn is_leaving(&self, number: u32) -> bool {
        // Acquire: pairs with the release in `perform`.
        self.leaving[number as usize].load(Ordering::Acquire)
    }

    /// What has come for a shard's number, once.
    pub(super) fn take_arrived(&self, number: u32) -> Option<Unpacking> {
        held::lock(&self.arrived).remove(&number)
    }

    /// For a shard that leaves.
    pub(super) fn packing(&self, job: &Job) -> Packing {
        Packing::new(&job.options.budget, self.part_bytes)
    }

    fn node(&self) -> Held<'_, Node> {
        held::lock(&self.node)
    }

    /// Does something with the node, and then what it asks for.
    fn with<R>(&self, job: &Job, act: impl FnOnce(&mut Node) -> R) -> R {
        let mut node = self.node();
        let result = act(&mut node);
        let effects = node.take_effects();
        // Under the lock: whoever asks the node next must find the mailboxes open.
        self.prepare(job, &effects);
        drop(node);
        if !effects.is_empty() {
            self.perform(job, effects);
        }
        result
    }

    /// Something waits for a flush from now on.
    #[inline]
    fn say(&self) {
        // A load first: every thread has this line, and a store would take it from the others.
        if !self.unsent.load(Ordering::Relaxed) {
            self.unsent.store(true, Ordering::Relaxed);
        }
    }

    // ---- what shards say

    /// Where pieces of an exchange get their memory.
    pub(super) fn spares(&self, exchange: ExchangeId) -> &Arc<Spares> {
        &self.spares[exchange.index()]
    }

    /// What a shard has sent to others that are not here.
    pub(super) fn scattered(
        &self,
        job: &Job,
        shard: ShardId,
        at: ExchangeTurn,
        pieces: Vec<(u32, Option<Encoded>)>,
    ) -> Result<(), NodeError> {
        self.say();
        self.with(job, |node| node.scattered(shard, at, pieces))
    }

    /// What a shard has sent to another that is not here, of a stream.
    pub(super) fn streamed(
        &self,
        job: &Job,
        at: ExchangeTurn,
        to: ShardId,
        item: &Item<PieceData>,
    ) -> Result<(), NodeError> {
        self.say();
        self.with(job, |node| node.give_back(to, at, item))
    }

    /// A shard here has gathered a turn.
    #[inline]
    pub(super) fn has_retired(&self, at: ExchangeTurn, index: u32) {
        if (at.1 + 1).is_multiple_of(TOLD_EACH) {
            self.due[at.0.index()].add(index as usize);
            if !self.is_due.load(Ordering::Relaxed) {
                self.is_due.store(true, Ordering::Relaxed);
            }
            self.say();
        }
    }

    pub(super) fn announce(&self, job: &Job, outermost: u32) {
        self.with(job, |node| node.announce(outermost));
    }

    pub(super) fn decided(
        &self,
        job: &Job,
        at: Position,
        outcome: bool,
        cut: Option<u64>,
    ) -> Result<(), NodeError> {
        self.with(job, |node| node.decided(at, outcome, cut))
    }

    pub(super) fn tell_cut(&self, job: &Job, what: CutWord) {
        self.with(job, |node| node.tell_cut(what));
    }

    pub(super) fn finished(&self, job: &Job, shard: ShardId) {
        self.with(job, |node| node.finished(shard));
        self.say();
    }

    /// A failure as the cluster should read it; none when it is the cluster that told it.
    pub(super) fn explain(&self, failure: &Failure) -> Option<String> {
        let is_ours = !matches!(failure, Failure::Elsewhere { .. });
        is_ours.then(|| self.carrier.explain(failure))
    }

    /// Tells the controller that the job has failed here.
    pub(super) fn failed(&self, job: &Job, failure: &str) {
        self.with(job, |node| node.failed(failure));
    }

    /// Sends what waits, if anything does.
    #[inline]
    pub(super) fn flush(&self, job: &Job) {
        if self.unsent.load(Ordering::Relaxed) {
            self.flush_all(job);
        }
    }

    fn flush_all(&self, job: &Job) {
        // Lowered before the flush: what is said meanwhile raises the flag again.
        self.unsent.store(false, Ordering::Relaxed);
        // Frames go one by one: the first is on its way while the next is made. Arrivals are taken
        // in between: large pieces in both directions would else fill the sockets' buffers, which
        // lie outside of the cache.
        while self.with(job, Node::flush_pieces) {
            self.look();
        }
        if let Err(error) = self.tell_retired(job) {
            job.fail_by(error);
        }
        self.with(job, Node::flush_news);
    }

    /// The node hears what shards here have retired.
    fn tell_retired(&self, job: &Job) -> Result<(), NodeError> {
        // AcqRel: lowered before the sets are read, so that a destination which joins later raises
        // it again. Pairs with `has_retired`.
        if !self.is_due.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let mut due = Vec::new();
        for (id, waiters) in (0..).zip(&self.due) {
            let id = ExchangeId(id);
            waiters.take(|index| due.push((id, index as u32)));
        }
        self.with(job, |node| {
            due.into_iter().try_for_each(|(id, index)| {
                let group = job.ends(id).destination;
                let turns = job.exchange(id).room(index).retired();
                node.retired(ShardId { group, index }, id, turns)
            })
        })
    }

    /// Takes what has come from other workers.
    pub(super) fn poll(&self) -> bool {
        self.carrier.poll()
    }

    /// The same between two tasks.
    pub(super) fn look(&self) {
        self.carrier.look();
    }

    /// The calling thread goes to sleep: somebody else has to look what comes.
    pub(super) fn rest(&self) {
        self.carrier.rest();
    }

    /// It has woken.
    pub(super) fn resume(&self) {
        self.carrier.resume();
    }
}

/// What a cluster says to a job of its. Called by whoever reads from peers, on any thread.
impl Job {
    /// A frame has come from a peer, or from the controller. One that cannot be taken ends the job: it counts as
    /// received, so it does not come again, and whoever needs it would wait for ever.
    ///
    /// # Errors
    /// What no honest peer sends, and room that is missing.
    ///
    /// # Panics
    /// When the job is no member of a cluster; so do the others here.
    pub fn on_frame<'a>(
        &self,
        from: WorkerId,
        frame: impl Into<Incoming<'a>>,
    ) -> Result<(), NodeError> {
        let incoming = frame.into();
        let bytes = incoming.len() as u64;
        // Decoded before the node is locked: the frame's checksum takes a while.
        let decoded = Frame::come(incoming).map_err(NodeError::from);
        let remote = self.remote();
        remote.received_bytes.fetch_add(bytes, Ordering::Relaxed);
        let taken = decoded.and_then(|frame| {
            remote.with(self, |node| {
                node.on_decoded(from, incoming, frame)?;
                // Frames that the node forwards would else wait for a thread that perhaps sleeps.
                node.flush();
                Ok(())
            })
        });
        // So would what was merged meanwhile.
        if remote.unsent.load(Ordering::Relaxed) {
            remote.flush_all(self);
        }
        taken.inspect_err(|error: &NodeError| {
            // After its end nothing can go wrong with a job any more.
            if !self.has_stopped() {
                self.fail(Rank::After, self.refusal(None, error.clone()));
            }
        })
    }

    /// Where the last bytes of a large frame of pieces are to lie, of which these have come: nothing but its header was checked.
    pub fn place(&self, begun: &[u8]) -> Option<ReadTarget> {
        self.remote().place(self, begun)
    }

    /// What a job fails with when its node refuses something, perhaps of a stage on a partition.
    pub(super) fn refusal(&self, at: Option<(&str, u32)>, error: NodeError) -> Failure {
        let (stage, partition, exchange, source, spill) = match error {
            NodeError::Router(RouterError::NoRoom(no_room)) => {
                let exchanges = &self.plan.program.spec().exchanges;
                let exchange = exchanges.get(no_room.exchange.index());
                let name = exchange.map(|exchange| exchange.name.clone());
                let arrival = ("arrival of a piece", no_room.shard.index);
                let (stage, partition) = at.unwrap_or(arrival);
                (stage, partition, name, no_room.source, no_room.spill)
            }
            NodeError::NoRoom { shard, source } => {
                ("arrival of a shard", shard.index, None, source, None)
            }
            NodeError::Spilled(error) => return Failure::Spilled(error),
            error => return error.into(),
        };
        Failure::OutOfMemory {
            stage: stage.into(),
            partition,
            exchange,
            source,
            spill,
        }
    }

    /// What this side says when it greets a peer: the first frame of theirs that is missing.
    pub fn received(&self, peer: WorkerId) -> Sequence {
        self.remote().node().received(peer)
    }

    /// A controller has taken over in this term. Whether that is news: then nothing is to come of the session with the one before.
    pub fn begin_term(&self, term: u32) -> bool {
        let is_news = self.remote().with(self, |node| node.begin_term(term));
        self.remote().say();
        is_news
    }

    /// What is here of the job.
    pub fn holding(&self) -> NodeHolding {
        self.remote().node().holding()
    }

    /// Whether the other workers have acknowledged all that this one said.
    pub fn is_settled(&self) -> bool {
        self.remote().node().is_settled()
    }

    /// A new connection, on which the peer says that it has every frame before `received`.
    ///
    /// # Errors
    /// When the peer is unknown, or speaks of another session.
    pub fn on_reconnect(&self, peer: WorkerId, received: Sequence) -> Result<(), NodeError> {
        self.remote()
            .with(self, |node| node.on_reconnect(peer, received))
    }

    /// Now and then: sends what waits, and asks for outcomes that shards here wait for.
    pub fn on_tick(&self) {
        let remote = self.remote();
        remote.flush_all(self);
        let signals = (0..).map(StageId).zip(&self.boards);
        let wanted = signals.filter_map(|(stage, board)| {
            let turn = board.as_ref()?.wanted()?;
            Some(Position { stage, turn })
        });
        remote.with(self, |node| node.on_tick(wanted));
    }

    /// The job is over, here and everywhere: its threads leave it.
    fn end(&self, failure: Option<String>) {
        match failure {
            Some(failure) => {
                let origin = None;
                self.fail(Rank::After, Failure::Elsewhere { failure, origin });
            }
            // Told again by a controller that has taken over.
            None if self.has_stopped() => return,
            None => self.stop(),
        }
        self.note_end();
    }

    pub(super) fn remote(&self) -> &Remote {
        let remote = self.remote.as_ref();
        remote.expect("the job is no member of a cluster")
    }
}
