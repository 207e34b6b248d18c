//! L-BFGS: two classes and more against plain loops that share no code with it, and the promise for it.

mod support;

use brambling::ml::{FitError, FittedClasses, LogisticRegression, Solver};
use brambling::prelude::*;
use support::{bits, rng, table};

const COLUMNS: usize = 5;
const CLASSES: usize = 4;

/// Columns of unequal deviation, and four classes that overlap.
fn classified(rows: usize) -> (Vec<f32>, Vec<f64>) {
    let mut rng = rng(1);
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for _ in 0..rows {
        let class = rng.below(CLASSES as u64) as usize;
        y.push(class as f64);
        for column in 0..COLUMNS {
            let place = if column % CLASSES == class { 0.8 } else { 0.0 };
            let value = (place + rng.next_f64() * 2.0 - 1.0) * 3_f64.powi(column as i32);
            x.push(value as f32);
        }
    }
    (x, y)
}

fn doubles(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

fn model(tol: f64) -> LogisticRegression {
    LogisticRegression {
        tol,
        max_iter: 2_000,
        ..Default::default()
    }
}

fn fit(tol: f64, options: &RunOptions) -> FittedClasses {
    let (x, y) = classified(20_011);
    model(tol)
        .fit_classes_owned(doubles(&x), y, COLUMNS, CLASSES, options)
        .unwrap()
}

/// The largest component of the gradient of ½‖w‖² + Σ log-loss, ÷ rows, by what moves a column from its mean by its
/// deviation.
fn largest_gradient(x: &[f64], y: &[f64], fitted: &FittedClasses) -> f64 {
    let mut weights = fitted.coef.clone();
    let mut intercepts = [0.0; CLASSES];
    for (row, label) in x.chunks(COLUMNS).zip(y) {
        let power = |class: usize| -> f64 {
            let weights = &fitted.coef[class * COLUMNS..][..COLUMNS];
            let product: f64 = row.iter().zip(weights).map(|(x, w)| x * w).sum();
            (product + fitted.intercepts[class]).exp()
        };
        let powers: Vec<f64> = (0..CLASSES).map(power).collect();
        let sum: f64 = powers.iter().sum();
        for class in 0..CLASSES {
            let residual = powers[class] / sum - f64::from(u8::from(*label == class as f64));
            intercepts[class] += residual;
            for column in 0..COLUMNS {
                weights[class * COLUMNS + column] += residual * row[column];
            }
        }
    }
    let rows = y.len() as f64;
    for column in 0..COLUMNS {
        let values = || x.iter().skip(column).step_by(COLUMNS);
        let mean = values().sum::<f64>() / rows;
        let variance = values().map(|x| (x - mean) * (x - mean)).sum::<f64>() / rows;
        for class in 0..CLASSES {
            let weight = &mut weights[class * COLUMNS + column];
            *weight = (*weight - mean * intercepts[class]) / (variance + 4.0 / rows).sqrt();
        }
    }
    let all = weights.iter().chain(&intercepts);
    all.fold(0.0_f64, |most, g| most.max(g.abs())) / rows
}

/// The objective is convex: where its gradient is nearly zero is its minimum.
#[test]
fn the_gradient_of_four_classes_vanishes_where_the_search_ends() {
    let (x, y) = classified(20_011);
    let fitted = fit(1e-8, &RunOptions::new());
    assert!(fitted.converged && fitted.largest_gradient <= 1e-8);
    let plain = largest_gradient(&doubles(&x), &y, &fitted);
    assert!(plain < 1.1e-8, "{plain}");
    // A pass for each iteration, but for a few.
    let spare = fitted.evaluations - fitted.iterations;
    assert!(spare <= 3 + fitted.iterations / 5, "{fitted:?}");
    // Shifting all classes changes nothing but the penalty, which keeps their sum at zero.
    for column in 0..COLUMNS {
        let sum: f64 = fitted.coef.iter().skip(column).step_by(COLUMNS).sum();
        assert!(sum.abs() < 1e-9, "{sum}");
    }
}

#[test]
fn without_intercepts() {
    let (x, y) = classified(6_000);
    let model = LogisticRegression {
        fit_intercept: false,
        ..model(1e-8)
    };
    let fitted = model
        .fit_classes_owned(x, y, COLUMNS, CLASSES, &RunOptions::new())
        .unwrap();
    assert!(fitted.converged);
    assert_eq!(fitted.intercepts, [0.0; CLASSES]);
}

#[test]
fn probabilities_margins_and_classes_agree() {
    let (x, y) = classified(9_000);
    let fitted = fit(1e-4, &RunOptions::new());
    let x = doubles(&x);
    let shares = fitted.predict_probabilities(&x).unwrap();
    let found = fitted.predict(&x).unwrap();
    for (row, &class) in shares.chunks(CLASSES).zip(&found) {
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-14);
        assert!(row.iter().all(|share| *share <= row[class as usize]));
    }
    let right = found.iter().zip(&y).filter(|(a, b)| f64::from(**a) == **b);
    let right = right.count();
    assert!(right > 4_500, "{right} of 9000 right");
    assert!(fitted.predict(&x[1..]).is_err());
    assert!(fitted.predict(&[]).unwrap().is_empty());
}

