//! Files that jobs write, which have no name until they are whole.
//!
//! Drivers and sinks create them, writers fill them. What lies in them is nobody's business here.
//!
//! # States of an output
//! ```text
//! nameless, or hidden ──► whole on its disk ──► published
//!         └─── dropped: gone ───┘
//! ```
//!
//! # Rules
//! * What stands under the final name is an old file or a whole new one, at every moment and after
//!   every crash.
//! * A file to which a block has not come, or which its disk has refused once, is never published:
//!   the system tells of a lost byte only once.
//! * Where the file system has files without names, a process that dies leaves nothing. Elsewhere it
//!   leaves a hidden file, which [`crate::remove_leftovers`] finds by the lock that died with it.

use crate::block::Block;
use crate::counts::FileCounters;
use crate::handle::FileHandle;
use crate::hidden;
use crate::input::InputFile;
use crate::requests::FileError;
use brambling_memory::mutants;
use rustix::fs::{Access, AtFlags, CWD, FallocateFlags, FlockOperation};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

mod publishing;

pub use publishing::Publishing;

/// A file that is written at places by many.
#[derive(Debug)]
pub struct OutputFile {
    handle: Arc<FileHandle>,
    /// None: it is never published.
    target: Option<Target>,
    /// Why it is not whole, and will not be.
    spoiled: OnceLock<FileError>,
}

#[derive(Debug)]
struct Target {
    path: PathBuf,
    state: Mutex<Naming>,
}

#[derive(Debug)]
enum Naming {
    Nameless,
    Hidden(PathBuf),
    Published,
}

impl OutputFile {
    /// A file that will have a name, in a directory that is there. With `bytes`, its room is taken at
    /// once, so that a disk without it is told before anything is written. It waits for the disk.
    ///
    /// # Errors
    /// When there can be no such file, or no room for it.
    pub fn create(path: &Path, bytes: Option<u64>) -> Result<Arc<OutputFile>, FileError> {
        OutputFile::create_by(new_file, path, bytes)
    }

    fn create_by(
        new_file: impl FnOnce(&Path) -> io::Result<(File, Naming)>,
        path: &Path,
        bytes: Option<u64>,
    ) -> Result<Arc<OutputFile>, FileError> {
        let failed =
            |error: &io::Error| FileError::of(format!("creating {}", path.display()), error);
        let target = target_of(path)?;
        let (file, naming) = new_file(&target).map_err(|error| failed(&error))?;
        let state = Mutex::new(naming);
        let output = OutputFile {
            handle: Arc::new(FileHandle::new(path, file, true)),
            target: Some(Target {
                path: target,
                state,
            }),
            spoiled: OnceLock::new(),
        };
        if let Some(bytes) = bytes {
            output.take_room(bytes)?;
        }
        Ok(Arc::new(output))
    }

    /// A file that never has a name: a run. Its room is free when the last one lets go of it.
    ///
    /// # Errors
    /// When no file can be made in the directory.
    pub fn unnamed(directory: &Path) -> Result<Arc<OutputFile>, FileError> {
        let file = hidden::nameless(directory).map_err(|error| {
            FileError::of(
                format!("creating a file in {}", directory.display()),
                &error,
            )
        })?;
        let path = directory.join("(a file without a name)");
        Ok(Arc::new(OutputFile {
            handle: Arc::new(FileHandle::new(&path, file, true)),
            target: None,
            spoiled: OnceLock::new(),
        }))
    }

    /// The name that it will have, as it was given.
    pub fn path(&self) -> &Path {
        self.handle.path()
    }

    /// Takes room for so many bytes, which is then how long it is.
    fn take_room(&self, bytes: u64) -> Result<(), FileError> {
        let file = self.handle.file();
        let none = FallocateFlags::empty();
        let taken = match bytes {
            0 => Ok(()),
            _ => retried(|| rustix::fs::fallocate(file, none, 0, bytes)),
        };
        let taken = match taken {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(bytes),
            taken => taken.map_err(io::Error::from),
        };
        let what = || format!("taking room for {bytes} bytes of {}", self.path().display());
        taken.map_err(|error| FileError::of(what(), &error))
    }

