//! A worker's node: everything of one job that its shards share, and all that comes from other workers.
//!
//! A pure state machine: frames, news and finished tasks go in, [`Effect`]s come out. It routes, numbers and acknowledges, and keeps nothing that a
//! gather waits for: what comes for a shard that is here is handed over ([`Effect::Deliver`]), and so is what shards wait for.
//!
//! # Rules
//! * What a scatter sends to a shard that is not here goes to the worker that the map here names, with the version here; or, where that is this one,
//!   to the router.
//! * All that it handles are bytes. Nothing is encoded or decoded here, no value of a user's is dropped, no file read or written: the node is locked
//!   while it is asked. What was spilled and is needed here is left to whoever runs the node ([`Errand`]).
//! * A signal's broadcast is a hint, never sent again: a tick asks for outcomes that shards here wait for.
//! * What all are to hear is handed on from worker to worker where there are many (`node/relay.rs`).
//! * All else is numbered by the session of its peer, and sent again after a reconnection.
//! * So is what one shard sends to many alike (`node/broadcast.rs`).
//! * What many shards send to one may be merged on its way (`node/combining.rs`).
//! * Pieces and credits of a slice wait for [`Node::flush`], so that one frame carries those of many shards.

mod broadcast;
mod combining;
mod credits;
mod ends;
mod errands;
mod error;
mod leaving;
mod members;
mod moving;
mod outbound;
mod outcomes;
mod relations;
mod relay;

pub use combining::merged_at;
pub use errands::Errand;
pub use error::NodeError;
pub use relations::Relations;
pub(crate) use relations::sources;

use crate::cargo::{Bytes, Cargo, Encoded, items};
use crate::waits::{At, Kept};
use brambling_exchange::{Combining, CombiningTree, Credits, Item, Parcel, Room, Router, parcels};
use brambling_memory::{Budget, Spill, mutants};
use brambling_program::tree::TreeNode;
use brambling_program::{
    BlockId, ExchangeId, GroupId, LoopId, Node as ProgramNode, Plan, Position, ShardId, Spec,
    StageId, Turn,
};
use brambling_protocol::frame::{
    Ack, Body, DataHead, Frame, Incoming, LoopEnd, News, Packet, Signal, SignalQuery,
};
use brambling_protocol::{
    EntryRange, FrameSession, Generation, JobId, PartitionMap, Priority, Received, Sequence,
    Version, WorkerId,
};
use combining::Meetings;
use errands::Deferred;
use leaving::Leavers;
use moving::Moving;
use outbound::Outgoing;
use outcomes::Outcomes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// An exchange, its turn, and the group that something of it is for.
pub(super) type About = (ExchangeId, Turn, GroupId);

/// Whose node it is, and of what.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// This worker.
    pub me: WorkerId,
    /// The other workers of the job.
    pub peers: Vec<WorkerId>,
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// How many turns of an exchange are open per destination.
    pub open_turns: u64,
    /// Larger pieces are cut.
    pub chunk_bytes: usize,
    /// Pieces of one turn for one worker go in frames of no more than about so many bytes, unless one alone is larger.
    pub frame_bytes: usize,
    /// A shard that moves is cut into parts of so many bytes.
    pub part_bytes: usize,
    /// What all are to hear is said to so many workers at most, which hand it on:
    /// [`FAN_OUT`](brambling_protocol::frame::FAN_OUT) for example.
    pub fan_out: usize,
    /// When pieces are merged on their way; the same on all workers of the job.
    pub combining: Combining,
    /// What pieces count in that wait here.
    pub budget: Budget,
    /// Where they go that find no room in it.
    pub spill: Option<Arc<dyn Spill>>,
}

