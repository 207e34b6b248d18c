//! Logistic regression, one block of rows at a time.
//!
//! # Order
//! Rows are taken eight at a time, from each half of the block in turn: reading from two places at once
//! keeps more of the hardware's prefetchers busy. A margin is the sum over the row's vectors, lane by lane from the
//! first vector to the last, then across lanes by halving, then the intercept. A column's gradient
//! adds the rows as they are taken. The intercept's gradient and the loss add eight rows as eight lanes, and
//! the lanes by halving at the end. Neither the width of a register nor the number of columns enters.

use crate::numerics::{canonical, log_loss_lanes, sigmoid_lanes};
use crate::simd::{F64x8, Isa, Octet, RowMatrix, SimdKernel, TableValue, dispatch, prefetch};

/// Rows with their labels: `x` row by row, one label of 0 or 1 for each row.
#[derive(Clone, Copy, Debug)]
pub struct Labelled<'a, E = f64> {
    /// The rows, `columns` values each.
    pub x: &'a [E],
    /// One label for each row.
    pub y: &'a [f64],
    /// Values in a row, at least one.
    pub columns: usize,
}

/// A linear model.
#[derive(Clone, Copy, Debug)]
pub struct Linear<'a> {
    /// One weight for each column.
    pub weights: &'a [f64],
    /// Added to each row's product.
    pub intercept: f64,
}

/// What a block contributes to an iteration: sums over its rows, none of them scaled.
///
/// The values lie in one slice (the gradient by column, the intercept's gradient, the loss), so that a
/// reduction adds partials with [`add_into`](crate::numerics::add_into).
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    values: Vec<f64>,
}

impl Partial {
    /// All zero, for `columns` columns.
    pub fn new(columns: usize) -> Partial {
        Partial {
            values: vec![0.0; columns + 2],
        }
    }

    /// Σ (p − y) x, by column.
    pub fn gradient(&self) -> &[f64] {
        &self.values[..self.values.len() - 2]
    }

    /// Σ (p − y).
    pub fn intercept_gradient(&self) -> f64 {
        self.values[self.values.len() - 2]
    }

    /// Σ log-loss, or zero if it was not asked for.
    pub fn loss(&self) -> f64 {
        self.values[self.values.len() - 1]
    }

    /// Everything, in the order above.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Everything, in the order above.
    pub fn values_mut(&mut self) -> &mut [f64] {
        &mut self.values
    }
}

/// Whether [`gradient_block`] computes the loss as well, which costs about as much as the sigmoid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeLoss {
    /// The sum of log-losses.
    Summed,
    /// Zero in its place.
    Skipped,
}

/// Overwrites `out` with the gradient and the loss of a block under `model`, in one pass over it.
///
/// # Panics
/// If the lengths of rows, labels, weights and `out` do not agree, or there is no column.
pub fn gradient_block<E: TableValue>(
    isa: Isa,
    block: Labelled<'_, E>,
    model: Linear<'_>,
    loss: ComputeLoss,
    out: &mut Partial,
) {
    gradient_block_into(isa, block, model, loss, &mut out.values);
}

/// As [`gradient_block`], into [`Partial::values`].
///
/// # Panics
/// As [`gradient_block`].
pub fn gradient_block_into<E: TableValue>(
    isa: Isa,
    block: Labelled<'_, E>,
    model: Linear<'_>,
    loss: ComputeLoss,
    out: &mut [f64],
) {
    assert_eq!(block.x.len(), block.y.len() * block.columns);
    assert_eq!(model.weights.len(), block.columns);
    assert_eq!(out.len(), block.columns + 2);
    match loss {
        ComputeLoss::Summed => dispatch(isa, Gradient::<E, true> { block, model, out }),
        ComputeLoss::Skipped => dispatch(isa, Gradient::<E, false> { block, model, out }),
    }
}

struct Gradient<'a, E, const LOSS: bool> {
    block: Labelled<'a, E>,
    model: Linear<'a>,
    out: &'a mut [f64],
}

