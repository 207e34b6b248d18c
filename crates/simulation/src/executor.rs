//! What an executor does beside a node, on one thread and without a race: mailboxes, room, outcomes, and who waits for what.
//!
//! It carries out what the node asks for when it is told to ([`SimulatedExecutor::perform`]), so that whoever drives it may do that late, and in any order.

use brambling_exchange::{Acceptance, Item, Parcel, fits};
use brambling_memory::held::{self, Held};
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, LoopId, Position, ShardId, StageId, Turn, Value};
use brambling_protocol::Version;
use brambling_worker::Surroundings;
use brambling_worker::arrivals::{Arrivals, Delivery, NextArrived, TurnPieces};
use brambling_worker::node::{Node, NodeEffect, NodeError, Relations, merged_at};
use brambling_worker::parts::{Packing, Unpacking};
use brambling_worker::piece_data::{Encoded, PieceBytes, PieceData, items};
use brambling_worker::waiting::{ExchangeTurn, WaitingPiece, WaitingRoom};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::task::Waker;

/// How long the parts are in which a shard is packed.
const PART_BYTES: usize = 1 << 10;

/// What a source sends to a destination.
pub enum SentPiece {
    /// As it is, for a shard here; it is encoded if there is none.
    Value(Value),
    /// As it travels, wherever the shard is.
    Encoded(Encoded),
}

/// Shards that were told "no".
#[derive(Default)]
struct RefusedShards {
    room: BTreeMap<ExchangeId, BTreeSet<ShardId>>,
    outcome: BTreeMap<Position, BTreeSet<ShardId>>,
    end: BTreeMap<LoopId, BTreeSet<ShardId>>,
}

/// What came otherwise than once, and before its gather.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArrivalDeeds {
    /// Pieces that came again.
    pub repeats: u64,
    /// Pieces that came when their turn was over.
    pub late: u64,
    /// Pieces that left with their shard.
    pub carried: u64,
}

/// A node, and what its worker keeps for the shards that are here.
pub struct SimulatedExecutor {
    /// Locked as an executor locks it: what needs an interpreter, or a file, must not be done inside.
    node: Mutex<Node>,
    relations: Arc<Relations>,
    waits: WaitingRoom,
    open_turns: u64,
    chunk_bytes: usize,
    shards: BTreeMap<ShardId, Arrivals>,
    /// How many turns destinations have retired, as far as is known here.
    rooms: BTreeMap<(ExchangeId, u32), Turn>,
    outcomes: Vec<(StageId, Range<Turn>, bool)>,
    ended: BTreeSet<LoopId>,
    waiting: RefusedShards,
    /// Shards that something has come for, to be run.
    woken: Vec<ShardId>,
    arrived: ArrivalDeeds,
}

impl SimulatedExecutor {
    /// Beside a node that has as many turns open.
    pub fn new(node: Node, open_turns: u64) -> SimulatedExecutor {
        SimulatedExecutor {
            relations: node.relations().clone(),
            waits: WaitingRoom::new(node.budget().clone(), node.spill().cloned()),
            chunk_bytes: node.chunk_bytes(),
            node: Mutex::new(node),
            open_turns,
            shards: BTreeMap::new(),
            rooms: BTreeMap::new(),
            outcomes: Vec::new(),
            ended: BTreeSet::new(),
            waiting: RefusedShards::default(),
            woken: Vec::new(),
            arrived: ArrivalDeeds::default(),
        }
    }

    /// What came otherwise than once, and before its gather.
    pub fn arrived(&self) -> ArrivalDeeds {
        self.arrived
    }

