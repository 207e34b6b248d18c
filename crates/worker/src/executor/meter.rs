//! How long a shard runs for each of its turns, by the clock: a throttled CPU shows in it, and where in a turn it is looked at does not.
//!
//! A job that is a member of a cluster notes it with each reading of the clock, which comes after a slice of long tasks, or after many slices
//! of short ones: then the shard that ran last is taken for all of them, a sample. A turn here is a block of the program that was
//! entered, the body of a loop once more for example: shards of a group enter the same ones, so they compare.

use super::job::Job;
use brambling_program::ShardId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Its owner's sums. Goes with the body, and begins anew on another worker.
pub(super) struct Meter {
    /// Blocks that it has entered.
    entered: u64,
    /// Whether it has begun a turn here: of the one at hand when it came a part may be missing.
    counts: bool,
    turns: u64,
    ran_ns: u64,
}

/// What whoever reports sees of it: as of the last turn that has ended. Written by the shard's owner.
#[derive(Default)]
pub(super) struct ShardGauge {
    is_here: AtomicBool,
    turns: AtomicU64,
    ran_ns: AtomicU64,
    bytes: AtomicU64,
}

/// What a shard here took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    /// Turns that it has ended since it came.
    pub turns: u64,
    /// How long its slices ran in them.
    pub ran_ns: u64,
    /// What its datasets take.
    pub bytes: u64,
}

impl Meter {
    /// For a shard that has entered so many blocks when it comes.
    pub(super) fn new(entered: u64) -> Meter {
        let (counts, turns, ran_ns) = (false, 0, 0);
        Meter {
            entered,
            counts,
            turns,
            ran_ns,
        }
    }

    /// The shard has run, for so long.
    pub(super) fn add(&mut self, gauge: &ShardGauge, took_ns: u64, entered: u64, bytes: u64) {
        let ended = entered.wrapping_sub(self.entered);
        self.entered = entered;
        // The turn at hand when the shard came may have begun elsewhere: it is not counted.
        if !self.counts {
            self.counts = ended > 0;
            return;
        }
        self.ran_ns += took_ns;
        if ended > 0 {
            self.turns += ended;
            // Whoever reads between the two has one turn more or less than its time: it is an estimate.
            gauge.turns.store(self.turns, Ordering::Relaxed);
            gauge.ran_ns.store(self.ran_ns, Ordering::Relaxed);
            gauge.bytes.store(bytes, Ordering::Relaxed);
        }
    }
}

impl ShardGauge {
    /// The shard is here from now on.
    pub(super) fn begin(&self, bytes: u64) {
        self.turns.store(0, Ordering::Relaxed);
        self.ran_ns.store(0, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        // Release: pairs with the acquire in `read`, so that nothing of an earlier stay is read.
        self.is_here.store(true, Ordering::Release);
    }

    /// It is not any more.
    pub(super) fn end(&self) {
        self.is_here.store(false, Ordering::Relaxed);
    }

    fn read(&self) -> Option<Reading> {
        self.is_here.load(Ordering::Acquire).then(|| Reading {
            turns: self.turns.load(Ordering::Relaxed),
            ran_ns: self.ran_ns.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        })
    }
}

impl Job {
    /// What each shard here took. Looks at all shards of the job: to be called now and then.
    pub fn readings(&self) -> impl Iterator<Item = (ShardId, Reading)> {
        let read = |it: &super::job::ShardCell| Some((it.id(), it.gauge.read()?));
        self.residents.iter().filter_map(read)
    }

    /// What its threads run: the stage by name, and the partition. As they say it, so a task that begins or ends just now may be told or not.
    pub fn running(&self) -> impl Iterator<Item = (&str, u32)> {
        let stages = &self.plan.program.spec().stages;
        let runs = self.thread_states.iter().filter_map(|it| it.runs());
        runs.map(|number| {
            let resident = &self.residents[number as usize];
            let stage = resident.stage.load(Ordering::Relaxed);
            (&stages[stage as usize].name[..], resident.index)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(turns: u64, ran_ns: u64, bytes: u64) -> Option<Reading> {
        Some(Reading {
            turns,
            ran_ns,
            bytes,
        })
    }

    #[test]
    fn whole_turns_count_and_the_first_may_be_a_part() {
        let (mut meter, gauge) = (Meter::new(41), ShardGauge::default());
        assert_eq!(gauge.read(), None);
        gauge.begin(8);
        // It came in the middle of its 41st turn.
        for (took_ns, entered, expected) in [
            (700, 41, reading(0, 0, 8)),
            (1_000, 42, reading(0, 0, 8)),
            (100, 42, reading(0, 0, 8)),
            (10, 43, reading(1, 110, 9)),
            (5, 43, reading(1, 110, 9)),
            (1, 45, reading(3, 116, 9)),
        ] {
            meter.add(&gauge, took_ns, entered, 9);
            assert_eq!(gauge.read(), expected, "{entered}");
        }
        gauge.end();
        assert_eq!(gauge.read(), None);
        gauge.begin(3);
        assert_eq!(gauge.read(), reading(0, 0, 3));
    }
}
