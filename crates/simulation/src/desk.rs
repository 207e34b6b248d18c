//! What an executor does beside a node, on one thread and without a race: mailboxes, room, outcomes, and who waits for what.
//!
//! It carries out what the node asks for when it is told to ([`Desk::perform`]), so that whoever drives it may do that late, and in any order.

use brambling_exchange::{Item, Parcel, fits};
use brambling_memory::held::{self, Held};
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, LoopId, Position, ShardId, StageId, Turn, Value};
use brambling_protocol::Version;
use brambling_worker::Surroundings;
use brambling_worker::arrivals::{Arrivals, Chunk, Letter, Pieces};
use brambling_worker::cargo::{Bytes, Cargo, Encoded, items};
use brambling_worker::node::{Effect, Node, NodeError, Relations, merged_at};
use brambling_worker::parts::{Packing, Unpacking};
use brambling_worker::waits::{At, Kept, Waits};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::task::Poll;

/// How long the parts are in which a shard is packed.
const PART_BYTES: usize = 1 << 10;

/// What a source sends to a destination.
pub enum Piece {
    /// As it is, for a shard here; it is encoded if there is none.
    Value(Value),
    /// As it travels, wherever the shard is.
    Encoded(Encoded),
}

/// Shards that were told "no".
#[derive(Default)]
struct Waiting {
    room: BTreeMap<ExchangeId, BTreeSet<ShardId>>,
    outcome: BTreeMap<Position, BTreeSet<ShardId>>,
    end: BTreeMap<LoopId, BTreeSet<ShardId>>,
}

/// A node, and what its worker keeps for the shards that are here.
pub struct Desk {
    /// Locked as an executor locks it: what needs an interpreter, or a file, must not be done inside.
    node: Mutex<Node>,
    relations: Arc<Relations>,
    waits: Waits,
    open_turns: u64,
    chunk_bytes: usize,
    shards: BTreeMap<ShardId, Arrivals>,
    /// How many turns destinations have retired, as far as is known here.
    rooms: BTreeMap<(ExchangeId, u32), Turn>,
    outcomes: Vec<(StageId, Range<Turn>, bool)>,
    ended: BTreeSet<LoopId>,
    waiting: Waiting,
    /// Shards that something has come for, to be run.
    woken: Vec<ShardId>,
}

impl Desk {
    /// Beside a node that has as many turns open.
    pub fn new(node: Node, open_turns: u64) -> Desk {
        Desk {
            relations: node.relations().clone(),
            waits: Waits::new(node.budget().clone(), node.spill().cloned()),
            chunk_bytes: node.chunk_bytes(),
            node: Mutex::new(node),
            open_turns,
            shards: BTreeMap::new(),
            rooms: BTreeMap::new(),
            outcomes: Vec::new(),
            ended: BTreeSet::new(),
            waiting: Waiting::default(),
            woken: Vec::new(),
        }
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
    pub fn around(&mut self, shard: ShardId) -> Around<'_> {
        Around { desk: self, shard }
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
        at: At,
        pieces: impl IntoIterator<Item = (u32, Piece)>,
    ) -> Result<(), NodeError> {
        let mut pieces = pieces.into_iter().peekable();
        let source = TreeNode::leaf(shard.index.into());
        if let Some((tree, group)) = self.relations.combining(at.0) {
            let piece = pieces.next().map(|(_, piece)| piece);
            return self.hand_on(at, (tree.next(source), group), source, piece);
        }
        let group = self.relations.destination_group(at.0);
        let related = self.relations.related(at.0, at.1, shard.index);
        let mut far = Vec::new();
        for index in related.collect::<Vec<_>>() {
            let piece = pieces.next_if(|(to, _)| *to == index);
            let to = ShardId { group, index };
            let piece = match piece.map(|(_, piece)| piece) {
                Some(Piece::Encoded(encoded)) => Some(encoded),
                Some(Piece::Value(value)) if self.shards.contains_key(&to) => {
                    let kept = self.admit(at, to, Cargo::Value(value))?;
                    self.put(at, to, Item::whole(source, kept))?;
                    continue;
                }
                Some(Piece::Value(value)) => Some(encoded(&value)),
                None => None,
            };
            far.push((index, piece));
        }
        assert!(
            pieces.next().is_none(),
            "a piece for whom the relation does not name"
        );
        self.node().scattered(shard, at, far)
    }

