//! Rows that no file holds: each value is a function of its place, so any thread can make any of them.

use crate::limits::logistic::FEATURES;
use crate::uniform::uniform;
use brambling::program::Foreign;
use std::thread;

/// Rows and labels, shared by ours and by every limit.
pub(super) struct Data {
    pub(super) x: Foreign<f64>,
    pub(super) y: Foreign<f64>,
}

impl Data {
    /// `rows` rows, made by `threads` threads in place: no second copy exists at any time.
    pub(super) fn generate(rows: usize, threads: usize) -> Data {
        let mut x = vec![0.0; rows * FEATURES];
        let mut y = vec![0.0; rows];
        let part = rows.div_ceil(threads.max(1)).max(1);
        thread::scope(|scope| {
            let parts = x.chunks_mut(part * FEATURES).zip(y.chunks_mut(part));
            for (at, (x, y)) in parts.enumerate() {
                scope.spawn(move || fill(at * part, x, y));
            }
        });
        Data {
            x: Foreign::owned(x),
            y: Foreign::owned(y),
        }
    }

    /// Bytes that one pass reads.
    pub(super) fn bytes(&self) -> u64 {
        ((self.x.len() + self.y.len()) * size_of::<f64>()) as u64
    }
}

fn fill(first_row: usize, x: &mut [f64], y: &mut [f64]) {
    for (at, (row, label)) in x.chunks_exact_mut(FEATURES).zip(y).enumerate() {
        let row_index = (first_row + at) as u64;
        let mut margin = 0.5;
        for (feature, value) in row.iter_mut().enumerate() {
            *value = uniform(row_index * 32 + feature as u64) * 4.0 - 2.0;
            // Weights of both signs, none of them 0.
            margin += *value * (feature as f64 - 9.5) / 10.0;
        }
        // Noise as large as the signal: no plane divides the labels.
        let noise = uniform(row_index * 32 + 31) * 8.0 - 4.0;
        *label = f64::from(u8::from(margin + noise > 0.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_do_not_change_the_data() {
        let (one, three) = (Data::generate(1_000, 1), Data::generate(1_000, 3));
        assert_eq!((&one.x[..], &one.y[..]), (&three.x[..], &three.y[..]));
        let ones: f64 = one.y.iter().sum();
        assert!((300.0..700.0).contains(&ones), "{ones} labels are 1");
    }
}
