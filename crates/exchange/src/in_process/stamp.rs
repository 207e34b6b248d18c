//! The word in a piece's slot that says which turn of its source has ended.
//!
//! # Why a place is never read while it is written
//! Its source stamps it after the last write of a turn; its destination reads after it has seen the stamp, and
//! says that it has retired the turn after the last read ([`RetiredTurns`](super::RetiredTurns)); the source writes the place
//! again after it has seen that.
//!
//! # Why no piece is lost when a destination leaves its slots, and none goes twice
//! Who leaves says so, passes the dear fence, and claims what is stamped. A source stamps, passes the cheap fence, and looks whether its destination
//! is there: if not, it claims what it has stamped. So at least one of the two claims it, and one alone has it.

use super::sync::{AtomicU64, Ordering};

/// One more than the last turn that has ended; 0 before the first, and when what was there was claimed.
#[derive(Default)]
#[repr(transparent)]
pub struct Stamp(AtomicU64);

impl Stamp {
    /// Ends a turn. Called by the source.
    #[inline]
    pub fn end(&self, turn: u64) {
        // Release: publishes the piece. Pairs with the Acquire in `has_ended`.
        self.0.store(turn + 1, Ordering::Release);
    }

    /// Whether a turn, or a later one that uses the same place, has ended.
    #[inline]
    pub fn has_ended(&self, turn: u64) -> bool {
        // Acquire: the piece is visible. Pairs with the Release in `end`.
        self.0.load(Ordering::Acquire) > turn
    }

    /// One more than the last turn that has ended.
    pub(super) fn last(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Takes what a turn that has ended has left in the place, for a destination that is not there any more. Whether it is the caller's now.
    #[cold]
    pub fn claim(&self, turn: u64) -> bool {
        let claimed = self
            .0
            // AcqRel: the piece is visible to whoever claims it, and one of two claims fails.
            .compare_exchange(turn + 1, 0, Ordering::AcqRel, Ordering::Relaxed);
        claimed.is_ok()
    }
}
