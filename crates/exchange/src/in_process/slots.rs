//! Owns the places for pieces of one exchange: one for each open turn, destination and source, in one allocation. Threads
//! reach them by the two ends (`slots/ends.rs`). It never decides who may touch a place: the stamps do.
#![allow(unsafe_code)] // One writer, then one reader, ordered by arrivals and room.

mod ends;

pub use ends::{DestinationEnd, Destinations, SourceEnd, StampRef, TurnStatus};

use super::retired_turns::rooms;
use super::stamp::Stamp;
use super::sync::{AtomicU32, AtomicU64};
use super::{RetiredTurns, ShardSide};
use crate::OPEN_TURNS;
use brambling_program::{Links, PayloadType, SlotHeader, SlotRoute, Turn, Value};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

type Header = SlotHeader<Stamp>;

const _: () = assert!(size_of::<Header>() == size_of::<SlotHeader>());

/// Where the pieces of one source go, in one phase of the relation: nowhere, unless it and all its destinations start here. On lines of its own, as all here that one thread
/// writes: 128 bytes, since a CPU fetches the neighbour of a line with it.
#[derive(Default)]
#[repr(align(128))]
struct Outgoing {
    routes: Box<[SlotRoute]>,
    /// Turns that all of these destinations are known to have retired.
    retired: AtomicU64,
    is_served: bool,
}

/// Whom a destination hears from, in one phase of the relation.
#[derive(Default)]
struct Incoming {
    is_served: bool,
    fan_in: u32,
    /// Bytes from the first slot of a turn to the destination's first.
    offset: usize,
    /// None for a dense relation, where each source has its own place.
    sources: Option<Box<[u32]>>,
    /// What the executor calls them.
    numbers: Box<[u32]>,
}

