//! Owns a set of small numbers that many threads may join and one empties: who waits for something. Joining neither
//! allocates nor locks. It does not wake anybody: whoever empties it does.

use super::sync::{AtomicU64, Ordering};

/// A set of small numbers.
pub struct Waiters(Box<[AtomicU64]>);

impl Waiters {
    /// An empty set over `0..count`.
    pub fn new(count: usize) -> Waiters {
        Waiters((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Joins. Whoever joins then looks again at what it waits for.
    pub fn add(&self, waiter: usize) {
        // Release: pairs with the Acquire swap in `take`.
        self.0[waiter / 64].fetch_or(1 << (waiter % 64), Ordering::AcqRel);
    }

    /// Empties the set.
    pub fn take(&self, mut each: impl FnMut(usize)) {
        for (place, word) in self.0.iter().enumerate() {
            // A load first: most words are empty, and a swap would take their lines from whoever
            // joins.
            if word.load(Ordering::Acquire) == 0 {
                continue;
            }
            // Acquire: pairs with the `fetch_or` in `add`. What a waiter wrote before it joined is
            // visible.
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                each(place * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }
}
