//! Room for what waits in the inboxes of shards that are here.
//!
//! # Rules
//! * A piece counts while its inbox keeps it, and until its gather has returned: in the exchange's class if its turn is the
//!   lowest open one of its destination, as an early piece if it is not. What several destinations share counts once.
//! * What finds no room is spilled, if there is a place, and read back when its gather begins. Where there is no room for that,
//!   pieces that other shards wait for are spilled instead: early ones first.
//! * So whatever the other shards have, a gather begins if its own turn fits the exchange's floor.
//!
//! Small pieces of a frame have memory of their own, large ones share the frame's, which has little beside one of them
//! (`FRAME_BYTES` of whoever makes the options): what is counted is close to what is kept.

use super::cargo::{Cargo, Taken, join};
use super::{Node, NodeError};
use brambling_exchange::{Gathered, NoRoom, Parcel, Room, RouterError, Waits, Weight};
use brambling_memory::held::lock;
use brambling_memory::{Class, OutOfMemory, Reservation, mutants};
use brambling_program::{ExchangeId, ShardId, Turn};
use std::sync::{Arc, Mutex};

/// A piece in an inbox, with its room.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) cargo: Cargo,
    pub(super) charge: Charge,
}

/// How a piece is counted.
#[derive(Debug)]
pub(super) enum Charge {
    /// Not: it takes no memory, or not yet.
    Nothing,
    /// By itself.
    Own(Reservation),
    /// Once for all who get the same.
    Shared(Arc<Mutex<Reservation>>),
}

impl Charge {
    pub(super) fn new(room: Reservation, destinations: usize) -> Charge {
        match (room.bytes(), destinations) {
            (0, _) => Charge::Nothing,
            (_, 1) => Charge::Own(room),
            _ => Charge::Shared(Arc::new(Mutex::new(room))),
        }
    }

    /// What the next destination keeps: the only one, or one of those that share it.
    pub(super) fn keep(&mut self, cargo: Cargo) -> Kept {
        let charge = match self {
            Charge::Shared(room) => Charge::Shared(room.clone()),
            own => std::mem::replace(own, Charge::Nothing),
        };
        Kept { cargo, charge }
    }

    /// Its turn is the lowest open one now. Where the exchange has no room it stays early: it was admitted.
    fn promote(&mut self) {
        let _ = match self {
            Charge::Nothing => Ok(()),
            Charge::Own(room) => room.move_to(Class::Exchange),
            Charge::Shared(room) => lock(room).move_to(Class::Exchange),
        };
    }

    /// Gives it up; how many bytes are free now. What is shared is free when the last one gives it up.
    fn give_up(&mut self) -> u64 {
        match std::mem::replace(self, Charge::Nothing) {
            Charge::Nothing => 0,
            Charge::Own(room) => room.bytes(),
            Charge::Shared(room) => Arc::into_inner(room).map_or(0, |room| lock(&room).bytes()),
        }
    }
}

impl Kept {
    /// What came with a shard that moved here; [`Node::count_inbox`] counts it.
    pub(super) fn uncounted(cargo: Cargo) -> Kept {
        let charge = Charge::Nothing;
        Kept { cargo, charge }
    }
}

/// Whole pieces from chunks in order; how these count goes to `charges`.
pub(super) fn taken_out(
    chunks: Vec<Gathered<Kept>>,
    charges: &mut Vec<Charge>,
) -> Vec<(u32, Taken)> {
    let chunk = |piece: Gathered<Kept>| {
        let Kept { cargo, charge } = piece.payload;
        charges.push(charge);
        Gathered {
            source: piece.source,
            chunk: piece.chunk,
            last: piece.last,
            payload: cargo,
        }
    };
    join(chunks.into_iter().map(chunk))
}

