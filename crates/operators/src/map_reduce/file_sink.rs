//! Owns bytes on their way to a file, in order: runs, backups and parts of the output are written through it.
//!
//! Whoever writes asks for room first, and gives bytes then. It never waits.

use brambling_storage::{Block, BlockWriter, FileError, OutputFile};
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// So many bytes are written at once: each partition has a sink, so they are not many.
const BLOCK_BYTES: usize = 256 << 10;
/// So many blocks are on their way.
const DEPTH: usize = 2;

/// What a sink may hold in memory.
pub const SINK_BYTES: u64 = ((DEPTH + 2) * BLOCK_BYTES) as u64;

/// Bytes on their way to the end of a file.
pub struct FileSink {
    file: Arc<OutputFile>,
    writer: BlockWriter,
    block: Option<Block>,
    /// Where what is written next begins in the file.
    end: u64,
    /// Bytes of it that have been told.
    told: u64,
}

impl FileSink {
    /// To a file that has nothing yet.
    pub fn new(file: Arc<OutputFile>) -> FileSink {
        let writer = BlockWriter::new(&file, DEPTH);
        FileSink {
            file,
            writer,
            block: None,
            end: 0,
            told: 0,
        }
    }

    /// The file.
    pub fn file(&self) -> &Arc<OutputFile> {
        &self.file
    }

    /// How many bytes it has been given.
    pub fn bytes(&self) -> u64 {
        self.end + self.block.as_ref().map_or(0, |block| block.len() as u64)
    }

    /// How many bytes it has been given since the last call.
    pub fn news(&mut self) -> u64 {
        let now = self.bytes();
        now - std::mem::replace(&mut self.told, now)
    }

    /// Ready when there is room.
    pub fn poll_room(&mut self, waker: &Waker) -> Poll<Result<(), FileError>> {
        self.writer.poll_room(waker)
    }

    /// Takes bytes, also when there is no room: that is for whoever asks before.
    pub fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (writer, end) = (&mut self.writer, self.end);
            let block = self
                .block
                .get_or_insert_with(|| writer.take_block_at(end, BLOCK_BYTES));
            let now = bytes.len().min(BLOCK_BYTES - block.len());
            block.extend_from_slice(&bytes[..now]);
            bytes = &bytes[now..];
            if block.len() == BLOCK_BYTES {
                self.send();
            }
        }
    }

    fn send(&mut self) {
        if let Some(block) = self.block.take() {
            let at = self.end;
            self.end += block.len() as u64;
            self.writer.write(at, block);
        }
    }

    /// Sends what it has, and is ready when all that it was given is in the file.
    pub fn poll_written(&mut self, waker: &Waker) -> Poll<Result<(), FileError>> {
        self.send();
        self.writer.poll_written(waker)
    }

    /// The range that it has been given since it had so many bytes.
    pub fn since(&self, begin: u64) -> Range<u64> {
        begin..self.bytes()
    }
}
