//! A run queue: a set of shards, as bits, so that pushing, taking and stealing neither allocate nor lock.

use crate::executor::sync::{AtomicU64, Ordering};

/// Words that several threads write lie on lines of their own.
#[repr(align(128))]
struct Line([AtomicU64; 16]);

/// Which of a range of shards are to be run.
pub struct Queue {
    first: u32,
    count: u32,
    lines: Box<[Line]>,
}

impl Queue {
    /// An empty queue for the shards `first..first + count`.
    pub fn new(first: u32, count: u32) -> Queue {
        let lines = (count as usize).div_ceil(64 * 16);
        let line = |_| Line(std::array::from_fn(|_| AtomicU64::new(0)));
        Queue {
            first,
            count,
            lines: (0..lines).map(line).collect(),
        }
    }

    #[inline]
    fn words(&self) -> usize {
        (self.count as usize).div_ceil(64)
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.lines[index / 16].0[index % 16]
    }

    /// Adds a shard.
    #[inline]
    pub fn push(&self, shard: u32) {
        let place = shard - self.first;
        debug_assert!(place < self.count);
        // SeqCst: the pusher then asks whether the owner sleeps, and the owner, having said that it will,
        // looks here once more. One of the two sees the other.
        self.word(place as usize / 64)
            .fetch_or(1 << (place % 64), Ordering::SeqCst);
    }

    /// Takes a shard, going round from `cursor`, which moves on: everybody gets a turn.
    #[inline]
    pub fn pop(&self, cursor: &mut u32) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let words = self.words();
        let (start, bit) = ((*cursor / 64) as usize % words, *cursor % 64);
        for step in 0..=words {
            let index = (start + step) % words;
            let mut bits = self.word(index).load(Ordering::SeqCst);
            if step == 0 {
                bits &= u64::MAX << bit;
            }
            while bits != 0 {
                let place = bits.trailing_zeros();
                if self.take(index, place) {
                    *cursor = (index as u32 * 64 + place + 1) % (words as u32 * 64);
                    return Some(self.first + index as u32 * 64 + place);
                }
                bits &= bits - 1;
            }
        }
        None
    }

    #[inline]
    fn take(&self, index: usize, place: u32) -> bool {
        let mask = 1 << place;
        self.word(index).fetch_and(!mask, Ordering::AcqRel) & mask != 0
    }

    /// Whether there is nothing to run.
    #[inline]
    pub fn is_empty(&self) -> bool {
        (0..self.words()).all(|index| self.word(index).load(Ordering::SeqCst) == 0)
    }

    /// The queue's content, for a thief to compare with what it saw before.
    pub fn look(&self, seen: &mut Vec<u64>) {
        seen.clear();
        seen.extend((0..self.words()).map(|index| self.word(index).load(Ordering::Relaxed)));
    }

    /// Takes a shard that was already there when the thief looked: the last, which its owner comes to last.
    pub fn steal(&self, seen: &[u64]) -> Option<u32> {
        for index in (0..seen.len().min(self.words())).rev() {
            let mut bits = self.word(index).load(Ordering::Relaxed) & seen[index];
            while bits != 0 {
                let place = 63 - bits.leading_zeros();
                if self.take(index, place) {
                    return Some(self.first + index as u32 * 64 + place);
                }
                bits &= !(1 << place);
            }
        }
        None
    }
}
