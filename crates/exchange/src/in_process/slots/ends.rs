//! Owns the two ends of slots: what a source's thread does with its places, and what a
//! destination's does. Slices call them. Neither end ever touches a place that its stamp gives to
//! the other.
#![allow(unsafe_code)] // Places are found by addition; the slots' own tables say where.

use super::super::stamp::Stamp;
use super::super::sync::Ordering;
use super::super::{RetiredTurns, fences};
use super::{Header, Incoming, KnownArrivals, Outgoing, Slots};
use crate::OPEN_TURNS;
use brambling_memory::mutants;
use brambling_program::{SlotsIn, SlotsOut, Turn, Value};
use std::ptr;

/// Says when a source's turn has ended.
#[derive(Clone, Copy)]
pub struct StampRef<'a> {
    stamp: &'a Stamp,
    turn: Turn,
}

impl<'a> StampRef<'a> {
    pub(in super::super) fn new(stamp: &'a Stamp, turn: Turn) -> StampRef<'a> {
        StampRef { stamp, turn }
    }
}

impl StampRef<'_> {
    /// Whether the source has ended the turn.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.stamp.has_ended(self.turn)
    }
}

/// What a destination has heard of a turn.
#[derive(Clone, Copy)]
pub enum TurnStatus<'a> {
    /// Every source's turn has ended.
    Complete,
    /// This source is the first whose turn has not.
    Missing {
        /// What the executor calls its shard.
        source: u32,
        /// Where it says that it has; none when it wakes the destination whatever happens.
        mark: Option<StampRef<'a>>,
    },
}

/// What a source's thread makes of the destinations of a turn that has ended. `number` is what the executor calls a
/// destination's shard.
pub trait Destinations<'a> {
    /// Whether a destination's shard belongs to the source's thread.
    fn is_on_this_thread(&self, number: u32) -> bool;
    /// One that is near may have lacked this source, and nothing else: if it has [heard](TurnStatus) all it must be woken.
    fn reached(&mut self, number: u32, heard: impl FnOnce() -> TurnStatus<'a>);
    /// One that is not near must be woken when its thread sleeps: one that does not looks at its marks. Whether it looks here at all; if not,
    /// what it is sent has to be given to it in another way.
    fn sent_to_another_thread(&mut self, number: u32) -> bool;
}

/// Routes that are looked at together: as many as a word has bits.
const ROUTES_TOGETHER: usize = 64;

/// A source's end in one phase of the relation. For the source's thread.
#[derive(Clone, Copy)]
pub struct SourceEnd<'a> {
    pub(super) slots: &'a Slots,
    pub(super) outgoing: &'a Outgoing,
    pub(super) phase: usize,
    pub(super) source: u32,
}

impl<'a> SourceEnd<'a> {
    /// Whether all destinations are known to have room for a turn. What was seen once need not be fetched from
    /// their threads again; when it does not suffice, [`InProcess::has_room`](super::super::InProcess::has_room) looks.
    #[inline(always)]
    pub fn has_seen_room(&self, turn: Turn) -> bool {
        // In the first `OPEN_TURNS` turns nobody can lack room. Relaxed: the source's own note; the
        // count in it was acquired when it was read (`RetiredTurns::retired`).
        let retired = self.outgoing.retired.load(Ordering::Relaxed);
        turn < retired + OPEN_TURNS
    }

    /// Notes how many turns all destinations have retired: without any, more than there are.
    pub(in super::super) fn saw_room(&self, retired: u64) {
        // Bounded, so that `OPEN_TURNS` can be added.
        let retired = retired.min(Turn::MAX - OPEN_TURNS);
        self.outgoing.retired.store(retired, Ordering::Relaxed);
    }

    /// Where the source writes its pieces of a turn for which it has room.
    #[inline(always)]
    pub fn out(&self, turn: Turn) -> SlotsOut {
        let slots = self.slots;
        SlotsOut {
            base: slots.turn(turn),
            piece_offset: slots.piece_offset,
            stamp: turn + 1,
            routes: &raw const *self.outgoing.routes,
            source: self.source,
            dense: slots.dense,
        }
    }

