//! Files that nobody is to see: without a name where the file system has such, else under names
//! that say so.
//!
//! A hidden name is `.NAME.brambling-PROCESS-NUMBER`, beside the NAME that it will become. Who has
//! it open holds its lock (`flock`), which the system takes away with the process, on whatever host
//! it ran. So a hidden name without a lock is one that somebody left.

use crate::requests::FileError;
use rustix::fs::FlockOperation;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What stands in each hidden name.
pub(crate) const MARK: &str = ".brambling-";
/// Longer names are cut in their hidden ones: a file system has no room for more than 255 bytes.
const NAME_BYTES_MAX: usize = 160;

/// A file without a name.
pub(crate) fn nameless(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let made = options
        .clone()
        .custom_flags(libc::O_TMPFILE)
        .open(directory);
    match made {
        Err(error) if is_unsupported(&error) => named_for_a_moment(&mut options, directory),
        made => made,
    }
}

/// Whether an error says that there are no files without names.
pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    // Old kernels take it for the directory, which cannot be written.
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)
    )
}

/// Where the file system has none: one whose name is taken away at once.
fn named_for_a_moment(options: &mut OpenOptions, directory: &Path) -> io::Result<File> {
    let (file, path) = create(options, &directory.join("run"))?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// A new file under a hidden name beside a target, and locked.
pub(crate) fn create(options: &OpenOptions, target: &Path) -> io::Result<(File, PathBuf)> {
    loop {
        let path = name_beside(target);
        match options.clone().create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                let file = made?;
                // Where there are no locks, nobody takes it for left either.
                let _ = rustix::fs::flock(&file, FlockOperation::LockExclusive);
                // Somebody who looked between its creation and its lock took it away.
                if file.metadata()?.nlink() > 0 {
                    return Ok((file, path));
                }
            }
        }
    }
}

/// A hidden name that this process has not given yet.
pub(crate) fn name_beside(target: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    named(target, &format!("{}-{count}", std::process::id()))
}

/// The hidden name beside a target that ends with a key.
pub(crate) fn named(target: &Path, key: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().as_bytes();
    let mut hidden = vec![b'.'];
    hidden.extend_from_slice(&name[..name.len().min(NAME_BYTES_MAX)]);
    hidden.extend_from_slice(MARK.as_bytes());
    hidden.extend_from_slice(key.as_bytes());
    directory_of(target).join(OsString::from_vec(hidden))
}

/// The directory in which a name stands.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Removes what processes that are gone have left in a directory under hidden names: outputs that
/// never became whole, and directories of parts. It waits for the disk, and says how many they were.
/// What it may not open stays.
///
/// # Errors
/// When the directory cannot be read.
pub fn remove_leftovers(directory: &Path) -> Result<usize, FileError> {
    let what = || format!("looking for leftovers in {}", directory.display());
    let failed = |error: io::Error| FileError::of(what(), &error);
    let mut removed = 0;
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if is_hidden(entry.file_name().as_bytes()) && remove_if_left(&entry.path()) {
            removed += 1;
        }
    }
    Ok(removed)
}

/// Whether a name is one of those that [`named`] gives.
fn is_hidden(name: &[u8]) -> bool {
    let marked = name
        .windows(MARK.len())
        .rposition(|it| it == MARK.as_bytes());
    name.first() == Some(&b'.') && marked.is_some_and(|at| at > 0)
}

fn remove_if_left(path: &Path) -> bool {
    let mut options = OpenOptions::new();
    options.read(true);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let Ok(file) = options.open(path) else {
        return false;
    };
    let lock = FlockOperation::NonBlockingLockExclusive;
    if rustix::fs::flock(&file, lock).is_err() {
        return false;
    }
    match file.metadata() {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path).is_ok(),
        Ok(found) if found.is_file() => std::fs::remove_file(path).is_ok(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn where_every_file_has_a_name_it_is_taken_away() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = named_for_a_moment(&mut options, directory.path()).unwrap();
        file.write_all_at(b"bytes", 3).unwrap();
        let mut read = [0; 5];
        file.read_exact_at(&mut read, 3).unwrap();
        assert_eq!(&read, b"bytes");
        std::fs::remove_dir(directory.path()).expect("nothing is left there");
    }
}
