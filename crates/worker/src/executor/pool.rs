//! The process's threads: they stay between jobs, and run one job at a time.

use super::failure::Failure;
use super::job::Job;
use super::panics;
use super::stall::Watchdog;
use super::tally::count;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an idle thread polls before it sleeps: about twice what a sleep and a wake-up cost.
const POLL: Duration = Duration::from_micros(75);
/// How long work must have waited in another thread's queue before it is stolen.
const STEAL_AFTER: Duration = Duration::from_micros(20);
/// The longest sleep: whatever went wrong, a thread looks around now and then.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// How often the calling thread looks for signals and stalls.
const CALLER_LOOKS: Duration = Duration::from_millis(20);
/// How long the calling thread runs its stages before it looks for signals.
const CALLER_SLICE: Duration = Duration::from_millis(10);
const SPINS: u32 = 64;

/// The user asked the job to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interrupted;

/// The thread that runs a job and waits for it: it is asked for interruptions, and runs the stages that
/// are its own.
pub trait Caller {
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
    /// The first failure.
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
        for (number, resident) in job.residents.iter().enumerate() {
            job.queues[resident.home as usize].push(number as u32);
        }
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
        attend(job, caller);
        drop(leaving);
        drop(turn);
        let failure = job
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        failure.map_or(Ok(()), Err)
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

/// What the calling thread does until the job ends: its own stages, signals, the watchdog.
fn attend(job: &Job, caller: &mut dyn Caller) {
    let own = job.threads();
    let queue = &job.queues[own as usize];
    let mut watchdog = Watchdog::new();
    let mut looked = Instant::now();
    let mut cursor = 0;
    while !job.stop.load(Ordering::SeqCst) {
        if !queue.is_empty() {
            caller.run_stages(&mut || {
                let started = Instant::now();
                let mut clock = started;
                while clock.duration_since(started) < CALLER_SLICE
                    && !job.stop.load(Ordering::SeqCst)
                {
                    let Some(number) = queue.pop(&mut cursor) else {
                        break;
                    };
                    clock = job.run_slice(number, own, clock);
                }
            });
        } else {
            std::thread::park_timeout(CALLER_LOOKS);
        }
        if looked.elapsed() >= CALLER_LOOKS {
            looked = Instant::now();
            if caller.check().is_err() {
                job.fail(Failure::Interrupted);
            } else if let Some(failure) = watchdog.look(job) {
                job.fail(failure);
            }
        }
    }
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
        work(&job, thread, oversubscribed);
        drop(job);
        let mut desk = shared.desk();
        desk.busy -= 1;
        if desk.busy == 0 {
            shared.left.notify_all();
        }
    }
}

/// Runs slices until the job stops.
fn work(job: &Job, thread: u32, oversubscribed: bool) {
    let queue = &job.queues[thread as usize];
    let mut cursor = 0;
    let mut thief = Thief::new(thread, job.threads());
    let mut clock = Instant::now();
    let poll = if oversubscribed { Duration::ZERO } else { POLL };
    let mut spins = 0;
    while !job.stop.load(Ordering::Relaxed) {
        if let Some(number) = queue.pop(&mut cursor) {
            if spins > 0 {
                // After idling the last reading is old: this slice must not answer for the wait.
                clock = Instant::now();
                spins = 0;
            }
            clock = job.run_slice(number, thread, clock);
            share_work(job, thread, queue.is_empty());
            continue;
        }
        spins += 1;
        if spins % SPINS != 0 {
            std::hint::spin_loop();
            continue;
        }
        let now = Instant::now();
        if let Some(number) = thief.steal(job, now) {
            count(&job.tallies[thread as usize].stolen, 1);
            clock = job.run_slice(number, thread, now);
            spins = 0;
        } else if now.duration_since(clock) >= poll {
            let has_work = || !queue.is_empty() || job.stop.load(Ordering::SeqCst);
            job.beds[thread as usize].sleep(SLEEP_MAX, has_work);
            clock = Instant::now();
        } else if spins % (SPINS * 16) == 0 {
            std::thread::yield_now();
        }
    }
}

/// A thread that leaves work waiting while others sleep wakes one of them to steal it.
#[inline]
fn share_work(job: &Job, thread: u32, empty: bool) {
    if empty {
        return;
    }
    let asleep = job
        .beds
        .iter()
        .enumerate()
        .find(|(other, bed)| *other as u32 != thread && bed.is_asleep());
    if let Some((_, bed)) = asleep {
        bed.wake();
    }
}

/// Takes what has waited in others' queues.
struct Thief {
    thread: u32,
    victim: u32,
    threads: u32,
    seen: Vec<u64>,
    since: Option<Instant>,
}

impl Thief {
    fn new(thread: u32, threads: u32) -> Thief {
        Thief {
            thread,
            victim: thread,
            threads,
            seen: Vec::new(),
            since: None,
        }
    }

    fn steal(&mut self, job: &Job, now: Instant) -> Option<u32> {
        if self.threads < 2 {
            return None;
        }
        if let Some(since) = self.since {
            if now.duration_since(since) < STEAL_AFTER {
                return None;
            }
            let stolen = job.queues[self.victim as usize].steal(&self.seen);
            if stolen.is_some() {
                self.since = None;
                return stolen;
            }
        }
        self.victim = (self.victim + 1) % self.threads;
        if self.victim == self.thread {
            self.victim = (self.victim + 1) % self.threads;
        }
        job.queues[self.victim as usize].look(&mut self.seen);
        self.since = Some(now);
        None
    }
}
