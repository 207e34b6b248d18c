//! Owns the stage `copy` of a sort: it writes copies of parts of other workers. (Krevat et al.,
//! Table 3, the rows with replication.)

use super::plan::SortPlan;
use super::shared::SortShared;
use crate::parts::{CopyCount, CopyFiles, CopyPlan};
use brambling_program::{Context, KernelError, Progress, Streams};
use std::sync::Arc;
use std::task::Poll;

impl SortPlan {
    /// Where copies of parts go.
    pub fn copy_plan(&self) -> CopyPlan {
        CopyPlan {
            parts: self.parts,
            copies: self.copies,
            workers: self.workers,
        }
    }
}

/// A task of the stage.
pub(super) struct Copying {
    shared: Arc<SortShared>,
    files: CopyFiles,
}

pub(super) fn open(plan: &SortPlan, _: &mut Context<'_>) -> Copying {
    Copying {
        shared: SortShared::of(plan),
        files: CopyFiles::default(),
    }
}

pub(super) fn copy(
    plan: &SortPlan,
    own: &mut Copying,
    streams: &mut Streams<'_, '_>,
    copied: &mut CopyCount,
) -> Result<Progress, KernelError> {
    let shared = &own.shared;
    let create = |copy, part| {
        let fault = |error: brambling_storage::FileError| {
            KernelError::new(error.to_string()).with_source(error)
        };
        let staging = shared.staging(plan).map_err(fault)?;
        let staging = staging.ok_or("copies are of a sort into parts")?;
        staging.copy(copy, part).map_err(fault)
    };
    match own.files.poll(&plan.copy_plan(), streams, create)? {
        Poll::Pending => Ok(Progress::Pending),
        Poll::Ready(count) => {
            *copied = count;
            Ok(Progress::Done)
        }
    }
}
