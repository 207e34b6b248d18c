//! Running a program: on the threads of this process, or on a cluster's workers.

use crate::cluster::{Cluster, ClusterError};
use crate::interrupt::CtrlC;
use crate::ledger;
use crate::restore::{give_restored, take_restore};
use crate::store::{StoreCaller, Stored};
use crate::{Error, Failure, Ledgers, Outcome, Resolved, Settings, SpillTo, TaskTimes};
use brambling_machine::Ledger;
use brambling_memory::{BudgetShare, Memory, Spill};
use brambling_operators::simd;
use brambling_program::{Bindings, Plan, Program};
use brambling_worker::executor::{
    CALLER_LOOKS, Caller, Job, JobOptions, JobSpill, Pool, QuietCaller, SpilledBytes,
};
use std::cell::Cell;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

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
    ledgers: Option<Ledgers>,
    place: RunsOn,
    pub(crate) grid: Option<u32>,
    /// Where a job that runs here spills whatever the setting says.
    spill_to: Option<SpillTo>,
    /// See [`JobOptions::exchange_bytes_max`].
    exchange_bytes_max: Option<u64>,
}

/// Where a program runs.
#[derive(Clone, Debug, Default)]
enum RunsOn {
    #[default]
    Here,
    On {
        cluster: Arc<Cluster>,
        described: Option<Arc<[u8]>>,
    },
    /// It does not: whoever wants the program itself takes it from there.
    Nowhere(Arc<Mutex<Option<Program>>>),
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
    /// data. A graph has its [grid](RunOptions::grid).
    #[must_use]
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.settings.partitions = Some(partitions);
        self
    }

    /// Partitions of a graph's edges, at least 1, of which as many as make a grid of two nearly equal sides are used, and at
    /// most 1,024. Without this they follow the graph alone. They enter sums: ranks have the same bits for equal grids.
    #[must_use]
    pub fn grid(mut self, partitions: u32) -> Self {
        self.grid = Some(partitions);
        self
    }

    /// The memory budget: bytes, or a number with KB, MB, GB or TB.
    #[must_use]
    pub fn memory(mut self, memory: impl Into<String>) -> Self {
        self.settings.memory = Some(memory.into());
        self
    }

    /// Keeps snapshots of the job, and its results, in a directory or in `s3://BUCKET/PREFIX`: a process that is killed and started again with the
    /// same command goes on from there. See [`clear_stored`](crate::clear_stored) for when they go.
    #[must_use]
    pub fn store(mut self, store: impl Into<String>) -> Self {
        self.settings.store = Some(store.into());
        self
    }

    /// How often a job with a [store](RunOptions::store) is saved: a time such as `10s`, a number of turns such as `20 turns`, or `off`.
    #[must_use]
    pub fn snapshot_every(mut self, every: impl Into<String>) -> Self {
        self.settings.snapshot_every = Some(every.into());
        self
    }

    /// Seconds without progress after which a job that waits for completions is ended.
    #[must_use]
    pub fn stall_seconds(mut self, seconds: f64) -> Self {
        self.settings.stall_seconds = Some(seconds);
        self
    }

    /// The job's share of the threads while other jobs run on them, 1 to 1,000: twice as much as a job of half its weight.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.settings.weight = Some(weight);
        self
    }

    /// Binds a symbolic partition count.
    #[must_use]
    pub fn bind(mut self, symbol: impl Into<String>, count: u32) -> Self {
        self.bindings = self.bindings.bind(symbol, count);
        self
    }

    /// Where a job that runs here spills chunks that find no room.
    #[must_use]
    pub(crate) fn spill_to(mut self, directory: &Path) -> Self {
        self.spill_to = Some(SpillTo {
            directory: directory.into(),
            limit_bytes: None,
        });
        self
    }

    /// No more than about so many bytes of chunks wait in memory, of a job that runs here and spills.
    #[must_use]
    pub(crate) fn exchange_bytes_max(mut self, bytes: Option<u64>) -> Self {
        self.exchange_bytes_max = bytes;
        self
    }

    /// Has the job note how long each task takes, and leave that in `times`.
    #[must_use]
    pub fn task_times(mut self, times: &TaskTimes) -> Self {
        self.task_times = Some(times.clone());
        self
    }

    /// Has each job leave what it did, and where its threads' time went, in `ledgers`.
    #[must_use]
    pub fn ledgers(mut self, ledgers: &Ledgers) -> Self {
        self.ledgers = Some(ledgers.clone());
        self
    }

    /// Takes what is in [`RunOptions::ledgers`], if anything was given there.
    pub fn kept_ledgers(&self) -> Vec<Ledger> {
        self.ledgers.as_ref().map(Ledgers::take).unwrap_or_default()
    }

    /// Runs on a cluster's workers instead of this process's threads: models of [`ml`](crate::ml), analyses of [`graph`](crate::graph), programs that
    /// are registered with [`links!`](crate::program::links) and those that are [described](RunOptions::described_by). What this process's program makes,
    /// such as the rows of an array, goes once to the worker that holds it.
    ///
    /// ```no_run
    /// use brambling::cluster::{Cluster, Rendezvous};
    /// use brambling::ml::LogisticRegression;
    /// use brambling::prelude::*;
    /// use std::sync::Arc;
    ///
    /// let cluster = Arc::new(Cluster::connect(&Rendezvous::find(None, None, None)?)?);
    /// let options = RunOptions::new().on(&cluster);
    /// let (x, y) = (vec![1.0, 2.0, 3.0, 4.0], vec![0.0, 0.0, 1.0, 1.0]);
    /// let fitted = LogisticRegression::default().fit_owned(x, y, 1, &options)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn on(mut self, cluster: &Arc<Cluster>) -> Self {
        self.place = RunsOn::On {
            cluster: cluster.clone(),
            described: None,
        };
        self
    }

    /// What a worker's [`Source`](crate::cluster::Source) builds the same program of. Says nothing about programs that run here.
    #[must_use]
    pub fn described_by(mut self, bytes: impl Into<Arc<[u8]>>) -> Self {
        if let RunsOn::On { described, .. } = &mut self.place {
            *described = Some(bytes.into());
        }
        self
    }

    /// The program that `call` would run with the options that it is given: for a [`Source`](crate::cluster::Source), which
    /// builds what its client runs. The program is not run: `call` sees its run interrupted.
    ///
    /// # Errors
    /// What `call` returned, when it has run no program.
    pub fn program_of<R>(
        mut self,
        call: impl FnOnce(&RunOptions, &mut dyn Caller) -> R,
    ) -> Result<Program, R> {
        let slot = Arc::default();
        self.place = RunsOn::Nowhere(Arc::clone(&slot));
        let returned = call(&self, &mut QuietCaller);
        let taken = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or(returned)
    }

    /// The cluster that it runs on, if it does.
    pub(crate) fn cluster(&self) -> Option<&Arc<Cluster>> {
        match &self.place {
            RunsOn::On { cluster, .. } => Some(cluster),
            _ => None,
        }
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
        let mut outcome = self.run_there(program, caller)?;
        if let Some(ledgers) = &self.ledgers {
            ledgers.keep(outcome.ledger());
        }
        Ok(outcome)
    }

    fn run_there(&self, mut program: Program, caller: &mut dyn Caller) -> Result<Outcome, Error> {
        give_restored(&mut program)?;
        match &self.place {
            RunsOn::Here => self.run_here(program, caller),
            RunsOn::On { cluster, described } => {
                self.refuse_own()?;
                let resolved = self.resolve()?;
                let (weight, every) = (resolved.weight, resolved.snapshot_every);
                // What nobody has set is as the cluster has it.
                let every = self.settings.snapshot_every.is_some().then_some(every);
                let plan = Plan::compile(Arc::new(program), &self.bindings)?;
                match described {
                    Some(bytes) => cluster.run_saved(plan, bytes, weight, every, caller),
                    None => {
                        let bytes = linked(&plan)?;
                        cluster.run_saved(plan, &bytes, weight, every, caller)
                    }
                }
            }
            RunsOn::Nowhere(slot) => {
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(program);
                Err(Failure::Interrupted.into())
            }
        }
    }

    /// Refuses what says how this process works, where others do.
    fn refuse_own(&self) -> Result<(), ClusterError> {
        let own = [
            ("threads", self.settings.threads.is_some()),
            ("memory", self.settings.memory.is_some()),
            ("stall_seconds", self.settings.stall_seconds.is_some()),
            ("task_times", self.task_times.is_some()),
            ("store", self.settings.store.is_some()),
        ];
        match own.into_iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((option, _)) => Err(ClusterError::OwnOption { option }),
        }
    }

    fn run_here(&self, program: Program, caller: &mut dyn Caller) -> Result<Outcome, Error> {
        let asked = Instant::now();
        if IN_JOB.get() || on_worker_thread() {
            return Err(Error::Nested);
        }
        let settings = self.settings.resolve()?;
        simd::select(settings.isa)?;
        let plan = Plan::compile(Arc::new(program), &self.bindings)?;
        let chosen = take_restore(&plan)?;
        let going_on = (chosen.as_ref())
            .map(|chosen| chosen.restored(&plan))
            .transpose()?;
        let stored = match &chosen {
            // It is kept where it was, and under another command.
            Some(chosen) => {
                caller.told(&chosen.line());
                None
            }
            None => Stored::begin(&settings, &plan, caller)?,
        };
        let mut stored = match stored {
            Some(Stored::Ended(results)) => {
                let mut outcome = results.into_outcome(plan);
                ledger::record(&mut outcome);
                return Ok(outcome);
            }
            Some(Stored::Begins(begins)) => Some(begins),
            None => None,
        };
        let pool = pool(&settings)?;
        let share = share(&settings, caller)?;
        let spilled = Arc::<SpilledBytes>::default();
        let spill_to = self.spill_to.as_ref().or(settings.spill.as_ref());
        let opened = spill_to.map(SpillTo::open).transpose();
        let opened = opened.map_err(|source| ClusterError::Spill { source })?;
        let spill = opened
            .map(|to| Arc::new(JobSpill::new(Arc::new(to), spilled.clone())) as Arc<dyn Spill>);
        let options = JobOptions {
            budget: share.budget().clone(),
            stall: settings.stall,
            timed_calls: self.task_times.as_ref().map(TaskTimes::tasks_per_thread),
            weight: settings.weight,
            files: None,
            spill,
            exchange_bytes_max: self.exchange_bytes_max,
            asked: Some(asked),
            spilled,
            cuts: stored.as_ref().map(|it| it.keeper()),
            restored: going_on.or_else(|| stored.as_mut().and_then(|it| it.restored())),
        };
        let job = Job::new(plan, pool.parkers(), options);
        let coordinating = stored.map(|it| it.coordinate(&job)).transpose()?;
        let in_job = InJob::enter();
        let ran = match &coordinating {
            Some(coordinating) => pool.run(&job, &mut StoreCaller::of(caller, coordinating)),
            None => pool.run(&job, caller),
        };
        let kept = coordinating.map(|it| it.end());
        if let Err(failure) = ran {
            kept.into_iter().for_each(|kept| kept.tell(caller));
            return Err(failure.into());
        }
        // What it has left is its caller's from now on.
        drop((in_job, share));
        if let Some(times) = &self.task_times {
            times.keep(&job);
        }
        let mut outcome = Outcome::new(job);
        if let Some(kept) = kept {
            kept.keep(&mut outcome, caller);
        }
        ledger::record(&mut outcome);
        Ok(outcome)
    }
}

