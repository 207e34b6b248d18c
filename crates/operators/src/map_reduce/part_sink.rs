//! Owns a part of the output on its way to its file and, where there are copies, to those who write them.
//!
//! The reduce stage gives it lines, and sends what copies are made of when a block of it is full. It never waits.

use super::file_sink::FileSink;
use brambling_program::Streams;
use brambling_storage::OutputFile;
use std::sync::Arc;

/// What copies are made of is sent when it has so many bytes: less costs more in chunks.
const BLOCK_BYTES: usize = 256 << 10;

/// A part on its way.
pub struct PartSink {
    sink: FileSink,
    /// Bytes that copies lack; none where there are no copies.
    lacked: Option<Vec<u8>>,
    has_sent: bool,
}

impl PartSink {
    /// To a file that has nothing yet, with copies or without.
    pub fn new(file: Arc<OutputFile>, has_copies: bool) -> PartSink {
        PartSink {
            sink: FileSink::new(file),
            lacked: has_copies.then(Vec::new),
            has_sent: false,
        }
    }

    /// The way to its file.
    pub fn sink(&mut self) -> &mut FileSink {
        &mut self.sink
    }

    /// Takes a line.
    pub fn put(&mut self, line: &[u8]) {
        self.sink.put(line);
        if let Some(lacked) = &mut self.lacked {
            lacked.extend_from_slice(line);
        }
    }

    /// Whether a block is full that copies lack.
    pub fn is_full(&self) -> bool {
        self.lacked
            .as_ref()
            .is_some_and(|it| it.len() >= BLOCK_BYTES)
    }

    /// Sends what copies lack if a block of it is full or, at the end, whatever there is: at least one block, since a copy of
    /// nothing is a file too. Whether there is room for more.
    pub fn send(&mut self, streams: &mut Streams<'_, '_>, is_end: bool) -> bool {
        let is_full = self.is_full();
        let Some(lacked) = &mut self.lacked else {
            return true;
        };
        let to = streams.output::<Vec<u8>>();
        let destinations: Vec<u32> = streams.destinations().collect();
        if is_full || (is_end && !(self.has_sent && lacked.is_empty())) {
            let block = std::mem::take(lacked);
            self.has_sent = true;
            for destination in &destinations {
                streams.send(&to, *destination, block.clone());
            }
        }
        destinations
            .iter()
            .all(|destination| streams.has_room(&to, *destination))
    }
}
