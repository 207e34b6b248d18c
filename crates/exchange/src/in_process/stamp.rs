//! The word in a piece's slot that says which turn of its source has ended.
//!
//! # Why a place is never read while it is written
//! Its source stamps it after the last write of a turn; its destination reads after it has seen the stamp, and
//! says that it has retired the turn after the last read ([`Room`](super::Room)); the source writes the place
//! again after it has seen that.

use super::sync::{AtomicU64, Ordering};

/// One more than the last turn that has ended; 0 before the first.
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
        // Acquire: the piece is visible.
        self.0.load(Ordering::Acquire) > turn
    }
}
