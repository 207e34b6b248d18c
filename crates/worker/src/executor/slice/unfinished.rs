//! What a slice does about tasks that are not done when their kernel returns, and about what wakes them. The slice calls it.

use super::{End, Slice};
use crate::executor::job::LoadedShard;
use crate::shard::Issue;
use brambling_program::{Code, Context, Progress, Task};
use std::sync::atomic::Ordering;

impl Slice<'_, '_> {
    /// A task has not finished: it is called again, or has failed, and the slice ends.
    #[cold]
    #[inline(never)]
    pub(super) fn left_unfinished(
        &mut self,
        body: &mut LoadedShard,
        task: &Task,
        (issue, progress): (Issue, Progress),
        context: &mut Context<'_>,
    ) -> Option<End> {
        self.unfinished += 1;
        match progress {
            Progress::Done | Progress::More => None,
            Progress::Pending => {
                // Before the task is suspended: the watchdog must not take the shard for one that
                // waits for nothing.
                self.job.pending.fetch_add(1, Ordering::AcqRel);
                body.shard.suspend(issue);
                None
            }
            Progress::Failed => {
                let error = context
                    .take_error()
                    .unwrap_or_else(|| "the kernel gave no reason".into());
                self.failure = Some(Box::new(self.kernel_failure(task, issue.turn, error)));
                if context.has_seen_cancellation() {
                    // The kernel gave up because the job had ended: nothing of its own went wrong.
                    body.running = None;
                }
                Some(End::Failed)
            }
        }
    }

    #[cold]
    pub(super) fn complete(&self, body: &mut LoadedShard, code: &Code) {
        for at in self.resident.woken.take() {
            if body.shard.complete(code, at) {
                self.job.pending.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}
