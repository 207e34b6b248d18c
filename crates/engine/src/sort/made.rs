//! Makes files of records for tries of a sort.

use super::{RecordFormat, Skew, SortError, job_number};
use crate::run::ProgramRun;
use crate::{Caller, RunOptions};
use brambling_operators::sort::job::making::{self, MakePlan};
use brambling_operators::sort::job::{SortPlan, SortShared};
use brambling_operators::sort::{RecordMaker, RecordMakerError};
use brambling_program::Program;
use brambling_storage::OutputFile;
use std::path::Path;
use std::time::Instant;

/// A shard makes about so many bytes.
const SHARD_BYTES: u64 = 64 << 20;

/// A file of records that was made.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MadeFile {
    /// Records.
    pub records: u64,
    /// Bytes.
    pub bytes: u64,
    /// Until the file was on its disk.
    pub seconds: f64,
}

/// Makes a file of so many records with a width, as gensort does: the same number makes the same file. `caller` is asked for
/// interruptions.
///
/// # Errors
/// When the format has no width, or is too narrow for its key, and when the file cannot be written.
pub fn make_file(
    path: &Path,
    records: u64,
    format: RecordFormat,
    skew: Skew,
    options: &RunOptions,
    caller: &mut dyn Caller,
) -> Result<MadeFile, SortError> {
    let began = Instant::now();
    let seed = 0;
    let maker = RecordMaker::new(&format, records, seed, skew)?;
    let bytes = maker.bytes();
    let plan = MakePlan {
        sort: SortPlan {
            job: job_number(),
            format,
            at_once: options.resolve()?.threads + 2,
            ..SortPlan::default()
        },
        records,
        seed,
        skew,
        shards: bytes.div_ceil(SHARD_BYTES).clamp(1, u64::from(u32::MAX)) as u32,
    };
    let shared = SortShared::of(&plan.sort);
    let output = OutputFile::create(path, Some(bytes))?;
    shared.write_to(output.clone());
    let mut program = Program::new("make records");
    making::build(&mut program, &plan);
    let caller = Some(caller);
    let run = ProgramRun { options, caller };
    run.run(program).map_err(SortError::of)?;
    output.publish()?;
    Ok(MadeFile {
        records,
        bytes,
        seconds: began.elapsed().as_secs_f64(),
    })
}

impl From<RecordMakerError> for SortError {
    fn from(error: RecordMakerError) -> SortError {
        SortError::Maker(error)
    }
}
