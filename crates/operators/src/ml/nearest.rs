//! The nearest of some centres for each row, one block of rows at a time: an iteration of k-means.
//!
//! # Order
//! A row's score for a centre starts with half the centre's square and subtracts the products column by column,
//! each rounded once. The nearest centre is the one with the least score, the first of equal ones. A centre's
//! sums add its rows in order. Neither the width of a register nor how centres are grouped enters.
//!
//! # Shape
//! Rows are turned into columns of sixteen (or eight), so that a vector holds one column of eight rows and the
//! least score is found lane by lane. Centres are taken in groups whose scores stay in registers: every value
//! of a row is then read once a group, and every value of a centre once for sixteen rows.
//!
//! More than one group, or a wide one, is scored in singles first, which is half the work; `singles` proves most labels, and the rest is scored again
//! in doubles. Only where there are no vectors of singles, all are scored in doubles.

use super::tile::{Column, Tile};
use crate::simd::{F64x8, Isa, Kernel, Line, Walk, dispatch, dispatch_pair, prefetch_line};
use serde::{Deserialize, Serialize};
use singles::{Proving, Singles};

mod singles;

/// Centres as the kernel reads them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Centres {
    count: usize,
    columns: usize,
    group: usize,
    /// Negated values by group, column and place within the group; zeros where the last group is not full.
    negated: Vec<f64>,
    /// Half of each centre's square; infinite where there is no centre.
    halves: Vec<f64>,
    /// Each place's index in the low bits of a double.
    names: Vec<f64>,
    /// The same in singles, where the kernel uses them.
    singles: Singles,
}

/// Sizes of a group that a kernel was compiled for, by how many registers there are.
const WIDE_GROUPS: [usize; 3] = [8, 10, 12];
const NARROW_GROUPS: [usize; 1] = [5];

impl Centres {
    /// Prepares centres, given row by row, for the kernel of `isa`. Buffers are kept.
    ///
    /// # Panics
    /// If there is no column, or `values` is not whole rows.
    pub fn prepare(&mut self, isa: Isa, values: &[f64], columns: usize) {
        assert!(columns > 0 && values.len().is_multiple_of(columns));
        let count = values.len() / columns;
        let groups: &[usize] = match isa {
            Isa::V4 => &WIDE_GROUPS,
            Isa::V2 | Isa::V3 => &NARROW_GROUPS,
        };
        // The one that leaves the fewest places empty; of equal ones the largest.
        let waste = |group: &usize| count.next_multiple_of(*group);
        let group = groups.iter().rev().copied().min_by_key(waste).unwrap_or(1);
        let places = count.next_multiple_of(group);
        (self.count, self.columns, self.group) = (count, columns, group);
        self.negated.clear();
        self.negated.resize(places * columns, 0.0);
        self.halves.clear();
        self.halves.resize(places, f64::INFINITY);
        self.names.clear();
        self.names
            .extend((0..places).map(|place| TWO_52 + place as f64));
        for (index, centre) in values.chunks_exact(columns).enumerate() {
            let (start, place) = (index / group * group * columns, index % group);
            let mut square = 0.0f64;
            for (column, &value) in centre.iter().enumerate() {
                self.negated[start + column * group + place] = -value;
                square = value.mul_add(value, square);
            }
            self.halves[index] = 0.5 * square;
        }
        self.singles.clear();
        // A single small group is scored about as fast as memory gives the rows.
        if isa == Isa::V4 || isa == Isa::V3 && places > group {
            self.singles
                .prepare(count, columns, &self.negated, &self.halves);
        }
    }

    /// How many centres there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// A centre's value in a column.
    pub fn value(&self, centre: usize, column: usize) -> f64 {
        let (start, place) = (centre / self.group * self.group, centre % self.group);
        -self.negated[start * self.columns + column * self.group + place]
    }

    /// Bytes that the buffers own.
    pub fn heap_bytes(&self) -> usize {
        let values = self.negated.capacity() + self.halves.capacity() + self.names.capacity();
        values * size_of::<f64>() + self.singles.heap_bytes()
    }
}

/// What the rows of a block add up to, by centre. A centre's sums take whole lines.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Members {
    columns: usize,
    sums: Vec<Line>,
    counts: Vec<u64>,
}

impl Members {
    /// All zero, for `count` centres of `columns` values. Buffers are kept.
    pub fn reset(&mut self, count: usize, columns: usize) {
        self.columns = columns;
        self.sums.clear();
        self.sums
            .resize(count * columns.div_ceil(8), Line::default());
        self.counts.clear();
        self.counts.resize(count, 0);
    }

    /// The sums of a centre's rows, by column.
    pub fn sums(&self, centre: usize) -> impl ExactSizeIterator<Item = f64> {
        let stride = self.columns.div_ceil(8);
        let lines = &self.sums[centre * stride..][..stride];
        (0..self.columns).map(|column| lines[column / 8].0[column % 8])
    }

