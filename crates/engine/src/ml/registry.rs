//! Fits by name, of the models that one program fits.

use super::FitError;
use super::links::MODELS;
use crate::run::ProgramRun;
use crate::{Caller, RunOptions, Tally};
use brambling_operators::ml::logistic_regression::partitions_of;
use brambling_operators::ml::model::{Found, Model};
use brambling_operators::ml::samples::SampleTable;

/// The model of a name.
pub fn model(name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|model| model.name == name)
}

/// What a fit has found, and what the job did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FittedModel {
    /// Arrays by name, as the model documents them.
    pub found: Found,
    /// What the job did.
    pub tally: Tally,
}

/// Fits a model to a table; `parameters` are those that it names, in that order. `caller` is asked for interruptions.
///
/// The result has the same bits for any number of threads and partitions.
///
/// ```
/// use brambling::ml;
/// use brambling::operators::ml::samples::SampleTable;
/// use brambling::prelude::*;
/// use brambling::program::Foreign;
///
/// // y = 2 x + 1
/// let x: Vec<f64> = (0..100).map(f64::from).collect();
/// let y = x.iter().map(|x| 2.0 * x + 1.0).collect();
/// let table = SampleTable::of(Foreign::owned(x), Foreign::owned(y), 1);
/// let model = ml::model("LinearRegression").unwrap();
/// assert_eq!(model.parameters, ["fit_intercept", "tol"]);
/// let fitted = ml::fit(model, &[1.0, 1e-6], table, &RunOptions::new(), &mut brambling::QuietCaller)?;
/// assert!((fitted.found.get("coef").unwrap()[0] - 2.0).abs() < 1e-12);
/// # Ok::<(), brambling::ml::FitError>(())
/// ```
///
/// # Errors
/// Samples that cannot be used (with their row and column), or how the job failed.
///
/// # Panics
/// If there are more or fewer parameters than the model has.
pub fn fit(
    model: &Model,
    parameters: &[f64],
    table: SampleTable,
    options: &RunOptions,
    caller: &mut dyn Caller,
) -> Result<FittedModel, FitError> {
    let rows = table.check()?;
    let partitions = options.resolve()?.partitions;
    let partitions = partitions.unwrap_or_else(|| partitions_of(rows, table.columns));
    let (p, found) = model.program(parameters, table, partitions);
    let caller = Some(caller);
    let mut outcome = ProgramRun { options, caller }.run(p)?;
    Ok(FittedModel {
        found: outcome.take(&found),
        tally: outcome.tally(),
    })
}
