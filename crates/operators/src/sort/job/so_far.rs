//! Owns how far a sort is in this process: bytes that its stages have read and written. Whoever shows that to a user reads it
//! while the job runs. It is an estimate: nothing is decided by it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a sort has moved so far.
#[derive(Debug, Default)]
pub struct SortedSoFar {
    read: AtomicU64,
    written: AtomicU64,
    run_written: AtomicU64,
    run_read: AtomicU64,
}

// Relaxed, all of them: counts guard nothing.
impl SortedSoFar {
    /// Bytes of the input that have come.
    pub fn read_bytes(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes of the output that were given to the disk.
    pub fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Bytes that were given to runs.
    pub fn run_written_bytes(&self) -> u64 {
        self.run_written.load(Ordering::Relaxed)
    }

    /// Bytes of runs that have come back.
    pub fn run_read_bytes(&self) -> u64 {
        self.run_read.load(Ordering::Relaxed)
    }

    pub(super) fn add_read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_run_written(&self, bytes: u64) {
        self.run_written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_run_read(&self, bytes: u64) {
        self.run_read.fetch_add(bytes, Ordering::Relaxed);
    }
}
