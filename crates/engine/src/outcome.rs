//! What a finished job leaves: its kept datasets, and what it did.

use crate::{ledger, store};
use brambling_machine::Ledger;
use brambling_program::{Dataset, DatasetId, Payload, Plan, Value};
use brambling_protocol::kept::SourceMark;
use brambling_worker::executor::{Job, Tally};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The results of a program.
pub struct Outcome {
    left: Left,
}

/// Where the results are.
enum Left {
    /// In the job, which ran here.
    Here(Box<Job>),
    /// Brought from the workers of a cluster.
    Fetched {
        plan: Box<Plan>,
        values: BTreeMap<(DatasetId, u32), Value>,
        tally: Tally,
        ledger: Box<Ledger>,
    },
}

impl Outcome {
    pub(crate) fn new(job: Arc<Job>) -> Outcome {
        // Threads and caller have left the job; completions hold it only weakly, and for a moment.
        let mut job = job;
        loop {
            match Arc::try_unwrap(job) {
                Ok(job) => {
                    let left = Left::Here(Box::new(job));
                    return Outcome { left };
                }
                Err(shared) => job = shared,
            }
            std::thread::yield_now();
        }
    }

    /// What came from a cluster: a value for each partition of each kept dataset.
    pub(crate) fn fetched(
        plan: Plan,
        values: BTreeMap<(DatasetId, u32), Value>,
        tally: Tally,
        ledger: Ledger,
    ) -> Outcome {
        let plan = Box::new(plan);
        let left = Left::Fetched {
            plan,
            values,
            tally,
            ledger: Box::new(ledger),
        };
        Outcome { left }
    }

    pub(crate) fn plan(&self) -> &Plan {
        match &self.left {
            Left::Here(job) => job.plan(),
            Left::Fetched { plan, .. } => plan,
        }
    }

    fn take_one<T: Payload>(&mut self, dataset: DatasetId, index: u32) -> T {
        let value = match &mut self.left {
            Left::Here(job) => return job.take(dataset, index),
            Left::Fetched { values, .. } => values.remove(&(dataset, index)),
        };
        let value = value.expect("a partition is taken once");
        value
            .take()
            .unwrap_or_else(|value| panic!("a dataset of {value:?} was asked for as another type"))
    }

    /// Takes the value of a one-partition dataset.
    ///
    /// # Panics
    /// When the dataset was not kept, or is of another program.
    pub fn take<T: Payload>(&mut self, dataset: &Dataset<T>) -> T {
        self.check_kept(dataset);
        self.take_one(dataset.id(), 0)
    }

    /// Takes the values of all partitions, by index.
    ///
    /// # Panics
    /// When the dataset was not kept, or is of another program.
    pub fn take_all<T: Payload>(&mut self, dataset: &Dataset<T>) -> Vec<T> {
        self.check_kept(dataset);
        (0..self.partitions(dataset.id()))
            .map(|index| self.take_one(dataset.id(), index))
            .collect()
    }

    /// What was freed would look like a result of zeros.
    fn check_kept<T>(&self, dataset: &Dataset<T>) {
        let program = &self.plan().program;
        assert_eq!(
            dataset.program(),
            program.identity(),
            "the dataset belongs to another program than this outcome"
        );
        let dataset = dataset.id();
        let dataset = &program.spec().datasets[dataset.index()];
        assert!(
            dataset.keep,
            "dataset `{}` was freed after its last use; keep it with Program::keep",
            dataset.name
        );
    }

    /// A partition's value, of whatever type. For other languages' packages.
    pub fn value(&mut self, dataset: DatasetId, index: u32) -> &mut Value {
        match &mut self.left {
            Left::Here(job) => job.value(dataset, index),
            Left::Fetched { values, .. } => {
                let value = values.get_mut(&(dataset, index));
                value.expect("a partition of a kept dataset")
            }
        }
    }

    /// Fingerprints of what the caller has given.
    pub(crate) fn sources(&self) -> Vec<SourceMark> {
        store::sources(self.plan()).unwrap_or_default()
    }

    /// The kept datasets.
    pub(crate) fn kept(&self) -> Vec<DatasetId> {
        let datasets = (0..)
            .map(DatasetId)
            .zip(&self.plan().program.spec().datasets);
        let kept = datasets.filter(|(_, dataset)| dataset.keep);
        kept.map(|(id, _)| id).collect()
    }

    /// How many partitions a dataset has.
    pub fn partitions(&self, dataset: DatasetId) -> u32 {
        let plan = self.plan();
        plan.counts[plan.group_of_dataset[dataset.index()].index()]
    }

    /// What the job did: tasks, time, memory.
    pub fn tally(&self) -> Tally {
        match &self.left {
            Left::Here(job) => job.tally(),
            Left::Fetched { tally, .. } => *tally,
        }
    }
}

impl Outcome {
    /// What the job did and where its threads' time went: the input of a report.
    ///
    /// ```
    /// use brambling::prelude::*;
    ///
    /// let mut p = Program::new("count");
    /// let counts = p.dataset::<u64>("counts", 4);
    /// p.compute("bump").update(&counts).run(|count: &mut u64| *count += 1);
    /// let ledger = RunOptions::new().threads(2).run(p)?.ledger();
    /// assert_eq!((ledger.workers.len(), ledger.workers[0].tasks), (1, 4));
    /// let thread = &ledger.workers[0].threads[0];
    /// assert!((thread.parts.total() - thread.wall_s).abs() <= 0.02 * thread.wall_s);
    /// # Ok::<(), brambling::Error>(())
    /// ```
    pub fn ledger(&mut self) -> Ledger {
        match &mut self.left {
            Left::Here(job) => ledger::here(job),
            Left::Fetched { ledger, .. } => (**ledger).clone(),
        }
    }
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Outcome({}, {:?})",
            self.plan().program.spec().name,
            self.tally()
        )
    }
}
