//! Labels by 32-bit scores, where a bound of their error proves that differences give the same.
//!
//! # The bound
//! Let `u = 2⁻²⁴` and `e = 2⁻¹²⁶`: what rounds to a single is off by at most `u` of itself, or by `e` if it is too
//! small for that. (That holds too where the CPU was told to take tiny numbers for zero.) A row less the mean is `x`, a
//! centre less the mean `c` with half square `h`, all doubles; `x̃`, `c̃` and `h̃` are the singles they round to, and
//! `d ≤ 2¹⁶` counts columns. For all centres `H ≥ h` and `K ≥ |c| + 2⁻⁶³`, and `K ≤ 2⁶⁰`. For the row,
//! `N² = |x̃|² + 2⁻¹²⁶`.
//!
//! * `√d·e ≤ 2⁻¹¹⁸` is less than `2⁻³⁰·u` of `N`, and of `K`: neither is below `2⁻⁶³`. So `|x̃ − x| ≤ u·|x| + √d·e`
//!   gives `|x| ≤ (1 + 4u)·N`, and likewise `|c̃| ≤ (1 + 2u)·K`. With Cauchy and Schwarz the products of the
//!   rounded values are off by at most
//!   `Σ|x̃c̃ − xc| ≤ |x̃ − x|·|c̃| + |x|·|c̃ − c| ≤ 2u·(1 + 2⁻¹⁶)·N·K`, and `|h̃ − h| ≤ u·H + e`.
//! * `d` multiply-adds of singles are off by at most `γ·(h̃ + |x̃|·|c̃|)` and `d·e`, each of the latter grown by less
//!   than `1 + γ`, where `γ = d·u / (1 − d·u) ≤ 1.004·d·u`. No step overflows: `N²` is finite where anything is
//!   proven, so `N ≤ 2⁶⁴`, and no sum of parts is beyond `2¹²⁶`.
//! * What [`super::differences`] computes, half of which less `½|x|²` is `h − x·c`, and the subtractions of the mean
//!   are off by less than `2⁻²⁸·d·u·(H + N·K)` and `d·2⁻¹⁰²²`, and by half of `D = 1.01·(d + 2)·2⁻⁵³·N²`: see
//!   `doubles`.
//!
//! Together a 32-bit score is off by less than `E = 1.01·(d + 2)·(u·(N·K + H) + e)` and half of `D`. If every other
//! centre's 32-bit score is more than `2E + D` above the least, then its distance is greater too: the label is proven.
//!
//! The kernel takes `2.25·(d + 3)` for `2.02·(d + 2)`, and `1.25·(d + 3)` for `1.01·(d + 2)`. That covers its own
//! rounding: the computed `N` is at most `(d/2 + 2)·u ≤ 2⁻⁸` of itself too small (the sum starts with `2⁻¹²⁶`, so no
//! part of it is tiny), and the bound is two multiply-adds of it. The difference that is compared is rounded, which
//! keeps its order with a single. Whatever is no number, or infinite, makes the bound so, and proves nothing.

use super::differences::alone;
use super::doubles::by_doubles;
use super::{Centres, Labelling, Then};
use crate::ml::tile::{SingleColumn, SingleTile};
use crate::simd::{F32x16, F64x8, Isa, PairKernel, prefetch_line, prefetch_soon};
use serde::{Deserialize, Serialize};

/// Rows with fewer columns are scored in doubles: turning them costs more.
const MIN_COLUMNS: usize = 4;
/// As the bound asks for.
const MAX_COLUMNS: usize = 1 << 16;
const MAX_NORM: f64 = (1_u64 << 60) as f64;
/// 2⁻⁶³
const MIN_NORM: f64 = 1.0 / (1_u64 << 63) as f64;
const UNIT: f64 = 1.0 / (1_u64 << 24) as f64;

/// Centres in singles, in the places that [`Centres`] gives them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SingleCentres {
    negated: Vec<f32>,
    halves: Vec<f32>,
    /// Singles whose bits are each place's index. They are only moved.
    names: Vec<f32>,
    /// The bound of a row of norm `N` is `share · N² + slope · N + offset`.
    share: f32,
    slope: f32,
    offset: f32,
}

