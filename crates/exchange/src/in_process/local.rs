//! Owns an exchange as one process sees it: which keeper has its pieces, and how many turns each
//! destination has retired. Slices ask it, whichever keeper serves. It never moves a piece: the
//! keepers do.

use super::ShardSide;
use super::retired_turns::RetiredTurns;
use super::slots::{DestinationEnd, Slots, SourceEnd, TurnStatus};
use super::stamped::Stamped;
use crate::{OPEN_TURNS, fits};
use brambling_program::{Links, PayloadType, Turn};
use std::sync::Arc;

/// Beyond this the pieces of an exchange come through the mailbox: memory then follows the pieces sent.
const SLOT_BYTES_MAX: usize = 16 << 20;

/// Where the pieces of an exchange lie that shards of this process send each other.
pub enum Keeper {
    /// Each has a place.
    Slots(Slots),
    /// There are too many pairs for that: they lie in mailboxes, and stamps say when they do.
    Stamped(Stamped),
}

/// An exchange, as far as it is this process's: the shards that start here have places or stamps, and the others send and get theirs by mail.
pub struct InProcess {
    links: Arc<Links>,
    keeper: Keeper,
    /// Whether one table holds at every turn.
    is_steady: bool,
}

impl InProcess {
    /// An exchange with nothing sent. `sides` say what the executor calls a source's shard, and a destination's. Of `slot_bytes`, which all slots of a
    /// job may take together, it takes its part.
    pub fn new(
        links: Links,
        piece: &'static PayloadType,
        sides: (impl Fn(u32) -> ShardSide, impl Fn(u32) -> ShardSide),
        slot_bytes: &mut usize,
    ) -> InProcess {
        let links = Arc::new(links);
        let bytes = Slots::bytes(&links, piece, &sides.1);
        let keeper = if bytes <= SLOT_BYTES_MAX.min(*slot_bytes) {
            *slot_bytes -= bytes;
            Keeper::Slots(Slots::new(&links, piece, sides))
        } else {
            Keeper::Stamped(Stamped::new(links.clone(), sides))
        };
        InProcess {
            is_steady: links.phase_count() == 1,
            links,
            keeper,
        }
    }

    /// Who may send to whom.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Whether one table holds at every turn.
    pub fn is_steady(&self) -> bool {
        self.is_steady
    }

    /// Which table of the relation holds at a turn: looked up once a task, not once a piece.
    #[inline]
    pub fn phase(&self, turn: Turn) -> usize {
        if self.is_steady {
            return 0;
        }
        self.links.at(turn).phase()
    }

    /// Where its pieces lie.
    #[inline]
    pub fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// A source's end at a turn, where all that it sends goes to places.
    #[inline(always)]
    pub fn source(&self, turn: Turn, source: u32) -> Option<SourceEnd<'_>> {
        let Keeper::Slots(slots) = &self.keeper else {
            return None;
        };
        slots.source(self.phase(turn), source)
    }

    /// A destination's end at a turn, where it has places.
    #[inline(always)]
    pub fn destination(&self, turn: Turn, destination: u32) -> Option<DestinationEnd<'_>> {
        let Keeper::Slots(slots) = &self.keeper else {
            return None;
        };
        slots.destination(self.phase(turn), destination)
    }

    /// Whether all that a source sends goes to places, at every turn.
    pub fn serves(&self, source: u32) -> bool {
        match &self.keeper {
            Keeper::Slots(slots) => slots.serve(source),
            Keeper::Stamped(_) => false,
        }
    }

    /// What a destination has heard of a turn from those of its sources that stamp it. Asked by the destination's thread. Of a missing source: it
    /// wakes the destination only where [`Destinations`](super::Destinations) says.
    #[inline]
    pub fn heard(&self, turn: Turn, destination: u32) -> TurnStatus<'_> {
        match &self.keeper {
            Keeper::Slots(_) => self
                .destination(turn, destination)
                .expect("who looks here starts here")
                .heard(turn),
            Keeper::Stamped(stamped) => stamped.heard(turn, destination),
        }
    }

    /// Whether every destination of a source has room for a turn. If not, the next to retire wakes it.
    #[inline]
    pub fn has_room(&self, turn: Turn, source: u32) -> bool {
        let Some(end) = self.source(turn, source) else {
            return self.look_for_room(turn, source).is_some();
        };
        if end.has_seen_room(turn) {
            return true;
        }
        let retired = self.look_for_room(turn, source);
        retired.inspect(|&turns| end.saw_room(turns)).is_some()
    }

    /// How many turns all destinations of a source have retired, if that gives room for this one.
    #[inline(never)]
    fn look_for_room(&self, turn: Turn, source: u32) -> Option<u64> {
        // In the first `OPEN_TURNS` turns nobody can lack room.
        let turns = (turn + 1).saturating_sub(OPEN_TURNS);
        if turns == 0 {
            return Some(0);
        }
        let links = self.links.at(turn);
        let mut least = u64::MAX;
        for place in 0..links.fan_out(source) {
            let (destination, _) = links.destination(source, place);
            let room = self.room(destination);
            // Joining the waiters costs a dear fence, so the count is looked at first.
            let fits = fits(turn, room.retired(), OPEN_TURNS);
            if !(fits || room.await_retired(turns, source as usize)) {
                return None;
            }
            least = least.min(room.retired());
        }
        Some(least)
    }

    /// How many turns a destination has retired, wherever it is.
    #[inline]
    pub fn room(&self, destination: u32) -> &RetiredTurns {
        match &self.keeper {
            Keeper::Slots(slots) => slots.room(destination),
            Keeper::Stamped(stamped) => stamped.room(destination),
        }
    }

    /// Ends a destination's turn, which has been gathered, and opens the one K later. Calls `wake` for each source that waits for room.
    #[inline]
    pub fn retire(&self, turn: Turn, destination: u32, mut wake: impl FnMut(u32)) {
        if let Keeper::Stamped(stamped) = &self.keeper {
            // Cleared before the room is told: a source that sees the room may stamp a turn that
            // uses the same place.
            stamped.retire(turn, destination);
        }
        self.room(destination).retire(|source| wake(source as u32));
    }
}