impl<E: TableValue, const LOSS: bool> SimdKernel for Gradient<'_, E, LOSS> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(self) {
        let rows = RowMatrix::<V, E>::new(self.block.x, self.block.columns);
        let (gradient, totals) = self.out.split_at_mut(self.block.columns);
        let sums = match rows.vectors() {
            1 => narrow::<V, E, 1, LOSS>(rows, self.block.y, self.model, gradient),
            2 => narrow::<V, E, 2, LOSS>(rows, self.block.y, self.model, gradient),
            3 => narrow::<V, E, 3, LOSS>(rows, self.block.y, self.model, gradient),
            4 => narrow::<V, E, 4, LOSS>(rows, self.block.y, self.model, gradient),
            5 => narrow::<V, E, 5, LOSS>(rows, self.block.y, self.model, gradient),
            6 => narrow::<V, E, 6, LOSS>(rows, self.block.y, self.model, gradient),
            7 => narrow::<V, E, 7, LOSS>(rows, self.block.y, self.model, gradient),
            8 => narrow::<V, E, 8, LOSS>(rows, self.block.y, self.model, gradient),
            _ => wide::<V, E, LOSS>(rows, self.block.y, self.model, gradient),
        };
        totals[0] = canonical(sums.residual.reduce_add());
        totals[1] = canonical(sums.loss.reduce_add());
        for value in gradient {
            *value = canonical(*value);
        }
    }
}

/// Sums over eight rows at a time.
struct Sums<V> {
    residual: V,
    loss: V,
}

impl<V: F64x8> Sums<V> {
    #[inline(always)]
    fn new() -> Self {
        Sums {
            residual: V::splat(0.0),
            loss: V::splat(0.0),
        }
    }

    /// Adds rows of margins `z` and labels `y`; returns their residuals p − y.
    #[inline(always)]
    fn add<const LOSS: bool>(&mut self, z: V, y: V) -> V {
        let (p, power) = sigmoid_lanes(z);
        let residual = p.sub(y);
        self.residual = self.residual.add(residual);
        if LOSS {
            self.loss = self.loss.add(log_loss_lanes(z, y, power));
        }
        residual
    }

    /// Adds the first `count` rows only; the residuals of the others are zero.
    #[inline(always)]
    fn add_first<const LOSS: bool>(&mut self, z: V, y: V, count: usize) -> V {
        let zero = V::splat(0.0);
        let (p, power) = sigmoid_lanes(z);
        let residual = V::select(V::first(count), p.sub(y), zero);
        self.residual = self.residual.add(residual);
        if LOSS {
            let loss = V::select(V::first(count), log_loss_lanes(z, y, power), zero);
            self.loss = self.loss.add(loss);
        }
        residual
    }
}

/// The order in which whole groups of eight rows are taken. What is behind the last of them comes last.
#[inline(always)]
fn order(groups: usize) -> impl Iterator<Item = usize> {
    let half = groups / 2;
    let pairs = (0..half).flat_map(move |at| [at, half + at]);
    pairs.chain(2 * half..groups)
}

/// Rows of at most four vectors: weights and gradient stay in registers.
#[inline(always)]
fn narrow<V: F64x8, E: TableValue, const VECTORS: usize, const LOSS: bool>(
    rows: RowMatrix<'_, V, E>,
    y: &[f64],
    model: Linear<'_>,
    out: &mut [f64],
) -> Sums<V> {
    let mut weights = [V::splat(0.0); VECTORS];
    for vector in 0..VECTORS {
        weights[vector] = V::load_first(&model.weights[vector * 8..]);
    }
    let intercept = V::splat(model.intercept);
    let mut gradient = [V::splat(0.0); VECTORS];
    let mut sums = Sums::new();

    let (labels, rest) = y.as_chunks::<8>();
    // What eight rows add to the gradient waits until the next eight have their margins: a CPU does both at once, and does not
    // fill up with additions that need residuals which take long.
    let mut waiting = None;
    let labels_ahead = rows.prefetched_rows().next_multiple_of(8);
    // The first half begins where the block before ended, most often.
    rows.prefetch_from(labels.len() / 2 * 8);
    for index in order(labels.len()) {
        let labels = &labels[index];
        let octet = rows.octet::<VECTORS>(index * 8);
        prefetch(labels.as_ptr().wrapping_add(labels_ahead));
        let mut products = [V::splat(0.0); 8];
        for row in 0..8 {
            octet.prefetch(row);
            let mut product = octet.load(row, 0).mul(weights[0]);
            for vector in 1..VECTORS {
                product = octet.load(row, vector).mul_add(weights[vector], product);
            }
            products[row] = product;
        }
        let z = V::reduce_rows(products).add(intercept);
        if let Some((octet, residual)) = waiting {
            add_octet(octet, residual, &mut gradient);
        }
        let residual = sums.add::<LOSS>(z, V::load(labels));
        waiting = Some((octet.again(), residual));
    }
    if let Some((octet, residual)) = waiting {
        add_octet(octet, residual, &mut gradient);
    }

    if !rest.is_empty() {
        let first = rows.len() - rest.len();
        let mut products = [V::splat(0.0); 8];
        for row in 0..rest.len() {
            let mut product = rows.load(first + row, 0).mul(weights[0]);
            for vector in 1..VECTORS {
                product = rows
                    .load(first + row, vector)
                    .mul_add(weights[vector], product);
            }
            products[row] = product;
        }
        let z = V::reduce_rows(products).add(intercept);
        let residual = sums.add_first::<LOSS>(z, V::load_first(rest), rest.len());
        let mut residuals = [0.0; 8];
        residual.store(&mut residuals);
        for row in 0..rest.len() {
            let residual = V::splat(residuals[row]);
            for vector in 0..VECTORS {
                gradient[vector] = rows
                    .load(first + row, vector)
                    .mul_add(residual, gradient[vector]);
            }
        }
    }

    for vector in 0..VECTORS {
        gradient[vector].store_first(&mut out[vector * 8..]);
    }
    sums
}

