//! Logistic regression by L-BFGS, for two classes and more.

use super::{FitError, Fitted, Given, LogisticRegression, Table};
use crate::run::ProgramRun;
use crate::stopwatch::Stopwatch;
use crate::{Caller, RunOptions, Tally};
use brambling_operators::ml::lbfgs::{LbfgsSearch, SearchState};
use brambling_operators::ml::logistic_lbfgs::{self, ClassLayout, Descent};
use brambling_operators::ml::logistic_regression::partitions_of;
use brambling_operators::ml::samples::{SampleTable, SamplesError};
use brambling_operators::ml::softmax::{Linears, margins_block, probabilities_block};
use brambling_operators::simd::{self, TableValue};
use brambling_program::{BLOCK_ROWS, Dataset, Foreign, Payload, Program};
use std::time::Duration;

/// A fitted model of three or more classes, and how it was found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FittedClasses {
    /// One weight for each column, class by class.
    pub coef: Vec<f64>,
    /// Added to each row's products, one for each class; 0 when none was learnt.
    pub intercepts: Vec<f64>,
    /// Iterations done.
    pub iterations: u64,
    /// Passes over the data: one for each iteration and each step that did not suit, and the first.
    pub evaluations: u64,
    /// Whether the gradient became small enough.
    pub converged: bool,
    /// The largest component of the gradient ÷ (C · rows), by the columns' deviations.
    pub largest_gradient: f64,
    /// What the job did.
    pub tally: Tally,
    /// The first pass: from the job's start until the first gradient was known.
    pub first_pass: Duration,
    /// From then to the last iteration's end.
    pub descent: Duration,
    columns: usize,
}

impl FittedClasses {
    /// Mean seconds of an iteration.
    pub fn seconds_per_iteration(&self) -> f64 {
        self.descent.as_secs_f64() / self.iterations.max(1) as f64
    }

    /// The margin of each row for each class, row by row: the class of the greatest is the likeliest.
    ///
    /// # Errors
    /// When the values do not make whole rows of as many columns as the model has.
    pub fn predict_margins(&self, x: &[f64]) -> Result<Vec<f64>, SamplesError> {
        self.by_block(x, |x, model, out| {
            margins_block(simd::active(), x, self.columns, model, out);
        })
    }

    /// The probability of each class for each row, row by row.
    ///
    /// # Errors
    /// As [`FittedClasses::predict_margins`].
    pub fn predict_probabilities(&self, x: &[f64]) -> Result<Vec<f64>, SamplesError> {
        self.by_block(x, |x, model, out| {
            probabilities_block(simd::active(), x, self.columns, model, out);
        })
    }

    /// The index of each row's likeliest class; the first of equally likely ones.
    ///
    /// # Errors
    /// As [`FittedClasses::predict_margins`].
    pub fn predict(&self, x: &[f64]) -> Result<Vec<u32>, SamplesError> {
        let margins = self.predict_margins(x)?;
        let rows = margins.chunks(self.intercepts.len());
        let likeliest = |row: &[f64]| {
            let better = |best, at| if row[at] > row[best] { at } else { best };
            (1..row.len()).fold(0, better) as u32
        };
        Ok(rows.map(likeliest).collect())
    }

    fn by_block(
        &self,
        x: &[f64],
        run: impl Fn(&[f64], Linears<'_>, &mut [f64]),
    ) -> Result<Vec<f64>, SamplesError> {
        SamplesError::check(x.len(), 0, self.columns)?;
        let classes = self.intercepts.len();
        let mut out = vec![0.0; x.len() / self.columns * classes];
        let model = Linears {
            weights: &self.coef,
            intercepts: &self.intercepts,
        };
        let blocks = x.chunks(BLOCK_ROWS * self.columns);
        for (x, out) in blocks.zip(out.chunks_mut(BLOCK_ROWS * classes)) {
            run(x, model, out);
        }
        Ok(out)
    }
}

impl LogisticRegression {
    /// Fits rows of `columns` values, and the indexes of the classes that they belong to, from 0 to below
    /// `classes`: weights for each class whose softmax is likeliest to give the labels, by L-BFGS. For two
    /// classes [`LogisticRegression::fit`] needs half as many. `caller` is asked for interruptions.
    ///
    /// The result has the same bits for any number of threads and partitions.
    ///
    /// ```
    /// use brambling::ml::LogisticRegression;
    /// use brambling::prelude::*;
    ///
    /// // Three classes along a line.
    /// let x: Vec<f64> = (0..900).map(|i| f64::from(i) / 100.0).collect();
    /// let y: Vec<f64> = x.iter().map(|x| (x / 3.0).floor()).collect();
    /// let model = LogisticRegression { c: 100.0, ..Default::default() };
    /// let fitted = model.fit_classes_owned(x, y, 1, 3, &RunOptions::new())?;
    /// assert_eq!(fitted.predict(&[1.0, 4.5, 8.0])?, [0, 1, 2]);
    /// # Ok::<(), brambling::ml::FitError>(())
    /// ```
    ///
    /// # Errors
    /// A parameter out of range, samples that cannot be used (with their row and column), or how the job
    /// failed.
    pub fn fit_classes(
        &self,
        x: impl Into<Table>,
        y: Foreign<f64>,
        columns: usize,
        classes: usize,
        options: &RunOptions,
        caller: &mut dyn Caller,
    ) -> Result<FittedClasses, FitError> {
        let given = Given::default();
        self.fit_classes_given(x, y, columns, classes, given, options, caller)
    }

