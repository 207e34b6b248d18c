//! Which sources of a turn have been heard from: counted by two counters, so that neighbours on one thread
//! need no locked instruction.
//!
//! # Why no arrival is lost
//! Sources that run on the destination's own thread count on `near`, which only that thread touches; all
//! others count on `far`. The turn is complete when both add up. A far source wakes the destination's thread
//! after it has counted; a near one looks at the sum itself. Whichever comes last finds the sum complete, or
//! wakes somebody who will.

use super::sync::{AtomicU32, Ordering};

/// The arrivals of one open turn at one destination.
pub struct Arrivals {
    near: Near,
    far: Far,
}

/// Written by the destination's thread.
#[repr(align(128))]
struct Near {
    heard: AtomicU32,
    expected: AtomicU32,
}

/// Written by other threads.
#[repr(align(128))]
struct Far(AtomicU32);

#[cfg(not(loom))]
const _: () = assert!(align_of::<Near>() == 128 && align_of::<Far>() == 128);

impl Arrivals {
    /// A turn that waits for a number of sources.
    pub fn new(expected: u32) -> Arrivals {
        let near = Near {
            heard: AtomicU32::new(0),
            expected: AtomicU32::new(expected),
        };
        Arrivals {
            near,
            far: Far(AtomicU32::new(0)),
        }
    }

    /// Whether every source has been heard from. Asked by the destination's thread.
    #[inline]
    pub fn is_complete(&self) -> bool {
        let heard = self.near.heard.load(Ordering::Relaxed);
        // Acquire: pairs with the release in `arrive_far`; the pieces are visible.
        heard + self.far.0.load(Ordering::Acquire) == self.near.expected.load(Ordering::Relaxed)
    }

    /// A source on the destination's own thread. True when it was the last one.
    #[inline]
    pub fn arrive_near(&self) -> bool {
        // Only this thread writes the word.
        self.near.heard.store(
            self.near.heard.load(Ordering::Relaxed) + 1,
            Ordering::Relaxed,
        );
        self.is_complete()
    }

    /// A source on another thread; it then wakes the destination.
    #[inline]
    pub fn arrive_far(&self) {
        self.far.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Opens the place for a later turn. Called by the destination's thread before it says that there is room.
    #[inline]
    pub fn reopen(&self, expected: u32) {
        self.near.heard.store(0, Ordering::Relaxed);
        self.far.0.store(0, Ordering::Relaxed);
        self.near.expected.store(expected, Ordering::Relaxed);
    }
}
