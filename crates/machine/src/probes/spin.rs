//! How far two cores are from each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cpu;
use crate::crew::{self, CacheAligned, CrewMember};

const BATCH: u64 = 1_000;
const ENOUGH: Duration = Duration::from_millis(5);

/// The time for a word to go from one thread to another and back, in microseconds: each spins on
/// an atomic that the other writes. The threads are pinned to the first two CPUs of the mask; on a
/// single CPU they take turns, and the figure is that of the wait before a turn is given up.
pub fn spin_round_trip_us() -> f64 {
    let places = cpu::places(2).unwrap_or_else(|_| vec![0, 0]);
    let (ping, pong) = (
        CacheAligned(AtomicU64::new(0)),
        CacheAligned(AtomicU64::new(0)),
    );
    let stop = AtomicU64::new(u64::MAX);
    let round_trips_us = crew::run(&places, |member| match member.index() {
        0 => Some(serve(member, &ping.0, &pong.0, &stop)),
        _ => {
            answer(member, &ping.0, &pong.0, &stop);
            None
        }
    });
    round_trips_us[0].expect("the first thread measures")
}

fn serve(member: &CrewMember<'_>, ping: &AtomicU64, pong: &AtomicU64, stop: &AtomicU64) -> f64 {
    let mut best = f64::INFINITY;
    let mut sent = 0;
    let begin = Instant::now();
    // The best batch: a batch that was descheduled says nothing about the distance.
    while begin.elapsed() < ENOUGH {
        let start = Instant::now();
        for _ in 0..BATCH {
            sent += 1;
            ping.store(sent, Ordering::Release);
            member.wait_until(|| pong.load(Ordering::Acquire) == sent);
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / BATCH as f64);
    }
    // Relaxed: published by the last ping.
    stop.store(sent + 1, Ordering::Relaxed);
    ping.store(sent + 1, Ordering::Release);
    best
}

fn answer(member: &CrewMember<'_>, ping: &AtomicU64, pong: &AtomicU64, stop: &AtomicU64) {
    let mut expected = 1;
    loop {
        member.wait_until(|| ping.load(Ordering::Acquire) == expected);
        if stop.load(Ordering::Relaxed) == expected {
            return;
        }
        pong.store(expected, Ordering::Release);
        expected += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_takes_time() {
        assert!(spin_round_trip_us() > 0.0);
    }
}
