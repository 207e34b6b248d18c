//! What a call through a table costs, the yardstick of a task's dispatch.

use std::hint::black_box;
use std::time::{Duration, Instant};

trait Bump {
    fn bump(&mut self);
}

// Four targets, told apart by their step, so that the call can be neither resolved nor guessed at
// compile time.
struct Bumper<const STEP: u64> {
    count: u64,
}

impl<const STEP: u64> Bump for Bumper<STEP> {
    #[inline(never)]
    fn bump(&mut self) {
        self.count += STEP;
        // The compiler must not see through the counter, as it cannot through a kernel's state.
        black_box(&mut self.count);
    }
}

const TARGETS: usize = 20;

/// The time of one dynamic call that bumps a counter, in nanoseconds, including its share of the
/// loop around it. The calls go round 20 counters and four different functions.
pub fn indirect_call_ns() -> f64 {
    let mut targets: Vec<Box<dyn Bump>> = (0..TARGETS).map(target).collect();
    let mut rounds = 1_000;
    loop {
        let elapsed = call_all(&mut targets, rounds);
        if elapsed >= Duration::from_millis(10) {
            return elapsed.as_secs_f64() * 1e9 / (rounds * TARGETS) as f64;
        }
        rounds *= 4;
    }
}

fn target(index: usize) -> Box<dyn Bump> {
    match index % 4 {
        0 => Box::new(Bumper::<1> { count: 0 }),
        1 => Box::new(Bumper::<2> { count: 0 }),
        2 => Box::new(Bumper::<3> { count: 0 }),
        _ => Box::new(Bumper::<5> { count: 0 }),
    }
}

fn call_all(targets: &mut [Box<dyn Bump>], rounds: usize) -> Duration {
    let start = Instant::now();
    for _ in 0..rounds {
        for target in black_box(&mut *targets) {
            target.bump();
        }
    }
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_time() {
        assert!(indirect_call_ns() > 0.0);
    }
}
