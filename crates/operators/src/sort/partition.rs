//! Cuts blocks of records into the buffers of parts.
//!
//! A source has one [`PartBuffers`]. It feeds blocks as they come from the file, and takes the
//! buffers that are long enough to be sent.

use super::layout::{Layout, with_layout};
use super::splitters::Splitters;

/// So many records are looked up before they are copied: their bytes are still in the nearest cache.
const BATCH: usize = 128;

/// A buffer of whole records for each part.
#[derive(Clone, Debug)]
pub struct PartBuffers {
    splitters: Splitters,
    parts: Vec<Vec<u8>>,
}

impl PartBuffers {
    /// Empty buffers.
    pub fn new(splitters: Splitters) -> PartBuffers {
        let parts = vec![Vec::new(); splitters.parts() as usize];
        PartBuffers { splitters, parts }
    }

    /// The cuts.
    pub fn splitters(&self) -> &Splitters {
        &self.splitters
    }

    /// Appends each record of a block to its part, in order.
    ///
    /// # Panics
    /// When the block does not end with the end of a record.
    pub fn cut(&mut self, block: &[u8]) {
        let PartBuffers { splitters, parts } = self;
        with_layout!(*splitters.format(), layout => cut(layout, splitters, block, parts));
    }

    /// Bytes in the buffer of a part.
    pub fn part_bytes(&self, part: u32) -> usize {
        self.parts[part as usize].len()
    }

    /// The buffer of a part: to be taken by swapping another one in, which may have memory to use
    /// again.
    pub fn part_mut(&mut self, part: u32) -> &mut Vec<u8> {
        &mut self.parts[part as usize]
    }

    /// Bytes of memory that the buffers have.
    pub fn memory_bytes(&self) -> usize {
        self.parts.iter().map(Vec::capacity).sum()
    }
}

fn cut<L: Layout>(layout: L, splitters: &Splitters, block: &[u8], parts: &mut [Vec<u8>]) {
    let mut at = 0;
    let mut batch = [(0u32, 0u32); BATCH];
    while at < block.len() {
        let mut count = 0;
        let begin = at;
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
        let mut from = begin;
        for &(part, bytes) in &batch[..count] {
            let to = from + bytes as usize;
            layout.append(&block[from..to], &mut parts[part as usize]);
            from = to;
        }
    }
}
