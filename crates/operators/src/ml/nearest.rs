//! The nearest of some centres for each row, one block of rows at a time: an iteration of k-means.
//!
//! # Order
//! A row's nearest centre is the one with the least squared distance, the first of equal ones; the distance is the one
//! that [`super::distances`] finds, by differences. A centre's sums add its rows, or their differences from it, in order.
//! Neither the width of a register nor how centres are grouped enters, nor how far rows are from the origin.
//!
//! # Shape
//! Rows are turned into columns of sixteen (or eight), so that a vector holds one column of eight rows and the
//! least is found lane by lane. Centres are taken in groups whose scores stay in registers: every value
//! of a row is then read once a group, and every value of a centre once for sixteen rows.
//!
//! Differences take two to three times as many instructions as scores, of which one multiply-add for each value does: half the
//! centre's square less the product. So rows are scored first, and a bound of the error proves most labels; the rest is found by
//! differences. Scores lose digits to what rows and centres have in common: where that is much, both are taken about the centres'
//! mean. More than one group, or a wide one, is scored in singles first, which is half the work (`singles`), and what is left in
//! doubles (`doubles`).

use crate::simd::{F64x8, Isa, dispatch_pair};
use doubles::by_doubles;
use singles::Proving;

pub use centres::Centres;
pub use members::{CentreSums, members_block, weighted_members_block};

mod centres;
mod differences;
mod doubles;
mod members;
mod singles;

/// Writes the nearest centre of each row of `x` into `labels`.
///
/// # Panics
/// As [`members_block`], and if there is not one label for each row.
pub fn labels_block(isa: Isa, x: &[f64], centres: &Centres, labels: &mut [u32]) {
    assert_eq!(labels.len() * centres.columns, x.len());
    run(isa, x, centres, Labelling { rest: labels });
}

/// The nearest of `centres` (row by row) for each row of `x`.
///
/// # Panics
/// If `x` and `centres` are not whole rows, or there is no centre.
pub fn labels(isa: Isa, x: &[f64], columns: usize, centres: &[f64]) -> Vec<u32> {
    let mut prepared = Centres::default();
    prepared.prepare(isa, centres, columns);
    let mut labels = vec![0; x.len() / columns];
    labels_block(isa, x, &prepared, &mut labels);
    labels
}

/// Calls `each` with the squared distance of each row of `x` to its nearest centre, and the row, in order.
/// Not for a hot loop.
///
/// # Panics
/// As [`members_block`].
pub fn farthest_block(isa: Isa, x: &[f64], centres: &Centres, mut each: impl FnMut(f64, &[f64])) {
    let mut labels = vec![0; x.len() / centres.columns];
    labels_block(isa, x, centres, &mut labels);
    for (row, &label) in x.chunks_exact(centres.columns).zip(&labels) {
        let mut square = 0.0;
        for (x, centre) in row.chunks(8).zip(centres.row(label as usize)) {
            for (x, c) in x.iter().zip(&centre.0) {
                square += (x - c) * (x - c);
            }
        }
        each(square, row);
    }
}

/// What is done with the nearest centre of each row.
trait Then {
    /// For the next rows, as many as there are `labels`. What came before is a multiple of eight.
    fn rows<V: F64x8>(&mut self, x: &[f64], columns: usize, labels: &[u32]);
}

/// Writes labels into what is left of them.
struct Labelling<'a> {
    rest: &'a mut [u32],
}

impl Then for Labelling<'_> {
    #[inline(always)]
    fn rows<V: F64x8>(&mut self, _: &[f64], _: usize, labels: &[u32]) {
        let (here, rest) = std::mem::take(&mut self.rest).split_at_mut(labels.len());
        here.copy_from_slice(labels);
        self.rest = rest;
    }
}

fn run(isa: Isa, x: &[f64], centres: &Centres, then: impl Then) {
    assert!(centres.count > 0 && x.len().is_multiple_of(centres.columns));
    if centres.singles.is_empty() {
        return by_doubles(isa, x, centres, then);
    }
    let is_single = centres.halves.len() == centres.group;
    // More rows at a time share the reads of many centres. Few are read from the nearest cache anyway, and fewer
    // rows ask memory for less at once.
    match (centres.group, is_single) {
        (5, _) => dispatch_pair(isa, Proving::<_, 1, 5, false>::new(isa, x, centres, then)),
        (8, true) => dispatch_pair(isa, Proving::<_, 1, 8, true>::new(isa, x, centres, then)),
        (8, false) => dispatch_pair(isa, Proving::<_, 2, 8, false>::new(isa, x, centres, then)),
        (10, true) => dispatch_pair(isa, Proving::<_, 1, 10, true>::new(isa, x, centres, then)),
        (10, false) => dispatch_pair(isa, Proving::<_, 2, 10, false>::new(isa, x, centres, then)),
        (12, true) => dispatch_pair(isa, Proving::<_, 1, 12, true>::new(isa, x, centres, then)),
        (12, false) => dispatch_pair(isa, Proving::<_, 2, 12, false>::new(isa, x, centres, then)),
        (other, _) => unreachable!("no kernel in singles for groups of {other}"),
    }
}
