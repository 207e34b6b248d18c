//! Owns what one job spills, beside what other jobs spill to the same place: how much, how long its threads wait for it, and whether
//! something is being read. Whoever makes the job's node puts it around the place; the executor's threads ask it.

use super::inside;
use brambling_memory::{OutOfMemory, Spill, SpillError, Spilled};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How much a job has spilled.
#[derive(Debug, Default)]
pub struct SpilledBytes {
    written: AtomicU64,
    read: AtomicU64,
    /// Reads that have begun and not ended.
    reading: AtomicU32,
}

impl SpilledBytes {
    /// Bytes written, and bytes read again.
    pub(super) fn totals(&self) -> (u64, u64) {
        // Relaxed: told when the job has ended.
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.written), of(&self.read))
    }

    pub(super) fn is_reading(&self) -> bool {
        // Relaxed: an estimate of what a thread waits for.
        self.reading.load(Ordering::Relaxed) > 0
    }
}

/// A place to spill to, for one job.
#[derive(Debug)]
pub struct JobSpill {
    to: Arc<dyn Spill>,
    bytes: Arc<SpilledBytes>,
}

impl JobSpill {
    /// What goes to `to` is counted in `bytes`.
    pub fn new(to: Arc<dyn Spill>, bytes: Arc<SpilledBytes>) -> JobSpill {
        JobSpill { to, bytes }
    }
}

impl Spill for JobSpill {
    fn put(&self, parts: &[&[u8]], refused: &OutOfMemory) -> Result<Arc<dyn Spilled>, SpillError> {
        let spilled = inside::spilling(|| self.to.put(parts, refused))?;
        self.bytes
            .written
            .fetch_add(spilled.bytes(), Ordering::Relaxed);
        let bytes = self.bytes.clone();
        Ok(Arc::new(JobSpilled { spilled, bytes }))
    }
}

#[derive(Debug)]
struct JobSpilled {
    spilled: Arc<dyn Spilled>,
    bytes: Arc<SpilledBytes>,
}

impl JobSpilled {
    fn reading<R>(&self, bytes: u64, read: impl FnOnce() -> R) -> R {
        self.bytes.reading.fetch_add(1, Ordering::Relaxed);
        let read = inside::spilling(read);
        self.bytes.reading.fetch_sub(1, Ordering::Relaxed);
        self.bytes.read.fetch_add(bytes, Ordering::Relaxed);
        read
    }
}

impl Spilled for JobSpilled {
    fn bytes(&self) -> u64 {
        self.spilled.bytes()
    }

    fn read(&self) -> Result<Vec<u8>, SpillError> {
        self.reading(self.bytes(), || self.spilled.read())
    }

    fn read_at(&self, start: u64, into: &mut [u8]) -> Result<(), SpillError> {
        self.reading(into.len() as u64, || self.spilled.read_at(start, into))
    }
}
