//! What it takes to wake a thread that sleeps.

use crate::measure::Figure;
use crate::{cpu, crew};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 50;
/// Long enough for the other thread to be asleep.
const ASLEEP: Duration = Duration::from_micros(300);

/// The time from the call that wakes a sleeping thread until it runs, in microseconds: half of the median of some rounds in which two
/// threads, pinned to the first two CPUs of the mask, wake each other.
pub fn wake_us() -> f64 {
    let places = cpu::places(2).unwrap_or_else(|_| vec![0, 0]);
    let turn = AtomicU64::new(0);
    let threads = [OnceLock::new(), OnceLock::new()];
    let medians = crew::run(&places, |member| {
        let me = member.index();
        let _ = threads[me].set(thread::current());
        member.barrier();
        let other = threads[1 - me].get().expect("set before the barrier");
        let mut samples = Vec::new();
        for round in 0..ROUNDS {
            let (asks, answers) = (2 * round + 1, 2 * round + 2);
            if me == 1 {
                sleep_until(&turn, asks);
                turn.store(answers, Ordering::Release);
                other.unpark();
                continue;
            }
            thread::sleep(ASLEEP);
            let start = Instant::now();
            turn.store(asks, Ordering::Release);
            other.unpark();
            sleep_until(&turn, answers);
            samples.push(start.elapsed().as_secs_f64() * 1e6);
        }
        (me == 0).then(|| Figure::of(&samples).median)
    });
    medians[0].expect("the first one measures") / 2.0
}

fn sleep_until(turn: &AtomicU64, expected: u64) {
    while turn.load(Ordering::Acquire) != expected {
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waking_takes_time() {
        assert!(wake_us() > 0.0);
    }
}
