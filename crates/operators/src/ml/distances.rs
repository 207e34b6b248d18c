//! Squared distances of rows to centres, one block of rows at a time.
//!
//! # Order
//! A row's distance adds the squares of its differences column by column, each product and each sum rounded:
//! a CPU without fused multiplication computes it as fast as others do. What is summed over rows is summed in
//! eight lanes, row `i` in lane `i mod 8`, and the lanes are added in order.
//!
//! # Shape
//! As in [`super::nearest`]: eight rows are turned into columns, and stay while several centres pass.

use super::tile::{Column, Tile};
use crate::simd::{F64x8, Isa, SimdKernel, dispatch};
use brambling_program::BLOCK_ROWS;

/// Lowers `near` to the squared distance of each row of `x` to `centre`, where that is less.
///
/// # Panics
/// If `x` is not whole rows as long as the centre, with a value of `near` for each.
pub fn join_block(isa: Isa, x: &[f64], centre: &[f64], near: &mut [f64]) {
    let columns = centre.len();
    assert_eq!(near.len() * columns, x.len());
    run(isa, x, columns, centre, Joining { near });
}

/// What `near` would add up to if each of the centres (row by row) were joined alone, into `sums`.
///
/// # Panics
/// If `x` and `centres` are not whole rows, or there is not a value of `near` for each row.
pub fn potentials_block(
    isa: Isa,
    x: &[f64],
    columns: usize,
    centres: &[f64],
    near: &[f64],
    sums: &mut Vec<f64>,
) {
    assert_eq!(near.len() * columns, x.len());
    let mut lanes = vec![[0.0; 8]; centres.len() / columns];
    let then = Adding {
        near,
        lanes: &mut lanes,
    };
    run(isa, x, columns, centres, then);
    sums.clear();
    sums.extend(lanes.iter().map(sum_of_lanes));
}

/// As [`potentials_block`], each row by its weight.
///
/// # Panics
/// As [`potentials_block`], and if there is not a weight for each row.
pub fn weighted_potentials_block(
    isa: Isa,
    x: &[f64],
    weights: &[f64],
    columns: usize,
    centres: &[f64],
    near: &[f64],
    sums: &mut Vec<f64>,
) {
    assert_eq!(near.len() * columns, x.len());
    assert_eq!(near.len(), weights.len());
    let mut lanes = vec![[0.0; 8]; centres.len() / columns];
    let then = Weighing {
        near,
        weights,
        lanes: &mut lanes,
    };
    run(isa, x, columns, centres, then);
    sums.clear();
    sums.extend(lanes.iter().map(sum_of_lanes));
}

/// The distances, not squared, of each row of `x` to each of the centres (row by row), row by row.
///
/// # Panics
/// If `x` and `centres` are not whole rows.
pub fn distances(isa: Isa, x: &[f64], columns: usize, centres: &[f64]) -> Vec<f64> {
    let count = centres.len() / columns;
    let mut distances = vec![0.0; x.len() / columns * count];
    let out = &mut distances[..];
    run(isa, x, columns, centres, Writing { count, out });
    distances
}

/// The sum of the squared distances of rows, each to the centre that its label names. Blocks are summed first.
///
/// # Panics
/// If there is not a label for each row, or one of them names no centre.
pub fn inertia(x: &[f64], columns: usize, centres: &[f64], labels: &[u32]) -> f64 {
    inertia_by(x, columns, centres, labels, |_, square| square)
}

/// As [`inertia`], each row by its weight.
///
/// # Panics
/// As [`inertia`], and if a row has no weight.
pub fn weighted_inertia(
    x: &[f64],
    weights: &[f64],
    columns: usize,
    centres: &[f64],
    labels: &[u32],
) -> f64 {
    let by_weight = |row: usize, square| weights[row] * square;
    inertia_by(x, columns, centres, labels, by_weight)
}

fn inertia_by(
    x: &[f64],
    columns: usize,
    centres: &[f64],
    labels: &[u32],
    counted: impl Fn(usize, f64) -> f64,
) -> f64 {
    assert_eq!(labels.len() * columns, x.len());
    let blocks = x.chunks(BLOCK_ROWS * columns);
    let blocks = blocks.zip(labels.chunks(BLOCK_ROWS)).enumerate();
    let sums = blocks.map(|(block, (x, labels))| {
        let rows = x.chunks_exact(columns).zip(labels).enumerate();
        rows.fold(0.0, |sum, (row, (values, &label))| {
            let centre = &centres[label as usize * columns..][..columns];
            sum + counted(block * BLOCK_ROWS + row, square(values, centre))
        })
    });
    sums.fold(0.0, |sum, block| sum + block)
}

