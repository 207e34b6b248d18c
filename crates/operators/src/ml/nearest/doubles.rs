//! Labels by 64-bit scores, where a bound of their error proves that differences give the same.
//!
//! # The bound
//! Let `u = 2⁻⁵³`, and `d < 2³²` count columns. `y` is a row and `c` a centre, both less the mean, and `h = ½|c|²`;
//! `K ≥ |c|` for all centres. Half a squared distance is `½|y|² + h − y·c`, so that distances lie in the order of
//! `s = h − y·c`. What is computed is off that by at most, but for factors of `1 + 2d·u`:
//!
//! * The score: `y` and `c` are off by `u` of themselves, `h` by `(d + 2)·u` of itself, and the multiply-adds by
//!   `d·u·(h + |y|·K)`; together `u·((d + 1)·K² + (d + 2)·|y|·K)`.
//! * Half the squared distance, as [`super::differences`] finds it: by `(d + 2)·u` of itself, and it is at most
//!   `½(|y| + K)²`.
//!
//! Two of both, with `|y|·K ≤ ½(|y|² + K²)`, are at most `u·((3d + 6)·|y|² + (5d + 8)·K²)`. If every other centre's
//! score is further than this above the least, its distance is greater too: the label is proven. Products and squares
//! that are too small for a normal number are off by `2⁻¹⁰⁷⁴` each, and there are fewer than `8d + 8` of them.
//!
//! The kernel takes `5d + 16` and `7d + 20`, for its own rounding. Squares beyond `10³⁰⁰` make the bound infinite,
//! before they can make a score or a distance so; and whatever is no number makes the bound none, and proves nothing.

use super::differences::{alone, by_differences};
use super::{Centres, Then};
use crate::ml::tile::{Column, Tile};
use crate::simd::{F64x8, Isa, SimdKernel, dispatch, prefetch_line};
use serde::{Deserialize, Serialize};

/// What scores must be apart by: `share · |y|² + rest`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Bound {
    share: f64,
    rest: f64,
}

/// 2⁻⁵³
const UNIT: f64 = 0.5 * f64::EPSILON;
/// What a bound is divided by while it is computed, so that it overflows where squares are beyond 10³⁰⁰.
const HEADROOM: f64 = 1e8;

impl Bound {
    /// For centres with these halves of their squares.
    pub(super) fn of(halves: &[f64], columns: usize) -> Bound {
        let half = halves.iter().copied().fold(0.0, f64::max);
        let columns = columns as f64;
        let share = UNIT * (5.0 * columns + 16.0);
        let rest = UNIT * (7.0 * columns + 20.0) * 2.0;
        let tiny = f64::MIN_POSITIVE * (columns + 1.0);
        Bound {
            share: share / HEADROOM,
            rest: (half * HEADROOM) * (rest / HEADROOM) + tiny,
        }
    }
}

/// Finds labels by scores, as long as they prove them.
pub(super) fn by_doubles(isa: Isa, x: &[f64], centres: &Centres, then: impl Then) {
    // A multiply-add is fused in software there: differences are faster.
    if isa == Isa::V2 {
        return by_differences(isa, x, centres, then);
    }
    match centres.group {
        5 => dispatch(isa, Scoring::<_, 1, 5>::new(isa, x, centres, then)),
        8 => dispatch(isa, Scoring::<_, 2, 8>::new(isa, x, centres, then)),
        10 => dispatch(isa, Scoring::<_, 2, 10>::new(isa, x, centres, then)),
        12 => dispatch(isa, Scoring::<_, 2, 12>::new(isa, x, centres, then)),
        other => unreachable!("no kernel for groups of {other}"),
    }
}

/// `TILES` vectors of eight rows at a time, against `GROUP` centres.
struct Scoring<'a, T, const TILES: usize, const GROUP: usize> {
    isa: Isa,
    x: &'a [f64],
    centres: &'a Centres,
    then: T,
}

impl<'a, T, const TILES: usize, const GROUP: usize> Scoring<'a, T, TILES, GROUP> {
    fn new(isa: Isa, x: &'a [f64], centres: &'a Centres, then: T) -> Self {
        Scoring {
            isa,
            x,
            centres,
            then,
        }
    }
}

