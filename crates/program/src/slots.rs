//! Pieces that lie in one piece of memory: raw views, so that a kernel finds each without a call.
#![allow(unsafe_code)] // Addresses are computed here; whoever makes a view answers for its memory.

use std::alloc::Layout;

/// What precedes a piece in its slot.
#[repr(C)]
pub struct SlotHeader<S = u64> {
    /// The turn that last wrote the slot, plus 1. A piece of another turn is an empty mark.
    pub written: u64,
    /// The exchange's: says that the piece, or the empty mark, has arrived.
    pub arrived: S,
    /// Bytes that the piece owned when it was last counted.
    pub heap_bytes: u64,
}

impl SlotHeader {
    /// Bytes from a slot to its piece, for pieces of an alignment.
    pub const fn piece_offset(align: usize) -> usize {
        size_of::<SlotHeader>().next_multiple_of(align)
    }

    /// Bytes from a slot to the next, for pieces of a size and alignment: whole cache lines, so that two
    /// sources never write the same one.
    pub const fn stride(size: usize, align: usize) -> usize {
        let line = if align > 64 { align } else { 64 };
        (SlotHeader::piece_offset(align) + size).next_multiple_of(line)
    }
}

/// Where a source's piece to one destination lies.
#[derive(Clone, Copy, Debug)]
pub struct SlotRoute {
    /// The destination.
    pub destination: u32,
    /// What the executor calls the destination's shard.
    pub number: u32,
    /// The source's place among those of the destination.
    pub ordinal: u32,
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
    pub routes: *const [SlotRoute],
    /// Partition that sends.
    pub source: u32,
    /// Whether every destination has a route, at its own index.
    pub dense: bool,
}

impl SlotsOut {
    /// # Safety
    /// The view's memory is alive.
    #[inline]
    pub(crate) unsafe fn routes<'a>(&self) -> &'a [SlotRoute] {
        // SAFETY: the caller's promise.
        unsafe { &*self.routes }
    }

    /// Marks a slot as sent.
    ///
    /// # Safety
    /// The view's memory is alive, and nobody else uses the slot.
    #[inline]
    pub(crate) unsafe fn stamp(&self, route: &SlotRoute) {
        // SAFETY: the caller's promise; routes lie within the memory.
        unsafe { (*self.base.add(route.offset).cast::<SlotHeader>()).written = self.stamp };
    }

    /// Marks a slot as sent and gives its piece.
    ///
    /// # Safety
    /// As [`SlotsOut::stamp`].
    #[inline]
    pub(crate) unsafe fn write(&self, route: &SlotRoute) -> *mut u8 {
        // SAFETY: the caller's promise; routes lie within the memory.
        unsafe {
            self.stamp(route);
            self.base.add(route.offset + self.piece_offset)
        }
    }

    /// The route to a destination.
    ///
    /// # Safety
    /// The view's memory is alive.
    #[inline]
    pub(crate) unsafe fn route<'a>(&self, destination: u32) -> Option<&'a SlotRoute> {
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
    /// The turn plus 1.
    pub stamp: u64,
    /// Place of the next slot among the sources.
    pub ordinal: u32,
    /// How many slots there are.
    pub fan_in: u32,
    /// The sources of a sparse relation, as many as there are slots; null for a dense one, where each source
    /// has its own place.
    pub sources: *const u32,
    /// Layout of a piece.
    pub piece: Layout,
}

impl SlotsIn {
    /// The next source that sent something, and its piece.
    ///
    /// # Safety
    /// The view's memory is alive, and nobody else uses the slots.
    #[inline]
    pub unsafe fn next(&mut self) -> Option<(u32, *mut u8)> {
        // SAFETY: the caller's promise.
        unsafe { self.next_of(self.piece.size(), self.piece.align()) }
    }

    /// As [`SlotsIn::next`], when the layout of a piece is known to the caller.
    ///
    /// # Safety
    /// As [`SlotsIn::next`]; the slots were laid out for pieces of this size and alignment.
    #[inline(always)]
    pub(crate) unsafe fn next_of(&mut self, size: usize, align: usize) -> Option<(u32, *mut u8)> {
        while self.ordinal < self.fan_in {
            let (slot, ordinal) = (self.at, self.ordinal);
            self.ordinal += 1;
            // SAFETY: the caller's promise: slots follow each other, and there is a source for each.
            unsafe {
                self.at = slot.add(SlotHeader::stride(size, align));
                // Under another stamp lies an older piece: the source has sent nothing in this
                // turn.
                if (*slot.cast::<SlotHeader>()).written == self.stamp {
                    let source = if self.sources.is_null() {
                        ordinal
                    } else {
                        *self.sources.add(ordinal as usize)
                    };
                    return Some((source, slot.add(SlotHeader::piece_offset(align))));
                }
            }
        }
        None
    }
}