/// What whoever runs the node has to do.
#[derive(Debug)]
pub enum Effect {
    /// Send a frame to a peer.
    Send {
        /// The peer.
        to: WorkerId,
        /// Its class.
        priority: Priority,
        /// The whole frame.
        packet: Packet,
    },
    /// Hand an item to shards that are here. To one that has left meanwhile it goes by [`Node::give_back`].
    Deliver(Parcel<Cargo>, Outside),
    /// The same, of what is merged at a shard that is here ([`Node::meet`]).
    Meet(Parcel<Cargo>, Outside),
    /// Something that was to be merged here goes on as it is ([`Node::pass`]).
    Pass {
        /// The exchange and its turn.
        at: At,
        /// To which shard of those that merge; none: to the destination.
        to: Option<u32>,
        /// What.
        item: Item<Kept>,
        /// As above.
        outside: Outside,
    },
    /// All that a group of sources sends in a turn is here: merge it ([`Node::take_group`], [`Node::merged`]).
    Combine {
        /// The exchange and its turn.
        at: At,
        /// The group.
        group: TreeNode,
    },
    /// Destinations have retired all turns of an exchange before this one.
    Room {
        /// The exchange.
        exchange: ExchangeId,
        /// The destinations.
        destinations: Range<u32>,
        /// The first turn that they have not retired.
        turns: Turn,
    },
    /// The outcome of a signal is known.
    Outcome {
        /// The signal.
        signal: StageId,
        /// At which turns.
        turns: Range<Turn>,
        /// What it is.
        outcome: bool,
    },
    /// An outermost loop has ended.
    LoopEnd(LoopId),
    /// The shard moves: start no task of it; when none runs, call [`Node::leave`] and [`Node::depart`].
    Drain(ShardId),
    /// A shard has come, by what [`Node::depart`] was given elsewhere: run it.
    Settle {
        /// The shard.
        shard: ShardId,
        /// Where it stands, what has come for it, and its data.
        body: Vec<Bytes>,
    },
    /// Something that the node does not do, because files are read or written ([`Errand::run`]).
    Errand(Errand),
    /// A worker has left: no link to it is needed any more.
    Forget(WorkerId),
    /// The job is over: start no task of it any more.
    End {
        /// What went wrong on which worker, if anything did.
        failure: Option<String>,
    },
}

/// Kept for as long as something of the node's is outside of it: the worker does not leave before that.
#[derive(Clone, Debug, Default)]
pub struct Outside(Arc<()>);

impl Outside {
    fn is_any(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// The state of one job on one worker, beside its shards.
pub struct Node {
    options: NodeOptions,
    relations: Arc<Relations>,
    /// The outermost loops of the program.
    loops: Vec<ProgramNode>,
    router: Router<Cargo>,
    /// What is merged here on its way.
    meetings: Meetings,
    credits: Credits,
    /// Outcomes seen. A later form forgets those before the last committed cut.
    outcomes: Outcomes,
    ended: BTreeSet<LoopId>,
    peers: BTreeMap<WorkerId, FrameSession>,
    /// Parcels for other workers, by class, exchange, turn and the group that they are for.
    outgoing: BTreeMap<(WorkerId, Priority, ExchangeId, Turn, GroupId), Outgoing>,
    /// What is held here, and has to be written to where it is spilled.
    deferred: Option<Arc<Deferred>>,
    /// What it has handed over and was not told the end of.
    outside: Outside,
    /// Bytes that have come from peers since they were last told.
    come: BTreeMap<WorkerId, usize>,
    /// Credits that peers were not told yet.
    due: BTreeMap<ExchangeId, BTreeMap<u32, Turn>>,
    /// Exchanges with one source, of which credit has come that waits for the source.
    noted: BTreeSet<ExchangeId>,
    /// Shards that have finished, of which the controller was not told yet.
    finished: BTreeSet<ShardId>,
    moving: Moving,
    leavers: Leavers,
    /// How many of the peers have been asked for outcomes, one after the other.
    asked: usize,
    effects: Vec<Effect>,
}

/// Frames after which a peer is told at once what has come.
const FRAMES_PER_ACK: u64 = 32;
/// Bytes after which it is.
const BYTES_PER_ACK: usize = 1 << 20;
/// A frame about shards has no more entries than this: it stays small, however many shards there are.
const ENTRIES_MAX: usize = 1 << 12;
/// The class of pieces until policies decide it.
const PIECES: u8 = 3;

impl Node {
    /// The node of a worker that knows `map`, with no shard here yet.
    pub fn new(plan: &Plan, map: PartitionMap, options: NodeOptions) -> Node {
        let spec = plan.program.spec();
        let is_loop = |node: &&ProgramNode| {
            matches!(node, ProgramNode::Repeat { .. } | ProgramNode::While { .. })
        };
        let root = &spec.blocks[Spec::ROOT.index()];
        let relations = Arc::new(Relations::new(plan, options.combining));
        let credits = Credits::new(relations.destinations());
        let deferred = options.spill.is_some().then(Arc::<Deferred>::default);
        let spill = deferred.clone().map(|to| to as Arc<dyn Spill>);
        let room = Room::new(options.budget.clone(), spill);
        Node {
            router: Router::new(options.me, options.generation, map, room)
                .whose_shards_are_kept(are_kept(spec)),
            loops: root.iter().filter(is_loop).copied().collect(),
            relations,
            meetings: Meetings::default(),
            credits,
            outcomes: Outcomes::default(),
            ended: BTreeSet::new(),
            peers: options
                .peers
                .iter()
                .chain([&WorkerId::CONTROLLER])
                .map(|peer| (*peer, FrameSession::default()))
                .collect(),
            outgoing: BTreeMap::new(),
            deferred,
            outside: Outside::default(),
            come: BTreeMap::new(),
            due: BTreeMap::new(),
            noted: BTreeSet::new(),
            finished: BTreeSet::new(),
            moving: Moving::default(),
            leavers: Leavers::default(),
            asked: 0,
            effects: Vec::new(),
            options,
        }
    }

    /// What has to be done since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        if let (Some(to), Some(deferred)) = (&self.options.spill, &self.deferred) {
            let spills = deferred.take().into_iter();
            let errand = |late| Effect::Errand(Errand::Write(late, to.clone()));
            self.effects.extend(spills.map(errand));
        }
        std::mem::take(&mut self.effects)
    }

