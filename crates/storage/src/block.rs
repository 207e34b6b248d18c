//! Memory for I/O: pages that start where direct I/O wants them to, and are huge where they are many.
//!
//! A disk takes a request in one go if its memory lies in few pieces, so blocks that fill huge pages are
//! read and written several times as quickly as those in small ones: multiples of 2 MB, or little less.
//!
//! Scans and writers make blocks and take them back; kernels read and fill them. A block never
//! grows, and its memory goes back to the system when it is dropped.

use memmap2::{Advice, MmapMut, MmapOptions};
use std::ops::{Deref, DerefMut};

/// Direct I/O wants addresses, positions and lengths at multiples of this.
pub(crate) const PAGE: usize = 4096;
/// What a huge page takes. From here on a block begins at a multiple of it.
const HUGE: usize = 2 << 20;

/// A block is made larger by such a part of it at most, so that all of it lies in huge pages.
const SPARED: usize = 8;

/// Pages for I/O. It is read and written as the bytes that it has, which may begin within its first page.
pub struct Block {
    map: MmapMut,
    /// Where in the map the first page lies.
    first: usize,
    /// So many bytes the pages have.
    room: usize,
    /// Where in the pages the block's bytes begin.
    phase: usize,
    len: usize,
}

impl Block {
    /// An empty block for so many bytes, and perhaps some more: it takes whole pages.
    ///
    /// # Panics
    /// When the system has no memory, as every container does.
    pub fn with_capacity(bytes: usize) -> Block {
        Block::at_phase(0, bytes)
    }

    /// An empty block for so many bytes, whose first one lies so far within a page.
    pub(crate) fn at_phase(phase: usize, bytes: usize) -> Block {
        assert!(phase < PAGE, "a phase lies within a page");
        let mut room = (phase + bytes).next_multiple_of(PAGE).max(PAGE);
        let huge_room = room.next_multiple_of(HUGE);
        if huge_room - room <= huge_room / SPARED {
            room = huge_room;
        }
        let is_large = room >= HUGE;
        let mapped = if is_large { room + HUGE - PAGE } else { room };
        // What is mapped and not touched takes no memory.
        let made = MmapOptions::new().len(mapped).no_reserve_swap().map_anon();
        let map =
            made.unwrap_or_else(|error| panic!("no memory for a block of {bytes} bytes: {error}"));
        let mut first = 0;
        if is_large {
            let address = map.as_ptr() as usize;
            first = address.next_multiple_of(HUGE) - address;
            // Where there are no huge pages, there are small ones.
            let _ = map.advise_range(Advice::HugePage, first, room);
        }
        Block {
            map,
            first,
            room,
            phase,
            len: 0,
        }
    }

    /// So many bytes it can have.
    pub fn capacity(&self) -> usize {
        self.room - self.phase
    }

    /// Makes it so long. Bytes that are new are what they were before, or zero.
    ///
    /// # Panics
    /// Beyond its capacity.
    pub fn set_len(&mut self, bytes: usize) {
        assert!(bytes <= self.capacity(), "a block does not grow");
        self.len = bytes;
    }

    /// Makes it empty.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// Beyond its capacity.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.spare()[..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// What lies behind its bytes, to be written before it is made longer.
    pub fn spare(&mut self) -> &mut [u8] {
        let from = self.first + self.phase + self.len;
        &mut self.map[from..self.first + self.room]
    }

    /// Empties it and moves its begin to another place in the first page.
    pub(crate) fn restart(&mut self, phase: usize) {
        assert!(phase < PAGE, "a phase lies within a page");
        (self.phase, self.len) = (phase, 0);
    }

    /// Where in the first page it begins.
    pub(crate) fn phase(&self) -> usize {
        self.phase
    }

    /// Whether it has room for so many bytes that begin there in its first page.
    pub(crate) fn is_enough(&self, phase: usize, bytes: usize) -> bool {
        phase + bytes <= self.room
    }

    /// The pages themselves, the first so many bytes.
    pub(crate) fn pages(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.map[self.first..][..bytes]
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[self.first + self.phase..][..self.len]
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.first + self.phase..][..self.len]
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({} of {} bytes)", self.len, self.capacity())
    }
}
