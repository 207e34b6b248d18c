//! Parameters of a linear model in the units of its columns.
//!
//! A column `x` of mean `m` enters a search as `(x − m) / s`, so that its weight is `v = s·w`, and the intercept
//! `a = b + Σ m·w`. No value is changed: parameters are, and the gradient, on their way between the search and the
//! caller's units. The function that is minimised is the same, with the penalty on `w`.
//!
//! The curvature of the mean log-loss in `w` is at most a quarter of the column's variance, and that of the penalty
//! `1 / (C · rows)`: with `s² = variance + 4 / (C · rows)` it is at most a quarter in every `v`, and in `a`.

use super::columns::ColumnStats;
use serde::{Deserialize, Serialize};

/// What columns are measured from and by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Units {
    /// What is subtracted of each column: its mean, or 0 where no intercept is learnt.
    means: Vec<f64>,
    scales: Vec<f64>,
}

/// A column varies by at least this share of its mean: smaller deviations are the rounding of its values.
const LEAST_SHARE: f64 = 1.0 / (1_u64 << 40) as f64;

impl Units {
    /// Of columns like these, with a penalty of ½ · `penalty` · ‖w‖². None if their squares overflow.
    pub fn of(columns: &ColumnStats, penalty: f64, fit_intercept: bool) -> Option<Units> {
        let mut units = Units::default();
        for (&mean, &squares) in columns.means.iter().zip(&columns.squares) {
            let variance = squares / columns.weight;
            let (mean, square) = if fit_intercept {
                (mean, variance)
            } else {
                (0.0, mean.mul_add(mean, variance))
            };
            let least = LEAST_SHARE * mean;
            let scale = if penalty == 0.0 && square <= least * least {
                // Nothing bends along a column that does not vary: its gradient is rounding, of this size.
                mean.abs()
            } else {
                (square + 4.0 * penalty + least * least).sqrt()
            };
            if !(mean.is_finite() && scale.is_finite()) {
                return None;
            }
            units.means.push(mean);
            // Below that its inverse overflows.
            units.scales.push(scale.max(f64::MIN_POSITIVE));
        }
        Some(units)
    }

    /// Turns parameters, weights row by row and then an intercept for each row, into the caller's.
    pub fn to_callers(&self, parameters: &mut [f64]) {
        let columns = self.means.len();
        let rows = parameters.len() / (columns + 1);
        let (weights, intercepts) = parameters.split_at_mut(rows * columns);
        for (weights, intercept) in weights.chunks_exact_mut(columns).zip(intercepts) {
            for (at, weight) in weights.iter_mut().enumerate() {
                *weight /= self.scales[at];
                *intercept -= self.means[at] * *weight;
            }
        }
    }

    /// Turns the caller's parameters into those of a search.
    pub fn to_search(&self, parameters: &mut [f64]) {
        let columns = self.means.len();
        let rows = parameters.len() / (columns + 1);
        let (weights, intercepts) = parameters.split_at_mut(rows * columns);
        for (weights, intercept) in weights.chunks_exact_mut(columns).zip(intercepts) {
            for (at, weight) in weights.iter_mut().enumerate() {
                *intercept += self.means[at] * *weight;
                *weight *= self.scales[at];
            }
        }
    }

    /// Turns a gradient by the caller's parameters into one by those of the search.
    pub fn gradient_from_callers(&self, gradient: &mut [f64]) {
        let columns = self.means.len();
        let rows = gradient.len() / (columns + 1);
        let (weights, intercepts) = gradient.split_at_mut(rows * columns);
        for (weights, intercept) in weights.chunks_exact_mut(columns).zip(intercepts) {
            for (at, weight) in weights.iter_mut().enumerate() {
                *weight = (*weight - self.means[at] * *intercept) / self.scales[at];
            }
        }
    }

    /// Bytes that the buffers own.
    pub(super) fn heap_bytes(&self) -> usize {
        (self.means.capacity() + self.scales.capacity()) * size_of::<f64>()
    }
}
