//! Places for pieces, owned by their destination: one for each open turn and source.
#![allow(unsafe_code)] // One writer, then one reader, ordered by arrivals and room.

use super::TURNS_OPEN;
use super::sync::{AtomicU32, AtomicU64, Ordering};
use brambling_program::{Links, PayloadType, Route, SlotHeader, SlotsIn, SlotsOut, Turn};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// Where the pieces of each source go, in one phase of the relation.
type Phase = Box<[SourceRoutes]>;

/// Where the pieces of one source go. On a line of its own: its thread writes `retired`.
#[repr(align(64))]
struct SourceRoutes {
    routes: Box<[Route]>,
    /// Turns that all of these destinations are known to have retired.
    retired: AtomicU64,
}

#[repr(align(64))]
#[derive(Default)]
struct Arrived([AtomicU32; TURNS_OPEN as usize]);

/// All places of an exchange, in one allocation: by open turn, destination, and source.
pub(super) struct Slots {
    base: *mut u8,
    layout: Layout,
    stride: usize,
    piece_offset: usize,
    /// Places of a destination in a turn.
    width: usize,
    destinations: usize,
    piece: &'static PayloadType,
    dense: bool,
    /// For each phase of the relation and each source, where its pieces go.
    routes: Box<[Phase]>,
    /// For each destination and open turn, how many of its first sources are known to have arrived. Touched by
    /// the destination's thread.
    arrived: Box<[Arrived]>,
}

// SAFETY: places hold payloads, which are Send and Sync; who may touch which is the countdown's business.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

fn place_layout(piece: &PayloadType) -> (Layout, usize) {
    let (place, offset) = Layout::new::<SlotHeader>()
        .extend(piece.layout())
        .expect("a small header");
    // A line each for small pieces: two sources never write the same one.
    (
        place.align_to(64).expect("a power of two").pad_to_align(),
        offset,
    )
}

fn places(links: &Links) -> usize {
    links.fan_in_max() as usize * links.destination_count() as usize * TURNS_OPEN as usize
}

impl Slots {
    pub(super) fn bytes(links: &Links, piece: &'static PayloadType) -> usize {
        places(links).saturating_mul(place_layout(piece).0.size())
    }

    pub(super) fn new(
        links: &Links,
        piece: &'static PayloadType,
        number: impl Fn(u32) -> u32,
    ) -> Slots {
        let (place, piece_offset) = place_layout(piece);
        let places = places(links);
        let layout = Layout::from_size_align(place.size() * places.max(1), place.align().max(128))
            .expect("bounded");
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        for at in 0..places {
            // SAFETY: within the allocation; a zeroed header says that no turn has written.
            unsafe { piece.write_default(base.add(at * place.size() + piece_offset)) };
        }
        let (stride, width) = (place.size(), links.fan_in_max() as usize);
        let route = |turn: Turn, source: u32, at: u32| {
            let (destination, ordinal) = links.destination(turn, source, at);
            let offset = (destination as usize * width + ordinal as usize) * stride;
            Route {
                destination,
                number: number(destination),
                offset,
            }
        };
        let of_source = |turn: Turn, source: u32| SourceRoutes {
            routes: (0..links.fan_out(turn, source))
                .map(|at| route(turn, source, at))
                .collect(),
            retired: AtomicU64::new(0),
        };
        let of_phase = |phase: usize| {
            (0..links.source_count())
                .map(|source| of_source(phase as Turn, source))
                .collect()
        };
        Slots {
            base,
            layout,
            stride,
            piece_offset,
            width,
            destinations: links.destination_count() as usize,
            piece,
            dense: links.is_dense(),
            routes: (0..links.phase_count()).map(of_phase).collect(),
            arrived: (0..links.destination_count())
                .map(|_| Arrived::default())
                .collect(),
        }
    }

    /// Where a source's pieces of a turn go.
    #[inline]
    pub(super) fn routes(&self, phase: usize, source: u32) -> &[Route] {
        &self.routes[phase][source as usize].routes
    }

    /// Turns that all destinations of a source in a phase are known to have retired. For the source's thread.
    #[inline]
    pub(super) fn known_retired(&self, phase: usize, source: u32) -> &AtomicU64 {
        &self.routes[phase][source as usize].retired
    }

