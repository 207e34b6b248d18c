//! Owns the backup write: what a source sends is also written to a file without a name, in order,
//! before the source says that it has sent all. (Krevat et al., Table 3, the rows with backup.)

use super::plan::SortPlan;
use super::sizes::SortSizes;
use brambling_program::KernelError;
use brambling_storage::{Block, BlockWriter, OutputFile};
use std::task::{Poll, Waker};

/// So many blocks are written at once.
const BLOCKS_BEHIND: usize = 4;

/// What a source sends, on its way to the disk.
pub(super) struct Backup {
    writer: BlockWriter,
    block: Block,
    block_bytes: usize,
    at: u64,
}

impl Backup {
    pub(super) fn begin(plan: &SortPlan, sizes: &SortSizes) -> Result<Backup, KernelError> {
        let file = OutputFile::unnamed(&plan.tmp).map_err(fault)?;
        let mut writer = BlockWriter::new(&file, BLOCKS_BEHIND);
        let block_bytes = sizes.write_block_bytes;
        let block = writer.take_block(block_bytes);
        Ok(Backup {
            writer,
            block,
            block_bytes,
            at: 0,
        })
    }

    /// Takes bytes. What goes wrong is told at the end.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let some = bytes.len().min(self.block_bytes - self.block.len());
            self.block.extend_from_slice(&bytes[..some]);
            bytes = &bytes[some..];
            if self.block.len() == self.block_bytes {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        let next = self.writer.take_block(self.block_bytes);
        let full = std::mem::replace(&mut self.block, next);
        let bytes = full.len() as u64;
        self.writer.write(self.at, full);
        self.at += bytes;
    }

    /// Bytes that it has been given.
    pub(super) fn bytes(&self) -> u64 {
        self.at + self.block.len() as u64
    }

    /// Ready when all of it is written.
    pub(super) fn poll_written(&mut self, waker: &Waker) -> Poll<Result<(), KernelError>> {
        if !self.block.is_empty() {
            self.flush();
        }
        self.writer.poll_written(waker).map_err(fault)
    }

    /// Bytes that have gone to the disk.
    pub(super) fn written_bytes(&self) -> u64 {
        self.at
    }

    /// Ready when another block may come.
    pub(super) fn poll_room(&mut self, waker: &Waker) -> Poll<Result<(), KernelError>> {
        self.writer.poll_room(waker).map_err(fault)
    }
}

fn fault(error: brambling_storage::FileError) -> KernelError {
    KernelError::new(error.to_string()).with_source(error)
}
