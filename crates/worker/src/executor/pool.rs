//! The process's threads: they stay between jobs, and run one job at a time.

use super::failure::{Failure, Rank};
use super::job::Job;
use super::panics;
use super::stall::{Watchdog, describe};
use super::thread::Worker;
use brambling_exchange::in_process::fences;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the calling thread looks for signals and stalls.
const CALLER_LOOKS: Duration = Duration::from_millis(20);
/// How long the calling thread runs its stages before it looks for signals.
const CALLER_SLICE: Duration = Duration::from_millis(10);

/// The user asked the job to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interrupted;

/// How far a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advance<'a> {
    /// The program's name.
    pub program: &'a str,
    /// Tasks retired so far, as the threads have told it.
    pub tasks: u64,
    /// Tasks from beginning to end; none where signals decide how many.
    pub tasks_total: Option<u64>,
    /// How long the job has run.
    pub elapsed: Duration,
}

/// The thread that runs a job and waits for it: it is asked for interruptions, and runs the stages that
/// are its own.
pub trait Caller {
    /// Told how far the job is, every few milliseconds, before it is asked for interruptions.
    fn advanced(&mut self, _advance: Advance<'_>) {}
    /// Whether the user wants the job to end. Asked every few milliseconds.
    fn check(&mut self) -> Result<(), Interrupted>;
    /// Runs stages that need what only this thread has, such as an interpreter's lock.
    fn run_stages(&mut self, run: &mut dyn FnMut()) {
        run();
    }
}

/// A caller that is never interrupted.
pub struct QuietCaller;

impl Caller for QuietCaller {
    fn check(&mut self) -> Result<(), Interrupted> {
        Ok(())
    }
}

#[derive(Default)]
struct Desk {
    job: Option<Arc<Job>>,
    /// Grows with each job, so that a thread takes each once.
    ticket: u64,
    /// Threads that have not left the current job yet.
    busy: u32,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    desk: Mutex<Desk>,
    arrived: Condvar,
    left: Condvar,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads that run jobs, one job at a time.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    one_at_a_time: Mutex<()>,
}

impl Pool {
    /// Starts threads; `oversubscribed` says that there are fewer CPUs than threads, so that they sleep at
    /// once instead of polling.
    ///
    /// # Errors
    /// When the operating system gives no more threads.
    pub fn new(threads: u32, oversubscribed: bool) -> std::io::Result<Pool> {
        panics::install_hook();
        fences::prepare();
        let shared = Arc::<Shared>::default();
        let mut pool = Pool {
            shared: shared.clone(),
            threads: Vec::new(),
            one_at_a_time: Mutex::new(()),
        };
        for thread in 0..threads {
            let shared = shared.clone();
            let builder = std::thread::Builder::new().name(format!("brambling-{thread}"));
            pool.threads
                .push(builder.spawn(move || serve(&shared, thread, oversubscribed))?);
        }
        Ok(pool)
    }

    /// How many threads there are.
    pub fn threads(&self) -> u32 {
        self.threads.len() as u32
    }

    /// Runs a job to its end. When this returns, no thread touches the job any more.
    ///
    /// # Errors
    /// The failure of the least rank.
    ///
    /// # Panics
    /// When the job was placed on another number of threads.
    pub fn run(&self, job: &Arc<Job>, caller: &mut dyn Caller) -> Result<(), Failure> {
        assert_eq!(
            job.threads(),
            self.threads(),
            "a job runs on the threads it was placed on"
        );
        let turn = self
            .one_at_a_time
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *job.caller.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current());
        if job.residents.is_empty() {
            return Ok(());
        }
        let mut desk = self.shared.desk();
        desk.job = Some(job.clone());
        desk.ticket += 1;
        desk.busy = self.threads();
        drop(desk);
        self.shared.arrived.notify_all();
        // Whatever the caller's own code does, the threads have left the job before this returns.
        let leaving = Leaving {
            shared: &self.shared,
            job,
        };
        let stalled = attend(job, caller);
        drop(leaving);
        drop(turn);
        if let Some(after) = stalled {
            return Err(describe(job, after));
        }
        let failure = job
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        failure.map_or(Ok(()), |(_, failure)| Err(failure))
    }
}

struct Leaving<'a> {
    shared: &'a Shared,
    job: &'a Job,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.job.stop();
        let mut desk = self.shared.desk();
        while desk.busy > 0 {
            desk = self
                .shared
                .left
                .wait(desk)
                .unwrap_or_else(PoisonError::into_inner);
        }
        desk.job = None;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.desk().closed = true;
        self.shared.arrived.notify_all();
        for thread in self.threads.drain(..) {
            // A thread of ours that panicked has said so already.
            let _ = thread.join();
        }
    }
}

/// What the calling thread does until the job ends: its own stages, signals, the watchdog. Gives how long
/// nothing had moved when it gave up.
fn attend(job: &Job, caller: &mut dyn Caller) -> Option<Duration> {
    let own = job.threads();
    let station = &job.stations[own as usize];
    let mut watchdog = Watchdog::new();
    let mut looked = Instant::now();
    let mut left_over = false;
    let tasks_total = job.plan.task_count();
    while !job.stop.load(Ordering::SeqCst) {
        if left_over || station.mail.has_any() {
            // Stages without a caller's own are not here, so this is not entered for each of its slices.
            caller.run_stages(&mut || left_over = Worker::new(job, own).work_for(CALLER_SLICE));
        } else {
            std::thread::park_timeout(CALLER_LOOKS);
        }
        if looked.elapsed() >= CALLER_LOOKS {
            looked = Instant::now();
            caller.advanced(Advance {
                program: &job.plan.program.spec().name,
                tasks: job.tasks_retired(),
                tasks_total,
                elapsed: job.started.get().map_or(Duration::ZERO, Instant::elapsed),
            });
            if caller.check().is_err() {
                job.fail(Rank::Interrupted, Failure::Interrupted);
            } else if let Some(after) = watchdog.look(job) {
                job.stop();
                return Some(after);
            }
        }
    }
    None
}

/// A thread's life: job after job.
fn serve(shared: &Shared, thread: u32, oversubscribed: bool) {
    let mut ticket = 0;
    loop {
        let mut desk = shared.desk();
        let job = loop {
            if desk.closed {
                return;
            }
            match &desk.job {
                Some(job) if desk.ticket != ticket => break job.clone(),
                _ => {
                    desk = shared
                        .arrived
                        .wait(desk)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        };
        ticket = desk.ticket;
        drop(desk);
        Worker::new(&job, thread).work(oversubscribed);
        drop(job);
        let mut desk = shared.desk();
        desk.busy -= 1;
        if desk.busy == 0 {
            shared.left.notify_all();
        }
    }
}
