//! Owns the count of turns that a destination has retired, and the set of sources that wait for the next. The destination's
//! thread retires, or the node for one that is elsewhere; sources ask. It holds no memory of pieces: that is `slots.rs`.
//!
//! # Why no waiting source is forgotten
//! A source that lacks room first joins the waiters, then passes the dear fence, then looks again. A
//! destination first says what it retired, then passes the cheap fence, then looks for waiters. One of the
//! two sees the other (see [`super::fences`]).

use super::fences;
use super::sync::{AtomicBool, AtomicU64, Ordering};
use super::waiters::Waiters;
#[cfg(not(brambling_loom))]
use brambling_program::Links;

/// Nothing retired, by destination of an exchange.
#[cfg(not(brambling_loom))]
pub(super) fn rooms(links: &Links) -> Box<[RetiredTurns]> {
    let room = |_| RetiredTurns::new(links.source_count() as usize);
    (0..links.destination_count()).map(room).collect()
}

/// One destination's room.
#[repr(align(128))]
pub struct RetiredTurns {
    retired: AtomicU64,
    anybody: AtomicBool,
    waiting: Waiters,
}

impl RetiredTurns {
    /// Nothing retired, nobody waiting.
    pub fn new(sources: usize) -> RetiredTurns {
        RetiredTurns {
            retired: AtomicU64::new(0),
            anybody: AtomicBool::new(false),
            waiting: Waiters::new(sources),
        }
    }

    /// Whether at least `turns` turns have been retired.
    #[inline]
    pub fn has_retired(&self, turns: u64) -> bool {
        // Acquire: pairs with the Release in `retire`. The destination no longer reads the places.
        self.retired.load(Ordering::Acquire) >= turns
    }

    /// How many turns have been retired.
    #[inline]
    pub fn retired(&self) -> u64 {
        // Acquire: as in `has_retired`.
        self.retired.load(Ordering::Acquire)
    }

    /// As [`RetiredTurns::has_retired`]; on a no the source is woken when the next turn is retired.
    pub fn await_retired(&self, turns: u64, source: usize) -> bool {
        self.waiting.add(source);
        // Set after the source has joined: whoever sees the flag finds the source in the set.
        self.anybody.store(true, Ordering::SeqCst);
        fences::heavy();
        self.has_retired(turns)
    }

    /// Retires a turn. Called by the destination. Calls `wake` for each source that waits.
    #[inline(always)]
    pub fn retire(&self, wake: impl FnMut(usize)) {
        // A load and a store do: only the destination writes the word while it is here, and
        // `retire_to` only while it is elsewhere. Release: its places are free.
        self.retired
            .store(self.retired.load(Ordering::Relaxed) + 1, Ordering::Release);
        fences::light();
        // Relaxed: the fence orders it behind the store above. Pairs with the dear fence in
        // `await_retired`.
        if self.anybody.load(Ordering::Relaxed) {
            self.wake_all(wake);
        }
    }

    /// A destination that is elsewhere has retired all turns before this one: told late, and perhaps twice. Calls `wake` as [`RetiredTurns::retire`].
    pub fn retire_to(&self, turns: u64, wake: impl FnMut(usize)) {
        // The larger count wins: news comes late, twice, and in any order.
        if self.retired.fetch_max(turns, Ordering::SeqCst) < turns {
            fences::heavy();
            if self.anybody.load(Ordering::SeqCst) {
                self.wake_all(wake);
            }
        }
    }

    #[cold]
    fn wake_all(&self, wake: impl FnMut(usize)) {
        // Lowered before the set is emptied: a source that joins meanwhile raises the flag again.
        self.anybody.store(false, Ordering::SeqCst);
        self.waiting.take(wake);
    }
}
