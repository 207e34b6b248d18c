//! What a kernel that did not return tells: it panicked, or the budget had no room for its pieces.

use crate::executor::failure::Failure;
use crate::executor::job::{Job, LoadedShard, ShardCell};
use crate::executor::panics;
use crate::pieces::PiecesRefused;
use std::any::Any;

/// Why a shard's kernel was unwound: the budget had no room for its pieces, or it panicked.
pub(super) fn unwound(
    job: &Job,
    resident: &ShardCell,
    body: &LoadedShard,
    payload: &(dyn Any + Send),
) -> Failure {
    if let (Some(refused), Some(at)) = (payload.downcast_ref::<PiecesRefused>(), body.running) {
        return job.no_room_for_pieces(at.stage, resident.index, refused.0);
    }
    let (message, location) = panics::tell(payload);
    match body.running {
        None => Failure::Internal { message },
        Some(at) => Failure::Panic {
            stage: job.plan.program.spec().stages[at.stage.index()]
                .name
                .clone(),
            partition: resident.index,
            turn: at.turn,
            message,
            location,
        },
    }
}
