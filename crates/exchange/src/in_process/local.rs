//! The exchange itself: arrivals and room of each destination, and the places of the pieces.

use super::mailbox::{Letter, Mailbox};
use super::slots::Slots;
use super::sync::Ordering;
use super::{Arrivals, Room, TURNS_OPEN};
use brambling_program::{
    Links, LinksAt, PayloadType, PieceSink, PieceSource, SlotsIn, SlotsOut, Turn,
};

/// Beyond this the pieces of an exchange come through mailboxes: memory then follows the pieces sent.
const SLOT_BYTES_MAX: usize = 16 << 20;

/// Where a destination is, as its source's thread sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// On the source's own thread.
    Near,
    /// On another.
    Far,
}

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
}

impl InProcess {
    /// An exchange with nothing sent. `number` is what the executor calls a destination's shard.
    pub fn new(
        links: Links,
        piece: &'static PayloadType,
        number: impl Fn(u32) -> u32,
    ) -> InProcess {
        let arrivals = |turn: usize, to: u32| Arrivals::new(links.fan_in(turn as Turn, to));
        let destinations: Box<[Destination]> = (0..links.destination_count())
            .map(|_| Destination {
                room: Room::new(links.source_count() as usize),
            })
            .collect();
        let pieces = if Slots::bytes(&links, piece) <= SLOT_BYTES_MAX {
            Pieces::Slots(Slots::new(&links, piece, &number))
        } else {
            Pieces::Mailbox(
                Mailbox::new(&links, piece),
                (0..links.destination_count())
                    .map(|to| std::array::from_fn(|turn| arrivals(turn, to)))
                    .collect(),
            )
        };
        let numbers = (0..links.destination_count()).map(number).collect();
        InProcess {
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

    /// Whether every piece of a turn has reached a destination. If not, whoever brings the last one wakes it.
    /// Asked by the destination's thread.
    #[inline]
    pub fn is_complete(&self, turn: Turn, destination: u32) -> bool {
        match &self.pieces {
            Pieces::Slots(slots) => {
                slots.is_complete(turn, destination, self.links.fan_in(turn, destination))
            }
            Pieces::Mailbox(_, arrivals) => {
                arrivals[destination as usize][(turn % TURNS_OPEN) as usize].is_complete()
            }
        }
    }

    /// Whether every destination of a source has room for a turn. If not, the next to retire wakes it.
    #[inline]
    pub fn has_room(&self, turn: Turn, source: u32) -> bool {
        // Nobody can lack room in the first K turns.
        let Some(turns) = (turn + 1)
            .checked_sub(TURNS_OPEN)
            .filter(|turns| *turns > 0)
        else {
            return true;
        };
        let links = self.links.at(turn);
        let known = match &self.pieces {
            Pieces::Slots(slots) => Some(slots.known_retired(links.phase(), source)),
            Pieces::Mailbox(..) => None,
        };
        // What was seen once need not be fetched from the destinations' threads again.
        if known.is_some_and(|known| known.load(Ordering::Relaxed) >= turns) {
            return true;
        }
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

    /// Where a source puts its pieces of a turn for which it has room.
    #[inline]
    pub fn outbox(&self, turn: Turn, source: u32) -> LocalOutbox<'_> {
        LocalOutbox {
            exchange: self,
            links: self.links.at(turn),
            turn,
            source,
            begun: Vec::new(),
        }
    }

    /// Ends a source's turn: what it did not send counts as empty. `place` says where the shard of a
    /// destination is; `wake` is called for each that may be complete by now. Both get the executor's numbers.
    #[inline]
    pub fn sent(
        &self,
        turn: Turn,
        source: u32,
        place: impl Fn(u32) -> Arrival,
        mut wake: impl FnMut(u32, Arrival),
    ) {
        let links = self.links.at(turn);
        match &self.pieces {
            Pieces::Slots(slots) => {
                for route in slots.routes(links.phase(), source) {
                    slots.arrive(turn, route);
                    match place(route.number) {
                        Arrival::Near => {
                            if slots.is_complete(
                                turn,
                                route.destination,
                                links.fan_in(route.destination),
                            ) {
                                wake(route.number, Arrival::Near);
                            }
                        }
                        Arrival::Far => wake(route.number, Arrival::Far),
                    }
                }
            }
            Pieces::Mailbox(_, arrivals) => {
                for at in 0..links.fan_out(source) {
                    let (destination, _) = links.destination(source, at);
                    let number = self.numbers[destination as usize];
                    let arrivals = &arrivals[destination as usize][(turn % TURNS_OPEN) as usize];
                    match place(number) {
                        Arrival::Near if arrivals.arrive_near() => wake(number, Arrival::Near),
                        Arrival::Near => {}
                        Arrival::Far => {
                            arrivals.arrive_far();
                            wake(number, Arrival::Far);
                        }
                    }
                }
            }
        }
    }

    /// The pieces of a complete turn, in source order.
    #[inline]
    pub fn inbox(&self, turn: Turn, destination: u32) -> LocalInbox<'_> {
        let letters = match &self.pieces {
            Pieces::Slots(_) => Vec::new(),
            Pieces::Mailbox(mailbox, _) => mailbox.drain(turn, destination),
        };
        LocalInbox {
            exchange: self,
            links: self.links.at(turn),
            turn,
            destination,
            slots: None,
            next: 0,
            letters,
        }
    }

    /// Ends a destination's turn and opens the one K later. Calls `wake` for each source that waits for room.
    #[inline]
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

    /// Bytes that the pieces of a source's turn own, beyond those of the turn that used the places before.
    #[inline]
    pub fn growth(&self, turn: Turn, source: u32) -> i64 {
        match &self.pieces {
            Pieces::Slots(slots) => slots.growth(turn, self.links.at(turn).phase(), source),
            Pieces::Mailbox(..) => 0,
        }
    }
}

/// A source's turn being written.
pub struct LocalOutbox<'a> {
    exchange: &'a InProcess,
    links: LinksAt<'a>,
    turn: Turn,
    source: u32,
    /// Pieces begun in mailboxes, by destination.
    begun: Vec<*mut u8>,
}

