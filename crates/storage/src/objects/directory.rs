//! A store that is a directory: local, or of a file system that several hosts share.
//!
//! An object is written to a file that nobody can see, and has its disk's word before it gets its name; a link gives the name, which never replaces
//! one that is there. Then the directory is written.

use super::probe::{self, probe_once};
use super::{
    LockWait, Locking, ObjectKey, ObjectStore, ObjectWriter, PlacedStore, StoreError, StoreLock,
    StoreTrouble,
};
use crate::hidden;
use crate::output::sync_directory;
use rustix::fs::{AtFlags, CWD, FlockOperation};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory of objects.
#[derive(Clone, Debug)]
pub struct DirectoryStore {
    root: PathBuf,
    name: String,
}

impl DirectoryStore {
    /// A store in a directory, which is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be made, or nothing can be written there.
    pub fn open(root: &Path) -> Result<DirectoryStore, StoreError> {
        let name = root.display().to_string();
        let failed = |error: io::Error| StoreError::of(&name, "opening it".into(), &error);
        if root.exists() && !root.is_dir() {
            let trouble = StoreTrouble::Other("it is a file; give a directory".into());
            return Err(StoreError::new(&name, "opening it".into(), trouble));
        }
        std::fs::create_dir_all(root).map_err(failed)?;
        // Relative names mean the directory that is current now.
        let root = std::fs::canonicalize(root).map_err(failed)?;
        // What can be written is found out now, not at the first snapshot.
        hidden::nameless(&root).map_err(failed)?;
        let store = DirectoryStore { root, name };
        if is_remote(&store.root) {
            probe_once([&store, &store], probe::OF_FILE_SYSTEMS)?;
        }
        Ok(store)
    }

    fn path(&self, key: &ObjectKey) -> PathBuf {
        self.root.join(key.as_str())
    }
}

impl ObjectStore for DirectoryStore {
    fn begin(&self, key: &ObjectKey) -> Result<Box<dyn ObjectWriter>, StoreError> {
        let path = self.path(key);
        let doing = format!("writing {key}");
        let failed = |error: io::Error| StoreError::of(&self.name, doing.clone(), &error);
        make_directories(&self.root, parent(&path)).map_err(failed)?;
        let (file, hidden) = open_unseen(&path).map_err(failed)?;
        Ok(Box::new(DirectoryWriter {
            file,
            hidden,
            path,
            store: self.name.clone(),
            doing,
        }))
    }

