//! Places for pieces, owned by their destination: one for each open turn and source.
#![allow(unsafe_code)] // One writer, then one reader, ordered by arrivals and room.

mod ends;

pub use ends::{DestinationEnd, Destinations, Heard, Mark, SourceEnd};

use super::local::rooms;
use super::stamp::Stamp;
use super::sync::{AtomicU32, AtomicU64};
use super::{Room, TURNS_OPEN};
use brambling_program::{Links, PayloadType, Route, SlotHeader, Turn};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

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

/// For each open turn, how many of a destination's first sources are known to have arrived.
#[repr(align(128))]
#[derive(Default)]
struct Arrived([AtomicU32; TURNS_OPEN as usize]);

impl Arrived {
    #[inline(always)]
    fn of(&self, turn: Turn) -> &AtomicU32 {
        &self.0[(turn % TURNS_OPEN) as usize]
    }
}

const _: () = assert!(align_of::<Outgoing>() == 128 && align_of::<Arrived>() == 128);

/// All places of an exchange, in one allocation: by open turn, destination, and source.
pub struct Slots {
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
    /// By destination. Touched by its thread.
    arrived: Box<[Arrived]>,
    /// By destination.
    rooms: Box<[Room]>,
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
    /// What the slots of a job's exchanges may take together: a program of many statements has many, and uses few at a time.
    pub const BYTES_MAX: usize = 1 << 30;

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
            rooms: rooms(links),
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

    /// # Safety
    /// `slot` is the start of a place.
    unsafe fn piece_at(&self, slot: *mut u8) -> *mut u8 {
        // SAFETY: a piece lies behind its header.
        unsafe { slot.add(self.piece_offset) }
    }

    /// A source's end, in one phase of the relation.
    #[inline(always)]
    pub fn source(&self, phase: usize, source: u32) -> SourceEnd<'_> {
        SourceEnd {
            slots: self,
            outgoing: self.outgoing(phase, source),
            phase,
            source,
        }
    }

    /// A destination's end, in one phase of the relation.
    #[inline(always)]
    pub fn destination(&self, phase: usize, destination: u32) -> DestinationEnd<'_> {
        DestinationEnd {
            slots: self,
            incoming: self.incoming(phase, destination),
            arrived: &self.arrived[destination as usize],
            room: &self.rooms[destination as usize],
        }
    }

    pub(super) fn rooms(&self) -> &[Room] {
        &self.rooms
    }

    #[inline(always)]
    fn turn(&self, turn: Turn) -> *mut u8 {
        // SAFETY: within the allocation, which has so many bytes for each open turn.
        unsafe {
            self.base
                .add((turn % TURNS_OPEN) as usize * self.turn_bytes)
        }
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
