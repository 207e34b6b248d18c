//! Logistic regression twice: the model that comes with brambling, and the same search written by hand as a
//! program of five stages.
//!
//! ```text
//! cargo run --release --example logistic_regression
//! ```
//!
//! The samples are loaded in blocks of 4,096 rows and never move. In each turn the weights are broadcast to
//! them, each block gives its part of the gradient, and the parts are added on a fixed tree over the blocks:
//! the weights have the same bits for any number of threads and partitions.
#![allow(clippy::print_stdout)] // An example talks to its reader.

use brambling::ml::{FitError, LogisticRegression, Solver};
use brambling::operators::ml::samples::{SampleBlock, Samples};
use brambling::prelude::*;
use brambling::program::{Foreign, Rng, StageId};

const ROWS: usize = 50_000;
const COLUMNS: usize = 4;
/// What the labels are drawn from.
const TRUTH: [f64; COLUMNS] = [1.5, -2.0, 0.5, 0.0];
const TURNS: u64 = 200;

/// Rows uniform in [-1, 1), and labels that are 1 with the odds that [`TRUTH`] gives.
fn draw() -> (Foreign<f64>, Foreign<f64>) {
    let mut rng = Rng::new(1, StageId(0), 0, 0);
    let x: Vec<f64> = (0..ROWS * COLUMNS)
        .map(|_| rng.next_f64() * 2.0 - 1.0)
        .collect();
    let y = x.chunks(COLUMNS).map(|row| {
        let margin: f64 = row.iter().zip(TRUTH).map(|(x, w)| x * w).sum();
        f64::from(u8::from(rng.next_f64() * (1.0 + (-margin).exp()) < 1.0))
    });
    let y = y.collect();
    (Foreign::owned(x), Foreign::owned(y))
}

/// Σ (p − y) x over a block. The vector is the one of the turn before: nothing is allocated.
fn gradient(block: SampleBlock<'_>, weights: &Vec<f64>, gradient: &mut Vec<f64>) {
    gradient.clear();
    gradient.resize(COLUMNS, 0.0);
    for (row, label) in block.x.chunks_exact(COLUMNS).zip(block.y) {
        let margin: f64 = row.iter().zip(weights).map(|(x, w)| x * w).sum();
        let residual = 1.0 / (1.0 + (-margin).exp()) - label;
        for (sum, x) in gradient.iter_mut().zip(row) {
            *sum += residual * x;
        }
    }
}

/// Gradient descent on ½‖w‖² + Σ log-loss. The curvature is at most 1 + ¼ Σ‖x‖², and Σ‖x‖² at most all.
fn step(weights: &mut Vec<f64>, gradient: &Vec<f64>) {
    let curvature = 1.0 + 0.25 * (ROWS * COLUMNS) as f64;
    for (weight, sum) in weights.iter_mut().zip(gradient) {
        *weight -= 4.0 * (sum + *weight) / curvature;
    }
}

fn by_hand(x: Foreign<f64>, y: Foreign<f64>) -> Result<Vec<f64>, brambling::Error> {
    let mut p = Program::new("logistic regression by hand");
    let samples = p.load("samples", 8, Partitioner::Blocks, move |index, count| {
        Samples::partition(&x, &y, COLUMNS, index, count)
    });
    let weights = p.value("weights", 1, vec![0.0; COLUMNS]);
    let local = p.like::<Vec<f64>, _>("local weights", &samples);
    let gradients = p.like::<Blocks<Vec<f64>>, _>("gradients", &samples);
    p.repeat(TURNS, |p| {
        p.broadcast(&weights, &local);
        p.map("gradient", &samples)
            .read(&local)
            .into(&gradients, gradient);
        p.reduce_blocks(Sum, &gradients, &weights, step);
    });
    Ok(brambling::run(p)?.take(&weights))
}

fn main() -> Result<(), FitError> {
    let (x, y) = draw();
    let model = LogisticRegression {
        fit_intercept: false,
        tol: 1e-7,
        max_iter: TURNS,
        solver: Solver::GradientDescent,
        ..Default::default()
    };
    let options = RunOptions::new();
    let fitted = model.fit(
        x.clone(),
        y.clone(),
        COLUMNS,
        &options,
        &mut brambling::QuietCaller,
    )?;
    assert!(fitted.converged);
    let weights = by_hand(x.clone(), y.clone())?;

    let right = |(margin, label): (&f64, &f64)| (*margin > 0.0) == (*label == 1.0);
    let margins = fitted.predict_margins(&x)?;
    let share = margins.iter().zip(&*y).filter(|&pair| right(pair)).count() as f64 / ROWS as f64;
    println!("drawn from  {TRUTH:6.3?}");
    println!(
        "built in    {:6.3?}  after {} passes",
        fitted.coef, fitted.iterations
    );
    println!("by hand     {weights:6.3?}  after {TURNS} passes");
    println!(
        "right on {:.1} % of the rows, {:.2} ms a pass",
        share * 100.0,
        fitted.seconds_per_iteration() * 1e3
    );

    for ((weight, built_in), truth) in weights.iter().zip(&fitted.coef).zip(TRUTH) {
        assert!((weight - built_in).abs() < 1e-3 && (weight - truth).abs() < 0.1);
    }
    Ok(())
}

#[test]
fn checks_its_result() {
    main().unwrap();
}
