//! Owns the way from blocks of files to whole records: a split is read in order, and records that
//! lie across blocks are put together. Sources of a sort drive it. It knows nothing of keys.

use super::plan::{SortInput, SortPlan, SortSplit};
use super::sizes::SortSizes;
use crate::sort::RecordFormat;
use brambling_program::KernelError;
use brambling_storage::{Block, FileError, InputFile, ReadAhead, Scan};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// So many blocks of a split are read ahead: one is worked on while the disk has the others.
pub(super) const BLOCKS_AHEAD: usize = 4;

/// A line that goes on beyond its split is read by pieces of so many bytes.
const TAIL_BYTES: u64 = 64 << 10;

/// Why a file's records cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "{path} has {now_bytes} bytes now, and had {then_bytes} when the sort began: do not write to an input while it is sorted"
    )]
    Changed {
        path: String,
        now_bytes: u64,
        then_bytes: u64,
    },
}

impl From<RecordError> for KernelError {
    fn from(error: RecordError) -> KernelError {
        KernelError::new(error.to_string()).with_source(error)
    }
}

/// Opens an input as it was when the sort began.
pub(super) fn open(input: &SortInput) -> Result<Arc<InputFile>, RecordError> {
    let file = InputFile::open(Path::new(&input.path))?;
    if file.bytes() != input.bytes {
        return Err(RecordError::Changed {
            path: input.path.display().to_string(),
            now_bytes: file.bytes(),
            then_bytes: input.bytes,
        });
    }
    Ok(file)
}

/// The records of a split, block by block.
#[derive(Debug)]
pub(super) struct RecordReader {
    is_lines: bool,
    block_bytes: usize,
    pieces: VecDeque<SortSplit>,
    open: Option<OpenPiece>,
    /// The beginning of a line whose end has not come.
    carry: Vec<u8>,
    pub(super) read_bytes: u64,
}

/// The piece that is being read.
#[derive(Debug)]
struct OpenPiece {
    file: Arc<InputFile>,
    scan: Scan,
    end: u64,
    /// The first bytes belong to a line of the piece before.
    skips: bool,
}

impl RecordReader {
    pub(super) fn new(plan: &SortPlan, sizes: &SortSizes, pieces: Vec<SortSplit>) -> RecordReader {
        RecordReader {
            is_lines: matches!(plan.format, RecordFormat::Lines { .. }),
            block_bytes: sizes.read_block_bytes,
            pieces: pieces.into(),
            open: None,
            carry: Vec::new(),
            read_bytes: 0,
        }
    }

    /// Gives the whole records of the next block to `take`, in order, as one or two slices. False
    /// when there are no more.
    pub(super) fn poll(
        &mut self,
        inputs: &[SortInput],
        waker: &Waker,
        mut take: impl FnMut(&[u8]),
    ) -> Poll<Result<bool, RecordError>> {
        let Some(piece) = &mut self.open else {
            return Poll::Ready(self.open_next(inputs));
        };
        match piece.scan.poll(waker) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Ready(Ok(Some(block))) => {
                self.read_bytes += block.len() as u64;
                self.cut(&block, &mut take);
                if let Some(piece) = &mut self.open {
                    piece.scan.give_back(block);
                }
                Poll::Ready(Ok(true))
            }
            Poll::Ready(Ok(None)) => {
                let ended = self.end_piece(&mut take);
                Poll::Ready(ended.map(|()| true))
            }
        }
    }

    fn open_next(&mut self, inputs: &[SortInput]) -> Result<bool, RecordError> {
        let Some(piece) = self.pieces.pop_front() else {
            return Ok(false);
        };
        let file = open(&inputs[piece.file as usize])?;
        // A line belongs to the split where it begins: whether one begins here, the byte before
        // tells.
        let skips = self.is_lines && piece.begin > 0;
        let begin = piece.begin - u64::from(skips);
        let ahead = ReadAhead {
            block_bytes: self.block_bytes,
            blocks: BLOCKS_AHEAD,
        };
        self.open = Some(OpenPiece {
            scan: Scan::new(&file, begin..piece.end, ahead),
            file,
            end: piece.end,
            skips,
        });
        Ok(true)
    }

    fn cut(&mut self, block: &Block, take: &mut impl FnMut(&[u8])) {
        if !self.is_lines {
            return take(block);
        }
        let mut bytes: &[u8] = block;
        let piece = self.open.as_mut().expect("its block has come");
        if piece.skips {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                return;
            };
            piece.skips = false;
            bytes = &bytes[end + 1..];
        }
        if !self.carry.is_empty() {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                return self.carry.extend_from_slice(bytes);
            };
            self.carry.extend_from_slice(&bytes[..=end]);
            take(&self.carry);
            self.carry.clear();
            bytes = &bytes[end + 1..];
        }
        match memchr::memrchr(b'\n', bytes) {
            Some(end) => {
                take(&bytes[..=end]);
                self.carry.extend_from_slice(&bytes[end + 1..]);
            }
            None => self.carry.extend_from_slice(bytes),
        }
    }

    /// The piece has been read: a line that goes on behind its end is read to its own end, and the
    /// last line of a file ends even where the file does not say so.
    fn end_piece(&mut self, take: &mut impl FnMut(&[u8])) -> Result<(), RecordError> {
        let Some(piece) = self.open.take() else {
            return Ok(());
        };
        // A piece within one line has no line of its own.
        if self.carry.is_empty() || piece.skips {
            self.carry.clear();
            return Ok(());
        }
        let mut at = piece.end;
        let mut tail = Vec::new();
        while at < piece.file.bytes() {
            let bytes = TAIL_BYTES.min(piece.file.bytes() - at);
            tail.resize(bytes as usize, 0);
            piece.file.read_at(at, &mut tail)?;
            self.read_bytes += bytes;
            at += bytes;
            if let Some(end) = memchr::memchr(b'\n', &tail) {
                self.carry.extend_from_slice(&tail[..end]);
                break;
            }
            self.carry.extend_from_slice(&tail);
        }
        self.carry.push(b'\n');
        take(&self.carry);
        self.carry.clear();
        Ok(())
    }
}
