//! Pieces that wait, and go to where they are spilled when others need their room.

use super::{Once, PieceBytes, PieceData, write};
use brambling_memory::held::{self, Held};
use brambling_memory::{Class, OutOfMemory, Reservation, Spill, SpillError, Spilled};
use brambling_program::Value;
use std::sync::{Arc, Mutex};

/// A piece that waits and may be spilled by whoever needs room, while its shard leaves it alone.
#[derive(Debug)]
pub struct SpillablePiece(Mutex<Stay>);

#[derive(Debug)]
struct Stay {
    what: What,
    room: Option<Reservation>,
    /// Shards that gather it: nobody spills it meanwhile.
    users: u32,
}

/// A shard gathers what waited: its room is kept until this is dropped.
#[derive(Debug)]
pub struct GatheringRoom(Arc<SpillablePiece>);

impl Drop for GatheringRoom {
    fn drop(&mut self) {
        self.0.stay().users -= 1;
    }
}

#[derive(Clone, Debug)]
enum What {
    Value(Arc<Value>),
    Bytes(PieceBytes, Option<Arc<Once>>),
    Written(Arc<dyn Spilled>, Option<Arc<Once>>),
    /// A shard has it.
    Gone,
}

impl PieceData {
    /// Waits from now on, in `room`, where others may spill it. What is spilled already does not wait in memory.
    pub(crate) fn park(self, room: Reservation) -> PieceData {
        let what = match self {
            PieceData::Bytes(bytes) => What::Bytes(bytes, None),
            PieceData::First(bytes, once) => What::Bytes(bytes, Some(once)),
            PieceData::Value(value) => What::Value(Arc::new(value)),
            cargo => return cargo,
        };
        let room = Some(room);
        PieceData::Parked(Arc::new(SpillablePiece(Mutex::new(Stay {
            what,
            room,
            users: 0,
        }))))
    }

    /// Nobody spills it until [`PieceData::unpin`] is called, or what [`PieceData::take_pinned`] gives is dropped.
    pub(crate) fn pin(&self) {
        if let PieceData::Parked(parked) = self {
            parked.stay().users += 1;
        }
    }

    /// Others may spill it again.
    pub(crate) fn unpin(&self) {
        if let PieceData::Parked(parked) = self {
            parked.stay().users -= 1;
        }
    }

    /// A shard takes it: nobody spills it while that has what is given, if it is here.
    pub(crate) fn unpark(&mut self) -> Option<GatheringRoom> {
        self.pin();
        self.take_pinned()
    }

    /// The same of what is pinned.
    pub(crate) fn take_pinned(&mut self) -> Option<GatheringRoom> {
        let PieceData::Parked(parked) = self else {
            return None;
        };
        let what = {
            let mut stay = parked.stay();
            match Arc::strong_count(parked) {
                // The last handle takes the content without a copy.
                1 => std::mem::replace(&mut stay.what, What::Gone),
                _ => stay.what.clone(),
            }
        };
        let in_use = GatheringRoom(parked.clone());
        *self = match what {
            What::Value(value) => {
                // Others may hold the value, too: shards that get the same, or whoever was about to
                // spill it.
                let value = Arc::try_unwrap(value).unwrap_or_else(|shared| Value::clone(&shared));
                PieceData::Value(value)
            }
            What::Bytes(bytes, None) => PieceData::Bytes(bytes),
            What::Bytes(bytes, Some(once)) => PieceData::First(bytes, once),
            What::Written(spilled, once) => PieceData::Spilled(spilled, once),
            What::Gone => unreachable!("who has it alone takes it once"),
        };
        Some(in_use)
    }
}

impl PieceData {
    /// It waits again where it was parked, and others may spill it.
    pub(crate) fn park_again(&mut self, in_use: GatheringRoom) {
        let parked = in_use.0.clone();
        let content = std::mem::replace(self, PieceData::Parked(parked.clone()));
        let mut stay = parked.stay();
        if matches!(stay.what, What::Gone) {
            stay.what = match content {
                PieceData::Value(value) => What::Value(Arc::new(value)),
                PieceData::Bytes(bytes) => What::Bytes(bytes, None),
                PieceData::First(bytes, once) => What::Bytes(bytes, Some(once)),
                PieceData::Spilled(spilled, once) => What::Written(spilled, once),
                PieceData::Parked(_) => unreachable!("what is in use is not parked"),
            };
            drop(stay);
        } else {
            // Other destinations have it as well, and this one had a copy. After the lock: a value may need an interpreter
            // to be dropped.
            drop(stay);
            drop(content);
        }
        drop(in_use);
    }
}

impl SpillablePiece {
    fn stay(&self) -> Held<'_, Stay> {
        held::lock(&self.0)
    }

    /// What is read back takes, if it was spilled.
    pub(super) fn spilled_bytes(&self) -> Option<u64> {
        match &self.stay().what {
            What::Written(spilled, _) => Some(spilled.bytes()),
            _ => None,
        }
    }

    /// The class in which it counts, if it does.
    pub(crate) fn class(&self) -> Option<Class> {
        self.stay().room.as_ref().map(Reservation::class)
    }

    /// It counts in another class. Where that has no room it stays in its own: it was admitted.
    pub(crate) fn move_to(&self, class: Class) {
        if let Some(room) = &mut self.stay().room {
            let _ = room.move_to(class);
        }
    }

    /// Spills it, unless its shard takes it meanwhile; how many bytes are free then. Nothing is locked while it is written.
    ///
    /// # Errors
    /// When it cannot be spilled. It stays where it is.
    pub(crate) fn spill(&self, to: &dyn Spill, refused: &OutOfMemory) -> Result<u64, SpillError> {
        let what = {
            let stay = self.stay();
            match stay.users {
                // A handle only: it is written without the lock, and whoever gathers it meanwhile
                // is not kept waiting.
                0 => stay.what.clone(),
                _ => What::Gone,
            }
        };
        let (spilled, once) = match what {
            What::Value(value) => (write(&value, to, refused)?, None),
            What::Bytes(bytes, once) => (to.put(&[&bytes], refused)?, once),
            What::Written(..) | What::Gone => return Ok(0),
        };
        let mut stay = self.stay();
        // Somebody took the piece while it was written: the bytes on the disk are dropped, and
        // nothing is freed.
        if stay.users > 0 || matches!(stay.what, What::Written(..) | What::Gone) {
            return Ok(0);
        }
        let before = std::mem::replace(&mut stay.what, What::Written(spilled, once));
        let room = stay.room.take();
        drop(stay);
        // After the lock: a value may need an interpreter to be dropped.
        drop(before);
        Ok(room.map_or(0, |room| room.bytes()))
    }
}
