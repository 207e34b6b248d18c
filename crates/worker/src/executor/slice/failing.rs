//! What a slice says when it cannot go on, and what its shard takes by then.

use super::Slice;
use crate::executor::failure::Failure;
use crate::executor::job::LoadedShard;
use crate::node::NodeError;
use brambling_memory::{Class, OutOfMemory};
use brambling_program::{Action, KernelError, StageId, StageKind, Task, Turn};

impl Slice<'_, '_> {
    /// Tells the budget what the shard's cells take by now.
    pub(super) fn charge(&self, body: &mut LoadedShard) -> Result<(), Failure> {
        let code = &self.job.plan.codes[self.resident.group.index()];
        let LoadedShard {
            weights,
            cells,
            charged_bytes,
            ..
        } = body;
        let bytes = weights.weigh(*charged_bytes, code, cells);
        if bytes == body.charged_bytes {
            return Ok(());
        }
        self.job
            .options
            .budget
            .adjust(Class::Resident, body.charged_bytes, bytes)
            .map_err(|source| {
                let stage = body
                    .running
                    .map_or_else(String::new, |at| self.stage_name(at.stage));
                Failure::OutOfMemory {
                    stage,
                    partition: self.resident.index,
                    exchange: None,
                    source,
                    spill: None,
                }
            })?;
        body.charged_bytes = bytes;
        Ok(())
    }

    /// A kernel was refused what it wanted to work with, and has passed that on.
    fn no_room_to_work(&self, stage: StageId, source: OutOfMemory) -> Failure {
        Failure::OutOfMemory {
            stage: self.stage_name(stage),
            partition: self.resident.index,
            exchange: None,
            source,
            spill: None,
        }
    }

    fn stage_name(&self, stage: StageId) -> String {
        self.job.plan.program.spec().stages[stage.index()]
            .name
            .clone()
    }

    #[cold]
    pub(super) fn kernel_failure(&self, task: &Task, turn: Turn, error: KernelError) -> Failure {
        let cause = std::error::Error::source(&error);
        // `pieces_error` has made this error.
        if let Some(source) = cause.and_then(|cause| cause.downcast_ref::<OutOfMemory>()) {
            let index = self.resident.index;
            return match source.class {
                Class::Resident => self.no_room_to_work(task.stage, *source),
                _ => self.job.no_room_for_pieces(task.stage, index, *source),
            };
        }
        let stage = self.stage_name(task.stage);
        // `told` has made this error.
        if let Some(error) = cause.and_then(|cause| cause.downcast_ref::<NodeError>()) {
            let stage = match task.action {
                Action::Stage(StageKind::Gather(_)) => "return of spilled pieces",
                _ => &stage,
            };
            let at = Some((stage, self.resident.index));
            return self.job.refusal(at, error.clone());
        }
        Failure::Kernel {
            stage,
            partition: self.resident.index,
            turn,
            error,
        }
    }
}
