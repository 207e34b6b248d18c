//! Owns the directory of parts of one job in a process: it begins when the first task asks, gets its
//! name when all parts of all workers are whole, and is taken away when the job ends before that.

use brambling_program::KernelError;
use brambling_storage::{FileError, Staging};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A directory of parts that appears.
#[derive(Debug, Default)]
pub(crate) struct PartsDirectory {
    staging: OnceLock<Staging>,
    is_committed: AtomicBool,
}

impl PartsDirectory {
    /// The directory, begun when the first task asks: all workers of a job name the same key. It waits
    /// for the disk.
    pub(crate) fn begin(&self, directory: &Path, key: &str) -> Result<&Staging, FileError> {
        if let Some(staging) = self.staging.get() {
            return Ok(staging);
        }
        let begun = Staging::begin(directory, key)?;
        // Two threads may have begun it: it is the same directory.
        Ok(self.staging.get_or_init(|| begun))
    }

    /// All parts of all workers are whole: the directory gets its name. `part` has to be in it.
    pub(crate) fn commit(
        &self,
        directory: &Path,
        key: &str,
        part: u32,
        what: &str,
    ) -> Result<(), KernelError> {
        let fault = |error: FileError| KernelError::new(error.to_string()).with_source(error);
        let staging = self.begin(directory, key).map_err(fault)?;
        staging.commit().map_err(fault)?;
        // Release: with the acquire of the drop.
        self.is_committed.store(true, Ordering::Release);
        match staging.has_part(part) {
            true => Ok(()),
            false => Err(format!(
                "part {part} lies with another worker than the one that publishes it: a worker came or left while {what}; the output is not whole: remove it and begin again, with --no-balance for the controller"
            )
            .into()),
        }
    }
}

/// A job that ends without having committed leaves nothing: the last of its processes removes what
/// there is.
impl Drop for PartsDirectory {
    fn drop(&mut self) {
        if let Some(staging) = self.staging.get()
            && !self.is_committed.load(Ordering::Acquire)
        {
            let _ = staging.abandon_if_last();
        }
    }
}
