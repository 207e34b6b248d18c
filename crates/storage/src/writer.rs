//! Blocks on their way to a file.
//!
//! # Rules
//! * Blocks of one writer may reach the file in any order; their places must not overlap.
//! * Writing never waits. Whoever asks for room before each block holds memory for no more blocks
//!   than the writer's depth, one more at most.
//! * After an error nothing else is written, and every question is answered with that error. A
//!   writer that is dropped cancels what is on its way, and if something was, its file is never
//!   published.

use crate::block::{Block, PAGE};
use crate::counts::{FileCounters, FileCounts};
use crate::output::OutputFile;
use crate::pool::{Request, Ticket};
use crate::requests::FileError;
use crate::shared_pool::shared_pool;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// Blocks on their way to a file, at most so many at once.
#[derive(Debug)]
pub struct BlockWriter {
    file: Arc<OutputFile>,
    depth: usize,
    /// What found no room in the pool's queue, or is beyond the depth.
    waiting: VecDeque<BlockWrite>,
    going: Vec<Ticket<Block>>,
    free: Vec<Block>,
    failed: Option<FileError>,
    /// Who asked last.
    waker: Waker,
    counters: Arc<FileCounters>,
}

impl BlockWriter {
    /// A writer to a file. Several may write to one file, each its own places.
    pub fn new(file: &Arc<OutputFile>, depth: usize) -> BlockWriter {
        BlockWriter {
            file: file.clone(),
            depth: depth.max(1),
            waiting: VecDeque::new(),
            going: Vec::new(),
            free: Vec::new(),
            failed: None,
            waker: Waker::noop().clone(),
            counters: Arc::default(),
        }
    }

    /// Sends a block to a place of the file. What goes wrong is told when room or the end is asked for.
    pub fn write(&mut self, at: u64, block: Block) {
        if self.failed.is_some() {
            return;
        }
        self.waiting.push_back(BlockWrite {
            file: self.file.clone(),
            at,
            block,
            counters: self.counters.clone(),
        });
        if let Err(error) = self.send() {
            self.fail(error);
        }
    }

    /// Ready when another block may come. The waker is woken when one may.
    pub fn poll_room(&mut self, waker: &Waker) -> Poll<Result<(), FileError>> {
        self.poll_until(self.depth - 1, waker)
    }

    /// Ready when all that came is in the file, which does not mean on its disk.
    pub fn poll_written(&mut self, waker: &Waker) -> Poll<Result<(), FileError>> {
        self.poll_until(0, waker)
    }

    /// An empty block with room for so many bytes: one that has been written, or a fresh one.
    pub fn take_block(&mut self, bytes: usize) -> Block {
        self.take_block_at(0, bytes)
    }

    /// An empty block with room for so many bytes, which lies in its pages as it will lie in those
    /// of the file: what goes to that place goes past the system's cache.
    pub fn take_block_at(&mut self, at: u64, bytes: usize) -> Block {
        let phase = (at % PAGE as u64) as usize;
        match self.free.pop() {
            Some(mut block) if block.is_enough(phase, bytes) => {
                block.restart(phase);
                block
            }
            _ => Block::at_phase(phase, bytes),
        }
    }

    /// What it has written.
    pub fn counts(&self) -> FileCounts {
        self.counters.counts()
    }

    /// Ready when no more blocks than so many are left.
    fn poll_until(&mut self, left: usize, waker: &Waker) -> Poll<Result<(), FileError>> {
        if let Some(error) = &self.failed {
            return Poll::Ready(Err(error.clone()));
        }
        if !self.waker.will_wake(waker) {
            self.waker = waker.clone();
        }
        let polled = self.collect().and_then(|()| self.send());
        if let Err(error) = polled {
            self.fail(error.clone());
            return Poll::Ready(Err(error));
        }
        match self.going.len() + self.waiting.len() <= left {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// Takes back the blocks that have been written.
    fn collect(&mut self) -> Result<(), FileError> {
        let mut at = 0;
        while at < self.going.len() {
            match self.going[at].poll(&self.waker) {
                Poll::Pending => at += 1,
                Poll::Ready(written) => {
                    drop(self.going.swap_remove(at));
                    let block = written?;
                    if self.free.len() < self.depth {
                        self.free.push(block);
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives to the pool what may go.
    fn send(&mut self) -> Result<(), FileError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let pool = shared_pool()?;
        while self.going.len() < self.depth
            && let Some(next) = self.waiting.pop_front()
        {
            match pool.give(next, &self.waker) {
                Ok(ticket) => self.going.push(ticket),
                Err(back) => {
                    self.waiting.push_front(back);
                    break;
                }
            }
        }
        Ok(())
    }

    fn fail(&mut self, error: FileError) {
        self.failed = Some(error);
        self.cancel();
    }

    fn cancel(&mut self) {
        let mut is_missing = !self.waiting.is_empty();
        self.waiting.clear();
        for mut ticket in self.going.drain(..) {
            is_missing |= ticket.cancel();
        }
        if is_missing {
            let what = format!("writing {}", self.file.path().display());
            self.file.spoil(FileError::Cancelled { what });
        }
    }
}

impl Drop for BlockWriter {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Writes a block to its place.
#[derive(Debug)]
struct BlockWrite {
    file: Arc<OutputFile>,
    at: u64,
    block: Block,
    counters: Arc<FileCounters>,
}

impl Request for BlockWrite {
    type Done = Block;

    fn run(self) -> Result<Block, FileError> {
        self.file
            .write_block(self.at, &self.block, &self.counters)?;
        Ok(self.block)
    }

    fn name(&self) -> String {
        let (path, bytes, at) = (self.file.path().display(), self.block.len(), self.at);
        format!("writing {bytes} bytes of {path} from byte {at} on")
    }
}