    fn read(&self, key: &ObjectKey, range: Option<Range<u64>>) -> Result<Vec<u8>, StoreError> {
        let doing = || format!("reading {key}");
        let failed = |error: io::Error| StoreError::of(&self.name, doing(), &error);
        let mut file = File::open(self.path(key)).map_err(failed)?;
        let has = file.metadata().map_err(failed)?.len();
        let range = range.unwrap_or(0..has);
        if range.end > has {
            let how = format!("it has {has} bytes, and {} were asked for", range.end);
            let trouble = StoreTrouble::Damaged(how);
            return Err(StoreError::new(&self.name, doing(), trouble));
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.seek(SeekFrom::Start(range.start)).map_err(failed)?;
        file.read_exact(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    fn delete(&self, key: &ObjectKey) -> Result<(), StoreError> {
        match std::fs::remove_file(self.path(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::of(
                &self.name,
                format!("deleting {key}"),
                &error,
            )),
            _ => Ok(()),
        }
    }

    fn list(&self, prefix: &ObjectKey) -> Result<Vec<ObjectKey>, StoreError> {
        let mut keys = Vec::new();
        let listed = list(&self.path(prefix), prefix.as_str(), &mut keys);
        listed.map_err(|error| StoreError::of(&self.name, format!("listing {prefix}"), &error))?;
        keys.sort();
        Ok(keys)
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl PlacedStore for DirectoryStore {
    fn lock(&self, key: &ObjectKey, _: &mut LockWait<'_>) -> Result<Locking, StoreError> {
        let path = self.path(key);
        let failed =
            |error: io::Error| StoreError::of(&self.name, format!("locking {key}"), &error);
        for _ in 0..LOCKINGS_MAX {
            make_directories(&self.root, parent(&path)).map_err(failed)?;
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let file = match options.mode(0o600).open(&path) {
                // Another process has ended well and taken the directory away.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file.map_err(failed)?,
            };
            match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Another process may have taken the file away before it was locked: then it is no lock.
                Ok(()) if is_at(&file, &path) => {
                    return Ok(Locking::Ours(StoreLock::of_file(file)));
                }
                Ok(()) => {}
                Err(rustix::io::Errno::ACCESS | rustix::io::Errno::AGAIN) => {
                    return Ok(Locking::Held);
                }
                Err(error) => return Err(failed(error.into())),
            }
        }
        Ok(Locking::Held)
    }

    fn clear(&self, key: &ObjectKey) -> Result<(), StoreError> {
        let path = self.path(key);
        let mut cleared = std::fs::remove_dir_all(&path);
        for _ in 1..CLEARINGS_MAX {
            match &cleared {
                // Another process has written something there meanwhile.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    cleared = std::fs::remove_dir_all(&path);
                }
                _ => break,
            }
        }
        match cleared {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::of(
                &self.name,
                format!("clearing {key}"),
                &error,
            )),
            _ => Ok(()),
        }
    }

    fn clear_empty(&self, key: &ObjectKey) -> Result<(), StoreError> {
        use io::ErrorKind::{DirectoryNotEmpty, NotFound};
        match std::fs::remove_dir(self.path(key)) {
            Err(error) if !matches!(error.kind(), DirectoryNotEmpty | NotFound) => Err(
                StoreError::of(&self.name, format!("clearing {key}"), &error),
            ),
            _ => Ok(()),
        }
    }

    fn list_all(&self) -> Result<Vec<ObjectKey>, StoreError> {
        let mut keys = Vec::new();
        let listed = list(&self.root, "", &mut keys);
        listed.map_err(|error| StoreError::of(&self.name, "listing it".into(), &error))?;
        keys.sort();
        Ok(keys)
    }

    fn within(&self, key: &ObjectKey) -> Result<Arc<dyn PlacedStore>, StoreError> {
        Ok(Arc::new(DirectoryStore::open(
            &self.root.join(key.as_str()),
        )?))
    }
}

/// A directory into which others write each time that it is cleared is theirs.
const CLEARINGS_MAX: u32 = 20;

/// A lock whose file goes away each time that it is locked is another's.
const LOCKINGS_MAX: u32 = 20;

/// Whether a file that was opened is the one that has the name now.
fn is_at(file: &File, path: &Path) -> bool {
    let place = |of: io::Result<std::fs::Metadata>| of.map(|it| (it.dev(), it.ino())).ok();
    let opened = place(file.metadata());
    opened.is_some() && opened == place(std::fs::metadata(path))
}

/// Whether a directory lies on another host, or with somebody who says what it does.
fn is_remote(root: &Path) -> bool {
    // NFS, SMB, Lustre, FUSE, Ceph, GPFS, BeeGFS, AFS, 9P, by the numbers that `statfs` gives.
    const REMOTE: [u32; 10] = [
        0x6969,
        0xff53_4d42,
        0xfe53_4d42,
        0x0bd0_0bd0,
        0x6573_5546,
        0x00c3_6400,
        0x4750_4653,
        0x1983_0326,
        0x5346_414f,
        0x0102_1997,
    ];
    rustix::fs::statfs(root).is_ok_and(|it| REMOTE.contains(&(it.f_type as u32)))
}

struct DirectoryWriter {
    file: File,
    /// Where it lies while it is written, on file systems that have no files without names.
    hidden: Option<PathBuf>,
    path: PathBuf,
    store: String,
    doing: String,
}

impl DirectoryWriter {
    fn failed(&self, error: &io::Error) -> StoreError {
        StoreError::of(&self.store, self.doing.clone(), error)
    }

    /// Gives it its name, unless something has that.
    fn name(&self) -> io::Result<()> {
        if brambling_memory::mutants::is_on("creates-over-others") {
            let _ = std::fs::remove_file(&self.path);
        }
        match &self.hidden {
            Some(hidden) => std::fs::hard_link(hidden, &self.path),
            None => {
                let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                let own = own.as_str();
                Ok(rustix::fs::linkat(
                    CWD,
                    own,
                    CWD,
                    &self.path,
                    AtFlags::SYMLINK_FOLLOW,
                )?)
            }
        }
    }
}

impl ObjectWriter for DirectoryWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| self.failed(&error))
    }

    fn create(self: Box<Self>) -> Result<(), StoreError> {
        let synced = self.file.sync_all();
        synced.map_err(|error| self.failed(&error))?;
        self.name().map_err(|error| self.failed(&error))?;
        let directory = sync_directory(parent(&self.path));
        directory.map_err(|error| self.failed(&error))
    }
}

