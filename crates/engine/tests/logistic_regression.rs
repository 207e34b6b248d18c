//! Logistic regression against Newton's method, which shares no code with it.

mod support;

use brambling::RunOptions;
use brambling::ml::{Fitted, LogisticRegression, Solver};
use brambling::program::Foreign;
use support::table;

/// The minimum of ½‖w‖² + C · Σ log-loss, by Newton's method; the last weight is the intercept's.
fn newton(x: &[f64], y: &[f64], columns: usize, c: f64, fit_intercept: bool) -> Vec<f64> {
    let order = columns + usize::from(fit_intercept);
    let mut weights = vec![0.0; order];
    for _ in 0..30 {
        let mut system = vec![vec![0.0; order + 1]; order];
        for column in 0..columns {
            system[column][column] = 1.0;
            system[column][order] = weights[column];
        }
        for (row, label) in x.chunks(columns).zip(y) {
            let mut row = row.to_vec();
            row.resize(order, 1.0);
            let margin: f64 = row.iter().zip(&weights).map(|(x, w)| x * w).sum();
            let p = 1.0 / (1.0 + (-margin).exp());
            for i in 0..order {
                for j in 0..order {
                    system[i][j] += c * p * (1.0 - p) * row[i] * row[j];
                }
                system[i][order] += c * (p - label) * row[i];
            }
        }
        let step = solve(system);
        weights.iter_mut().zip(step).for_each(|(w, s)| *w -= s);
    }
    weights.resize(columns + 1, 0.0);
    weights
}

/// Gauss and Jordan; the matrix is positive definite, so no pivot is small.
fn solve(mut system: Vec<Vec<f64>>) -> Vec<f64> {
    let order = system.len();
    for at in 0..order {
        let pivot = system[at].clone();
        for (index, row) in system.iter_mut().enumerate() {
            let factor = row[at] / pivot[at];
            if index != at {
                row.iter_mut()
                    .zip(&pivot)
                    .for_each(|(r, p)| *r -= factor * p);
            }
        }
    }
    (0..order)
        .map(|at| system[at][order] / system[at][at])
        .collect()
}

/// Catches a wrong objective, a wrong step and lost rows. Says nothing about speed.
#[test]
fn both_solvers_find_newtons_minimum() {
    for (rows, columns, c, fit_intercept) in [
        (1, 1, 1.0, false),
        (7, 3, 10.0, true),
        (4_096, 2, 1.0, false),
        (4_097, 5, 0.001, true),
        (5_000, 9, 0.002, true),
        (600, 35, 0.001, false),
    ] {
        let (x, y) = table(rows, columns);
        let expected = newton(&x, &y, columns, c, fit_intercept);
        for solver in [Solver::GradientDescent, Solver::Lbfgs] {
            let model = LogisticRegression {
                c,
                fit_intercept,
                tol: 1e-9,
                max_iter: 100_000,
                solver,
            };
            let fitted = model.fit_owned(x.clone(), y.clone(), columns, &RunOptions::new());
            let fitted = fitted.unwrap();
            assert!(fitted.converged, "{rows} rows: {fitted:?}");
            let found = fitted.coef.iter().chain([&fitted.intercept]);
            for (found, expected) in found.zip(&expected) {
                assert!(
                    (found - expected).abs() < 1e-4,
                    "{rows} rows, {solver:?}: {found} for {expected}"
                );
            }
            assert!(fit_intercept || fitted.intercept == 0.0);
        }
    }
}

fn fit(tol: f64, max_iter: u64) -> Fitted {
    let (x, y) = table(6_000, 4);
    let model = LogisticRegression {
        tol,
        max_iter,
        solver: Solver::GradientDescent,
        ..Default::default()
    };
    model.fit_owned(x, y, 4, &RunOptions::new()).unwrap()
}

#[test]
fn the_search_stops_where_it_should() {
    let early = fit(1e-2, 1_000);
    assert!(early.converged && early.iterations < 1_000 && early.largest_gradient <= 1e-2);
    // One iteration less has not converged: it stopped as soon as it could.
    let before = fit(1e-2, early.iterations - 1);
    assert!(!before.converged && before.largest_gradient > 1e-2);
    let never = fit(0.0, 500);
    assert!(!never.converged && never.iterations == 500);
}

#[test]
fn margins_agree_with_labels_and_shapes_are_checked() {
    let (x, y) = table(6_000, 4);
    let fitted = fit(1e-4, 1_000);
    let margins = fitted.predict_margins(&x).unwrap();
    let by_hand = x.chunks(4).map(|row| {
        row.iter()
            .zip(&fitted.coef)
            .map(|(x, w)| x * w)
            .sum::<f64>()
            + fitted.intercept
    });
    assert!(
        margins
            .iter()
            .zip(by_hand)
            .all(|(a, b)| (a - b).abs() < 1e-12)
    );
    let right = margins
        .iter()
        .zip(&y)
        .filter(|(m, y)| (**m > 0.0) == (**y == 1.0))
        .count();
    assert!(right > 4_200, "{right} of 6000 right");
    assert!(fitted.predict_margins(&x[1..]).is_err());
    assert!(fitted.predict_margins(&[]).unwrap().is_empty());
}

/// The arrays are borrowed (a test of `MetricSamples` sees to that), and what the job keeps beside them is small.
#[test]
fn what_is_kept_beside_the_samples_is_small() {
    let (x, y) = table(400_000, 20);
    let bytes = (x.len() + y.len()) as u64 * 8;
    let (x, y) = (Foreign::owned(x), Foreign::owned(y));
    let model = LogisticRegression {
        tol: 0.0,
        max_iter: 3,
        solver: Solver::GradientDescent,
        ..Default::default()
    };
    let options = RunOptions::new().threads(2);
    let fitted = model
        .fit(x, y, 20, &options, &mut brambling::QuietCaller)
        .unwrap();
    let peak = fitted.tally.peak_bytes;
    assert!(peak * 20 < bytes, "{peak} bytes beside {bytes}");
}
