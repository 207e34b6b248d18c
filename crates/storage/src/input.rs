//! Files that jobs read by ranges.
//!
//! Drivers open them, look at their size and their head, and make a [`crate::Scan`] of each range.
//! An input is never written, and its name is never looked up again.

use crate::block::Block;
use crate::counts::FileCounters;
use crate::handle::FileHandle;
use crate::requests::FileError;
use rustix::io::ReadWriteFlags;
use std::fs::{Metadata, OpenOptions};
use std::io::{self, ErrorKind, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// What tells a file, as it was at one moment, from others and from itself after a change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprint {
    /// The device on which it lies.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// When it was changed, in nanoseconds since 1970.
    pub changed_ns: i128,
}

impl Fingerprint {
    fn of(found: &Metadata) -> Fingerprint {
        Fingerprint {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            changed_ns: i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec()),
        }
    }
}

/// A file that is read by ranges.
#[derive(Debug)]
pub struct InputFile {
    handle: Arc<FileHandle>,
    fingerprint: Fingerprint,
}

impl InputFile {
    /// Opens a file that is there. It waits for the disk.
    ///
    /// # Errors
    /// When it cannot be read, or is something without ranges: a directory, a pipe, a device.
    pub fn open(path: &Path) -> Result<Arc<InputFile>, FileError> {
        let failed =
            |error: &io::Error| FileError::of(format!("opening {}", path.display()), error);
        // Whoever opens a pipe waits for its writer, unless told not to.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open(path).map_err(|error| failed(&error))?;
        let found = file.metadata().map_err(|error| failed(&error))?;
        if found.is_dir() {
            return Err(failed(&io::Error::from_raw_os_error(libc::EISDIR)));
        }
        if !found.is_file() {
            return Err(FileError::NotAFile {
                path: path.to_owned(),
            });
        }
        let handle = Arc::new(FileHandle::new(path, file, false));
        Ok(Arc::new(InputFile {
            handle,
            fingerprint: Fingerprint::of(&found),
        }))
    }

    /// What somebody writes, as long as it is now.
    pub(crate) fn of_written(handle: Arc<FileHandle>) -> Result<Arc<InputFile>, FileError> {
        let found = handle.file().metadata();
        let found = found.map_err(|error| {
            FileError::of(format!("looking at {}", handle.path().display()), &error)
        })?;
        let fingerprint = Fingerprint::of(&found);
        Ok(Arc::new(InputFile {
            handle,
            fingerprint,
        }))
    }

    /// How many bytes it had when it was opened.
    pub fn bytes(&self) -> u64 {
        self.fingerprint.bytes
    }

    /// Its name when it was opened.
    pub fn path(&self) -> &Path {
        self.handle.path()
    }

    /// What it was when it was opened.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Reads as many bytes as the buffer is long, for samples and heads. It waits for the disk.
    ///
    /// # Errors
    /// When they cannot be read, or the file has become shorter.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), FileError> {
        brambling_memory::held::forbid("a file is read");
        match self.handle.file().read_exact_at(into, at) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(self.shrunk(at + into.len() as u64))
            }
            Err(error) => Err(self.handle.failed("reading", at, into.len(), &error)),
        }
    }

    /// Reads what the system has in memory of so many bytes, as many as there are from the beginning
    /// on, without waiting for a disk: into memory that stays in a core's cache this is as quick as
    /// the bytes themselves. None when the first of them are not there: a [`crate::Scan`] reads
    /// them, or says what is wrong.
    pub fn read_cached(&self, at: u64, into: &mut [u8]) -> Option<usize> {
        let mut into = [IoSliceMut::new(into)];
        let file = self.handle.file();
        let read = rustix::io::preadv2(file, &mut into, at, ReadWriteFlags::NOWAIT);
        read.ok().filter(|bytes| *bytes > 0)
    }

    /// Whether a name leads to this very file, by whatever links.
    ///
    /// # Errors
    /// When the system does not say where the name leads to. A name that leads nowhere is not one.
    pub fn is_same_as(&self, path: &Path) -> Result<bool, FileError> {
        match std::fs::metadata(path) {
            Ok(found) => {
                let own = &self.fingerprint;
                Ok((found.dev(), found.ino()) == (own.device, own.inode))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => {
                let what = format!("looking at {}", path.display());
                Err(FileError::of(what, &error))
            }
        }
    }

    /// Reads a range into a block.
    pub(crate) fn read_block(
        &self,
        at: u64,
        bytes: usize,
        block: &mut Block,
        counters: &FileCounters,
    ) -> Result<(), FileError> {
        match self.handle.read(at, bytes, block, counters) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.shrunk(at + bytes as u64)),
            Err(error) => Err(error),
        }
    }

    /// Bytes up to there were told to be in it, perhaps by somebody who opened it earlier.
    fn shrunk(&self, told_bytes: u64) -> FileError {
        let found = self.handle.file().metadata();
        FileError::Shrunk {
            path: self.path().to_owned(),
            known_bytes: told_bytes.max(self.bytes()),
            found_bytes: found.map_or(0, |found| found.len()),
        }
    }
}

/// Divides a file of so many bytes into ranges that begin at multiples of a unit, each of about
/// `split_bytes`, at least one unit. The last one ends with the file.
pub fn read_splits(bytes: u64, unit: u64, split_bytes: u64) -> Vec<Range<u64>> {
    let unit = unit.max(1);
    let step = (split_bytes / unit).max(1).saturating_mul(unit);
    let mut splits = Vec::new();
    let mut start = 0;
    while start < bytes {
        let end = bytes.min(start.saturating_add(step));
        splits.push(start..end);
        start = end;
    }
    splits
}
