//! A pool's thread among the jobs that run: alone with one of them it works without looking up; where there are several, they take turns.
//!
//! # Turns
//! The job that has had the least of the thread, for its weight, has the next turn (stride scheduling: Waldspurger and Weihl, MIT, 1995).
//! A turn ends after [`TURN`], with the slice at hand, or when the job has nothing to do here; a job that leaves its turn to others is owed
//! nothing for that. While a thread is away its queue and its mail are open to thieves, and what comes for its shards comes through the mailbox.
//!
//! # How a job ends
//! A thread is inside a job's place only during its turn. Whoever ends the job empties each place, which takes as long as the turn that
//! somebody has there, and no longer: a thread that is in a kernel of another job finds the place empty when it comes back.
#![allow(unsafe_code)] // A worker borrows the job that its seat keeps.

use super::job::Job;
use super::parker::Parkers;
use super::thread::{JobThread, SLEEP_MAX};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a turn is. A job whose data have just come from another worker waits that long for each other job.
const TURN: Duration = Duration::from_millis(1);
/// Rounds without anything to do between two looks at the clock.
const ROUNDS: u32 = 16;

/// What a job has had of a thread, for its weight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Had(u128);

impl Had {
    /// After so long more, at this weight.
    fn and(self, time: Duration, weight: u32) -> Had {
        // 128 bits: the time is scaled by the largest weight, so that no weight divides it to
        // nothing.
        Had(self.0 + time.as_nanos() * u128::from(super::WEIGHT_MAX) / u128::from(weight.max(1)))
    }
}

/// A thread's place at a job.
#[derive(Clone)]
pub(super) struct Attachment(Arc<Mutex<Option<AttachedThread>>>);

/// A thread in its place.
struct AttachedThread {
    /// Borrows from `job`, and is dropped first.
    worker: JobThread<'static>,
    job: Arc<Job>,
}

impl Attachment {
    fn new(thread: u32, job: Arc<Job>) -> Attachment {
        // SAFETY: the place keeps the job where it lies for as long as it has the worker.
        let kept: &'static Job = unsafe { &*Arc::as_ptr(&job) };
        let worker = JobThread::new(kept, thread);
        Attachment(Arc::new(Mutex::new(Some(AttachedThread { worker, job }))))
    }

    /// Waits for the turn that the thread has there; there is none after this, and nothing here refers to the job.
    pub(super) fn clear(&self) {
        *self.enter() = None;
    }

    fn enter(&self) -> MutexGuard<'_, Option<AttachedThread>> {
        // Held for a turn, in which kernels run.
        // lock: only a thread that ends the job waits for it, and that thread holds no other lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the thread must not sleep: somebody has emptied the place, or there is something to do there.
    fn is_wanted(&self) -> bool {
        self.enter().as_ref().is_none_or(|it| it.worker.is_wanted())
    }

    /// Asks the worker, if it is there still.
    fn ask<R: Default>(&self, ask: impl FnOnce(&JobThread<'static>) -> R) -> R {
        self.enter()
            .as_ref()
            .map_or_else(R::default, |it| ask(&it.worker))
    }
}

/// What a thread knows of a place of its own.
struct ThreadJob {
    place: Attachment,
    ticket: u64,
    had: Had,
}

/// A thread's places at all jobs that run.
pub(super) struct ThreadJobs {
    thread: u32,
    oversubscribed: bool,
    /// The pool's.
    parkers: Parkers,
    thread_jobs: Vec<ThreadJob>,
    /// Places in `thread_jobs`, those that have had the least first.
    order: Vec<usize>,
    /// Since when there has been nothing to do, and rounds since.
    idle_since: Option<Instant>,
    rounds: u32,
}

impl ThreadJobs {
    pub(super) fn new(thread: u32, oversubscribed: bool, parkers: Parkers) -> ThreadJobs {
        ThreadJobs {
            thread,
            oversubscribed,
            parkers,
            thread_jobs: Vec::new(),
            order: Vec::new(),
            idle_since: None,
            rounds: 0,
        }
    }

    pub(super) fn are_empty(&self) -> bool {
        self.thread_jobs.is_empty()
    }

