//! The exchange itself: arrivals and room of each destination, and the places of the pieces.

use super::mailbox::{Letters, Mailbox};
use super::rare::Rare;
use super::sending::Sending;
use super::slots::{Destinations, Heard, Slots};
use super::sync::{AtomicU64, Ordering};
use super::{Arrivals, Room, TURNS_OPEN};
use brambling_memory::{Budget, OutOfMemory};
use brambling_program::{
    Links, LinksAt, PayloadType, PieceSink, PieceSource, Pieces as Lent, Sink, Turn,
};

/// Beyond this the pieces of an exchange come through mailboxes: memory then follows the pieces sent.
const SLOT_BYTES_MAX: usize = 16 << 20;

/// One destination's side.
struct Destination {
    room: Room,
}

enum Pieces {
    Slots(Slots),
    /// With the arrivals of each destination's open turns.
    Mailbox(Mailbox, Box<[[Arrivals; TURNS_OPEN as usize]]>),
}

/// An exchange whose sources and destinations share a process.
pub struct InProcess {
    links: Links,
    destinations: Box<[Destination]>,
    numbers: Box<[u32]>,
    pieces: Pieces,
    /// Whether one table holds at every turn.
    is_steady: bool,
}

impl InProcess {
    /// An exchange with nothing sent. `numbers` is what the executor calls a source's shard, and a destination's;
    /// what lies in mailboxes is charged to `budget`.
    pub fn new(
        links: Links,
        piece: &'static PayloadType,
        numbers: (impl Fn(u32) -> u32, impl Fn(u32) -> u32),
        budget: &Budget,
    ) -> InProcess {
        let number = &numbers.1;
        let arrivals = |turn: usize, to: u32| Arrivals::new(links.fan_in(turn as Turn, to));
        let destinations: Box<[Destination]> = (0..links.destination_count())
            .map(|_| Destination {
                room: Room::new(links.source_count() as usize),
            })
            .collect();
        let pieces = if Slots::bytes(&links, piece) <= SLOT_BYTES_MAX {
            Pieces::Slots(Slots::new(&links, piece, (&numbers.0, number)))
        } else {
            Pieces::Mailbox(
                Mailbox::new(&links, piece, budget.clone()),
                (0..links.destination_count())
                    .map(|to| std::array::from_fn(|turn| arrivals(turn, to)))
                    .collect(),
            )
        };
        let numbers = (0..links.destination_count()).map(number).collect();
        InProcess {
            is_steady: links.phase_count() == 1,
            links,
            destinations,
            numbers,
            pieces,
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

    /// What a destination has heard of a turn. Asked by the destination's thread. Of a missing source: without
    /// a mark it wakes the destination; with one it does so only where [`Destinations`] says.
    #[inline(always)]
    pub fn heard(&self, turn: Turn, phase: usize, destination: u32) -> Heard<'_> {
        match &self.pieces {
            Pieces::Slots(slots) => slots.destination(phase, destination).heard(turn),
            Pieces::Mailbox(_, arrivals) => {
                let arrivals = &arrivals[destination as usize][(turn % TURNS_OPEN) as usize];
                counted(arrivals.is_complete())
            }
        }
    }

    /// Its places, unless its pieces come through mailboxes.
    #[inline(always)]
    pub fn slots(&self) -> Option<&Slots> {
        match &self.pieces {
            Pieces::Slots(slots) => Some(slots),
            Pieces::Mailbox(..) => None,
        }
    }

    /// Whether every destination of a source has room for a turn. If not, the next to retire wakes it.
    #[inline(always)]
    pub fn has_room(&self, turn: Turn, source: u32) -> bool {
        let Some(slots) = self.slots() else {
            return self.look_for_room(turn, source, None);
        };
        let end = slots.source(self.phase(turn), source);
        end.has_seen_room(turn) || self.look_for_room(turn, source, Some(end.known_retired()))
    }

    #[inline(never)]
    fn look_for_room(&self, turn: Turn, source: u32, known: Option<&AtomicU64>) -> bool {
        // Nobody can lack room in the first K turns.
        let turns = (turn + 1).saturating_sub(TURNS_OPEN);
        if turns == 0 {
            return true;
        }
        let links = self.links.at(turn);
        let mut least = u64::MAX;
        for place in 0..links.fan_out(source) {
            let (destination, _) = links.destination(source, place);
            let room = &self.destinations[destination as usize].room;
            if !(room.has_retired(turns) || room.await_retired(turns, source as usize)) {
                return false;
            }
            least = least.min(room.retired());
        }
        if let Some(known) = known {
            known.store(least, Ordering::Relaxed);
        }
        true
    }

    /// Where a source puts its pieces of a turn for which it has room. `begun` is the caller's, for what
    /// must live as long as the sink.
    #[inline]
    pub fn outbox<'a, 'b>(
        &'a self,
        turn: Turn,
        phase: usize,
        source: u32,
        begun: &'b mut Option<MailboxOut<'a>>,
    ) -> Sink<'b> {
        match &self.pieces {
            Pieces::Slots(slots) => Sink::Slots(slots.source(phase, source).out(turn)),
            Pieces::Mailbox(mailbox, _) => {
                let links = self.links.at(turn);
                let sending = Sending::new(mailbox, source, links.fan_out(source));
                Sink::Other(begun.insert(MailboxOut {
                    sending: Rare::new(sending),
                    links,
                    turn,
                    source,
                }))
            }
        }
    }

