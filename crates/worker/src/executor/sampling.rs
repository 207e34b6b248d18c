//! Owns how calls of kernels are timed in slices that are sampled: a kernel is put into one that reads the clock around it. The
//! slice fills a sample, and the thread's book empties it.
#![allow(unsafe_code)] // Passes a kernel's arguments on.

use super::tally::count;
use brambling_program::{Context, Kernel, Progress, StageId};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Calls of kernels that were timed.
pub(super) struct TimedSample {
    /// By stage, nanoseconds.
    pub(super) ns: Box<[u64]>,
    /// Stages with a time.
    pub(super) touched: Vec<u32>,
    pub(super) calls: u64,
    /// Whether they are a few short ones of many alike.
    pub(super) is_short: bool,
}

/// A kernel whose calls are timed while this lives.
pub(super) struct TimedCall {
    /// A pointer, because a kernel borrows nothing: its trait says so.
    kernel: NonNull<dyn Kernel>,
    /// Atomic only because a kernel must be `Sync`: one thread has this.
    ns: AtomicU64,
}

// SAFETY: what it points to is a kernel, which is both.
unsafe impl Send for TimedCall {}
// SAFETY: as above.
unsafe impl Sync for TimedCall {}

impl TimedCall {
    /// # Safety
    /// The kernel lives as long as this.
    pub(super) unsafe fn new(kernel: &(dyn Kernel + 'static)) -> TimedCall {
        TimedCall {
            kernel: NonNull::from(kernel),
            ns: AtomicU64::new(0),
        }
    }

    /// How long its calls took: at least a nanosecond.
    pub(super) fn ns(&self) -> u64 {
        self.ns.load(Ordering::Relaxed).max(1)
    }
}

impl Kernel for TimedCall {
    unsafe fn call(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
        let begun = Instant::now();
        // SAFETY: it lives, by the promise given to `new`; and the caller's promise.
        let progress = unsafe { self.kernel.as_ref().call(context, args) };
        let ns = begun.elapsed().as_nanos() as u64;
        // Between two readings lies the cost of one.
        count(&self.ns, ns.saturating_sub(clock_ns()));
        progress
    }
}

impl TimedSample {
    /// Adds a call.
    pub(super) fn add(&mut self, stage: StageId, ns: u64) {
        let sum = &mut self.ns[stage.index()];
        if *sum == 0 {
            self.touched.push(stage.0);
        }
        *sum += ns;
        self.calls += 1;
    }

    pub(super) fn clear(&mut self) {
        for stage in self.touched.drain(..) {
            self.ns[stage as usize] = 0;
        }
        self.calls = 0;
    }
}

/// What a reading of the clock costs here, measured once: the least of some.
pub(super) fn clock_ns() -> u64 {
    static CLOCK_NS: OnceLock<u64> = OnceLock::new();
    *CLOCK_NS.get_or_init(|| {
        let reading = || {
            let begun = Instant::now();
            (0..8).for_each(|_| {
                std::hint::black_box(Instant::now());
            });
            begun.elapsed().as_nanos() as u64 / 9
        };
        (0..16).map(|_| reading()).min().unwrap_or_default()
    })
}
