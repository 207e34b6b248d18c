//! Places for pieces, owned by their destination: one for each open turn and source.
#![allow(unsafe_code)] // One writer, then one reader, ordered by the countdown in `mod.rs`.

use super::TURNS_OPEN;
use brambling_program::{Links, PayloadType, Turn};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// What precedes a piece in its place.
#[repr(C)]
struct Header {
    present: bool,
    heap_bytes: u64,
}

/// All places of an exchange, in one allocation: by destination, open turn, and source.
pub(super) struct Slots {
    base: *mut u8,
    layout: Layout,
    stride: usize,
    piece_offset: usize,
    /// First place of each destination.
    first: Box<[usize]>,
    /// Most sources of each destination.
    width: Box<[usize]>,
    piece: &'static PayloadType,
}

// SAFETY: places hold payloads, which are Send and Sync; who may touch which is the countdown's business.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

fn place_layout(piece: &PayloadType) -> (Layout, usize) {
    let (place, offset) = Layout::new::<Header>()
        .extend(piece.layout())
        .expect("a small header");
    // A line each: two sources never write the same one.
    (
        place.align_to(64).expect("a power of two").pad_to_align(),
        offset,
    )
}

fn width(links: &Links, destination: u32) -> usize {
    links.fan_in_max_of(destination) as usize
}

impl Slots {
    pub(super) fn bytes(links: &Links, piece: &'static PayloadType) -> usize {
        let places: usize = (0..links.destination_count())
            .map(|to| width(links, to) * TURNS_OPEN as usize)
            .sum();
        places.saturating_mul(place_layout(piece).0.size())
    }

    pub(super) fn new(links: &Links, piece: &'static PayloadType) -> Slots {
        let (place, piece_offset) = place_layout(piece);
        let width: Box<[usize]> = (0..links.destination_count())
            .map(|to| width(links, to))
            .collect();
        let mut first = Vec::with_capacity(width.len());
        let mut places = 0;
        for width in &width {
            first.push(places);
            places += width * TURNS_OPEN as usize;
        }
        let layout = Layout::from_size_align(place.size() * places.max(1), place.align().max(128))
            .expect("bounded");
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        for at in 0..places {
            // SAFETY: within the allocation; a zeroed header says that nothing is present.
            unsafe { piece.write_default(base.add(at * place.size() + piece_offset)) };
        }
        Slots {
            base,
            layout,
            stride: place.size(),
            piece_offset,
            first: first.into(),
            width,
            piece,
        }
    }

    #[inline]
    fn place(&self, turn: Turn, destination: u32, ordinal: u32) -> *mut u8 {
        let destination = destination as usize;
        let width = self.width[destination];
        assert!((ordinal as usize) < width);
        let at = self.first[destination] + (turn % TURNS_OPEN) as usize * width + ordinal as usize;
        // SAFETY: the index is within the allocation, by the assertion and the sums in `new`.
        unsafe { self.base.add(at * self.stride) }
    }

    #[inline]
    pub(super) fn write(&self, turn: Turn, destination: u32, ordinal: u32) -> *mut u8 {
        let place = self.place(turn, destination, ordinal);
        // SAFETY: the source has room for this turn, so the destination no longer reads the place.
        unsafe {
            (*place.cast::<Header>()).present = true;
            place.add(self.piece_offset)
        }
    }

    #[inline]
    pub(super) fn read(&self, turn: Turn, destination: u32, ordinal: u32) -> Option<*mut u8> {
        let place = self.place(turn, destination, ordinal);
        // SAFETY: the turn is complete, so the source no longer writes the place.
        unsafe {
            let header = place.cast::<Header>();
            if !(*header).present {
                return None;
            }
            (*header).present = false;
            Some(place.add(self.piece_offset))
        }
    }

    pub(super) fn growth(&self, links: &Links, turn: Turn, source: u32) -> i64 {
        if self.piece.is_fixed() {
            return 0;
        }
        let mut growth = 0;
        for at in 0..links.fan_out(turn, source) {
            let (destination, ordinal) = links.destination(turn, source, at);
            let place = self.place(turn, destination, ordinal);
            // SAFETY: called by the source before it counts down: the place is still its own.
            unsafe {
                let now = self.piece.heap_bytes(place.add(self.piece_offset)) as u64;
                let header = place.cast::<Header>();
                growth += now as i64 - (*header).heap_bytes as i64;
                (*header).heap_bytes = now;
            }
        }
        growth
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let places: usize = self
            .width
            .iter()
            .map(|width| width * TURNS_OPEN as usize)
            .sum();
        for at in 0..places {
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
