//! A pool's thread among the jobs that run: alone with one of them it works without looking up; where there are several, they take turns.
//!
//! # Turns
//! The job that has had the least of the thread, for its weight, has the next turn (stride scheduling: Waldspurger and Weihl, MIT, 1995).
//! A turn ends after [`TURN`], with the slice at hand, or when the job has nothing to do here; a job that leaves its turn to others is owed
//! nothing for that. While a thread is away its queue is open to thieves, and what comes for its shards waits where it will look.
#![allow(unsafe_code)] // A worker borrows the job that its seat keeps.

use super::job::Job;
use super::thread::{SLEEP_MAX, Worker};
use std::sync::Arc;
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
        // Wide enough for what is left of a nanosecond at any weight.
        Had(self.0 + time.as_nanos() * u128::from(super::WEIGHT_MAX) / u128::from(weight.max(1)))
    }
}

/// A thread's place at a job.
struct Seat {
    /// Borrows from `job`, and is dropped first.
    worker: Worker<'static>,
    job: Arc<Job>,
    ticket: u64,
    had: Had,
}

/// A thread's places at all jobs that run.
pub(super) struct Seats {
    thread: u32,
    oversubscribed: bool,
    seats: Vec<Seat>,
    /// Places in `seats`, those that have had the least first.
    order: Vec<usize>,
    /// Since when there has been nothing to do, and rounds since.
    idle_since: Option<Instant>,
    rounds: u32,
}

impl Seats {
    pub(super) fn new(thread: u32, oversubscribed: bool) -> Seats {
        Seats {
            thread,
            oversubscribed,
            seats: Vec::new(),
            order: Vec::new(),
            idle_since: None,
            rounds: 0,
        }
    }

    pub(super) fn are_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// Joins a job. It begins where the one stands that has had the least.
    pub(super) fn sit(&mut self, ticket: u64, job: Arc<Job>) {
        // SAFETY: the seat keeps the job where it lies for as long as it has the worker.
        let kept: &'static Job = unsafe { &*Arc::as_ptr(&job) };
        let worker = Worker::new(kept, self.thread);
        let had = self.seats.iter().map(|seat| seat.had).min();
        let had = had.unwrap_or_default();
        self.seats.push(Seat {
            worker,
            job,
            ticket,
            had,
        });
    }

    /// Leaves a job that has stopped, if there is one; its ticket. Nothing here touches that job any more.
    pub(super) fn leave_one(&mut self) -> Option<u64> {
        let stopped = self.seats.iter().position(|seat| seat.job.has_stopped())?;
        Some(self.seats.swap_remove(stopped).ticket)
    }

    /// Works: for the only job until it calls, or for one of several for a turn. `has_news` says whether there is another job.
    pub(super) fn work(&mut self, has_news: impl Fn() -> bool) {
        let is_alone = |seat: &Seat| !seat.job.shares();
        if let [seat] = &mut self.seats[..]
            && is_alone(seat)
        {
            return seat.worker.work(!self.oversubscribed);
        }
        if !self.take_turn() {
            self.rest(has_news);
        }
    }

    /// Whether some job had something to do.
    fn take_turn(&mut self) -> bool {
        let seats = &mut self.seats;
        self.order.clear();
        self.order.extend(0..seats.len());
        self.order
            .sort_unstable_by_key(|&at| (seats[at].had, seats[at].ticket));
        for place in 0..self.order.len() {
            let at = self.order[place];
            let Some(ran) = seats[at].worker.turn(TURN) else {
                continue;
            };
            let Seat { job, had, .. } = &mut seats[at];
            let before = *had;
            *had = before.and(ran, job.weight());
            for &idle in &self.order[..place] {
                seats[idle].had = seats[idle].had.max(before);
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
        if !self.oversubscribed && !self.rounds.is_multiple_of(ROUNDS) {
            return std::hint::spin_loop();
        }
        let patience = self.seats.iter().map(|seat| seat.worker.patience()).max();
        let is_patient = since.elapsed() < patience.unwrap_or_default();
        if is_patient && !self.oversubscribed {
            return std::thread::yield_now();
        }
        let Some(first) = self.seats.first() else {
            return;
        };
        self.seats.iter().for_each(|seat| seat.worker.rest());
        let is_wanted = || has_news() || self.seats.iter().any(|seat| seat.worker.is_wanted());
        first.job.beds.of(self.thread).sleep(SLEEP_MAX, is_wanted);
        self.seats.iter().for_each(|seat| seat.worker.resume());
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
