//! Data that a worker makes once, however many jobs read it.

use std::sync::{Arc, Mutex, PoisonError};

/// The last one that was made, by what it was made of.
pub(crate) struct Made<K, D>(Mutex<Option<(K, Arc<D>)>>);

impl<K: PartialEq + Clone, D> Made<K, D> {
    pub(crate) const fn new() -> Made<K, D> {
        Made(Mutex::new(None))
    }

    pub(crate) fn get(&self, of: &K, make: impl FnOnce() -> D) -> Arc<D> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((key, data)) if key == of => data.clone(),
            _ => {
                // First: there is seldom room for two.
                *made = None;
                let data = Arc::new(make());
                *made = Some((of.clone(), data.clone()));
                data
            }
        }
    }
}