    /// Whose node it is.
    pub fn me(&self) -> WorkerId {
        self.options.me
    }

    /// Who holds what, as far as known here.
    pub fn map(&self) -> &PartitionMap {
        self.router.map()
    }

    /// How many parcels are held here.
    pub fn held(&self) -> usize {
        self.router.held()
    }

    /// What its pieces count in.
    pub fn budget(&self) -> &Budget {
        &self.options.budget
    }

    /// Where pieces are spilled that find no room.
    pub fn spill(&self) -> Option<&Arc<dyn Spill>> {
        self.options.spill.as_ref()
    }

    /// How large pieces may be that are not cut.
    pub fn chunk_bytes(&self) -> usize {
        self.options.chunk_bytes
    }

    /// Who sends to whom in the program.
    pub fn relations(&self) -> &Arc<Relations> {
        &self.relations
    }

    /// Whether a shard is here.
    pub fn is_here(&self, shard: ShardId) -> bool {
        self.router.is_here(shard)
    }

    /// Whether the other workers have acknowledged all that was sent, and nothing waits for a flush.
    pub fn is_settled(&self) -> bool {
        let workers = self.options.peers.iter();
        self.outgoing.is_empty()
            && !self.outside.is_any()
            && self.due.is_empty()
            && self.finished.is_empty()
            && self.meetings.is_empty()
            && workers
                .map(|worker| &self.peers[worker])
                .all(|peer| peer.is_settled())
    }

    /// Whether this worker has left the job: it hears nothing, and what it says is no news.
    pub fn has_left(&self) -> bool {
        self.leavers.has_gone()
    }

    /// Where pieces of an exchange are merged on their way, and the group whose shards do it.
    pub fn combining(&self, exchange: ExchangeId) -> Option<(CombiningTree, GroupId)> {
        self.relations.combining(exchange)
    }

    // ---- shards and their tasks

    /// A shard starts here, by this version of its entry.
    pub fn settle(&mut self, shard: ShardId, version: Version) -> Result<(), NodeError> {
        self.take_in(shard, version)
    }

