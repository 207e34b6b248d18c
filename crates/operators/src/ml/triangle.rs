//! The triangle R of a QR factorisation, a few rows at a time; and its singular values.
//!
//! # Method
//! Householder reflections eliminate new rows against the triangle of those before (Golub and Van Loan, Matrix
//! Computations, 4th edition, 12.5.3: nothing is squared that has more digits than its column). Singular values are found
//! by one-sided Jacobi rotations of the triangle's rows (the same, 8.6.3), which carry right-hand sides along.
//!
//! # Order
//! A product of two columns adds its rows in eight lanes, row `i` in lane `i mod 8`, fused, and the lanes by halving. A
//! product of two rows of the triangle adds in eight lanes too, and those in order.

use crate::numerics::canonical;
use crate::simd::{F64x8, Isa, SimdKernel, dispatch};

/// New rows as columns: each column takes whole eights, and ends in zeros.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) lines: Vec<[f64; 8]>,
    eights: usize,
}

impl Columns {
    /// All zero, for so many rows of so many columns. The buffer is kept.
    pub(super) fn reset(&mut self, rows: usize, columns: usize) {
        self.eights = rows.div_ceil(8);
        self.lines.clear();
        self.lines.resize(self.eights * columns, [0.0; 8]);
    }

    pub(super) fn column_mut(&mut self, column: usize) -> &mut [f64] {
        self.lines[column * self.eights..][..self.eights].as_flattened_mut()
    }
}

/// Makes the triangle (`order` × `order`, row by row, zero below its diagonal) that of its rows and the new ones together.
/// The new rows are overwritten.
///
/// # Panics
/// If the lengths do not agree.
pub(super) fn absorb(isa: Isa, triangle: &mut [f64], order: usize, rows: &mut Columns) {
    assert_eq!(triangle.len(), order * order);
    assert_eq!(rows.lines.len(), order * rows.eights);
    if rows.eights > 0 {
        let factors = scale(triangle, order, rows);
        dispatch(
            isa,
            Absorb {
                triangle: &mut *triangle,
                order,
                rows,
            },
        );
        for (column, &factor) in factors.iter().enumerate() {
            if factor != 1.0 {
                (0..=column).for_each(|row| triangle[row * order + column] /= factor);
            }
        }
    }
}

/// Multiplies columns whose squares could over- or underflow by powers of two, and gives these.
fn scale(triangle: &mut [f64], order: usize, rows: &mut Columns) -> Vec<f64> {
    let factors = (0..order).map(|column| {
        let above = (0..=column).map(|row| triangle[row * order + column]);
        let factor = factor_for(above.chain(rows.column_mut(column).iter().copied()));
        if factor != 1.0 {
            (0..=column).for_each(|row| triangle[row * order + column] *= factor);
            let values = rows.column_mut(column).iter_mut();
            values.for_each(|value| *value *= factor);
        }
        factor
    });
    factors.collect()
}

/// 2⁶⁰⁰ and 2³⁰⁰.
const FAR: f64 = f64::from_bits((1023 + 600) << 52);
const LARGE: f64 = f64::from_bits((1023 + 300) << 52);

/// What brings values to where their squares are normal numbers: 1 for most.
fn factor_for(values: impl Iterator<Item = f64>) -> f64 {
    let largest = values.fold(0.0, |largest: f64, value| largest.max(value.abs()));
    if largest > LARGE {
        1.0 / FAR
    } else if largest > 0.0 && largest < 1.0 / LARGE {
        FAR
    } else {
        1.0
    }
}

struct Absorb<'a> {
    triangle: &'a mut [f64],
    order: usize,
    rows: &'a mut Columns,
}

