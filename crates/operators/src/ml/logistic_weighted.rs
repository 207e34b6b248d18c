//! Logistic regression over rows that have weights, one block at a time.
//!
//! # Order
//! As [`super::logistic`] adds, but rows are taken in order; a residual and a loss are multiplied by the row's weight before
//! anything is added.

use super::columns::gram_block;
use super::logistic::{Labelled, Linear, wide_products};
use crate::numerics::{canonical, log_loss_lanes, sigmoid_lanes};
use crate::simd::{F64x8, Isa, RowMatrix, SimdKernel, TableValue, dispatch};

/// Overwrites `out` with the gradient and the loss of a block under `model`, each row by its weight: the values of a
/// [`Partial`](super::logistic::Partial).
///
/// # Panics
/// If the lengths of rows, labels, row weights, weights and `out` do not agree, or there is no column.
pub fn weighted_gradient_block<E: TableValue>(
    isa: Isa,
    block: Labelled<'_, E>,
    row_weights: &[f64],
    model: Linear<'_>,
    out: &mut [f64],
) {
    assert_eq!(block.x.len(), block.y.len() * block.columns);
    assert_eq!(row_weights.len(), block.y.len());
    assert_eq!(model.weights.len(), block.columns);
    assert_eq!(out.len(), block.columns + 2);
    dispatch(
        isa,
        Gradient {
            block,
            row_weights,
            model,
            out,
        },
    );
}

struct Gradient<'a, E> {
    block: Labelled<'a, E>,
    row_weights: &'a [f64],
    model: Linear<'a>,
    out: &'a mut [f64],
}

impl<E: TableValue> SimdKernel for Gradient<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(self) {
        let (block, model) = (self.block, self.model);
        let rows = RowMatrix::<V, E>::new(block.x, block.columns);
        let (gradient, totals) = self.out.split_at_mut(block.columns);
        let intercept = V::splat(model.intercept);
        let (mut of_intercept, mut of_loss) = (V::splat(0.0), V::splat(0.0));
        gradient.fill(0.0);
        let eights = block.y.chunks(8).zip(self.row_weights.chunks(8));
        for (index, (labels, row_weights)) in eights.enumerate() {
            let (first, count) = (index * 8, labels.len());
            let z = wide_products(rows, first, count, model.weights).add(intercept);
            let (p, power) = sigmoid_lanes(z);
            // Rows beyond the last have no weight.
            let (y, weight) = (V::load_first(labels), V::load_first(row_weights));
            let residual = p.sub(y).mul(weight);
            of_intercept = of_intercept.add(residual);
            of_loss = of_loss.add(log_loss_lanes(z, y, power).mul(weight));
            let mut residuals = [0.0; 8];
            residual.store(&mut residuals);
            for vector in 0..rows.vectors() {
                let column = vector * 8;
                let mut sum = V::load_first(&gradient[column..]);
                for row in 0..count {
                    let residual = V::splat(residuals[row]);
                    sum = rows.load(first + row, vector).mul_add(residual, sum);
                }
                sum.store_first(&mut gradient[column..]);
            }
        }
        totals[0] = canonical(of_intercept.reduce_add());
        totals[1] = canonical(of_loss.reduce_add());
        for value in gradient {
            *value = canonical(*value);
        }
    }
}

/// As [`gram_block`], each row by its weight.
///
/// # Panics
/// As [`gram_block`], and if there is not a weight for each row.
pub fn weighted_gram_block(
    isa: Isa,
    x: &[f64],
    row_weights: &[f64],
    columns: usize,
    out: &mut [f64],
) {
    assert_eq!(x.len(), columns * row_weights.len());
    let (order, wide) = (columns + 1, columns + 2);
    let rows = x.chunks_exact(columns).zip(row_weights);
    let rows = rows.flat_map(|(row, weight)| {
        let root = weight.sqrt();
        row.iter().chain([&1.0]).map(move |value| value * root)
    });
    let rows: Vec<f64> = rows.collect();
    let mut gram = vec![0.0; wide * wide];
    gram_block(isa, &rows, order, &mut gram);
    for (out, row) in out.chunks_exact_mut(order).zip(gram.chunks_exact(wide)) {
        out.copy_from_slice(&row[..order]);
    }
}
