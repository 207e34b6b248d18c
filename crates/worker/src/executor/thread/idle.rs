//! What a thread does that has nothing to run: it polls for mail and marks and for other workers, steals, and sleeps.
#![allow(unsafe_code)] // Touches its ready queue under its queue lock.

use super::{JobThread, POLITE_SPINS, SLEEP_MAX, SPINS};
use crate::executor::job::Job;
use crate::executor::slice::{MissingSource, watch_for};
use crate::executor::spread;
use crate::executor::tally::count;
use crate::executor::thread::Stage;
use crate::executor::watch::{StampWatch, Watches};
use brambling_exchange::in_process::TurnStatus;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Polls of an idle thread's queue between two of what carries frames: the first reads memory, the
/// second is a system call for each other worker.
const POLLED_SPINS: u32 = 8;

/// Polls of an idle thread after which what it has run is accounted for: some hundreds of nanoseconds, in which an iteration over few shards is done.
const WAITED_SPINS: u32 = 16;

impl<'a> JobThread<'a> {
    /// Polls for mail and marks, then steals, then sleeps.
    pub(super) fn idle(&mut self, polls: bool) {
        let mut spins = 0u32;
        let mut since = None;
        // Since when nothing has come, asleep or not; and the longest such time.
        let mut quiet = None;
        let mut longest = Duration::ZERO;
        while !self.has_work() {
            spins += 1;
            if self.poll(spins) && since.is_some() {
                // More is likely to come: a thread that sleeps in the middle of a large piece would
                // be woken for its end.
                let now = Instant::now();
                longest = longest.max(passed(quiet.replace(now), now));
                (since, self.clock) = (Some(now), now);
                self.account(now);
            }
            if spins == WAITED_SPINS {
                // The slices before end here. A shorter wait counts as work: it is shorter than the reading.
                self.read_clock();
            }
            // A look at the clock costs more than a poll of the own queue.
            if !spins.is_multiple_of(SPINS) {
                std::hint::spin_loop();
                continue;
            }
            if since.is_none() {
                self.read_clock();
                (since, quiet) = (Some(self.clock), Some(self.clock));
                self.spread();
            }
            let before = std::mem::replace(&mut self.clock, Instant::now());
            self.account(self.clock);
            // A long time between two looks means that somebody else had the processor.
            self.patience.looks_after(self.clock - before);
            if let Some(number) = self.thief.steal(self.job, self.clock) {
                self.thread_state.idle.store(false, Ordering::Release);
                self.take_over(number);
                self.run(number);
                return;
            }
            // The watchdog takes the job for stalled only when every thread has looked twice in
            // vain.
            self.found_nothing();
            if since.is_some_and(|since| !polls || self.clock - since >= self.patience()) {
                self.sleeps();
                let has_work = || {
                    self.thread_state.doorbell.has_any()
                        || self.job.calls()
                        || self.watches.is_any_set()
                };
                // Said before the thread sleeps: from here on the transport's helper has to look
                // after arrivals.
                self.rest();
                self.job.parkers.of(self.me).park(SLEEP_MAX, has_work);
                self.resume();
                self.clock = Instant::now();
                self.account(self.clock);
                since = Some(self.clock);
            } else if spins.is_multiple_of(POLITE_SPINS) {
                std::thread::yield_now();
            }
        }
        if since.is_some() {
            self.thread_state.idle.store(false, Ordering::Release);
            self.clock = Instant::now();
            self.account(self.clock);
            self.patience.waited(longest.max(passed(quiet, self.clock)));
        } else if spins >= WAITED_SPINS {
            self.read_clock();
        }
    }

    /// Looks now and then what other workers have sent: whether anything was on its way. It is a system call, so not at every turn.
    #[inline]
    pub(super) fn poll(&self, spins: u32) -> bool {
        match &self.job.remote {
            Some(remote) if spins.is_multiple_of(POLLED_SPINS) => remote.poll(),
            _ => false,
        }
    }

    /// Whether there is something to do for a thread with an empty ready queue.
    #[inline]
    pub(super) fn has_work(&mut self) -> bool {
        self.job.calls() || self.has_arrivals()
    }

