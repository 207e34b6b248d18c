//! Owns the reading of runs while they are merged: each run is read ahead, and what is left in
//! memory is the last run. The writing of a part drives it. The merge itself is
//! [`Merge`](crate::sort::Merge)'s.

use super::plan::SortPlan;
use super::sizes::SortSizes;
use crate::sort::{Merge, MergeStep, SortedRecords};
use brambling_storage::{Block, FileError, InputFile, ReadAhead, Scan};
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// So many blocks of a run are read ahead.
const BLOCKS_AHEAD: usize = 2;

/// What is merged out of memory comes in pieces of so many bytes, which stay in a core's cache.
const PIECE_BYTES: usize = 64 << 10;

/// Runs on disk, and a last one in memory, on their way into one.
pub(super) struct MergedRuns {
    merge: Merge<RunBlock>,
    scans: Vec<Scan>,
    last: SortedRecords,
    /// Bytes that the last call had filled when a run had not come.
    filled: usize,
    /// Bytes of runs that have come.
    read_bytes: u64,
}

/// A piece of a run.
pub(super) enum RunBlock {
    Disk(Block),
    Memory(Vec<u8>),
}

impl Deref for RunBlock {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            RunBlock::Disk(block) => block,
            RunBlock::Memory(piece) => piece,
        }
    }
}

impl MergedRuns {
    pub(super) fn new(
        plan: &SortPlan,
        sizes: &SortSizes,
        runs: &[Arc<InputFile>],
        last: SortedRecords,
    ) -> MergedRuns {
        let ahead = ReadAhead {
            block_bytes: sizes.merge_block_bytes(runs.len(), BLOCKS_AHEAD),
            blocks: BLOCKS_AHEAD,
        };
        let scan = |run: &Arc<InputFile>| Scan::new(run, 0..run.bytes(), ahead);
        let merge = match plan.is_unstable {
            true => Merge::unstable,
            false => Merge::new,
        };
        MergedRuns {
            merge: merge(plan.format, runs.len() + 1),
            scans: runs.iter().map(scan).collect(),
            last,
            filled: 0,
            read_bytes: 0,
        }
    }

    /// The memory of the chunks that were the last run.
    pub(super) fn into_chunks(self) -> Vec<Vec<u8>> {
        self.last.into_chunks()
    }

    /// Bytes of runs that have come from the disk.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Fills the room with the next records, as far as there are any, once all that it takes has
    /// come: after pending it is called with the same room again.
    pub(super) fn poll_fill(
        &mut self,
        out: &mut [u8],
        waker: &Waker,
    ) -> Poll<Result<usize, FileError>> {
        loop {
            let (filled, step) = self.merge.fill(&mut out[self.filled..]);
            self.filled += filled;
            match step {
                MergeStep::Full | MergeStep::Done => {
                    return Poll::Ready(Ok(std::mem::take(&mut self.filled)));
                }
                MergeStep::Needs(run) => match self.next_block(run, waker) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Ready(Ok(Some(block))) => {
                        if let Some(RunBlock::Disk(spent)) = self.merge.give(run, block) {
                            self.scans[run].give_back(spent);
                        }
                    }
                    Poll::Ready(Ok(None)) => self.merge.end(run),
                },
            }
        }
    }

    fn next_block(
        &mut self,
        run: usize,
        waker: &Waker,
    ) -> Poll<Result<Option<RunBlock>, FileError>> {
        if let Some(scan) = self.scans.get_mut(run) {
            let polled = scan.poll(waker);
            if let Poll::Ready(Ok(Some(block))) = &polled {
                self.read_bytes += block.len() as u64;
            }
            return polled.map_ok(|block| block.map(RunBlock::Disk));
        }
        let mut piece = vec![0; PIECE_BYTES];
        let filled = self.last.fill(&mut piece);
        piece.truncate(filled);
        Poll::Ready(Ok((filled > 0).then_some(RunBlock::Memory(piece))))
    }
}
