//! Records that are sorted in memory.
//!
//! A part's records come in chunks, which an [`Arena`] keeps as they are. Sorting makes an entry of
//! 16 bytes for each record and sorts the entries; [`SortedRecords`] then copies the records out in
//! order. Whoever owns the arena asks what it takes of the budget, and sorts early when that is too
//! much.

use super::entries::{self, Ties, record};
use super::format::RecordFormat;
use super::layout::{RecordLayout, with_layout};
use super::radix::RecordEntry;
use crate::simd::prefetch;

/// So many records ahead are asked for. A record comes from memory in about 100 ns and is copied in
/// 10 to 20.
pub(super) const AHEAD: usize = 24;

/// Chunks of whole records, in the order in which they came.
#[derive(Debug, Default)]
pub struct Arena {
    format: RecordFormat,
    chunks: Vec<Vec<u8>>,
    memory_bytes: usize,
    bytes: u64,
    records: u64,
}

impl Arena {
    /// An empty one.
    pub fn new(format: RecordFormat) -> Arena {
        Arena {
            format,
            ..Arena::default()
        }
    }

    /// Adds a chunk of whole records. Records of earlier chunks come first among equals.
    ///
    /// # Panics
    /// When the chunk has 4 GiB or more, or ends within a record of fixed width.
    pub fn push(&mut self, chunk: Vec<u8>) {
        assert!(
            u32::try_from(chunk.len()).is_ok() && self.chunks.len() < u32::MAX as usize,
            "an entry has 32 bits for a place in a chunk"
        );
        let records = match self.format.width() {
            Some(width) => {
                assert!(
                    chunk.len().is_multiple_of(width),
                    "a chunk ends within a record"
                );
                chunk.len() / width
            }
            None => memchr::memchr_iter(b'\n', &chunk).count(),
        };
        self.records += records as u64;
        self.memory_bytes += chunk.capacity();
        self.bytes += chunk.len() as u64;
        self.chunks.push(chunk);
    }

    /// Bytes of records.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of memory that the chunks have.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// How many records there are.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes that sorting takes beside the chunks, at most. Half of them, the entries, stay until
    /// all is copied out. The other half is needed when all keys begin alike; otherwise it is
    /// far less.
    pub fn sort_room_bytes(&self) -> usize {
        2 * size_of::<RecordEntry>() * self.records as usize
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Sorts the records by their keys; equal ones stay in the order in which they came.
    ///
    /// # Panics
    /// When a chunk does not end with the end of a record.
    pub fn sort(self) -> SortedRecords {
        self.sort_with(Ties::InOrder)
    }

    /// Sorts the records by their keys; equal ones come in any order.
    ///
    /// # Panics
    /// As [`Arena::sort`].
    pub fn sort_unstable(self) -> SortedRecords {
        self.sort_with(Ties::Any)
    }

    fn sort_with(self, ties: Ties) -> SortedRecords {
        let entries = with_layout!(self.format, layout => {
            entries::sorted(layout, &self.chunks, ties)
        });
        SortedRecords {
            format: self.format,
            chunks: self.chunks,
            memory_bytes: self.memory_bytes,
            bytes_left: self.bytes,
            entries,
            next: 0,
            written: 0,
        }
    }
}

/// Records in order, to be copied out once.
#[derive(Debug)]
pub struct SortedRecords {
    format: RecordFormat,
    chunks: Vec<Vec<u8>>,
    memory_bytes: usize,
    bytes_left: u64,
    entries: Vec<RecordEntry>,
    /// The record that is to be copied next.
    next: usize,
    /// How many of its bytes have been.
    written: usize,
}

impl SortedRecords {
    /// Copies the next bytes out, and says how many: as many as there is room for, fewer at the
    /// end. The next call goes on where this one stopped, within a record too.
    pub fn fill(&mut self, out: &mut [u8]) -> usize {
        let filled = with_layout!(self.format, layout => self.fill_with(layout, out));
        self.bytes_left -= filled as u64;
        filled
    }

    /// How many records there are, copied ones included.
    pub fn records(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Bytes that have not been copied out.
    pub fn bytes_left(&self) -> u64 {
        self.bytes_left
    }

    /// Bytes of memory that chunks and entries have.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes + self.entries.capacity() * size_of::<RecordEntry>()
    }

    /// The memory of the chunks, to be used again.
    pub fn into_chunks(self) -> Vec<Vec<u8>> {
        self.chunks
    }

    fn fill_with<L: RecordLayout>(&mut self, layout: L, out: &mut [u8]) -> usize {
        let mut filled = 0;
        while self.next < self.entries.len() && filled < out.len() {
            if let Some(&later) = self.entries.get(self.next + AHEAD) {
                let chunk = &self.chunks[later.chunk as usize];
                let begin = chunk.as_ptr().wrapping_add(later.offset as usize);
                prefetch(begin);
                prefetch(begin.wrapping_add(64));
            }
            let record = record(layout, &self.chunks, self.entries[self.next]);
            let room = &mut out[filled..];
            if self.written == 0 && record.len() <= room.len() {
                layout.copy(record, &mut room[..record.len()]);
                filled += record.len();
                self.next += 1;
                continue;
            }
            let rest = &record[self.written..];
            if rest.len() > room.len() {
                room.copy_from_slice(&rest[..room.len()]);
                self.written += room.len();
                return out.len();
            }
            room[..rest.len()].copy_from_slice(rest);
            filled += rest.len();
            self.written = 0;
            self.next += 1;
        }
        filled
    }
}
