//! Owns the room for pieces that wait in a process until they are gathered: it counts them, spills
//! them and reads them back. Arrivals and gathers call it, and whoever delivers pieces of other
//! workers (`executor/remote/performing.rs`). It never writes or reads a file under a lock that a
//! task may want.
//!
//! # Rules
//! * A piece counts while it waits, and until its gather has returned: in the exchange's class if its turn is the lowest open one of its destination,
//!   as an early piece if it is not. What several destinations share counts once.
//! * What finds no room is spilled, if there is a place, and read back when its gather begins. Where there is no room for that, pieces that wait are
//!   spilled instead, whosever they are: early ones first.
//! * What leaves with its shard counts as a transfer, if those have room and no other destination has it as well: nobody spills it any more, and the
//!   exchange's floor is for who stays.
//! * So whatever the other shards have, a gather begins if its own turn fits the exchange's floor.
//! * Nobody holds a lock that a task may want while pieces are written or read. Where there are threads for files, no gather waits for what is read:
//!   it is not ready until that is here (`returning.rs`).
//!
//! Small pieces of a frame have memory of their own, large ones share the frame's, which has little beside one of them
//! (`FRAME_BYTES` of whoever makes the options): what is counted is close to what is kept.

mod chances;
mod chunks;
mod returning;
mod unreturned;

pub use chunks::BroughtChunk;
pub(crate) use returning::{Begun, Returning, Returns};
pub use unreturned::Unreturned;

use crate::flow::Slows;
use crate::parts::Packing;
use crate::piece_data::{GatheringRoom, PieceData, SpillablePiece, Taken, join};
use brambling_exchange::{Gathered, Item, NoRoom, PayloadWeight, PieceRoom};
use brambling_memory::held::{self, lock};
use brambling_memory::{Budget, Class, OutOfMemory, Reservation, Spill, SpillError, mutants};
use brambling_program::{ExchangeId, ShardId, Turn};
use brambling_storage::FilePool;
use chances::{Chance, Chances};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;

/// So many pieces that may be spilled are remembered before those are forgotten that are no more.
const SWEPT_AT: usize = 256;

/// What something is of: an exchange and its turn.
pub type ExchangeTurn = (ExchangeId, Turn);

/// A piece that waits, with its room.
#[derive(Debug)]
pub struct WaitingPiece {
    pub(crate) cargo: PieceData,
    pub(crate) charge: Charge,
    /// Of a chunk, what it adds to what waits for its destination.
    pub(crate) slows: Option<Slows>,
}

/// How a piece is counted.
#[derive(Debug, Default)]
pub(crate) enum Charge {
    /// Not: it takes no memory, or counts where it is parked.
    #[default]
    Nothing,
    /// By itself.
    Own(Reservation),
    /// Once for all who get the same.
    Shared(Arc<Mutex<Reservation>>),
    /// With others, by whoever made the room; so many bytes are to be given back.
    Counted(u64),
    /// It was read back, and had its chance for that.
    Returned(
        #[expect(dead_code, reason = "dropped when it is time")] Reservation,
        #[expect(dead_code, reason = "dropped when it is time, after the room")] Chance,
    ),
    /// Where it was parked, for as long as this is kept.
    InUse(GatheringRoom),
}

impl Charge {
    fn new(room: Reservation, destinations: usize) -> Charge {
        match (room.bytes(), destinations) {
            (0, _) => Charge::Nothing,
            (_, 1) => Charge::Own(room),
            _ => Charge::Shared(Arc::new(Mutex::new(room))),
        }
    }
}

impl WaitingPiece {
    /// What counts nowhere: it came with a shard that moved here, and is [counted](WaitingRoom::count) then, or the caller answers for it.
    pub fn uncounted(cargo: PieceData) -> WaitingPiece {
        WaitingPiece::new(cargo, Charge::Nothing)
    }

    fn new(cargo: PieceData, charge: Charge) -> WaitingPiece {
        let slows = None;
        WaitingPiece {
            cargo,
            charge,
            slows,
        }
    }

    /// What counts with others.
    pub(crate) fn counted(cargo: PieceData, bytes: u64) -> WaitingPiece {
        WaitingPiece::new(cargo, Charge::Counted(bytes))
    }

    /// It counts nowhere from now on; how it did.
    pub(crate) fn take_charge(&mut self) -> Charge {
        std::mem::replace(&mut self.charge, Charge::Nothing)
    }

