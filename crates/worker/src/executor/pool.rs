//! Owns the process's threads, which stay between jobs, and the list of jobs that run. The engine calls [`Pool::run`] once
//! for each job, on the thread that waits for it. It never looks into a shard: that is the threads' matter.

use super::failure::{Failure, Rank};
use super::job::Job;
use super::panics;
use super::parker::Parkers;
use super::printed::Printed;
use super::stall::{Watchdog, describe};
use super::thread::JobThread;
use super::thread_jobs::{Attachment, ThreadJobs};
use brambling_exchange::in_process::fences;
use brambling_memory::held::{self, Held};
use brambling_protocol::WorkerId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often whoever waits for a job asks its [`Caller`] for interruptions and looks for stalls.
pub const CALLER_LOOKS: Duration = Duration::from_millis(20);
/// How long the calling thread runs its stages before it looks for signals: within [`CALLER_LOOKS`].
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
    /// Workers of a cluster that it waits for: they have told nothing for some seconds, and are not known to be gone.
    pub silent: &'a [Silent],
}

/// A worker that tells nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silent {
    /// Which.
    pub worker: WorkerId,
    /// For how long.
    pub so_long: Duration,
}

/// The thread that runs a job and waits for it: it is asked for interruptions, and runs the stages that
/// are its own.
pub trait Caller {
    /// Told how far the job is, every few milliseconds, before it is asked for interruptions.
    fn advanced(&mut self, _advance: Advance<'_>) {}
    /// Told why the job does not begin yet, and since when it waits, every few milliseconds, before it is asked for interruptions.
    fn waits(&mut self, _why: &str, _so_long: Duration) {}
    /// Told something about its job that people should know, once.
    fn told(&mut self, _line: &str) {}
    /// Told what kernels of its job have printed on workers of a cluster, in their order for each worker. Nothing of it is shown otherwise.
    fn printed(&mut self, _lines: &[Printed]) {}
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

/// A job that runs.
struct Running {
    ticket: u64,
    job: Arc<Job>,
    /// Of the threads that have taken it.
    places: Vec<Attachment>,
    /// It has ended: nobody takes it any more.
    is_over: bool,
}

#[derive(Default)]
struct JobList {
    running: Vec<Running>,
    closed: bool,
}

impl JobList {
    /// The jobs that run hear whether they are several.
    fn tell_shares(&self) {
        let shares = self.running.len() > 1;
        self.running.iter().for_each(|it| it.job.share(shares));
    }
}

struct PoolShared {
    job_list: Mutex<JobList>,
    /// Tickets given out: each job has the next one, so that a thread takes each once.
    tickets: AtomicU64,
    arrived: Condvar,
    parkers: Parkers,
}

impl PoolShared {
    fn job_list(&self) -> Held<'_, JobList> {
        held::lock(&self.job_list)
    }

    /// Takes the jobs that came after `seen`. A thread without a job waits for one; false when there will be none.
    fn take_jobs(&self, seen: &mut u64, thread_jobs: &mut ThreadJobs) -> bool {
        // Without the lock: a thread that has a job asks before each of its turns.
        if !thread_jobs.are_empty() && self.tickets.load(Ordering::SeqCst) == *seen {
            return true;
        }
        let mut job_list = self.job_list();
        loop {
            for running in &mut job_list.running {
                // A job that is over must get no new place: whoever ended it has emptied the places
                // that were there, and would miss this one.
                if running.ticket > *seen && !running.is_over {
                    let place = thread_jobs.attach(running.ticket, running.job.clone());
                    running.places.push(place);
                }
            }
            *seen = self.tickets.load(Ordering::SeqCst);
            if !thread_jobs.are_empty() {
                return true;
            }
            if job_list.closed {
                return false;
            }
            job_list = job_list.wait(&self.arrived);
        }
    }
}

/// Threads that run jobs. Several at a time share the threads by their [weights](super::JobOptions::weight).
pub struct Pool {
    shared: Arc<PoolShared>,
    threads: Vec<JoinHandle<()>>,
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
        let shared = Arc::new(PoolShared {
            job_list: Mutex::default(),
            tickets: AtomicU64::new(0),
            arrived: Condvar::new(),
            parkers: Parkers::new(threads),
        });
        let mut pool = Pool {
            shared: shared.clone(),
            threads: Vec::new(),
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

    /// Where they sleep: a job is made for these.
    pub fn parkers(&self) -> &Parkers {
        &self.shared.parkers
    }

    /// Runs a job to its end, beside those that other callers run. When this returns, no thread touches the job any more. It does not wait
    /// for threads that are in a kernel of another job: neither to begin nor to end.
    ///
    /// # Errors
    /// The failure of the least rank.
    ///
    /// # Panics
    /// When the job was made for another pool.
    pub fn run(&self, job: &Arc<Job>, caller: &mut dyn Caller) -> Result<(), Failure> {
        assert!(
            job.parkers.belong_to(self.parkers()),
            "a job runs on the threads it was placed on"
        );
        *held::lock(&job.caller) = Some(std::thread::current());
        if job.residents.is_empty() {
            return Ok(());
        }
        // Whatever the caller's own code does, the threads have left the job before this returns.
        let leaving = Leaving {
            ticket: self.begin(job),
            shared: &self.shared,
            job,
        };
        let stalled = attend(job, caller);
        drop(leaving);
        if let Some(after) = stalled {
            return Err(describe(job, after));
        }
        let failure = held::lock(&job.failure).take();
        failure.map_or(Ok(()), |(_, failure)| Err(failure))
    }

    /// Threads take the job from now on; its ticket.
    fn begin(&self, job: &Arc<Job>) -> u64 {
        let mut job_list = self.shared.job_list();
        // Read under the list's lock, so no two jobs get the same ticket.
        let ticket = self.shared.tickets.load(Ordering::SeqCst) + 1;
        job_list.running.push(Running {
            ticket,
            job: job.clone(),
            places: Vec::new(),
            is_over: false,
        });
        // Told before a thread can turn to the new job: from then on the shards of the other jobs
        // have to be told by doorbell, since nobody may look at their marks.
        job_list.tell_shares();
        self.shared.tickets.store(ticket, Ordering::SeqCst);
        drop(job_list);
        self.shared.arrived.notify_all();
        self.shared.parkers.wake_all();
        ticket
    }
}

struct Leaving<'a> {
    ticket: u64,
    shared: &'a PoolShared,
    job: &'a Job,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.job.stop();
        let find = |job_list: &JobList| {
            let place = job_list
                .running
                .iter()
                .position(|it| it.ticket == self.ticket);
            place.expect("nobody else takes it away")
        };
        let mut job_list = self.shared.job_list();
        let at = find(&job_list);
        job_list.running[at].is_over = true;
        let places = std::mem::take(&mut job_list.running[at].places);
        drop(job_list);
        places.iter().for_each(Attachment::clear);
        // Told only now: while a thread is still in a kernel of this job, the shards of the other
        // jobs are told by doorbell.
        let mut job_list = self.shared.job_list();
        let at = find(&job_list);
        let left = job_list.running.swap_remove(at);
        job_list.tell_shares();
        // Dropped after the lock: this may be the last reference to the job.
        drop(job_list);
        drop(left);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.job_list().closed = true;
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
    // The calling thread's number is the one behind the pool's.
    let thread_state = &job.thread_states[own as usize];
    let mut watchdog = Watchdog::new();
    let mut looked = Instant::now();
    let mut left_over = false;
    let tasks_total = job.plan.task_count();
    while !job.stop.load(Ordering::SeqCst) {
        if left_over || thread_state.doorbell.has_any() {
            // Only stages that need the caller come to this queue. So the caller's code is entered
            // once for a queue of them, and not for each slice of the job.
            caller.run_stages(&mut || left_over = JobThread::new(job, own).work_for(CALLER_SLICE));
        } else {
            // Unparked when something is posted here, or the job ends.
            std::thread::park_timeout(CALLER_LOOKS);
        }
        if looked.elapsed() >= CALLER_LOOKS {
            looked = Instant::now();
            caller.advanced(Advance {
                program: &job.plan.program.spec().name,
                tasks: job.tasks_retired(),
                tasks_total,
                elapsed: job.started.get().map_or(Duration::ZERO, Instant::elapsed),
                silent: &[],
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

/// A thread's life: job after job, and several at a time.
fn serve(shared: &PoolShared, thread: u32, oversubscribed: bool) {
    let parkers = shared.parkers.clone();
    let (mut seen, mut thread_jobs) = (0, ThreadJobs::new(thread, oversubscribed, parkers));
    while shared.take_jobs(&mut seen, &mut thread_jobs) {
        thread_jobs.work(|| shared.tickets.load(Ordering::SeqCst) != seen);
        thread_jobs.leave_stopped();
    }
}
