//! Owns the reasons why pieces that were spilled do not come back. Whoever gathers them is told.

use brambling_exchange::NoRoom;
use brambling_memory::SpillError;
use brambling_storage::FileError;

/// Why pieces that were spilled do not come back.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unreturned {
    /// They cannot be read, or others cannot be spilled for them.
    #[error(transparent)]
    Spilled(#[from] SpillError),
    /// There is no room for them.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// Nobody has read them.
    #[error(transparent)]
    Unread(FileError),
}

impl From<FileError> for Unreturned {
    fn from(error: FileError) -> Unreturned {
        match error {
            FileError::Spill(error) => error.into(),
            error => Unreturned::Unread(error),
        }
    }
}
