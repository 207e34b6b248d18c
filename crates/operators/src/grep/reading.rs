//! Reads a part of a file, and searches it, piece by piece.
//!
//! This module owns where the bytes of a part come from, and what becomes of a file that cannot be read: what the system
//! has in memory is copied by whoever searches it, in pieces that stay in its core's cache; everything else is read ahead,
//! by threads that wait for files. Lanes call it. It never waits for a disk, but for files that are short.

use crate::grep::decode::Decompressor;
use crate::grep::lines::{LineSearch, PartFound, PartSearch};
use crate::grep::units::GrepPart;
use brambling_storage::{Block, FileError, InputFile, ReadAhead, Scan};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// What a block has: it lies in a huge page, which a disk fills in one go, wherever in a page of its file it begins.
pub const BLOCK_BYTES: usize = (2 << 20) - (8 << 10);
/// What the system has in memory comes in pieces of so many bytes, which stay in a core's cache from their copy on.
const CACHED_BYTES: usize = 256 << 10;
/// So many pieces are searched before others have their turn.
const CACHED_PIECES: usize = 4;
/// Blocks that are read ahead, in each lane.
pub(super) const BLOCKS_AHEAD: usize = 4;
/// Shorter parts are read at once: handing them to another thread costs more than reading them.
const SMALL_BYTES: u64 = 256 << 10;
/// Behind the end of a part only the rest of a line is read.
const REST_BYTES: usize = 16 << 10;
/// A part that is being searched.
pub(super) struct PartReading {
    pub(super) search: PartSearch,
    file: Arc<InputFile>,
    bytes: Bytes,
    /// Up to where they are read.
    read_to: u64,
    /// What is read lies behind the part, and ends its last line.
    is_rest: bool,
    file_bytes: u64,
    decoder: Option<Decompressor>,
}

/// Where a part's bytes come from.
enum Bytes {
    /// As long as the system has them in memory.
    Cached(Range<u64>),
    Scanned(Scan),
    /// A short range, which is read at once.
    AtOnce(Range<u64>),
}

/// Reads parts, one after another, into the same memory.
pub(super) struct PartReader {
    pub(super) block_bytes: usize,
    /// Short parts and what the system has in memory are read to it.
    buffer: Vec<u8>,
    /// The blocks of earlier parts.
    free: Vec<Block>,
    /// Read since somebody took note of it.
    pub(super) read_bytes: u64,
}

impl PartReader {
    /// With blocks of so many bytes.
    pub(super) fn new(block_bytes: usize) -> PartReader {
        PartReader {
            block_bytes,
            buffer: Vec::new(),
            free: Vec::new(),
            read_bytes: 0,
        }
    }

