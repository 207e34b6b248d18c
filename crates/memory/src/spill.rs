//! What finds no room in memory waits elsewhere, and is read back when it is needed.
//!
//! Here are only the words: whoever is refused spills ([`Spill::put`]), and whoever knows a place, such as a directory,
//! implements them.

use crate::OutOfMemory;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A place outside of memory.
pub trait Spill: fmt::Debug + Send + Sync {
    /// Writes bytes, which lie in parts, to be read back later. `refused` says what there was no memory for.
    ///
    /// # Errors
    /// When there is no room here either, or they cannot be written; then nothing of them is left.
    fn put(&self, parts: &[&[u8]], refused: &OutOfMemory) -> Result<Arc<dyn Spilled>, SpillError>;
}

/// Bytes outside of memory. Their room there is free again when this is dropped.
pub trait Spilled: fmt::Debug + Send + Sync {
    /// How many they are.
    fn bytes(&self) -> u64;

    /// The bytes as they were written.
    ///
    /// # Errors
    /// When they cannot be read, or are no longer what was written.
    fn read(&self) -> Result<Vec<u8>, SpillError>;

    /// Reads those from `start` on, as many as there is place for. By default all of them come to memory for that.
    ///
    /// # Errors
    /// As [`Spilled::read`].
    ///
    /// # Panics
    /// When there are not so many.
    fn read_at(&self, start: u64, into: &mut [u8]) -> Result<(), SpillError> {
        let all = self.read()?;
        let start = usize::try_from(start).expect("it came to memory");
        into.copy_from_slice(&all[start..][..into.len()]);
        Ok(())
    }
}

/// Why bytes are not spilled, or not read back.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpillError {
    /// Nobody has given a place.
    #[error("nothing is spilled: give a directory with BRAMBLING_SPILL or spill in brambling.toml")]
    Nowhere,
    /// The place is full.
    #[error(
        "{} has no room for {asked_bytes} bytes that were to be spilled: {why}; give it more, or name another \
         directory, with BRAMBLING_SPILL or spill in brambling.toml", .directory.display()
    )]
    Full {
        /// The place.
        directory: PathBuf,
        /// What was to be written.
        asked_bytes: u64,
        /// What bounds it.
        why: String,
    },
    /// The place cannot be written to.
    #[error(
        "{asked_bytes} bytes cannot be spilled to {}: {why}; name another directory with BRAMBLING_SPILL or spill in \
         brambling.toml", .directory.display()
    )]
    Unwritable {
        /// The place.
        directory: PathBuf,
        /// What was to be written.
        asked_bytes: u64,
        /// What the system says.
        why: String,
    },
    /// What was written cannot be read.
    #[error("{bytes} bytes that were spilled to {} cannot be read back: {why}", .directory.display())]
    Unreadable {
        /// The place.
        directory: PathBuf,
        /// How many they were.
        bytes: u64,
        /// What the system says.
        why: String,
    },
    /// What is read is not what was written.
    #[error(
        "{bytes} bytes that were spilled to {} came back damaged: do not trust that disk; name another directory with \
         BRAMBLING_SPILL or spill in brambling.toml", .directory.display()
    )]
    Damaged {
        /// The place.
        directory: PathBuf,
        /// How many they were.
        bytes: u64,
    },
}