    /// As [`LogisticRegression::fit_classes`], with weights of the rows, or from a start.
    ///
    /// # Errors
    /// As [`LogisticRegression::fit_classes`].
    #[allow(clippy::too_many_arguments)] // The samples' parts, each by its name.
    pub fn fit_classes_given(
        &self,
        x: impl Into<Table>,
        y: Foreign<f64>,
        columns: usize,
        classes: usize,
        given: Given,
        options: &RunOptions,
        caller: &mut dyn Caller,
    ) -> Result<FittedClasses, FitError> {
        let caller = Some(caller);
        let run = ProgramRun { options, caller };
        self.fit_classes_with(x.into(), y, columns, classes, given, run)
    }

    /// As [`LogisticRegression::fit_classes`], over vectors of our own. Ctrl-C ends it early.
    ///
    /// # Errors
    /// As [`LogisticRegression::fit_classes`].
    pub fn fit_classes_owned(
        &self,
        x: impl Into<Table>,
        y: Vec<f64>,
        columns: usize,
        classes: usize,
        options: &RunOptions,
    ) -> Result<FittedClasses, FitError> {
        let (x, y) = (x.into(), Foreign::handed_over(y));
        let caller = None;
        let run = ProgramRun { options, caller };
        self.fit_classes_with(x, y, columns, classes, Given::default(), run)
    }

    fn fit_classes_with(
        &self,
        x: Table,
        y: Foreign<f64>,
        columns: usize,
        classes: usize,
        given: Given,
        run: ProgramRun<'_, '_>,
    ) -> Result<FittedClasses, FitError> {
        let refuse = |range| FitError::Parameter {
            name: "classes",
            value: classes as f64,
            range,
        };
        if classes < 3 {
            return Err(refuse("at least 3; for two classes there is `fit`"));
        }
        if self.solver != super::Solver::Lbfgs {
            return Err(refuse("2, or the solver L-BFGS"));
        }
        let shape = ClassLayout { columns, classes };
        let found = self.search(x, y, shape, given, run)?;
        let mut coef = found.parameters;
        let intercepts = coef.split_off(shape.weights());
        Ok(FittedClasses {
            coef,
            intercepts,
            iterations: found.search.iterations,
            evaluations: found.search.evaluations,
            converged: found.search.state == SearchState::Converged,
            largest_gradient: found.search.largest,
            tally: found.tally,
            first_pass: found.first_pass,
            descent: found.descent,
            columns,
        })
    }

    pub(super) fn fit_two_by_lbfgs(
        &self,
        x: Table,
        y: Foreign<f64>,
        columns: usize,
        given: Given,
        run: ProgramRun<'_, '_>,
    ) -> Result<Fitted, FitError> {
        let shape = ClassLayout {
            columns,
            classes: 2,
        };
        let found = self.search(x, y, shape, given, run)?;
        let mut coef = found.parameters;
        let intercept = coef.pop().expect("there is one");
        Ok(Fitted {
            coef,
            intercept,
            iterations: found.search.iterations,
            evaluations: found.search.evaluations,
            converged: found.search.state == SearchState::Converged,
            largest_gradient: found.search.largest,
            tally: found.tally,
            first_pass: found.first_pass,
            descent: found.descent,
        })
    }

    fn search(
        &self,
        x: Table,
        y: Foreign<f64>,
        shape: ClassLayout,
        given: Given,
        run: ProgramRun<'_, '_>,
    ) -> Result<Found, FitError> {
        match x {
            Table::Doubles(x) => {
                let table = given.table(x, y, shape.columns);
                self.search_of(table, shape, &given.start, run)
            }
            Table::Singles(x) => {
                let table = given.table(x, y, shape.columns);
                self.search_of(table, shape, &given.start, run)
            }
        }
    }

    fn search_of<E: TableValue + Payload>(
        &self,
        table: SampleTable<E>,
        shape: ClassLayout,
        start: &[f64],
        run: ProgramRun<'_, '_>,
    ) -> Result<Found, FitError> {
        let rows = self.check(&table, start, shape.weight_rows())?;
        let partitions = run.options.resolve()?.partitions;
        let partitions = partitions.unwrap_or_else(|| partitions_of(rows, shape.columns));
        let mut p = Program::new("logistic regression");
        let watch = Stopwatch::start(&mut p);
        let look = |p: &mut Program, search: &_| Stopwatch::look(p, &watch, search);
        let model = self.descent();
        let descent: Dataset<Descent> =
            logistic_lbfgs::build(&model, &mut p, table, shape, start, partitions, &look);
        let mut outcome = run.run(p)?;
        let found = outcome.take(&descent);
        let watch = outcome.take(&watch);
        Ok(Found {
            parameters: found.parameters(),
            search: found.search,
            tally: outcome.tally(),
            first_pass: watch.first(),
            descent: watch.rest(),
        })
    }
}

struct Found {
    /// In the caller's units.
    parameters: Vec<f64>,
    search: LbfgsSearch,
    tally: Tally,
    first_pass: Duration,
    descent: Duration,
}