    /// Whether something has come for a shard of this thread.
    #[inline]
    pub(super) fn has_arrivals(&mut self) -> bool {
        if self.thread_state.doorbell.has_any() {
            return true;
        }
        self.look_at_all();
        // SAFETY: under our own queue lock; the reference ends with the statement.
        unsafe { self.job.ready(self.me) }.len() > 0
    }

    #[inline]
    pub(super) fn look_at_all(&mut self) {
        let (job, me) = (self.job, self.me);
        self.watches
            .look_at_all(|watches, watch| follow(job, me, watches, watch));
    }

    /// For whoever looks whether the job stands still.
    pub(super) fn found_nothing(&self) {
        self.thread_state.idle.store(true, Ordering::Release);
        count(&self.thread_state.looks, 1);
    }

    /// The thread does not poll any more: the transport's helper is to see to what comes from other workers.
    pub(in crate::executor) fn rest(&self) {
        if let Some(remote) = &self.job.remote {
            remote.rest();
        }
    }

    /// It has slept.
    pub(in crate::executor) fn resume(&self) {
        if let Some(remote) = &self.job.remote {
            remote.resume();
        }
    }

    /// Whether a thread that is about to sleep must not: asked without the queue lock, after the thread has said that it sleeps.
    pub(in crate::executor) fn is_wanted(&self) -> bool {
        self.thread_state.doorbell.has_any()
            || self.job.stop.load(Ordering::SeqCst)
            || self.watches.is_any_set()
            || match self.stage {
                Stage::New | Stage::Waiting(_) => true,
                Stage::Settled => self.job.started.get().is_some(),
                Stage::Started => false,
            }
    }

    /// Leaves a CPU on which another thread of the job works.
    pub(in crate::executor) fn spread(&self) {
        let here = self.thread_state.cpu.load(Ordering::Relaxed);
        let pool = &self.job.thread_states[..self.job.threads() as usize];
        // Threads that sleep take no CPU from anybody.
        let others = || {
            let awake = pool
                .iter()
                .enumerate()
                .filter(|(thread, _)| !self.job.parkers.of(*thread as u32).is_parked());
            awake
                .filter(|(thread, _)| *thread as u32 != self.me)
                .map(|(_, thread_state)| thread_state.cpu.load(Ordering::Relaxed))
        };
        if others().any(|cpu| cpu == here) {
            spread::move_away(others());
            self.thread_state
                .cpu
                .store(spread::here(), Ordering::Relaxed);
        }
    }

    /// A thread that leaves work waiting while others sleep wakes one of them to steal it.
    pub(super) fn share_work(&self) {
        // SAFETY: under our own queue lock; the reference ends with the statement.
        if unsafe { self.job.ready(self.me) }.len() == 0 {
            return;
        }
        self.job.wake_one();
    }
}

fn passed(since: Option<Instant>, now: Instant) -> Duration {
    since.map_or(Duration::ZERO, |since| now - since)
}

/// A mark is set: looks what else the shard lacks, and queues it when that is nothing.
pub(super) fn follow<'a>(job: &'a Job, me: u32, watches: &mut Watches<'a>, watch: StampWatch<'a>) {
    let StampWatch { number, .. } = watch;
    let resident = &job.residents[number as usize];
    // The shard may have run since, or run elsewhere now. Then another watch, or its owner, looks
    // after what it lacks.
    if !job.belongs_to(number, me) || resident.slices.load(Ordering::Relaxed) != watch.slices {
        return;
    }
    let exchange = job.exchange(watch.exchange);
    match exchange.heard(watch.turn, resident.index) {
        // SAFETY: under our own queue lock; the reference ends with the statement.
        TurnStatus::Complete => unsafe { job.ready(me) }.insert_urgent(number),
        TurnStatus::Missing { source, mark } => {
            if let Some(mark) = mark {
                let missing_source = MissingSource {
                    exchange: watch.exchange,
                    turn: watch.turn,
                    source,
                    mark,
                };
                watch_for(job, watches, number, missing_source);
            }
        }
    }
}
