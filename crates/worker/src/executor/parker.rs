//! How a thread without work sleeps, and how it is woken: by a system call only when it says that it sleeps.
//!
//! # Why nobody sleeps on work
//! A sleeper first says so, then looks at its queues once more, then sleeps. A pusher first pushes, then asks
//! whether the owner sleeps. A fence stands between the two steps of each: one of the two sees the other. The
//! sleeper's is the dear one, so that a pusher's may be the cheap one.

use crate::executor::sync::{AtomicBool, Ordering, fence};
use brambling_exchange::in_process::fences;
#[cfg(brambling_loom)]
use loom::sync::{Condvar, Mutex};
#[cfg(not(brambling_loom))]
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// One thread's parker. On a line of its own: other threads look whether it is used.
#[repr(align(128))]
pub struct Parker {
    parked: AtomicBool,
    woken: Mutex<bool>,
    bell: Condvar,
}

/// The parkers of a pool's threads. A job is made for one pool: whoever has something for a shard looks whether its thread sleeps, whatever
/// other jobs that thread works for.
#[cfg(not(brambling_loom))]
#[derive(Clone)]
pub struct Parkers(std::sync::Arc<[Parker]>);

#[cfg(not(brambling_loom))]
impl Parkers {
    /// For so many threads.
    pub(super) fn new(threads: u32) -> Parkers {
        Parkers((0..threads).map(|_| Parker::default()).collect())
    }

    /// How many threads there are.
    pub fn threads(&self) -> u32 {
        self.0.len() as u32
    }

    /// A thread's parker.
    #[inline]
    pub(super) fn of(&self, thread: u32) -> &Parker {
        &self.0[thread as usize]
    }

    /// Wakes all that sleep.
    pub(super) fn wake_all(&self) {
        self.0.iter().for_each(|parker| {
            parker.wake();
        });
    }

    /// Whether they are the same pool's.
    pub(super) fn belong_to(&self, other: &Parkers) -> bool {
        std::sync::Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Default for Parker {
    fn default() -> Parker {
        Parker {
            parked: AtomicBool::new(false),
            woken: Mutex::new(false),
            bell: Condvar::new(),
        }
    }
}

impl Parker {
    /// Sleeps until woken, unless `has_work` says that there is something to do, or at most `at_most`.
    pub fn park(&self, at_most: Duration, has_work: impl Fn() -> bool) {
        // Relaxed: the fence orders it before `has_work`. Pairs with the fence of a pusher, who
        // pushes before it asks `is_parked`.
        self.parked.store(true, Ordering::Relaxed);
        fences::heavy();
        if !has_work() {
            let mut woken = self
                .woken
                // lock: loom's, and only a flag is inside.
                .lock()
                .unwrap_or_else(|poison| poison.into_inner());
            // A wake-up between the look and the lock has set the flag: waiting now would miss that
            // wake-up.
            if !*woken {
                woken = self.wait(woken, at_most);
            }
            // The wake-up is taken: the next sleep must not end by it.
            *woken = false;
        }
        // Relaxed: whoever still sees it set makes a needless system call, and loses nothing.
        self.parked.store(false, Ordering::Relaxed);
    }

    #[cfg(not(brambling_loom))]
    fn wait<'a>(
        &self,
        woken: std::sync::MutexGuard<'a, bool>,
        at_most: Duration,
    ) -> std::sync::MutexGuard<'a, bool> {
        self.bell
            .wait_timeout(woken, at_most)
            .unwrap_or_else(|poison| poison.into_inner())
            .0
    }

    /// Loom has no time: a sleeper that nobody wakes is a deadlock, which it reports.
    #[cfg(brambling_loom)]
    fn wait<'a>(
        &self,
        mut woken: loom::sync::MutexGuard<'a, bool>,
        _: Duration,
    ) -> loom::sync::MutexGuard<'a, bool> {
        while !*woken {
            woken = self
                .bell
                .wait(woken)
                .unwrap_or_else(|poison| poison.into_inner());
        }
        woken
    }

    /// Whether the thread says that it sleeps. Asked by a pusher that has passed [`fences::light`] since it
    /// pushed.
    #[inline]
    pub fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Relaxed)
    }

    /// Wakes the thread if it says that it sleeps; whoever asks must have pushed before.
    #[inline]
    pub fn wake(&self) -> bool {
        // SeqCst: orders the push before the look. Pairs with the dear fence in `park`.
        fence(Ordering::SeqCst);
        if !self.is_parked() {
            return false;
        }
        *self
            .woken
            // lock: as in `park`.
            .lock()
            .unwrap_or_else(|poison| poison.into_inner()) = true;
        self.bell.notify_one();
        true
    }
}
