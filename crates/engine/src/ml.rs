//! Models, ready to be fitted.
//!
//! Each is a [`Program`] that you could have written. This is gradient descent by hand, without blocks: a
//! value per partition, so that the number of partitions enters the result.
//!
//! ```
//! use brambling::operators::ml::samples::Samples;
//! use brambling::operators::simd;
//! use brambling::prelude::*;
//! use brambling::program::Foreign;
//!
//! type Weights = Vec<f64>;
//!
//! /// Σ (p − y) x over the rows of a partition.
//! fn sum_gradient(samples: &Samples, weights: &Weights, gradient: &mut Weights) {
//!     let rows = samples.whole();
//!     gradient.clear();
//!     gradient.resize(rows.columns, 0.0);
//!     for (row, y) in rows.x.chunks(rows.columns).zip(rows.y) {
//!         let margin: f64 = row.iter().zip(weights).map(|(x, w)| x * w).sum();
//!         let mut p = [0.0];
//!         brambling::operators::numerics::sigmoid(simd::active(), &[margin], &mut p);
//!         gradient.iter_mut().zip(row).for_each(|(sum, x)| *sum += (p[0] - y) * x);
//!     }
//! }
//!
//! fn step(weights: &mut Weights, gradient: &Weights) {
//!     weights.iter_mut().zip(gradient).for_each(|(w, g)| *w -= 0.01 * (g + *w));
//! }
//!
//! # let x = Foreign::owned((0..200).map(|i| f64::from(i % 20) - 9.5).collect::<Vec<_>>());
//! # let y = Foreign::owned((0..200).map(|i| f64::from(u8::from(i % 20 > 9))).collect::<Vec<_>>());
//! # let partitions = 4;
//! let mut p = Program::new("logistic-regression");
//! let samples = p.load("training_data", partitions, Partitioner::Blocks, move |index, count| {
//!     Samples::partition(&x, &y, 1, index, count)
//! });
//! let local = p.dataset::<Weights>("local_weight", partitions);
//! let gradient = p.dataset::<Weights>("local_gradient", partitions);
//! let weights = p.value("global_weight", 1, vec![0.0; 1]);
//! p.repeat(50, |p| {
//!     p.broadcast(&weights, &local);
//!     p.compute("gradient").read(&samples).read(&local).write(&gradient).run(sum_gradient);
//!     p.reduce(Sum, &gradient, &weights, step);
//! });
//! let weights = brambling::run(p)?.take(&weights);
//! # assert!(weights[0] > 0.3, "{weights:?}");
//! # Ok::<(), brambling::Error>(())
//! ```

mod classes;
mod k_means;
mod k_means_init;
mod links;
mod registry;
mod table;

pub use classes::FittedClasses;
pub use k_means::{FittedKMeans, KMeans};
pub use k_means_init::KMeansStart;
pub use links::MODELS;
pub use registry::{FittedModel, fit, model};
pub use table::Table;

use crate::run::ProgramRun;
use crate::stopwatch::Stopwatch;
use crate::{Caller, Error, Failure, RunOptions, Tally};
use brambling_operators::ml::logistic::{Linear, margins_block};
use brambling_operators::ml::logistic_regression::{self as descent, partitions_of};
use brambling_operators::ml::samples::{SampleTable, SamplesError};
use brambling_operators::simd::{self, TableValue};
use brambling_program::{BLOCK_ROWS, Foreign, Payload, Program};
use std::time::Duration;

/// Logistic regression for labels 0 and 1: the weights w and intercept b that minimise
/// ½‖w‖² + C · Σ log-loss. For more classes there is [`LogisticRegression::fit_classes`].
///
/// ```
/// use brambling::ml::LogisticRegression;
/// use brambling::prelude::*;
///
/// // Labels change where x passes 3.
/// let x: Vec<f64> = (0..600).map(|i| f64::from(i) / 100.0).collect();
/// let y = x.iter().map(|&x| f64::from(u8::from(x > 3.0))).collect();
/// let model = LogisticRegression { c: 10.0, ..Default::default() };
/// let fitted = model.fit_owned(x, y, 1, &RunOptions::new())?;
/// let boundary = -fitted.intercept / fitted.coef[0];
/// assert!((boundary - 3.0).abs() < 0.02);
/// # Ok::<(), brambling::ml::FitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogisticRegression {
    /// C: how much the data weighs against the penalty. Positive.
    pub c: f64,
    /// Whether an intercept, which is not penalised, is learnt.
    pub fit_intercept: bool,
    /// Stop when no component of the gradient ÷ (C · rows) exceeds this; 0: never. L-BFGS takes the gradient in units of
    /// the columns' deviations.
    pub tol: f64,
    /// The most iterations.
    pub max_iter: u64,
    /// How the minimum is searched for.
    pub solver: Solver,
}