    /// What a shard has sent to others that are not here, by ascending destination; to some nothing.
    pub fn scattered(
        &mut self,
        shard: ShardId,
        at: At,
        pieces: impl IntoIterator<Item = (u32, Option<Encoded>)>,
    ) -> Result<(), NodeError> {
        // Neighbours that get the same, as all do from a broadcast, share one parcel.
        let mut runs: Vec<(Range<u32>, Option<Encoded>)> = Vec::new();
        for (destination, piece) in pieces {
            let is_same = |same: &Option<Encoded>| match (same, &piece) {
                (Some(same), Some(piece)) => same.is_same(piece),
                (same, piece) => same.is_none() && piece.is_none(),
            };
            match runs.last_mut() {
                Some((run, same)) if run.end == destination && is_same(same) => run.end += 1,
                _ => runs.push((destination..destination + 1, piece)),
            }
        }
        let source = TreeNode::leaf(shard.index.into());
        for (destinations, piece) in runs {
            for item in items(source, piece, self.options.chunk_bytes) {
                self.route(at, &destinations, &item)?;
            }
        }
        Ok(())
    }

    /// An item was for a shard that is not here any more.
    pub fn give_back(
        &mut self,
        shard: ShardId,
        at: At,
        item: &Item<Cargo>,
    ) -> Result<(), NodeError> {
        self.route_to(shard.group, at, &(shard.index..shard.index + 1), item)
    }

    /// A shard here has retired all turns of an exchange before this one: sources elsewhere are told at the next flush. They may be K turns ahead of
    /// what they were told, so they need not be told of each.
    pub fn retired(
        &mut self,
        shard: ShardId,
        exchange: ExchangeId,
        turns: Turn,
    ) -> Result<(), NodeError> {
        let due = self.due.entry(exchange).or_default();
        due.insert(shard.index, turns);
        self.credit(exchange, shard.index..shard.index + 1, turns)
    }

    /// A signal has been given here.
    ///
    /// # Errors
    /// When a peer has said another outcome.
    pub fn decided(&mut self, position: Position, outcome: bool) -> Result<(), NodeError> {
        let NodeOptions {
            job, generation, ..
        } = self.options;
        self.learn_one(position, outcome)?;
        let hint = Signal {
            job,
            generation,
            position,
            outcome,
        };
        self.spread(self.options.peers.clone(), &News::Signal(hint));
        Ok(())
    }

    /// An outermost loop has ended for the shard that says so: everybody hears of it.
    pub fn announce(&mut self, outermost: LoopId) {
        if self.ended.contains(&outermost) {
            return;
        }
        self.end(outermost);
        let body = body_of(self.loops[outermost as usize]).expect("a loop");
        let NodeOptions {
            job, generation, ..
        } = self.options;
        let turns = self.turns(outermost);
        let end = News::LoopEnd(LoopEnd {
            job,
            generation,
            body,
            turns,
        });
        self.spread(self.options.peers.clone(), &end);
    }

    // ---- the world