impl Node {
    /// Makes room for a parcel whose destinations are here, or spills it.
    pub(super) fn make_room(&self, parcel: &mut Parcel<Cargo>) -> Result<Charge, NodeError> {
        let (group, destinations) = (parcel.group, parcel.destinations.clone());
        let (exchange, turn, count) = (parcel.exchange, parcel.turn, destinations.len());
        let Some(cargo) = parcel.item.payload_mut() else {
            return Ok(Charge::Nothing);
        };
        if cargo.bytes() == 0 || mutants::is_on("inbox-counts-nothing") {
            return Ok(Charge::Nothing);
        }
        let shard = |index| ShardId { group, index };
        let first = shard(destinations.start);
        let lowest = destinations.map(|index| self.inboxes[&shard(index)].next(exchange));
        // The lowest open turn of one of those that share it.
        let class = Room::class(turn, lowest.max().unwrap_or(0));
        let room = (self.room).admit((exchange, turn, first), class, Some(cargo), 0);
        Ok(Charge::new(room.map_err(RouterError::from)?, count))
    }

    /// Makes room for what came with a shard that moved here, or spills it.
    pub(super) fn count_inbox(&mut self, shard: ShardId) -> Result<(), NodeError> {
        let inbox = self.inboxes.get_mut(&shard).expect("the shard is here");
        for waits in inbox.waiting_mut() {
            let Waits {
                exchange,
                turn,
                lowest_open,
                payload,
            } = waits;
            let class = Room::class(turn, lowest_open);
            let at = (exchange, turn, shard);
            let room = (self.room).admit(at, class, Some(&mut payload.cargo), 0);
            payload.charge = Charge::new(room.map_err(RouterError::from)?, 1);
        }
        Ok(())
    }

    /// A gather begins, or a merge: those of its pieces that were spilled are in memory. How these count. What `but` waits for stays there.
    pub(super) fn recall(
        &mut self,
        shard: ShardId,
        but: Option<ShardId>,
        (exchange, turn): (ExchangeId, Turn),
        pieces: &mut [Gathered<Kept>],
    ) -> Result<Charge, NodeError> {
        let spilled_bytes = |piece: &Gathered<Kept>| piece.payload.cargo.spilled_bytes();
        let Some(bytes) = pieces.iter().filter_map(spilled_bytes).reduce(|a, b| a + b) else {
            return Ok(Charge::Nothing);
        };
        let budget = self.room.budget().clone();
        let room = match budget.reserve(Class::Exchange, bytes) {
            Ok(room) => room,
            Err(refused) => {
                self.evict(but, bytes, &refused)?;
                let room = budget.reserve(Class::Exchange, bytes);
                room.map_err(|source| {
                    let spill = None;
                    RouterError::from(NoRoom {
                        exchange,
                        turn,
                        shard,
                        source,
                        spill,
                    })
                })?
            }
        };
        for piece in pieces {
            let recalled = piece.payload.cargo.recall();
            recalled.map_err(NodeError::Spilled)?;
        }
        Ok(Charge::new(room, 1))
    }

    /// Spills what other shards wait for, and what waits to be merged, until so many bytes are free or nothing is left: early pieces first.
    fn evict(
        &mut self,
        but: Option<ShardId>,
        bytes: u64,
        refused: &OutOfMemory,
    ) -> Result<(), NodeError> {
        let Some(to) = self.room.spill() else {
            return Ok(());
        };
        let mut freed_bytes = 0;
        for is_lowest in [false, true] {
            let others = self.inboxes.iter_mut().filter(|it| Some(*it.0) != but);
            let waiting = others.flat_map(|(_, inbox)| inbox.waiting_mut());
            let waiting = waiting.map(|it| (it.turn == it.lowest_open, it.payload));
            let credits = &self.credits;
            let merged = self.meetings.waiting_mut();
            let merged = merged
                .map(|((exchange, turn), kept)| (turn <= credits.lowest_open(exchange), kept));
            let all = waiting
                .chain(merged)
                .filter(|(lowest, _)| *lowest == is_lowest);
            for (_, kept) in all.filter(|(_, it)| !matches!(it.charge, Charge::Nothing)) {
                if freed_bytes >= bytes {
                    return Ok(());
                }
                let Kept { cargo, charge } = kept;
                cargo.spill(to, refused).map_err(NodeError::Spilled)?;
                freed_bytes += charge.give_up();
            }
        }
        Ok(())
    }

    /// A turn has retired: the next one is the lowest open one, and counts as that.
    pub(super) fn promote(&mut self, shard: ShardId, exchange: ExchangeId) {
        let inbox = self.inboxes.get_mut(&shard).expect("the shard is here");
        for kept in inbox.lowest_mut(exchange) {
            kept.charge.promote();
        }
    }
}
