//! Columns' moments over rows that have weights, or none.
//!
//! # Order
//! As [`super::columns`] adds them: a column's rows in order, each product with a weight fused.

use super::columns::{ColumnStats, column_stats_block};
use super::samples::{SampleBlock, SamplesError};
use crate::simd::{self, F64x8, Isa, RowMatrix, SimdKernel, TableValue, dispatch};
use brambling_program::{Combine, Sum, Work};
use serde::{Deserialize, Serialize};

/// The statistics of a block whose rows count by their weights: [`column_stats_block`] where there are none.
///
/// # Panics
/// If the values do not make whole rows with a weight each (or none at all), or there is no column.
pub fn weighted_stats_block<E: TableValue>(
    isa: Isa,
    x: &[E],
    columns: usize,
    weights: &[f64],
) -> ColumnStats {
    if weights.is_empty() {
        return column_stats_block(isa, x, columns);
    }
    assert_eq!(x.len(), columns * weights.len());
    let stats = ColumnStats::new(columns);
    dispatch(isa, Weighted { x, weights, stats })
}

struct Weighted<'a, E> {
    x: &'a [E],
    weights: &'a [f64],
    stats: ColumnStats,
}

impl<E: TableValue> SimdKernel for Weighted<'_, E> {
    type Output = ColumnStats;

    #[inline(always)]
    fn run<V: F64x8>(self) -> ColumnStats {
        let Weighted {
            x,
            weights,
            mut stats,
        } = self;
        let rows = RowMatrix::<V, E>::new(x, stats.means.len());
        stats.weight = weights.iter().fold(0.0, |sum, weight| sum + weight);
        if stats.weight > 0.0 {
            for vector in 0..rows.vectors() {
                let (means, squares) = (
                    &mut stats.means[vector * 8..],
                    &mut stats.squares[vector * 8..],
                );
                moments(
                    rows,
                    vector,
                    weights,
                    V::splat(stats.weight),
                    means,
                    squares,
                );
            }
        }
        let known = stats.weight > 0.0 && stats.squares.iter().all(|square| square.is_finite());
        stats.finite = known || x.iter().all(|&value| value.into().is_finite());
        stats
    }
}

#[inline(always)]
fn moments<V: F64x8, E: TableValue>(
    rows: RowMatrix<'_, V, E>,
    vector: usize,
    weights: &[f64],
    all: V,
    means: &mut [f64],
    squares: &mut [f64],
) {
    let mut mean = V::splat(0.0);
    for (row, &weight) in weights.iter().enumerate() {
        mean = rows.load(row, vector).mul_add(V::splat(weight), mean);
    }
    mean = mean.div(all);
    let (mut deviation, mut square) = (V::splat(0.0), V::splat(0.0));
    for (row, &weight) in weights.iter().enumerate() {
        let d = rows.load(row, vector).sub(mean);
        let weighted = d.mul(V::splat(weight));
        deviation = deviation.add(weighted);
        square = weighted.mul_add(d, square);
    }
    // The mean was rounded: what is left of the deviations' sum corrects both.
    let left = deviation.div(all);
    let corrected = left.neg().mul_add(deviation, square);
    mean.add(left).canonical().store_first(means);
    corrected.canonical().store_first(squares);
}

/// [`ColumnStats`] of some blocks, and the first value in them that cannot be used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Moments {
    /// Of the rows.
    pub stats: ColumnStats,
    /// Why nothing can be learnt from them, if so.
    pub refusal: Option<SamplesError>,
}
brambling_program::payload!(Moments, |moments| (moments.stats.means.capacity()
    + moments.stats.squares.capacity())
    * size_of::<f64>());

/// Operations of a mean and a square, for each value.
pub(super) const MOMENT_FLOPS: u64 = 5;

impl Moments {
    /// Those of a block.
    pub fn of_block(block: SampleBlock<'_>, moments: &mut Moments) -> Work {
        let isa = simd::active();
        let stats = weighted_stats_block(isa, block.x, block.columns, block.weights);
        let refusal = if stats.finite {
            None
        } else {
            block.not_finite()
        };
        *moments = Moments { stats, refusal };
        block.work(MOMENT_FLOPS, 0)
    }

    /// The statistics, if they can be used.
    ///
    /// # Errors
    /// The first value that is no number, or that squares overflow.
    pub fn usable(&self) -> Result<&ColumnStats, SamplesError> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let mut numbers = self.stats.squares.iter().chain(&self.stats.means);
        match numbers.all(|number| number.is_finite()) {
            true => Ok(&self.stats),
            false => Err(SamplesError::TooLarge),
        }
    }
}

impl Combine<Moments> for Sum {
    fn combine(&self, left: &mut Moments, right: &Moments) {
        left.stats.merge(&right.stats);
        if left.refusal.is_none() {
            left.refusal.clone_from(&right.refusal);
        }
    }
}
