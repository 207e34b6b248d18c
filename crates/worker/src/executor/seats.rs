//! A pool's thread among the jobs that run: alone with one of them it works without looking up; where there are several, they take turns.
//!
//! # Turns
//! The job that has had the least of the thread, for its weight, has the next turn (stride scheduling: Waldspurger and Weihl, MIT, 1995).
//! A turn ends after [`TURN`], with the slice at hand, or when the job has nothing to do here; a job that leaves its turn to others is owed
//! nothing for that. While a thread is away its queue and its mail are open to thieves, and what comes for its shards comes by mail.
//!
//! # How a job ends
//! A thread is inside a job's place only during its turn. Whoever ends the job empties each place, which takes as long as the turn that
//! somebody has there, and no longer: a thread that is in a kernel of another job finds the place empty when it comes back.
#![allow(unsafe_code)] // A worker borrows the job that its seat keeps.

use super::job::Job;
use super::sleep::Beds;
use super::thread::{SLEEP_MAX, Worker};
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
        // Wide enough for what is left of a nanosecond at any weight.
        Had(self.0 + time.as_nanos() * u128::from(super::WEIGHT_MAX) / u128::from(weight.max(1)))
    }
}

/// A thread's place at a job.
#[derive(Clone)]
pub(super) struct Place(Arc<Mutex<Option<Seated>>>);

/// A thread in its place.
struct Seated {
    /// Borrows from `job`, and is dropped first.
    worker: Worker<'static>,
    job: Arc<Job>,
}

impl Place {
    fn new(thread: u32, job: Arc<Job>) -> Place {
        // SAFETY: the place keeps the job where it lies for as long as it has the worker.
        let kept: &'static Job = unsafe { &*Arc::as_ptr(&job) };
        let worker = Worker::new(kept, thread);
        Place(Arc::new(Mutex::new(Some(Seated { worker, job }))))
    }

    /// Waits for the turn that the thread has there; there is none after this, and nothing here refers to the job.
    pub(super) fn clear(&self) {
        *self.enter() = None;
    }

    fn enter(&self) -> MutexGuard<'_, Option<Seated>> {
        // lock: held for a turn, in which kernels run; whoever else waits for it ends the job, and holds nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the thread must not sleep: somebody has emptied the place, or there is something to do there.
    fn is_wanted(&self) -> bool {
        self.enter().as_ref().is_none_or(|it| it.worker.is_wanted())
    }

    /// Asks the worker, if it is there still.
    fn ask<R: Default>(&self, ask: impl FnOnce(&Worker<'static>) -> R) -> R {
        self.enter()
            .as_ref()
            .map_or_else(R::default, |it| ask(&it.worker))
    }
}

/// What a thread knows of a place of its own.
struct Seat {
    place: Place,
    ticket: u64,
    had: Had,
}

/// A thread's places at all jobs that run.
pub(super) struct Seats {
    thread: u32,
    oversubscribed: bool,
    /// The pool's.
    beds: Beds,
    seats: Vec<Seat>,
    /// Places in `seats`, those that have had the least first.
    order: Vec<usize>,
    /// Since when there has been nothing to do, and rounds since.
    idle_since: Option<Instant>,
    rounds: u32,
}

impl Seats {
    pub(super) fn new(thread: u32, oversubscribed: bool, beds: Beds) -> Seats {
        Seats {
            thread,
            oversubscribed,
            beds,
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
    pub(super) fn sit(&mut self, ticket: u64, job: Arc<Job>) -> Place {
        let place = Place::new(self.thread, job);
        // A job that began at nothing would have the thread for as long as the others have had it
        // already.
        let had = self.seats.iter().map(|seat| seat.had).min();
        let had = had.unwrap_or_default();
        self.seats.push(Seat {
            place: place.clone(),
            ticket,
            had,
        });
        place
    }

    /// Leaves the jobs that have stopped. Nothing here touches them any more.
    pub(super) fn leave_stopped(&mut self) {
        self.seats.retain(|seat| {
            let mut seated = seat.place.enter();
            let goes_on = seated.as_ref().is_some_and(|it| !it.job.has_stopped());
            if !goes_on {
                // Inside: whoever ends the job has it alone when the place is empty.
                *seated = None;
            }
            goes_on
        });
    }

    /// Works: for the only job until it calls, or for one of several for a turn. `has_news` says whether there is another job.
    pub(super) fn work(&mut self, has_news: impl Fn() -> bool) {
        if let [seat] = &self.seats[..]
            && let Some(Seated { worker, job }) = &mut *seat.place.enter()
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
        let seats = &mut self.seats;
        self.order.clear();
        self.order.extend(0..seats.len());
        self.order
            .sort_unstable_by_key(|&at| (seats[at].had, seats[at].ticket));
        for place in 0..self.order.len() {
            let at = self.order[place];
            let mut seated = seats[at].place.enter();
            let Some(Seated { worker, job }) = &mut *seated else {
                continue;
            };
            let Some(ran) = worker.turn(TURN) else {
                continue;
            };
            let weight = job.weight();
            // Whoever ends the job waits for this lock.
            drop(seated);
            let before = seats[at].had;
            seats[at].had = before.and(ran, weight);
            for &idle in &self.order[..place] {
                // A job that had nothing to do saves no time up: later it would keep the others
                // waiting for all of it.
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
        // Polls between two looks at the clock and at each place.
        if !self.oversubscribed && !self.rounds.is_multiple_of(ROUNDS) {
            return std::hint::spin_loop();
        }
        let places = || self.seats.iter().map(|seat| &seat.place);
        let patience = places().map(|place| place.ask(Worker::patience)).max();
        let is_patient = since.elapsed() < patience.unwrap_or_default();
        if is_patient && !self.oversubscribed {
            return std::thread::yield_now();
        }
        places().for_each(|place| place.ask(Worker::rest));
        let is_wanted = || has_news() || places().any(Place::is_wanted);
        self.beds.of(self.thread).sleep(SLEEP_MAX, is_wanted);
        places().for_each(|place| place.ask(Worker::resume));
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
