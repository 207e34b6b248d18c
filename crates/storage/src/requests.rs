//! What is asked of files.

use crate::pool::Request;
use brambling_memory::{OutOfMemory, Spill, SpillError, Spilled};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a file was not read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system refuses.
    #[error("{what} failed: {why}")]
    Failed {
        /// What was to be done to which file.
        what: String,
        /// What the system says.
        why: String,
        /// Which kind of refusal it is.
        kind: io::ErrorKind,
    },
    /// It is shorter than somebody thinks.
    #[error(
        "{what} failed: the file ends after {found_bytes} bytes; was it cut, or is it still being written?"
    )]
    Short {
        /// What was to be done to which file.
        what: String,
        /// How long it is.
        found_bytes: u64,
    },
    /// It had more bytes when it was opened.
    #[error(
        "{} has become shorter while it was read: it has {found_bytes} bytes where {known_bytes} were; \
         let nobody write to it meanwhile, and begin again", .path.display()
    )]
    Shrunk {
        /// The file.
        path: PathBuf,
        /// So many bytes it had, or somebody told of.
        known_bytes: u64,
        /// So many it has.
        found_bytes: u64,
    },
    /// It is something without ranges.
    #[error(
        "{} is not a plain file but a pipe, a device or a socket, of which no ranges can be read or \
         written; name a file", .path.display()
    )]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// It was not begun.
    #[error("{what} was cancelled")]
    Cancelled {
        /// What was to be done to which file.
        what: String,
    },
    /// A fault of ours.
    #[error("{what} ended by a fault of Brambling's own, which its log tells")]
    Panicked {
        /// What was to be done to which file.
        what: String,
    },
    /// What was spilled, or was to be.
    #[error(transparent)]
    Spill(#[from] SpillError),
}

impl FileError {
    pub(crate) fn of(what: String, error: &io::Error) -> FileError {
        FileError::Failed {
            what,
            why: format!("{error}{}", way_out(error)),
            kind: error.kind(),
        }
    }
}

/// What somebody can do who reads of an error, as the end of its sentence.
fn way_out(error: &io::Error) -> &'static str {
    if let Some(libc::EIO) = error.raw_os_error() {
        return "; the system's log (`dmesg`) tells what its disk or its connection says";
    }
    match error.kind() {
        io::ErrorKind::StorageFull => "; make room on that disk, or name a place on another one",
        io::ErrorKind::QuotaExceeded => {
            "; delete something there, have the quota raised, or name a place on another disk"
        }
        io::ErrorKind::PermissionDenied => "; ask for the right, or name another place",
        io::ErrorKind::ReadOnlyFilesystem => "; name a place on a disk that can be written",
        io::ErrorKind::NotFound => "; is the name right, with each directory in it?",
        io::ErrorKind::IsADirectory => "; name a file in it",
        io::ErrorKind::NotADirectory => "; is each part of the name but the last a directory?",
        io::ErrorKind::AlreadyExists => "; delete it, or name another one",
        io::ErrorKind::FileTooLarge => "; its file system, or `ulimit -f`, has no larger ones",
        _ if error.raw_os_error() == Some(libc::EMFILE) => "; too many are open: raise `ulimit -n`",
        _ => "",
    }
}

/// A file that knows its name.
#[derive(Debug)]
pub struct NamedFile {
    path: PathBuf,
    file: File,
}