    /// Makes it so long: what lies behind is cut off, what is new is zero. It waits for the disk.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_bytes(&self, bytes: u64) -> Result<(), FileError> {
        let what = || format!("cutting {} to {bytes} bytes", self.path().display());
        let cut = self.handle.file().set_len(bytes);
        cut.map_err(|error| FileError::of(what(), &error))
    }

    /// Has it on its disk, and gives it its name, at once: an old file of that name is replaced. It
    /// waits for the disk. Once published, it does nothing.
    ///
    /// # Errors
    /// What went wrong: then nothing stands under the name, or what stood there before.
    ///
    /// # Panics
    /// For a file that never has a name.
    pub fn publish(&self) -> Result<(), FileError> {
        brambling_memory::held::forbid("a file is published");
        let target = self.target.as_ref();
        let target = target.expect("a file without a name is never published");
        let mut state = target.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, Naming::Published) {
            return Ok(());
        }
        if let Some(error) = self.spoiled.get() {
            return Err(error.clone());
        }
        let failed = |error| FileError::of(format!("publishing {}", self.path().display()), &error);
        if let Err(error) = self.flush(target) {
            let error = failed(error);
            self.spoil(error.clone());
            return Err(error);
        }
        self.name(target, &mut state).map_err(failed)
    }

    /// Has it on its disk, with the rights that it will have.
    fn flush(&self, target: &Target) -> io::Result<()> {
        let file = self.handle.file();
        if let Ok(old) = std::fs::metadata(&target.path) {
            // Who could not read the old one can not read the new one.
            file.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
        }
        file.sync_all()
    }

    fn name(&self, target: &Target, state: &mut Naming) -> io::Result<()> {
        let file = self.handle.file();
        if matches!(state, Naming::Nameless) {
            match link(file, &target.path) {
                Err(Errno::EXIST) => *state = Naming::Hidden(link_hidden(file, &target.path)?),
                linked => linked.map(|()| *state = Naming::Published)?,
            }
        }
        if let Naming::Hidden(hidden) = state {
            std::fs::rename(hidden, &target.path)?;
            *state = Naming::Published;
        }
        // Its lock says that a hidden name is in use, which it has no more.
        let _ = rustix::fs::flock(file, FlockOperation::Unlock);
        sync_directory(hidden::directory_of(&target.path))
    }

    /// It as a file to be read, as long as it is now.
    ///
    /// # Errors
    /// When the system does not say how long it is.
    pub fn as_input(&self) -> Result<Arc<InputFile>, FileError> {
        InputFile::of_written(self.handle.clone())
    }

    /// Writes a block to a place.
    pub(crate) fn write_block(
        &self,
        at: u64,
        block: &Block,
        counters: &FileCounters,
    ) -> Result<(), FileError> {
        let written = self.handle.write(at, block, counters);
        written.inspect_err(|error| self.spoil(error.clone()))
    }

    /// It is not whole, and will not be.
    pub(crate) fn spoil(&self, error: FileError) {
        if !mutants::is_on("output-forgets-its-holes") {
            // The first reason is the one that helps.
            let _ = self.spoiled.set(error);
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Naming::Hidden(hidden) = state {
            let _ = std::fs::remove_file(hidden);
        }
    }
}

/// Where an output will stand: behind a link if its name is one.
fn target_of(path: &Path) -> Result<PathBuf, FileError> {
    let failed = |error: &io::Error| FileError::of(format!("creating {}", path.display()), error);
    if path.file_name().is_none() {
        return Err(failed(&io::Error::from_raw_os_error(libc::EISDIR)));
    }
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(path.to_owned()),
        found => found.map_err(|error| failed(&error))?,
    };
    let mut target = path.to_owned();
    if found.is_symlink() {
        target = std::fs::canonicalize(path).map_err(|error| failed(&error))?;
    }
    let found = std::fs::metadata(&target).map_err(|error| failed(&error))?;
    if found.is_dir() {
        return Err(failed(&io::Error::from_raw_os_error(libc::EISDIR)));
    }
    if !found.is_file() {
        let path = path.to_owned();
        return Err(FileError::NotAFile { path });
    }
    // Its directory would let it be replaced; its own rights say that it is not to be.
    let may = rustix::fs::accessat(CWD, &target, Access::WRITE_OK, AtFlags::EACCESS);
    may.map_err(|error| failed(&error.into()))?;
    Ok(target)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o666);
    options
}

/// A new file beside a target: without a name where there are such, else hidden.
fn new_file(target: &Path) -> io::Result<(File, Naming)> {
    // A name can be given through /proc only.
    if !Path::new("/proc/self/fd").exists() {
        return hidden_file(target);
    }
    let mut nameless = options();
    nameless.custom_flags(libc::O_TMPFILE);
    match nameless.open(hidden::directory_of(target)) {
        Err(error) if hidden::is_unsupported(&error) => hidden_file(target),
        made => {
            let file = made?;
            // Before it has a hidden name for the moment in which it replaces another file.
            let _ = rustix::fs::flock(&file, FlockOperation::LockExclusive);
            Ok((file, Naming::Nameless))
        }
    }
}

/// A new file beside a target, under a hidden name.
fn hidden_file(target: &Path) -> io::Result<(File, Naming)> {
    let (file, path) = hidden::create(&options(), target)?;
    Ok((file, Naming::Hidden(path)))
}

/// Gives an open file a name that is not there.
fn link(file: &File, path: &Path) -> Result<(), Errno> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, own.as_str(), CWD, path, AtFlags::SYMLINK_FOLLOW)
}

/// Gives an open file a hidden name beside a target.
fn link_hidden(file: &File, target: &Path) -> io::Result<PathBuf> {
    loop {
        let path = hidden::name_beside(target);
        match link(file, &path) {
            Err(Errno::EXIST) => {}
            linked => return Ok(linked.map(|()| path)?),
        }
    }
}

/// Has a directory's names on its disk.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    match File::open(directory)?.sync_all() {
        // Some file systems have nothing to do there, and say so like this.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        synced => synced,
    }
}

fn retried(mut call: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests;
