//! The models' programs, registered so that workers link them: a line for each. Their data is empty, since samples never run.
//!
//! A line is a name, the version of what its kernels do and how their parameters are encoded, and the model.

use crate::stopwatch::Stopwatch;
use brambling_operators::ml::k_means::KMeans;
use brambling_operators::ml::k_means_init::k_means_plus_plus;
use brambling_operators::ml::logistic_lbfgs::{self, ClassLayout};
use brambling_operators::ml::logistic_regression::LogisticRegression;
use brambling_operators::ml::model::Model;
use brambling_operators::ml::samples::SampleTable;
use brambling_operators::ml::{linear_regression, standard_scaler};
use brambling_operators::simd::TableValue;
use brambling_program::{Dataset, Payload, Program, links};

macro_rules! models {
    ($($name:literal $version:literal $model:expr;)+) => {
        /// The models that one program fits. `docs/add-a-model.md` says what one takes.
        pub static MODELS: &[Model] = &[$($model),+];
        $(links!($name $version, |p| $model.sample(p));)+
    };
}

models! {
    "ml.linear_regression" 1 linear_regression::MODEL;
    "ml.ridge" 1 linear_regression::RIDGE;
    "ml.standard_scaler" 1 standard_scaler::MODEL;
}

links!("ml.logistic" 1, |p| {
    watched(p, |p, look| {
        logistic().build(p, table(), &[], 1, look);
    });
});
links!("ml.logistic_lbfgs" 1, lbfgs::<f64>);
links!("ml.logistic_lbfgs of singles" 1, lbfgs::<f32>);
links!("ml.k_means" 1, |p| {
    let search = KMeans { tol: 0.0, max_iter: 1 };
    watched(p, |p, look| {
        search.build(p, table(), vec![0.0], 1, look);
    });
});
links!("ml.k_means++" 1, |p| {
    k_means_plus_plus(p, table(), 1, 1);
});

fn logistic() -> LogisticRegression {
    LogisticRegression {
        c: 1.0,
        fit_intercept: true,
        tol: 0.0,
        max_iter: 1,
    }
}

fn table<E: TableValue>() -> SampleTable<E> {
    SampleTable {
        columns: 1,
        ..SampleTable::default()
    }
}

fn lbfgs<E: TableValue + Payload>(p: &mut Program) {
    let (columns, classes) = (1, 2);
    let shape = ClassLayout { columns, classes };
    watched(p, |p, look| {
        logistic_lbfgs::build(&logistic(), p, table::<E>(), shape, &[], 1, look);
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