/// What a fit may be given besides rows and labels.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Given {
    /// How much each row counts; none where all rows count alike.
    pub weights: Foreign<f64>,
    /// Where the search begins: weights, class by class, and then the intercepts. None: at zero.
    pub start: Vec<f64>,
}

impl Given {
    /// Weights of the rows, and where the search begins; each may be empty.
    pub fn new(weights: Foreign<f64>, start: Vec<f64>) -> Given {
        Given { weights, start }
    }

    fn table<E: TableValue + Payload>(
        &self,
        x: Foreign<E>,
        y: Foreign<f64>,
        columns: usize,
    ) -> SampleTable<E> {
        let weights = self.weights.clone();
        SampleTable {
            weights,
            ..SampleTable::of(x, y, columns)
        }
    }
}

/// How a model's minimum is searched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Solver {
    /// L-BFGS: learns the curvature as it goes, in units of the columns' means and deviations, so that these do not
    /// matter. An iteration is one pass over the data, seldom two.
    #[default]
    Lbfgs,
    /// Steps of 1/L, where one extra pass bounds the curvature L: an iteration is one pass, and columns of equal
    /// deviation are learnt fastest. Singles are copied. Two classes only.
    GradientDescent,
}

impl Default for LogisticRegression {
    fn default() -> Self {
        LogisticRegression {
            c: 1.0,
            fit_intercept: true,
            tol: 1e-4,
            max_iter: 100,
            solver: Solver::default(),
        }
    }
}

/// Why a model could not be fitted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// A parameter out of its range.
    #[error("{name} = {value} cannot be used; give {range}")]
    Parameter {
        /// Which parameter.
        name: &'static str,
        /// What was given.
        value: f64,
        /// What may be given.
        range: &'static str,
    },
    /// Samples from which nothing can be learnt.
    #[error(transparent)]
    Samples(#[from] SamplesError),
    /// The job did not give its result.
    #[error(transparent)]
    Run(Error),
}

impl From<Error> for FitError {
    /// A kernel that found something wrong with the samples says so in its error's source.
    fn from(mut error: Error) -> FitError {
        let Error::Failure(Failure::Kernel { error: kernel, .. }) = &mut error else {
            return FitError::Run(error);
        };
        match kernel.take_source().map(|source| source.downcast()) {
            Some(Ok(samples)) => FitError::Samples(*samples),
            _ => FitError::Run(error),
        }
    }
}

/// A fitted model, and how it was found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fitted {
    /// One weight for each column.
    pub coef: Vec<f64>,
    /// Added to each row's product; 0 when none was learnt.
    pub intercept: f64,
    /// Iterations done.
    pub iterations: u64,
    /// Passes over the data in which gradients were computed.
    pub evaluations: u64,
    /// Whether the gradient became small enough. Otherwise `max_iter` ended the search, or L-BFGS found no better
    /// point: what is left is rounding.
    pub converged: bool,
    /// The largest component of the gradient ÷ (C · rows), as the last iteration found it and `tol` compares it.
    pub largest_gradient: f64,
    /// What the job did.
    pub tally: Tally,
    /// The first pass: from the job's start until the step of gradient descent, or L-BFGS's first gradient, was
    /// known.
    pub first_pass: Duration,
    /// From then to the last iteration's end.
    pub descent: Duration,
}

impl Fitted {
    /// Mean seconds of an iteration.
    pub fn seconds_per_iteration(&self) -> f64 {
        self.descent.as_secs_f64() / self.iterations.max(1) as f64
    }

    /// Margins w · x + b of rows: positive where label 1 is the likelier one.
    ///
    /// # Errors
    /// When the values do not make whole rows of as many columns as the model has.
    pub fn predict_margins(&self, x: &[f64]) -> Result<Vec<f64>, SamplesError> {
        SamplesError::check(x.len(), 0, self.coef.len())?;
        let model = Linear {
            weights: &self.coef,
            intercept: self.intercept,
        };
        let mut margins = vec![0.0; x.len() / self.coef.len()];
        let blocks = x.chunks(BLOCK_ROWS * self.coef.len());
        for (block, margins) in blocks.zip(margins.chunks_mut(BLOCK_ROWS)) {
            margins_block(simd::active(), block, model, margins);
        }
        Ok(margins)
    }
}

