//! What a job did: counted by each thread for itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a job did and how long that took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// From the first shard queued to the last one done.
    pub wall: Duration,
    /// Tasks retired.
    pub tasks: u64,
    /// Slices run.
    pub slices: u64,
    /// Time not spent idle, over all threads.
    pub busy: Duration,
    /// Shards taken from another thread's queue.
    pub stolen: u64,
    /// Threads of the pool.
    pub threads: u32,
    /// Most bytes that datasets and pieces took at any time.
    pub peak_bytes: u64,
    /// On a cluster: what the client has sent to its workers, the program and what that makes.
    pub sent_bytes: u64,
}

/// One thread's counts. Written by that thread only.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct ThreadTally {
    pub(super) tasks: AtomicU64,
    pub(super) slices: AtomicU64,
    pub(super) busy_ns: AtomicU64,
    pub(super) stolen: AtomicU64,
}

/// Adds to a count that only this thread writes.
#[inline]
pub(super) fn count(counter: &AtomicU64, more: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(more),
        Ordering::Relaxed,
    );
}
