//! Where something may go ahead of a task that is stalled.

use super::{Code, Op};

/// How many tasks after a stalled one are searched for one that does not depend on it.
const LOOK_PAST_TASKS: usize = 8;
/// How far all paths together are followed: in nested loops there are exponentially many.
const LOOK_PAST_STEPS: usize = 1_024;

impl Code {
    /// Whether some task soon after the one at `at` depends neither on it nor on what depends on it.
    pub(super) fn has_independent_after(&self, at: usize) -> bool {
        let Op::Task { index: first, .. } = self.ops[at] else {
            return false;
        };
        let first = &self.tasks[first as usize];
        let mut paths = vec![(at + 1, first.reads, first.writes, 0usize, 0usize)];
        let mut walked = 0;
        while let Some((mut at, mut reads, mut writes, mut seen, mut steps)) = paths.pop() {
            while seen < LOOK_PAST_TASKS && steps < 8 * LOOK_PAST_TASKS {
                steps += 1;
                walked += 1;
                if walked > LOOK_PAST_STEPS {
                    // Looking past in vain costs little; not looking past could cost a turn.
                    return true;
                }
                match self.ops[at] {
                    Op::Task { index, .. } => {
                        let task = &self.tasks[index as usize];
                        // None of the three hazards with anything before it: it could run while
                        // those wait.
                        if !task.writes.meets(reads.with(writes)) && !task.reads.meets(writes) {
                            return true;
                        }
                        reads = reads.with(task.reads);
                        writes = writes.with(task.writes);
                        seen += 1;
                        at += 1;
                    }
                    Op::Begin { exit, .. } | Op::Test { exit, .. } => {
                        // Both ways are possible. A path that is left away only means that the
                        // shard stalls in order.
                        if paths.len() < 64 {
                            paths.push((exit as usize, reads, writes, seen, steps));
                        }
                        at += 1;
                    }
                    Op::Again { body, .. } => {
                        if paths.len() < 64 {
                            paths.push((body as usize, reads, writes, seen, steps));
                        }
                        at += 1;
                    }
                    Op::Jump(to) => at = to as usize,
                    Op::Enter(_) | Op::Announce(_) => at += 1,
                    // A shard waits there anyway, so what stands behind cannot go ahead.
                    Op::AwaitEnd(_) | Op::Finish => break,
                }
            }
        }
        false
    }
}
