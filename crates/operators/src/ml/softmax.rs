//! Multinomial logistic regression, one block of rows at a time.
//!
//! # Order
//! Rows are taken eight at a time and turned into columns. A margin is the class's intercept, then its columns
//! added in order, each product fused. The greatest margin is subtracted before powers are taken, and these add
//! class by class. A column's gradient adds its rows in order. The intercepts' gradients and the loss add eight
//! rows as eight lanes, and the lanes by halving at the end. Neither the width of a register nor the number of
//! columns or classes enters.

use crate::numerics::{exp, exp_lanes, log1p, log1p_lanes};
use crate::simd::{F64x8, Isa, RowMatrix, SimdKernel, TableValue, dispatch};

/// Rows with the classes that they belong to: `x` row by row, one index of a class for each row.
#[derive(Clone, Copy, Debug)]
pub struct Classified<'a, E = f64> {
    /// The rows, `columns` values each.
    pub x: &'a [E],
    /// The index of each row's class. What is no index of a class is no class's.
    pub y: &'a [f64],
    /// Values in a row, at least one.
    pub columns: usize,
}

/// A linear model for each class.
#[derive(Clone, Copy, Debug)]
pub struct Linears<'a> {
    /// One weight for each column, class by class.
    pub weights: &'a [f64],
    /// Added to each row's product, one for each class.
    pub intercepts: &'a [f64],
}

/// Overwrites `out` with sums over the rows of a block: Σ (p − [y = class]) x by column, class by class; Σ (p −
/// [y = class]) by class; the loss Σ −ln p of the rows' own classes.
///
/// # Panics
/// If the lengths of rows, labels, weights and `out` do not agree, or there is no column or no class.
pub fn gradient_block<E: TableValue>(
    isa: Isa,
    block: Classified<'_, E>,
    model: Linears<'_>,
    out: &mut [f64],
) {
    gradient::<E, false>(isa, block, &[], model, out);
}

/// As [`gradient_block`], each row by its weight.
///
/// # Panics
/// As [`gradient_block`], and if there is not a weight for each row.
pub fn weighted_gradient_block<E: TableValue>(
    isa: Isa,
    block: Classified<'_, E>,
    row_weights: &[f64],
    model: Linears<'_>,
    out: &mut [f64],
) {
    assert_eq!(row_weights.len(), block.y.len());
    gradient::<E, true>(isa, block, row_weights, model, out);
}

fn gradient<E: TableValue, const WEIGHTED: bool>(
    isa: Isa,
    block: Classified<'_, E>,
    row_weights: &[f64],
    model: Linears<'_>,
    out: &mut [f64],
) {
    assert_eq!(block.x.len(), block.y.len() * block.columns);
    check(model, block.columns);
    assert_eq!(out.len(), model.weights.len() + model.intercepts.len() + 1);
    dispatch(
        isa,
        Gradient::<E, WEIGHTED> {
            block,
            row_weights,
            model,
            out,
        },
    );
}

/// Writes the margin of each row of `x` for each class, row by row: what [`gradient_block`] takes powers of, bit
/// for bit.
///
/// # Panics
/// If the lengths of rows, weights and `out` do not agree, or there is no column or no class.
pub fn margins_block<E: TableValue>(
    isa: Isa,
    x: &[E],
    columns: usize,
    model: Linears<'_>,
    out: &mut [f64],
) {
    rows_block::<E, false>(isa, x, columns, model, out);
}

/// Writes the probability of each class for each row of `x`, row by row.
///
/// # Panics
/// As [`margins_block`].
pub fn probabilities_block<E: TableValue>(
    isa: Isa,
    x: &[E],
    columns: usize,
    model: Linears<'_>,
    out: &mut [f64],
) {
    rows_block::<E, true>(isa, x, columns, model, out);
}

/// Turns the margins of rows for each class into the logarithms of the classes' probabilities.
///
/// # Panics
/// If there is no class, or the margins are not whole rows.
pub fn log_probabilities(isa: Isa, margins: &mut [f64], classes: usize) {
    assert!(classes > 0 && margins.len().is_multiple_of(classes));
    let mut powers = vec![0.0; classes];
    for margins in margins.chunks_exact_mut(classes) {
        let larger = |best: usize, at: usize| {
            if margins[at] > margins[best] {
                at
            } else {
                best
            }
        };
        let likeliest = (1..classes).fold(0, larger);
        let greatest = margins[likeliest];
        margins.iter_mut().for_each(|margin| *margin -= greatest);
        exp(isa, margins, &mut powers);
        // Its own power is 1, which would take digits of the others.
        powers[likeliest] = 0.0;
        let rest = powers.iter().fold(0.0, |sum, power| sum + power);
        let mut log = [0.0];
        log1p(isa, &[rest], &mut log);
        margins.iter_mut().for_each(|margin| *margin -= log[0]);
    }
}