    /// The kernel has written its pieces. Letters are charged and delivered; of pieces in slots it gives the bytes
    /// that they own beyond those of the turn that used the places before, which the caller charges.
    ///
    /// # Errors
    /// When the budget has no room for the letters. None was delivered then.
    #[inline]
    pub fn finish(
        &self,
        turn: Turn,
        phase: usize,
        source: u32,
        begun: &mut Option<MailboxOut<'_>>,
    ) -> Result<i64, OutOfMemory> {
        match (&self.pieces, begun) {
            (Pieces::Slots(slots), _) => Ok(slots.source(phase, source).growth(turn)),
            (Pieces::Mailbox(..), Some(begun)) => begun.deliver().map(|()| 0),
            (Pieces::Mailbox(..), None) => Ok(0),
        }
    }

    /// Ends a source's turn: what it did not send counts as empty. Tells all its destinations.
    #[inline(always)]
    pub fn sent<'a>(
        &'a self,
        turn: Turn,
        phase: usize,
        source: u32,
        destinations: &mut impl Destinations<'a>,
    ) {
        match &self.pieces {
            Pieces::Slots(slots) => slots.source(phase, source).sent(turn, destinations),
            Pieces::Mailbox(_, arrivals) => {
                let links = self.links.at(turn);
                for at in 0..links.fan_out(source) {
                    let (destination, _) = links.destination(source, at);
                    let number = self.numbers[destination as usize];
                    let arrivals = &arrivals[destination as usize][(turn % TURNS_OPEN) as usize];
                    if destinations.is_near(number) {
                        if arrivals.arrive_near() {
                            destinations.reached(number, || Heard::All);
                        }
                    } else {
                        arrivals.arrive_far();
                        destinations.sent_far(number);
                    }
                }
            }
        }
    }

    /// Whether destinations that are not near must be woken by their sources even when their thread does not
    /// sleep: they have no marks to look at.
    #[inline]
    pub fn must_wake(&self) -> bool {
        matches!(self.pieces, Pieces::Mailbox(..))
    }

    /// The pieces of a turn of which a destination has heard all, in source order. `letters` is the caller's,
    /// for what must live as long as they do.
    #[inline]
    pub fn inbox<'a, 'b>(
        &'a self,
        turn: Turn,
        phase: usize,
        destination: u32,
        letters: &'b mut Option<MailboxIn<'a>>,
    ) -> Lent<'b> {
        match &self.pieces {
            Pieces::Slots(slots) => Lent::Slots(slots.destination(phase, destination).pieces(turn)),
            Pieces::Mailbox(mailbox, _) => {
                let drained = mailbox.drain(turn, destination);
                Lent::Other(letters.insert(MailboxIn(Rare::new(drained))))
            }
        }
    }

    /// Ends a destination's turn and opens the one K later. Calls `wake` for each source that waits for room.
    #[inline(always)]
    pub fn retire(&self, turn: Turn, destination: u32, mut wake: impl FnMut(u32)) {
        match &self.pieces {
            Pieces::Slots(slots) => slots.reopen(turn, destination),
            Pieces::Mailbox(_, arrivals) => arrivals[destination as usize]
                [(turn % TURNS_OPEN) as usize]
                .reopen(self.links.fan_in(turn + TURNS_OPEN, destination)),
        }
        self.destinations[destination as usize]
            .room
            .retire(|source| wake(source as u32));
    }
}

/// What a count of arrivals says: a source that is missing wakes the destination.
fn counted<'a>(complete: bool) -> Heard<'a> {
    if complete {
        Heard::All
    } else {
        Heard::Missing {
            source: 0,
            mark: None,
        }
    }
}

/// A source's turn being written to mailboxes. What is not finished is never seen by a destination.
pub struct MailboxOut<'a> {
    sending: Rare<Sending<'a>>,
    links: LinksAt<'a>,
    turn: Turn,
    source: u32,
}

impl MailboxOut<'_> {
    #[cold]
    fn deliver(&mut self) -> Result<(), OutOfMemory> {
        let (links, source) = (self.links, self.source);
        let destination = |place| links.destination(source, place).0;
        self.sending.deliver(self.turn, destination)
    }
}

impl PieceSink for MailboxOut<'_> {
    fn slot(&mut self, destination: u32) -> Option<*mut u8> {
        let is_it = |place: &u32| self.destination(*place) == destination;
        // In a dense relation every destination has the place of its index.
        let here = Some(destination).filter(|place| *place < self.fan_out() && is_it(place));
        let place = here.or_else(|| (0..self.fan_out()).find(is_it))?;
        Some(self.slot_at(place).1)
    }

    fn slot_at(&mut self, place: u32) -> (u32, *mut u8) {
        (self.destination(place), self.sending.piece(place))
    }

    fn source(&self) -> u32 {
        self.source
    }

    fn fan_out(&self) -> u32 {
        self.links.fan_out(self.source)
    }

    fn destination(&self, place: u32) -> u32 {
        self.links.destination(self.source, place).0
    }
}

/// A destination's turn being read from its mailbox.
pub struct MailboxIn<'a>(Rare<Letters<'a>>);

impl PieceSource for MailboxIn<'_> {
    fn next(&mut self) -> Option<(u32, *mut u8)> {
        self.0.next()
    }
}
