//! Statistics of a block's columns: finiteness, moments, and the Gram matrix that bounds a step.

use crate::numerics::canonical;
use crate::simd::{F64x8, Isa, RowMatrix, SimdKernel, TableValue, dispatch};
use serde::{Deserialize, Serialize};

/// Whether every value is finite.
pub fn all_finite_block(isa: Isa, x: &[f64]) -> bool {
    dispatch(isa, AllFinite(x))
}

struct AllFinite<'a>(&'a [f64]);

impl SimdKernel for AllFinite<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<V: F64x8>(self) -> bool {
        // x · 0 is NaN for an infinity as well as for a NaN, and a NaN stays in a sum.
        let zero = V::splat(0.0);
        let mut poison = [zero; 4];
        let (chunks, rest) = self.0.as_chunks::<32>();
        for chunk in chunks {
            let (vectors, _) = chunk.as_chunks::<8>();
            for vector in 0..4 {
                poison[vector] = V::load(&vectors[vector]).mul_add(zero, poison[vector]);
            }
        }
        for rest in rest.chunks(8) {
            poison[0] = V::load_first(rest).mul_add(zero, poison[0]);
        }
        let poison = poison[0].add(poison[1]).add(poison[2].add(poison[3]));
        !poison.reduce_add().is_nan()
    }
}

/// What rows weigh, and each column's mean and sum of squared deviations from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ColumnStats {
    /// What the rows weigh together: their number where all count alike.
    pub weight: f64,
    /// The mean by column; zero without rows.
    pub means: Vec<f64>,
    /// Σ (x − mean)² by column, each by its row's weight.
    pub squares: Vec<f64>,
    /// Whether every value is finite.
    pub finite: bool,
}

impl ColumnStats {
    /// Of no rows.
    pub fn new(columns: usize) -> ColumnStats {
        ColumnStats {
            weight: 0.0,
            means: vec![0.0; columns],
            squares: vec![0.0; columns],
            finite: true,
        }
    }

    /// Adds the rows behind `other`. The order of merging decides the last bits.
    pub fn merge(&mut self, other: &ColumnStats) {
        assert_eq!(self.means.len(), other.means.len());
        self.finite &= other.finite;
        if other.weight == 0.0 {
            return;
        }
        if self.weight == 0.0 {
            self.clone_from(&ColumnStats {
                finite: self.finite,
                ..other.clone()
            });
            return;
        }
        let (here, there) = (self.weight, other.weight);
        let all = here + there;
        let product = here * there;
        let shared = if product.is_finite() {
            product / all
        } else {
            here * (there / all)
        };
        for column in 0..self.means.len() {
            let apart = other.means[column] - self.means[column];
            let mean = apart.mul_add(there / all, self.means[column]);
            let between = apart * apart * shared;
            let squares = self.squares[column] + other.squares[column] + between;
            self.means[column] = canonical(mean);
            self.squares[column] = canonical(squares);
        }
        self.weight = all;
    }
}

/// The statistics of a block. Reads it twice, the second time from the cache if it is a block of 4,096
/// rows; deviations are taken from the block's own mean, so that no digits cancel.
///
/// # Panics
/// If the values do not make whole rows, or there is no column.
pub fn column_stats_block<E: TableValue>(isa: Isa, x: &[E], columns: usize) -> ColumnStats {
    let mut stats = ColumnStats::new(columns);
    dispatch(
        isa,
        Moments {
            x,
            stats: &mut stats,
        },
    );
    stats
}

struct Moments<'a, E> {
    x: &'a [E],
    stats: &'a mut ColumnStats,
}

impl<E: TableValue> SimdKernel for Moments<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(self) {
        let stats = self.stats;
        let rows = RowMatrix::<V, E>::new(self.x, stats.means.len());
        stats.weight = rows.len() as f64;
        if rows.len() == 0 {
            return;
        }
        let mut vector = 0;
        while vector < rows.vectors() {
            // Two vectors at a time are a whole line or more of each row.
            let column = vector * 8;
            if vector + 2 <= rows.vectors() {
                moments::<V, E, 2>(
                    rows,
                    vector,
                    &mut stats.means[column..],
                    &mut stats.squares[column..],
                );
            } else {
                moments::<V, E, 1>(
                    rows,
                    vector,
                    &mut stats.means[column..],
                    &mut stats.squares[column..],
                );
            }
            vector += 2;
        }
        // Σ (x − mean)² of finite values may overflow: then it cannot answer.
        let known = stats.squares.iter().all(|square| square.is_finite());
        stats.finite = known || self.x.iter().all(|&value| value.into().is_finite());
    }
}

