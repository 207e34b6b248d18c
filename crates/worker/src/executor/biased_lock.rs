//! Owns the lock of a thread's ready queue and idle shards, which is biased towards that thread. Between kernels the thread
//! is inside, and touches both without atomic instructions; thieves lock it out while it is in a kernel. A thief that
//! finds the owner inside never waits for it.
//!
//! # Why owner and thief never meet
//! The owner says that it is inside, passes the cheap fence, and looks for the lock; a thief locks, passes the
//! dear fence, and looks whether the owner is inside. One of the two sees the other: the owner then steps back
//! and waits, or the thief gives up.

use crate::executor::sync::{AtomicBool, AtomicU32, Ordering};
use brambling_exchange::in_process::fences;

/// One thread's queue lock.
pub struct BiasedLock {
    owner: Owner,
    thieves: Thieves,
}

#[repr(align(128))]
struct Owner(AtomicBool);

#[repr(align(128))]
struct Thieves {
    locked: AtomicBool,
    /// A thief's number plus 1: it found the owner inside, and asks to be handed something.
    request: AtomicU32,
}

impl Default for BiasedLock {
    fn default() -> BiasedLock {
        let thieves = Thieves {
            locked: AtomicBool::new(false),
            request: AtomicU32::new(0),
        };
        BiasedLock {
            owner: Owner(AtomicBool::new(false)),
            thieves,
        }
    }
}

impl BiasedLock {
    /// The owner comes back from a kernel.
    #[inline]
    pub fn enter(&self) {
        loop {
            // Relaxed: the fence orders it before the load of `locked`. Pairs with the store of
            // `locked` and the dear fence in `try_lock`.
            self.owner.0.store(true, Ordering::Relaxed);
            fences::light();
            // Acquire: what a thief changed under the lock is visible.
            if !self.thieves.locked.load(Ordering::Acquire) {
                return;
            }
            self.step_back();
        }
    }

    #[cold]
    // Cold: a thief is inside for a few instructions, once in a while.
    fn step_back(&self) {
        // Release: as in `leave`.
        self.owner.0.store(false, Ordering::Release);
        // Acquire: pairs with the Release in `Locked::drop`; what the thief took is gone from the
        // queue.
        while self.thieves.locked.load(Ordering::Acquire) {
            #[cfg(brambling_loom)]
            loom::thread::yield_now();
            #[cfg(not(brambling_loom))]
            std::thread::yield_now();
        }
    }

    /// The owner goes into a kernel.
    #[inline]
    pub fn leave(&self) {
        // Release: a thief that sees the store also sees what the owner did inside.
        self.owner.0.store(false, Ordering::Release);
    }

    /// A thief tries to get in.
    pub fn try_lock(&self) -> Option<Locked<'_>> {
        let locked = &self.thieves.locked;
        locked
            // Acquire: pairs with the Release of the thief before, whose changes to the queue this
            // one builds on. Two thieves at once would both hold `&mut` to the queue.
            .compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        // Made before the look: the guard also unlocks if the owner is found inside.
        let guard = Locked(self);
        fences::heavy();
        // Acquire: pairs with the Release in `leave`. Who sees the owner outside sees all that it
        // did inside.
        (!self.owner.0.load(Ordering::Acquire)).then_some(guard)
    }

    /// A thief asks to be handed something.
    pub fn request(&self, thief: u32) {
        // Relaxed: a request carries nothing but its number. A thief whose number is overwritten
        // looks again.
        self.thieves.request.store(thief + 1, Ordering::Relaxed);
    }

    /// The thief that asked, if one did. For the owner.
    #[inline]
    pub fn take_request(&self) -> Option<u32> {
        // A load first: the line is shared until a thief writes it, and this is asked once a slice.
        if self.thieves.request.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.thieves
            .request
            .swap(0, Ordering::Relaxed)
            .checked_sub(1)
    }
}

/// A thief that has another's queue lock.
pub struct Locked<'a>(&'a BiasedLock);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `enter` and `step_back`.
        self.0.thieves.locked.store(false, Ordering::Release);
    }
}
