//! Cuts blocks of records into the buffers of parts.
//!
//! A source has one [`PartBuffers`]. It feeds blocks as they come from the file, and takes the
//! buffers that are long enough to be sent.

use super::layout::{RecordLayout, with_layout};
use super::splitters::Splitters;

/// So many records are looked up before they are copied: their bytes are still in the nearest
/// cache.
const BATCH: usize = 128;

/// A buffer of whole records for each part.
#[derive(Clone, Debug)]
pub struct PartBuffers {
    splitters: Splitters,
    part_bytes: usize,
    parts: Vec<Vec<u8>>,
}

impl PartBuffers {
    /// Empty buffers. One is full when it has no room for another record in so many bytes.
    pub fn new(splitters: Splitters, part_bytes: usize) -> PartBuffers {
        let parts = vec![Vec::new(); splitters.parts() as usize];
        PartBuffers {
            splitters,
            part_bytes,
            parts,
        }
    }

    /// The cuts.
    pub fn splitters(&self) -> &Splitters {
        &self.splitters
    }

    /// Appends each record of a block to its part, in order. `full` is given a part and its buffer
    /// when that is full, and leaves an empty one: the same, cleared, or another whose memory is
    /// used again. It is asked for the first one, too, by a buffer that has no memory. A record that is longer than a buffer lies in one alone.
    ///
    /// # Panics
    /// When the block has 4 GiB or more, does not end with the end of a record, or `full` leaves
    /// bytes.
    pub fn cut(&mut self, block: &[u8], mut full: impl FnMut(u32, &mut Vec<u8>)) {
        assert!(
            u32::try_from(block.len()).is_ok(),
            "a block is cut in 32 bits"
        );
        let PartBuffers {
            splitters,
            part_bytes,
            parts,
        } = self;
        let mut make_room = |part: u32, bytes: usize, buffer: &mut Vec<u8>| {
            if !buffer.is_empty() || buffer.capacity() == 0 {
                full(part, buffer);
                assert!(buffer.is_empty(), "a full part was not taken");
            }
            // All of it at once: growing would copy what is there.
            buffer.reserve_exact(bytes.max(*part_bytes));
        };
        with_layout!(*splitters.format(), layout => {
            cut(layout, splitters, block, parts, *part_bytes, &mut make_room)
        });
    }

    /// What has come for a part since it was full: to be taken at the end.
    pub fn part_mut(&mut self, part: u32) -> &mut Vec<u8> {
        &mut self.parts[part as usize]
    }

    /// Bytes of memory that the buffers have.
    pub fn memory_bytes(&self) -> usize {
        self.parts.iter().map(Vec::capacity).sum()
    }
}

fn cut<L: RecordLayout>(
    layout: L,
    splitters: &Splitters,
    block: &[u8],
    parts: &mut [Vec<u8>],
    part_bytes: usize,
    make_room: &mut dyn FnMut(u32, usize, &mut Vec<u8>),
) {
    let mut at = 0;
    let mut batch = [(0u32, 0u32); BATCH];
    while at < block.len() {
        let mut count = 0;
        let mut from = at;
        while count < BATCH && at < block.len() {
            let Some(end) = layout.end(block, at) else {
                panic!("a block ends within a record; cut it with RecordJoiner");
            };
            let record = &block[at..end];
            let part = splitters.find_with(
                layout.prefix(record),
                || layout.key(record),
                |a, b| layout.compare_keys(a, b),
            );
            batch[count] = (part, (end - at) as u32);
            count += 1;
            at = end;
        }
        for &(part, bytes) in &batch[..count] {
            let to = from + bytes as usize;
            let buffer = &mut parts[part as usize];
            let needed = buffer.len() + bytes as usize;
            // The first record, or one for which there is no room.
            if needed > part_bytes || needed > buffer.capacity() {
                make_room(part, bytes as usize, buffer);
            }
            layout.append(&block[from..to], buffer);
            from = to;
        }
    }
}