/// The bytes that workers link the program from.
fn linked(plan: &Plan) -> Result<Vec<u8>, ClusterError> {
    plan.program
        .encode()
        .map_err(|source| ClusterError::NotLinked {
            name: plan.program.spec().name.clone(),
            source,
        })
}

/// A program on its way: how it is run, and who waits for it.
pub(crate) struct ProgramRun<'o, 'c> {
    pub(crate) options: &'o RunOptions,
    /// None: Ctrl-C ends it.
    pub(crate) caller: Option<&'c mut dyn Caller>,
}

impl ProgramRun<'_, '_> {
    pub(crate) fn run(self, program: Program) -> Result<Outcome, Error> {
        match self.caller {
            Some(caller) => self.options.run_with(program, caller),
            None => self.options.run(program),
        }
    }
}

/// The memory of this process's jobs.
fn memory() -> &'static Memory {
    static MEMORY: OnceLock<Memory> = OnceLock::new();
    // The first job says how much that is.
    MEMORY.get_or_init(|| Memory::new(0))
}

/// A job's share of this process's memory. It waits for that, as long as its caller does.
fn share(settings: &Resolved, caller: &mut dyn Caller) -> Result<BudgetShare, Error> {
    let queued = memory().queue();
    let since = Instant::now();
    loop {
        match queued.admit(settings.weight, settings.memory_bytes) {
            Ok(share) => return Ok(share),
            Err(waits) => caller.waits(&waits.to_string(), since.elapsed()),
        }
        if caller.check().is_err() {
            return Err(Failure::Interrupted.into());
        }
        queued.wait(CALLER_LOOKS);
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