impl PieceSink for LocalOutbox<'_> {
    fn slot(&mut self, destination: u32) -> Option<*mut u8> {
        let place = (0..self.fan_out()).find(|place| self.destination(*place) == destination)?;
        Some(self.slot_at(place).1)
    }

    fn slot_at(&mut self, place: u32) -> (u32, *mut u8) {
        let destination = self.destination(place);
        let piece = match &self.exchange.pieces {
            Pieces::Slots(slots) => slots.write(self.turn, self.links.phase(), self.source, place),
            Pieces::Mailbox(mailbox, _) => {
                let count = self.exchange.links.destination_count() as usize;
                self.begun.resize(count, std::ptr::null_mut());
                let begun = &mut self.begun[destination as usize];
                if begun.is_null() {
                    *begun = mailbox.write(self.turn, self.source, destination);
                }
                *begun
            }
        };
        (destination, piece)
    }

    #[inline]
    fn slots(&mut self) -> Option<SlotsOut> {
        match &self.exchange.pieces {
            Pieces::Slots(slots) => Some(slots.out(self.turn, self.links.phase(), self.source)),
            Pieces::Mailbox(..) => None,
        }
    }

    fn source(&self) -> u32 {
        self.source
    }

    #[inline]
    fn fan_out(&self) -> u32 {
        self.links.fan_out(self.source)
    }

    #[inline]
    fn destination(&self, place: u32) -> u32 {
        self.links.destination(self.source, place).0
    }
}

/// A destination's turn being read.
pub struct LocalInbox<'a> {
    exchange: &'a InProcess,
    links: LinksAt<'a>,
    turn: Turn,
    destination: u32,
    slots: Option<SlotsIn>,
    next: usize,
    letters: Vec<Letter>,
}