fn rows_block<E: TableValue, const PROBABILITIES: bool>(
    isa: Isa,
    x: &[E],
    columns: usize,
    model: Linears<'_>,
    out: &mut [f64],
) {
    check(model, columns);
    assert_eq!(x.len() * model.intercepts.len(), out.len() * columns);
    dispatch(
        isa,
        Margins::<E, PROBABILITIES> {
            x,
            columns,
            model,
            out,
        },
    );
}

fn check(model: Linears<'_>, columns: usize) {
    assert!(columns > 0 && !model.intercepts.is_empty());
    assert_eq!(model.weights.len(), model.intercepts.len() * columns);
}

struct Gradient<'a, E, const WEIGHTED: bool> {
    block: Classified<'a, E>,
    row_weights: &'a [f64],
    model: Linears<'a>,
    out: &'a mut [f64],
}

impl<E: TableValue, const WEIGHTED: bool> SimdKernel for Gradient<'_, E, WEIGHTED> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(self) {
        let Gradient {
            block,
            row_weights,
            model,
            out,
        } = self;
        let rows = RowMatrix::<V, E>::new(block.x, block.columns);
        let (classes, vectors) = (model.intercepts.len(), rows.vectors());
        let mut tile = vec![[0.0; 8]; vectors * 8];
        let mut shares = vec![[0.0; 8]; classes];
        let mut gradient = vec![[0.0; 8]; classes * vectors];
        let mut residuals = vec![[0.0; 8]; classes];
        let mut loss = V::splat(0.0);
        let mut first = 0;
        while first < rows.len() {
            let count = (rows.len() - first).min(8);
            rows.turn(first, &mut tile);
            margins::<V>(&tile[..block.columns], model, &mut shares);
            let labels = &block.y[first..first + count];
            let own = own_margins::<V>(&shares, labels);
            let rest = softmax::<V>(&mut shares);
            let mut losses = V::select(V::first(count), rest.sub(own), V::splat(0.0));
            let mut weights = V::splat(1.0);
            if WEIGHTED {
                weights = V::load_first(&row_weights[first..first + count]);
                losses = losses.mul(weights);
            }
            take_labels::<V, WEIGHTED>(&mut shares, labels, weights, &mut residuals);
            loss = loss.add(losses);
            add_rows(&rows, first, count, &shares, &mut gradient);
            first += count;
        }
        write::<V>(&gradient, &residuals, loss, block.columns, out);
    }
}

/// Classes whose margins are computed together, so that their sums do not wait for one another.
const GROUP: usize = 8;

/// The margins of the turned rows for each class.
#[inline(always)]
fn margins<V: F64x8>(tile: &[[f64; 8]], model: Linears<'_>, out: &mut [[f64; 8]]) {
    let classes = model.intercepts.len();
    let mut first = 0;
    while first < classes {
        let group = (classes - first).min(GROUP);
        // Places beyond the last class repeat it.
        let mut weights = [model.weights; GROUP];
        let mut sums = [V::splat(0.0); GROUP];
        let mut at = 0;
        while at < GROUP {
            let class = first + at.min(group - 1);
            weights[at] = &model.weights[class * tile.len()..][..tile.len()];
            sums[at] = V::splat(model.intercepts[class]);
            at += 1;
        }
        for column in 0..tile.len() {
            let x = V::load(&tile[column]);
            let mut at = 0;
            while at < GROUP {
                sums[at] = x.mul_add(V::splat(weights[at][column]), sums[at]);
                at += 1;
            }
        }
        let mut at = 0;
        while at < GROUP {
            if at < group {
                sums[at].store(&mut out[first + at]);
            }
            at += 1;
        }
        first += group;
    }
}

/// The margin of each row for its own class; zero without one.
#[inline(always)]
fn own_margins<V: F64x8>(margins: &[[f64; 8]], labels: &[f64]) -> V {
    let mut own = [0.0; 8];
    for lane in 0..labels.len().min(8) {
        if let Some(margins) = margins.get(class_of(labels[lane])) {
            own[lane] = margins[lane];
        }
    }
    V::load(&own)
}

/// Negative numbers and NaN saturate to 0 in a conversion; they are no class.
#[inline(always)]
fn class_of(label: f64) -> usize {
    if label >= 0.0 {
        label as usize
    } else {
        usize::MAX
    }
}