impl SingleCentres {
    /// None: what is asked for is found by doubles alone.
    pub(super) fn clear(&mut self) {
        self.negated.clear();
        self.halves.clear();
        self.names.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Rounds centres in their places. None are left if no label could be proven.
    pub(super) fn prepare(
        &mut self,
        count: usize,
        columns: usize,
        negated: &[f64],
        halves: &[f64],
    ) {
        self.clear();
        let half = halves[..count].iter().copied().fold(0.0, f64::max);
        let norm = (2.0 * half).sqrt() * (1.0 + UNIT) + MIN_NORM;
        let columns_fit = (MIN_COLUMNS..=MAX_COLUMNS).contains(&columns);
        // A square that is no number was passed over.
        let numbers = halves[..count].iter().all(|half| !half.is_nan());
        if !(columns_fit && numbers && norm <= MAX_NORM) {
            return;
        }
        let factor = 2.25 * (columns + 3) as f64;
        self.slope = above(factor * UNIT * norm);
        self.offset = above(factor * (UNIT * half + f64::from(f32::MIN_POSITIVE)));
        self.share = above(1.25 * (columns + 3) as f64 * 0.5 * f64::EPSILON);
        self.negated.extend(negated.iter().map(|&x| x as f32));
        self.halves.extend(halves.iter().map(|&half| half as f32));
        let names = (0..halves.len()).map(|place| f32::from_bits(place as u32));
        self.names.extend(names);
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let values = self.negated.capacity() + self.halves.capacity() + self.names.capacity();
        values * size_of::<f32>()
    }
}

/// A normal single not below `bound`.
fn above(bound: f64) -> f32 {
    ((bound * (1.0 + 2.0 * UNIT)) as f32).max(f32::MIN_POSITIVE)
}

/// [`super::Nearest`], with scores in singles as long as they prove labels. `PARTS` vectors of sixteen rows are scored at a time:
/// every value of a centre is then read once for all. `SINGLE`: there is one group.
pub(super) struct Proving<'a, T, const PARTS: usize, const GROUP: usize, const SINGLE: bool> {
    isa: Isa,
    x: &'a [f64],
    centres: &'a Centres,
    then: T,
}

impl<'a, T, const PARTS: usize, const GROUP: usize, const SINGLE: bool>
    Proving<'a, T, PARTS, GROUP, SINGLE>
{
    /// For a kernel that is run with `isa`.
    pub(super) fn new(isa: Isa, x: &'a [f64], centres: &'a Centres, then: T) -> Self {
        Proving {
            isa,
            x,
            centres,
            then,
        }
    }
}

impl<T: Then, const PARTS: usize, const GROUP: usize, const SINGLE: bool> PairKernel
    for Proving<'_, T, PARTS, GROUP, SINGLE>
{
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8, S: F32x16>(self) {
        match self.centres.is_shifted {
            true => self.prove::<V, S, true>(),
            false => self.prove::<V, S, false>(),
        }
    }
}

impl<T: Then, const PARTS: usize, const GROUP: usize, const SINGLE: bool>
    Proving<'_, T, PARTS, GROUP, SINGLE>
{
    /// A loop for each answer to whether rows are taken `ABOUT` the mean.
    #[inline(always)]
    fn prove<V: F64x8, S: F32x16, const ABOUT: bool>(mut self) {
        let (columns, about) = (self.centres.columns, &self.centres.about[..]);
        let mut tile = SingleTile::<PARTS>::new(columns);
        let (mut tiles, mut unproven, mut left) = (0, 0, self.x);
        // Data whose labels are often not proven cost both scores: then doubles are cheaper.
        while unproven * 8 <= tiles + 32 {
            let Some((here, rest)) = left.split_at_checked(16 * PARTS * columns) else {
                break;
            };
            let last = &here[here.len() - 1];
            let singles = &self.centres.singles;
            // Memory is asked for evenly: of a single group there are too few scores to ask beside.
            let turned = if SINGLE {
                tile.turn::<S, SHARED_LINES, ABOUT>(here, about, last)
            } else {
                tile.turn::<S, 0, ABOUT>(here, about, last)
            };
            let (mut labels, proven) = proven::<S, PARTS, GROUP, SINGLE>(turned, singles, last);
            let mut part = 0;
            while part < PARTS {
                if proven[part] != u16::MAX {
                    let x = &here[part * 16 * columns..][..16 * columns];
                    mend::<GROUP>(self.isa, x, self.centres, !proven[part], &mut labels[part]);
                    unproven += 1;
                }
                part += 1;
            }
            tiles += PARTS;
            self.then.rows::<V>(here, columns, labels.as_flattened());
            left = rest;
        }
        by_doubles(self.isa, left, self.centres, self.then);
    }
}

/// Rows of sixteen that are scored one by one; of more, all are.
const MAX_ALONE: u32 = 4;

/// Finds the labels of the `unproven` of sixteen rows otherwise.
#[inline(always)]
fn mend<const GROUP: usize>(
    isa: Isa,
    x: &[f64],
    centres: &Centres,
    unproven: u16,
    labels: &mut [u32; 16],
) {
    if unproven.count_ones() > MAX_ALONE {
        by_doubles(isa, x, centres, Labelling { rest: labels });
        return;
    }
    let mut left = unproven;
    while left != 0 {
        let row = left.trailing_zeros() as usize;
        labels[row] = alone::<GROUP>(&x[row * centres.columns..][..centres.columns], centres);
        left &= left - 1;
    }
}

/// The two least scores of rows, and whose the least is.
#[derive(Clone, Copy)]
struct Best<S> {
    least: S,
    second: S,
    label: S,
}

/// Half of the lines that four columns of sixteen rows take.
const SHARED_LINES: usize = 4;

