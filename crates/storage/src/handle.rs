//! An open file, read and written through the system's page cache or past it.
//!
//! Input and output files share it. It decides for each block which way it goes: what the cache has
//! is read from there, everything else goes past it, and a file system that does not know direct
//! I/O is never asked again.

use crate::block::{Block, PAGE};
use crate::cached::is_cached;
use crate::counts::FileCounters;
use crate::requests::FileError;
use brambling_memory::held;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Below this, the cache's own read-ahead and write-behind are quicker than waiting for each request.
const DIRECT_BYTES_MIN: usize = 64 << 10;

/// A file with its name, and a second descriptor for direct I/O.
#[derive(Debug)]
pub(crate) struct FileHandle {
    path: PathBuf,
    file: File,
    is_written: bool,
    direct: OnceLock<Option<File>>,
    /// The file system took the flag and refuses the I/O.
    is_refused: AtomicBool,
}

impl FileHandle {
    pub(crate) fn new(path: &Path, file: File, is_written: bool) -> FileHandle {
        FileHandle {
            path: path.to_owned(),
            file,
            is_written,
            direct: OnceLock::new(),
            is_refused: AtomicBool::new(false),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The descriptor past the cache, if there is one.
    fn direct(&self) -> Option<&File> {
        // Relaxed: whoever does not see it yet is refused as well.
        if self.is_refused.load(Ordering::Relaxed) {
            return None;
        }
        let made = self.direct.get_or_init(|| {
            // Through the descriptor: the file may have no name, or another one by now.
            let mut options = OpenOptions::new();
            options.read(true).write(self.is_written);
            options.custom_flags(libc::O_DIRECT | libc::O_CLOEXEC);
            let opened = options.open(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
            opened.ok()
        });
        made.as_ref()
    }

    /// Reads a range into a block that has room for the pages in which it lies; whether the file has it.
    pub(crate) fn read(
        &self,
        at: u64,
        bytes: usize,
        block: &mut Block,
        counters: &FileCounters,
    ) -> Result<bool, FileError> {
        held::forbid("a file is read");
        let phase = at % PAGE as u64;
        let start = at - phase;
        block.restart(phase as usize);
        let direct = self.read_direct(start, phase as usize + bytes, block);
        let direct = direct.map_err(|error| self.failed("reading", at, bytes, &error))?;
        let mut got = direct.saturating_sub(phase as usize).min(bytes);
        let direct_bytes = got;
        while got < bytes {
            match self
                .file
                .read_at(&mut block.spare()[got..bytes], at + got as u64)
            {
                Ok(0) => return Ok(false),
                Ok(more) => got += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("reading", at, bytes, &error)),
            }
        }
        block.set_len(bytes);
        counters.add_read(bytes, direct_bytes);
        Ok(true)
    }

    /// Reads what it can of the pages past the cache; how many bytes that are.
    fn read_direct(&self, start: u64, bytes: usize, block: &mut Block) -> io::Result<usize> {
        let bytes = bytes.next_multiple_of(PAGE);
        if bytes < DIRECT_BYTES_MIN || is_cached(&self.file, start, bytes) {
            return Ok(0);
        }
        let Some(direct) = self.direct() else {
            return Ok(0);
        };
        loop {
            match direct.read_at(block.pages(bytes), start) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    self.is_refused.store(true, Ordering::Relaxed);
                    return Ok(0);
                }
                read => return read,
            }
        }
    }

    /// Writes a block to a place. Pages that it fills go past the cache if they lie in memory as they
    /// do in the file; its two ends, whose pages others may share, go through it.
    pub(crate) fn write(
        &self,
        at: u64,
        block: &Block,
        counters: &FileCounters,
    ) -> Result<(), FileError> {
        held::forbid("a file is written");
        let page = PAGE as u64;
        let end = at + block.len() as u64;
        let (first, last) = (at.next_multiple_of(page), end - end % page);
        let is_in_phase = block.phase() as u64 == at % page;
        let mut direct_bytes = 0;
        let written = if is_in_phase && last >= first + DIRECT_BYTES_MIN as u64 {
            let (head, rest) = block.split_at((first - at) as usize);
            let (pages, tail) = rest.split_at((last - first) as usize);
            self.write_direct(first, pages).and_then(|direct| {
                direct_bytes = direct;
                self.file.write_all_at(head, at)?;
                let behind = &pages[direct..];
                self.file.write_all_at(behind, first + direct as u64)?;
                self.file.write_all_at(tail, last)
            })
        } else {
            self.file.write_all_at(block, at)
        };
        written.map_err(|error| self.failed("writing", at, block.len(), &error))?;
        counters.add_written(block.len(), direct_bytes);
        Ok(())
    }

    /// Writes what it can of some pages past the cache; how many bytes that are.
    fn write_direct(&self, at: u64, pages: &[u8]) -> io::Result<usize> {
        let Some(direct) = self.direct() else {
            return Ok(0);
        };
        let mut done = 0;
        while done < pages.len() && done.is_multiple_of(PAGE) {
            match direct.write_at(&pages[done..], at + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    self.is_refused.store(true, Ordering::Relaxed);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    pub(crate) fn failed(
        &self,
        doing: &str,
        at: u64,
        bytes: usize,
        error: &io::Error,
    ) -> FileError {
        let path = self.path.display();
        let what = format!("{doing} {bytes} bytes of {path} from byte {at} on");
        FileError::of(what, error)
    }
}