    /// Joins a job. It begins where the one stands that has had the least.
    pub(super) fn attach(&mut self, ticket: u64, job: Arc<Job>) -> Attachment {
        let place = Attachment::new(self.thread, job);
        // A job that began at nothing would have the thread for as long as the others have had it
        // already.
        let had = self
            .thread_jobs
            .iter()
            .map(|thread_job| thread_job.had)
            .min();
        let had = had.unwrap_or_default();
        self.thread_jobs.push(ThreadJob {
            place: place.clone(),
            ticket,
            had,
        });
        place
    }

    /// Leaves the jobs that have stopped. Nothing here touches them any more.
    pub(super) fn leave_stopped(&mut self) {
        self.thread_jobs.retain(|thread_job| {
            let mut attached = thread_job.place.enter();
            let goes_on = attached.as_ref().is_some_and(|it| !it.job.has_stopped());
            if !goes_on {
                // Emptied under the lock: whoever ends the job has it alone once the place is
                // empty.
                *attached = None;
            }
            goes_on
        });
    }

    /// Works: for the only job until it calls, or for one of several for a turn. `has_news` says whether there is another job.
    pub(super) fn work(&mut self, has_news: impl Fn() -> bool) {
        if let [thread_job] = &self.thread_jobs[..]
            && let Some(AttachedThread { worker, job }) = &mut *thread_job.place.enter()
            && !job.shares()
        {
            return worker.work(!self.oversubscribed);
        }
        if !self.take_turn() {
            self.rest(has_news);
        }
    }

    /// Whether some job had something to do.
    fn take_turn(&mut self) -> bool {
        let thread_jobs = &mut self.thread_jobs;
        self.order.clear();
        self.order.extend(0..thread_jobs.len());
        self.order
            .sort_unstable_by_key(|&at| (thread_jobs[at].had, thread_jobs[at].ticket));
        for place in 0..self.order.len() {
            let at = self.order[place];
            let mut attached = thread_jobs[at].place.enter();
            let Some(AttachedThread { worker, job }) = &mut *attached else {
                continue;
            };
            let Some(ran) = worker.turn(TURN) else {
                continue;
            };
            let weight = job.weight();
            // Whoever ends the job waits for this lock.
            drop(attached);
            let before = thread_jobs[at].had;
            thread_jobs[at].had = before.and(ran, weight);
            for &idle in &self.order[..place] {
                // A job that had nothing to do saves no time up: later it would keep the others
                // waiting for all of it.
                thread_jobs[idle].had = thread_jobs[idle].had.max(before);
            }
            self.idle_since = None;
            return true;
        }
        false
    }

    /// Nobody has anything to do: polls for a while, and then sleeps.
    fn rest(&mut self, has_news: impl Fn() -> bool) {
        let Some(since) = self.idle_since else {
            self.idle_since = Some(Instant::now());
            self.rounds = 0;
            return;
        };
        self.rounds = self.rounds.wrapping_add(1);
        // Polls between two looks at the clock and at each place.
        if !self.oversubscribed && !self.rounds.is_multiple_of(ROUNDS) {
            return std::hint::spin_loop();
        }
        let places = || self.thread_jobs.iter().map(|thread_job| &thread_job.place);
        let patience = places().map(|place| place.ask(JobThread::patience)).max();
        let is_patient = since.elapsed() < patience.unwrap_or_default();
        if is_patient && !self.oversubscribed {
            return std::thread::yield_now();
        }
        places().for_each(|place| place.ask(JobThread::rest));
        let is_wanted = || has_news() || places().any(Attachment::is_wanted);
        self.parkers.of(self.thread).park(SLEEP_MAX, is_wanted);
        places().for_each(|place| place.ask(JobThread::resume));
        self.idle_since = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who has had the least for its weight goes first: over many turns each gets its share.
    #[test]
    fn time_goes_by_weight() {
        let weights = [1, 3, super::super::WEIGHT_MAX];
        let turn = Duration::from_nanos(997);
        let (mut had, mut turns) = ([Had::default(); 3], [0u32; 3]);
        for _ in 0..1_004 * 50 {
            let next = (0..3).min_by_key(|&at| had[at]).unwrap();
            had[next] = had[next].and(turn, weights[next]);
            turns[next] += 1;
        }
        assert!((50..=51).contains(&turns[0]), "{turns:?}");
        assert!((149..=152).contains(&turns[1]), "{turns:?}");
    }
}