impl LogisticRegression {
    /// Fits rows of `columns` values, row after row in `x`, and their labels. The arrays are borrowed for
    /// the time of the call. `caller` is asked for interruptions.
    ///
    /// The result has the same bits for any number of threads and partitions.
    ///
    /// # Errors
    /// A parameter out of range, samples that cannot be used (with their row and column), or how the job
    /// failed.
    pub fn fit(
        &self,
        x: impl Into<Table>,
        y: Foreign<f64>,
        columns: usize,
        options: &RunOptions,
        caller: &mut dyn Caller,
    ) -> Result<Fitted, FitError> {
        self.fit_given(x, y, columns, Given::default(), options, caller)
    }

    /// As [`LogisticRegression::fit`], with weights of the rows, or from a start.
    ///
    /// # Errors
    /// As [`LogisticRegression::fit`].
    pub fn fit_given(
        &self,
        x: impl Into<Table>,
        y: Foreign<f64>,
        columns: usize,
        given: Given,
        options: &RunOptions,
        caller: &mut dyn Caller,
    ) -> Result<Fitted, FitError> {
        let caller = Some(caller);
        self.fit_with(x.into(), y, columns, given, ProgramRun { options, caller })
    }

    /// As [`LogisticRegression::fit`], over vectors of our own. Ctrl-C ends it early.
    ///
    /// # Errors
    /// As [`LogisticRegression::fit`].
    pub fn fit_owned(
        &self,
        x: impl Into<Table>,
        y: Vec<f64>,
        columns: usize,
        options: &RunOptions,
    ) -> Result<Fitted, FitError> {
        let (x, y) = (x.into(), Foreign::handed_over(y));
        let caller = None;
        let given = Given::default();
        self.fit_with(x, y, columns, given, ProgramRun { options, caller })
    }

    fn fit_with(
        &self,
        x: Table,
        y: Foreign<f64>,
        columns: usize,
        given: Given,
        run: ProgramRun<'_, '_>,
    ) -> Result<Fitted, FitError> {
        match self.solver {
            Solver::Lbfgs => self.fit_two_by_lbfgs(x, y, columns, given, run),
            Solver::GradientDescent => self.fit_by_descent(x.doubles(), y, columns, given, run),
        }
    }

    fn fit_by_descent(
        &self,
        x: Foreign<f64>,
        y: Foreign<f64>,
        columns: usize,
        given: Given,
        run: ProgramRun<'_, '_>,
    ) -> Result<Fitted, FitError> {
        let start = given.start.clone();
        let table = given.table(x.clone(), y.clone(), columns);
        let rows = self.check(&table, &start, 1)?;
        let partitions = run.options.resolve()?.partitions;
        let partitions = partitions.unwrap_or_else(|| partitions_of(rows, columns));
        let mut p = Program::new("logistic regression");
        let watch = Stopwatch::start(&mut p);
        let look = |p: &mut Program, model: &_| Stopwatch::look(p, &watch, model);
        let model = self
            .descent()
            .build(&mut p, table, &start, partitions, &look);
        let mut outcome = run.run(p)?;
        let model = outcome.take(&model);
        let watch = outcome.take(&watch);
        Ok(Fitted {
            coef: model.weights,
            intercept: model.intercept,
            iterations: model.iterations,
            evaluations: model.iterations,
            converged: model.converged,
            largest_gradient: model.largest_gradient,
            tally: outcome.tally(),
            first_pass: watch.first(),
            descent: watch.rest(),
        })
    }

    fn descent(&self) -> descent::LogisticRegression {
        descent::LogisticRegression {
            c: self.c,
            fit_intercept: self.fit_intercept,
            tol: self.tol,
            max_iter: self.max_iter,
        }
    }

    /// Checks the parameters and a table, for so many rows of weights, and gives the table's rows.
    fn check<E: TableValue + Payload>(
        &self,
        table: &SampleTable<E>,
        start: &[f64],
        weight_rows: usize,
    ) -> Result<usize, FitError> {
        let refuse = |name, value, range| Err(FitError::Parameter { name, value, range });
        if self.c == f64::INFINITY && self.solver == Solver::GradientDescent {
            return refuse("C", self.c, "a finite one, or the solver L-BFGS");
        }
        if self.c.is_nan() || self.c <= 0.0 {
            return refuse("C", self.c, "a positive number");
        }
        if !(self.tol.is_finite() && self.tol >= 0.0) {
            return refuse("tol", self.tol, "0 (never stop early) or a positive number");
        }
        if self.max_iter == 0 {
            return refuse("max_iter", 0.0, "at least 1");
        }
        let (rows, labels) = (table.check_shape()?, table.y.len());
        if labels != rows {
            return Err(SamplesError::Labels { rows, labels }.into());
        }
        let (given, wanted) = (start.len(), weight_rows * (table.columns + 1));
        if given != 0 && given != wanted {
            let range = "as many numbers as there are weights and intercepts";
            return refuse("start", given as f64, range);
        }
        Ok(table.check()?)
    }
}
