//! Exchange within a process: a scatter writes into memory that its destinations own. Nothing is encoded.
//!
//! # How nothing is lost
//! A destination has K turns of pieces open. A turn counts down the sources not yet heard from; a gather
//! runs at 0, then opens the turn K later and counts one more turn as retired. A source writes to a turn
//! only when the destination has retired the turn K before it, so a place is never written while it is
//! read, and the waits point only backwards in program order.
//!
//! Whoever finds a count too high (a gather) or too low (a scatter) leaves a mark in the very word it
//! read, and whoever moves that word sees the mark: a wake-up cannot be missed between look and sleep.

mod mailbox;
mod slots;
mod waiters;

pub use waiters::Waiters;

use brambling_program::{Links, PayloadType, PieceSink, PieceSource, Turn};
use mailbox::Mailbox;
use slots::Slots;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How many turns of an exchange are open per destination.
pub const TURNS_OPEN: u64 = 4;
/// Set in a turn's count by a gather that waits for it.
const GATHER_WAITS: u32 = 1 << 31;
/// Set in the retired count by a scatter that waits for it.
const SCATTER_WAITS: u64 = 1 << 63;
/// Beyond this the pieces of an exchange come through mailboxes: memory then follows the pieces sent.
const SLOT_BYTES_MAX: usize = 16 << 20;

/// Words that one thread writes and others read lie on lines of their own: two, since processors
/// fetch lines in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Apart<T>(T);

const _: () = assert!(align_of::<Apart<AtomicU64>>() == 128);

/// One destination's side.
struct Destination {
    /// Turns retired, and the mark of waiting scatters. Written by the destination.
    retired: Apart<AtomicU64>,
    /// Sources not yet heard from, for each open turn, and the mark of a waiting gather. Written by sources.
    missing: [Apart<AtomicU32>; TURNS_OPEN as usize],
    /// Sources that wait for room here.
    waiting: Waiters,
}

enum Pieces {
    Slots(Slots),
    Mailbox(Mailbox),
}

/// An exchange whose sources and destinations share a process.
pub struct InProcess {
    links: Links,
    destinations: Box<[Destination]>,
    pieces: Pieces,
}

impl InProcess {
    /// An exchange with nothing sent.
    pub fn new(links: Links, piece: &'static PayloadType) -> InProcess {
        let missing =
            |turn: u64, destination: u32| Apart(AtomicU32::new(links.fan_in(turn, destination)));
        let destinations: Box<[Destination]> = (0..links.destination_count())
            .map(|destination| Destination {
                retired: Apart(AtomicU64::new(0)),
                missing: std::array::from_fn(|turn| missing(turn as u64, destination)),
                waiting: Waiters::new(links.source_count() as usize),
            })
            .collect();
        let bytes = Slots::bytes(&links, piece);
        let pieces = if bytes <= SLOT_BYTES_MAX {
            Pieces::Slots(Slots::new(&links, piece))
        } else {
            Pieces::Mailbox(Mailbox::new(&links, piece))
        };
        InProcess {
            links,
            destinations,
            pieces,
        }
    }

    /// Who may send to whom.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Whether every piece of a turn has reached a destination. If not, its last piece will wake it.
    #[inline]
    pub fn is_complete(&self, turn: Turn, destination: u32) -> bool {
        let missing =
            &self.destinations[destination as usize].missing[(turn % TURNS_OPEN) as usize].0;
        // Acquire: pairs with the AcqRel countdown in `sent`; the pieces are visible.
        if missing.load(Ordering::Acquire) & !GATHER_WAITS == 0 {
            return true;
        }
        missing.fetch_or(GATHER_WAITS, Ordering::AcqRel) & !GATHER_WAITS == 0
    }

    /// Whether every destination of a source has room for a turn. If not, the next to retire wakes it.
    #[inline]
    pub fn has_room(&self, turn: Turn, source: u32) -> bool {
        // Nobody can lack room in the first K turns.
        turn < TURNS_OPEN
            || (0..self.links.fan_out(turn, source)).all(|place| {
                let (destination, _) = self.links.destination(turn, source, place);
                self.has_room_at(turn, source, destination)
            })
    }

    #[inline]
    fn has_room_at(&self, turn: Turn, source: u32, destination: u32) -> bool {
        let destination = &self.destinations[destination as usize];
        // Acquire: pairs with the AcqRel increment in `retire`; the place is no longer read.
        if (destination.retired.0.load(Ordering::Acquire) & !SCATTER_WAITS) + TURNS_OPEN > turn {
            return true;
        }
        destination.waiting.add(source as usize);
        let retired = destination
            .retired
            .0
            .fetch_or(SCATTER_WAITS, Ordering::AcqRel);
        (retired & !SCATTER_WAITS) + TURNS_OPEN > turn
    }

