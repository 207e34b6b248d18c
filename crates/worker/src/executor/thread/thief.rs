//! Owns what a thread without work knows of one other thread. It takes what has waited in that one's queue, and where jobs
//! share the threads also what waits in its mail. It never waits for a victim: it asks, and looks at the next.
#![allow(unsafe_code)] // Touches a victim's ready queue while it is locked out of its queue.

use crate::executor::job::{Job, ThreadState};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long work must have waited in another thread's queue before it is stolen.
pub(super) const STEAL_AFTER: Duration = Duration::from_micros(20);

/// A thread that has nothing to do, among the others of its job.
pub(super) struct Thief {
    me: u32,
    victim: u32,
    threads: u32,
    /// What the victim was doing when it was first looked at.
    seen: Option<VictimState>,
}

struct VictimState {
    at: Instant,
    queued: u32,
    slices: u64,
}

impl Thief {
    pub(super) fn new(me: u32, threads: u32) -> Thief {
        Thief {
            me,
            victim: me,
            threads,
            seen: None,
        }
    }

    /// A shard that has waited; it is this thread's then.
    pub(super) fn steal(&mut self, job: &Job, now: Instant) -> Option<u32> {
        if self.threads < 2 {
            return None;
        }
        if let Some(seen) = &self.seen {
            // A shard's memory was touched first at home: it is left there unless it has really
            // waited.
            if now - seen.at < STEAL_AFTER {
                return None;
            }
            if seen.has_waited(job, &job.thread_states[self.victim as usize])
                && let Some(number) = self.take(job)
            {
                self.seen = None;
                return Some(number);
            }
        }
        self.next_victim(job);
        let thread_state = &job.thread_states[self.victim as usize];
        self.seen = Some(VictimState {
            at: now,
            queued: thread_state.queued.0.load(Ordering::Relaxed),
            slices: thread_state.tally.slices.load(Ordering::Relaxed),
        });
        None
    }

    fn take(&self, job: &Job) -> Option<u32> {
        let thread_state = &job.thread_states[self.victim as usize];
        // The owner is inside, or another thief is. An owner who is inside looks at requests before
        // its next slice.
        let Some(locked) = thread_state.queue_lock.try_lock() else {
            thread_state.queue_lock.request(self.me);
            return None;
        };
        // The owner may be in a kernel of another job, and take no mail for a long time.
        if job.shares() && thread_state.doorbell.has_any() {
            // SAFETY: the lock keeps the owner off its queue.
            unsafe { job.answer_doorbell(self.victim) };
        }
        // SAFETY: as above.
        let ready = unsafe { job.ready(self.victim) };
        // The shard that the owner runs may stand in the queue, since it was woken meanwhile. It
        // must not be taken: its body is in use.
        let Some(number) = ready.pop_last(thread_state.runs()) else {
            // All that is left there is what the owner runs.
            thread_state.queued.0.store(0, Ordering::Relaxed);
            return None;
        };
        thread_state.queued.0.store(ready.len(), Ordering::Relaxed);
        // Inside the lock: the owner must find the shard gone.
        job.adopt(number, self.me);
        drop(locked);
        Some(number)
    }

    /// The next one; where jobs share the threads, the next that something waits for: a thread that looks for a while only must have looked at it.
    fn next_victim(&mut self, job: &Job) {
        for _ in 0..self.threads {
            self.victim = (self.victim + 1) % self.threads;
            if self.victim == self.me {
                continue;
            }
            let thread_state = &job.thread_states[self.victim as usize];
            if !job.shares() || waits(job, thread_state) {
                return;
            }
        }
        if self.victim == self.me {
            self.victim = (self.victim + 1) % self.threads;
        }
    }
}

impl VictimState {
    /// A victim that has run as many slices as were queued has been round its queue: nothing waited.
    fn has_waited(&self, job: &Job, thread_state: &ThreadState) -> bool {
        // Relaxed: an estimate. What is taken is decided under the lock.
        let ran = thread_state.tally.slices.load(Ordering::Relaxed) - self.slices;
        waits(job, thread_state) && (ran == 0 || ran < u64::from(self.queued))
    }
}

/// Whether something waits for a thread; mail does where the thread may be away.
fn waits(job: &Job, thread_state: &ThreadState) -> bool {
    thread_state.queued.0.load(Ordering::Relaxed) > 0
        || (job.shares() && thread_state.doorbell.has_any())
}
