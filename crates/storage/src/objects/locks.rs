//! Places in a store that one live process has.

use super::lease::Lease;
use super::{ObjectKey, ObjectStore, StoreError};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

/// A store in which processes have places of their own.
pub trait PlacedStore: ObjectStore {
    /// Takes a lock, unless another live process has it. A process takes a lock once. It may take a while to find out; meanwhile `waits` is
    /// told why and for how long now, and says whether to go on.
    ///
    /// # Errors
    /// When there are no locks.
    fn lock(&self, key: &ObjectKey, waits: &mut LockWait<'_>) -> Result<Locking, StoreError>;

    /// Takes away all that is under a key, locks included.
    ///
    /// # Errors
    /// What may be there still.
    fn clear(&self, key: &ObjectKey) -> Result<(), StoreError>;

    /// Takes away what is left of a key under which nothing is.
    ///
    /// # Errors
    /// Why it may be there still.
    fn clear_empty(&self, key: &ObjectKey) -> Result<(), StoreError>;

    /// All objects, in order. For people who look for something in a store of which they know nothing else.
    ///
    /// # Errors
    /// Why the store cannot tell.
    fn list_all(&self) -> Result<Vec<ObjectKey>, StoreError>;

    /// The store of what is under a key of this one.
    ///
    /// # Errors
    /// When nothing can be kept there.
    fn within(&self, key: &ObjectKey) -> Result<Arc<dyn PlacedStore>, StoreError>;
}

/// Who is told why a lock has to be waited for, and for how long it has been. Says whether to go on.
pub type LockWait<'w> = dyn FnMut(&str, Duration) -> bool + 'w;

/// What has become of a lock that was asked for.
#[derive(Debug)]
pub enum Locking {
    /// This process has it.
    Ours(StoreLock),
    /// Another live process has it.
    Held,
    /// Whoever asked did not wait for the answer.
    GaveUp,
}

/// What only one live process has, of all that share a store. It goes with the process, and when it is dropped. A process that was forked does not
/// have it.
#[derive(Debug)]
pub struct StoreLock(Held);

#[derive(Debug)]
enum Held {
    /// POSIX locks go with any descriptor of the file that the process closes: this is the only one.
    File {
        _file: File,
    },
    Lease(Lease),
}

impl StoreLock {
    pub(super) fn of_file(file: File) -> StoreLock {
        StoreLock(Held::File { _file: file })
    }

    pub(super) fn of_lease(lease: Lease) -> StoreLock {
        StoreLock(Held::Lease(lease))
    }

    /// Whether this process has it still, for sure. One whose host slept may have lost it.
    pub fn is_held(&self) -> bool {
        match &self.0 {
            Held::File { .. } => true,
            Held::Lease(lease) => lease.is_held(),
        }
    }
}
