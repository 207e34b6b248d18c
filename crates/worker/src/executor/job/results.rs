//! What a job leaves when it has ended.

use super::Job;
use crate::executor::failure::Failure;
use crate::executor::tally::Tally;
use crate::executor::times::KernelTimes;
use crate::executor::travel;
use brambling_program::{DatasetId, Payload, ShardId, Value};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Job {
    /// What the job did.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally {
            threads: self.threads(),
            ..Tally::default()
        };
        tally.wall = Duration::from_nanos(self.wall_ns.load(Ordering::Relaxed) as u64);
        for thread in self
            .thread_states
            .iter()
            .map(|thread_state| &thread_state.tally)
        {
            tally.tasks += thread.tasks.load(Ordering::Relaxed);
            tally.slices += thread.slices.load(Ordering::Relaxed);
            tally.busy += Duration::from_nanos(thread.busy_ns.load(Ordering::Relaxed));
            tally.stolen += thread.stolen.load(Ordering::Relaxed);
        }
        tally.peak_bytes = self.options.budget.peak_bytes();
        tally
    }

    /// How long its kernels ran, after the job has ended; nothing when it was not asked to note that.
    pub fn kernel_times(&self) -> KernelTimes {
        KernelTimes::of(self.plan.program.spec().stages.len(), &self.notebooks)
    }

    /// Takes a partition's value after the job has ended, when its dataset was kept.
    ///
    /// # Panics
    /// When the job is still running, or `T` is not the dataset's type.
    pub fn take<T: Payload>(&mut self, dataset: DatasetId, index: u32) -> T {
        let cell = self.plan.cell(dataset);
        let number = self.number(self.plan.group_of_dataset[dataset.index()], index);
        let body = self.residents[number as usize]
            .body
            .get_mut()
            .as_mut()
            .expect("the job has run");
        let table = body.cells[cell].payload_type();
        let value = std::mem::replace(&mut body.cells[cell], Value::default_of(table));
        value.take().unwrap_or_else(|value| {
            panic!("a dataset of {:?} was asked for as another type", value)
        })
    }

    /// Whether a partition is on this worker after the job has ended. Unpacks it if it has just come.
    ///
    /// # Errors
    /// When it has come and cannot be read.
    pub fn holds(&mut self, dataset: DatasetId, index: u32) -> Result<bool, Failure> {
        let group = self.plan.group_of_dataset[dataset.index()];
        let number = self.number(group, index) as usize;
        let arrived = self
            .remote
            .as_ref()
            .and_then(|remote| remote.take_arrived(number as u32));
        if let Some(mut parts) = arrived {
            let body = travel::unpack(self, ShardId { group, index }, &mut parts);
            let (body, _) = body.map_err(|error| Failure::Internal {
                message: error.to_string(),
            })?;
            *self.residents[number].body.get_mut() = Some(body);
        }
        Ok(self.residents[number].body.get_mut().is_some())
    }

    /// The partition's value after the job has ended, of whatever type.
    pub fn value(&mut self, dataset: DatasetId, index: u32) -> &mut Value {
        let cell = self.plan.cell(dataset);
        let number = self.number(self.plan.group_of_dataset[dataset.index()], index);
        let body = self.residents[number as usize].body.get_mut().as_mut();
        &mut body.expect("the job has run").cells[cell]
    }
}