    /// How many rows each centre has.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Adds what other rows add up to, which come after these.
    pub fn add(&mut self, isa: Isa, later: &Members) {
        let (sums, later_sums) = (&mut self.sums[..], &later.sums[..]);
        dispatch(isa, AddLines { sums, later_sums });
        for (count, more) in self.counts.iter_mut().zip(&later.counts) {
            *count += more;
        }
    }

    /// Bytes that the buffers own.
    pub fn heap_bytes(&self) -> usize {
        self.sums.capacity() * size_of::<Line>() + self.counts.capacity() * size_of::<u64>()
    }
}

impl Clone for Members {
    fn clone(&self) -> Members {
        Members {
            columns: self.columns,
            sums: self.sums.clone(),
            counts: self.counts.clone(),
        }
    }

    /// Keeps the buffers: a reduction calls this for each block and turn.
    fn clone_from(&mut self, from: &Members) {
        self.columns = from.columns;
        self.sums.clone_from(&from.sums);
        self.counts.clone_from(&from.counts);
    }
}

struct AddLines<'a> {
    sums: &'a mut [Line],
    later_sums: &'a [Line],
}

impl Kernel for AddLines<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(self) {
        assert_eq!(self.sums.len(), self.later_sums.len());
        for (sum, later) in self.sums.iter_mut().zip(self.later_sums) {
            V::load(&sum.0).add(V::load(&later.0)).store(&mut sum.0);
        }
    }
}

/// Finds the nearest centre of each row of `x`, and overwrites `members` with what they add up to.
///
/// # Panics
/// If `x` is not whole rows of as many columns as the centres have, or there is no centre.
pub fn members_block(isa: Isa, x: &[f64], centres: &Centres, members: &mut Members) {
    members.reset(centres.count, centres.columns);
    let (sums, counts) = (&mut members.sums[..], &mut members.counts[..]);
    run(isa, x, centres, Adding { sums, counts });
}

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

/// Calls `each` with half the squared distance of each row of `x` to its nearest centre, and the row, in order.
/// Not for a hot loop.
///
/// # Panics
/// As [`members_block`].
pub fn farthest_block(isa: Isa, x: &[f64], centres: &Centres, mut each: impl FnMut(f64, &[f64])) {
    let mut labels = vec![0; x.len() / centres.columns];
    labels_block(isa, x, centres, &mut labels);
    for (row, &label) in x.chunks_exact(centres.columns).zip(&labels) {
        let value = |column| centres.value(label as usize, column);
        let square = row.iter().enumerate().fold(0.0f64, |sum, (column, x)| {
            (x - value(column)).mul_add(x - value(column), sum)
        });
        each(0.5 * square, row);
    }
}

/// What is done with the nearest centre of each row.
trait Then {
    /// For the next rows, as many as there are `labels`.
    fn rows<V: F64x8>(&mut self, x: &[f64], columns: usize, labels: &[u32]);
}

struct Adding<'a> {
    sums: &'a mut [Line],
    counts: &'a mut [u64],
}

impl Then for Adding<'_> {
    #[inline(always)]
    fn rows<V: F64x8>(&mut self, x: &[f64], columns: usize, labels: &[u32]) {
        match columns.div_ceil(8) {
            1 => self.short::<V, 1>(x, columns, labels),
            2 => self.short::<V, 2>(x, columns, labels),
            3 => self.short::<V, 3>(x, columns, labels),
            4 => self.short::<V, 4>(x, columns, labels),
            _ => self.long::<V>(x, columns, labels),
        }
    }
}

impl Adding<'_> {
    #[inline(always)]
    fn short<V: F64x8, const VECTORS: usize>(&mut self, x: &[f64], columns: usize, labels: &[u32]) {
        let (sums, _) = self.sums.as_chunks_mut::<VECTORS>();
        let counts = &mut self.counts[..sums.len()];
        for (row, &label) in Walk::<V, VECTORS>::new(x, columns, labels.len()).zip(labels) {
            counts[label as usize] += 1;
            row.add_to(&mut sums[label as usize]);
        }
    }

    #[inline(always)]
    fn long<V: F64x8>(&mut self, x: &[f64], columns: usize, labels: &[u32]) {
        let stride = columns.div_ceil(8);
        for (row, &label) in x.chunks_exact(columns).zip(labels) {
            self.counts[label as usize] += 1;
            let sums = &mut self.sums[label as usize * stride..][..stride];
            let (whole, rest) = row.as_chunks::<8>();
            for (sum, values) in sums.iter_mut().zip(whole) {
                V::load(&sum.0).add(V::load(values)).store(&mut sum.0);
            }
            if let Some(sum) = sums.get_mut(whole.len()) {
                V::load(&sum.0).add(V::load_first(rest)).store(&mut sum.0);
            }
        }
    }
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