#[test]
fn the_same_bits_for_any_threads_and_partitions() {
    let expected = fit(1e-6, &RunOptions::new().threads(1).partitions(1));
    let (x, y) = table(20_011, 5);
    let two = |options: &RunOptions| {
        let fitted = model(1e-6).fit_owned(x.clone(), y.clone(), 5, options);
        let fitted = fitted.unwrap();
        (
            fitted.iterations,
            bits(fitted.coef),
            fitted.intercept.to_bits(),
        )
    };
    let expected_two = two(&RunOptions::new().threads(1).partitions(1));
    for (threads, partitions) in [(1, 2), (2, 7), (3, 64), (4, 1)] {
        let options = RunOptions::new().threads(threads).partitions(partitions);
        let found = fit(1e-6, &options);
        assert_eq!(found.evaluations, expected.evaluations);
        assert_eq!(bits(found.coef), bits(expected.coef.clone()));
        assert_eq!(bits(found.intercepts), bits(expected.intercepts.clone()));
        assert_eq!(two(&options), expected_two);
    }
}

#[test]
fn singles_have_the_bits_of_the_doubles_that_equal_them() {
    let (x, y) = classified(20_011);
    let options = RunOptions::new();
    let fitted = model(1e-6).fit_classes_owned(x.clone(), y.clone(), COLUMNS, CLASSES, &options);
    let expected = fit(1e-6, &options);
    assert_eq!(bits(fitted.unwrap().coef), bits(expected.coef));
    let y: Vec<f64> = y.iter().map(|y| y % 2.0).collect();
    for solver in [Solver::Lbfgs, Solver::GradientDescent] {
        let model = LogisticRegression {
            solver,
            ..model(1e-3)
        };
        let of_singles = model
            .fit_owned(x.clone(), y.clone(), COLUMNS, &options)
            .unwrap();
        let of_doubles = model
            .fit_owned(doubles(&x), y.clone(), COLUMNS, &options)
            .unwrap();
        assert_eq!(bits(of_singles.coef), bits(of_doubles.coef), "{solver:?}");
    }
}

/// Unequal columns cost gradient descent far more passes.
#[test]
fn curvature_is_learnt() {
    let (x, y) = classified(9_000);
    let y: Vec<f64> = y.iter().map(|y| y % 2.0).collect();
    let passes = |solver| {
        let model = LogisticRegression {
            solver,
            max_iter: 5_000,
            ..model(1e-5)
        };
        let fitted = model.fit_owned(x.clone(), y.clone(), COLUMNS, &RunOptions::new());
        fitted.unwrap().evaluations
    };
    let (lbfgs, descent) = (passes(Solver::Lbfgs), passes(Solver::GradientDescent));
    assert!(lbfgs * 10 < descent, "{lbfgs} {descent}");
}