/// Margins become probabilities. Gives ln Σ e^margin.
#[inline(always)]
fn softmax<V: F64x8>(margins: &mut [[f64; 8]]) -> V {
    let mut greatest = V::load(&margins[0]);
    for margin in margins.iter() {
        let margin = V::load(margin);
        greatest = V::select(greatest.less(margin), margin, greatest);
    }
    let mut sum = V::splat(0.0);
    for margin in margins.iter_mut() {
        let power = exp_lanes(V::load(margin).sub(greatest));
        sum = sum.add(power);
        power.store(margin);
    }
    for power in margins.iter_mut() {
        V::load(power).div(sum).store(power);
    }
    greatest.add(log1p_lanes(sum.sub(V::splat(1.0))))
}

/// Subtracts 1 where a row belongs to a class, clears what lies beyond the last row, and adds to the residuals, each row by its weight.
#[inline(always)]
fn take_labels<V: F64x8, const WEIGHTED: bool>(
    shares: &mut [[f64; 8]],
    labels: &[f64],
    weights: V,
    residuals: &mut [[f64; 8]],
) {
    let count = labels.len().min(8);
    for lane in 0..count {
        if let Some(shares) = shares.get_mut(class_of(labels[lane])) {
            shares[lane] -= 1.0;
        }
    }
    for (shares, residual) in shares.iter_mut().zip(residuals) {
        let mut kept = V::select(V::first(count), V::load(shares), V::splat(0.0));
        if WEIGHTED {
            kept = kept.mul(weights);
        }
        kept.store(shares);
        V::load(residual).add(kept).store(residual);
    }
}

/// Adds `count` rows, each times its residuals.
#[inline(always)]
fn add_rows<V: F64x8, E: TableValue>(
    rows: &RowMatrix<'_, V, E>,
    first: usize,
    count: usize,
    residuals: &[[f64; 8]],
    gradient: &mut [[f64; 8]],
) {
    let vectors = rows.vectors();
    for vector in 0..vectors {
        let mut eight = [V::splat(0.0); 8];
        let mut row = 0;
        while row < 8 {
            if row < count {
                eight[row] = rows.load(first + row, vector);
            }
            row += 1;
        }
        for (class, residuals) in residuals.iter().enumerate() {
            let sums = &mut gradient[class * vectors + vector];
            let mut sum = V::load(sums);
            let mut row = 0;
            while row < 8 {
                sum = eight[row].mul_add(V::splat(residuals[row]), sum);
                row += 1;
            }
            sum.store(sums);
        }
    }
}

#[inline(always)]
fn write<V: F64x8>(
    gradient: &[[f64; 8]],
    residuals: &[[f64; 8]],
    loss: V,
    columns: usize,
    out: &mut [f64],
) {
    let classes = residuals.len();
    let vectors = gradient.len() / classes;
    let (weights, rest) = out.split_at_mut(classes * columns);
    for class in 0..classes {
        let row = &mut weights[class * columns..][..columns];
        for vector in 0..vectors {
            let sums = V::load(&gradient[class * vectors + vector]);
            sums.canonical().store_first(&mut row[vector * 8..]);
        }
        let sum = V::splat(V::load(&residuals[class]).reduce_add());
        sum.canonical().store_first(&mut rest[class..=class]);
    }
    let loss = V::splat(loss.reduce_add());
    loss.canonical().store_first(&mut rest[classes..=classes]);
}

struct Margins<'a, E, const PROBABILITIES: bool> {
    x: &'a [E],
    columns: usize,
    model: Linears<'a>,
    out: &'a mut [f64],
}

impl<E: TableValue, const PROBABILITIES: bool> SimdKernel for Margins<'_, E, PROBABILITIES> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(self) {
        let rows = RowMatrix::<V, E>::new(self.x, self.columns);
        let classes = self.model.intercepts.len();
        let mut tile = vec![[0.0; 8]; rows.vectors() * 8];
        let mut shares = vec![[0.0; 8]; classes];
        let mut first = 0;
        while first < rows.len() {
            let count = (rows.len() - first).min(8);
            rows.turn(first, &mut tile);
            margins::<V>(&tile[..self.columns], self.model, &mut shares);
            if PROBABILITIES {
                softmax::<V>(&mut shares);
            }
            for (class, shares) in shares.iter_mut().enumerate() {
                V::load(shares).canonical().store(shares);
                for row in 0..count {
                    self.out[(first + row) * classes + class] = shares[row];
                }
            }
            first += count;
        }
    }
}
