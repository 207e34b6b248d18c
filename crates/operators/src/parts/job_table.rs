//! Owns how tasks of one job find what they share in a process: by the job's number. What is shared
//! lives for as long as somebody of the job holds it; the table does not.

use brambling_memory::held;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

/// What jobs share in this process, by their numbers.
#[derive(Debug)]
pub(crate) struct JobTable<T> {
    jobs: Mutex<BTreeMap<u64, Weak<T>>>,
}

impl<T> JobTable<T> {
    /// A table of no jobs.
    pub(crate) const fn new() -> JobTable<T> {
        JobTable {
            jobs: Mutex::new(BTreeMap::new()),
        }
    }

    /// What a job shares, made when its first task asks.
    pub(crate) fn of(&self, job: u64, make: impl FnOnce() -> T) -> Arc<T> {
        let mut jobs = held::lock(&self.jobs);
        if let Some(shared) = jobs.get(&job).and_then(Weak::upgrade) {
            return shared;
        }
        // Those whose jobs have ended.
        jobs.retain(|_, shared| shared.strong_count() > 0);
        let shared = Arc::new(make());
        jobs.insert(job, Arc::downgrade(&shared));
        shared
    }
}
