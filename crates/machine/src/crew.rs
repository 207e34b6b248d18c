//! A crew of pinned threads for hand-written loops: spawned and pinned before anything is timed,
//! and kept in step by a barrier that spins.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::pin;

/// A value on cache lines of its own. Two lines, because the hardware fetches them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CacheAligned<T>(pub T);

/// Waits for another thread: spins at first, then gives the CPU away between looks, so that it also
/// ends when both threads share one CPU.
pub fn spin_until(mut is_done: impl FnMut() -> bool) {
    // Some 0.1 ms: far longer than a running thread is waited for, far shorter than a time slice.
    for _ in 0..2_000 {
        if is_done() {
            return;
        }
        std::hint::spin_loop();
    }
    while !is_done() {
        thread::yield_now();
    }
}

/// One thread of a crew.
#[derive(Debug)]
pub struct CrewMember<'a> {
    index: usize,
    shared: &'a CrewShared,
}

#[derive(Debug)]
struct CrewShared {
    threads: usize,
    arrived: CacheAligned<AtomicUsize>,
    round: CacheAligned<AtomicUsize>,
    is_broken: AtomicBool,
}

impl CrewMember<'_> {
    /// This thread's number, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many threads the crew has.
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Returns when every member has called it as often as this one. What the others wrote before
    /// it is visible after it.
    ///
    /// # Panics
    /// When another member panicked: it would never come.
    pub fn barrier(&self) {
        let shared = self.shared;
        let round = shared.round.0.load(Ordering::Relaxed);
        // AcqRel: the last to arrive acquires what all the others wrote before they arrived.
        let before = shared.arrived.0.fetch_add(1, Ordering::AcqRel);
        if before + 1 == shared.threads {
            shared.arrived.0.store(0, Ordering::Relaxed);
            // Release: publishes the reset and everybody's writes. Pairs with the Acquire below.
            shared
                .round
                .0
                .store(round.wrapping_add(1), Ordering::Release);
            return;
        }
        self.wait_until(|| shared.round.0.load(Ordering::Acquire) != round);
    }

    /// Spins until `is_done`.
    ///
    /// # Panics
    /// When another member panicked meanwhile: what is waited for may never come.
    pub fn wait_until(&self, mut is_done: impl FnMut() -> bool) {
        let mut is_broken = false;
        spin_until(|| {
            if is_done() {
                return true;
            }
            is_broken = self.shared.is_broken.load(Ordering::Relaxed);
            is_broken
        });
        assert!(!is_broken, "another member of the crew panicked");
    }
}

// Tells the others when its thread unwinds.
struct BreakOnPanic<'a>(&'a CrewShared);

impl Drop for BreakOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.is_broken.store(true, Ordering::Relaxed);
        }
    }
}

/// From the first that began to the last that ended: who looks at one thread alone misses what the others did while it got no CPU.
///
/// # Panics
/// When there is none.
pub fn span(of: &[(Instant, Instant)]) -> Duration {
    let begin = of.iter().map(|it| it.0).min();
    let end = of.iter().map(|it| it.1).max();
    let (begin, end) = begin.zip(end).expect("a crew has a thread");
    end - begin
}

/// Runs `work` on one new thread per entry of `places`, each pinned to the CPU of its entry, and
/// returns what they returned, in order. The caller sleeps meanwhile.
///
/// The threads have all started and are pinned when `work` begins, so a clock read after a first
/// barrier sees neither. Where pinning is refused the thread runs unpinned.
///
/// # Panics
/// When `places` is empty, or with the panic of a member.
pub fn run<T: Send>(places: &[usize], work: impl Fn(&CrewMember<'_>) -> T + Sync) -> Vec<T> {
    assert!(!places.is_empty(), "a crew needs a thread");
    let shared = CrewShared {
        threads: places.len(),
        arrived: CacheAligned::default(),
        round: CacheAligned::default(),
        is_broken: AtomicBool::new(false),
    };
    let member = |index: usize| {
        let shared = &shared;
        let _break_on_panic = BreakOnPanic(shared);
        let _pinned = pin::pin_current_thread(places[index]);
        let member = CrewMember { index, shared };
        member.barrier();
        work(&member)
    };
    thread::scope(|scope| {
        let member = &member;
        let handles: Vec<_> = (0..places.len())
            .map(|index| scope.spawn(move || member(index)))
            .collect();
        let results: Vec<_> = handles.into_iter().map(|handle| handle.join()).collect();
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::places;

    #[test]
    fn the_barrier_keeps_members_in_step() {
        // More threads than most test machines give us CPUs: the barrier must yield.
        let counts: Vec<AtomicUsize> = (0..50).map(|_| AtomicUsize::new(0)).collect();
        let order = run(&places(3).unwrap(), |member| {
            for count in &counts {
                count.fetch_add(1, Ordering::Relaxed);
                member.barrier();
                assert_eq!(count.load(Ordering::Relaxed), member.threads());
            }
            member.index()
        });
        assert_eq!(order, [0, 1, 2]);
    }

    #[test]
    fn a_span_is_from_the_first_begin_to_the_last_end() {
        let base = Instant::now();
        let of = |from, to| {
            (
                base + Duration::from_millis(from),
                base + Duration::from_millis(to),
            )
        };
        assert_eq!(
            span(&[of(5, 9), of(2, 4), of(3, 12)]),
            Duration::from_millis(10)
        );
    }

    #[test]
    #[should_panic]
    fn a_panic_does_not_leave_the_others_waiting() {
        run(&places(2).unwrap(), |member| {
            assert_ne!(member.index(), 1, "this one gives up");
            member.barrier();
        });
    }
}