impl PieceSource for LocalInbox<'_> {
    #[inline]
    fn slots(&mut self) -> Option<SlotsIn> {
        match &self.exchange.pieces {
            Pieces::Slots(slots) => {
                let (fan_in, sources) = (
                    self.links.fan_in(self.destination),
                    self.links.sources(self.destination),
                );
                Some(slots.incoming(self.turn, self.destination, fan_in, sources))
            }
            Pieces::Mailbox(..) => None,
        }
    }

    fn next(&mut self) -> Option<(u32, *mut u8)> {
        if let Pieces::Slots(_) = self.exchange.pieces {
            if self.slots.is_none() {
                self.slots = self.slots();
            }
            return match (&self.exchange.pieces, &mut self.slots) {
                (Pieces::Slots(slots), Some(view)) => slots.next(view),
                _ => None,
            };
        }
        let letter = self.letters.get(self.next)?;
        self.next += 1;
        Some((letter.source(), letter.piece()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::{Payload, Relation};

    /// Two threads, one exchanging with the other, all turns in order; every piece names where it came from.
    fn check<P: Payload + PartialEq + std::fmt::Debug>(
        relation: &Relation,
        n: u32,
        make: impl Fn(u64, u32, u32) -> P + Sync,
    ) {
        let links = relation.link(n, n).unwrap();
        let exchange = InProcess::new(links, PayloadType::of::<P>(), |to| to);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..200 {
                    for source in 0..n {
                        while !exchange.has_room(turn, source) {
                            std::thread::yield_now();
                        }
                        let mut sink = exchange.outbox(turn, source);
                        for place in 0..sink.fan_out() {
                            let to = sink.destination(place);
                            // Every third piece is left out: an empty mark.
                            if (u64::from(to) + turn) % 3 != 0 {
                                let slot = sink.slot(to).unwrap();
                                // SAFETY: the slot is of type P and this thread's until `sent`.
                                #[allow(unsafe_code)]
                                unsafe {
                                    *slot.cast::<P>() = make(turn, source, to)
                                };
                            }
                        }
                        exchange.sent(turn, source, |_| Arrival::Far, |_, _| {});
                    }
                }
            });
            for turn in 0..200 {
                for to in 0..n {
                    while !exchange.is_complete(turn, to) {
                        std::thread::yield_now();
                    }
                    let mut inbox = exchange.inbox(turn, to);
                    let mut seen = Vec::new();
                    while let Some((source, piece)) = inbox.next() {
                        // SAFETY: the piece is of type P and this thread's until `retire`.
                        #[allow(unsafe_code)]
                        unsafe {
                            assert_eq!(*piece.cast::<P>(), make(turn, source, to))
                        };
                        seen.push(source);
                    }
                    let all = 0..exchange.links.fan_in(turn, to);
                    let expected: Vec<u32> = all
                        .map(|ordinal| exchange.links.source(turn, to, ordinal))
                        .collect();
                    assert_eq!(
                        seen,
                        if (u64::from(to) + turn) % 3 != 0 {
                            expected
                        } else {
                            vec![]
                        }
                    );
                    drop(inbox);
                    exchange.retire(turn, to, |_| {});
                }
            }
        });
    }

    #[test]
    fn slots_carry_every_piece_once_in_source_order() {
        check(&Relation::AllToAll, 3, |turn, source, to| {
            (turn, source, to)
        });
        check(
            &Relation::Offsets {
                offsets: vec![-1, 0, 2],
                wrap: true,
            },
            5,
            |turn, source, to| vec![turn, u64::from(source), u64::from(to)],
        );
    }

    #[test]
    fn mailboxes_carry_every_piece_once_in_source_order() {
        // Large pieces: the slots would exceed their bound.
        check::<Vec<[u64; 32]>>(&Relation::AllToAll, 2, |turn, source, to| {
            vec![[turn + u64::from(source + 7 * to); 32]]
        });
        let links = Relation::AllToAll.link(600, 600).unwrap();
        let exchange = InProcess::new(links, PayloadType::of::<[u64; 32]>(), |to| to);
        assert!(matches!(exchange.pieces, Pieces::Mailbox(..)));
        check(&Relation::AllToAll, 300, |turn, source, to| {
            [turn + u64::from(source * 1_000 + to); 32]
        });
    }
}
