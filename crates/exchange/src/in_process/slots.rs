//! Places for pieces, owned by their destination: one for each open turn and source.
#![allow(unsafe_code)] // One writer, then one reader, ordered by arrivals and room.

use super::stamp::Stamp;
use super::sync::{AtomicU32, AtomicU64, Ordering};
use super::{TURNS_OPEN, fences};
use brambling_program::{Links, PayloadType, Route, SlotHeader, SlotsIn, SlotsOut, Turn};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr;

type Header = SlotHeader<Stamp>;

const _: () = assert!(size_of::<Header>() == size_of::<SlotHeader>());

/// Where the pieces of one source go, in one phase of the relation. On lines of its own, as all here that one thread
/// writes: 128 bytes, since a CPU fetches the neighbour of a line with it.
#[repr(align(128))]
struct Outgoing {
    routes: Box<[Route]>,
    /// Turns that all of these destinations are known to have retired.
    retired: AtomicU64,
}

/// Whom a destination hears from, in one phase of the relation.
struct Incoming {
    fan_in: u32,
    /// Bytes from the first slot of a turn to the destination's first.
    offset: usize,
    /// None for a dense relation, where each source has its own place.
    sources: Option<Box<[u32]>>,
    /// What the executor calls them.
    numbers: Box<[u32]>,
}

impl Incoming {
    fn new(links: &Links, turn: Turn, to: u32, offset: usize, number: impl Fn(u32) -> u32) -> Self {
        let fan_in = links.fan_in(turn, to);
        let number = |ordinal| number(links.source(turn, to, ordinal));
        Incoming {
            fan_in,
            offset,
            sources: links.at(turn).sources(to).map(Box::from),
            numbers: (0..fan_in).map(number).collect(),
        }
    }
}

#[repr(align(128))]
#[derive(Default)]
struct Arrived([AtomicU32; TURNS_OPEN as usize]);

const _: () = assert!(align_of::<Outgoing>() == 128 && align_of::<Arrived>() == 128);

/// Says when a source's turn has ended.
#[derive(Clone, Copy)]
pub struct Mark<'a> {
    stamp: &'a Stamp,
    turn: Turn,
}

impl Mark<'_> {
    /// Whether the source has ended the turn.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.stamp.has_ended(self.turn)
    }
}

/// What a destination has heard of a turn.
#[derive(Clone, Copy)]
pub enum Heard<'a> {
    /// Every source's turn has ended.
    All,
    /// This source is the first whose turn has not.
    Missing {
        /// What the executor calls its shard.
        source: u32,
        /// Where it says that it has; none when it wakes the destination whatever happens.
        mark: Option<Mark<'a>>,
    },
}

/// What a source's thread makes of the destinations of a turn that has ended. `number` is what the executor calls a
/// destination's shard.
pub trait Destinations {
    /// Whether a destination's shard belongs to the source's thread.
    fn is_near(&self, number: u32) -> bool;
    /// One that is near may have lacked this source, and nothing else: if it [has heard](Heard) all it must be woken.
    fn reached(&mut self, destination: u32, number: u32);
    /// One that is not near must be woken when its thread sleeps: one that does not looks at its marks.
    fn sent_far(&mut self, number: u32);
}

/// All places of an exchange, in one allocation: by open turn, destination, and source.
pub(super) struct Slots {
    base: *mut u8,
    layout: Layout,
    stride: usize,
    /// Of all places of a turn.
    turn_bytes: usize,
    destinations: usize,
    sources: usize,
    piece: &'static PayloadType,
    /// Bytes from a place to its piece.
    piece_offset: usize,
    dense: bool,
    /// By phase and source.
    outgoing: Box<[Outgoing]>,
    /// By phase and destination.
    incoming: Box<[Incoming]>,
    /// For each destination and open turn, how many of its first sources are known to have arrived. Touched by
    /// the destination's thread.
    arrived: Box<[Arrived]>,
}

// SAFETY: places hold payloads, which are Send and Sync; who may touch which is the stamps' business.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

fn stride(piece: &PayloadType) -> usize {
    SlotHeader::stride(piece.layout().size(), piece.layout().align())
}

fn places(links: &Links) -> usize {
    links.fan_in_max() as usize * links.destination_count() as usize * TURNS_OPEN as usize
}

impl Slots {
    pub(super) fn bytes(links: &Links, piece: &'static PayloadType) -> usize {
        places(links).saturating_mul(stride(piece))
    }

