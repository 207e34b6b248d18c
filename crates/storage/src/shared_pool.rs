//! The threads that wait for all scans and writers of a process.

use crate::pool::{FilePool, forget_under_way};
use crate::requests::FileError;
use std::sync::{Arc, Mutex, PoisonError};

/// So many blocks are with the system at once. A disk behind a network or of many chips wants several
/// megabytes under way in both directions; more threads only add to its queue.
const BLOCK_THREADS: usize = 8;

/// The pool, and the process whose threads it has.
static POOL: Mutex<Option<(u32, Arc<FilePool>)>> = Mutex::new(None);

/// The pool of this process. The first call starts it.
pub(crate) fn shared_pool() -> Result<Arc<FilePool>, FileError> {
    let process = std::process::id();
    let mut kept = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    match &*kept {
        Some((of, pool)) if *of == process => return Ok(pool.clone()),
        _ => {}
    }
    let started = FilePool::with_threads(BLOCK_THREADS);
    let what = || "starting the threads that wait for files".to_owned();
    let pool = Arc::new(started.map_err(|error| FileError::of(what(), &error))?);
    let before = kept.replace((process, pool.clone()));
    // The threads of a pool that came with a fork are not in this process, so nobody can join them.
    if before.is_some() {
        forget_under_way();
    }
    std::mem::forget(before);
    Ok(pool)
}

#[cfg(test)]
mod tests;