    /// Opens a part; else what is to be told of it.
    pub(super) fn open(&mut self, part: &GrepPart) -> Result<PartReading, PartFound> {
        let is_whole = part.begin == 0 && part.end == part.file_bytes;
        let range = match part.coding.is_compressed() {
            // How long it is when decompressed is not known.
            true => 0..u64::MAX,
            false => part.begin..part.end,
        };
        let mut search = PartSearch::new(part.file, range.clone());
        let path = Path::new(OsStr::from_bytes(&part.path));
        let opened = InputFile::open(path).map_err(|error| told(&error));
        let opened = opened.and_then(|file| Ok((file, part.coding.decoder()?)));
        let (file, decoder) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                search.give_up(why);
                return Err(search.take());
            }
        };
        let reads = PartSearch::reads_from(&(part.begin..part.end))..part.end;
        let bytes = match is_whole && part.end <= SMALL_BYTES {
            true => Bytes::AtOnce(reads),
            false => Bytes::Cached(reads),
        };
        Ok(PartReading {
            search,
            file,
            bytes,
            read_to: part.end,
            is_rest: false,
            file_bytes: part.file_bytes,
            decoder,
        })
    }

    fn scan(&mut self, reading: &PartReading, range: Range<u64>) -> Scan {
        if reading.is_rest {
            // The line ends in the first block, nearly always.
            let ahead = ReadAhead {
                block_bytes: REST_BYTES,
                blocks: 1,
            };
            return Scan::new(&reading.file, range, ahead);
        }
        let blocks = range.end.saturating_sub(range.start);
        let blocks = blocks.div_ceil(self.block_bytes as u64);
        let ahead = ReadAhead {
            block_bytes: self.block_bytes,
            blocks: BLOCKS_AHEAD.min(blocks.max(1) as usize),
        };
        Scan::new(&reading.file, range, ahead).reusing(std::mem::take(&mut self.free))
    }

    /// Searches the next block; no when it has not come yet.
    pub(super) fn push_next(
        &mut self,
        reading: &mut PartReading,
        with: &mut LineSearch,
        waker: &Waker,
    ) -> bool {
        if let Bytes::Cached(range) = &reading.bytes {
            let range = range.clone();
            if self.push_cached(reading, with, range) {
                return true;
            }
        }
        let next = match &mut reading.bytes {
            Bytes::Cached(range) => {
                let range = range.clone();
                let scan = self.scan(reading, range);
                reading.bytes = Bytes::Scanned(scan);
                return self.push_next(reading, with, waker);
            }
            Bytes::Scanned(scan) => match scan.poll(waker) {
                Poll::Pending => return false,
                Poll::Ready(block) => block,
            },
            Bytes::AtOnce(range) => {
                let range = std::mem::replace(range, range.end..range.end);
                self.buffer.resize((range.end - range.start) as usize, 0);
                let read = match range.is_empty() {
                    true => Ok(()),
                    false => reading.file.read_at(range.start, &mut self.buffer),
                };
                match read {
                    Ok(()) => {
                        self.read_bytes += self.buffer.len() as u64;
                        push(reading, with, &self.buffer);
                    }
                    Err(error) => reading.search.give_up(told(&error)),
                }
                self.end(reading, with);
                return true;
            }
        };
        match next {
            Ok(Some(block)) => {
                self.read_bytes += block.len() as u64;
                push(reading, with, &block);
                if let Bytes::Scanned(scan) = &mut reading.bytes {
                    scan.give_back(block);
                }
            }
            Ok(None) => self.end(reading, with),
            Err(error) => reading.search.give_up(told(&error)),
        }
        true
    }

    /// The memory of its blocks is for the next part.
    pub(super) fn keep_blocks(&mut self, reading: &mut PartReading) {
        let over = Bytes::AtOnce(0..0);
        if let Bytes::Scanned(scan) = std::mem::replace(&mut reading.bytes, over) {
            let blocks = scan.into_blocks().into_iter();
            self.free
                .extend(blocks.filter(|block| block.capacity() >= self.block_bytes));
            self.free.truncate(BLOCKS_AHEAD + 1);
        }
    }

    /// Searches some of what the system has in memory; no when the next bytes are not there.
    fn push_cached(
        &mut self,
        reading: &mut PartReading,
        with: &mut LineSearch,
        mut range: Range<u64>,
    ) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let most = match reading.is_rest {
            true => REST_BYTES,
            false => CACHED_BYTES.min(self.block_bytes),
        };
        let mut pieces = 0;
        while pieces < CACHED_PIECES && !range.is_empty() && !reading.search.is_done() {
            let bytes = (range.end - range.start).min(most as u64) as usize;
            if buffer.len() < bytes {
                buffer.resize(bytes, 0);
            }
            let Some(bytes) = reading.file.read_cached(range.start, &mut buffer[..bytes]) else {
                break;
            };
            push(reading, with, &buffer[..bytes]);
            self.read_bytes += bytes as u64;
            range.start += bytes as u64;
            pieces += 1;
        }
        self.buffer = buffer;
        reading.bytes = Bytes::Cached(range.clone());
        if range.is_empty() {
            self.end(reading, with);
        }
        pieces > 0
    }

    /// All that was asked for has come.
    fn end(&mut self, reading: &mut PartReading, with: &mut LineSearch) {
        if reading.search.is_done() {
            return;
        }
        if reading.read_to < reading.file_bytes {
            // The last line that begins in the part ends behind it.
            let rest = reading.read_to..reading.file_bytes;
            reading.read_to = reading.file_bytes;
            self.keep_blocks(reading);
            reading.is_rest = true;
            reading.bytes = Bytes::Cached(rest);
            return;
        }
        self.keep_blocks(reading);
        let PartReading {
            search, decoder, ..
        } = reading;
        let ended = decoder.as_mut().map_or(Ok(()), |decoder| {
            decoder.finish(&mut |bytes| {
                search.push(with, bytes);
                !search.is_done()
            })
        });
        search.finish(with);
        if let Err(why) = ended {
            search.give_up(why);
        }
    }
}

fn push(reading: &mut PartReading, with: &mut LineSearch, block: &[u8]) {
    let PartReading {
        search, decoder, ..
    } = reading;
    let Some(decoder) = decoder else {
        return search.push(with, block);
    };
    let pushed = decoder.push(block, &mut |bytes| {
        search.push(with, bytes);
        !search.is_done()
    });
    if let Err(why) = pushed {
        search.finish(with);
        search.give_up(why);
    }
}

/// What is wrong with a file whose name is told beside it.
fn told(error: &FileError) -> String {
    let text = match error {
        FileError::Failed { why, .. } => why.clone(),
        error => error.to_string(),
    };
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
