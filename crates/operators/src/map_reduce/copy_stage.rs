//! Owns the stage `copy` of map-reduce: it writes copies of parts of other workers. (Krevat et al., Table 3, the rows with
//! replication.)

use super::shared::MapReduceShared;
use super::{MapReduceSteps, failed};
use crate::parts::{CopyCount, CopyFiles};
use brambling_program::{Context, KernelError, Progress, Streams};
use std::sync::Arc;
use std::task::Poll;

/// A task of the stage.
pub(super) struct CopyTask {
    shared: Arc<MapReduceShared>,
    files: CopyFiles,
}

pub(super) fn open(steps: &MapReduceSteps, _: &mut Context<'_>) -> CopyTask {
    CopyTask {
        shared: MapReduceShared::of(steps),
        files: CopyFiles::default(),
    }
}

pub(super) fn run(
    steps: &MapReduceSteps,
    task: &mut CopyTask,
    streams: &mut Streams<'_, '_>,
    copied: &mut CopyCount,
) -> Result<Progress, KernelError> {
    let shared = &task.shared;
    let create = |copy, part| {
        let staging = shared.staging(steps).map_err(failed)?;
        let staging = staging.ok_or("copies are of parts")?;
        staging.copy(copy, part).map_err(failed)
    };
    match task.files.poll(&steps.parts, streams, create)? {
        Poll::Pending => Ok(Progress::Pending),
        Poll::Ready(count) => {
            *copied = count;
            Ok(Progress::Done)
        }
    }
}