    /// The node, locked.
    pub fn node(&self) -> Held<'_, Node> {
        held::lock(&self.node)
    }

    /// The shards that are to be run since the last call; some may have left since.
    pub fn take_woken(&mut self) -> Vec<ShardId> {
        std::mem::take(&mut self.woken)
    }

    /// What shards here wait for, of outcomes.
    pub fn wanted(&self) -> Vec<Position> {
        self.waiting.outcome.keys().copied().collect()
    }

    /// A shard starts here, by this version of its entry.
    ///
    /// # Errors
    /// When it cannot be here.
    pub fn settle(&mut self, shard: ShardId, version: Version) -> Result<(), NodeError> {
        let lanes = self.relations.to_group(shard.group).iter().copied();
        let arrivals = Arrivals::new(shard, lanes, self.open_turns);
        self.shards.insert(shard, arrivals);
        self.node().settle(shard, version)
    }

    /// What a shard sees.
    pub fn around(&mut self, shard: ShardId) -> SimulatedView<'_> {
        SimulatedView {
            executor: self,
            shard,
        }
    }

    fn room(&self, exchange: ExchangeId, destination: u32) -> Turn {
        let room = self.rooms.get(&(exchange, destination));
        room.copied().unwrap_or(0)
    }

    fn make_room(&mut self, exchange: ExchangeId, destinations: Range<u32>, turns: Turn) {
        for destination in destinations {
            let room = self.rooms.entry((exchange, destination)).or_default();
            *room = turns.max(*room);
        }
        let waiting = self.waiting.room.remove(&exchange);
        self.woken.extend(waiting.into_iter().flatten());
    }

    // ---- tasks

    /// A scatter has run, with pieces by ascending destination: what is for shards here goes to them, the rest to the node.
    pub fn scattered(
        &mut self,
        shard: ShardId,
        at: ExchangeTurn,
        pieces: impl IntoIterator<Item = (u32, SentPiece)>,
    ) -> Result<(), NodeError> {
        let mut pieces = pieces.into_iter().peekable();
        let source = TreeNode::leaf(shard.index.into());
        if let Some((tree, group)) = self.relations.combining(at.0) {
            let piece = pieces.next().map(|(_, piece)| piece);
            return self.hand_on(at, (tree.next(source), group), source, piece);
        }
        let group = self.relations.destination_group(at.0);
        let related = self.relations.related(at.0, at.1, shard.index);
        let mut elsewhere = Vec::new();
        for index in related.collect::<Vec<_>>() {
            let piece = pieces.next_if(|(to, _)| *to == index);
            let to = ShardId { group, index };
            let piece = match piece.map(|(_, piece)| piece) {
                Some(SentPiece::Encoded(encoded)) => Some(encoded),
                Some(SentPiece::Value(value)) if self.shards.contains_key(&to) => {
                    let kept = self.admit(at, to, PieceData::Value(value))?;
                    self.put(at, to, Item::whole(source, kept))?;
                    continue;
                }
                Some(SentPiece::Value(value)) => Some(encoded(&value)),
                None => None,
            };
            elsewhere.push((index, piece));
        }
        assert!(
            pieces.next().is_none(),
            "a piece for whom the relation does not name"
        );
        self.node().scattered(shard, at, elsewhere)
    }

    fn admit(
        &self,
        at: ExchangeTurn,
        to: ShardId,
        cargo: PieceData,
    ) -> Result<WaitingPiece, NodeError> {
        let lowest = self.room(at.0, to.index);
        let mut admitted = self.waits.admit(at, to, 1, lowest, cargo)?;
        Ok(admitted.next().expect("one for one destination"))
    }

    fn put(
        &mut self,
        at: ExchangeTurn,
        to: ShardId,
        item: Item<WaitingPiece>,
    ) -> Result<(), NodeError> {
        let Some(arrivals) = self.shards.get_mut(&to) else {
            let items = self.as_bytes(item)?;
            let mut node = self.node();
            return items
                .iter()
                .try_for_each(|item| node.give_back(to, at, item));
        };
        let is_piece = matches!(item, Item::Piece { .. });
        let is_late = arrivals.next(at.0) > at.1;
        let accepted = arrivals.accept(Delivery { at, item }, &*self.relations)?;
        if is_piece && accepted == Acceptance::Repeated {
            self.arrived.late += u64::from(is_late);
            self.arrived.repeats += u64::from(!is_late);
        }
        self.woken.push(to);
        Ok(())
    }

    fn as_bytes(&self, item: Item<WaitingPiece>) -> Result<Vec<Item<PieceData>>, NodeError> {
        let mut value = None;
        // A chunk of a stream keeps its number.
        let is_whole = matches!(
            item,
            Item::Piece {
                chunk: 0,
                last: true,
                ..
            }
        );
        let item = item.try_map(|kept| {
            let cargo = kept.leave()?;
            Ok::<_, NodeError>(match &cargo {
                PieceData::Value(it) if !is_whole => PieceData::Bytes(bytes(it)),
                PieceData::Value(it) => {
                    value = Some(encoded(it));
                    cargo
                }
                _ => cargo,
            })
        })?;
        Ok(match (item, value) {
            (Item::Piece { source, .. }, Some(piece)) => {
                items(source, Some(piece), self.chunk_bytes)
            }
            (item, _) => vec![item],
        })
    }

    /// The pieces of a complete turn, for its gather.
    pub fn take(&mut self, shard: ShardId, at: ExchangeTurn) -> Result<TurnPieces, NodeError> {
        let arrivals = self.shards.get_mut(&shard).expect("the shard is here");
        Ok(arrivals.take(at, &*self.relations, &self.waits)?)
    }

    /// The gather has run.
    pub fn gathered(&mut self, shard: ShardId, at: ExchangeTurn) -> Result<(), NodeError> {
        let arrivals = self.shards.get_mut(&shard).expect("the shard is here");
        arrivals.retire(at, &self.waits);
        self.retired(shard, at)
    }

    fn retired(&mut self, shard: ShardId, at: ExchangeTurn) -> Result<(), NodeError> {
        let turns = at.1 + 1;
        self.make_room(at.0, shard.index..shard.index + 1, turns);
        if turns.is_multiple_of((self.open_turns / 2).max(1)) {
            self.node().retired(shard, at.0, turns)?;
        }
        Ok(())
    }

    /// The next chunk that a task takes.
    pub fn next_chunk(
        &mut self,
        shard: ShardId,
        at: ExchangeTurn,
    ) -> Result<NextArrived, NodeError> {
        let arrivals = self.shards.get_mut(&shard).expect("the shard is here");
        let waker = || Waker::noop().clone();
        Ok(arrivals.take_next(at, &*self.relations, &self.waits, waker)?)
    }

    /// Whether there is something for it to take, or the end.
    pub fn has_next(&mut self, shard: ShardId, at: ExchangeTurn) -> bool {
        let arrivals = self.shards.get_mut(&shard).expect("the shard is here");
        arrivals.has_next(at, &*self.relations)
    }

    /// A task that took chunks is done with a turn.
    pub fn taken(&mut self, shard: ShardId, at: ExchangeTurn) -> Result<(), NodeError> {
        let arrivals = self.shards.get_mut(&shard).expect("the shard is here");
        arrivals.end(at, &self.waits);
        self.retired(shard, at)
    }

    /// A task sends a chunk to a destination, by its number; after the last one that there are no more of these.
    pub fn streamed(
        &mut self,
        shard: ShardId,
        at: ExchangeTurn,
        to: u32,
        (chunk, value): (u32, Option<Value>),
    ) -> Result<(), NodeError> {
        let source = TreeNode::leaf(shard.index.into());
        let group = self.relations.destination_group(at.0);
        let to = ShardId { group, index: to };
        let last = value.is_none();
        if chunk == 0 && last {
            let sources = source.leaves().expect("a leaf");
            return self.put(at, to, Item::Empty { sources });
        }
        let kept = match value {
            Some(value) => self.admit(at, to, PieceData::Value(value))?,
            None => WaitingPiece::uncounted(PieceData::Bytes(PieceBytes::new())),
        };
        let item = Item::Piece {
            source,
            chunk,
            last,
            payload: kept,
        };
        self.put(at, to, item)
    }

    /// Whom a shard may send to at a turn.
    pub fn related(&self, at: ExchangeTurn, source: u32) -> Vec<u32> {
        self.relations.related(at.0, at.1, source).collect()
    }

    /// A signal is given.
    pub fn decided(&mut self, at: Position, outcome: bool) -> Result<(), NodeError> {
        self.node().decided(at, outcome, None)
    }

    // ---- what is merged on its way

    fn hand_on(
        &mut self,
        at: ExchangeTurn,
        (to, group): (Option<u32>, brambling_program::GroupId),
        source: TreeNode,
        piece: Option<SentPiece>,
    ) -> Result<(), NodeError> {
        let relay = to.map(|index| ShardId { group, index });
        let here = relay.filter(|relay| self.shards.contains_key(relay));
        let piece = match (piece, here) {
            (Some(SentPiece::Value(value)), Some(relay)) => {
                let kept = self.admit_to_merge(at, relay, PieceData::Value(value))?;
                return self.node().meet(relay, at, Item::whole(source, kept));
            }
            (Some(SentPiece::Value(value)), None) => Some(encoded(&value)),
            (Some(SentPiece::Encoded(piece)), _) => Some(piece),
            (None, _) => None,
        };
        self.node().send_on(at, to, source, piece)
    }

    fn admit_to_merge(
        &self,
        at: ExchangeTurn,
        relay: ShardId,
        cargo: PieceData,
    ) -> Result<WaitingPiece, NodeError> {
        let lowest = {
            let node = self.node();
            match node.spill() {
                Some(_) => node.lowest_merged(at.0),
                None => at.1,
            }
        };
        let mut admitted = self.waits.admit(at, relay, 1, lowest, cargo)?;
        Ok(admitted.next().expect("one for one shard"))
    }

    /// The pieces of a group of sources whose all is here.
    pub fn take_group(&mut self, at: ExchangeTurn, group: TreeNode) -> Result<Merging, NodeError> {
        let pieces = self.node().take_group(at, group);
        let (_, sources) = self.relations.combining(at.0).expect("it has met");
        Ok((self.waits).take_to_merge(at, merged_at(sources, group), pieces)?)
    }

    /// What they make together goes on.
    pub fn combined(
        &mut self,
        at: ExchangeTurn,
        group: TreeNode,
        piece: SentPiece,
    ) -> Result<(), NodeError> {
        self.node().merged(at, group);
        let (tree, sources) = self.relations.combining(at.0).expect("it has met");
        self.hand_on(at, (tree.next(group), sources), group, Some(piece))
    }

    // ---- what the node asks for

    /// Carries out an effect; gives back those that concern the world, or shards themselves.
    pub fn perform(&mut self, effect: NodeEffect) -> Result<Option<NodeEffect>, NodeError> {
        match effect {
            NodeEffect::Deliver(parcel, _outside) => self.deliver(parcel)?,
            NodeEffect::Meet(parcel, _outside) => self.meet(parcel)?,
            NodeEffect::Pass {
                at,
                to,
                item,
                outside: _outside,
            } => {
                let items = self.as_bytes(item)?;
                let mut node = self.node();
                items.iter().try_for_each(|item| node.pass(at, to, item))?;
            }
            NodeEffect::Room {
                exchange,
                destinations,
                turns,
            } => self.make_room(exchange, destinations, turns),
            NodeEffect::Outcome {
                signal,
                turns,
                outcome,
            } => self.learn(signal, turns, outcome),
            NodeEffect::LoopEnd(outermost) => {
                self.ended.insert(outermost);
                let waiting = self.waiting.end.remove(&outermost);
                self.woken.extend(waiting.into_iter().flatten());
            }
            NodeEffect::Errand(errand) => {
                if let Some((parcel, _outside)) = errand.run()? {
                    self.node().go_on(&parcel)?;
                }
            }
            NodeEffect::Settle { shard, mut body } => {
                // The node says that it is here: there is a place for what comes, whether or not what it has brought can be read.
                let lanes = self.relations.to_group(shard.group).iter().copied();
                let empty = Arrivals::new(shard, lanes, self.open_turns);
                self.shards.insert(shard, empty);
                self.unpack(shard, &mut body)?;
                return Ok(Some(NodeEffect::Settle { shard, body }));
            }
            effect => return Ok(Some(effect)),
        }
        Ok(None)
    }

    fn deliver(&mut self, parcel: Parcel<PieceData>) -> Result<(), NodeError> {
        let at = (parcel.exchange, parcel.turn);
        let group = parcel.group;
        let destinations = parcel.destinations;
        let first = ShardId {
            group,
            index: destinations.start,
        };
        let rooms = destinations.clone().map(|index| self.room(at.0, index));
        let lowest = rooms.max().unwrap_or(0);
        let items = self
            .waits
            .share(at, first, destinations.len(), lowest, parcel.item)?;
        for (index, item) in destinations.zip(items) {
            self.put(at, ShardId { group, index }, item)?;
        }
        Ok(())
    }

    fn meet(&mut self, parcel: Parcel<PieceData>) -> Result<(), NodeError> {
        let at = (parcel.exchange, parcel.turn);
        for index in parcel.destinations {
            let relay = ShardId {
                group: parcel.group,
                index,
            };
            let item = parcel.item.clone();
            let item = item.try_map(|cargo| self.admit_to_merge(at, relay, cargo))?;
            self.node().meet(relay, at, item)?;
        }
        Ok(())
    }

    fn learn(&mut self, signal: StageId, turns: Range<Turn>, outcome: bool) {
        let at = |turn| Position {
            stage: signal,
            turn,
        };
        let its = self.waiting.outcome.range(at(turns.start)..at(turns.end));
        for position in its.map(|(position, _)| *position).collect::<Vec<_>>() {
            let waiting = self.waiting.outcome.remove(&position);
            self.woken.extend(waiting.into_iter().flatten());
        }
        self.outcomes.push((signal, turns, outcome));
    }

    // ---- moves

    /// A flagged shard of which no task runs leaves with `body`.
    pub fn depart(&mut self, shard: ShardId, body: &[u8]) -> Result<(), NodeError> {
        self.node().leave(shard);
        let arrivals = self.shards.remove(&shard).expect("the shard is here");
        let lanes = self.relations.to_group(shard.group).iter();
        let retired = lanes.map(|&lane| (lane, arrivals.next(lane)));
        let retired = retired.filter(|(_, turns)| *turns > 0).collect();
        let mut packing = Packing::new(self.waits.budget(), PART_BYTES);
        let state = arrivals.pack(&mut packing).map_err(NodeError::Spilled)?;
        let turns = state.exchanges.iter().flat_map(|it| &it.turns);
        self.arrived.carried += turns.map(|it| it.pieces.len() as u64).sum::<u64>();
        packing.copy(body);
        let body = packing.finish(&state);
        self.node().depart(shard, retired, body)
    }

    /// Leaves what the shard was packed with.
    fn unpack(&mut self, shard: ShardId, from: &mut Unpacking) -> Result<(), NodeError> {
        let state = from.header().ok_or(NodeError::State(shard))?;
        let lanes = self.relations.to_group(shard.group).iter().copied();
        let (relations, waits) = (&*self.relations, &self.waits);
        let arrivals =
            Arrivals::unpack(shard, lanes, self.open_turns, state, from, relations, waits)?;
        self.shards.insert(shard, arrivals);
        self.woken.push(shard);
        Ok(())
    }
}

