//! A directory of parts that appears at once.
//!
//! Workers of one job share it: each begins it under the same key, publishes its own parts, and
//! when all have ended any of them commits it. Until then it stands under a hidden name.

use crate::hidden;
use crate::output::{OutputFile, sync_directory};
use crate::requests::FileError;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory that will appear.
#[derive(Debug)]
pub struct Staging {
    out: PathBuf,
    hidden: PathBuf,
    /// It is the same directory when it has another name. A shared lock on it keeps it from being
    /// taken for left.
    directory: File,
}

impl Staging {
    /// Makes the hidden directory beside `out`, or joins those of the same job, who name the same key.
    /// It waits for the disk.
    ///
    /// # Errors
    /// When it cannot be made, or `out` stands there already and is more than an empty directory.
    ///
    /// # Panics
    /// When the key has other characters than letters, digits and hyphens.
    pub fn begin(out: &Path, key: &str) -> Result<Staging, FileError> {
        let is_plain = |it: u8| it.is_ascii_alphanumeric() || it == b'-';
        assert!(key.bytes().all(is_plain), "a key is part of a file's name");
        let failed =
            |error: &io::Error| FileError::of(format!("creating {}", out.display()), error);
        if out.file_name().is_none() {
            return Err(failed(&io::Error::from_raw_os_error(libc::EISDIR)));
        }
        if !is_free(out).map_err(|error| failed(&error))? {
            return Err(failed(&io::Error::from_raw_os_error(libc::EEXIST)));
        }
        let hidden = hidden::named(out, key);
        let directory = begin_at(&hidden).map_err(|error| failed(&error))?;
        Ok(Staging {
            out: out.to_owned(),
            hidden,
            directory,
        })
    }

    /// A part of the directory, to be published there.
    ///
    /// # Errors
    /// As [`OutputFile::create`].
    pub fn part(&self, number: u32, bytes: Option<u64>) -> Result<Arc<OutputFile>, FileError> {
        let path = self.hidden.join(format!("part-{number:05}"));
        OutputFile::create(&path, bytes)
    }

    /// A copy of a part of another worker, to be published in a directory of its own below this one: copies of one number
    /// lie together, and none of them among the parts.
    ///
    /// # Errors
    /// As [`OutputFile::create`], and when the directory cannot be made.
    pub fn copy(&self, copy: u32, number: u32) -> Result<Arc<OutputFile>, FileError> {
        let directory = self.hidden.join(format!("copies-{copy}"));
        match std::fs::create_dir(&directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                let what = format!("creating {}", directory.display());
                return Err(FileError::of(what, &error));
            }
            _ => {}
        }
        OutputFile::create(&directory.join(format!("part-{number:05}")), None)
    }

    /// Gives it its name, with all parts that have been published. It waits for the disk. When another
    /// worker of the job has done so, it does nothing.
    ///
    /// # Errors
    /// When it cannot have its name: something else stands there by now.
    pub fn commit(&self) -> Result<(), FileError> {
        let what = || format!("publishing {}", self.out.display());
        let failed = |error: io::Error| FileError::of(what(), &error);
        self.directory.sync_all().map_err(failed)?;
        if let Err(error) = std::fs::rename(&self.hidden, &self.out)
            && !self.is_committed()
        {
            return Err(failed(error));
        }
        sync_directory(hidden::directory_of(&self.out)).map_err(failed)
    }

    /// Whether it stands under its name.
    fn is_committed(&self) -> bool {
        let (own, found) = (self.directory.metadata(), std::fs::metadata(&self.out));
        match (own, found) {
            (Ok(own), Ok(found)) => (own.dev(), own.ino()) == (found.dev(), found.ino()),
            _ => false,
        }
    }

    /// Whether a part of this number has been published.
    pub fn has_part(&self, number: u32) -> bool {
        let part = format!("part-{number:05}");
        let at = match self.is_committed() {
            true => self.out.join(part),
            false => self.hidden.join(part),
        };
        at.is_file()
    }

    /// As [`Staging::abandon`], unless somebody else has it, who may still want it.
    ///
    /// # Errors
    /// As [`Staging::abandon`].
    pub fn abandon_if_last(&self) -> Result<(), FileError> {
        // Whoever has it has a shared lock on it. The one of this handle becomes an exclusive one.
        match rustix::fs::flock(&self.directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(()),
            _ => self.abandon(),
        }
    }

    /// Removes it, with all parts. When another worker has done so, or it has its name, it does nothing.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn abandon(&self) -> Result<(), FileError> {
        match std::fs::remove_dir_all(&self.hidden) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let what = format!("removing {}", self.hidden.display());
                Err(FileError::of(what, &error))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a directory may be put under a name: nothing stands there, or an empty one.
fn is_free(out: &Path) -> io::Result<bool> {
    match std::fs::read_dir(out) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(std::fs::symlink_metadata(out).is_err())
        }
        Err(error) if error.kind() == ErrorKind::NotADirectory && out.exists() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes a directory or joins it, and locks it against being taken for left.
fn begin_at(hidden: &Path) -> io::Result<File> {
    loop {
        match std::fs::create_dir(hidden) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let directory = match File::open(hidden) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened?,
        };
        // Where there are no locks, nobody takes it for left either.
        let _ = rustix::fs::flock(&directory, FlockOperation::LockShared);
        // Somebody who looked between its creation and its lock took it away.
        match (directory.metadata(), std::fs::metadata(hidden)) {
            (Ok(own), Ok(found)) if own.ino() == found.ino() => return Ok(directory),
            (Err(error), _) => return Err(error),
            _ => {}
        }
    }
}
