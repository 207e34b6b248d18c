//! Where pieces are spilled to here: memory that nobody counts.

use brambling_memory::{OutOfMemory, Spill, SpillError, Spilled};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Takes whatever it is given.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    put: AtomicU64,
    read: AtomicU64,
    dropped: AtomicU64,
}

impl Shelf {
    /// How often something was put there, and read.
    pub(super) fn counts(&self) -> (u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.counts.put), of(&self.counts.read))
    }

    /// How much lies there now.
    pub(super) fn lying(&self) -> u64 {
        self.counts().0 - self.counts.dropped.load(Ordering::Relaxed)
    }
}

impl Spill for Shelf {
    fn put(&self, parts: &[&[u8]], _refused: &OutOfMemory) -> Result<Arc<dyn Spilled>, SpillError> {
        self.counts.put.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Laid {
            bytes: parts.concat(),
            counts: self.counts.clone(),
        }))
    }
}

#[derive(Debug)]
struct Laid {
    bytes: Vec<u8>,
    counts: Arc<Counts>,
}

impl Spilled for Laid {
    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self) -> Result<Vec<u8>, SpillError> {
        self.counts.read.fetch_add(1, Ordering::Relaxed);
        Ok(self.bytes.clone())
    }
}

impl Drop for Laid {
    fn drop(&mut self) {
        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }
}
