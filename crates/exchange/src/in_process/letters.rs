//! An exchange by letters: what its tasks send and gather, who hears of it, and who has room.

use super::local::rooms;
use super::mailbox::{Letters, Mailbox};
use super::sending::Sending;
use super::slots::{Destinations, Heard};
use super::{Arrivals, Room, TURNS_OPEN};
use brambling_memory::{Budget, OutOfMemory};
use brambling_program::{Links, LinksAt, PayloadType, PieceSink, PieceSource, Turn};
use std::sync::Arc;

/// The mailboxes of an exchange with too many pairs for slots. A destination counts its sources; one that is missing
/// wakes it.
pub struct Mailboxes {
    links: Arc<Links>,
    mailbox: Mailbox,
    /// By destination, and open turn.
    arrivals: Box<[[Arrivals; TURNS_OPEN as usize]]>,
    rooms: Box<[Room]>,
    /// What the executor calls the destinations' shards.
    numbers: Box<[u32]>,
}

impl Mailboxes {
    /// What lies in them is charged to `budget`.
    pub(super) fn new(
        links: Arc<Links>,
        piece: &'static PayloadType,
        number: impl Fn(u32) -> u32,
        budget: &Budget,
    ) -> Mailboxes {
        let arrivals = |turn: usize, to: u32| Arrivals::new(links.fan_in(turn as Turn, to));
        let destinations = || 0..links.destination_count();
        Mailboxes {
            mailbox: Mailbox::new(&links, piece, budget.clone()),
            arrivals: destinations()
                .map(|to| std::array::from_fn(|turn| arrivals(turn, to)))
                .collect(),
            rooms: rooms(&links),
            numbers: destinations().map(number).collect(),
            links,
        }
    }

    pub(super) fn rooms(&self) -> &[Room] {
        &self.rooms
    }

    fn arrivals(&self, turn: Turn, destination: u32) -> &Arrivals {
        &self.arrivals[destination as usize][(turn % TURNS_OPEN) as usize]
    }

    pub(super) fn heard(&self, turn: Turn, destination: u32) -> Heard<'_> {
        match self.arrivals(turn, destination).is_complete() {
            true => Heard::All,
            false => Heard::Missing {
                source: 0,
                mark: None,
            },
        }
    }

    /// Where a source puts its letters of a turn for which it has room.
    pub fn outbox(&self, turn: Turn, source: u32) -> MailboxOut<'_> {
        let links = self.links.at(turn);
        MailboxOut {
            sending: Sending::new(&self.mailbox, source, links.fan_out(source)),
            links,
            turn,
            source,
        }
    }

    /// Ends a source's turn, whose letters have been delivered. Tells all its destinations.
    pub fn sent<'a>(&'a self, turn: Turn, source: u32, destinations: &mut impl Destinations<'a>) {
        let links = self.links.at(turn);
        for place in 0..links.fan_out(source) {
            let (destination, _) = links.destination(source, place);
            let number = self.numbers[destination as usize];
            let arrivals = self.arrivals(turn, destination);
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

    /// The letters of a turn of which a destination has heard all, in source order.
    pub fn inbox(&self, turn: Turn, destination: u32) -> MailboxIn<'_> {
        MailboxIn(self.mailbox.drain(turn, destination))
    }

    /// Ends a destination's turn and opens the one K later. Calls `wake` for each source that waits for room.
    pub fn retire(&self, turn: Turn, destination: u32, mut wake: impl FnMut(u32)) {
        let expected = self.links.fan_in(turn + TURNS_OPEN, destination);
        self.arrivals(turn, destination).reopen(expected);
        self.rooms[destination as usize].retire(|source| wake(source as u32));
    }
}

/// A source's turn being written to mailboxes. What is not delivered is never seen by a destination.
pub struct MailboxOut<'a> {
    sending: Sending<'a>,
    links: LinksAt<'a>,
    turn: Turn,
    source: u32,
}

impl MailboxOut<'_> {
    /// The kernel has written its pieces: they are charged and delivered.
    ///
    /// # Errors
    /// When the budget has no room for them. None was delivered then.
    pub fn deliver(&mut self) -> Result<(), OutOfMemory> {
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
pub struct MailboxIn<'a>(Letters<'a>);

impl PieceSource for MailboxIn<'_> {
    fn next(&mut self) -> Option<(u32, *mut u8)> {
        self.0.next()
    }
}