/// Adds each row times its residual.
#[inline(always)]
fn add_octet<V: F64x8, E: TableValue, const VECTORS: usize>(
    octet: Octet<'_, V, VECTORS, E>,
    residual: V,
    gradient: &mut [V; VECTORS],
) {
    for row in 0..8 {
        let residual = residual.broadcast_lane(row);
        for vector in 0..VECTORS {
            gradient[vector] = octet.load(row, vector).mul_add(residual, gradient[vector]);
        }
    }
}

/// Rows of any length: eight of them fit the nearest cache, where the second reading finds them.
#[inline(always)]
fn wide<V: F64x8, E: TableValue, const LOSS: bool>(
    rows: RowMatrix<'_, V, E>,
    y: &[f64],
    model: Linear<'_>,
    out: &mut [f64],
) -> Sums<V> {
    let intercept = V::splat(model.intercept);
    let mut sums = Sums::new();
    out.fill(0.0);
    let whole = y.len() / 8;
    for index in order(whole).chain(whole..y.len().div_ceil(8)) {
        let first = index * 8;
        let labels = &y[first..y.len().min(first + 8)];
        let count = labels.len();
        let z = wide_products(rows, first, count, model.weights).add(intercept);
        let residual = sums.add_first::<LOSS>(z, V::load_first(labels), count);
        let mut residuals = [0.0; 8];
        residual.store(&mut residuals);
        for vector in 0..rows.vectors() {
            let column = vector * 8;
            let mut gradient = V::load_first(&out[column..]);
            for row in 0..count {
                let residual = V::splat(residuals[row]);
                gradient = rows.load(first + row, vector).mul_add(residual, gradient);
            }
            gradient.store_first(&mut out[column..]);
        }
    }
    sums
}

/// The products of up to eight rows with the weights, in the module's order.
#[inline(always)]
pub(super) fn wide_products<V: F64x8, E: TableValue>(
    rows: RowMatrix<'_, V, E>,
    first: usize,
    count: usize,
    weights: &[f64],
) -> V {
    let mut products = [V::splat(0.0); 8];
    let weight = V::load_first(weights);
    for row in 0..count {
        products[row] = rows.load(first + row, 0).mul(weight);
    }
    for vector in 1..rows.vectors() {
        let weight = V::load_first(&weights[vector * 8..]);
        for row in 0..count {
            products[row] = rows
                .load(first + row, vector)
                .mul_add(weight, products[row]);
        }
    }
    V::reduce_rows(products)
}

/// Writes each row's margin x · w + b: what [`gradient_block`] takes the sigmoid of, bit for bit.
///
/// # Panics
/// If the lengths of rows, weights and `out` do not agree, or there is no column.
pub fn margins_block<E: TableValue>(isa: Isa, x: &[E], model: Linear<'_>, out: &mut [f64]) {
    assert_eq!(x.len(), model.weights.len() * out.len());
    dispatch(isa, Margins { x, model, out });
}

struct Margins<'a, E> {
    x: &'a [E],
    model: Linear<'a>,
    out: &'a mut [f64],
}

impl<E: TableValue> SimdKernel for Margins<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(self) {
        let rows = RowMatrix::<V, E>::new(self.x, self.model.weights.len());
        let intercept = V::splat(self.model.intercept);
        for (index, out) in self.out.chunks_mut(8).enumerate() {
            let z = wide_products(rows, index * 8, out.len(), self.model.weights).add(intercept);
            z.canonical().store_first(out);
        }
    }
}