#[inline(always)]
fn moments<V: F64x8, E: TableValue, const VECTORS: usize>(
    rows: RowMatrix<'_, V, E>,
    first: usize,
    means: &mut [f64],
    squares: &mut [f64],
) {
    let count = V::splat(rows.len() as f64);
    let mut mean = [V::splat(0.0); VECTORS];
    for row in 0..rows.len() {
        for vector in 0..VECTORS {
            mean[vector] = mean[vector].add(rows.load(row, first + vector));
        }
    }
    for vector in 0..VECTORS {
        mean[vector] = mean[vector].div(count);
    }
    let mut deviation = [V::splat(0.0); VECTORS];
    let mut square = [V::splat(0.0); VECTORS];
    for row in 0..rows.len() {
        for vector in 0..VECTORS {
            let d = rows.load(row, first + vector).sub(mean[vector]);
            deviation[vector] = deviation[vector].add(d);
            square[vector] = d.mul_add(d, square[vector]);
        }
    }
    for vector in 0..VECTORS {
        // The mean was rounded: what is left of the deviations' sum corrects both.
        let left = deviation[vector].div(count);
        let corrected = left.neg().mul_add(deviation[vector], square[vector]);
        mean[vector]
            .add(left)
            .canonical()
            .store_first(&mut means[vector * 8..]);
        corrected
            .canonical()
            .store_first(&mut squares[vector * 8..]);
    }
}

/// Overwrites `out` with X̃ᵀX̃ of a block, X̃ being its rows with a 1 appended: `(columns + 1)²` values,
/// the last row and column being the sums of the columns. Each entry adds its rows in order.
///
/// # Panics
/// If the lengths do not agree, or there is no column.
pub fn gram_block(isa: Isa, x: &[f64], columns: usize, out: &mut [f64]) {
    assert_eq!(out.len(), (columns + 1) * (columns + 1));
    assert!(columns > 0 && x.len().is_multiple_of(columns));
    dispatch(isa, Gram { x, columns, out });
}

struct Gram<'a> {
    x: &'a [f64],
    columns: usize,
    out: &'a mut [f64],
}

impl SimdKernel for Gram<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(self) {
        let rows = RowMatrix::<V>::new(self.x, self.columns);
        // A tile is some rows of the result by some vectors of columns: as many accumulators as fit
        // the registers. Each tile reads the block again, from the cache.
        let mut vector = 0;
        while vector < rows.vectors() {
            let vectors = (rows.vectors() - vector).min(3);
            let mut top = 0;
            while top + TILE_ROWS <= self.columns {
                match vectors {
                    1 => {
                        gram_tile::<V, 1, false>(rows, self.x, self.columns, top, vector, self.out)
                    }
                    2 => {
                        gram_tile::<V, 2, false>(rows, self.x, self.columns, top, vector, self.out)
                    }
                    _ => {
                        gram_tile::<V, 3, false>(rows, self.x, self.columns, top, vector, self.out)
                    }
                }
                top += TILE_ROWS;
            }
            match vectors {
                1 => gram_tile::<V, 1, true>(rows, self.x, self.columns, top, vector, self.out),
                2 => gram_tile::<V, 2, true>(rows, self.x, self.columns, top, vector, self.out),
                _ => gram_tile::<V, 3, true>(rows, self.x, self.columns, top, vector, self.out),
            }
            vector += vectors;
        }
        // The last column by symmetry: a product does not depend on the order of its factors.
        let order = self.columns + 1;
        for row in 0..self.columns {
            self.out[row * order + self.columns] = self.out[self.columns * order + row];
        }
        self.out[order * order - 1] = rows.len() as f64;
    }
}

/// With three vectors of columns, 21 accumulators of the 32 registers; and 20 columns with the
/// intercept are three tiles.
const TILE_ROWS: usize = 7;