/// What is to be merged: its pieces, and how they count until what they make has gone on.
pub type Merging = (
    Vec<brambling_worker::piece_data::Taken>,
    brambling_worker::waiting::Charges,
);

fn encoded(value: &Value) -> Encoded {
    bytes(value).into()
}

fn bytes(value: &Value) -> PieceBytes {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes.into()
}

/// What a shard sees of the world.
pub struct SimulatedView<'a> {
    executor: &'a mut SimulatedExecutor,
    shard: ShardId,
}

impl Surroundings for SimulatedView<'_> {
    fn is_complete(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        let arrivals = &self.executor.shards[&self.shard];
        arrivals.is_complete((exchange, turn), &*self.executor.relations)
    }

    fn has_room(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        let executor = &mut *self.executor;
        let related = executor.relations.related(exchange, turn, self.shard.index);
        let has_room = {
            let mut related = related;
            related.all(|index| fits(turn, executor.room(exchange, index), executor.open_turns))
        };
        if !has_room {
            let waiting = executor.waiting.room.entry(exchange).or_default();
            waiting.insert(self.shard);
        }
        has_room
    }

    fn outcome(&mut self, signal: StageId, turn: Turn) -> Option<bool> {
        let known = self.executor.outcomes.iter();
        let mut its = known.filter(|it| it.0 == signal && it.1.contains(&turn));
        let outcome = its.next().map(|it| it.2);
        if outcome.is_none() {
            let position = Position {
                stage: signal,
                turn,
            };
            let waiting = self.executor.waiting.outcome.entry(position).or_default();
            waiting.insert(self.shard);
        }
        outcome
    }

    fn has_ended(&mut self, outermost: LoopId) -> bool {
        let has_ended = self.executor.ended.contains(&outermost);
        if !has_ended {
            let waiting = self.executor.waiting.end.entry(outermost).or_default();
            waiting.insert(self.shard);
        }
        has_ended
    }

    fn announce(&mut self, outermost: LoopId) {
        self.executor.node().announce(outermost);
    }
}
