//! What outlives a process: the forms of a snapshot's files. Each begins with a mark and a version, and says by a checksum whether it is whole;
//! a newer version is refused by its number.

mod manifest;
mod part;
mod program;
mod record;

pub use manifest::{CutManifest, KeptResults, SourceMark, StoredPart};
pub use part::{PartsEnd, PartsHead, checksum};
pub use program::KeptProgram;
pub use record::{LogEntry, LogRecord, LoggedJob, LoggedTerm};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why something that was kept cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeptError {
    /// It begins otherwise.
    #[error("it is no {0} of Brambling's")]
    OtherKind(&'static str),
    /// A newer Brambling has written it.
    #[error(
        "it has version {found}, and this Brambling reads versions up to {known}; use the one that wrote it, or a newer one"
    )]
    Newer {
        /// Its version.
        found: u16,
        /// The newest that is known here.
        known: u16,
    },
    /// Its bytes have changed.
    #[error(
        "its checksum is not that of its bytes: the disk or the network has changed them, or it was cut short"
    )]
    Damaged,
}

/// Magic, version, length and checksum.
const HEAD_BYTES: usize = 4 + 2 + 8;

/// A form: what it is called, how it begins, and its version.
struct Form {
    name: &'static str,
    mark: [u8; 4],
    version: u16,
}

impl Form {
    fn write(&self, value: &impl Serialize) -> Vec<u8> {
        let body = postcard::to_stdvec(value).expect("nothing in it refuses to be written");
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
        bytes.extend_from_slice(&self.mark);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&checksum(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    fn read<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, KeptError> {
        let (head, body) = bytes
            .split_at_checked(HEAD_BYTES)
            .ok_or(KeptError::OtherKind(self.name))?;
        if head[..4] != self.mark {
            return Err(KeptError::OtherKind(self.name));
        }
        let found = u16::from_le_bytes([head[4], head[5]]);
        if found == 0 {
            return Err(KeptError::OtherKind(self.name));
        }
        if found > self.version {
            return Err(KeptError::Newer {
                found,
                known: self.version,
            });
        }
        let sum = u64::from_le_bytes(head[6..].try_into().expect("eight bytes"));
        if sum != checksum(body) {
            return Err(KeptError::Damaged);
        }
        postcard::from_bytes(body).map_err(|_| KeptError::Damaged)
    }
}
