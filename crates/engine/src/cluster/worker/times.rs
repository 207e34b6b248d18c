//! What a worker tells of the time that its shards take: as much as there are shards, once a second, however many tasks run.

use brambling_program::ShardId;
use brambling_protocol::JobKey;
use brambling_protocol::message::{ShardTime, ShardTimes};
use brambling_worker::executor::Reading;
use std::collections::BTreeMap;

/// More shards go in several messages: none is large.
const SHARDS_MAX: usize = 1 << 14;

/// What was told of a job's shards.
#[derive(Default)]
pub(super) struct ReportedTimes(BTreeMap<ShardId, Reading>);

impl ReportedTimes {
    /// What is to be told of them now: at least one message, so that who holds nothing is heard as well.
    pub(super) fn next(
        &mut self,
        key: JobKey,
        readings: impl Iterator<Item = (ShardId, Reading)>,
    ) -> Vec<ShardTimes> {
        let before = std::mem::take(&mut self.0);
        self.0 = readings.collect();
        let time = |(shard, now): (&ShardId, &Reading)| {
            let was = before.get(shard).copied().unwrap_or_default();
            // Less than before: it was away meanwhile, and counts from its return.
            let came_back = now.turns < was.turns || now.ran_ns < was.ran_ns;
            let was = if came_back { Reading::default() } else { was };
            ShardTime {
                shard: *shard,
                turns: now.turns - was.turns,
                ran_ns: now.ran_ns - was.ran_ns,
                bytes: now.bytes,
            }
        };
        let mut shards: Vec<ShardTime> = self.0.iter().map(time).collect();
        let mut messages = Vec::new();
        while messages.is_empty() || !shards.is_empty() {
            let rest = shards.split_off(shards.len().min(SHARDS_MAX));
            let shards = std::mem::replace(&mut shards, rest);
            messages.push(ShardTimes { key, shards });
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::GroupId;
    use brambling_protocol::{Generation, JobId};

    const KEY: JobKey = JobKey {
        job: JobId(1),
        generation: Generation(0),
    };

    fn shard(index: u32) -> ShardId {
        let group = GroupId(0);
        ShardId { group, index }
    }

    /// What is told of turns and times, as turns and times.
    fn next(told: &mut ReportedTimes, readings: &[(u32, u64, u64)]) -> Vec<(u32, u64, u64)> {
        let reading = |&(index, turns, ran_ns): &(u32, u64, u64)| {
            let bytes = 8;
            let reading = Reading {
                turns,
                ran_ns,
                bytes,
            };
            (shard(index), reading)
        };
        let messages = told.next(KEY, readings.iter().map(reading));
        let shards = messages.iter().flat_map(|it| &it.shards);
        shards
            .map(|it| (it.shard.index, it.turns, it.ran_ns))
            .collect()
    }

    #[test]
    fn what_was_told_is_not_told_again() {
        let mut told = ReportedTimes::default();
        assert_eq!(
            next(&mut told, &[(0, 3, 30), (1, 3, 90)]),
            [(0, 3, 30), (1, 3, 90)]
        );
        assert_eq!(
            next(&mut told, &[(0, 5, 50), (1, 3, 90)]),
            [(0, 2, 20), (1, 0, 0)]
        );
        // One leaves, one comes.
        assert_eq!(
            next(&mut told, &[(0, 6, 60), (2, 1, 5)]),
            [(0, 1, 10), (2, 1, 5)]
        );
        // It comes back, and has left and come back between two reports.
        assert_eq!(
            next(&mut told, &[(0, 2, 70), (1, 1, 7)]),
            [(0, 2, 70), (1, 1, 7)]
        );
    }

    #[test]
    fn many_go_in_several_messages_and_none_is_said_too() {
        let all = (0..2 * SHARDS_MAX as u32 + 1).map(|it| (shard(it), Reading::default()));
        let counts = |messages: Vec<ShardTimes>| -> Vec<usize> {
            messages.iter().map(|it| it.shards.len()).collect()
        };
        assert_eq!(
            counts(ReportedTimes::default().next(KEY, all)),
            [SHARDS_MAX, SHARDS_MAX, 1]
        );
        assert_eq!(
            counts(ReportedTimes::default().next(KEY, std::iter::empty())),
            [0]
        );
    }
}