    /// A frame has come from a peer, or from the controller.
    pub fn on_frame<'a>(
        &mut self,
        from: WorkerId,
        incoming: impl Into<Incoming<'a>>,
    ) -> Result<(), NodeError> {
        let incoming = incoming.into();
        let frame = Frame::come(incoming)?;
        self.on_decoded(from, incoming, frame)
    }

    /// As [`Node::on_frame`], when it was decoded before.
    pub fn on_decoded(
        &mut self,
        from: WorkerId,
        incoming: Incoming<'_>,
        frame: Frame<'_>,
    ) -> Result<(), NodeError> {
        if self.leavers.have_left(from) {
            return Ok(());
        }
        // Whoever has a connection was let in: a worker that is news here.
        self.on_joined(from);
        if let Some(sequence) = frame.sequence {
            let peer = self.peers.get_mut(&from).ok_or(NodeError::Stranger(from))?;
            if peer.receive(sequence)? == Received::Repeated {
                return Ok(());
            }
        }
        self.on_body(from, frame.sequence, frame.body, incoming)?;
        // A peer keeps what it was not told of.
        let come = self.come.entry(from).or_default();
        *come += incoming.len();
        let frames = match *come >= BYTES_PER_ACK {
            true => 1,
            false => FRAMES_PER_ACK,
        };
        self.acknowledge(from, frames);
        self.part();
        Ok(())
    }

    /// Tells a peer what has come, if that is news of so many frames.
    fn acknowledge(&mut self, peer: WorkerId, frames: u64) {
        let session = self.peers.get_mut(&peer);
        if let Some(received) = session.and_then(|session| session.ack_after(frames)) {
            self.come.insert(peer, 0);
            self.hint(peer, &Body::Ack(Ack { received }));
        }
    }

    fn on_body(
        &mut self,
        from: WorkerId,
        sequence: Option<Sequence>,
        body: Body<'_>,
        incoming: Incoming<'_>,
    ) -> Result<(), NodeError> {
        let NodeOptions {
            job, generation, ..
        } = self.options;
        // Recovery, which bumps generations, comes later; until then no other one is honest.
        let here = |theirs: (JobId, Generation)| theirs == (job, generation);
        match body {
            Body::Data(data) if data.head.job == job => {
                let DataHead {
                    exchange, group, ..
                } = data.head;
                if !self.relations.leads_through(exchange, group) {
                    self.expect_exchange(exchange, group)?;
                }
                let mut arrived = Vec::new();
                let keep = |payload: &[u8]| incoming.keep(payload);
                parcels(&data, keep, |parcel| arrived.push(parcel));
                if !data.routes.is_empty() && data.head.generation == generation {
                    arrived = self.hand_on_pieces(arrived, &data.routes)?;
                }
                for parcel in arrived.into_iter().map(|it| it.map(Cargo::Bytes)) {
                    if data.head.generation == generation {
                        self.learn_from(&parcel)?;
                    }
                    let mut effects = Vec::new();
                    self.router
                        .receive(from, data.head.generation, parcel, &mut effects)?;
                    self.perform(effects)?;
                }
            }
            Body::Signal(signal) if here((signal.job, signal.generation)) => {
                self.learn_one(signal.position, signal.outcome)?;
            }
            Body::SignalQuery(SignalQuery {
                job,
                generation,
                position,
            }) if here((job, generation)) => {
                if let Some(outcome) = self.outcomes.get(position) {
                    self.hint(
                        from,
                        &Body::Signal(Signal {
                            job,
                            generation,
                            position,
                            outcome,
                        }),
                    );
                }
            }
            Body::LoopEnd(end) if here((end.job, end.generation)) => {
                let body = |node: &ProgramNode| body_of(*node) == Some(end.body);
                let outermost = self.loops.iter().position(body);
                self.end(outermost.ok_or(NodeError::UnknownLoop(end.body))? as LoopId);
            }
            Body::Credit(credit) if here((credit.job, credit.generation)) => {
                self.on_credit(credit)?;
            }
            Body::SourceCredit(it) if here((it.credit.job, it.credit.generation)) => {
                self.on_source_credit(from, it)?;
            }
            Body::MapUpdate(update) if here((update.job, update.generation)) => {
                for entry in &update.entries {
                    self.on_update(entry)?;
                }
            }
            Body::Joined(joined) => self.on_joined(joined.worker),
            Body::Leaves(leaves) => self.on_leaves(leaves, sequence),
            Body::Gone(gone) => self.on_gone(gone, sequence),
            Body::Relay(relay) if relay.news.is_of(job, generation) => {
                let news = relay.news.body();
                self.on_body(from, sequence, news, incoming)?;
                self.hand_on(from, &relay);
            }
            Body::Reserve(reserve) if here((reserve.job, reserve.generation)) => {
                self.on_reserve(&reserve)?;
            }
            Body::ShardPart(part) if here((part.job, part.generation)) => {
                self.on_part(&part, incoming.keep(part.bytes))?;
            }
            Body::Ended(ended) if here((ended.job, ended.generation)) => {
                let failure = ended.failure.map(str::to_owned);
                self.effects.push(Effect::End { failure });
            }
            Body::Ack(ack) => {
                let peer = self.peers.get_mut(&from).ok_or(NodeError::Stranger(from))?;
                let opened = peer.on_ack(ack.received)?;
                self.effects.extend(opened.map(sending(from)));
            }
            _ => {}
        }
        Ok(())
    }

    /// News for the map.
    pub fn on_update(&mut self, update: &EntryRange) -> Result<(), NodeError> {
        let mut effects = Vec::new();
        let _ = self.router.on_update(update, &mut effects)?;
        self.perform(effects)?;
        self.pass_credits_on(update);
        self.flag(update)?;
        self.call(update)
    }

    /// What this side says when it greets a peer: the first frame of theirs that is missing.
    pub fn received(&self, peer: WorkerId) -> Sequence {
        self.peers.get(&peer).map_or(0, |peer| peer.received())
    }

    /// A new connection, on which the peer says that it has every frame before `received`. Whoever has one was let in: a
    /// newcomer may call before the controller has named it, and is greeted.
    pub fn on_reconnect(&mut self, peer: WorkerId, received: Sequence) -> Result<(), NodeError> {
        if self.leavers.have_left(peer) {
            return Ok(());
        }
        if !self.knows(peer) && peer != self.options.me {
            // Nothing was said to it.
            let _ = FrameSession::default().on_reconnect(received)?;
            self.on_joined(peer);
            return Ok(());
        }
        let session = self.peers.get_mut(&peer).ok_or(NodeError::Stranger(peer))?;
        let again = session.on_reconnect(received)?;
        self.effects.extend(again.map(sending(peer)));
        self.part();
        Ok(())
    }

    /// Now and then: asks for outcomes that shards here wait for, and acknowledges what has come.
    pub fn on_tick(&mut self, wanted: impl IntoIterator<Item = Position>) {
        self.part();
        for peer in self.peers.keys().copied().collect::<Vec<_>>() {
            self.acknowledge(peer, 1);
        }
        let unknown = wanted.into_iter();
        let unknown: Vec<Position> = unknown
            .filter(|it| self.outcomes.get(*it).is_none())
            .collect();
        self.ask(&unknown);
    }

    // ---- inside

    /// What an exchange is asked by its name takes it for one of the program's.
    fn expect_exchange(&self, exchange: ExchangeId, group: GroupId) -> Result<(), NodeError> {
        match self.relations.leads_to(exchange, group) {
            true => Ok(()),
            false => Err(NodeError::UnknownExchange { exchange, group }),
        }
    }

    fn learn_one(&mut self, position: Position, outcome: bool) -> Result<(), NodeError> {
        let Position { stage, turn } = position;
        let end = turn.checked_add(1).ok_or(NodeError::NoTurn(position))?;
        self.learn(stage, turn..end, outcome)
    }

    fn learn(
        &mut self,
        signal: StageId,
        turns: Range<Turn>,
        outcome: bool,
    ) -> Result<(), NodeError> {
        let learnt = self.outcomes.learn(signal, turns.clone(), outcome);
        if learnt.map_err(NodeError::TwoOutcomes)? {
            self.effects.push(Effect::Outcome {
                signal,
                turns,
                outcome,
            });
        }
        Ok(())
    }

    fn end(&mut self, outermost: LoopId) {
        if self.ended.insert(outermost) {
            self.effects.push(Effect::LoopEnd(outermost));
        }
    }

    /// How often the body of an outermost loop ran, when its end is announced here.
    fn turns(&self, outermost: LoopId) -> Turn {
        match self.loops[outermost as usize] {
            ProgramNode::Repeat { turns, .. } => turns,
            ProgramNode::While { test, .. } => self.outcomes.turns_true(test),
            ProgramNode::Stage(_) | ProgramNode::Branch { .. } => unreachable!("not a loop"),
        }
    }
}

/// Whether a task of the program may keep its shard: it is open, and cannot be begun anew.
fn are_kept(spec: &Spec) -> bool {
    spec.streams.iter().any(|it| !it.repeatable) && !mutants::is_on("pieces-wait-for-their-shard")
}

/// Sends what a session has kept.
fn sending<'a>(to: WorkerId) -> impl Fn((Sequence, &'a (Priority, Packet))) -> Effect {
    move |(_, (priority, packet))| Effect::Send {
        to,
        priority: *priority,
        packet: packet.clone(),
    }
}

fn body_of(node: ProgramNode) -> Option<BlockId> {
    match node {
        ProgramNode::Repeat { body, .. } | ProgramNode::While { body, .. } => Some(body),
        ProgramNode::Stage(_) | ProgramNode::Branch { .. } => None,
    }
}
