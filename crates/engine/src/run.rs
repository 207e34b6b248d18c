//! Running a program on the threads of this process.

use crate::interrupt::CtrlC;
use crate::{Error, Outcome, Resolved, Settings, TaskTimes};
use brambling_memory::{Budget, Floors};
use brambling_operators::simd;
use brambling_program::{Bindings, Plan, Program};
use brambling_worker::executor::{Caller, Job, JobOptions, Pool};
use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};

/// How a program is run. Unset options come from the environment, `brambling.toml`, and defaults.
///
/// ```
/// use brambling::prelude::*;
///
/// let mut p = Program::new("count");
/// let n = p.symbol("n");
/// let ones = p.value("ones", n, 1u64);
/// let total = p.dataset::<u64>("total", 1);
/// p.reduce_to(Sum, &ones, &total);
/// let mut outcome = RunOptions::new().threads(2).bind("n", 100).run(p)?;
/// assert_eq!(outcome.take(&total), 100);
/// # Ok::<(), brambling::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    settings: Settings,
    bindings: Bindings,
    task_times: Option<TaskTimes>,
}

thread_local! {
    static IN_JOB: Cell<bool> = const { Cell::new(false) };
}

/// While this lives, its thread runs a job: also when the caller's own code unwinds.
struct InJob;

impl InJob {
    fn enter() -> InJob {
        IN_JOB.set(true);
        InJob
    }
}

impl Drop for InJob {
    fn drop(&mut self) {
        IN_JOB.set(false);
    }
}

impl RunOptions {
    /// Nothing set.
    pub fn new() -> RunOptions {
        RunOptions::default()
    }

    /// Threads, 1 to 1,024.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.settings.threads = Some(threads);
        self
    }

    /// Partitions of blocked datasets whose count nobody gives, 1 to 16,777,216. Without this they follow the
    /// data.
    #[must_use]
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.settings.partitions = Some(partitions);
        self
    }

    /// The memory budget: bytes, or a number with KB, MB, GB or TB.
    #[must_use]
    pub fn memory(mut self, memory: impl Into<String>) -> Self {
        self.settings.memory = Some(memory.into());
        self
    }

    /// Seconds without progress after which a job that waits for completions is ended.
    #[must_use]
    pub fn stall_seconds(mut self, seconds: f64) -> Self {
        self.settings.stall_seconds = Some(seconds);
        self
    }

    /// Binds a symbolic partition count.
    #[must_use]
    pub fn bind(mut self, symbol: impl Into<String>, count: u32) -> Self {
        self.bindings = self.bindings.bind(symbol, count);
        self
    }

    /// Has the job note how long each task takes, and leave that in `times`.
    #[must_use]
    pub fn task_times(mut self, times: &TaskTimes) -> Self {
        self.task_times = Some(times.clone());
        self
    }

    /// The settings, every source consulted.
    ///
    /// # Errors
    /// As [`Settings::resolve`].
    pub fn resolve(&self) -> Result<Resolved, Error> {
        Ok(self.settings.resolve()?)
    }

    /// Runs a program to its end. Ctrl-C ends it early.
    ///
    /// # Errors
    /// What is wrong with the program or a setting, or how the job failed.
    pub fn run(&self, program: Program) -> Result<Outcome, Error> {
        self.run_with(program, &mut CtrlC::watch())
    }

    /// As [`RunOptions::run`]; `caller` is asked for interruptions and runs the stages that are its own.
    ///
    /// # Errors
    /// As [`RunOptions::run`].
    pub fn run_with(&self, program: Program, caller: &mut dyn Caller) -> Result<Outcome, Error> {
        if IN_JOB.get() || on_worker_thread() {
            return Err(Error::Nested);
        }
        let settings = self.settings.resolve()?;
        simd::select(settings.isa)?;
        let plan = Plan::compile(Arc::new(program), &self.bindings)?;
        let pool = pool(&settings)?;
        let options = JobOptions {
            budget: Budget::new(settings.memory_bytes, Floors::of(settings.memory_bytes)),
            stall: settings.stall,
            timed_calls: self.task_times.as_ref().map(TaskTimes::tasks_per_thread),
        };
        let job = Job::new(plan, pool.threads(), options);
        let in_job = InJob::enter();
        pool.run(&job, caller)?;
        drop(in_job);
        if let Some(times) = &self.task_times {
            times.keep(&job);
        }
        Ok(Outcome::new(job))
    }
}

fn on_worker_thread() -> bool {
    std::thread::current()
        .name()
        .is_some_and(|name| name.starts_with("brambling-"))
}

/// Runs a program on the threads of this process, with options from the environment, `brambling.toml` and
/// defaults.
///
/// # Errors
/// What is wrong with the program or a setting, or how the job failed.
pub fn run(program: Program) -> Result<Outcome, Error> {
    RunOptions::new().run(program)
}

/// The process's pool for a number of threads: started on first use, kept.
fn pool(settings: &Resolved) -> Result<Arc<Pool>, Error> {
    static POOLS: Mutex<Vec<Arc<Pool>>> = Mutex::new(Vec::new());
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.iter().find(|pool| pool.threads() == settings.threads) {
        return Ok(pool.clone());
    }
    let pool =
        Pool::new(settings.threads, settings.oversubscribed).map_err(|source| Error::Threads {
            threads: settings.threads,
            source,
        })?;
    pools.push(Arc::new(pool));
    Ok(pools.last().expect("just pushed").clone())
}