    /// How many bytes more the pieces of a turn own than those that lay there before.
    #[inline(always)]
    pub fn growth(&self, turn: Turn) -> i64 {
        if self.slots.piece.is_fixed() {
            return 0;
        }
        let routes = self.outgoing.routes.iter();
        routes.map(|route| self.slots.growth_of(turn, route)).sum()
    }

    /// Ends a turn: what was not sent counts as empty. Tells its destinations. Whether there are some that do not look here: what is for them
    /// has to be [taken back](SourceEnd::take_back).
    ///
    /// Whether a destination is near is asked before it can see the stamp. Afterwards another thread, where it
    /// is a guest, may have run it past this turn and have handed it home: what it has heard is then that of a
    /// later turn.
    #[inline(always)]
    pub fn sent(&self, turn: Turn, destinations: &mut impl Destinations<'a>) -> bool {
        let (slots, base) = (self.slots, self.slots.turn(turn));
        let arrived = &*slots.arrived;
        let mut any_on_another_thread = false;
        for routes in self.outgoing.routes.chunks(ROUTES_TOGETHER) {
            // Told after the loop, which so calls nothing.
            let mut lacking = 0u64;
            for (place, route) in routes.iter().enumerate() {
                let near = destinations.is_on_this_thread(route.number);
                // SAFETY: within the allocation.
                let header = unsafe { &*base.add(route.offset).cast::<Header>() };
                header.arrived.end(turn);
                let known = arrived[route.destination as usize].of(turn);
                if !near {
                    any_on_another_thread = true;
                // The destination has looked as far as this source, and no further: this stamp may
                // be the last that it lacks.
                } else if known.load(Ordering::Relaxed) == route.ordinal {
                    lacking |= 1 << place;
                }
            }
            while lacking != 0 {
                let route = &routes[lacking.trailing_zeros() as usize];
                destinations.reached(route.number, || {
                    let near = slots.destination(self.phase, route.destination);
                    near.expect("a route leads to places").heard(turn)
                });
                lacking &= lacking - 1;
            }
        }
        // One fence for all destinations, and none where all are this thread's own.
        any_on_another_thread && self.sent_to_another_thread(destinations)
    }

    /// Whether some do not look here.
    fn sent_to_another_thread(&self, destinations: &mut impl Destinations<'a>) -> bool {
        // A thread that goes to sleep says so, passes the dear fence, and looks at its marks:
        // either it sees the stamps, or the caller sees below that it sleeps. A shard that leaves
        // does likewise: it collects, or is seen to be away.
        fences::light();
        let mut any_away = false;
        // A destination that has come to this thread since is on its way home, which mail tells.
        for route in &self.outgoing.routes {
            if !destinations.is_on_this_thread(route.number) {
                any_away |= !destinations.sent_to_another_thread(route.number);
            }
        }
        any_away
    }

    /// Takes what a turn that has ended left in the places of destinations that do not look there any more: each piece that its
    /// destination has not collected itself.
    #[cold]
    pub fn take_back(
        &self,
        turn: Turn,
        looks_here: impl Fn(u32) -> bool,
        mut each: impl FnMut(u32, Option<Value>),
    ) {
        for route in &self.outgoing.routes {
            if !looks_here(route.number) && !mutants::is_on("sources-leave-what-they-have-stamped")
            {
                // SAFETY: the place of a route, for a turn that this source has ended.
                if let Some(left) = unsafe { self.slots.claim(turn, route.offset) } {
                    each(route.destination, left);
                }
            }
        }
    }
}

/// A destination's end in one phase of the relation. For the destination's thread.
#[derive(Clone, Copy)]
pub struct DestinationEnd<'a> {
    pub(super) slots: &'a Slots,
    pub(super) incoming: &'a Incoming,
    pub(super) arrived: &'a KnownArrivals,
    pub(super) room: &'a RetiredTurns,
}

