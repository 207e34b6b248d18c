//! Shards that were to leave, and are kept by a task that is not done: said once, when it has taken long.

use super::job::Job;
use brambling_memory::held;
use brambling_program::{Position, ShardId};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a shard is kept before that is said: longer than most tasks take, short for who waits for a drain. Less says it of what is about to end.
const TOLD_AFTER: Duration = Duration::from_secs(10);

/// Shards that are kept, by number.
#[derive(Default)]
pub(super) struct HeldShards(Mutex<BTreeMap<u32, Stay>>);

struct Stay {
    shard: ShardId,
    by: Position,
    since: Instant,
    is_told: bool,
}

impl HeldShards {
    /// A shard is to leave, and a task keeps it.
    pub(super) fn keep(&self, number: u32, shard: ShardId, by: Position) {
        let stay = || Stay {
            shard,
            by,
            since: Instant::now(),
            is_told: false,
        };
        // A later order keeps the time of the first: the shard has been held since then.
        held::lock(&self.0).entry(number).or_insert_with(stay).by = by;
    }

    /// It leaves.
    pub(super) fn leave(&self, number: u32) {
        held::lock(&self.0).remove(&number);
    }

    fn told(&self, after: Duration) -> Vec<(ShardId, Position)> {
        let mut kept = held::lock(&self.0);
        let is_due = |it: &&mut Stay| !it.is_told && it.since.elapsed() >= after;
        let due = kept.values_mut().filter(is_due).map(|it| {
            it.is_told = true;
            (it.shard, it.by)
        });
        due.collect()
    }
}

impl Job {
    /// Shards that are to leave and are kept for ten seconds by a task that is not done, in words; each once.
    pub fn kept_news(&self) -> Vec<String> {
        let told = self
            .remote
            .as_ref()
            .map(|remote| remote.kept.told(TOLD_AFTER));
        let stages = &self.plan().program.spec().stages;
        let text = |(shard, by): (ShardId, Position)| {
            format!(
                "partition {} is to move, and stage `{}` keeps it here at turn {}: a task that has begun and cannot be begun anew ends where it is; the \
                 partition moves when the task is done. A task that sends the same when it is begun anew, say so with repeatable",
                shard.index,
                stages[by.stage.index()].name,
                by.turn
            )
        };
        told.unwrap_or_default().into_iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::{GroupId, StageId};

    #[test]
    fn who_is_kept_is_told_once_and_not_at_once() {
        let kept = HeldShards::default();
        let (group, index) = (GroupId(1), 2);
        let shard = ShardId { group, index };
        let at = |turn| Position {
            stage: StageId(3),
            turn,
        };
        kept.keep(7, shard, at(0));
        kept.keep(7, shard, at(1));
        assert_eq!(kept.told(TOLD_AFTER), []);
        assert_eq!(kept.told(Duration::ZERO), [(shard, at(1))]);
        assert_eq!(kept.told(Duration::ZERO), []);
        kept.leave(7);
        kept.keep(7, shard, at(2));
        assert_eq!(kept.told(Duration::ZERO), [(shard, at(2))], "another move");
    }
}