fn by_doubles(isa: Isa, x: &[f64], centres: &Centres, then: impl Then) {
    match centres.group {
        5 => dispatch(isa, Nearest::<_, 1, 5> { x, centres, then }),
        8 => dispatch(isa, Nearest::<_, 2, 8> { x, centres, then }),
        10 => dispatch(isa, Nearest::<_, 2, 10> { x, centres, then }),
        12 => dispatch(isa, Nearest::<_, 2, 12> { x, centres, then }),
        other => unreachable!("no kernel for groups of {other}"),
    }
}

/// `TILES` vectors of eight rows at a time, against `GROUP` centres.
struct Nearest<'a, T, const TILES: usize, const GROUP: usize> {
    x: &'a [f64],
    centres: &'a Centres,
    then: T,
}

impl<T: Then, const TILES: usize, const GROUP: usize> Kernel for Nearest<'_, T, TILES, GROUP> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(mut self) {
        let columns = self.centres.columns;
        let mut tile = Tile::<TILES>::new(columns);
        let tiles = self.x.chunks_exact(Tile::<TILES>::ROWS * columns);
        let rest = tiles.remainder();
        for here in tiles {
            let turned = tile.turn::<V>(here);
            let labels = nearest::<V, TILES, GROUP>(turned, self.centres, &here[0]);
            self.then.rows::<V>(here, columns, labels.as_flattened());
        }
        if let Some(first) = rest.first() {
            let turned = tile.turn::<V>(rest);
            let labels = nearest::<V, TILES, GROUP>(turned, self.centres, first);
            let labels = &labels.as_flattened()[..rest.len() / columns];
            self.then.rows::<V>(rest, columns, labels);
        }
    }
}

/// 2^52: a double from here on holds its integer part in the low bits.
const TWO_52: f64 = 4_503_599_627_370_496.0;

/// The index of each row's nearest centre.
#[inline(always)]
fn nearest<V: F64x8, const TILES: usize, const GROUP: usize>(
    tile: &[Column<TILES>],
    centres: &Centres,
    start: &f64,
) -> [[u32; 8]; TILES] {
    let mut least = [V::splat(f64::INFINITY); TILES];
    let mut label = [V::splat(TWO_52); TILES];
    let (mut negated, _) = centres.negated.as_chunks::<GROUP>();
    let (halves, _) = centres.halves.as_chunks::<GROUP>();
    let (names, _) = centres.names.as_chunks::<GROUP>();
    let mut first = true;
    for (halves, names) in halves.iter().zip(names) {
        let (group, later) = negated.split_at(tile.len());
        negated = later;
        let scores = if first {
            scores::<V, TILES, GROUP, true>(tile, group, halves, start)
        } else {
            scores::<V, TILES, GROUP, false>(tile, group, halves, start)
        };
        first = false;
        let mut at = 0;
        while at < GROUP {
            let here = V::splat(names[at]);
            let mut part = 0;
            while part < TILES {
                let closer = scores[at][part].less(least[part]);
                least[part] = scores[at][part].lesser(least[part]);
                label[part] = V::select(closer, here, label[part]);
                part += 1;
            }
            at += 1;
        }
    }
    let mut labels = [[0; 8]; TILES];
    let mut part = 0;
    while part < TILES {
        let mut lanes = [0.0; 8];
        label[part].store(&mut lanes);
        let mut lane = 0;
        while lane < 8 {
            labels[part][lane] = lanes[lane].to_bits() as u32;
            lane += 1;
        }
        part += 1;
    }
    labels
}

/// The scores of a tile's rows for a group of centres. With the first group each line of a tile further on is
/// asked for.
#[inline(always)]
fn scores<V: F64x8, const TILES: usize, const GROUP: usize, const FIRST: bool>(
    tile: &[Column<TILES>],
    group: &[[f64; GROUP]],
    halves: &[f64; GROUP],
    start: &f64,
) -> [[V; TILES]; GROUP] {
    let mut scores = [[V::splat(0.0); TILES]; GROUP];
    let mut at = 0;
    while at < GROUP {
        scores[at] = [V::splat(halves[at]); TILES];
        at += 1;
    }
    let mut line = 0;
    for (column, values) in tile.iter().zip(group) {
        let mut x = [V::splat(0.0); TILES];
        let mut part = 0;
        while part < TILES {
            // A column of eight rows is as long as a line.
            if FIRST {
                prefetch_line(start, line);
                line += 1;
            }
            x[part] = V::load(&column[part].0);
            part += 1;
        }
        at = 0;
        while at < GROUP {
            let value = V::splat(values[at]);
            part = 0;
            while part < TILES {
                scores[at][part] = x[part].mul_add(value, scores[at][part]);
                part += 1;
            }
            at += 1;
        }
    }
    scores
}
