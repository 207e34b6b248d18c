//! What tests of files share.

// Each test uses some of it.
#![allow(dead_code)]
#![allow(clippy::print_stderr)]

use brambling_storage::{FileError, InputFile, ReadAhead, Scan};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;
use tempfile::TempDir;

/// A thread that polls and sleeps until it is woken.
pub struct Waiting {
    waker: Waker,
    woken: Arc<Woken>,
}

struct Woken {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

impl Default for Waiting {
    fn default() -> Waiting {
        let woken = Arc::new(Woken {
            thread: std::thread::current(),
            is_woken: AtomicBool::new(false),
        });
        Waiting {
            waker: woken.clone().into(),
            woken,
        }
    }
}

impl Waiting {
    /// Polls whenever it is woken, until it is ready.
    ///
    /// # Panics
    /// When nobody wakes it for a minute: somebody forgot to.
    pub fn until<T>(&mut self, mut poll: impl FnMut(&Waker) -> Poll<T>) -> T {
        loop {
            if let Poll::Ready(ready) = poll(&self.waker) {
                return ready;
            }
            let mut patience = 60;
            while !self.woken.is_woken.swap(false, Ordering::SeqCst) {
                assert!(patience > 0, "nobody woke who waits");
                patience -= 1;
                std::thread::park_timeout(Duration::from_secs(1));
            }
        }
    }
}

/// The blocks of a range.
pub fn scanned(
    file: &Arc<InputFile>,
    range: Range<u64>,
    ahead: ReadAhead,
) -> Result<Vec<Vec<u8>>, FileError> {
    let mut scan = Scan::new(file, range, ahead);
    let (mut waiting, mut blocks) = (Waiting::default(), Vec::new());
    while let Some(block) = waiting.until(|waker| scan.poll(waker))? {
        blocks.push(block.to_vec());
        scan.give_back(block);
    }
    Ok(blocks)
}

/// A directory on the disk, and one in memory, whose file system knows no direct I/O.
pub fn directories() -> [TempDir; 2] {
    let in_memory = Path::new("/dev/shm");
    let in_memory = match in_memory.is_dir() {
        true => tempfile::tempdir_in(in_memory),
        false => tempfile::tempdir(),
    };
    [tempfile::tempdir().unwrap(), in_memory.unwrap()]
}

/// The names in a directory.
pub fn is_left(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Bytes that repeat nowhere.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        // The middle of a product of odd numbers: as good as needed to tell places apart.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        noise.extend_from_slice(&(state >> 13).to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}

/// Has a file's pages out of the cache, so that it is read past it.
pub fn cool(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Says that a machine lets a test do nothing.
pub fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}
