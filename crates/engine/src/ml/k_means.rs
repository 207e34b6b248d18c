//! k-means.

use super::FitError;
use crate::run::ProgramRun;
use crate::stopwatch::Stopwatch;
use crate::{Caller, RunOptions, Tally};
use brambling_operators::ml::distances;
use brambling_operators::ml::k_means as lloyd;
use brambling_operators::ml::logistic_regression::partitions_of;
use brambling_operators::ml::nearest::labels;
use brambling_operators::ml::samples::{SampleTable, SamplesError};
use brambling_operators::simd;
use brambling_program::{Foreign, Program};
use std::time::Duration;

/// k-means by Lloyd's iterations, from centres that the caller gives: each row belongs to its nearest centre,
/// and each centre moves to the mean of its rows.
///
/// ```
/// use brambling::ml::KMeans;
/// use brambling::prelude::*;
///
/// // Two heaps, around 0 and around 10.
/// let x: Vec<f64> = (0..100).map(|i| f64::from(i % 2) * 10.0 + f64::from(i % 7) / 10.0).collect();
/// let fitted = KMeans::default().fit_owned(x, 1, vec![1.0, 5.5], &RunOptions::new())?;
/// assert!(fitted.converged && fitted.centres[0] < 1.0 && fitted.centres[1] > 10.0);
/// assert_eq!(fitted.predict(&[0.2, 9.0])?, [0, 1]);
/// # Ok::<(), brambling::ml::FitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KMeans {
    /// Stop when the squares of the centres' moves add up to at most this share of the columns' mean variance.
    pub tol: f64,
    /// The most iterations: each is one pass over the data.
    pub max_iter: u64,
}

impl Default for KMeans {
    fn default() -> KMeans {
        KMeans {
            tol: 1e-4,
            max_iter: 300,
        }
    }
}

/// Fitted centres, and how they were found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FittedKMeans {
    /// The centres, one after another.
    pub centres: Vec<f64>,
    /// Values of a centre.
    pub columns: usize,
    /// Iterations done.
    pub iterations: u64,
    /// Whether the centres moved little enough. Otherwise `max_iter` ended the search.
    pub converged: bool,
    /// What the job did.
    pub tally: Tally,
    /// From the end of the first pass, which looks at the columns, to the last iteration's end.
    pub search: Duration,
}

impl FittedKMeans {
    /// Mean seconds of an iteration.
    pub fn seconds_per_iteration(&self) -> f64 {
        self.search.as_secs_f64() / self.iterations.max(1) as f64
    }

    /// The index of each row's nearest centre; the first of equally near ones.
    ///
    /// # Errors
    /// When the values do not make whole rows of as many columns as the centres have.
    pub fn predict(&self, x: &[f64]) -> Result<Vec<u32>, SamplesError> {
        SamplesError::check(x.len(), 0, self.columns)?;
        Ok(labels(simd::active(), x, self.columns, &self.centres))
    }

    /// The sum of the squared distances of rows to the centres that `labels` names, as [`FittedKMeans::predict`]
    /// gives them.
    ///
    /// # Errors
    /// When the values do not make whole rows of as many columns as the centres have, with a label each.
    ///
    /// # Panics
    /// When a label names no centre.
    pub fn inertia(&self, x: &[f64], labels: &[u32]) -> Result<f64, SamplesError> {
        SamplesError::check(x.len(), labels.len(), self.columns)?;
        let (rows, labelled) = (x.len() / self.columns, labels.len());
        if rows != labelled {
            let labels = labelled;
            return Err(SamplesError::Labels { rows, labels });
        }
        Ok(distances::inertia(x, self.columns, &self.centres, labels))
    }

    /// The distances, not squared, of each row to each centre, row by row.
    ///
    /// # Errors
    /// As [`FittedKMeans::predict`].
    pub fn transform(&self, x: &[f64]) -> Result<Vec<f64>, SamplesError> {
        SamplesError::check(x.len(), 0, self.columns)?;
        let isa = simd::active();
        Ok(distances::distances(isa, x, self.columns, &self.centres))
    }
}

