//! Looks whether files are sorted.

use super::{RecordFormat, SortError, job_number, looked_at};
use crate::run::ProgramRun;
use crate::{Caller, RunOptions};
use brambling_operators::sort::job::{SortPlan, SortShared, checking};
pub use brambling_operators::sort::{OrderFault, RecordSummary};
use brambling_program::Program;
use brambling_storage::InputFile;
use std::path::PathBuf;
use std::time::Instant;

/// What was found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Checked {
    /// Of all files, one after another.
    pub summary: RecordSummary,
    /// How long it took.
    pub seconds: f64,
}

/// Reads files as one, in the order given: whether their records are in order, how many keys are like the one before, and a checksum
/// that does not depend on the order. `caller` is asked for interruptions.
///
/// # Errors
/// When a file cannot be read or ends within a record. Records that are not in order are no error: see [`RecordSummary`].
pub fn check_files(
    paths: &[PathBuf],
    format: RecordFormat,
    options: &RunOptions,
    caller: &mut dyn Caller,
) -> Result<Checked, SortError> {
    let began = Instant::now();
    let inputs = paths.iter().map(|path| {
        let file = InputFile::open(path)?;
        looked_at(&file, &format)
    });
    let threads = options.resolve()?.threads;
    let mut plan = SortPlan {
        job: job_number(),
        format,
        inputs: inputs.collect::<Result<_, SortError>>()?,
        at_once: threads + 2,
        workers: 1,
        ..SortPlan::default()
    };
    plan.cut_for(threads);
    let _shared = SortShared::of(&plan);
    let mut program = Program::new("check records");
    let found = checking::build(&mut program, &plan);
    let caller = Some(caller);
    let mut outcome = ProgramRun { options, caller }
        .run(program)
        .map_err(SortError::of)?;
    let parts = outcome.take_all(&found).into_iter();
    let summary = parts.reduce(|all, next| all.then(next, &format));
    Ok(Checked {
        summary: summary.unwrap_or_default(),
        seconds: began.elapsed().as_secs_f64(),
    })
}
