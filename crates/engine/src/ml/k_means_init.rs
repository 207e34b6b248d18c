//! Where k-means begins.

use super::FitError;
use super::k_means::weighted;
use crate::run::ProgramRun;
use crate::{Caller, RunOptions};
use brambling_operators::ml::k_means_init::{k_means_plus_plus, rows_at_random, rows_by_weight};
use brambling_operators::ml::logistic_regression::partitions_of;
use brambling_operators::ml::samples::{SampleTable, SamplesError};
use brambling_program::{Foreign, Program};

/// How the centres that k-means begins with are chosen among the rows.
///
/// ```
/// use brambling::ml::{KMeans, KMeansStart};
/// use brambling::prelude::*;
///
/// // Two heaps, around 0 and around 10.
/// let x: Vec<f64> = (0..100).map(|i| f64::from(i % 2) * 10.0 + f64::from(i % 7) / 10.0).collect();
/// let start = KMeansStart::PlusPlus.centres_owned(x.clone(), 1, 2, 0, &RunOptions::new())?;
/// let fitted = KMeans::default().fit_owned(x, 1, start, &RunOptions::new())?;
/// assert!((fitted.centres[0] - fitted.centres[1]).abs() > 9.0);
/// # Ok::<(), brambling::ml::FitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KMeansStart {
    /// Greedy k-means++: a row at random, then rows drawn by their squared distance from the centres so far,
    /// each the best of a few. One pass over the data for each centre.
    PlusPlus,
    /// Different rows at random.
    Random,
}

impl KMeansStart {
    /// Chooses `clusters` rows of `columns` values each, and gives them row by row. The array is borrowed for
    /// the time of the call. `caller` is asked for interruptions.
    ///
    /// The result has the same bits for one `seed` on any number of threads and partitions.
    ///
    /// # Errors
    /// More clusters than rows, or none; a chosen row with a value that is no number (others are for the search
    /// that follows to find); or how the job failed.
    pub fn centres(
        self,
        x: Foreign<f64>,
        columns: usize,
        clusters: usize,
        seed: u64,
        options: &RunOptions,
        caller: &mut dyn Caller,
    ) -> Result<Vec<f64>, FitError> {
        let weights = Foreign::default();
        self.centres_weighted(x, weights, columns, clusters, seed, options, caller)
    }

    /// As [`KMeansStart::centres`], rows drawn by their weights: times their squared distance, or alone.
    ///
    /// # Errors
    /// As [`KMeansStart::centres`].
    #[allow(clippy::too_many_arguments)] // The samples' parts, each by its name.
    pub fn centres_weighted(
        self,
        x: Foreign<f64>,
        weights: Foreign<f64>,
        columns: usize,
        clusters: usize,
        seed: u64,
        options: &RunOptions,
        caller: &mut dyn Caller,
    ) -> Result<Vec<f64>, FitError> {
        let table = weighted(x, weights, columns);
        let caller = Some(caller);
        self.centres_with(table, clusters, seed, ProgramRun { options, caller })
    }

    /// As [`KMeansStart::centres`], over a vector of our own. Ctrl-C ends it early.
    ///
    /// # Errors
    /// As [`KMeansStart::centres`].
    pub fn centres_owned(
        self,
        x: Vec<f64>,
        columns: usize,
        clusters: usize,
        seed: u64,
        options: &RunOptions,
    ) -> Result<Vec<f64>, FitError> {
        let table = weighted(Foreign::handed_over(x), Foreign::default(), columns);
        let caller = None;
        self.centres_with(table, clusters, seed, ProgramRun { options, caller })
    }

    fn centres_with(
        self,
        table: SampleTable,
        clusters: usize,
        seed: u64,
        run: ProgramRun<'_, '_>,
    ) -> Result<Vec<f64>, FitError> {
        let rows = check(&table, clusters)?;
        let (x, columns) = (table.x.clone(), table.columns);
        let centres = match self {
            KMeansStart::Random => {
                let drawn = match &table.weights[..] {
                    [] => rows_at_random(rows as u64, clusters as u64, seed),
                    weights => rows_by_weight(weights, clusters as u64, seed),
                };
                let rows = drawn.into_iter();
                rows.flat_map(|row| x[row as usize * columns..][..columns].iter().copied())
                    .collect()
            }
            KMeansStart::PlusPlus => {
                let partitions = run.options.resolve()?.partitions;
                let partitions = partitions.unwrap_or_else(|| partitions_of(rows, columns));
                let mut p = Program::new("k-means++").with_seed(seed);
                let chosen = k_means_plus_plus(&mut p, table, clusters, partitions);
                run.run(p)?.take(&chosen).centres
            }
        };
        if centres.iter().all(|value| value.is_finite()) {
            return Ok(centres);
        }
        Err(first_not_finite(&x, columns).into())
    }
}

fn check(table: &SampleTable, clusters: usize) -> Result<usize, FitError> {
    let rows = table.check()?;
    if clusters == 0 || clusters > rows {
        return Err(FitError::Parameter {
            name: "clusters",
            value: clusters as f64,
            range: "at least 1 and at most as many as there are rows",
        });
    }
    let weightless = table.weights.iter().filter(|&&weight| weight == 0.0);
    if clusters > rows - weightless.count() {
        return Err(FitError::Parameter {
            name: "clusters",
            value: clusters as f64,
            range: "at most as many as there are rows with a weight",
        });
    }
    Ok(rows)
}

/// The first value that is no number, when it is known that there is one.
fn first_not_finite(x: &[f64], columns: usize) -> SamplesError {
    let found = x.iter().position(|value| !value.is_finite());
    let at = found.expect("a chosen row has one");
    SamplesError::NotFinite {
        row: (at / columns) as u64,
        column: at % columns,
        value: x[at],
    }
}
