//! Owns what becomes of a parcel that arrives at a worker: it is delivered, forwarded, sent back or
//! held. The worker's node calls it, and carries out its effects. It never decodes a piece.
//!
//! # Rules
//! For each destination of a parcel:
//! * it is here: *deliver*, whatever the versions say, because the inbox moves with the shard;
//! * the map here is newer than the sender's and names another worker: *forward* there with the version
//!   of the map here, and send that entry back;
//! * tasks may keep their shards, the map here names this worker, and the shard's last holder has not let it go as far as is known here: *send back* there,
//!   since a task of the shard may wait for it before it leaves;
//! * otherwise *hold*, equal versions included: the shard is on its way here, or news is.
//!
//! A parcel of an older generation is dropped, one of a newer generation is held until the job gets
//! there. Every update of the map re-examines what is held.
//!
//! # Why a parcel arrives
//! A parcel that is forwarded carries a strictly larger version each time, so it is forwarded at most as
//! often as its shard moves. One that is sent back carries a smaller one, once for each move: a holder that has let the shard go forwards it, and what
//! comes from the holder is held. A parcel that is held waits for the shard, which brings it out, or for news,
//! which is an update of the map. Both come: the map's updates reach every worker, and the last of them
//! names the worker to which the shard is sent.

use crate::parcel::{Parcel, PayloadWeight};
use crate::room::{NoRoom, PieceRoom};
use brambling_memory::{Class, Reservation, mutants};
use brambling_program::ShardId;
use brambling_protocol::{
    Applied, Entry, EntryRange, Generation, MapError, PartitionMap, Version, WorkerId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

/// What the worker has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RouterEffect<P> {
    /// Put the item into the inbox of each destination: all are here.
    Deliver(Parcel<P>),
    /// Send it on, in the last priority class.
    Forward {
        /// Who holds the destinations, as far as known here.
        to: WorkerId,
        /// The parcel, with the version known here.
        parcel: Parcel<P>,
    },
    /// Tell a sender what it did not know.
    SendEntry {
        /// The sender.
        to: WorkerId,
        /// The news.
        entry: EntryRange,
    },
}