    pub(super) fn new(
        links: &Links,
        piece: &'static PayloadType,
        numbers: (impl Fn(u32) -> u32, impl Fn(u32) -> u32),
    ) -> Slots {
        let (stride, places) = (stride(piece), places(links));
        let align = piece.layout().align().max(128);
        let layout = Layout::from_size_align(stride * places.max(1), align).expect("bounded");
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        let width = links.fan_in_max() as usize;
        let phases = 0..links.phase_count() as Turn;
        let (source_number, number) = (&numbers.0, &numbers.1);
        let outgoing = phases.clone().flat_map(|turn| {
            (0..links.source_count())
                .map(move |source| Outgoing::new(links, turn, source, (width, stride), number))
        });
        let incoming = phases.flat_map(|turn| {
            (0..links.destination_count()).map(move |to| {
                let offset = to as usize * width * stride;
                Incoming::new(links, turn, to, offset, source_number)
            })
        });
        let slots = Slots {
            base,
            layout,
            stride,
            turn_bytes: links.destination_count() as usize * width * stride,
            destinations: links.destination_count() as usize,
            sources: links.source_count() as usize,
            piece,
            piece_offset: SlotHeader::piece_offset(piece.layout().align()),
            dense: links.is_dense(),
            outgoing: outgoing.collect(),
            incoming: incoming.collect(),
            arrived: (0..links.destination_count())
                .map(|_| Arrived::default())
                .collect(),
        };
        for at in 0..places {
            // SAFETY: within the allocation; a zeroed header says that no turn has written.
            unsafe { piece.write_default(slots.piece_at(base.add(at * stride))) };
        }
        slots
    }

    #[inline]
    fn outgoing(&self, phase: usize, source: u32) -> &Outgoing {
        &self.outgoing[phase * self.sources + source as usize]
    }

    #[inline]
    fn incoming(&self, phase: usize, destination: u32) -> &Incoming {
        &self.incoming[phase * self.destinations + destination as usize]
    }

    #[inline]
    fn known(&self, turn: Turn, destination: u32) -> &AtomicU32 {
        &self.arrived[destination as usize].0[(turn % TURNS_OPEN) as usize]
    }

    /// # Safety
    /// `slot` is the start of a place.
    unsafe fn piece_at(&self, slot: *mut u8) -> *mut u8 {
        // SAFETY: a piece lies behind its header.
        unsafe { slot.add(self.piece_offset) }
    }

    /// Turns that all destinations of a source in a phase are known to have retired. For the source's thread.
    #[inline]
    pub(super) fn known_retired(&self, phase: usize, source: u32) -> &AtomicU64 {
        &self.outgoing(phase, source).retired
    }

    /// Ends a source's turn: its pieces, or its empty marks, have arrived. Tells its destinations, as
    /// [`InProcess::sent`](super::InProcess::sent) does.
    ///
    /// Whether a destination is near is asked before it can see the stamp. Afterwards another thread, where it
    /// is a guest, may have run it past this turn and have handed it home: what it has heard is then that of a
    /// later turn.
    #[inline(always)]
    pub(super) fn sent(
        &self,
        turn: Turn,
        (phase, source): (usize, u32),
        destinations: &mut impl Destinations,
    ) {
        let (routes, base) = (&self.outgoing(phase, source).routes, self.turn(turn));
        let mut any_far = false;
        for route in routes {
            let near = destinations.is_near(route.number);
            // SAFETY: within the allocation.
            let header = unsafe { &*base.add(route.offset).cast::<Header>() };
            header.arrived.end(turn);
            if !near {
                any_far = true;
            } else if self.known(turn, route.destination).load(Ordering::Relaxed) == route.ordinal {
                destinations.reached(route.destination, route.number);
            }
        }
        if any_far {
            // Whoever goes to sleep says so, passes the dear fence, and looks at its marks: it sees the stamps
            // above, or the caller sees below that it sleeps.
            fences::light();
            // One that has become near since is on its way home, by mail.
            for route in routes {
                if !destinations.is_near(route.number) {
                    destinations.sent_far(route.number);
                }
            }
        }
    }