impl KMeans {
    /// Searches from `centres`, row by row, over rows of `columns` values. The array is borrowed for the time of
    /// the call. `caller` is asked for interruptions.
    ///
    /// The result has the same bits for any number of threads and partitions.
    ///
    /// # Errors
    /// A parameter out of range, samples that cannot be used (with their row and column), or how the job
    /// failed.
    pub fn fit(
        &self,
        x: Foreign<f64>,
        columns: usize,
        centres: Vec<f64>,
        options: &RunOptions,
        caller: &mut dyn Caller,
    ) -> Result<FittedKMeans, FitError> {
        let weights = Foreign::default();
        self.fit_weighted(x, weights, columns, centres, options, caller)
    }

    /// As [`KMeans::fit`], with a weight for each row: a centre moves to the weighted mean of its rows.
    ///
    /// # Errors
    /// As [`KMeans::fit`].
    pub fn fit_weighted(
        &self,
        x: Foreign<f64>,
        weights: Foreign<f64>,
        columns: usize,
        centres: Vec<f64>,
        options: &RunOptions,
        caller: &mut dyn Caller,
    ) -> Result<FittedKMeans, FitError> {
        let table = weighted(x, weights, columns);
        let caller = Some(caller);
        self.fit_with(table, centres, ProgramRun { options, caller })
    }

    /// As [`KMeans::fit`], over a vector of our own. Ctrl-C ends it early.
    ///
    /// # Errors
    /// As [`KMeans::fit`].
    pub fn fit_owned(
        &self,
        x: Vec<f64>,
        columns: usize,
        centres: Vec<f64>,
        options: &RunOptions,
    ) -> Result<FittedKMeans, FitError> {
        let table = weighted(Foreign::handed_over(x), Foreign::default(), columns);
        let caller = None;
        self.fit_with(table, centres, ProgramRun { options, caller })
    }

    fn fit_with(
        &self,
        table: SampleTable,
        centres: Vec<f64>,
        run: ProgramRun<'_, '_>,
    ) -> Result<FittedKMeans, FitError> {
        let (rows, columns) = (self.check(&table, &centres)?, table.columns);
        let partitions = run.options.resolve()?.partitions;
        let partitions = partitions.unwrap_or_else(|| partitions_of(rows, columns));
        let mut p = Program::new("k-means");
        let watch = Stopwatch::start(&mut p);
        let search = lloyd::KMeans {
            tol: self.tol,
            max_iter: self.max_iter,
        };
        let look = |p: &mut Program, model: &_| Stopwatch::look(p, &watch, model);
        let model = search.build(&mut p, table, centres, partitions, &look);
        let mut outcome = run.run(p)?;
        let model = outcome.take(&model);
        Ok(FittedKMeans {
            centres: model.centres,
            columns,
            iterations: model.iterations,
            converged: model.converged,
            tally: outcome.tally(),
            search: outcome.take(&watch).rest(),
        })
    }

    fn check(&self, table: &SampleTable, centres: &[f64]) -> Result<usize, FitError> {
        let refuse = |name, value, range| Err(FitError::Parameter { name, value, range });
        if !(self.tol.is_finite() && self.tol >= 0.0) {
            return refuse("tol", self.tol, "0 or a positive number");
        }
        if self.max_iter == 0 {
            return refuse("max_iter", 0.0, "at least 1");
        }
        let (rows, columns) = (table.check()?, table.columns);
        SamplesError::check(centres.len(), 0, columns)?;
        let clusters = centres.len() / columns;
        if clusters == 0 || clusters > rows {
            let range = "at least 1 and at most as many centres as there are rows";
            return refuse("centres", clusters as f64, range);
        }
        if let Some(value) = centres.iter().find(|value| !value.is_finite()) {
            return refuse("centres", *value, "finite numbers");
        }
        Ok(rows)
    }
}

/// Rows without labels.
pub(super) fn weighted(x: Foreign<f64>, weights: Foreign<f64>, columns: usize) -> SampleTable {
    SampleTable {
        weights,
        ..SampleTable::of(x, Foreign::default(), columns)
    }
}