impl Drop for DirectoryWriter {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            let _ = std::fs::remove_file(hidden);
        }
    }
}

/// A file without a name, or under a hidden one.
fn open_unseen(path: &Path) -> io::Result<(File, Option<PathBuf>)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let made = options
        .clone()
        .custom_flags(libc::O_TMPFILE)
        .open(parent(path));
    match made {
        Err(error) if hidden::is_unsupported(&error) => {
            let (file, hidden) = hidden::create(&options, path)?;
            Ok((file, Some(hidden)))
        }
        made => Ok((made?, None)),
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().expect("a key stands in a directory")
}

/// Makes the directories between, and has them on their disk.
fn make_directories(root: &Path, directory: &Path) -> io::Result<()> {
    if directory == root || directory.is_dir() {
        return Ok(());
    }
    make_directories(root, parent(directory))?;
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_directory(parent(directory)),
    }
}

fn list(path: &Path, key: &str, into: &mut Vec<ObjectKey>) -> io::Result<()> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        // Other names are nobody's objects: what is being written, and what others left.
        let name = entry.file_name();
        let within = |name: &str| match key {
            "" => ObjectKey::new(name),
            key => ObjectKey::new(format!("{key}/{name}")),
        };
        let Some(name) = name.to_str().and_then(within) else {
            continue;
        };
        if entry.file_type()?.is_dir() {
            list(&entry.path(), name.as_str(), into)?;
        } else {
            into.push(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn key(key: &str) -> ObjectKey {
        ObjectKey::new(key).unwrap()
    }

    fn store() -> (tempfile::TempDir, DirectoryStore) {
        let directory = tempfile::tempdir().unwrap();
        let store = DirectoryStore::open(directory.path()).unwrap();
        (directory, store)
    }

    fn is_made_once() {
        let (_directory, store) = store();
        store.create(&key("a/b"), b"seven of nine").unwrap();
        let again = store.create(&key("a/b"), b"other").unwrap_err();
        assert_eq!(again.trouble, StoreTrouble::Exists);
        assert_eq!(store.read(&key("a/b"), None).unwrap(), b"seven of nine");
    }

    #[test]
    fn an_object_is_made_once() {
        is_made_once();
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn mutants_of_creation_are_caught() {
        brambling_memory::mutants::assert_caught("creates-over-others", is_made_once);
    }

    #[test]
    fn what_others_write_meanwhile_does_not_end_the_clearing() {
        let (_directory, store) = store();
        let (beside, is_over) = (store.clone(), std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..2_000 {
                    // Its directory may go before it has its name.
                    let _ = beside.create(&key(&format!("a/parts/{number}")), b"late");
                }
                is_over.store(true, std::sync::atomic::Ordering::Release);
            });
            while !is_over.load(std::sync::atomic::Ordering::Acquire) {
                store.clear(&key("a")).unwrap();
            }
        });
        store.clear(&key("a")).unwrap();
        assert!(!store.path(&key("a")).exists());
    }

    #[test]
    fn an_object_is_read_in_parts() {
        let (_directory, store) = store();
        store.create(&key("a/b"), b"seven of nine").unwrap();
        assert_eq!(store.read(&key("a/b"), None).unwrap(), b"seven of nine");
        assert_eq!(store.read(&key("a/b"), Some(6..8)).unwrap(), b"of");
        let beyond = store.read(&key("a/b"), Some(6..14)).unwrap_err();
        assert!(beyond.to_string().contains("13 bytes, and 14"), "{beyond}");
        store.create(&key("a/c/d"), b"").unwrap();
        assert_eq!(store.list(&key("a")).unwrap(), [key("a/b"), key("a/c/d")]);
        store.delete(&key("a/b")).unwrap();
        store.delete(&key("a/b")).unwrap();
        let absent = store.read(&key("a/b"), None).unwrap_err();
        assert_eq!(absent.trouble, StoreTrouble::Absent);
        assert!(store.list(&key("nothing")).unwrap().is_empty());
    }

    #[test]
    fn of_two_that_make_one_key_one_succeeds() {
        let (_directory, store) = store();
        for round in 0..50 {
            let name = key(&format!("log/{round}"));
            let start = Barrier::new(2);
            let create = |own: &'static [u8]| {
                start.wait();
                store.create(&name, own).is_ok().then_some(own)
            };
            let made: Vec<_> = std::thread::scope(|scope| {
                let both = [b"first", b"other"].map(|own| scope.spawn(move || create(own)));
                both.into_iter()
                    .filter_map(|it| it.join().unwrap())
                    .collect()
            });
            assert_eq!(made.len(), 1);
            assert_eq!(store.read(&name, None).unwrap(), made[0]);
        }
    }

    #[test]
    fn what_was_not_created_never_was() {
        let (directory, store) = store();
        let mut writer = store.begin(&key("parts/1")).unwrap();
        writer.write(b"half of").unwrap();
        drop(writer);
        assert!(store.list(&key("parts")).unwrap().is_empty());
        assert_eq!(
            std::fs::read_dir(directory.path().join("parts"))
                .unwrap()
                .count(),
            0
        );
    }

    #[test]
    fn a_lock_is_of_one_process() {
        let (directory, store) = store();
        let lock = store.lock(&key("job/lock"), &mut |_, _| true).unwrap();
        assert!(matches!(lock, Locking::Ours(_)));
        // Another process asks: `flock` of util-linux takes locks of another kind.
        let path = directory.path().join("job/lock");
        let script = "import fcntl, sys\nfile = open(sys.argv[1], 'r+')\n\
            try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\nexcept OSError: print('held')\n";
        let other = || {
            let out = std::process::Command::new("python3")
                .args(["-c", script])
                .arg(&path)
                .output();
            String::from_utf8(out.unwrap().stdout).unwrap()
        };
        assert_eq!(other(), "held\n");
        drop(lock);
        assert_eq!(other(), "");
    }

    #[test]
    fn a_lock_whose_name_went_is_no_lock() {
        let (directory, store) = store();
        let path = directory.path().join("lock");
        std::fs::write(&path, b"").unwrap();
        let file = File::open(&path).unwrap();
        assert!(is_at(&file, &path));
        std::fs::remove_file(&path).unwrap();
        assert!(!is_at(&file, &path));
        // Another process has made it anew.
        std::fs::write(&path, b"").unwrap();
        assert!(!is_at(&file, &path));
        let locked = store.lock(&key("lock"), &mut |_, _| true).unwrap();
        assert!(matches!(locked, Locking::Ours(_)));
    }

    #[test]
    fn a_store_without_rights_is_told_with_the_way_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = DirectoryStore::open(&file.path().join("below")).unwrap_err();
        assert!(error.to_string().contains("below"), "{error}");
        let full = io::Error::from_raw_os_error(libc::ENOSPC);
        let error = StoreError::of("/mnt/x", "writing log/7".into(), &full);
        assert_eq!(
            error.to_string(),
            "store /mnt/x: writing log/7: no space is left; free some, or name another store with the setting `store`"
        );
    }
}
