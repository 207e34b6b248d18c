//! What a finished job leaves: its kept datasets, and what it did.

use brambling_program::{Dataset, DatasetId, Payload, Value};
use brambling_worker::executor::{Job, Tally};
use std::sync::Arc;

/// The results of a program.
pub struct Outcome {
    job: Job,
}

impl Outcome {
    pub(crate) fn new(job: Arc<Job>) -> Outcome {
        // Threads and caller have left the job; completions hold it only weakly, and for a moment.
        let mut job = job;
        loop {
            match Arc::try_unwrap(job) {
                Ok(job) => return Outcome { job },
                Err(shared) => job = shared,
            }
            std::thread::yield_now();
        }
    }

    /// Takes the value of a one-partition dataset.
    ///
    /// # Panics
    /// When the dataset was not kept, or is of another program.
    pub fn take<T: Payload>(&mut self, dataset: &Dataset<T>) -> T {
        self.check_kept(dataset);
        self.job.take(dataset.id(), 0)
    }

    /// Takes the values of all partitions, by index.
    ///
    /// # Panics
    /// When the dataset was not kept, or is of another program.
    pub fn take_all<T: Payload>(&mut self, dataset: &Dataset<T>) -> Vec<T> {
        self.check_kept(dataset);
        let group = self.job.plan().group_of_dataset[dataset.id().index()];
        let count = self.job.plan().counts[group.index()];
        (0..count)
            .map(|index| self.job.take(dataset.id(), index))
            .collect()
    }

    /// What was freed would look like a result of zeros.
    fn check_kept<T>(&self, dataset: &Dataset<T>) {
        let program = &self.job.plan().program;
        assert_eq!(
            dataset.program(),
            program.identity(),
            "the dataset belongs to another program than this outcome"
        );
        let dataset = dataset.id();
        let dataset = &self.job.plan().program.spec().datasets[dataset.index()];
        assert!(
            dataset.keep,
            "dataset `{}` was freed after its last use; keep it with Program::keep",
            dataset.name
        );
    }

    /// A partition's value, of whatever type. For other languages' packages.
    pub fn value(&mut self, dataset: DatasetId, index: u32) -> &mut Value {
        self.job.value(dataset, index)
    }

    /// How many partitions a dataset has.
    pub fn partitions(&self, dataset: DatasetId) -> u32 {
        self.job.plan().counts[self.job.plan().group_of_dataset[dataset.index()].index()]
    }

    /// What the job did: tasks, time, memory.
    pub fn tally(&self) -> Tally {
        self.job.tally()
    }
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Outcome({}, {:?})",
            self.job.plan().program.spec().name,
            self.tally()
        )
    }
}
