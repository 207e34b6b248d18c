//! Which chunks of a source have come.

use std::collections::BTreeSet;

/// Chunks that have come: all below a number, and some beyond it. A stream has many, and they come almost in order.
#[derive(Debug, Default)]
pub(super) struct Seen {
    below: u64,
    beyond: BTreeSet<u64>,
}

impl Seen {
    /// Whether that is news.
    pub(super) fn insert(&mut self, chunk: u32) -> bool {
        let chunk = u64::from(chunk);
        let is_new = chunk >= self.below && self.beyond.insert(chunk);
        while self.beyond.remove(&self.below) {
            self.below += 1;
        }
        is_new
    }

    pub(super) fn count(&self) -> u64 {
        self.below + self.beyond.len() as u64
    }

    /// One past the highest.
    pub(super) fn end(&self) -> u64 {
        self.beyond.last().map_or(self.below, |chunk| chunk + 1)
    }
}