#[inline(always)]
fn gram_tile<V: F64x8, const VECTORS: usize, const LAST: bool>(
    rows: RowMatrix<'_, V>,
    x: &[f64],
    columns: usize,
    top: usize,
    left: usize,
    out: &mut [f64],
) {
    let mut tile = [[V::splat(0.0); VECTORS]; TILE_ROWS];
    for (row, values) in x.chunks_exact(columns).enumerate() {
        let mut right = [V::splat(0.0); VECTORS];
        for vector in 0..VECTORS {
            right[vector] = rows.load(row, left + vector);
        }
        let values = &values[top..];
        assert!(LAST || values.len() >= TILE_ROWS);
        for index in 0..TILE_ROWS {
            // Beyond the last column stands the intercept's 1.
            let value = if LAST && index >= values.len() {
                1.0
            } else {
                values[index]
            };
            let value = V::splat(value);
            for vector in 0..VECTORS {
                tile[index][vector] = value.mul_add(right[vector], tile[index][vector]);
            }
        }
    }
    let order = columns + 1;
    for index in 0..TILE_ROWS {
        if top + index > columns {
            break;
        }
        for vector in 0..VECTORS {
            let column = (left + vector) * 8;
            let end = columns.min(column + 8);
            let into = &mut out[(top + index) * order..][column..end];
            tile[index][vector].canonical().store_first(into);
        }
    }
}

/// Squarings in [`largest_eigenvalue_bound`]: enough for 64 × 64 to come within 7 %.
const SQUARINGS: usize = 5;
/// From this order on squaring is not worth its time, and the norms alone must do.
const SQUARED_ORDER_MAX: usize = 256;

/// An upper bound of the largest eigenvalue of a symmetric, positive semidefinite matrix, such as a
/// Gram matrix. NaN if the matrix holds one, infinite if it overflows.
///
/// λ is at most the Frobenius norm F, and λ² is the largest eigenvalue of the square; so each squaring
/// takes a root of the bound's looseness (at most √order): after five it is at most order^(1/64).
///
/// # Panics
/// If the matrix is not `order` × `order`.
pub fn largest_eigenvalue_bound(isa: Isa, matrix: &[f64], order: usize) -> f64 {
    assert_eq!(matrix.len(), order * order);
    dispatch(isa, EigenvalueBound { matrix, order })
}

struct EigenvalueBound<'a> {
    matrix: &'a [f64],
    order: usize,
}

impl SimdKernel for EigenvalueBound<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<V: F64x8>(self) -> f64 {
        let order = self.order;
        let mut largest = 0.0_f64;
        for &value in self.matrix {
            if !value.is_finite() {
                return canonical(value.abs());
            }
            largest = largest.max(value.abs());
        }
        if largest == 0.0 {
            return 0.0;
        }
        // Entries of at most 1: no square overflows, and the norm is at least 1.
        let mut matrix: Vec<f64> = self.matrix.to_vec();
        for value in &mut matrix {
            *value /= largest;
        }
        let squarings = if order <= SQUARED_ORDER_MAX {
            SQUARINGS
        } else {
            0
        };
        let mut norms = [0.0; SQUARINGS + 1];
        norms[0] = normalise(&mut matrix);
        let mut square = vec![0.0; matrix.len()];
        for norm in &mut norms[1..=squarings] {
            square.fill(0.0);
            for row in 0..order {
                let into = &mut square[row * order..][..order];
                for middle in 0..order {
                    let factor = matrix[row * order + middle];
                    let from = &matrix[middle * order..][..order];
                    for (into, &value) in into.iter_mut().zip(from) {
                        *into = factor.mul_add(value, *into);
                    }
                }
            }
            std::mem::swap(&mut matrix, &mut square);
            *norm = normalise(&mut matrix);
        }
        // λ = n₀ √(n₁ √(n₂ …)).
        let mut bound = 1.0;
        for &norm in norms[1..=squarings].iter().rev() {
            bound = (norm * bound).sqrt();
        }
        // Rounding may have made it smaller by about order · 2^-52.
        let slack = (order as f64).mul_add(16.0 * f64::EPSILON, 1.0);
        largest * norms[0] * bound * slack
    }
}

/// Divides the matrix by its Frobenius norm, which it returns.
#[inline(always)]
fn normalise(matrix: &mut [f64]) -> f64 {
    let mut squares = 0.0;
    for &value in &*matrix {
        squares = value.mul_add(value, squares);
    }
    let norm: f64 = f64::sqrt(squares);
    for value in matrix {
        *value /= norm;
    }
    norm
}

/// A bound of the curvature of ½‖w‖² + C · Σ log-loss, for [`gram_block`]'s matrix summed over all
/// blocks: with step 1 ÷ this, gradient descent descends.
pub fn logistic_curvature_bound(isa: Isa, gram: &[f64], columns: usize, c: f64) -> f64 {
    // The log-loss curves by p (1 − p) ≤ ¼.
    (0.25 * c).mul_add(largest_eigenvalue_bound(isa, gram, columns + 1), 1.0)
}
