//! A range of a file, read ahead of whoever takes it.
//!
//! # Rules
//! * Blocks come in the file's order, each of exactly the bytes that were asked for, the last one
//!   of what is left.
//! * As many blocks as were asked for are on their way or wait to be taken. With those that are out
//!   and come back, a scan has memory for no more, so that whoever charges memory knows what it takes.
//! * After an error nothing comes but that error. A scan that is dropped cancels what is on its way.

use crate::block::{Block, PAGE};
use crate::counts::{FileCounters, FileCounts};
use crate::input::InputFile;
use crate::pool::{Request, Ticket};
use crate::requests::FileError;
use crate::shared_pool::shared_pool;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// How far a scan reads ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadAhead {
    /// Bytes of a block: any number, perhaps a multiple of a record's width.
    pub block_bytes: usize,
    /// So many blocks are on their way, or wait to be taken.
    pub blocks: usize,
}

/// What a block takes with its pages: two huge pages. Disks want requests of megabytes; larger ones only take memory.
const BLOCK_BYTES: usize = 4 << 20;
/// So many of them keep a disk busy in which a request takes some milliseconds.
const BLOCKS: usize = 4;

impl ReadAhead {
    /// What suits disks: four blocks of the largest multiple of a unit that fills 4 MB of pages with
    /// wherever in a page it begins; of one unit where that is larger.
    pub fn of_units(unit_bytes: usize) -> ReadAhead {
        let unit_bytes = unit_bytes.max(1);
        let units = (BLOCK_BYTES - (PAGE - 1)) / unit_bytes;
        ReadAhead {
            block_bytes: units.max(1) * unit_bytes,
            blocks: BLOCKS,
        }
    }
}

/// A range of a file that is read in order, by threads that wait for files.
#[derive(Debug)]
pub struct Scan {
    file: Arc<InputFile>,
    /// What no request has been made of yet.
    rest: Range<u64>,
    ahead: ReadAhead,
    coming: VecDeque<Ticket<Block>>,
    free: Vec<Block>,
    failed: Option<FileError>,
    counters: Arc<FileCounters>,
}

impl Scan {
    /// Begins at the range's start. Nothing is read before it is polled.
    ///
    /// # Panics
    /// When blocks have no bytes.
    pub fn new(file: &Arc<InputFile>, range: Range<u64>, ahead: ReadAhead) -> Scan {
        assert!(ahead.block_bytes > 0, "a block has bytes");
        Scan {
            file: file.clone(),
            rest: range,
            ahead,
            coming: VecDeque::new(),
            free: Vec::new(),
            failed: None,
            counters: Arc::default(),
        }
    }

    /// Reads into these blocks first: those of an earlier scan, whose memory has been touched.
    #[must_use]
    pub fn reusing(mut self, blocks: Vec<Block>) -> Scan {
        self.free = blocks;
        self.free.truncate(self.blocks_max());
        self
    }

    /// The blocks that are free, for [`Scan::reusing`]: all of them at the end.
    pub fn into_blocks(mut self) -> Vec<Block> {
        std::mem::take(&mut self.free)
    }

    /// The next block; none at the end. When it has not come yet, the waker is woken when it has.
    /// It may be woken before that, too.
    pub fn poll(&mut self, waker: &Waker) -> Poll<Result<Option<Block>, FileError>> {
        let polled = self.advance(waker);
        if let Err(error) = &polled {
            self.failed = Some(error.clone());
            self.cancel();
        }
        match polled {
            Ok(poll) => poll.map(Ok),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn advance(&mut self, waker: &Waker) -> Result<Poll<Option<Block>>, FileError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.ask(waker)?;
        let Some(next) = self.coming.front_mut() else {
            // If there is a rest, there was no room for its request, and the waker waits for that.
            let is_over = self.rest.is_empty();
            return Ok(if is_over {
                Poll::Ready(None)
            } else {
                Poll::Pending
            });
        };
        let Poll::Ready(read) = next.poll(waker) else {
            return Ok(Poll::Pending);
        };
        let block = read?;
        self.coming.pop_front();
        self.ask(waker)?;
        Ok(Poll::Ready(Some(block)))
    }

    /// Asks for blocks until enough are on their way.
    fn ask(&mut self, waker: &Waker) -> Result<(), FileError> {
        if self.rest.is_empty() || self.coming.len() >= self.ahead.blocks.max(1) {
            return Ok(());
        }
        let pool = shared_pool()?;
        while !self.rest.is_empty() && self.coming.len() < self.ahead.blocks.max(1) {
            let left = self.rest.end - self.rest.start;
            let bytes = left.min(self.ahead.block_bytes as u64) as usize;
            let request = BlockRead {
                file: self.file.clone(),
                at: self.rest.start,
                bytes,
                block: self.block(bytes),
                counters: self.counters.clone(),
            };
            match pool.give(request, waker) {
                Ok(ticket) => {
                    self.coming.push_back(ticket);
                    self.rest.start += bytes as u64;
                }
                Err(back) => {
                    self.free.push(back.block);
                    break;
                }
            }
        }
        Ok(())
    }

    /// A block for the next so many bytes, and for the rest of the pages in which they lie.
    fn block(&mut self, bytes: usize) -> Block {
        let phase = (self.rest.start % PAGE as u64) as usize;
        match self.free.pop() {
            Some(block) if block.is_enough(phase, bytes) => block,
            _ => Block::with_capacity(bytes + PAGE - 1),
        }
    }

    /// Takes back a block that came from it, to be read into again.
    pub fn give_back(&mut self, block: Block) {
        if self.free.len() < self.blocks_max() {
            self.free.push(block);
        }
    }

    /// Those on their way, and one that is out.
    fn blocks_max(&self) -> usize {
        self.ahead.blocks.max(1) + 1
    }

    /// What it has read.
    pub fn counts(&self) -> FileCounts {
        self.counters.counts()
    }

    #[cfg(test)]
    pub(crate) fn counters(&self) -> Arc<FileCounters> {
        self.counters.clone()
    }

    fn cancel(&mut self) {
        for mut ticket in self.coming.drain(..) {
            ticket.cancel();
        }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Reads a range into a block.
#[derive(Debug)]
struct BlockRead {
    file: Arc<InputFile>,
    at: u64,
    bytes: usize,
    block: Block,
    counters: Arc<FileCounters>,
}

impl Request for BlockRead {
    type Done = Block;

    fn run(mut self) -> Result<Block, FileError> {
        let (at, bytes) = (self.at, self.bytes);
        self.file
            .read_block(at, bytes, &mut self.block, &self.counters)?;
        Ok(self.block)
    }

    fn name(&self) -> String {
        let (path, bytes, at) = (self.file.path().display(), self.bytes, self.at);
        format!("reading {bytes} bytes of {path} from byte {at} on")
    }
}
