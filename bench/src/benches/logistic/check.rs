//! That the fit is the one it claims to be: its steps follow the gradient that a plain loop finds.

use super::data::Data;
use crate::BenchError;
use crate::benches::iterations;
use crate::limits::logistic::{FEATURES, Gradient, Model, Problem, plain_loop};
use crate::session::{How, Session};
use brambling::ml::{Fitted, LogisticRegression, Solver};

/// Not the optimum, not 0: residuals of every size occur.
pub(super) fn some_model() -> Model {
    Model {
        weights: std::array::from_fn(|feature| (feature as f64 - 9.5) / 20.0),
        intercept: 0.1,
    }
}

/// Does so many iterations, whatever they reach.
pub(super) fn model(iterations: u64) -> LogisticRegression {
    LogisticRegression {
        tol: 0.0,
        max_iter: iterations,
        solver: Solver::GradientDescent,
        ..LogisticRegression::default()
    }
}

/// Fits by so many iterations.
pub(super) fn fit(
    session: &mut Session<'_>,
    data: &Data,
    count: u64,
    how: &How,
) -> Result<Fitted, BenchError> {
    let model = model(count);
    let (x, y) = (data.x.clone(), data.y.clone());
    let fitted = session.fit(how, |options, caller| {
        model.fit(x, y, FEATURES, options, caller)
    })?;
    iterations::all_done(session, fitted.iterations, count)?;
    Ok(fitted)
}

/// Two fits, one an iteration longer. Between them lies one step: along the gradient of the objective
/// at the shorter fit's result, which a plain loop computes, and all components by the same factor.
pub(super) fn fit_follows_the_gradient(
    session: &mut Session<'_>,
    data: &Data,
    problem: &Problem<'_>,
) -> Result<(), BenchError> {
    let how = iterations::how(session);
    let before = fit(session, data, 2, &how)?;
    let after = fit(session, data, 3, &how)?;
    let at = model_of(&before);
    // C is 1; the penalty ½‖w‖² leaves the intercept out.
    let mut gradient = plain_loop(problem, &at);
    for (component, weight) in gradient.weights.iter_mut().zip(at.weights) {
        *component += weight;
    }
    let rows = problem.rows() as f64;
    let largest = components(&gradient).map(f64::abs).fold(0.0, f64::max);
    let reported = after.largest_gradient * rows;
    session.check((reported - largest).abs() <= 1e-9 * largest, || {
        format!("the largest component of the gradient is {reported}, not {largest}")
    })?;
    let to = model_of(&after);
    let moved = Gradient {
        weights: std::array::from_fn(|feature| at.weights[feature] - to.weights[feature]),
        intercept: at.intercept - to.intercept,
    };
    let along: f64 = products(&moved, &gradient) / products(&gradient, &gradient);
    let expected = Gradient {
        weights: gradient.weights.map(|component| along * component),
        intercept: along * gradient.intercept,
    };
    session.check(along > 0.0 && moved.agrees_with(&expected, 1e-6), || {
        format!("an iteration moved by {moved:?}, not by {expected:?}")
    })
}

fn model_of(fitted: &Fitted) -> Model {
    Model {
        weights: std::array::from_fn(|feature| fitted.coef[feature]),
        intercept: fitted.intercept,
    }
}

fn components(gradient: &Gradient) -> impl Iterator<Item = f64> {
    gradient.weights.into_iter().chain([gradient.intercept])
}

fn products(a: &Gradient, b: &Gradient) -> f64 {
    components(a).zip(components(b)).map(|(a, b)| a * b).sum()
}