/// Why an arrival cannot be routed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouterError {
    /// The program has no such destination.
    #[error("a parcel or update for shards that the program does not have")]
    Map(#[from] MapError),
    /// Nothing more can be held.
    #[error("a piece that has to be held cannot be")]
    NoRoom(#[from] NoRoom),
}

#[derive(Debug)]
struct Held<P> {
    from: WorkerId,
    /// For one destination.
    parcel: Parcel<P>,
    room: Reservation,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RoutingDecision {
    Deliver,
    Forward(Entry),
    /// To the last holder, by a version before that which names this worker. Once it has let the shard go what was sent comes again.
    Back(Entry),
    Hold,
}

/// What a worker knows about where one job's shards are, and what waits until it knows more.
#[derive(Debug)]
pub struct Router<P> {
    me: WorkerId,
    generation: Generation,
    map: PartitionMap,
    here: BTreeSet<ShardId>,
    held: BTreeMap<ShardId, Vec<Held<P>>>,
    /// Of generations that this worker has not reached, in the order of arrival.
    ahead: BTreeMap<Generation, Vec<(WorkerId, Parcel<P>, Reservation)>>,
    room: PieceRoom,
    /// Whether tasks may keep their shards, which then wait for what is sent to them.
    are_kept: bool,
    /// Who holds a shard that is to come here.
    holders: BTreeMap<ShardId, WorkerId>,
}

impl<P: Clone + PayloadWeight> Router<P> {
    /// The router of worker `me` for a job, with no shard here yet. What it holds has its `room`.
    pub fn new(
        me: WorkerId,
        generation: Generation,
        map: PartitionMap,
        room: PieceRoom,
    ) -> Router<P> {
        let (here, held, ahead) = Default::default();
        Router {
            me,
            generation,
            map,
            here,
            held,
            ahead,
            room,
            are_kept: false,
            holders: BTreeMap::new(),
        }
    }

    /// The same, of a job in which tasks may keep their shards for a while.
    #[must_use]
    pub fn whose_shards_are_kept(mut self, are_kept: bool) -> Self {
        self.are_kept = are_kept;
        self
    }

    /// A shard is to come here, and somebody holds it.
    pub fn expect(&mut self, shard: ShardId, holder: WorkerId) {
        if self.are_kept {
            self.holders.insert(shard, holder);
        }
    }

    /// Who may need what is for a shard that is to come here: where it goes, and by which version. Not what comes from there by the version that names
    /// this worker: the holder says that when it has let the shard go. By an earlier one it may have sent it long ago.
    pub fn holder(&self, shard: ShardId, (from, version): (WorkerId, Version)) -> Option<Entry> {
        let owner = *self.holders.get(&shard)?;
        let entry = self.map.entry(shard).ok().flatten();
        let entry = entry.filter(|entry| entry.owner == self.me)?;
        let was_let_go = from == owner && version >= entry.version;
        // Smaller than the version that names this worker: a holder that has let the shard go knows
        // a newer one, and forwards by that.
        let version = entry.version.saturating_sub(1);
        (!was_let_go).then_some(Entry { owner, version })
    }

    /// The map as far as it is known here.
    pub fn map(&self) -> &PartitionMap {
        &self.map
    }

    /// Whether the shard is here.
    pub fn is_here(&self, shard: ShardId) -> bool {
        self.here.contains(&shard)
    }

    /// The shards that are here, ascending.
    pub fn here(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.here.iter().copied()
    }

    /// Those of them within a range.
    pub fn here_in(&self, range: impl RangeBounds<ShardId>) -> impl Iterator<Item = ShardId> + '_ {
        self.here.range(range).copied()
    }

    /// How many parcels wait here, each counted once per destination.
    pub fn held(&self) -> usize {
        self.held.values().map(Vec::len).sum::<usize>()
            + self.ahead.values().map(Vec::len).sum::<usize>()
    }

    /// A parcel has arrived from a peer, or from a shard of this worker.
    pub fn receive(
        &mut self,
        from: WorkerId,
        generation: Generation,
        mut parcel: Parcel<P>,
        effects: &mut Vec<RouterEffect<P>>,
    ) -> Result<(), RouterError> {
        // Looked up before anything is kept: a hostile range must not cost memory.
        let known = self.map.runs(parcel.group, parcel.destinations.clone())?;
        drop(known);
        // Parcels of an ended generation may still be on their way, and belong to nobody.
        if generation < self.generation && !mutants::is_on("router-takes-older-generations") {
            return Ok(());
        }
        if generation > self.generation {
            if mutants::is_on("router-drops-newer-generations") {
                return Ok(());
            }
            let shard = ShardId {
                group: parcel.group,
                index: parcel.destinations.start,
            };
            let at = (parcel.exchange, parcel.turn, shard);
            let piece = parcel.item.payload_mut();
            let room = self
                .room
                // Nobody here waits for the parcel yet, so it must not take the floor of those that
                // are waited for.
                .admit(at, Class::Early, piece, held_bytes::<P>())?;
            self.ahead
                .entry(generation)
                .or_default()
                .push((from, parcel, room));
            return Ok(());
        }
        self.route(from, parcel, effects)
    }

    /// News for the map. Re-examines what is held for the shards that it names.
    ///
    /// Insensitive to order and repetition.
    pub fn on_update(
        &mut self,
        update: &EntryRange,
        effects: &mut Vec<RouterEffect<P>>,
    ) -> Result<Applied, RouterError> {
        let applied = self.map.apply(update)?;
        // Older news decide nothing that was not decided.
        if applied == Applied::Ignored || mutants::is_on("router-forgets-what-it-holds") {
            return Ok(applied);
        }
        let shard = |index| ShardId {
            group: update.group,
            index,
        };
        let named = self.held.range(shard(update.first)..shard(update.end));
        for shard in named.map(|(&shard, _)| shard).collect::<Vec<_>>() {
            self.examine(shard, effects);
        }
        Ok(applied)
    }

    /// The shard is here now, with its inbox: brings out what was held for it.
    pub fn arrive(&mut self, shard: ShardId, effects: &mut Vec<RouterEffect<P>>) {
        self.here.insert(shard);
        // No other worker holds the shard any more, so nothing goes back to one.
        self.holders.remove(&shard);
        self.examine(shard, effects);
    }

    /// The shard is no longer here. Call it when its inbox is exported, not earlier or later.
    pub fn leave(&mut self, shard: ShardId) {
        self.here.remove(&shard);
    }

    /// The job was recovered: no shard is here until it arrives again, what belongs to older generations
    /// is dropped, and what was held for this one is routed.
    ///
    /// # Panics
    /// If the generation does not grow.
    pub fn advance(
        &mut self,
        generation: Generation,
        effects: &mut Vec<RouterEffect<P>>,
    ) -> Result<(), RouterError> {
        assert!(generation > self.generation, "generations only grow");
        self.generation = generation;
        // Shards of the new generation arrive anew; what was held for the old one is nobody's.
        self.here.clear();
        self.held.clear();
        let later = self
            .ahead
            .split_off(&Generation(generation.0.saturating_add(1)));
        let mut reached = std::mem::replace(&mut self.ahead, later);
        for (from, parcel, room) in reached.remove(&generation).unwrap_or_default() {
            // The parcel is routed now, and counts where that leads: counted twice, it would take
            // room from the floor.
            drop(room);
            self.route(from, parcel, effects)?;
        }
        Ok(())
    }

    fn route(
        &mut self,
        from: WorkerId,
        parcel: Parcel<P>,
        effects: &mut Vec<RouterEffect<P>>,
    ) -> Result<(), RouterError> {
        let mut start = parcel.destinations.start;
        while start < parcel.destinations.end {
            // As far as the decision is the same.
            let way = self.way(from, &parcel, start);
            let mut end = start + 1;
            // One parcel for a run of destinations: a broadcast to a thousand shards here is
            // delivered as one.
            while end < parcel.destinations.end && self.way(from, &parcel, end) == way {
                end += 1;
            }
            let mut part = Parcel {
                destinations: start..end,
                ..parcel.clone()
            };
            match way {
                RoutingDecision::Deliver => effects.push(RouterEffect::Deliver(part)),
                RoutingDecision::Forward(entry) => self.forward(from, part, entry, effects),
                RoutingDecision::Back(holder) => effects.push(back(holder, part)),
                RoutingDecision::Hold => {
                    (start..end).try_for_each(|index| self.hold(from, &mut part, index))?
                }
            }
            start = end;
        }
        Ok(())
    }

    fn way(&self, from: WorkerId, parcel: &Parcel<P>, index: u32) -> RoutingDecision {
        let version = parcel.version;
        let group = parcel.group;
        let shard = ShardId { group, index };
        // Whoever holds the shard takes what is for it, whatever the versions say.
        if self.here.contains(&shard) {
            return RoutingDecision::Deliver;
        }
        match self.map.entry(shard) {
            // Only by a newer version: two workers of equal knowledge would else send the parcel to
            // and fro.
            Ok(Some(entry)) if entry.owner != self.me && is_newer(entry.version, version) => {
                RoutingDecision::Forward(entry)
            }
            _ => (self.holder(shard, (from, version)))
                .map_or(RoutingDecision::Hold, RoutingDecision::Back),
        }
    }

    fn hold(&mut self, from: WorkerId, parcel: &mut Parcel<P>, index: u32) -> Result<(), NoRoom> {
        let shard = ShardId {
            group: parcel.group,
            index,
        };
        let Parcel { exchange, turn, .. } = *parcel;
        let held = self.held.entry(shard).or_default();
        // The destination's inbox is elsewhere: the lowest turn seen so far stands for the lowest open.
        let same = |held: &&mut Held<P>| held.parcel.exchange == exchange;
        let lowest = held
            .iter_mut()
            .filter(same)
            .map(|held| held.parcel.turn)
            .min();
        // The turn that was the lowest until now is no longer the first that is waited for.
        if lowest.is_some_and(|lowest| turn < lowest) {
            for later in held.iter_mut().filter(same) {
                // A parcel that finds no room among early pieces keeps the room that it was
                // granted.
                let _ = later
                    .room
                    .move_to(PieceRoom::class(later.parcel.turn, turn));
            }
        }
        let lowest = lowest.map_or(turn, |lowest| lowest.min(turn));
        // A piece that can be spilled leaves the floor to pieces that are waited for here.
        let class = match self.room.spill() {
            Some(_) => Class::Early,
            None => PieceRoom::class(turn, lowest),
        };
        let piece = parcel.item.payload_mut();
        // A piece for several destinations is spilled once.
        let room = (self.room).admit((exchange, turn, shard), class, piece, held_bytes::<P>())?;
        let parcel = Parcel {
            destinations: index..index + 1,
            ..parcel.clone()
        };
        held.push(Held { from, parcel, room });
        Ok(())
    }

    /// Looks again at what is held for a shard.
    fn examine(&mut self, shard: ShardId, effects: &mut Vec<RouterEffect<P>>) {
        let Some(held) = self.held.remove(&shard) else {
            return;
        };
        let mut still = Vec::new();
        for held in held {
            match self.way(held.from, &held.parcel, shard.index) {
                RoutingDecision::Deliver => effects.push(RouterEffect::Deliver(held.parcel)),
                RoutingDecision::Back(holder) => effects.push(back(holder, held.parcel)),
                RoutingDecision::Forward(entry) => {
                    self.forward(held.from, held.parcel, entry, effects)
                }
                RoutingDecision::Hold => still.push(held),
            }
        }
        if !still.is_empty() {
            self.held.insert(shard, still);
        }
    }

    fn forward(
        &self,
        from: WorkerId,
        parcel: Parcel<P>,
        entry: Entry,
        effects: &mut Vec<RouterEffect<P>>,
    ) {
        let (first, end) = (parcel.destinations.start, parcel.destinations.end);
        let known = EntryRange {
            group: parcel.group,
            first,
            end,
            entry,
        };
        let parcel = Parcel {
            version: entry.version,
            ..parcel
        };
        effects.push(RouterEffect::Forward {
            to: entry.owner,
            parcel,
        });
        // Whoever sent it learns the version, and sends the next piece there at once.
        if from != self.me {
            effects.push(RouterEffect::SendEntry {
                to: from,
                entry: known,
            });
        }
    }
}

fn back<P>(holder: Entry, parcel: Parcel<P>) -> RouterEffect<P> {
    let (to, version) = (holder.owner, holder.version);
    let parcel = Parcel { version, ..parcel };
    RouterEffect::Forward { to, parcel }
}

fn is_newer(mine: Version, theirs: Version) -> bool {
    if mutants::is_on("router-forwards-to-older") {
        return mine != theirs;
    }
    mine > theirs && !mutants::is_on("router-never-forwards")
}

/// What a held parcel costs beside its piece: also an empty mark takes memory.
fn held_bytes<P>() -> u64 {
    size_of::<Held<P>>() as u64
}