/// The index of each row's nearest centre, and the lanes in which that is proven. `SINGLE`: there is one group.
#[inline(always)]
fn proven<S: F32x16, const PARTS: usize, const GROUP: usize, const SINGLE: bool>(
    tile: &[SingleColumn<PARTS>],
    centres: &SingleCentres,
    start: &f64,
) -> ([[u32; 16]; PARTS], [u16; PARTS]) {
    let mut best = [Best {
        least: S::splat(f32::INFINITY),
        second: S::splat(f32::INFINITY),
        label: S::splat(0.0),
    }; PARTS];
    let mut squares = [S::splat(f32::MIN_POSITIVE); PARTS];
    let (mut negated, _) = centres.negated.as_chunks::<GROUP>();
    let (halves, _) = centres.halves.as_chunks::<GROUP>();
    let (names, _) = centres.names.as_chunks::<GROUP>();
    for (number, (halves, names)) in halves.iter().zip(names).enumerate() {
        let (group, later) = negated.split_at(tile.len());
        negated = later;
        let scores = match number {
            _ if SINGLE => {
                scores::<S, PARTS, GROUP, ONLY>(tile, group, halves, &mut squares, start)
            }
            0 => scores::<S, PARTS, GROUP, 0>(tile, group, halves, &mut squares, start),
            1 => scores::<S, PARTS, GROUP, 1>(tile, group, halves, &mut squares, start),
            _ => scores::<S, PARTS, GROUP, 2>(tile, group, halves, &mut squares, start),
        };
        better(&mut best, &scores, names);
    }
    let mut labels = [[0; 16]; PARTS];
    let mut proven = [0; PARTS];
    let mut part = 0;
    while part < PARTS {
        let Best {
            least,
            second,
            label,
        } = best[part];
        let [share, slope, offset] = [centres.share, centres.slope, centres.offset].map(S::splat);
        let bound = squares[part].mul_add(share, offset);
        let bound = squares[part].sqrt().mul_add(slope, bound);
        proven[part] = S::lanes(bound.less(second.sub(least)));
        let mut lanes = [0.0; 16];
        label.store(&mut lanes);
        let mut lane = 0;
        while lane < 16 {
            labels[part][lane] = lanes[lane].to_bits();
            lane += 1;
        }
        part += 1;
    }
    (labels, proven)
}

#[inline(always)]
fn better<S: F32x16, const PARTS: usize, const GROUP: usize>(
    best: &mut [Best<S>; PARTS],
    scores: &[[S; PARTS]; GROUP],
    names: &[f32; GROUP],
) {
    let mut part = 0;
    while part < PARTS {
        // Those of the group first, which stay in registers: the best so far do not, and a label that is loaded and stored for each centre
        // waits for itself.
        let (mut least, mut second) = (scores[0][part], S::splat(f32::INFINITY));
        let mut label = S::splat(names[0]);
        let mut at = 1;
        while at < GROUP {
            let score = scores[at][part];
            let closer = score.less(least);
            second = score.greater(least).lesser(second);
            least = score.lesser(least);
            label = S::select(closer, S::splat(names[at]), label);
            at += 1;
        }
        let best = &mut best[part];
        let closer = least.less(best.least);
        best.second = least.greater(best.least).lesser(best.second.lesser(second));
        best.least = least.lesser(best.least);
        best.label = S::select(closer, label, best.label);
        part += 1;
    }
}

/// A group that is the only one.
const ONLY: usize = usize::MAX;

/// The scores of a tile's rows for a group of centres: the first, the second, a later one, or the only one. With the first the rows'
/// squares are added up. With the first two each line of a tile further on is asked for, half of them with each: all at once would be
/// more than a core has on their way. With the only one it is the half that was not asked for when the rows were turned.
#[inline(always)]
fn scores<S: F32x16, const PARTS: usize, const GROUP: usize, const NUMBER: usize>(
    tile: &[SingleColumn<PARTS>],
    group: &[[f32; GROUP]],
    halves: &[f32; GROUP],
    squares: &mut [S; PARTS],
    start: &f64,
) -> [[S; PARTS]; GROUP] {
    let mut scores = [[S::splat(0.0); PARTS]; GROUP];
    let mut at = 0;
    while at < GROUP {
        scores[at] = [S::splat(halves[at]); PARTS];
        at += 1;
    }
    let mut line = if NUMBER == ONLY {
        PARTS * tile.len()
    } else {
        0
    };
    for (column, values) in tile.iter().zip(group) {
        let mut x = [S::splat(0.0); PARTS];
        let mut part = 0;
        while part < PARTS {
            x[part] = S::load(&column[part].0);
            if NUMBER < 2 {
                // A column of sixteen rows is as long as two lines.
                prefetch_line(start, line + NUMBER);
                line += 2;
            }
            if NUMBER == ONLY {
                prefetch_soon(start, line);
                line += 1;
            }
            if NUMBER == 0 || NUMBER == ONLY {
                squares[part] = x[part].mul_add(x[part], squares[part]);
            }
            part += 1;
        }
        at = 0;
        while at < GROUP {
            let value = S::splat(values[at]);
            part = 0;
            while part < PARTS {
                scores[at][part] = x[part].mul_add(value, scores[at][part]);
                part += 1;
            }
            at += 1;
        }
    }
    scores
}
