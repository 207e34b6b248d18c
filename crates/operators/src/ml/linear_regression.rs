//! Least squares by QR factorisation, as a program of one pass over the data.
//!
//! A block's rows, less their means, become a triangle ([`super::triangle`]); two triangles and what lies between their means become
//! one. So nothing is squared: coefficients lose as many digits as the condition of the columns says, and not twice as many, and how
//! far rows are from the origin does not matter.

use super::model::{Found, Model, refused};
use super::moments::weighted_stats_block;
use super::samples::{SampleBlock, Samples, SamplesError};
use super::triangle::{Columns, Solution, absorb, solve};
use crate::numerics::canonical;
use crate::simd;
use brambling_program::{Blocks, Combine, Dataset, KernelError, Program, Sum, Work};
use serde::{Deserialize, Serialize};

/// Finds `coef` (target by target), an `intercept` for each target, the `rank` of the columns and their `singular` values. Directions
/// whose singular value is at most `tol` · the largest are left out; of several solutions the shortest is found.
///
/// # Movement
/// The samples never move. A triangle of as many rows as there are columns and targets is reduced for each block.
pub const MODEL: Model = Model {
    name: "LinearRegression",
    parameters: &["fit_intercept", "tol"],
    build,
};

/// As [`MODEL`], with the penalty `alpha` · ‖coef‖².
pub const RIDGE: Model = Model {
    name: "Ridge",
    parameters: &["fit_intercept", "alpha"],
    build: build_ridge,
};

fn build(p: &mut Program, parameters: &[f64], samples: &Dataset<Samples>) -> Dataset<Found> {
    let (tol, alpha) = (parameters[1], 0.0);
    least_squares(p, samples, parameters[0] != 0.0, Rule { tol, alpha })
}

fn build_ridge(p: &mut Program, parameters: &[f64], samples: &Dataset<Samples>) -> Dataset<Found> {
    let (tol, alpha) = (f64::EPSILON, parameters[1]);
    least_squares(p, samples, parameters[0] != 0.0, Rule { tol, alpha })
}

/// How the triangle is solved.
#[derive(Clone, Copy, Default)]
struct Rule {
    tol: f64,
    alpha: f64,
}
brambling_program::payload!(Rule { tol, alpha });

fn least_squares(
    p: &mut Program,
    samples: &Dataset<Samples>,
    fit_intercept: bool,
    rule: Rule,
) -> Dataset<Found> {
    let block_sums = p.like::<Blocks<Normal>, _>("block triangles", samples);
    let sums = p.temporary::<Normal>("triangle", 1);
    let found = p.value("found", 1, Found::default());
    p.map("triangle", samples)
        .named("ml.linear_regression.triangle", Vec::new())
        .with(fit_intercept)
        .into(&block_sums, Normal::of_block);
    p.reduce_blocks(Sum, &block_sums, &sums, Normal::clone_from);
    p.compute("solve")
        .read(&sums)
        .update(&found)
        .named("ml.linear_regression.solve", Vec::new())
        .with(rule)
        .run(solve_by);
    found
}

fn solve_by(rule: &Rule, sums: &Normal, found: &mut Found) -> Result<(), KernelError> {
    sums.solve(*rule, found)
}

/// Rows become columns so many at a time: those of a hundred columns fit the second cache.
const ROWS_AT_A_TIME: usize = 128;

/// What some blocks say about least squares: the triangle of their columns and targets, less the means.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Normal {
    columns: usize,
    weight: f64,
    /// Of columns and then targets; none where no intercept is learnt.
    means: Vec<f64>,
    triangle: Vec<f64>,
    refusal: Option<SamplesError>,
}
brambling_program::payload!(Normal, |normal| (normal.means.capacity()
    + normal.triangle.capacity())
    * size_of::<f64>());

impl Normal {
    fn of_block(&about_means: &bool, block: SampleBlock<'_>, normal: &mut Normal) -> Work {
        // A triangle of products of columns and targets.
        let order = (block.columns + block.y.len() / block.rows()) as u64;
        let work = block.work(0, order * (order + 1));
        if !about_means {
            normal.take(block, Vec::new());
            return work;
        }
        let (isa, targets) = (simd::active(), block.y.len() / block.rows());
        let x = weighted_stats_block(isa, block.x, block.columns, block.weights);
        let y = weighted_stats_block(isa, block.y, targets, block.weights);
        normal.take(block, [x.means, y.means].concat());
        work
    }

