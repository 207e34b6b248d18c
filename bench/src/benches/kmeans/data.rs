//! Rows that no file holds: each value is a function of its place, so any thread can make any of them.

use crate::limits::kmeans::{Centre, FEATURES};
use crate::uniform::uniform;
use brambling::program::Foreign;
use std::thread;

/// Rows, shared by ours and by every limit.
pub(super) struct Data {
    pub(super) x: Foreign<f64>,
}

impl Data {
    /// `rows` rows that lie evenly in a cube, made by `threads` threads in place: there are no heaps to
    /// be found, so the centres go on moving, and no second copy exists at any time.
    pub(super) fn generate(rows: usize, threads: usize) -> Data {
        let mut x = vec![0.0; rows * FEATURES];
        let part = x.len().div_ceil(threads.max(1)).max(1);
        thread::scope(|scope| {
            for (at, x) in x.chunks_mut(part).enumerate() {
                scope.spawn(move || {
                    for (place, value) in (at * part..).zip(x) {
                        *value = uniform(place as u64) * 4.0 - 2.0;
                    }
                });
            }
        });
        Data {
            x: Foreign::owned(x),
        }
    }

    pub(super) fn rows(&self) -> &[Centre] {
        self.x.as_chunks::<FEATURES>().0
    }

    /// Rows at equal distances from each other, the first row among them.
    pub(super) fn start(&self, k: usize) -> Vec<Centre> {
        let rows = self.rows();
        (0..k).map(|index| rows[index * rows.len() / k]).collect()
    }

    /// Bytes that one pass reads.
    pub(super) fn bytes(&self) -> f64 {
        size_of_val(&self.x[..]) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_do_not_change_the_data() {
        let (one, three) = (Data::generate(1_000, 1), Data::generate(1_000, 3));
        assert_eq!(one.x[..], three.x[..]);
    }

    #[test]
    fn the_first_centres_are_rows_at_equal_distances() {
        let data = Data::generate(1_000, 1);
        let start = data.start(4);
        let rows = [0, 250, 500, 750].map(|row| data.rows()[row]);
        assert_eq!(start, rows);
    }
}