    /// What a destination has heard of a turn. Asked by the destination's thread; each source is looked at
    /// until it has arrived, and then no more.
    #[inline]
    pub(super) fn heard(&self, turn: Turn, phase: usize, destination: u32) -> Heard<'_> {
        let known = self.known(turn, destination);
        let incoming = self.incoming(phase, destination);
        let first = known.load(Ordering::Relaxed);
        if first == incoming.fan_in {
            return Heard::All;
        }
        let mut arrived = first;
        // SAFETY: within the allocation: a destination has a place for each of its sources in each open turn.
        let mut at = unsafe {
            let places = self.turn(turn).add(incoming.offset);
            places.add(arrived as usize * self.stride)
        };
        let heard = loop {
            // SAFETY: as above.
            let header = unsafe { &*at.cast::<Header>() };
            let mark = Mark {
                stamp: &header.arrived,
                turn,
            };
            if !mark.is_set() {
                break Heard::Missing {
                    source: incoming.numbers[arrived as usize],
                    mark: Some(mark),
                };
            }
            arrived += 1;
            if arrived == incoming.fan_in {
                break Heard::All;
            }
            // SAFETY: as above.
            at = unsafe { at.add(self.stride) };
        };
        if arrived != first {
            known.store(arrived, Ordering::Relaxed);
        }
        heard
    }

    /// Opens a destination's place for a later turn.
    #[inline]
    pub(super) fn reopen(&self, turn: Turn, destination: u32) {
        self.known(turn, destination).store(0, Ordering::Relaxed);
    }

    #[inline]
    fn turn(&self, turn: Turn) -> *mut u8 {
        // SAFETY: within the allocation, which has so many bytes for each open turn.
        unsafe {
            self.base
                .add((turn % TURNS_OPEN) as usize * self.turn_bytes)
        }
    }

    /// Where a source with room for a turn writes.
    #[inline]
    pub(super) fn out(&self, turn: Turn, phase: usize, source: u32) -> SlotsOut {
        SlotsOut {
            base: self.turn(turn),
            piece_offset: self.piece_offset,
            stamp: turn + 1,
            routes: &raw const *self.outgoing(phase, source).routes,
            source,
            dense: self.dense,
        }
    }

    /// What a destination reads of a turn of which it has heard all.
    #[inline]
    pub(super) fn pieces(&self, turn: Turn, phase: usize, destination: u32) -> SlotsIn {
        let incoming = self.incoming(phase, destination);
        let sources = incoming.sources.as_ref();
        SlotsIn {
            // SAFETY: within the allocation: a destination has its places in each open turn.
            at: unsafe { self.turn(turn).add(incoming.offset) },
            stamp: turn + 1,
            ordinal: 0,
            fan_in: incoming.fan_in,
            sources: sources.map_or(ptr::null(), |list| list.as_ptr()),
            piece: self.piece.layout(),
        }
    }

    /// How many bytes more the pieces of a source's turn own than those that lay there before.
    #[inline]
    pub(super) fn growth(&self, turn: Turn, phase: usize, source: u32) -> i64 {
        if self.piece.is_fixed() {
            return 0;
        }
        self.outgoing(phase, source)
            .routes
            .iter()
            .map(|route| self.growth_of(turn, route))
            .sum()
    }

    fn growth_of(&self, turn: Turn, route: &Route) -> i64 {
        // SAFETY: called by the source before its turn ends: the place is still its own.
        unsafe {
            let slot = self.turn(turn).add(route.offset);
            let now = self.piece.heap_bytes(self.piece_at(slot)) as u64;
            let header = slot.cast::<Header>();
            let growth = now as i64 - (*header).heap_bytes as i64;
            (*header).heap_bytes = now;
            growth
        }
    }
}

impl Outgoing {
    fn new(
        links: &Links,
        turn: Turn,
        source: u32,
        (width, stride): (usize, usize),
        number: impl Fn(u32) -> u32,
    ) -> Outgoing {
        let route = |at: u32| {
            let (destination, ordinal) = links.destination(turn, source, at);
            Route {
                destination,
                number: number(destination),
                ordinal,
                offset: (destination as usize * width + ordinal as usize) * stride,
            }
        };
        Outgoing {
            routes: (0..links.fan_out(turn, source)).map(route).collect(),
            retired: AtomicU64::new(0),
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for at in 0..self.turn_bytes / self.stride * TURNS_OPEN as usize {
            // SAFETY: every place was given a value in `new`, and nobody uses it any more.
            unsafe {
                let piece = self.piece_at(self.base.add(at * self.stride));
                self.piece.drop_in_place(piece);
            };
        }
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.base, self.layout) };
    }
}