impl<T: Then, const TILES: usize, const GROUP: usize> SimdKernel for Scoring<'_, T, TILES, GROUP> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(mut self) {
        let (centres, columns) = (self.centres, self.centres.columns);
        let mut tile = Tile::<TILES>::new(columns);
        let (mut tiles, mut unproven, mut left) = (0, 0, self.x);
        // As with singles: data whose labels are often not proven cost both.
        while !left.is_empty() && unproven * 8 <= tiles + 32 {
            let whole = Tile::<TILES>::ROWS * columns;
            let (here, rest) = left.split_at(whole.min(left.len()));
            let turned = if centres.is_shifted {
                tile.turn_about::<V>(here, &centres.about)
            } else {
                tile.turn::<V>(here)
            };
            let (mut labels, proven) = nearest::<V, TILES, GROUP>(turned, centres, &here[0]);
            let rows = here.len() / columns;
            let mut part = 0;
            while part < TILES {
                let held = (rows - rows.min(part * 8)).min(8);
                let mut missing = !proven[part] & ((1_u16 << held) - 1) as u8;
                unproven += usize::from(missing != 0);
                while missing != 0 {
                    let lane = missing.trailing_zeros() as usize;
                    let row = &here[(part * 8 + lane) * columns..][..columns];
                    labels[part][lane] = alone::<GROUP>(row, centres);
                    missing &= missing - 1;
                }
                part += 1;
            }
            tiles += TILES;
            let labels = &labels.as_flattened()[..rows];
            self.then.rows::<V>(here, columns, labels);
            left = rest;
        }
        if !left.is_empty() {
            by_differences(self.isa, left, centres, self.then);
        }
    }
}

/// The index of each row's nearest centre, and the lanes in which that is proven.
#[inline(always)]
fn nearest<V: F64x8, const TILES: usize, const GROUP: usize>(
    tile: &[Column<TILES>],
    centres: &Centres,
    start: &f64,
) -> ([[u32; 8]; TILES], [u8; TILES]) {
    let mut least = [V::splat(f64::INFINITY); TILES];
    let mut second = [V::splat(f64::INFINITY); TILES];
    let mut label = [V::splat(centres.names[0]); TILES];
    let mut squares = [V::splat(0.0); TILES];
    let (mut negated, _) = centres.scored().as_chunks::<GROUP>();
    let (halves, _) = centres.halves.as_chunks::<GROUP>();
    let (names, _) = centres.names.as_chunks::<GROUP>();
    let mut first = true;
    for (halves, names) in halves.iter().zip(names) {
        let (group, later) = negated.split_at(tile.len());
        negated = later;
        let scores = if first {
            scores::<V, TILES, GROUP, true>(tile, group, halves, &mut squares, start)
        } else {
            scores::<V, TILES, GROUP, false>(tile, group, halves, &mut squares, start)
        };
        first = false;
        let mut at = 0;
        while at < GROUP {
            let here = V::splat(names[at]);
            let mut part = 0;
            while part < TILES {
                let score = scores[at][part];
                let closer = score.less(least[part]);
                // The greater of the score and the least so far, or the second so far.
                let greater = V::select(closer, least[part], score);
                second[part] = greater.lesser(second[part]);
                least[part] = score.lesser(least[part]);
                label[part] = V::select(closer, here, label[part]);
                part += 1;
            }
            at += 1;
        }
    }
    let mut proven = [0; TILES];
    let mut part = 0;
    while part < TILES {
        let Bound { share, rest } = centres.bound;
        let squares = squares[part].mul(V::splat(HEADROOM));
        let bound = squares.mul_add(V::splat(share), V::splat(rest));
        proven[part] = V::lanes(bound.less(second[part].sub(least[part])));
        part += 1;
    }
    (indexes(label), proven)
}

/// The indexes that names hold.
#[inline(always)]
pub(super) fn indexes<V: F64x8, const TILES: usize>(names: [V; TILES]) -> [[u32; 8]; TILES] {
    let mut indexes = [[0; 8]; TILES];
    let mut part = 0;
    while part < TILES {
        let mut lanes = [0.0; 8];
        names[part].store(&mut lanes);
        let mut lane = 0;
        while lane < 8 {
            indexes[part][lane] = lanes[lane].to_bits() as u32;
            lane += 1;
        }
        part += 1;
    }
    indexes
}

/// The scores of a tile's rows for a group of centres. With the first group the rows' squares are added up, and each
/// line of a tile further on is asked for.
#[inline(always)]
fn scores<V: F64x8, const TILES: usize, const GROUP: usize, const FIRST: bool>(
    tile: &[Column<TILES>],
    group: &[[f64; GROUP]],
    halves: &[f64; GROUP],
    squares: &mut [V; TILES],
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
            x[part] = V::load(&column[part].0);
            // A column of eight rows is as long as a line.
            if FIRST {
                prefetch_line(start, line);
                line += 1;
                squares[part] = x[part].mul_add(x[part], squares[part]);
            }
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
