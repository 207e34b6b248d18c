//! What a worker spills, and how it tells that.

use super::WorkerProcess;
use brambling_memory::{OutOfMemory, Spill, SpillError, Spilled, held};
use brambling_storage::{FilePool, SpillDirectory};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The worker's spill directory, for all of its jobs.
#[derive(Debug)]
pub(super) struct Spilling {
    pub(super) directory: SpillDirectory,
    /// Read back what is there, for all of its jobs.
    pub(super) files: Arc<FilePool>,
    /// What there was no memory for when something was spilled last.
    trigger: Mutex<Option<OutOfMemory>>,
    /// How much had been spilled when that was told last.
    told_bytes: AtomicU64,
}

impl Spilling {
    /// # Errors
    /// When the system gives no threads.
    pub(super) fn new(directory: SpillDirectory) -> io::Result<Spilling> {
        let (trigger, told_bytes) = Default::default();
        Ok(Spilling {
            directory,
            files: Arc::new(FilePool::start()?),
            trigger,
            told_bytes,
        })
    }

    /// A line, when for the first time something was spilled and whenever that has doubled.
    fn news(&self) -> Option<String> {
        let counts = self.directory.counts();
        let told_bytes = self.told_bytes.load(Ordering::Relaxed);
        if counts.spilled_bytes < told_bytes.saturating_mul(2).max(1) {
            return None;
        }
        let trigger = *held::lock(&self.trigger);
        self.told_bytes
            .store(counts.spilled_bytes, Ordering::Relaxed);
        Some(format!(
            "spilled {} pieces, {} bytes, to {}; the last one ran {}\n",
            counts.spills,
            counts.spilled_bytes,
            self.directory.path().display(),
            trigger?
        ))
    }
}

impl Spill for Spilling {
    fn put(&self, parts: &[&[u8]], refused: &OutOfMemory) -> Result<Arc<dyn Spilled>, SpillError> {
        *held::lock(&self.trigger) = Some(*refused);
        let spilled = self.directory.put(parts, refused)?;
        let directory = self.directory.path().display();
        tracing::debug!(bytes = spilled.bytes(), %directory, trigger = %refused, "spilled a piece");
        Ok(spilled)
    }
}

impl WorkerProcess {
    /// What it spills, in words: how much, what triggered it, which setting changes it. Something when it has begun to, and
    /// whenever what was spilled has doubled.
    pub fn spill_news(&self) -> Option<String> {
        self.shared.spilling.as_ref()?.news()
    }
}
