//! Room for pieces that wait.
//!
//! # Why the lowest open turn is always admitted
//! Only its pieces are counted in the class that has the exchange's floor; those of later turns are
//! early, and have no floor. However many early pieces there are, the floor is there for the turn whose
//! gather comes next; when it has retired, the next turn is the lowest. So an exchange whose every turn
//! fits the floor always makes progress.

use brambling_memory::{Budget, Class, OutOfMemory, Reservation, mutants};
use brambling_program::{ExchangeId, ShardId, Turn};

/// There is no room for a piece, and nowhere to spill to: the job ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
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
}

/// Room for pieces that wait, counted in the budget.
#[derive(Clone, Debug)]
pub struct Room {
    budget: Budget,
}

impl Room {
    /// Room within `budget`.
    pub fn new(budget: Budget) -> Room {
        Room { budget }
    }

    /// The class in which a piece is counted.
    pub fn class(turn: Turn, lowest_open: Turn) -> Class {
        if turn <= lowest_open || mutants::is_on("room-gives-the-floor-to-later-turns") {
            Class::Exchange
        } else {
            Class::Early
        }
    }

    /// Makes room for a piece before it is kept. `lowest_open` is the lowest turn of the exchange that
    /// the destination has not retired.
    pub fn admit(
        &self,
        exchange: ExchangeId,
        turn: Turn,
        lowest_open: Turn,
        shard: ShardId,
        bytes: u64,
    ) -> Result<Reservation, NoRoom> {
        self.budget
            .reserve(Room::class(turn, lowest_open), bytes)
            .map_err(|source| NoRoom {
                exchange,
                turn,
                shard,
                source,
            })
    }
}
