//! Owns what one thread does for a job: it answers its doorbell, goes round its ready queue, runs slices, steals and sleeps. The
//! thread's list of jobs (`thread_jobs.rs`) calls it, and so does the calling thread for its own stages (`pool.rs`). It never
//! touches a shard that does not belong to its thread.
#![allow(unsafe_code)] // Touches its ready queue and its shards under its queue lock.

mod accounting;
mod beginning;
mod idle;
mod leaving;
mod thief;
mod unwinding;

use super::book::{Book, LONG_SHARE};
use super::failure::{Failure, Rank};
use super::job::{Job, LoadedShard, NONE, ShardCell, ThreadState};
use super::ledger::TimePart;
use super::panics;
use super::patience::Patience;
use super::slice::{End, MissingSource, Slice};
use super::spread;
use super::tally::count;
use super::watch::Watches;
use beginning::Stage;
use brambling_exchange::in_process::fences;
use brambling_program::Runner;
use idle::follow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thief::{STEAL_AFTER, Thief};
use unwinding::unwound;

/// How long an idle thread polls before it sleeps: about twice what a sleep and a wake-up cost.
const POLL: Duration = Duration::from_micros(75);
/// The longest sleep: whatever went wrong, a thread looks around now and then.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Polls between two looks at the clock.
const SPINS: u32 = 64;
/// Polls after which a thread lets others have its CPU for a moment: one of them may be what it waits
/// for.
const POLITE_SPINS: u32 = 16 * SPINS;
/// How long what is said to other workers may wait for more, while a thread has work.
const FLUSHED_EACH: Duration = Duration::from_micros(50);
/// How often, at most, a thread that has work looks what has come: over TCP a look is a system call for each other worker.
const LOOKED_EACH: Duration = Duration::from_micros(500);
/// Slices of short tasks between two readings of the clock. A prime: the shard that ran last is taken for all of them, and of any other number of
/// shards that take turns each is the last one as often.
const SLICES_UNREAD: u32 = 61;
/// A share of so many tasks means that a task takes less than half a microsecond: so many of
/// them fill a slice (`SLICE_NS` in `slice.rs`).
const SHORT_SHARE: u32 = 256;
/// Tasks after which a slice is timed by itself: a reading of the clock costs as much as a short task,
/// which is little of so many.
const TIMED_TASKS: u32 = 16;

/// One thread at work for one job.
pub(super) struct JobThread<'a> {
    job: &'a Job,
    me: u32,
    thread_state: &'a ThreadState,
    runner: Runner,
    stage: Stage,
    thief: Thief,
    /// When the clock was last read, and how many slices ran since.
    clock: Instant,
    slices: u32,
    /// When this thread last sent what it had to say to other workers.
    flushed: Instant,
    looked: Instant,
    /// How long it polls for other workers.
    patience: Patience,
    /// What is looked at for stalled shards.
    watches: Watches<'a>,
    /// What the last shard to stall lacked: here for its memory only.
    missing: Vec<MissingSource<'a>>,
    /// While it works.
    book: Option<Box<Book>>,
    /// Whose slices those were.
    ran: [u32; SLICES_UNREAD as usize],
    /// Tasks that ended since the clock was last read.
    untold_tasks: u64,
    /// Whether the next slice of short tasks is to be sampled.
    is_due: bool,
    /// What it waits for in its sleep, where that is known before.
    sleeps_for: Option<TimePart>,
}

