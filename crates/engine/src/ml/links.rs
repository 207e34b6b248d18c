//! The models' programs, registered so that workers link them: a line for each. Their data is empty, since samples never run.

use crate::stopwatch::Stopwatch;
use brambling_operators::ml::k_means::KMeans;
use brambling_operators::ml::k_means_init::k_means_plus_plus;
use brambling_operators::ml::logistic_lbfgs::{self, Shape};
use brambling_operators::ml::logistic_regression::LogisticRegression;
use brambling_operators::simd::Value;
use brambling_program::{Dataset, Foreign, Payload, Program, links};

links!("ml.logistic" 1, |p| {
    watched(p, |p, look| {
        logistic().build(p, Foreign::default(), Foreign::default(), 1, 1, look);
    });
});
links!("ml.logistic_lbfgs" 1, lbfgs::<f64>);
links!("ml.logistic_lbfgs of singles" 1, lbfgs::<f32>);
links!("ml.k_means" 1, |p| {
    let search = KMeans { tol: 0.0, max_iter: 1 };
    watched(p, |p, look| {
        search.build(p, Foreign::default(), 1, vec![0.0], 1, look);
    });
});
links!("ml.k_means++" 1, |p| {
    k_means_plus_plus(p, Foreign::default(), 1, 1, 1);
});

fn logistic() -> LogisticRegression {
    LogisticRegression {
        c: 1.0,
        fit_intercept: true,
        tol: 0.0,
        max_iter: 1,
    }
}

fn lbfgs<E: Value + Payload>(p: &mut Program) {
    let (columns, classes) = (1, 2);
    let shape = Shape { columns, classes };
    watched(p, |p, look| {
        let (x, y) = (Foreign::<E>::default(), Foreign::default());
        logistic_lbfgs::build(&logistic(), p, x, y, shape, 1, look);
    });
}

/// A fit, with the stopwatch that it has.
fn watched<T: Payload>(
    p: &mut Program,
    build: impl FnOnce(&mut Program, &dyn Fn(&mut Program, &Dataset<T>)),
) {
    let watch = Stopwatch::start(p);
    build(p, &|p, of| Stopwatch::look(p, &watch, of));
}
