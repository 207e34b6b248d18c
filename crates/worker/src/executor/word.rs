//! The state of a shard in the executor, and who may run it.
//!
//! # States
//! `Idle` → `Queued` → `Running` → `Idle`, `Queued` or `Done`; `Running` → `Notified` when something arrives
//! meanwhile. Only whoever turned `Queued` into `Running` touches the shard until it leaves that state.
//!
//! # Why no wake-up is lost
//! A shard goes idle by exchanging `Running` for `Idle`, after it has looked for what it needs. Whoever brings
//! it publishes it first and then turns `Running` into `Notified`. Either the look came later and saw it, or
//! the exchange fails and the shard looks again.

use crate::executor::sync::{AtomicU32, Ordering};

const IDLE: u32 = 0;
const QUEUED: u32 = 1;
const RUNNING: u32 = 2;
const NOTIFIED: u32 = 3;
const DONE: u32 = 4;

/// A shard's state, on lines of its own.
#[repr(align(128))]
pub struct Word(AtomicU32);

impl Word {
    /// A shard that is about to be queued by its maker.
    pub fn queued() -> Word {
        Word(AtomicU32::new(QUEUED))
    }

    /// Something arrived. True when the caller must queue the shard.
    #[inline]
    pub fn notify(&self) -> bool {
        // AcqRel: what arrived is published before the shard is told, whichever way it is told.
        let mut now = self.0.load(Ordering::Acquire);
        loop {
            let next = match now {
                IDLE => QUEUED,
                RUNNING => NOTIFIED,
                // A queued shard will look, a notified one will look again, a done one needs nothing. The
                // exchange with itself orders our publication before that look.
                DONE => return false,
                other => other,
            };
            match self
                .0
                .compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return now == IDLE,
                Err(changed) => now = changed,
            }
        }
    }

    /// Takes a queued shard to run it. The caller took it from a queue, so nobody else will.
    #[inline]
    pub fn start(&self) {
        // An exchange, not a store: it acquires what a notifier published while the shard was queued.
        let before = self.0.swap(RUNNING, Ordering::AcqRel);
        debug_assert_eq!(before, QUEUED);
    }

    /// Lets a shard that found nothing to run go idle. False when something arrived meanwhile: it runs on.
    #[inline]
    pub fn idle(&self) -> bool {
        if self
            .0
            .compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            return true;
        }
        self.0.store(RUNNING, Ordering::Relaxed);
        // The acquire of the failed exchange has seen what was published.
        false
    }

    /// A shard that gives way; its caller queues it.
    #[inline]
    pub fn requeue(&self) {
        self.0.store(QUEUED, Ordering::Release);
    }

    /// The program has ended for this shard.
    pub fn done(&self) {
        self.0.store(DONE, Ordering::Release);
    }

    /// Whether the shard waits for an arrival.
    pub fn is_idle(&self) -> bool {
        self.0.load(Ordering::Acquire) == IDLE
    }
}
