//! Room for pieces that wait.
//!
//! # Why the lowest open turn is always admitted
//! Only its pieces are counted in the class that has the exchange's floor; those of later turns are
//! early, and have no floor. However many early pieces there are, the floor is there for the turn whose
//! gather comes next; when it has retired, the next turn is the lowest. So an exchange whose every turn
//! fits the floor always makes progress.

use crate::parcel::PayloadWeight;
use brambling_memory::{Budget, Class, OutOfMemory, Reservation, Spill, SpillError, mutants};
use brambling_program::{ExchangeId, ShardId, Turn};
use std::sync::Arc;

/// There is no room for a piece, in memory or where it could be spilled to: the job ends.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no room for a piece of exchange {exchange} turn {turn} for shard {shard}")]
pub struct NoRoom {
    /// The exchange.
    pub exchange: ExchangeId,
    /// Its turn.
    pub turn: Turn,
    /// The destination.
    pub shard: ShardId,
    /// What was asked, what is used, and which setting changes it.
    pub source: OutOfMemory,
    /// Why it was not spilled; none when that would not help.
    pub spill: Option<Box<SpillError>>,
}

/// Room for pieces that wait: counted in the budget, and beyond it where they are spilled to.
#[derive(Clone, Debug)]
pub struct PieceRoom {
    budget: Budget,
    spill: Option<Arc<dyn Spill>>,
    /// Beyond so many bytes pieces are spilled, whatever the budget has.
    limit_bytes: Option<u64>,
}

impl PieceRoom {
    /// Room within `budget`; what finds none goes to `spill`, if there is such a place.
    pub fn new(budget: Budget, spill: Option<Arc<dyn Spill>>) -> PieceRoom {
        PieceRoom {
            budget,
            spill,
            limit_bytes: None,
        }
    }

    /// No more than about so many bytes of pieces wait in memory, even where the budget has room. Says nothing where there is nowhere to spill to.
    #[must_use]
    pub fn within(self, limit_bytes: Option<u64>) -> PieceRoom {
        PieceRoom {
            limit_bytes,
            ..self
        }
    }

    fn reserve(&self, class: Class, bytes: u64) -> Result<Reservation, OutOfMemory> {
        if let (Some(limit_bytes), Some(_)) = (self.limit_bytes, &self.spill) {
            let classes = [Class::Exchange, Class::Early].into_iter();
            let in_use_bytes = classes.map(|it| self.budget.class_in_use_bytes(it)).sum();
            if bytes.saturating_add(in_use_bytes) > limit_bytes {
                return Err(OutOfMemory {
                    class,
                    asked_bytes: bytes,
                    in_use_bytes,
                    budget_bytes: limit_bytes,
                });
            }
        }
        self.budget.reserve(class, bytes)
    }

    /// What pieces count in.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Where they go that find no room.
    pub fn spill(&self) -> Option<&dyn Spill> {
        self.spill.as_deref()
    }

    /// The class in which a piece is counted.
    pub fn class(turn: Turn, lowest_open: Turn) -> Class {
        if turn <= lowest_open || mutants::is_on("room-gives-the-floor-to-later-turns") {
            Class::Exchange
        } else {
            Class::Early
        }
    }

    /// Makes room for a piece before it is kept, and for `beside_bytes` that are kept beside it. A piece that finds none is
    /// spilled.
    ///
    /// # Errors
    /// When there is nowhere to spill to, or no room there.
    pub fn admit<P: PayloadWeight>(
        &self,
        (exchange, turn, shard): (ExchangeId, Turn, ShardId),
        class: Class,
        mut piece: Option<&mut P>,
        beside_bytes: u64,
    ) -> Result<Reservation, NoRoom> {
        let bytes = |piece: &Option<&mut P>| {
            let bytes = piece.as_ref().map_or(0, |piece| piece.bytes());
            bytes.saturating_add(beside_bytes)
        };
        // Memory is tried first. A piece that finds no room there is spilled, and only what remains
        // of it in memory counts.
        let source = match self.reserve(class, bytes(&piece)) {
            Ok(room) => return Ok(room),
            Err(refused) => refused,
        };
        let no_room = |source, spill: Option<SpillError>| NoRoom {
            exchange,
            turn,
            shard,
            source,
            spill: spill.map(Box::new),
        };
        let Some(to) = &self.spill else {
            return Err(no_room(source, Some(SpillError::Nowhere)));
        };
        if let Some(piece) = &mut piece {
            let spilled = piece.spill(&**to, &source);
            spilled.map_err(|error| no_room(source, Some(error)))?;
        }
        // What remains is little, and there because shards are on their way: it may have some of
        // the floor of transfers.
        let left = self.budget.reserve(class, bytes(&piece));
        let left = left.or_else(|_| self.budget.reserve(Class::Transfer, bytes(&piece)));
        left.map_err(|source| no_room(source, None))
    }
}