impl<'a> DestinationEnd<'a> {
    /// What the destination has heard of a turn; each source is looked at until it has arrived, and then no more.
    #[inline(always)]
    pub fn heard(&self, turn: Turn) -> TurnStatus<'a> {
        // Relaxed: the destination's thread alone writes it.
        let known = self.arrived.of(turn).load(Ordering::Relaxed);
        if known == self.incoming.fan_in {
            return TurnStatus::Complete;
        }
        let arrived = self.look(turn, known);
        if arrived == self.incoming.fan_in {
            return TurnStatus::Complete;
        }
        // SAFETY: as in `look`.
        let header = unsafe { &*self.place(turn, arrived).cast::<Header>() };
        TurnStatus::Missing {
            source: self.incoming.numbers[arrived as usize],
            mark: Some(StampRef {
                stamp: &header.arrived,
                turn,
            }),
        }
    }

    /// Looks at the sources from the first on of which it is not known that it has arrived; how many have.
    #[inline(never)]
    fn look(self, turn: Turn, known: u32) -> u32 {
        let mut arrived = known;
        let mut at = self.place(turn, arrived);
        // SAFETY: a destination has a place for each of its sources in each open turn.
        while unsafe { &*at.cast::<Header>() }.arrived.has_ended(turn) {
            arrived += 1;
            if arrived == self.incoming.fan_in {
                break;
            }
            // SAFETY: as above.
            at = unsafe { at.add(self.slots.stride) };
        }
        if arrived != known {
            self.arrived.of(turn).store(arrived, Ordering::Relaxed);
        }
        arrived
    }

    #[inline(always)]
    fn place(&self, turn: Turn, ordinal: u32) -> *mut u8 {
        let slots = self.slots;
        let offset = self.incoming.offset + ordinal as usize * slots.stride;
        // SAFETY: within the allocation, for the ordinal of a source.
        unsafe { slots.turn(turn).add(offset) }
    }

    /// What it reads of a turn of which it has heard all.
    #[inline(always)]
    pub fn pieces(&self, turn: Turn) -> SlotsIn {
        let (slots, incoming) = (self.slots, self.incoming);
        let sources = incoming.sources.as_ref();
        SlotsIn {
            at: self.place(turn, 0),
            stamp: turn + 1,
            ordinal: 0,
            fan_in: incoming.fan_in,
            sources: sources.map_or(ptr::null(), |list| list.as_ptr()),
            piece: slots.piece.layout(),
        }
    }

    /// Puts what has come through the mailbox of a source into its place: its turn has ended. The value is another one then.
    pub fn put(&self, turn: Turn, source: u32, piece: Option<&mut Value>) {
        let at = self.place(turn, self.ordinal(source));
        // SAFETY: the source does not write its place itself in this turn; the destination's thread
        // does, before it stamps the place.
        unsafe {
            if let Some(piece) = piece {
                self.slots.exchange(turn, at, piece);
            }
            (*at.cast::<Header>()).arrived.end(turn);
        }
    }

    /// Whether a source's turn has ended.
    pub fn has_ended(&self, turn: Turn, source: u32) -> bool {
        let at = self.place(turn, self.ordinal(source));
        // SAFETY: as in `look`.
        unsafe { &*at.cast::<Header>() }.arrived.has_ended(turn)
    }

    fn ordinal(&self, source: u32) -> u32 {
        match &self.incoming.sources {
            None => source,
            Some(list) => list.partition_point(|other| *other < source) as u32,
        }
    }

    /// The destination leaves, has said so and passed the dear fence: what lies in its places of a turn that it has not retired goes with it, by
    /// source.
    pub fn collect(&self, turn: Turn, mut each: impl FnMut(u32, Option<Value>)) {
        let any = !mutants::is_on("who-leaves-collects-nothing");
        for ordinal in (0..self.incoming.fan_in).filter(|_| any) {
            let source = match &self.incoming.sources {
                None => ordinal,
                Some(list) => list[ordinal as usize],
            };
            let offset = self.incoming.offset + ordinal as usize * self.slots.stride;
            // SAFETY: the place of a source of this destination, which no longer reads it.
            if let Some(left) = unsafe { self.slots.claim(turn, offset) } {
                each(source, left);
            }
        }
        self.arrived.of(turn).store(0, Ordering::Relaxed);
    }

    /// Ends a turn, which has been read, and opens the one K later. Calls `wake` for each source that waits for room.
    #[inline(always)]
    pub fn retire(&self, turn: Turn, mut wake: impl FnMut(u32)) {
        // Cleared before the room is told: from then on the place belongs to the next turn that
        // uses it.
        self.arrived.of(turn).store(0, Ordering::Relaxed);
        self.room.retire(|source| wake(source as u32));
    }
}
