//! Pieces that lie in one piece of memory: raw views, so that a kernel finds each without a call.
#![allow(unsafe_code)] // Addresses are computed here; whoever makes a view answers for its memory.

use std::sync::atomic::AtomicU64;

/// What precedes a piece in its slot.
#[repr(C)]
pub struct SlotHeader {
    /// The turn that last wrote the slot, plus 1. A piece of another turn is an empty mark.
    pub written: u64,
    /// The last turn of its source that has ended, plus 1: the piece, or the empty mark, has arrived.
    pub arrived: AtomicU64,
    /// Bytes that the piece owned when it was last counted.
    pub heap_bytes: u64,
}

/// Where a source's piece to one destination lies.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The destination.
    pub destination: u32,
    /// What the executor calls the destination's shard.
    pub number: u32,
    /// Bytes from the first slot of the turn.
    pub offset: usize,
}

/// The slots of one scatter.
#[derive(Clone, Copy)]
pub struct SlotsOut {
    /// First slot of the turn.
    pub base: *mut u8,
    /// Bytes from a slot to its piece.
    pub piece_offset: usize,
    /// The turn plus 1.
    pub stamp: u64,
    /// One route for each destination of this turn, ascending.
    pub routes: *const [Route],
    /// Whether every destination has a route, at its own index.
    pub dense: bool,
}

impl SlotsOut {
    /// # Safety
    /// The view's memory is alive.
    #[inline]
    pub(crate) unsafe fn routes<'a>(&self) -> &'a [Route] {
        // SAFETY: the caller's promise.
        unsafe { &*self.routes }
    }

    /// Marks a slot as sent and gives its piece.
    ///
    /// # Safety
    /// The view's memory is alive, and nobody else uses the slot.
    #[inline]
    pub unsafe fn write(&self, route: &Route) -> *mut u8 {
        // SAFETY: the caller's promise; routes lie within the memory.
        unsafe {
            let slot = self.base.add(route.offset);
            (*slot.cast::<SlotHeader>()).written = self.stamp;
            slot.add(self.piece_offset)
        }
    }

    /// The route to a destination.
    ///
    /// # Safety
    /// The view's memory is alive.
    #[inline]
    pub(crate) unsafe fn route<'a>(&self, destination: u32) -> Option<&'a Route> {
        // SAFETY: the caller's promise.
        let routes = unsafe { self.routes() };
        if self.dense {
            return routes.get(destination as usize);
        }
        routes.iter().find(|route| route.destination == destination)
    }
}

/// The slots of one gather, in order of sources.
#[derive(Clone, Copy)]
pub struct SlotsIn {
    /// The next slot.
    pub at: *mut u8,
    /// Bytes from one slot to the next.
    pub stride: usize,
    /// Bytes from a slot to its piece.
    pub piece_offset: usize,
    /// The turn plus 1.
    pub stamp: u64,
    /// How many slots are left.
    pub left: u32,
    /// Place of the next slot among the sources.
    pub ordinal: u32,
    /// The sources of a sparse relation; of a dense one each source has its own place.
    pub sources: Option<*const [u32]>,
}

impl SlotsIn {
    /// The next source that sent something, and its piece.
    ///
    /// # Safety
    /// The view's memory is alive, and nobody else uses the slots.
    #[inline]
    pub unsafe fn next(&mut self) -> Option<(u32, *mut u8)> {
        while self.left > 0 {
            let (slot, ordinal) = (self.at, self.ordinal);
            self.left -= 1;
            self.ordinal += 1;
            // SAFETY: the caller's promise: `left` slots follow each other.
            unsafe {
                self.at = slot.add(self.stride);
                if (*slot.cast::<SlotHeader>()).written == self.stamp {
                    let source = self
                        .sources
                        .map_or(ordinal, |sources| (&*sources)[ordinal as usize]);
                    return Some((source, slot.add(self.piece_offset)));
                }
            }
        }
        None
    }
}