#[test]
fn the_search_ends_where_it_should() {
    let (x, y) = table(6_000, 4);
    let fit = |tol, max_iter| {
        let model = LogisticRegression {
            max_iter,
            ..model(tol)
        };
        let fitted = model.fit_owned(x.clone(), y.clone(), 4, &RunOptions::new());
        fitted.unwrap()
    };
    let early = fit(1e-5, 1_000);
    assert!(early.converged && early.largest_gradient <= 1e-5);
    let before = fit(1e-5, early.iterations - 1);
    assert!(!before.converged && before.largest_gradient > 1e-5);
    assert_eq!(before.iterations, early.iterations - 1);
    // Without a tolerance it goes on, to where only rounding is left.
    let never = fit(0.0, 100);
    assert!(!never.converged, "{never:?}");
    assert!(never.largest_gradient < 1e-12, "{never:?}");
}

#[test]
fn what_cannot_be_learnt_is_refused() {
    let told = |model: LogisticRegression, x: Vec<f64>, y: Vec<f64>, classes| {
        let found = model.fit_classes_owned(x, y, 2, classes, &RunOptions::new());
        found.unwrap_err().to_string()
    };
    let good = model(1e-4);
    let x = vec![1.0; 6];
    let with = |at: usize, value: f64| {
        let mut x = x.clone();
        x[at] = value;
        x
    };
    let y = vec![0.0, 1.0, 2.0];
    for (model, x, y, classes, expected) in [
        (
            good,
            x.clone(),
            y.clone(),
            2,
            "classes = 2 cannot be used; give at least 3; for two classes there is `fit`",
        ),
        (
            LogisticRegression {
                solver: Solver::GradientDescent,
                ..good
            },
            x.clone(),
            y.clone(),
            3,
            "classes = 3 cannot be used; give 2, or the solver L-BFGS",
        ),
        (
            LogisticRegression { c: -1.0, ..good },
            x.clone(),
            y.clone(),
            3,
            "C = -1 cannot be used; give a positive number",
        ),
        (
            good,
            x.clone(),
            vec![0.0, 1.0, 3.0],
            3,
            "y has 3 at row 2 (counted from 0); labels must be whole numbers from 0 to 2",
        ),
        (
            good,
            x.clone(),
            vec![0.0, 0.5, 2.0],
            3,
            "y has 0.5 at row 1 (counted from 0); labels must be whole numbers from 0 to 2",
        ),
        (
            good,
            with(3, f64::NAN),
            y.clone(),
            3,
            "X has NaN at row 1, column 1 (counted from 0); replace such values or drop their rows first",
        ),
        (
            good,
            with(4, f64::INFINITY),
            y.clone(),
            3,
            "X has inf at row 2, column 0 (counted from 0); replace such values or drop their rows first",
        ),
        (
            good,
            vec![1e200, 0.0, -1e200, 1.0, 0.0, 0.0],
            y.clone(),
            3,
            "the squares of X's values overflow; scale its columns first, for example to deviation 1",
        ),
        (
            good,
            x.clone(),
            vec![0.0; 2],
            3,
            "X has 3 rows and y has 2 labels; give one label for each row",
        ),
        (
            good,
            vec![],
            vec![],
            3,
            "X has no rows; there is nothing to learn from",
        ),
    ] {
        assert_eq!(told(model, x, y, classes), expected);
    }
    let two = good.fit_owned(
        with(0, f64::NAN),
        vec![0.0, 1.0, 1.0],
        2,
        &RunOptions::new(),
    );
    assert!(matches!(two, Err(FitError::Samples(_))));
    let label = good.fit_owned(x.clone(), vec![0.0, 1.0, 2.0], 2, &RunOptions::new());
    let told = label.unwrap_err().to_string();
    assert_eq!(
        told,
        "y has 2 at row 2 (counted from 0); labels must be 0 or 1"
    );
}