    /// A source's turn has ended: its piece, or its empty mark, has arrived.
    #[inline]
    pub(super) fn arrive(&self, turn: Turn, route: &Route) {
        // SAFETY: within the allocation.
        let header = unsafe { &*self.turn(turn).add(route.offset).cast::<SlotHeader>() };
        // Release: publishes the piece. Pairs with the Acquire in `is_complete`.
        header.arrived.store(turn + 1, Ordering::Release);
    }

    /// Whether all sources of a destination's turn have arrived. Asked by the destination's thread; each source
    /// is looked at until it has arrived, and then no more.
    #[inline]
    pub(super) fn is_complete(&self, turn: Turn, destination: u32, fan_in: u32) -> bool {
        let known = &self.arrived[destination as usize].0[(turn % TURNS_OPEN) as usize];
        let first = known.load(Ordering::Relaxed);
        let mut arrived = first;
        while arrived < fan_in {
            let place = destination as usize * self.width + arrived as usize;
            // SAFETY: within the allocation: a destination has `width` places in each open turn.
            let header = unsafe {
                &*self
                    .turn(turn)
                    .add(place * self.stride)
                    .cast::<SlotHeader>()
            };
            if header.arrived.load(Ordering::Acquire) != turn + 1 {
                break;
            }
            arrived += 1;
        }
        if arrived != first {
            known.store(arrived, Ordering::Relaxed);
        }
        arrived == fan_in
    }

    /// Opens a destination's place for a later turn.
    #[inline]
    pub(super) fn reopen(&self, turn: Turn, destination: u32) {
        self.arrived[destination as usize].0[(turn % TURNS_OPEN) as usize]
            .store(0, Ordering::Relaxed);
    }

    #[inline]
    fn turn(&self, turn: Turn) -> *mut u8 {
        let place = (turn % TURNS_OPEN) as usize * self.destinations * self.width;
        // SAFETY: within the allocation, which has so many places for each open turn.
        unsafe { self.base.add(place * self.stride) }
    }

    #[inline]
    pub(super) fn out(&self, turn: Turn, phase: usize, source: u32) -> SlotsOut {
        SlotsOut {
            base: self.turn(turn),
            piece_offset: self.piece_offset,
            stamp: turn + 1,
            routes: self.routes(phase, source),
            dense: self.dense,
        }
    }

    #[inline]
    pub(super) fn incoming(
        &self,
        turn: Turn,
        destination: u32,
        fan_in: u32,
        sources: Option<&[u32]>,
    ) -> SlotsIn {
        // SAFETY: within the allocation: a destination has `width` places in each open turn.
        let at = unsafe {
            self.turn(turn)
                .add(destination as usize * self.width * self.stride)
        };
        SlotsIn {
            at,
            stride: self.stride,
            piece_offset: self.piece_offset,
            stamp: turn + 1,
            left: fan_in,
            ordinal: 0,
            sources: sources.map(|sources| &raw const *sources),
        }
    }

    /// A piece by its place among the source's routes.
    pub(super) fn write(&self, turn: Turn, phase: usize, source: u32, place: u32) -> *mut u8 {
        // SAFETY: the source has room for this turn, so the destination no longer reads the place.
        unsafe {
            self.out(turn, phase, source)
                .write(&self.routes(phase, source)[place as usize])
        }
    }

    /// The next piece of a view of this exchange's slots.
    pub(super) fn next(&self, view: &mut SlotsIn) -> Option<(u32, *mut u8)> {
        // SAFETY: the turn is complete, so its sources no longer write.
        unsafe { view.next() }
    }

    pub(super) fn growth(&self, turn: Turn, phase: usize, source: u32) -> i64 {
        if self.piece.is_fixed() {
            return 0;
        }
        let mut growth = 0;
        for route in self.routes(phase, source) {
            // SAFETY: called by the source before it counts as arrived: the place is still its own.
            unsafe {
                let slot = self.turn(turn).add(route.offset);
                let now = self.piece.heap_bytes(slot.add(self.piece_offset)) as u64;
                let header = slot.cast::<SlotHeader>();
                growth += now as i64 - (*header).heap_bytes as i64;
                (*header).heap_bytes = now;
            }
        }
        growth
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for at in 0..self.destinations * self.width * TURNS_OPEN as usize {
            // SAFETY: every place was given a value in `new`, and nobody uses it any more.
            unsafe {
                self.piece
                    .drop_in_place(self.base.add(at * self.stride + self.piece_offset))
            };
        }
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.base, self.layout) };
    }
}
