//! The keeper of what has too many pairs for slots: a stamp for each source says that all it sends in a turn lies in mailboxes.
//!
//! # Why a turn is never taken for complete too early
//! A source puts its pieces into the mailboxes of their destinations and stamps its line then; who sees the stamp finds them. A destination that
//! does not live by stamps is told of each source by name, also of those that send it nothing.
//!
//! A source that leaves the process says from which turn on it stamps nothing here ([`Stamped::leave`]). Of earlier turns its stamps still hold:
//! they are only written over when all destinations have retired them.

use super::retired_turns::rooms;
use super::slots::{KnownArrivals, StampRef, TurnStatus};
use super::stamp::Stamp;
use super::sync::{AtomicU64, Ordering};
use super::{Destinations, RetiredTurns, ShardSide, fences};
use crate::OPEN_TURNS;
use brambling_memory::mutants;
use brambling_program::{Links, Turn};
use std::ops::Range;
use std::sync::Arc;

/// One source's open turns. On a line of its own: its thread writes it.
#[repr(align(128))]
struct SourceStamps {
    ended: [Stamp; OPEN_TURNS as usize],
    /// The first turn that it does not stamp here.
    left: AtomicU64,
}

impl SourceStamps {
    fn of(&self, turn: Turn) -> &Stamp {
        &self.ended[(turn % OPEN_TURNS) as usize]
    }

    fn has_left(&self, turn: Turn) -> bool {
        // Acquire: what the source said of later turns comes through the mailbox. Pairs with the
        // Release in `leave`.
        turn >= self.left.load(Ordering::Acquire)
    }
}

/// The stamps of an exchange.
pub struct Stamped {
    links: Arc<Links>,
    lines: Box<[SourceStamps]>,
    /// By destination. Touched by its thread.
    arrived: Box<[KnownArrivals]>,
    sources: Box<[ShardSide]>,
    destinations: Box<[ShardSide]>,
    /// By destination, wherever it is.
    rooms: Box<[RetiredTurns]>,
}

impl Stamped {
    pub(super) fn new(
        links: Arc<Links>,
        (source, destination): (impl Fn(u32) -> ShardSide, impl Fn(u32) -> ShardSide),
    ) -> Stamped {
        let line = |at: &ShardSide| SourceStamps {
            ended: Default::default(),
            left: AtomicU64::new(match at.starts_here {
                true => Turn::MAX,
                false => 0,
            }),
        };
        let sources: Box<[ShardSide]> = (0..links.source_count()).map(source).collect();
        Stamped {
            lines: sources.iter().map(line).collect(),
            arrived: (0..links.destination_count())
                .map(|_| KnownArrivals::default())
                .collect(),
            destinations: (0..links.destination_count()).map(destination).collect(),
            rooms: rooms(&links),
            sources,
            links,
        }
    }

    /// Whether a destination lives by stamps.
    pub fn serves(&self, destination: u32) -> bool {
        self.destinations[destination as usize].starts_here
    }

    /// Whether a source stamps its turns here.
    pub fn stamps(&self, source: u32, turn: Turn) -> bool {
        !self.lines[source as usize].has_left(turn)
    }

    /// What a destination has heard of the sources that stamp, beside those whose word comes through the mailbox. For the destination's thread.
    pub fn heard(&self, turn: Turn, destination: u32) -> TurnStatus<'_> {
        let links = self.links.at(turn);
        let known = self.arrived[destination as usize].of(turn);
        let fan_in = links.fan_in(destination);
        // Relaxed, here and below: the destination's thread alone writes it, and hands it on with
        // the shard.
        let mut at = known.load(Ordering::Relaxed);
        let begun = at;
        let missing = loop {
            if at == fan_in {
                break None;
            }
            let source = links.source(destination, at);
            let line = &self.lines[source as usize];
            let stamp = line.of(turn);
            if !stamp.has_ended(turn) && !line.has_left(turn) {
                break Some((source, stamp));
            }
            at += 1;
        };
        if at != begun {
            known.store(at, Ordering::Relaxed);
        }
        match missing {
            None => TurnStatus::Complete,
            Some((source, stamp)) => TurnStatus::Missing {
                source: self.sources[source as usize].number,
                mark: Some(StampRef::new(stamp, turn)),
            },
        }
    }

    /// How many of a destination's first sources are known to have ended a turn, or to say so by mail. For its thread.
    pub fn known(&self, turn: Turn, destination: u32) -> u32 {
        let known = self.arrived[destination as usize].of(turn);
        known.load(Ordering::Relaxed)
    }

    /// Which of a destination's sources, by their places, have ended a turn by stamp: of these all is said.
    pub fn ended(
        &self,
        turn: Turn,
        destination: u32,
        places: Range<u32>,
    ) -> impl Iterator<Item = u32> + '_ {
        let links = self.links.at(turn);
        places.filter(move |place| {
            let source = links.source(destination, *place);
            self.lines[source as usize].of(turn).has_ended(turn)
        })
    }

    /// Ends a source's turn, whose pieces lie in mailboxes. Tells its destinations; those that do not live by stamps are given to `elsewhere`.
    pub fn sent<'a>(
        &'a self,
        turn: Turn,
        source: u32,
        destinations: &mut impl Destinations<'a>,
        mut elsewhere: impl FnMut(u32),
    ) {
        let links = self.links.at(turn);
        let places = || (0..links.fan_out(source)).map(|place| links.destination(source, place));
        // Looked up before anybody can see the stamp, as with slots.
        let mut lacking = Vec::new();
        for (destination, ordinal) in places() {
            let ShardSide { number, .. } = self.destinations[destination as usize];
            let known = self.arrived[destination as usize].of(turn);
            // A destination that has not looked as far as this source lacks another source as well.
            if destinations.is_on_this_thread(number) && known.load(Ordering::Relaxed) == ordinal {
                lacking.push((destination, number));
            }
        }
        self.lines[source as usize].of(turn).end(turn);
        for (destination, number) in lacking {
            destinations.reached(number, || self.heard(turn, destination));
        }
        // As with slots: a thread that goes to sleep, or a shard that leaves, sees the stamp, or is
        // seen here.
        fences::light();
        for (destination, _) in places() {
            let ShardSide {
                number,
                starts_here,
            } = self.destinations[destination as usize];
            let is_told = destinations.is_on_this_thread(number)
                || (starts_here && destinations.sent_to_another_thread(number));
            if !is_told {
                elsewhere(destination);
            }
        }
    }

    /// A source leaves the process: what it says of later turns than those that it has stamped comes through the mailbox.
    pub fn leave(&self, source: u32) {
        let SourceStamps { ended, left } = &self.lines[source as usize];
        let last = ended.iter().map(Stamp::last).max().unwrap_or(0);
        if mutants::is_on("who-leaves-is-waited-for") {
            return;
        }
        // Release: pairs with the Acquire in `has_left`. `last` is one more than the last turn that
        // the source has stamped: the first that it says by mail.
        left.store(last, Ordering::Release);
    }

    pub(super) fn room(&self, destination: u32) -> &RetiredTurns {
        &self.rooms[destination as usize]
    }

    pub(super) fn retire(&self, turn: Turn, destination: u32) {
        let known = self.arrived[destination as usize].of(turn);
        known.store(0, Ordering::Relaxed);
    }
}
