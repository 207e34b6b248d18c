//! The exchange itself: by slots or by letters, and what is asked of it whichever it is.

use super::letters::Mailboxes;
use super::slots::{Heard, Slots};
use super::{Room, TURNS_OPEN};
use brambling_memory::Budget;
use brambling_program::{Links, PayloadType, Turn};
use std::sync::Arc;

/// Beyond this the pieces of an exchange come through mailboxes: memory then follows the pieces sent.
const SLOT_BYTES_MAX: usize = 16 << 20;

/// What carries the pieces of an exchange.
pub enum Carrier {
    /// Each has a place.
    Slots(Slots),
    /// There are too many pairs for that.
    Letters(Mailboxes),
}

/// Nothing retired, by destination.
pub(super) fn rooms(links: &Links) -> Box<[Room]> {
    let room = |_| Room::new(links.source_count() as usize);
    (0..links.destination_count()).map(room).collect()
}

/// An exchange whose sources and destinations share a process.
pub struct InProcess {
    links: Arc<Links>,
    carrier: Carrier,
    /// Whether one table holds at every turn.
    is_steady: bool,
}

impl InProcess {
    /// An exchange with nothing sent. `numbers` is what the executor calls a source's shard, and a destination's;
    /// what lies in mailboxes is charged to `budget`. Of `slot_bytes`, which all slots of a job may take together, it takes its part.
    pub fn new(
        links: Links,
        piece: &'static PayloadType,
        numbers: (impl Fn(u32) -> u32, impl Fn(u32) -> u32),
        budget: &Budget,
        slot_bytes: &mut usize,
    ) -> InProcess {
        let links = Arc::new(links);
        let bytes = Slots::bytes(&links, piece);
        let carrier = if bytes <= SLOT_BYTES_MAX.min(*slot_bytes) {
            *slot_bytes -= bytes;
            Carrier::Slots(Slots::new(&links, piece, numbers))
        } else {
            Carrier::Letters(Mailboxes::new(links.clone(), piece, numbers.1, budget))
        };
        InProcess {
            is_steady: links.phase_count() == 1,
            links,
            carrier,
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

    /// What carries its pieces.
    #[inline]
    pub fn carrier(&self) -> &Carrier {
        &self.carrier
    }

    /// What a destination has heard of a turn. Asked by the destination's thread. Of a missing source: without
    /// a mark it wakes the destination; with one it does so only where [`Destinations`](super::Destinations) says.
    #[inline]
    pub fn heard(&self, turn: Turn, destination: u32) -> Heard<'_> {
        match &self.carrier {
            Carrier::Slots(slots) => slots.destination(self.phase(turn), destination).heard(turn),
            Carrier::Letters(mailboxes) => mailboxes.heard(turn, destination),
        }
    }

    /// Whether every destination of a source has room for a turn. If not, the next to retire wakes it.
    #[inline]
    pub fn has_room(&self, turn: Turn, source: u32) -> bool {
        match &self.carrier {
            Carrier::Slots(slots) => {
                let end = slots.source(self.phase(turn), source);
                if end.has_seen_room(turn) {
                    return true;
                }
                let retired = self.look_for_room(slots.rooms(), turn, source);
                retired.inspect(|&turns| end.saw_room(turns)).is_some()
            }
            Carrier::Letters(mailboxes) => self
                .look_for_room(mailboxes.rooms(), turn, source)
                .is_some(),
        }
    }

    /// How many turns all destinations of a source have retired, if that gives room for this one.
    #[inline(never)]
    fn look_for_room(&self, rooms: &[Room], turn: Turn, source: u32) -> Option<u64> {
        // Nobody can lack room in the first K turns.
        let turns = (turn + 1).saturating_sub(TURNS_OPEN);
        if turns == 0 {
            return Some(0);
        }
        let links = self.links.at(turn);
        let mut least = u64::MAX;
        for place in 0..links.fan_out(source) {
            let (destination, _) = links.destination(source, place);
            let room = &rooms[destination as usize];
            if !(room.has_retired(turns) || room.await_retired(turns, source as usize)) {
                return None;
            }
            least = least.min(room.retired());
        }
        Some(least)
    }

    /// Whether destinations that are not near must be woken by their sources even when their thread does not
    /// sleep: they have no marks to look at.
    #[inline]
    pub fn must_wake(&self) -> bool {
        matches!(self.carrier, Carrier::Letters(_))
    }
}