impl NamedFile {
    /// One that is there, to be read. It waits for the disk.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn open(path: &Path) -> Result<NamedFile, FileError> {
        NamedFile::with(path, OpenOptions::new().read(true))
    }

    /// One that is not there, to be written and read. It waits for the disk.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<NamedFile, FileError> {
        NamedFile::with(
            path,
            OpenOptions::new().read(true).write(true).create_new(true),
        )
    }

    pub(crate) fn with(path: &Path, options: &OpenOptions) -> Result<NamedFile, FileError> {
        match options.open(path) {
            Ok(file) => Ok(NamedFile {
                path: path.to_owned(),
                file,
            }),
            Err(error) => Err(FileError::of(format!("opening {}", path.display()), &error)),
        }
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads a range of a file: as many bytes as the buffer is long.
#[derive(Debug)]
pub struct FileRead {
    /// The file.
    pub file: Arc<NamedFile>,
    /// Where the range begins.
    pub start: u64,
    /// What is overwritten.
    pub into: Vec<u8>,
}

impl Request for FileRead {
    type Done = Vec<u8>;

    fn run(mut self) -> Result<Vec<u8>, FileError> {
        match self.file.file.read_exact_at(&mut self.into, self.start) {
            Ok(()) => Ok(self.into),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let found = self.file.file.metadata();
                Err(FileError::Short {
                    what: self.name(),
                    found_bytes: found.map_or(0, |found| found.len()),
                })
            }
            Err(error) => Err(FileError::of(self.name(), &error)),
        }
    }

    fn name(&self) -> String {
        let (path, bytes) = (self.file.path.display(), self.into.len());
        format!(
            "reading {bytes} bytes of {path} from byte {} on",
            self.start
        )
    }
}

/// Writes bytes to a file at a place.
#[derive(Debug)]
pub struct FileWrite {
    /// The file.
    pub file: Arc<NamedFile>,
    /// Where the first byte goes.
    pub start: u64,
    /// They are given back.
    pub bytes: Vec<u8>,
}

impl Request for FileWrite {
    type Done = Vec<u8>;

    fn run(self) -> Result<Vec<u8>, FileError> {
        match self.file.file.write_all_at(&self.bytes, self.start) {
            Ok(()) => Ok(self.bytes),
            Err(error) => Err(FileError::of(self.name(), &error)),
        }
    }

    fn name(&self) -> String {
        let (path, bytes) = (self.file.path.display(), self.bytes.len());
        format!("writing {bytes} bytes to {path}")
    }
}

/// Has a file's bytes on its disk.
#[derive(Debug)]
pub struct Flush(pub Arc<NamedFile>);

impl Request for Flush {
    type Done = ();

    fn run(self) -> Result<(), FileError> {
        let synced = self.0.file.sync_all();
        synced.map_err(|error| FileError::of(self.name(), &error))
    }

    fn name(&self) -> String {
        format!("flushing {}", self.0.path.display())
    }
}

/// Takes a file's name away: its room is free when nobody has it open.
#[derive(Debug)]
pub struct Delete(pub PathBuf);

impl Request for Delete {
    type Done = ();

    fn run(self) -> Result<(), FileError> {
        let removed = std::fs::remove_file(&self.0);
        removed.map_err(|error| FileError::of(self.name(), &error))
    }

    fn name(&self) -> String {
        format!("deleting {}", self.0.display())
    }
}

/// Spills bytes, which lie in parts.
#[derive(Debug)]
pub struct Put<B> {
    /// Where to.
    pub to: Arc<dyn Spill>,
    /// The bytes.
    pub parts: Vec<B>,
    /// What there was no memory for.
    pub refused: OutOfMemory,
}

impl<B: AsRef<[u8]> + Send + 'static> Request for Put<B> {
    type Done = Arc<dyn Spilled>;

    fn run(self) -> Result<Arc<dyn Spilled>, FileError> {
        let parts: Vec<&[u8]> = self.parts.iter().map(AsRef::as_ref).collect();
        Ok(self.to.put(&parts, &self.refused)?)
    }

    fn name(&self) -> String {
        let bytes: usize = self.parts.iter().map(|part| part.as_ref().len()).sum();
        format!("spilling {bytes} bytes")
    }
}

/// Reads a range of what was spilled: as many bytes as the buffer is long.
#[derive(Debug)]
pub struct Recall {
    /// What was spilled.
    pub spilled: Arc<dyn Spilled>,
    /// Where the range begins.
    pub start: u64,
    /// What is overwritten.
    pub into: Vec<u8>,
}

impl Request for Recall {
    type Done = Vec<u8>;

    fn run(mut self) -> Result<Vec<u8>, FileError> {
        self.spilled.read_at(self.start, &mut self.into)?;
        Ok(self.into)
    }

    fn name(&self) -> String {
        format!("reading {} spilled bytes", self.into.len())
    }
}