/// The squared distance of two rows, added in eight lanes so that it needs no waiting.
fn square(row: &[f64], centre: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    let ((rows, row), (centres, centre)) = (row.as_chunks::<8>(), centre.as_chunks::<8>());
    for (row, centre) in rows.iter().zip(centres) {
        for lane in 0..8 {
            let difference = row[lane] - centre[lane];
            lanes[lane] += difference * difference;
        }
    }
    for (lane, (x, c)) in row.iter().zip(centre).enumerate() {
        lanes[lane] += (x - c) * (x - c);
    }
    sum_of_lanes(&lanes)
}

fn sum_of_lanes(lanes: &[f64; 8]) -> f64 {
    lanes[1..].iter().fold(lanes[0], |sum, lane| sum + lane)
}

/// What is done with the squared distances of the rows from `first` on, at most eight, to one centre.
trait Then {
    fn eight<V: F64x8>(&mut self, first: usize, count: usize, centre: usize, squares: V);
}

struct Joining<'a> {
    near: &'a mut [f64],
}

impl Then for Joining<'_> {
    #[inline(always)]
    fn eight<V: F64x8>(&mut self, first: usize, count: usize, _: usize, squares: V) {
        let near = &mut self.near[first..first + count];
        least(squares, V::load_first(near)).store_first(near);
    }
}

struct Adding<'a> {
    near: &'a [f64],
    lanes: &'a mut [[f64; 8]],
}

impl Then for Adding<'_> {
    #[inline(always)]
    fn eight<V: F64x8>(&mut self, first: usize, count: usize, centre: usize, squares: V) {
        // Lanes beyond the last row are near by zero, and add nothing.
        let near = V::load_first(&self.near[first..first + count]);
        let lanes = &mut self.lanes[centre];
        V::load(lanes).add(least(squares, near)).store(lanes);
    }
}

struct Weighing<'a> {
    near: &'a [f64],
    weights: &'a [f64],
    lanes: &'a mut [[f64; 8]],
}

impl Then for Weighing<'_> {
    #[inline(always)]
    fn eight<V: F64x8>(&mut self, first: usize, count: usize, centre: usize, squares: V) {
        // Lanes beyond the last row weigh nothing.
        let near = V::load_first(&self.near[first..first + count]);
        let weights = V::load_first(&self.weights[first..first + count]);
        let lanes = &mut self.lanes[centre];
        let more = least(squares, near).mul(weights);
        V::load(lanes).add(more).store(lanes);
    }
}

struct Writing<'a> {
    count: usize,
    out: &'a mut [f64],
}

impl Then for Writing<'_> {
    #[inline(always)]
    fn eight<V: F64x8>(&mut self, first: usize, count: usize, centre: usize, squares: V) {
        let mut lanes = [0.0; 8];
        squares.store(&mut lanes);
        for lane in 0..count {
            self.out[(first + lane) * self.count + centre] = lanes[lane].sqrt();
        }
    }
}

#[inline(always)]
fn least<V: F64x8>(squares: V, near: V) -> V {
    V::select(squares.less(near), squares, near)
}

fn run(isa: Isa, x: &[f64], columns: usize, centres: &[f64], then: impl Then) {
    assert!(columns > 0 && x.len().is_multiple_of(columns));
    assert!(!centres.is_empty() && centres.len().is_multiple_of(columns));
    let distances = Distances {
        x,
        columns,
        centres,
        then,
    };
    dispatch(isa, distances);
}

/// Centres that pass together: their sums stay in registers and do not wait for one another.
const GROUP: usize = 4;

struct Distances<'a, T> {
    x: &'a [f64],
    columns: usize,
    centres: &'a [f64],
    then: T,
}

impl<T: Then> SimdKernel for Distances<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(mut self) {
        let mut tile = Tile::<1>::new(self.columns);
        let centres = self.centres.len() / self.columns;
        let mut first = 0;
        for rows in self.x.chunks(Tile::<1>::ROWS * self.columns) {
            let turned = tile.turn::<V>(rows);
            let count = rows.len() / self.columns;
            let mut centre = 0;
            while centre < centres {
                let group = (centres - centre).min(GROUP);
                let squares = self.squares::<V>(turned, centre, group);
                for at in 0..group {
                    self.then.eight(first, count, centre + at, squares[at]);
                }
                centre += group;
            }
            first += count;
        }
    }
}

impl<T> Distances<'_, T> {
    /// Of the turned rows to `group` centres from `first` on; places beyond them repeat the last one.
    #[inline(always)]
    fn squares<V: F64x8>(&self, tile: &[Column<1>], first: usize, group: usize) -> [V; GROUP] {
        let mut centres = [self.centres; GROUP];
        for at in 0..GROUP {
            let index = first + at.min(group - 1);
            centres[at] = &self.centres[index * self.columns..][..self.columns];
        }
        let mut squares = [V::splat(0.0); GROUP];
        for column in 0..self.columns {
            let x = V::load(&tile[column][0].0);
            let mut at = 0;
            while at < GROUP {
                let difference = x.sub(V::splat(centres[at][column]));
                squares[at] = squares[at].add(difference.mul(difference));
                at += 1;
            }
        }
        squares
    }
}
