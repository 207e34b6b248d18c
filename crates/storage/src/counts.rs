//! Counts of what files gave and took, for ledgers: of the process, and of each scan and writer.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that went between blocks and files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileCounts {
    /// Bytes read.
    pub read_bytes: u64,
    /// Those of them that came past the system's page cache.
    pub direct_read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Those of them that went past the system's page cache.
    pub direct_written_bytes: u64,
}

/// Where they are counted.
#[derive(Debug, Default)]
pub(crate) struct FileCounters {
    read: AtomicU64,
    direct_read: AtomicU64,
    written: AtomicU64,
    direct_written: AtomicU64,
}

static ALL: FileCounters = FileCounters {
    read: AtomicU64::new(0),
    direct_read: AtomicU64::new(0),
    written: AtomicU64::new(0),
    direct_written: AtomicU64::new(0),
};

/// What all scans and writers of this process have read and written since it began.
pub fn file_counts() -> FileCounts {
    ALL.counts()
}

impl FileCounters {
    pub(crate) fn counts(&self) -> FileCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FileCounts {
            read_bytes: of(&self.read),
            direct_read_bytes: of(&self.direct_read),
            written_bytes: of(&self.written),
            direct_written_bytes: of(&self.direct_written),
        }
    }

    /// Bytes that were read, here and in the whole process.
    pub(crate) fn add_read(&self, bytes: usize, direct_bytes: usize) {
        for counters in [self, &ALL] {
            // Relaxed: a count guards nothing.
            counters.read.fetch_add(bytes as u64, Ordering::Relaxed);
            let direct = &counters.direct_read;
            direct.fetch_add(direct_bytes as u64, Ordering::Relaxed);
        }
    }

    /// Bytes that were written, here and in the whole process.
    pub(crate) fn add_written(&self, bytes: usize, direct_bytes: usize) {
        for counters in [self, &ALL] {
            // Relaxed: a count guards nothing.
            counters.written.fetch_add(bytes as u64, Ordering::Relaxed);
            let direct = &counters.direct_written;
            direct.fetch_add(direct_bytes as u64, Ordering::Relaxed);
        }
    }
}