    /// It leaves this process: it is in memory then, and counts no more.
    ///
    /// # Errors
    /// When it was spilled and cannot be read.
    pub fn leave(mut self) -> Result<PieceData, SpillError> {
        drop(self.cargo.unpark());
        self.cargo.recall()?;
        Ok(self.cargo)
    }

    /// It leaves with its shard; how long it is.
    ///
    /// # Errors
    /// When it was spilled and cannot be read.
    pub(crate) fn pack(mut self, packing: &mut Packing) -> Result<u64, SpillError> {
        if !self.is_shared() && !mutants::is_on("who-leaves-keeps-the-floor") {
            self.move_to(Class::Transfer);
        }
        let room = (self.charge, self.cargo.unpark());
        self.cargo.recall()?;
        match self.cargo {
            PieceData::Value(value) => packing.value(value, room),
            PieceData::Bytes(bytes) | PieceData::First(bytes, _) => {
                let len = bytes.len() as u64;
                packing.lend(bytes, room);
                Ok(len)
            }
            PieceData::Spilled(..) | PieceData::Parked(_) => unreachable!("it was read back"),
        }
    }

    /// It is not gathered yet: others may spill it again.
    fn park_again(&mut self) {
        if !matches!(self.charge, Charge::InUse(_)) {
            return;
        }
        if let Charge::InUse(in_use) = self.take_charge() {
            self.cargo.park_again(in_use);
        }
    }

    /// Another of the destinations that share it keeps it, too.
    fn again(&self) -> WaitingPiece {
        let charge = match &self.charge {
            Charge::Shared(room) => Charge::Shared(room.clone()),
            _ => Charge::Nothing,
        };
        WaitingPiece::new(self.cargo.clone(), charge)
    }

    /// Whether it is a piece of other destinations as well, which may stay.
    fn is_shared(&self) -> bool {
        match (&self.charge, &self.cargo) {
            (Charge::Shared(room), _) => Arc::strong_count(room) > 1,
            (_, PieceData::Parked(parked)) => Arc::strong_count(parked) > 1,
            _ => false,
        }
    }

    /// Its turn is the lowest open one now.
    pub(crate) fn promote(&mut self) {
        self.move_to(Class::Exchange);
    }

    /// It counts in another class, if that has room.
    fn move_to(&mut self, class: Class) {
        let _ = match (&mut self.charge, &self.cargo) {
            (Charge::Own(room), _) => room.move_to(class),
            (Charge::Shared(room), _) => lock(room).move_to(class),
            (Charge::Counted(_) | Charge::InUse(_) | Charge::Returned(..), _) => Ok(()),
            (Charge::Nothing, PieceData::Parked(parked)) => {
                parked.move_to(class);
                Ok(())
            }
            (Charge::Nothing, _) => Ok(()),
        };
    }
}

/// What waits in a process for the shards of a job, and may be spilled.
#[derive(Debug)]
pub struct WaitingRoom {
    room: PieceRoom,
    parked: Mutex<Vec<Weak<SpillablePiece>>>,
    /// Tasks that have a chunk of a stream, and who is about to let a piece wait.
    takers: Arc<Chances>,
    /// Who reads back what was spilled; none: whoever gathers it.
    returns: Option<Arc<Returns>>,
}

impl WaitingRoom {
    /// Nothing waits. Pieces count in `budget`, and go to `spill` where they find no room.
    pub fn new(budget: Budget, spill: Option<Arc<dyn Spill>>) -> WaitingRoom {
        WaitingRoom {
            room: PieceRoom::new(budget, spill),
            parked: Mutex::default(),
            takers: Arc::new(Chances::new(usize::MAX)),
            returns: None,
        }
    }

    /// No more than about so many bytes of pieces wait in memory, where the others can be spilled.
    #[must_use]
    pub fn within(self, limit_bytes: Option<u64>) -> WaitingRoom {
        WaitingRoom {
            room: self.room.within(limit_bytes),
            ..self
        }
    }

    /// What was spilled is read back by these threads, of so many turns at once.
    pub fn returning(self, files: Arc<FilePool>, turns_max: usize) -> WaitingRoom {
        WaitingRoom {
            returns: Some(Arc::new(Returns::new(files, turns_max))),
            ..self
        }
    }

