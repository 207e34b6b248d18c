//! Objects: bytes under a key, made once, whole or not at all, and never changed. Snapshots and logs consist of them.
//!
//! What such a store promises, and each implementation has to keep:
//! * Of those that make one key at the same time one succeeds, and all others are told that it exists.
//! * An object that was made is there after a loss of power, whole.
//! * Who reads after somebody was told that an object was made, reads it.

mod directory;
mod error;
mod holder;
mod lease;
mod location;
mod locks;
mod probe;
mod s3;

pub use directory::DirectoryStore;
pub use error::{StoreError, StoreTrouble};
pub use location::{S3Place, StoreLocation};
pub use locks::{LockWait, Locking, PlacedStore, StoreLock};
pub use s3::S3Store;

use std::fmt;
use std::ops::Range;

/// The name of an object: parts divided by `/`, of lower-case letters, digits, `-` and `.`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ObjectKey(String);

/// Longer keys are refused.
const KEY_BYTES_MAX: usize = 200;

impl ObjectKey {
    /// A key; none for what is no key.
    pub fn new(key: impl Into<String>) -> Option<ObjectKey> {
        let key = key.into();
        let is_part = |part: &str| {
            let is_plain =
                |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-._".contains(&it);
            // No hidden names, and no way up.
            !part.is_empty() && !part.starts_with('.') && part.bytes().all(is_plain)
        };
        let is_key = key.len() <= KEY_BYTES_MAX && key.split('/').all(is_part);
        is_key.then_some(ObjectKey(key))
    }

    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where objects are. Each call waits for a disk or a network: for threads that may.
pub trait ObjectStore: Send + Sync + fmt::Debug {
    /// Begins an object. It exists when its writer was told to create it.
    ///
    /// # Errors
    /// Why nothing can be written there.
    fn begin(&self, key: &ObjectKey) -> Result<Box<dyn ObjectWriter>, StoreError>;

    /// Reads an object, or a range of it.
    ///
    /// # Errors
    /// When it is not there, is shorter, or cannot be read.
    fn read(&self, key: &ObjectKey, range: Option<Range<u64>>) -> Result<Vec<u8>, StoreError>;

    /// Takes an object away. One that is not there is none the less gone.
    ///
    /// # Errors
    /// Why it may be there still.
    fn delete(&self, key: &ObjectKey) -> Result<(), StoreError>;

    /// The objects whose keys begin with these parts, in order. For those who clean and for people; what must be found is read by its key.
    ///
    /// # Errors
    /// Why the store cannot tell.
    fn list(&self, prefix: &ObjectKey) -> Result<Vec<ObjectKey>, StoreError>;

    /// What it is called, without credentials.
    fn name(&self) -> &str;

    /// Makes an object of bytes that are there.
    ///
    /// # Errors
    /// As [`ObjectStore::begin`] and [`ObjectWriter::create`].
    fn create(&self, key: &ObjectKey, bytes: &[u8]) -> Result<(), StoreError> {
        let mut writer = self.begin(key)?;
        writer.write(bytes)?;
        writer.create()
    }
}

/// An object that is being written. Dropped before it is created, it never was.
pub trait ObjectWriter: Send {
    /// Appends.
    ///
    /// # Errors
    /// When it finds no room, or cannot be written.
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError>;

    /// Lets it exist, whole.
    ///
    /// # Errors
    /// When there is one of its key, or it cannot be written.
    fn create(self: Box<Self>) -> Result<(), StoreError>;
}

#[cfg(test)]
mod tests {
    use super::ObjectKey;

    #[test]
    fn keys_lead_nowhere_else() {
        for key in ["log/00017", "jobs/a-b/parts/1-2.part", "x"] {
            assert!(ObjectKey::new(key).is_some(), "{key}");
        }
        let long = "k".repeat(201);
        for key in [
            "",
            "/",
            "a//b",
            "../up",
            "a/../b",
            "a/.hidden",
            "A",
            "a b",
            &long,
        ] {
            assert!(ObjectKey::new(key).is_none(), "{key}");
        }
    }
}