impl SimdKernel for Absorb<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(self) {
        let (order, eights) = (self.order, self.rows.eights);
        for at in 0..order {
            let (columns, later) = self.rows.lines.split_at_mut((at + 1) * eights);
            let column = &mut columns[at * eights..];
            let top = &mut self.triangle[at * order + at..(at + 1) * order];
            let square = product::<V>(column, column);
            if square == 0.0 {
                continue;
            }
            let norm = top[0].mul_add(top[0], square).sqrt();
            let diagonal = if top[0] > 0.0 { -norm } else { norm };
            // The reflection is 1 − share · v vᵀ, with v's first element 1.
            let first = top[0] - diagonal;
            let share = -first / diagonal;
            for line in column.iter_mut() {
                V::load(line).div(V::splat(first)).store(line);
            }
            top[0] = diagonal;
            for (into, line) in top[1..].iter_mut().zip(later.chunks_exact_mut(eights)) {
                let moved = share * (*into + product::<V>(column, line));
                *into = canonical(*into - moved);
                let moved = V::splat(-moved);
                for (value, towards) in line.iter_mut().zip(&*column) {
                    let value: &mut [f64; 8] = value;
                    moved.mul_add(V::load(towards), V::load(value)).store(value);
                }
            }
        }
    }
}

#[inline(always)]
fn product<V: F64x8>(left: &[[f64; 8]], right: &[[f64; 8]]) -> f64 {
    let mut sum = V::splat(0.0);
    for (left, right) in left.iter().zip(right) {
        sum = V::load(left).mul_add(V::load(right), sum);
    }
    sum.reduce_add()
}

/// Rotations go through all pairs of rows at most so often; ten times are many.
const SWEEPS: usize = 60;

/// Rotates rows of `width` values until their first `order` values are orthogonal to one another: then the length of a row's first
/// values is a singular value of what was there, and they point along its right singular vector.
///
/// # Panics
/// If there are not `order` rows.
pub(super) fn make_orthogonal(rows: &mut [f64], order: usize, width: usize) {
    assert_eq!(rows.len(), order * width);
    for _ in 0..SWEEPS {
        let mut rotated = false;
        for first in 0..order {
            for second in first + 1..order {
                let (before, after) = rows.split_at_mut(second * width);
                let one = &mut before[first * width..][..width];
                rotated |= rotate(one, &mut after[..width], order);
            }
        }
        if !rotated {
            return;
        }
    }
}

/// Whether two rows were not orthogonal.
fn rotate(one: &mut [f64], other: &mut [f64], order: usize) -> bool {
    let (left, right) = (&one[..order], &other[..order]);
    let (here, there, between) = (
        row_product(left, left),
        row_product(right, right),
        row_product(left, right),
    );
    let lengths = here.sqrt() * there.sqrt();
    if between.abs() <= f64::EPSILON * lengths {
        return false;
    }
    let ratio = (there - here) / (2.0 * between);
    let tangent = ratio.signum() / (ratio.abs() + (1.0 + ratio * ratio).sqrt());
    let cosine = 1.0 / (1.0 + tangent * tangent).sqrt();
    let sine = cosine * tangent;
    for (one, other) in one.iter_mut().zip(other) {
        (*one, *other) = (cosine * *one - sine * *other, sine * *one + cosine * *other);
    }
    true
}

pub(super) fn row_product(left: &[f64], right: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    for (left, right) in left.chunks(8).zip(right.chunks(8)) {
        for (lane, (left, right)) in lanes.iter_mut().zip(left.iter().zip(right)) {
            *lane += left * right;
        }
    }
    lanes.iter().fold(0.0, |sum, lane| sum + lane)
}