    /// Who reads back what was spilled, if not whoever gathers it.
    #[inline]
    pub(crate) fn returns(&self) -> Option<&Arc<Returns>> {
        self.returns.as_ref()
    }

    /// What pieces count in.
    pub fn budget(&self) -> &Budget {
        self.room.budget()
    }

    /// Makes room for a piece for some destinations of a group, `lowest` being the lowest turn that any of them has open, or spills it; one
    /// for each of them.
    ///
    /// # Errors
    /// When there is no room, nor any to spill it to.
    pub fn admit(
        &self,
        at: ExchangeTurn,
        first: ShardId,
        destinations: usize,
        lowest: Turn,
        mut cargo: PieceData,
    ) -> Result<impl Iterator<Item = WaitingPiece> + use<>, NoRoom> {
        // To admit a piece may spill others, which waits for the disk.
        held::forbid("pieces are spilled");
        // Until it is parked nobody finds it to spill it: whoever needs its room waits for that.
        let spills = self.room.spill().is_some();
        let _admitting = spills.then(|| self.takers.chance(Waker::noop()));
        let mut charge = Charge::Nothing;
        if cargo.bytes() > 0 && !mutants::is_on("inbox-counts-nothing") {
            let class = PieceRoom::class(at.1, lowest);
            let room = (self.room).admit((at.0, at.1, first), class, Some(&mut cargo), 0)?;
            match self.room.spill() {
                // Where pieces may be spilled, the parked ones are remembered, so that others can
                // have their room.
                Some(_) if room.bytes() > 0 => cargo = self.park(cargo, room),
                _ => charge = Charge::new(room, destinations),
            }
        }
        let mut left = destinations;
        let mut kept = Some(WaitingPiece::new(cargo, charge));
        Ok(std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            match left {
                0 => kept.take(),
                _ => kept.as_ref().map(WaitingPiece::again),
            }
        }))
    }

    /// As [`WaitingRoom::admit`], of a piece or an empty mark that has come.
    ///
    /// # Errors
    /// As [`WaitingRoom::admit`].
    pub fn share(
        &self,
        at: ExchangeTurn,
        first: ShardId,
        destinations: usize,
        lowest: Turn,
        item: Item<PieceData>,
    ) -> Result<impl Iterator<Item = Item<WaitingPiece>> + use<>, NoRoom> {
        let mut admitted = None;
        // The first chunk of a piece for several destinations brings the cell in which they share
        // what one of them has decoded.
        let is_first = matches!(item, Item::Piece { chunk: 0, .. });
        let item = item.try_map(|cargo| {
            let cargo = match is_first && destinations > 1 {
                true => cargo.for_several(),
                false => cargo,
            };
            admitted = Some(self.admit(at, first, destinations, lowest, cargo)?);
            Ok(())
        })?;
        let next = move |_| {
            let mut kept = |()| admitted.as_mut().and_then(Iterator::next);
            item.clone()
                .map(|place| kept(place).expect("one for each destination"))
        };
        Ok((0..destinations).map(next))
    }

    /// The pieces of a group that is to be merged, by source, ascending; and how they count until that is done.
    ///
    /// # Errors
    /// As [`WaitingRoom::recall`].
    pub fn take_to_merge(
        &self,
        at: ExchangeTurn,
        relay: ShardId,
        mut pieces: Vec<Gathered<WaitingPiece>>,
    ) -> Result<(Vec<Taken>, Charges), Unreturned> {
        let mut charges = vec![self.recall(at, relay, &mut pieces)?];
        let pieces = whole(pieces, |charge| charges.push(charge));
        Ok((
            pieces.into_iter().map(|(_, piece)| piece).collect(),
            Charges(charges),
        ))
    }

    fn park(&self, cargo: PieceData, room: Reservation) -> PieceData {
        let cargo = cargo.park(room);
        if let PieceData::Parked(parked) = &cargo {
            let mut all = lock(&self.parked);
            // Only before the list would grow: each sweep is a pass over all of it.
            if all.len() >= SWEPT_AT && all.len() == all.capacity() {
                all.retain(|parked| parked.strong_count() > 0);
            }
            all.push(Arc::downgrade(parked));
        }
        cargo
    }

    /// Makes room for what came with a shard that moved here, or spills it.
    ///
    /// # Errors
    /// As [`WaitingRoom::admit`].
    pub(crate) fn count(
        &self,
        at: ExchangeTurn,
        shard: ShardId,
        lowest: Turn,
        kept: &mut WaitingPiece,
    ) -> Result<(), NoRoom> {
        let cargo = std::mem::replace(&mut kept.cargo, PieceData::Bytes(Default::default()));
        let mut admitted = self.admit(at, shard, 1, lowest, cargo)?;
        *kept = admitted.next().expect("one for one destination");
        Ok(())
    }

    /// A shard takes pieces to gather or to merge them: those that were spilled are in memory then, and nobody spills them any more. How they count.
    ///
    /// # Errors
    /// When they cannot be read back, or there is no room for them.
    pub(crate) fn recall(
        &self,
        at: ExchangeTurn,
        shard: ShardId,
        pieces: &mut [Gathered<WaitingPiece>],
    ) -> Result<Charge, Unreturned> {
        held::forbid("spilled pieces are read");
        let mut spilled_bytes = None;
        for piece in &mut *pieces {
            let WaitingPiece { cargo, charge, .. } = &mut piece.payload;
            // Every piece is taken into use first, so that making room below spills none of them.
            if let Some(in_use) = cargo.unpark() {
                *charge = Charge::InUse(in_use);
            }
            if let Some(bytes) = cargo.spilled_bytes() {
                *spilled_bytes.get_or_insert(0) += bytes;
            }
        }
        let Some(bytes) = spilled_bytes else {
            return Ok(Charge::Nothing);
        };
        let room = self.make_room(bytes)?;
        let room = room.map_err(|source| no_room(at, shard, source))?;
        for piece in pieces {
            piece.payload.cargo.recall()?;
        }
        Ok(Charge::new(room, 1))
    }

    /// Room for what is read back; if need be, what others wait for makes it, again and again: others take what is free meanwhile.
    fn make_room(&self, bytes: u64) -> Result<Result<Reservation, OutOfMemory>, SpillError> {
        loop {
            let refused = match self.budget().reserve(Class::Exchange, bytes) {
                Ok(room) => return Ok(Ok(room)),
                Err(refused) => refused,
            };
            // Nothing is left to be spilled, so a last try decides.
            if self.evict(bytes, &refused)? == 0 {
                return Ok(self.budget().reserve(Class::Exchange, bytes));
            }
        }
    }

    /// Spills what waits, until so many bytes are free or nothing is left: early pieces first. How many were freed.
    fn evict(&self, bytes: u64, refused: &OutOfMemory) -> Result<u64, SpillError> {
        let Some(to) = self.room.spill() else {
            return Ok(0);
        };
        let all: Vec<Arc<SpillablePiece>> = {
            let mut all = lock(&self.parked);
            all.retain(|parked| parked.strong_count() > 0);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        let mut freed_bytes = 0;
        // Early ones first: nobody waits for them yet.
        for class in [Class::Early, Class::Exchange] {
            for parked in all.iter().filter(|it| it.class() == Some(class)) {
                if freed_bytes >= bytes {
                    return Ok(freed_bytes);
                }
                freed_bytes += parked.spill(to, refused)?;
            }
        }
        Ok(freed_bytes)
    }

    /// Gives back what counted.
    pub(crate) fn give_back(&self, charge: Charge) {
        if let Charge::Counted(bytes) = charge
            && !mutants::is_on("mailbox-keeps-its-charge")
        {
            // Giving back cannot fail.
            let _ = self.budget().adjust(Class::Exchange, bytes, 0);
        }
    }
}

fn no_room(at: ExchangeTurn, shard: ShardId, source: OutOfMemory) -> NoRoom {
    NoRoom {
        exchange: at.0,
        turn: at.1,
        shard,
        source,
        spill: None,
    }
}

/// How pieces count; they do no longer when this is dropped.
#[derive(Debug)]
pub struct Charges(#[expect(dead_code, reason = "dropped when it is time")] Vec<Charge>);

/// Whole pieces from chunks in order; how these count is given to `charge`.
pub(crate) fn whole(
    chunks: Vec<Gathered<WaitingPiece>>,
    mut charge: impl FnMut(Charge),
) -> Vec<(u32, Taken)> {
    let chunk = |piece: Gathered<WaitingPiece>| {
        charge(piece.payload.charge);
        Gathered {
            source: piece.source,
            chunk: piece.chunk,
            last: piece.last,
            payload: piece.payload.cargo,
        }
    };
    join(chunks.into_iter().map(chunk))
}
