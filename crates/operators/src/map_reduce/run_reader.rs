//! Owns the reading of a run: pairs that were spilled, in the order of their keys.
//!
//! The merge asks it for one pair after the other. It never writes.

use super::pairs::{self, DamagedPairs};
use brambling_program::KernelError;
use brambling_storage::{InputFile, ReadAhead, Scan};
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// What a run of many is read by, so that many runs take little memory.
const AHEAD: ReadAhead = ReadAhead {
    block_bytes: 128 << 10,
    blocks: 2,
};

/// What a reader may hold in memory, beside a key that is longer than a block.
pub const READER_BYTES: u64 = ((AHEAD.blocks + 2) * AHEAD.block_bytes) as u64;

/// A run that is read.
pub struct RunReader {
    scan: Scan,
    bytes: Vec<u8>,
    /// Where the next pair begins in the bytes.
    at: usize,
    /// The pair at hand: where its key lies, and its value.
    pair: Option<(Range<usize>, u64)>,
    ended: bool,
    /// Bytes that have come since they were last asked for.
    news: u64,
}

impl RunReader {
    /// Begins a run at its first pair.
    pub fn new(file: &Arc<InputFile>, range: Range<u64>) -> RunReader {
        RunReader {
            scan: Scan::new(file, range, AHEAD),
            bytes: Vec::new(),
            at: 0,
            pair: None,
            ended: false,
            news: 0,
        }
    }

    /// Ready when a pair is at hand, or there is none any more.
    pub fn poll_pair(&mut self, waker: &Waker) -> Poll<Result<(), KernelError>> {
        while self.pair.is_none() && !self.ended {
            if let Some((key, value, len)) = pairs::first(&self.bytes[self.at..]) {
                let end = self.at + len;
                self.pair = Some((end - key.len()..end, value));
                self.at = end;
                break;
            }
            match self.scan.poll(waker) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(super::failed(error))),
                Poll::Ready(Ok(Some(block))) => {
                    self.bytes.drain(..self.at);
                    self.at = 0;
                    self.bytes.extend_from_slice(&block);
                    self.news += block.len() as u64;
                    self.scan.give_back(block);
                }
                Poll::Ready(Ok(None)) if self.at < self.bytes.len() => {
                    let error = KernelError::new(DamagedPairs.to_string());
                    return Poll::Ready(Err(error.with_source(DamagedPairs)));
                }
                Poll::Ready(Ok(None)) => self.ended = true,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// How many bytes have come since the last call.
    pub fn news(&mut self) -> u64 {
        std::mem::take(&mut self.news)
    }

    /// The pair at hand.
    pub fn pair(&self) -> Option<(&[u8], u64)> {
        let (key, value) = self.pair.as_ref()?;
        Some((&self.bytes[key.clone()], *value))
    }

    /// Lets go of the pair at hand.
    pub fn pass(&mut self) {
        self.pair = None;
    }
}