    fn take(&mut self, block: SampleBlock<'_>, means: Vec<f64>) {
        let (columns, targets) = (block.columns, block.y.len() / block.rows());
        let order = columns + targets;
        self.columns = columns;
        self.weight = match block.weights {
            [] => block.rows() as f64,
            weights => weights.iter().fold(0.0, |sum, weight| sum + weight),
        };
        self.triangle.clear();
        self.triangle.resize(order * order, 0.0);
        let mut rows = Columns::default();
        for first in (0..block.rows()).step_by(ROWS_AT_A_TIME) {
            let count = (block.rows() - first).min(ROWS_AT_A_TIME);
            rows.reset(count, order);
            let x = &block.x[first * columns..][..count * columns];
            let y = &block.y[first * targets..][..count * targets];
            turn(x, columns, &means, 0, &mut rows);
            turn(
                y,
                targets,
                means.get(columns..).unwrap_or(&[]),
                columns,
                &mut rows,
            );
            if let Some(weights) = block.weights.get(first..first + count) {
                weigh(weights, order, &mut rows);
            }
            absorb(simd::active(), &mut self.triangle, order, &mut rows);
        }
        self.means = means;
        let finite = self
            .triangle
            .iter()
            .chain(&self.means)
            .all(|value| value.is_finite());
        let refusal = || {
            block
                .not_finite()
                .or_else(|| target_not_finite(block, targets))
        };
        self.refusal = if finite { None } else { refusal() };
    }

    fn add(&mut self, right: &Normal) {
        if right.weight == 0.0 {
            return;
        }
        if self.weight == 0.0 {
            let refusal = self.refusal.take();
            self.clone_from(right);
            self.refusal = refusal;
            return;
        }
        let order = right.columns_and_targets();
        let all = self.weight + right.weight;
        let share = right.weight / all;
        let between = (self.weight * share).sqrt();
        let mut rows = Columns::default();
        rows.reset(order + 1, order);
        for column in 0..order {
            let into = rows.column_mut(column);
            for row in 0..=column {
                into[row] = right.triangle[row * order + column];
            }
            if let Some(mean) = right.means.get(column) {
                let apart = mean - self.means[column];
                into[order] = between * apart;
                self.means[column] = canonical(apart.mul_add(share, self.means[column]));
            }
        }
        absorb(simd::active(), &mut self.triangle, order, &mut rows);
        self.weight = all;
    }

    /// The triangle, and a row for each column that asks for a coefficient of 0.
    fn penalised(&self, alpha: f64) -> Vec<f64> {
        let (mut triangle, order) = (self.triangle.clone(), self.columns_and_targets());
        if alpha > 0.0 {
            let mut rows = Columns::default();
            rows.reset(self.columns, order);
            (0..self.columns).for_each(|at| rows.column_mut(at)[at] = alpha.sqrt());
            absorb(simd::active(), &mut triangle, order, &mut rows);
        }
        triangle
    }

    fn columns_and_targets(&self) -> usize {
        self.triangle.len().isqrt()
    }

    fn solve(&self, rule: Rule, found: &mut Found) -> Result<(), KernelError> {
        if let Some(refusal) = &self.refusal {
            return Err(refused(refusal.clone()));
        }
        let mut numbers = self.triangle.iter().chain(&self.means);
        if !numbers.all(|value| value.is_finite()) {
            return Err(refused(SamplesError::TooLarge));
        }
        let (columns, order) = (self.columns, self.columns_and_targets());
        let Solution {
            coef,
            singular,
            rank,
        } = solve(
            &self.penalised(rule.alpha),
            columns,
            order - columns,
            rule.tol,
        );
        let intercepts = coef.chunks_exact(columns).enumerate();
        let intercepts = intercepts.map(|(target, coef)| {
            let Some(mean) = self.means.get(columns + target) else {
                return 0.0;
            };
            let products = coef.iter().zip(&self.means).map(|(coef, mean)| coef * mean);
            canonical(mean - products.fold(0.0, |sum, product| sum + product))
        });
        let intercept = intercepts.collect();
        *found = Found::of([
            ("coef", coef),
            ("intercept", intercept),
            ("singular", singular),
            ("rank", vec![rank as f64]),
        ]);
        Ok(())
    }
}

impl Combine<Normal> for Sum {
    fn combine(&self, left: &mut Normal, right: &Normal) {
        left.add(right);
        if left.refusal.is_none() {
            left.refusal.clone_from(&right.refusal);
        }
    }
}

/// Writes `values`, row by row, less the means into the columns from `first` on.
fn turn(values: &[f64], width: usize, means: &[f64], first: usize, rows: &mut Columns) {
    for column in 0..width {
        let mean = means.get(column).copied().unwrap_or(0.0);
        let values = values.iter().skip(column).step_by(width);
        for (into, value) in rows.column_mut(first + column).iter_mut().zip(values) {
            *into = value - mean;
        }
    }
}

/// Multiplies rows by the roots of their weights.
fn weigh(weights: &[f64], order: usize, rows: &mut Columns) {
    let roots: Vec<f64> = weights.iter().map(|weight| weight.sqrt()).collect();
    for column in 0..order {
        for (value, root) in rows.column_mut(column).iter_mut().zip(&roots) {
            *value *= root;
        }
    }
}

fn target_not_finite(block: SampleBlock<'_>, targets: usize) -> Option<SamplesError> {
    let at = block.y.iter().position(|value| !value.is_finite())?;
    Some(SamplesError::Target {
        row: block.first_row + (at / targets) as u64,
        value: block.y[at],
    })
}