    /// Where a source puts its pieces of a turn for which it has room.
    pub fn outbox(&self, turn: Turn, source: u32) -> LocalOutbox<'_> {
        LocalOutbox {
            exchange: self,
            turn,
            source,
            begun: Vec::new(),
        }
    }

    /// Ends a source's turn: what it did not send counts as empty. Calls `wake` for each destination that
    /// waited for this source alone.
    pub fn sent(&self, turn: Turn, source: u32, mut wake: impl FnMut(u32)) {
        for place in 0..self.links.fan_out(turn, source) {
            let (destination, _) = self.links.destination(turn, source, place);
            let missing =
                &self.destinations[destination as usize].missing[(turn % TURNS_OPEN) as usize].0;
            // AcqRel: publishes the pieces; the last source also acquires the others', for the destination.
            if missing.fetch_sub(1, Ordering::AcqRel) == (1 | GATHER_WAITS) {
                wake(destination);
            }
        }
    }

    /// The pieces of a complete turn, in source order.
    pub fn inbox(&self, turn: Turn, destination: u32) -> LocalInbox<'_> {
        match &self.pieces {
            Pieces::Slots(_) => LocalInbox {
                exchange: self,
                turn,
                destination,
                next: 0,
                sorted: Vec::new(),
            },
            Pieces::Mailbox(mailbox) => {
                let sorted = mailbox.drain(turn, destination);
                LocalInbox {
                    exchange: self,
                    turn,
                    destination,
                    next: 0,
                    sorted,
                }
            }
        }
    }

    /// Ends a destination's turn and opens the one K later. Calls `wake` for each source that waited for room.
    pub fn retire(&self, turn: Turn, destination: u32, wake: impl FnMut(u32)) {
        let side = &self.destinations[destination as usize];
        let later = self.links.fan_in(turn + TURNS_OPEN, destination);
        // Relaxed: published to sources by the increment below, which they acquire before they count down.
        side.missing[(turn % TURNS_OPEN) as usize]
            .0
            .store(later, Ordering::Relaxed);
        if side.retired.0.fetch_add(1, Ordering::AcqRel) & SCATTER_WAITS != 0 {
            side.retired.0.fetch_and(!SCATTER_WAITS, Ordering::AcqRel);
            let mut wake = wake;
            side.waiting.take(|source| wake(source as u32));
        }
    }

    /// Bytes that the pieces of a source's turn own, beyond those of the turn that used the places before.
    pub fn growth(&self, turn: Turn, source: u32) -> i64 {
        match &self.pieces {
            Pieces::Slots(slots) => slots.growth(&self.links, turn, source),
            Pieces::Mailbox(_) => 0,
        }
    }
}

/// A source's turn being written.
pub struct LocalOutbox<'a> {
    exchange: &'a InProcess,
    turn: Turn,
    source: u32,
    /// Pieces begun in mailboxes, by destination.
    begun: Vec<*mut u8>,
}

impl PieceSink for LocalOutbox<'_> {
    #[inline]
    fn slot(&mut self, destination: u32) -> Option<*mut u8> {
        let ordinal = self
            .exchange
            .links
            .ordinal(self.turn, self.source, destination)?;
        Some(match &self.exchange.pieces {
            Pieces::Slots(slots) => slots.write(self.turn, destination, ordinal),
            Pieces::Mailbox(mailbox) => {
                self.begun.resize(
                    self.exchange.links.destination_count() as usize,
                    std::ptr::null_mut(),
                );
                let begun = &mut self.begun[destination as usize];
                if begun.is_null() {
                    *begun = mailbox.write(self.turn, self.source, destination);
                }
                *begun
            }
        })
    }

    fn source(&self) -> u32 {
        self.source
    }

    #[inline]
    fn fan_out(&self) -> u32 {
        self.exchange.links.fan_out(self.turn, self.source)
    }

    #[inline]
    fn destination(&self, place: u32) -> u32 {
        self.exchange
            .links
            .destination(self.turn, self.source, place)
            .0
    }
}

/// A destination's turn being read. Dropping it clears what the kernel left.
pub struct LocalInbox<'a> {
    exchange: &'a InProcess,
    turn: Turn,
    destination: u32,
    next: u32,
    sorted: Vec<mailbox::Letter>,
}

impl PieceSource for LocalInbox<'_> {
    #[inline]
    fn next(&mut self) -> Option<(u32, *mut u8)> {
        let slots = match &self.exchange.pieces {
            Pieces::Slots(slots) => slots,
            Pieces::Mailbox(_) => {
                let letter = self.sorted.get(self.next as usize)?;
                self.next += 1;
                return Some((letter.source(), letter.piece()));
            }
        };
        let links = &self.exchange.links;
        while self.next < links.fan_in(self.turn, self.destination) {
            let ordinal = self.next;
            self.next += 1;
            if let Some(piece) = slots.read(self.turn, self.destination, ordinal) {
                return Some((links.source(self.turn, self.destination, ordinal), piece));
            }
        }
        None
    }
}

impl Drop for LocalInbox<'_> {
    fn drop(&mut self) {
        // A piece left in its slot would be taken for one of a later turn.
        if let Pieces::Slots(_) = &self.exchange.pieces {
            while self.next().is_some() {}
        }
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
        let exchange = InProcess::new(links, PayloadType::of::<P>());
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
                        exchange.sent(turn, source, |_| {});
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
        let exchange = InProcess::new(links, PayloadType::of::<[u64; 32]>());
        assert!(matches!(exchange.pieces, Pieces::Mailbox(_)));
        check(&Relation::AllToAll, 300, |turn, source, to| {
            [turn + u64::from(source * 1_000 + to); 32]
        });
    }
}
