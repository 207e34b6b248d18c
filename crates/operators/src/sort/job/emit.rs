//! Owns the way of sorted records into a file, block by block, while the disk writes earlier ones.
//! The stage `sort` drives it, for runs and for the output. It never waits: with enough blocks under
//! way it says pending.

use super::merging::MergedRuns;
use crate::sort::SortedRecords;
use brambling_program::KernelError;
use brambling_storage::{Block, BlockWriter, OutputFile};
use std::sync::Arc;
use std::task::{Poll, Waker};

/// So many blocks of a file are written at once: one is filled while the disk has the others.
const BLOCKS_BEHIND: usize = 3;

/// Where sorted records come from.
pub(super) enum SortedSource {
    /// Memory.
    Memory(SortedRecords),
    /// Runs on disk, and memory as the last of them.
    Runs(Box<MergedRuns>),
}

/// What a call has done.
pub(super) enum Emitted {
    /// It has filled a block: there may be more.
    Some,
    /// All is written.
    All,
}

/// Sorted records on their way to a file.
pub(super) struct Emit {
    source: SortedSource,
    writer: BlockWriter,
    /// A block that a run keeps waiting.
    filling: Option<Block>,
    at: u64,
    end: u64,
    block_bytes: usize,
    /// What has been told of `at`, and of bytes of runs.
    told: (u64, u64),
}

impl Emit {
    /// From a position to another one, which is known before.
    pub(super) fn new(
        source: SortedSource,
        file: &Arc<OutputFile>,
        (begin, end): (u64, u64),
        block_bytes: usize,
    ) -> Emit {
        Emit {
            source,
            writer: BlockWriter::new(file, BLOCKS_BEHIND),
            filling: None,
            at: begin,
            end,
            block_bytes,
            told: (begin, 0),
        }
    }

    /// Fills a block and gives it to the disk. `seen` is shown the bytes in order.
    pub(super) fn poll(
        &mut self,
        waker: &Waker,
        mut seen: impl FnMut(&[u8]),
    ) -> Poll<Result<Emitted, KernelError>> {
        if self.at == self.end {
            return match self.writer.poll_written(waker) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Err(error)) => Poll::Ready(Err(fault(error))),
                Poll::Ready(Ok(())) => Poll::Ready(Ok(Emitted::All)),
            };
        }
        match self.writer.poll_room(waker) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(fault(error))),
            Poll::Ready(Ok(())) => {}
        }
        // Blocks end at multiples of their length, so that all but the first and the last are
        // written where they lie.
        let block = self.block_bytes as u64;
        let bytes = (block - self.at % block).min(self.end - self.at) as usize;
        let mut out = match self.filling.take() {
            Some(begun) => begun,
            None => {
                let mut fresh = self.writer.take_block_at(self.at, bytes);
                fresh.set_len(bytes);
                fresh
            }
        };
        let filled = match &mut self.source {
            SortedSource::Memory(gather) => gather.fill(&mut out),
            SortedSource::Runs(merged) => match merged.poll_fill(&mut out, waker) {
                Poll::Pending => {
                    self.filling = Some(out);
                    return Poll::Pending;
                }
                Poll::Ready(filled) => filled.map_err(fault)?,
            },
        };
        assert_eq!(filled, bytes, "a source has as many bytes as were counted");
        seen(&out);
        self.writer.write(self.at, out);
        self.at += bytes as u64;
        Poll::Ready(Ok(Emitted::Some))
    }

    /// Bytes that were written since the last call, and bytes of runs that came.
    pub(super) fn news(&mut self) -> (u64, u64) {
        let now = match &self.source {
            SortedSource::Memory(_) => (self.at, 0),
            SortedSource::Runs(runs) => (self.at, runs.read_bytes()),
        };
        let (at, runs) = std::mem::replace(&mut self.told, now);
        (now.0 - at, now.1 - runs)
    }

    pub(super) fn written_bytes(&self) -> u64 {
        self.at
    }

    /// The memory of the chunks in which the records lay.
    pub(super) fn into_chunks(self) -> Vec<Vec<u8>> {
        match self.source {
            SortedSource::Memory(sorted) => sorted.into_chunks(),
            SortedSource::Runs(merged) => merged.into_chunks(),
        }
    }
}

fn fault(error: impl std::error::Error + Send + Sync + 'static) -> KernelError {
    KernelError::new(error.to_string()).with_source(error)
}
