//! Where k-means begins.

use super::FitError;
use crate::run::Run;
use crate::{Caller, RunOptions};
use brambling_operators::ml::k_means_init::{k_means_plus_plus, rows_at_random};
use brambling_operators::ml::logistic_regression::partitions_of;
use brambling_operators::ml::samples::SamplesError;
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
        let caller = Some(caller);
        self.centres_with(x, columns, clusters, seed, Run { options, caller })
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
        let x = Foreign::handed_over(x);
        let caller = None;
        self.centres_with(x, columns, clusters, seed, Run { options, caller })
    }

    fn centres_with(
        self,
        x: Foreign<f64>,
        columns: usize,
        clusters: usize,
        seed: u64,
        run: Run<'_, '_>,
    ) -> Result<Vec<f64>, FitError> {
        let rows = check(&x, columns, clusters)?;
        let centres = match self {
            KMeansStart::Random => rows_at_random(rows as u64, clusters as u64, seed)
                .into_iter()
                .flat_map(|row| x[row as usize * columns..][..columns].iter().copied())
                .collect(),
            KMeansStart::PlusPlus => {
                let partitions = run.options.resolve()?.partitions;
                let partitions = partitions.unwrap_or_else(|| partitions_of(rows, columns));
                let mut p = Program::new("k-means++").with_seed(seed);
                let chosen = k_means_plus_plus(&mut p, x.clone(), columns, clusters, partitions);
                run.run(p)?.take(&chosen).centres
            }
        };
        if centres.iter().all(|value| value.is_finite()) {
            return Ok(centres);
        }
        Err(first_not_finite(&x, columns).into())
    }
}

fn check(x: &[f64], columns: usize, clusters: usize) -> Result<usize, FitError> {
    SamplesError::check(x.len(), 0, columns)?;
    let rows = x.len() / columns;
    if rows == 0 {
        return Err(SamplesError::NoRows.into());
    }
    if clusters == 0 || clusters > rows {
        return Err(FitError::Parameter {
            name: "clusters",
            value: clusters as f64,
            range: "at least 1 and at most as many as there are rows",
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