impl Incoming {
    fn new(
        links: &Links,
        turn: Turn,
        to: u32,
        offset: usize,
        source: impl Fn(u32) -> ShardSide,
    ) -> Self {
        let fan_in = links.fan_in(turn, to);
        let number = |ordinal| source(links.source(turn, to, ordinal)).number;
        Incoming {
            is_served: true,
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
pub(super) struct KnownArrivals([AtomicU32; OPEN_TURNS as usize]);

impl KnownArrivals {
    #[inline(always)]
    pub(super) fn of(&self, turn: Turn) -> &AtomicU32 {
        &self.0[(turn % OPEN_TURNS) as usize]
    }
}

const _: () = assert!(align_of::<Outgoing>() == 128 && align_of::<KnownArrivals>() == 128);

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
    arrived: Box<[KnownArrivals]>,
    /// By destination, wherever it is.
    rooms: Box<[RetiredTurns]>,
}

// SAFETY: places hold payloads, which are Send and Sync; who may touch which is the stamps' business.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

fn stride(piece: &PayloadType) -> usize {
    SlotHeader::stride(piece.layout().size(), piece.layout().align())
}

/// Places of a turn for those destinations that start here.
fn places(links: &Links, destination: &impl Fn(u32) -> ShardSide) -> usize {
    let here = (0..links.destination_count()).filter(|to| destination(*to).starts_here);
    links.fan_in_max() as usize * here.count()
}

impl Slots {
    /// What the slots of a job's exchanges may take together: a program of many statements has many, and uses few at a time.
    pub const BYTES_MAX: usize = 1 << 30;

    pub(super) fn bytes(
        links: &Links,
        piece: &'static PayloadType,
        destination: &impl Fn(u32) -> ShardSide,
    ) -> usize {
        let places = places(links, destination).saturating_mul(OPEN_TURNS as usize);
        places.saturating_mul(stride(piece))
    }

    pub(super) fn new(
        links: &Links,
        piece: &'static PayloadType,
        (source, destination): (impl Fn(u32) -> ShardSide, impl Fn(u32) -> ShardSide),
    ) -> Slots {
        let (stride, places) = (stride(piece), places(links, &destination));
        let turn_bytes = places * stride;
        let align = piece.layout().align().max(128);
        let bytes = (turn_bytes * OPEN_TURNS as usize).max(stride);
        let layout = Layout::from_size_align(bytes, align).expect("bounded");
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        let width_bytes = links.fan_in_max() as usize * stride;
        let mut next = 0;
        // Only destinations that start here have places, so memory grows with those alone.
        let offset = |to| {
            let starts_here = destination(to).starts_here;
            let offset = starts_here.then_some(next);
            next += if starts_here { width_bytes } else { 0 };
            offset
        };
        // Each destination that has places: how many bytes its first place lies from the first of
        // the turn.
        let offsets: Vec<Option<usize>> = (0..links.destination_count()).map(offset).collect();
        let phases = 0..links.phase_count() as Turn;
        let (offsets, source, destination) = (&offsets, &source, &destination);
        let outgoing = phases.clone().flat_map(|turn| {
            (0..links.source_count()).map(move |from| {
                let is_here = source(from).starts_here;
                let outgoing = Outgoing::new(links, turn, from, (offsets, stride), destination);
                outgoing.filter(|_| is_here).unwrap_or_default()
            })
        });
        let incoming = phases.flat_map(|turn| {
            (0..links.destination_count()).map(move |to| {
                let incoming = |offset| Incoming::new(links, turn, to, offset, source);
                offsets[to as usize].map(incoming).unwrap_or_default()
            })
        });
        let slots = Slots {
            base,
            layout,
            stride,
            turn_bytes,
            destinations: links.destination_count() as usize,
            sources: links.source_count() as usize,
            piece,
            piece_offset: SlotHeader::piece_offset(piece.layout().align()),
            dense: links.is_dense(),
            outgoing: outgoing.collect(),
            incoming: incoming.collect(),
            arrived: (0..links.destination_count())
                .map(|_| KnownArrivals::default())
                .collect(),
            rooms: rooms(links),
        };
        // Each place has a value from the beginning, so that a source may always use again what
        // lies there.
        for at in 0..places * OPEN_TURNS as usize {
            // SAFETY: within the allocation; a zeroed header says that no turn has written.
            unsafe { piece.write_default(slots.piece_at(base.add(at * stride))) };
        }
        slots
    }

    /// Whether a destination has places.
    pub fn lie_at(&self, destination: u32) -> bool {
        self.incoming(0, destination).is_served
    }

    /// Whether a source writes to places: it starts here, and so do all to whom it sends in any turn.
    pub fn serve(&self, source: u32) -> bool {
        let phases = 0..self.outgoing.len() / self.sources;
        phases
            .map(|phase| self.outgoing(phase, source))
            .all(|outgoing| outgoing.is_served)
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

    pub(super) fn room(&self, destination: u32) -> &RetiredTurns {
        &self.rooms[destination as usize]
    }

    /// A source's end, in one phase of the relation; none where some of what it sends goes elsewhere.
    #[inline(always)]
    pub(super) fn source(&self, phase: usize, source: u32) -> Option<SourceEnd<'_>> {
        let outgoing = self.outgoing(phase, source);
        outgoing.is_served.then_some(SourceEnd {
            slots: self,
            outgoing,
            phase,
            source,
        })
    }

    /// A destination's end, in one phase of the relation; none where it has no places.
    #[inline(always)]
    pub(super) fn destination(&self, phase: usize, destination: u32) -> Option<DestinationEnd<'_>> {
        let incoming = self.incoming(phase, destination);
        incoming.is_served.then_some(DestinationEnd {
            slots: self,
            incoming,
            arrived: &self.arrived[destination as usize],
            room: self.room(destination),
        })
    }

    #[inline(always)]
    fn turn(&self, turn: Turn) -> *mut u8 {
        // SAFETY: within the allocation, which has so many bytes for each open turn.
        unsafe {
            self.base
                .add((turn % OPEN_TURNS) as usize * self.turn_bytes)
        }
    }

    fn growth_of(&self, turn: Turn, route: &SlotRoute) -> i64 {
        // SAFETY: called by the source before its turn ends: the place is still its own.
        unsafe {
            let slot = self.turn(turn).add(route.offset);
            let now = self.piece.heap_bytes(self.piece_at(slot)) as u64;
            let header = slot.cast::<Header>();
            let growth = now as i64 - (*header).heap_bytes as i64;
            // Only the growth is charged: a place keeps its piece's memory for the next turn.
            (*header).heap_bytes = now;
            growth
        }
    }
}

impl Slots {
    /// What a turn that has ended has left in a place, if nobody else has claimed it: a piece, or that there is none.
    ///
    /// # Safety
    /// The offset is a place's. Its destination does not read it any more.
    #[cold]
    unsafe fn claim(&self, turn: Turn, offset: usize) -> Option<Option<Value>> {
        // SAFETY: within the allocation, by the caller's promise.
        let at = unsafe { self.turn(turn).add(offset) };
        // SAFETY: as above; what is claimed is this thread's alone.
        let header = unsafe { &mut *at.cast::<Header>() };
        // Somebody else has claimed the piece: a source that takes it back, or a destination that
        // collects.
        if !header.arrived.claim(turn) {
            return None;
        }
        Some((header.written == turn + 1).then(|| {
            let mut piece = Value::default_of(self.piece);
            header.written = 0;
            // SAFETY: as above.
            unsafe { piece.exchange(self.piece_at(at)) };
            piece
        }))
    }

    /// Puts a piece into a place, and what was there into the value.
    ///
    /// # Safety
    /// The place is the caller's alone.
    unsafe fn exchange(&self, turn: Turn, at: *mut u8, piece: &mut Value) {
        // SAFETY: the caller's promise.
        unsafe {
            (*at.cast::<Header>()).written = turn + 1;
            piece.exchange(self.piece_at(at));
        }
    }
}

impl Outgoing {
    /// None when some of these destinations have no places.
    fn new(
        links: &Links,
        turn: Turn,
        source: u32,
        (offsets, stride): (&[Option<usize>], usize),
        at: impl Fn(u32) -> ShardSide,
    ) -> Option<Outgoing> {
        let route = |place: u32| {
            let (destination, ordinal) = links.destination(turn, source, place);
            let number = at(destination).number;
            let offset = |first: usize| first + ordinal as usize * stride;
            offsets[destination as usize].map(|first| SlotRoute {
                destination,
                number,
                ordinal,
                offset: offset(first),
            })
        };
        let routes: Option<Box<[SlotRoute]>> =
            (0..links.fan_out(turn, source)).map(route).collect();
        Some(Outgoing {
            routes: routes?,
            retired: AtomicU64::new(0),
            is_served: true,
        })
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for at in 0..self.turn_bytes / self.stride * OPEN_TURNS as usize {
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