    fn admit(&self, at: At, to: ShardId, cargo: Cargo) -> Result<Kept, NodeError> {
        let lowest = self.room(at.0, to.index);
        let mut admitted = self.waits.admit(at, to, 1, lowest, cargo)?;
        Ok(admitted.next().expect("one for one destination"))
    }

    fn put(&mut self, at: At, to: ShardId, item: Item<Kept>) -> Result<(), NodeError> {
        let Some(arrivals) = self.shards.get_mut(&to) else {
            let items = self.as_bytes(item)?;
            let mut node = self.node();
            return items
                .iter()
                .try_for_each(|item| node.give_back(to, at, item));
        };
        arrivals.accept(Letter { at, item }, &*self.relations)?;
        self.woken.push(to);
        Ok(())
    }

    fn as_bytes(&self, item: Item<Kept>) -> Result<Vec<Item<Cargo>>, NodeError> {
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
                Cargo::Value(it) if !is_whole => Cargo::Bytes(bytes(it)),
                Cargo::Value(it) => {
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
    pub fn take(&mut self, shard: ShardId, at: At) -> Result<Pieces, NodeError> {
        let arrivals = self.shards.get_mut(&shard).expect("the shard is here");
        Ok(arrivals.take(at, &*self.relations, &self.waits)?)
    }

    /// The gather has run.
    pub fn gathered(&mut self, shard: ShardId, at: At) -> Result<(), NodeError> {
        let arrivals = self.shards.get_mut(&shard).expect("the shard is here");
        arrivals.retire(at, &self.waits);
        self.retired(shard, at)
    }

    fn retired(&mut self, shard: ShardId, at: At) -> Result<(), NodeError> {
        let turns = at.1 + 1;
        self.make_room(at.0, shard.index..shard.index + 1, turns);
        if turns.is_multiple_of((self.open_turns / 2).max(1)) {
            self.node().retired(shard, at.0, turns)?;
        }
        Ok(())
    }

    /// The next chunk that a task takes.
    pub fn next_chunk(&mut self, shard: ShardId, at: At) -> Result<Poll<Option<Chunk>>, NodeError> {
        let arrivals = self.shards.get_mut(&shard).expect("the shard is here");
        Ok(arrivals.take_next(at, &*self.relations, &self.waits)?)
    }

    /// Whether there is something for it to take, or the end.
    pub fn has_next(&mut self, shard: ShardId, at: At) -> bool {
        let arrivals = self.shards.get_mut(&shard).expect("the shard is here");
        arrivals.has_next(at, &*self.relations)
    }

    /// A task that took chunks is done with a turn.
    pub fn taken(&mut self, shard: ShardId, at: At) -> Result<(), NodeError> {
        let arrivals = self.shards.get_mut(&shard).expect("the shard is here");
        arrivals.end(at, &self.waits);
        self.retired(shard, at)
    }

    /// A task sends a chunk to a destination, by its number; after the last one that there are no more of these.
    pub fn streamed(
        &mut self,
        shard: ShardId,
        at: At,
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
            Some(value) => self.admit(at, to, Cargo::Value(value))?,
            None => Kept::uncounted(Cargo::Bytes(Bytes::new())),
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
    pub fn related(&self, at: At, source: u32) -> Vec<u32> {
        self.relations.related(at.0, at.1, source).collect()
    }

    /// A signal is given.
    pub fn decided(&mut self, at: Position, outcome: bool) -> Result<(), NodeError> {
        self.node().decided(at, outcome)
    }

    // ---- what is merged on its way

    fn hand_on(
        &mut self,
        at: At,
        (to, group): (Option<u32>, brambling_program::GroupId),
        source: TreeNode,
        piece: Option<Piece>,
    ) -> Result<(), NodeError> {
        let relay = to.map(|index| ShardId { group, index });
        let here = relay.filter(|relay| self.shards.contains_key(relay));
        let piece = match (piece, here) {
            (Some(Piece::Value(value)), Some(relay)) => {
                let kept = self.admit_to_merge(at, relay, Cargo::Value(value))?;
                return self.node().meet(relay, at, Item::whole(source, kept));
            }
            (Some(Piece::Value(value)), None) => Some(encoded(&value)),
            (Some(Piece::Encoded(piece)), _) => Some(piece),
            (None, _) => None,
        };
        self.node().send_on(at, to, source, piece)
    }

    fn admit_to_merge(&self, at: At, relay: ShardId, cargo: Cargo) -> Result<Kept, NodeError> {
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
    pub fn take_group(&mut self, at: At, group: TreeNode) -> Result<Merging, NodeError> {
        let pieces = self.node().take_group(at, group);
        let (_, sources) = self.relations.combining(at.0).expect("it has met");
        Ok((self.waits).take_to_merge(at, merged_at(sources, group), pieces)?)
    }

    /// What they make together goes on.
    pub fn combined(&mut self, at: At, group: TreeNode, piece: Piece) -> Result<(), NodeError> {
        self.node().merged(at, group);
        let (tree, sources) = self.relations.combining(at.0).expect("it has met");
        self.hand_on(at, (tree.next(group), sources), group, Some(piece))
    }

    // ---- what the node asks for

    /// Carries out an effect; gives back those that concern the world, or shards themselves.
    pub fn perform(&mut self, effect: Effect) -> Result<Option<Effect>, NodeError> {
        match effect {
            Effect::Deliver(parcel, _outside) => self.deliver(parcel)?,
            Effect::Meet(parcel, _outside) => self.meet(parcel)?,
            Effect::Pass {
                at,
                to,
                item,
                outside: _outside,
            } => {
                let items = self.as_bytes(item)?;
                let mut node = self.node();
                items.iter().try_for_each(|item| node.pass(at, to, item))?;
            }
            Effect::Room {
                exchange,
                destinations,
                turns,
            } => self.make_room(exchange, destinations, turns),
            Effect::Outcome {
                signal,
                turns,
                outcome,
            } => self.learn(signal, turns, outcome),
            Effect::LoopEnd(outermost) => {
                self.ended.insert(outermost);
                let waiting = self.waiting.end.remove(&outermost);
                self.woken.extend(waiting.into_iter().flatten());
            }
            Effect::Errand(errand) => {
                if let Some((parcel, _outside)) = errand.run()? {
                    self.node().go_on(&parcel)?;
                }
            }
            Effect::Settle { shard, mut body } => {
                // The node says that it is here: there is a place for what comes, whether or not what it has brought can be read.
                let lanes = self.relations.to_group(shard.group).iter().copied();
                let empty = Arrivals::new(shard, lanes, self.open_turns);
                self.shards.insert(shard, empty);
                self.unpack(shard, &mut body)?;
                return Ok(Some(Effect::Settle { shard, body }));
            }
            effect => return Ok(Some(effect)),
        }
        Ok(None)
    }

    fn deliver(&mut self, parcel: Parcel<Cargo>) -> Result<(), NodeError> {
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

    fn meet(&mut self, parcel: Parcel<Cargo>) -> Result<(), NodeError> {
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
    Vec<brambling_worker::cargo::Taken>,
    brambling_worker::waits::Charges,
);

fn encoded(value: &Value) -> Encoded {
    bytes(value).into()
}

fn bytes(value: &Value) -> Bytes {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes.into()
}

/// What a shard sees of the world.
pub struct Around<'a> {
    desk: &'a mut Desk,
    shard: ShardId,
}

impl Surroundings for Around<'_> {
    fn is_complete(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        let arrivals = &self.desk.shards[&self.shard];
        arrivals.is_complete((exchange, turn), &*self.desk.relations)
    }

    fn has_room(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        let desk = &mut *self.desk;
        let related = desk.relations.related(exchange, turn, self.shard.index);
        let has_room = {
            let mut related = related;
            related.all(|index| fits(turn, desk.room(exchange, index), desk.open_turns))
        };
        if !has_room {
            let waiting = desk.waiting.room.entry(exchange).or_default();
            waiting.insert(self.shard);
        }
        has_room
    }

    fn outcome(&mut self, signal: StageId, turn: Turn) -> Option<bool> {
        let known = self.desk.outcomes.iter();
        let mut its = known.filter(|it| it.0 == signal && it.1.contains(&turn));
        let outcome = its.next().map(|it| it.2);
        if outcome.is_none() {
            let position = Position {
                stage: signal,
                turn,
            };
            let waiting = self.desk.waiting.outcome.entry(position).or_default();
            waiting.insert(self.shard);
        }
        outcome
    }

    fn has_ended(&mut self, outermost: LoopId) -> bool {
        let has_ended = self.desk.ended.contains(&outermost);
        if !has_ended {
            let waiting = self.desk.waiting.end.entry(outermost).or_default();
            waiting.insert(self.shard);
        }
        has_ended
    }

    fn announce(&mut self, outermost: LoopId) {
        self.desk.node().announce(outermost);
    }
}