impl<'a> JobThread<'a> {
    pub(super) fn new(job: &'a Job, me: u32) -> JobThread<'a> {
        let runner = if me == job.threads() {
            Runner::Caller
        } else {
            Runner::Native
        };
        let thread_state = &job.thread_states[me as usize];
        JobThread {
            job,
            me,
            thread_state,
            runner,
            stage: Stage::New,
            thief: Thief::new(me, job.threads()),
            clock: Instant::now(),
            slices: 0,
            flushed: Instant::now(),
            looked: Instant::now(),
            patience: Patience::default(),
            watches: Watches::default(),
            missing: Vec::new(),
            book: None,
            ran: [0; SLICES_UNREAD as usize],
            untold_tasks: 0,
            is_due: true,
            sleeps_for: None,
        }
    }

    /// How long a thread that finds nothing to do for the job polls before it sleeps.
    pub(super) fn patience(&self) -> Duration {
        match self.job.remote {
            Some(_) => self.patience.time(),
            None => POLL,
        }
    }

    /// Works until the job stops, or shares its threads with others. A panic of a kernel ends the job, and is told with its stage.
    /// `polls` says whether to poll before sleeping.
    pub(super) fn work(&mut self, polls: bool) {
        self.within(|worker| {
            let mut spins = 0u32;
            while !worker.begin() && !worker.job.calls() {
                spins += 1;
                // Other threads are making their shards: soon it is better to sleep than to take a
                // CPU from them.
                if spins < POLITE_SPINS {
                    std::hint::spin_loop();
                } else {
                    std::thread::sleep(STEAL_AFTER);
                }
            }
            while !worker.job.calls() {
                match worker.next() {
                    Some(number) => worker.run(number),
                    None => {
                        worker.flush();
                        worker.idle(polls);
                    }
                }
            }
            if !worker.job.has_stopped() {
                worker.flush();
                worker.part();
            }
        });
    }

    /// Works for about so long, or until there is nothing to do; how long that was, if there was something. The first turns make the
    /// shards whose home this is, and wait for the other threads'.
    pub(super) fn turn(&mut self, time: Duration) -> Option<Duration> {
        let mut ran = None;
        self.within(|worker| {
            let began = worker.clock;
            let was_new = worker.stage == Stage::New;
            if worker.begin() {
                while !worker.job.stop.load(Ordering::Relaxed)
                    && let Some(number) = worker.find()
                {
                    if ran.is_none() {
                        // Cleared before the kernel, which may take its time.
                        worker.thread_state.idle.store(false, Ordering::Release);
                    }
                    worker.run(number);
                    ran = Some(worker.clock - began);
                    if worker.clock - began >= time {
                        break;
                    }
                }
                if !worker.job.has_stopped() {
                    worker.flush();
                }
            }
            if ran.is_some() || worker.stage != Stage::Started {
                worker.part();
            }
            if ran.is_some() || was_new {
                worker.read_clock();
                ran = Some(worker.clock - began);
            } else {
                worker.found_nothing();
            }
        });
        ran
    }

    /// The thread turns to another job: what it was to find by its marks is queued, where thieves see it. Marks that are set later are told by doorbell
    /// ([`Job::needs_ringing`]): between the two stands the dear fence. So it does between the start of the job as it is seen here, and the mail
    /// for whoever has not seen it ([`Job::settle`]).
    fn part(&mut self) {
        // Pairs with the cheap fence of a source that has stamped (`tell_another_thread`): either
        // the source sees that nobody looks at marks, or its stamp is seen below.
        fences::heavy();
        if self.stage != Stage::Started && !self.begin() {
            return;
        }
        if self.thread_state.doorbell.has_any() {
            self.answer_doorbell();
        }
        self.look_at_all();
        self.tell_queued();
        self.share_work();
    }

    /// Tells thieves how many shards are queued.
    #[inline]
    fn tell_queued(&self) {
        // SAFETY: under our own queue lock; the reference ends with the statement.
        let queued = unsafe { self.job.ready(self.me) }.len();
        // Written only when it changes: thieves read this line all the time. Relaxed, since a thief
        // looks again under the lock.
        if self.thread_state.queued.0.load(Ordering::Relaxed) != queued {
            self.thread_state.queued.0.store(queued, Ordering::Relaxed);
        }
    }

    /// The next shard to run, wherever it has to be looked for.
    fn find(&mut self) -> Option<u32> {
        if let Some(number) = self.next() {
            return Some(number);
        }
        if self.has_arrivals() || (self.poll(0) && self.has_arrivals()) {
            return self.next();
        }
        self.read_clock();
        // A thief compares with the time of its last look, so the clock is read anew.
        let number = self.thief.steal(self.job, self.clock)?;
        self.take_over(number);
        Some(number)
    }

    /// Runs what is queued here until there is nothing more or the time is over: for the calling thread. True
    /// when the time was over first: nobody will post again what is still queued.
    pub(super) fn work_for(mut self, time: Duration) -> bool {
        let mut over = false;
        self.within(|worker| {
            let started = worker.clock;
            while let Some(number) = worker.next() {
                worker.run(number);
                worker.read_clock();
                over = worker.clock - started >= time;
                if over || worker.job.stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            worker.flush();
        });
        over
    }

    /// Works under the queue lock. The thread may have been elsewhere meanwhile, which is nobody's time here.
    fn within(&mut self, work: impl FnOnce(&mut Self)) {
        self.job.exchange_notes(self.me);
        self.clock = Instant::now();
        self.slices = 0;
        self.open_book();
        self.guarded(work);
        self.close_book();
        self.job.exchange_notes(self.me);
        self.thread_state.queue_lock.leave();
    }

    fn guarded(&mut self, run: impl FnOnce(&mut Self)) {
        self.thread_state.queue_lock.enter();
        if let Err(payload) = panics::catch(|| run(self)) {
            // What unwound was a kernel only if a shard was running.
            let Some(number) = self.thread_state.runs() else {
                // The panic is not a kernel's, but an assertion of ours. The job must not wait for
                // this thread.
                let (message, _) = panics::tell(&*payload);
                self.job.fail(Rank::After, Failure::Internal { message });
                return;
            };
            let resident = &self.job.residents[number as usize];
            // SAFETY: this thread was running the shard, and never lets go of it now.
            let body = unsafe { &*resident.body.get() }
                .as_ref()
                .expect("it was running");
            let failure = unwound(self.job, resident, body, &*payload);
            self.job.fail(body.rank(resident.index), failure);
        }
    }

    /// The next shard to run.
    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.thread_state.doorbell.has_any() {
            self.answer_doorbell();
        }
        let (job, me) = (self.job, self.me);
        self.watches
            .look(|watches, watch| follow(job, me, watches, watch));
        // SAFETY: under our own queue lock; the reference ends with the statement.
        let next = unsafe { self.job.ready(self.me) }.pop();
        if let Some(thief) = self.thread_state.queue_lock.take_request() {
            // SAFETY: as above.
            // The shard that this thread would come to last; `next` is out of the queue already.
            if let Some(number) = unsafe { self.job.ready(self.me) }.pop_last(None) {
                self.job.hand(number, thief);
            }
        }
        next
    }

    #[cold]
    fn answer_doorbell(&mut self) {
        // SAFETY: as in `next`.
        unsafe { self.job.answer_doorbell(self.me) };
        // Before the next kernel, which may take its time.
        self.tell_queued();
    }

    /// Runs a shard of this thread for a slice.
    #[inline]
    fn run(&mut self, number: u32) {
        let resident = &self.job.residents[number as usize];
        // SAFETY: the shard belongs to this thread, by `owners`, and was taken from its ready queue.
        let Some(body) = unsafe { &mut *resident.body.get() }.as_mut() else {
            self.unpack(number);
            // The time of unpacking counts for no shard.
            self.read_clock();
            return;
        };
        if body.done {
            return self.leave_when_done(number);
        }
        // Relaxed: a thief reads it under the lock, which orders it; a panic is this thread's own.
        self.thread_state.current.store(number, Ordering::Relaxed);
        let is_short = body.slice_tasks > LONG_SHARE;
        let is_sampled = !is_short || self.is_due;
        if is_sampled && self.slices > 0 {
            // What was run before is no part of the sample.
            self.read_clock();
        }
        let (sample, works) = self.book.as_mut().expect("it works").lend(is_short);
        let mut slice = Slice::new(
            self.job,
            number,
            self.me,
            self.runner,
            &mut self.watches,
            sample,
        );
        let end = match is_sampled {
            true => slice.run::<true>(body, &mut self.missing, works),
            false => slice.run::<false>(body, &mut self.missing, works),
        };
        let (tasks, failure) = (slice.tasks, slice.failure);
        self.thread_state.current.store(NONE, Ordering::Relaxed);
        self.ran[self.slices as usize] = number;
        self.slices += 1;
        self.untold_tasks += u64::from(tasks);
        count(&self.thread_state.tally.tasks, u64::from(tasks));
        count(&self.thread_state.tally.slices, 1);
        // Reading the clock costs as much as a short task, so short slices are timed together.
        if is_sampled
            || tasks >= TIMED_TASKS
            || body.slice_tasks < SHORT_SHARE
            || self.slices >= SLICES_UNREAD
        {
            self.time_slice(resident, body, tasks, is_sampled && is_short);
        }
        if matches!(end, End::Leaving) {
            self.depart(number);
            self.read_clock();
        } else {
            self.leave(resident, body, number, end, failure);
        }
        self.tell_queued();
    }

    fn time_slice(
        &mut self,
        resident: &ShardCell,
        body: &mut LoadedShard,
        tasks: u32,
        is_sample: bool,
    ) {
        let alone = self.slices == 1;
        let took_ns = self.read_clock();
        // If slices were timed together, nobody knows which was the long one: the share stays.
        // And timing calls took longer than short tasks do.
        if (alone || tasks >= TIMED_TASKS) && !is_sample {
            body.slice_tasks = super::slice::next_share(body.slice_tasks, tasks, took_ns);
        }
        self.share_work();
        if self.job.remote.is_some() {
            let entered = body.shard.entered();
            let bytes = body.charged_bytes;
            body.meter.add(&resident.gauge, took_ns, entered, bytes);
            if self.clock - self.flushed >= FLUSHED_EACH {
                self.flush();
            }
            if self.clock - self.looked >= LOOKED_EACH {
                self.looked = self.clock;
                self.job.remote.iter().for_each(|remote| remote.look());
            }
        }
    }

    /// What was said to other workers goes on its way.
    #[inline]
    fn flush(&mut self) {
        if let Some(remote) = &self.job.remote {
            self.flushed = self.clock;
            remote.flush(self.job);
        }
    }

    /// Reads the clock and accounts for the time since the last reading.
    fn read_clock(&mut self) -> u64 {
        let now = Instant::now();
        let took_ns = now.duration_since(self.clock).as_nanos() as u64;
        count(&self.thread_state.tally.busy_ns, took_ns);
        self.account(now);
        let cpu = spread::here();
        if self.thread_state.cpu.load(Ordering::Relaxed) != cpu {
            self.thread_state.cpu.store(cpu, Ordering::Relaxed);
        }
        self.clock = now;
        self.slices = 0;
        took_ns
    }

    /// A shard was stolen: it is this thread's for a slice.
    fn take_over(&self, number: u32) {
        self.job.adopt(number, self.me);
        count(&self.thread_state.tally.stolen, 1);
    }
}
