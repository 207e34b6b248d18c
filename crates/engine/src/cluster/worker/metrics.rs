//! What a worker's metrics show, and what its jobs did that are no more.

use super::super::metrics::{MetricsEndpoint, MetricsListener, Text, carried, process, table};
use super::super::{ClusterError, WorkerId};
use super::{Hosted, State, WorkerProcess, WorkerShared};
use brambling_exchange::transports::tcp::Carried;
use brambling_protocol::JobKey;
use brambling_storage::SpillCounts;
use brambling_worker::executor::Tally;
use std::sync::Arc;
use std::time::Duration;

/// What the worker has done, in all jobs.
#[derive(Clone, Copy, Default)]
pub(super) struct Done {
    pub(super) tasks: u64,
    pub(super) busy: Duration,
}

impl Done {
    pub(super) fn add(&mut self, tally: &Tally) {
        self.tasks += tally.tasks;
        self.busy += tally.busy;
    }
}

/// Jobs that are no more.
#[derive(Default)]
pub(super) struct EndedJobs {
    pub(super) done: Done,
    /// Their tasks, which the controller is told with the next heartbeat: it may have heard the last one before they ended.
    pub(super) unsaid: Vec<(JobKey, u64)>,
}

impl EndedJobs {
    /// A job is no more. What it still runs does not count.
    pub(super) fn add(&mut self, job: &Hosted) {
        let tally = job.tally();
        self.done.add(&tally);
        self.unsaid.push((job.key(), tally.tasks));
    }
}

impl State {
    /// What the worker has done, in jobs that are no more and in those that it has, each of which is seen. Under the lock of both: a job that
    /// ends counts once.
    pub(super) fn done(&self, mut seen: impl FnMut(JobKey, &Tally)) -> Done {
        let mut done = self.ended.done;
        for job in self.jobs.values() {
            let tally = job.tally();
            seen(job.key(), &tally);
            done.add(&tally);
        }
        done
    }
}

/// How a worker fares, at one moment.
struct Survey {
    name: Option<WorkerId>,
    done: Done,
    jobs: usize,
    shards: usize,
    threads: u32,
    memory_bytes: u64,
    memory_limit_bytes: u64,
    spilled: SpillCounts,
    carried: Carried,
}

impl WorkerProcess {
    /// Serves what it counts to Prometheus, until what this gives is dropped or the worker ends. Whoever reaches the listener reads it: there is
    /// no token.
    ///
    /// # Errors
    /// When the system gives no thread or poll.
    pub fn serve_metrics(
        &self,
        listener: MetricsListener,
    ) -> Result<MetricsEndpoint, ClusterError> {
        let shared = Arc::downgrade(&self.shared);
        MetricsEndpoint::start(listener, move || {
            let survey = Survey::take(&*shared.upgrade()?);
            let mut text = Text::default();
            process(&mut text, "worker");
            survey.write(&mut text);
            Some(text.finish())
        })
    }
}

impl Survey {
    fn take(shared: &WorkerShared) -> Survey {
        let state = shared.state();
        let name = state.me;
        let done = state.done(|_, _| ());
        let jobs: Vec<Arc<Hosted>> = state.jobs.values().cloned().collect();
        drop(state);
        let mut carried = shared.board().carried();
        carried += shared.control().carried();
        Survey {
            name,
            done,
            jobs: jobs.len(),
            shards: jobs.iter().map(|job| job.shards()).sum(),
            threads: shared.pool.threads(),
            memory_bytes: shared.memory.in_use_bytes(),
            memory_limit_bytes: shared.memory.budget_bytes(),
            spilled: (shared.spilling.as_ref())
                .map_or_else(SpillCounts::default, |it| it.directory.counts()),
            carried,
        }
    }

    fn write(&self, text: &mut Text) {
        carried(text, self.carried);
        let mut info = text.family(&table::WORKER_INFO);
        if let Some(name) = self.name {
            let host = gethostname::gethostname();
            info.add(&[&name.to_string(), &host.to_string_lossy()], 1_u32);
        }
        text.one(&table::TASKS, self.done.tasks);
        text.one(&table::BUSY_SECONDS, self.done.busy);
        text.one(&table::THREADS, self.threads);
        text.one(&table::HOSTED_JOBS, self.jobs);
        text.one(&table::SHARDS, self.shards);
        text.one(&table::MEMORY_BYTES, self.memory_bytes);
        text.one(&table::MEMORY_LIMIT_BYTES, self.memory_limit_bytes);
        text.one(&table::SPILLS, self.spilled.spills);
        text.one(&table::SPILLED_BYTES, self.spilled.spilled_bytes);
        text.one(&table::SPILL_READS, self.spilled.reads);
        text.one(&table::SPILL_READ_BYTES, self.spilled.read_bytes);
    }
}