/// The solutions of least squares of the triangle of `columns` columns and then `targets` right-hand sides, target by target;
/// and the singular values of its columns, the largest first. Of several solutions the shortest: directions whose singular value
/// is at most `tol` · the largest are left out.
pub(super) fn solve(triangle: &[f64], columns: usize, targets: usize, tol: f64) -> Solution {
    let order = columns + targets;
    let mut rows = triangle[..columns * order].to_vec();
    let firsts = rows.chunks_exact(order).flat_map(|row| &row[..columns]);
    let factor = factor_for(firsts.copied());
    for row in rows.chunks_exact_mut(order) {
        row[..columns].iter_mut().for_each(|value| *value *= factor);
    }
    make_orthogonal(&mut rows, columns, order);
    let mut found: Vec<(f64, &[f64])> = rows
        .chunks_exact(order)
        .map(|row| (row_product(&row[..columns], &row[..columns]).sqrt(), row))
        .collect();
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    let least = tol * found[0].0;
    let kept = found.iter().take_while(|(value, _)| *value > least);
    let rank = kept.clone().count();
    let mut coef = vec![0.0; targets * columns];
    for (value, row) in kept {
        let (direction, sides) = row.split_at(columns);
        for (coef, side) in coef.chunks_exact_mut(columns).zip(sides) {
            let along = side / value * factor;
            for (coef, towards) in coef.iter_mut().zip(direction) {
                *coef += towards / value * along;
            }
        }
    }
    Solution {
        coef: coef.into_iter().map(canonical).collect(),
        singular: found.iter().map(|(value, _)| value / factor).collect(),
        rank,
    }
}

pub(super) struct Solution {
    pub(super) coef: Vec<f64>,
    pub(super) singular: Vec<f64>,
    pub(super) rank: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd;

    fn numbers(count: usize) -> Vec<f64> {
        let number = |at: usize| ((at + 1) * 2_654_435_761 % 9_973) as f64 / 3_000.0 - 1.6;
        (0..count).map(number).collect()
    }

    /// The triangle of rows, taken so many at a time.
    fn triangle(isa: Isa, x: &[f64], order: usize, at_a_time: usize) -> Vec<f64> {
        let mut triangle = vec![0.0; order * order];
        for some in x.chunks(at_a_time * order) {
            let mut rows = Columns::default();
            rows.reset(some.len() / order, order);
            for (row, values) in some.chunks(order).enumerate() {
                for (column, &value) in values.iter().enumerate() {
                    rows.column_mut(column)[row] = value;
                }
            }
            absorb(isa, &mut triangle, order, &mut rows);
        }
        triangle
    }

    fn squared(x: &[f64], order: usize) -> Vec<f64> {
        let entry = |at: usize| {
            let rows = x.chunks(order);
            rows.map(|row| row[at / order] * row[at % order]).sum()
        };
        (0..order * order).map(entry).collect()
    }

    #[test]
    fn a_triangle_has_the_squares_of_its_rows() {
        for (rows, order) in [(1, 1), (3, 5), (40, 5), (333, 9)] {
            let x = numbers(rows * order);
            for at_a_time in [1, 7, 64] {
                let found = triangle(simd::detect(), &x, order, at_a_time);
                for isa in Isa::supported() {
                    assert_eq!(triangle(isa, &x, order, at_a_time), found, "{isa}");
                }
                for (at, &value) in found.iter().enumerate() {
                    assert!(at % order >= at / order || value == 0.0);
                }
                let pairs = squared(&found, order).into_iter().zip(squared(&x, order));
                for (found, expected) in pairs {
                    assert!((found - expected).abs() < 1e-10, "{found} {expected}");
                }
            }
        }
    }

    #[test]
    fn sizes_do_not_matter() {
        let x = numbers(60);
        let expected = triangle(simd::detect(), &x, 3, 8);
        for size in [2.0_f64.powi(-1_000), 2.0_f64.powi(1_000)] {
            let sized: Vec<f64> = x.iter().map(|value| value * size).collect();
            let found = triangle(simd::detect(), &sized, 3, 8);
            let found: Vec<f64> = found.iter().map(|value| value / size).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn rotations_find_singular_values() {
        // 2 and 3 along axes that are turned by 30 degrees.
        let (cosine, sine) = (0.75_f64.sqrt(), 0.5);
        let x = [
            2.0 * cosine,
            2.0 * sine,
            -3.0 * sine,
            3.0 * cosine,
            0.0,
            0.0,
        ];
        let found = solve(&triangle(simd::detect(), &x, 2, 3), 2, 0, 0.0);
        assert!((found.singular[0] - 3.0).abs() < 1e-15 && (found.singular[1] - 2.0).abs() < 1e-15);
        assert_eq!(found.rank, 2);
        assert_eq!(solve(&[0.0; 4], 2, 0, 0.0).rank, 0);
    }
}
