//! Owns a signal's outcomes for all shards of a process: run-length coded, since a loop's signal is true, true, true, and
//! then false. The shard that decides publishes, or the node; the others ask. It never forgets an outcome: a shard may be
//! many turns behind.

use brambling_exchange::in_process::Waiters;
use brambling_program::Turn;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Set in the published count by a shard that waits for an outcome.
const WAITED_FOR: u64 = 1 << 63;

/// The outcomes of one signal.
pub(crate) struct Board {
    /// How many turns are known, and whether somebody waits. On a line of its own.
    published: Apart,
    /// The last run: (first turn << 1) | outcome.
    last_run: AtomicU64,
    runs: Mutex<Runs>,
    waiting: Waiting,
}

#[derive(Default)]
struct Runs {
    /// Of the turns that are known, ascending by first turn.
    known: Vec<(Turn, bool)>,
    /// What was learnt of turns beyond these: the end of a run, and its outcome, by first turn.
    beyond: BTreeMap<Turn, (Turn, bool)>,
}

#[repr(align(128))]
#[derive(Default)]
struct Apart {
    turns: AtomicU64,
    /// The turn before a cut, plus one; 0 for none. On this line: whoever asks for an outcome has it.
    cut: AtomicU64,
    /// Which cut that is.
    cut_id: AtomicU64,
}

/// Bits of waiting shards that all boards of a job may take together: 8 MiB.
const WAITING_BITS_MAX: usize = 1 << 26;

/// The shards that wait for an outcome.
enum Waiting {
    /// A bit for each shard of the job.
    Bits(Waiters),
    /// Those alone, behind a lock: where there are many boards and many shards.
    Listed(Mutex<BTreeSet<usize>>),
}

impl Waiting {
    fn add(&self, shard: usize) {
        match self {
            Waiting::Bits(waiters) => waiters.add(shard),
            Waiting::Listed(list) => {
                // lock: numbers alone are inside.
                let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
                list.insert(shard);
            }
        }
    }

    fn take(&self, each: impl FnMut(usize)) {
        match self {
            Waiting::Bits(waiters) => waiters.take(each),
            Waiting::Listed(list) => {
                // lock: numbers alone are inside, here as well.
                let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
                let taken = std::mem::take(&mut *list);
                drop(list);
                taken.into_iter().for_each(each);
            }
        }
    }
}

impl Board {
    /// One of so many boards of a job, for so many shards.
    pub(crate) fn new(shards: usize, boards: usize) -> Board {
        Board {
            published: Apart::default(),
            last_run: AtomicU64::new(0),
            runs: Mutex::default(),
            waiting: if shards.saturating_mul(boards) <= WAITING_BITS_MAX {
                Waiting::Bits(Waiters::new(shards))
            } else {
                Waiting::Listed(Mutex::default())
            },
        }
    }

    /// Gives the next turn's outcome. Called by one shard, in order of turns.
    pub(crate) fn publish(&self, outcome: bool, wake: impl FnMut(usize)) {
        // Relaxed: one shard publishes, and it wrote the count itself.
        let turn = self.published.turns.load(Ordering::Relaxed) & !WAITED_FOR;
        let last = self.last_run.load(Ordering::Relaxed);
        // A run that goes on costs no lock: only the count grows.
        if turn == 0 || (last & 1 == 1) != outcome {
            self.runs
                // lock: only outcomes are inside.
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .known
                .push((turn, outcome));
            // Release: a reader that sees this run before the count goes the slow way, which finds
            // its turn. Pairs with the Acquire in `outcome`.
            self.last_run
                .store(turn << 1 | u64::from(outcome), Ordering::Release);
        }
        // AcqRel: publishes the run, and sees the mark of a shard that looked before.
        if self.published.turns.fetch_add(1, Ordering::AcqRel) & WAITED_FOR != 0 {
            // Cleared before the set is emptied: a shard that joins in between is woken by `take`,
            // or its mark stays for the next outcome.
            self.published
                .turns
                .fetch_and(!WAITED_FOR, Ordering::AcqRel);
            self.waiting.take(wake);
        }
    }

    /// Takes outcomes in any order, and repeatedly, as they come from other workers: who waits hears of them when those before are known. Called by
    /// anybody, where nobody calls [`Board::publish`].
    pub(crate) fn learn(&self, turns: Range<Turn>, outcome: bool, wake: impl FnMut(usize)) {
        // lock: only outcomes are inside.
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known();
        if turns.end <= known {
            return;
        }
        // News repeats and grows: of the ranges with one beginning the longest counts.
        let end = runs.beyond.entry(turns.start).or_insert((0, outcome));
        end.0 = end.0.max(turns.end);
        let mut next = known;
        while let Some((&first, &(end, outcome))) = runs.beyond.first_key_value()
            && first <= next
        {
            runs.beyond.remove(&first);
            if end > next {
                if runs.known.last().is_none_or(|last| last.1 != outcome) {
                    runs.known.push((next, outcome));
                    // Release: as in `publish`.
                    self.last_run
                        .store(next << 1 | u64::from(outcome), Ordering::Release);
                }
                next = end;
            }
        }
        // AcqRel: as in `publish`. A shard that sets the mark meanwhile compares with the count
        // that `fetch_or` gives it.
        let waited = next > known
            && self
                .published
                .turns
                .fetch_add(next - known, Ordering::AcqRel)
                & WAITED_FOR
                != 0;
        drop(runs);
        if waited {
            self.published
                .turns
                .fetch_and(!WAITED_FOR, Ordering::AcqRel);
            self.waiting.take(wake);
        }
    }

    /// A cut is after this turn, whose outcome is given next.
    pub(crate) fn mark_cut(&self, id: u64, turn: Turn) {
        // Relaxed: the count that is published next releases them.
        self.published.cut_id.store(id, Ordering::Relaxed);
        self.published.cut.store(turn + 1, Ordering::Relaxed);
    }

    /// The cut after a turn whose outcome the caller has, if there is one: it may have become void since.
    pub(crate) fn cut_after(&self, turn: Turn) -> Option<u64> {
        // Relaxed: the caller has acquired the count.
        let is_here = self.published.cut.load(Ordering::Relaxed) == turn + 1;
        is_here.then(|| self.published.cut_id.load(Ordering::Relaxed))
    }

    /// The first outcome, if it has been given.
    pub(crate) fn first(&self) -> Option<bool> {
        // lock: only outcomes are inside.
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.known.first().map(|(_, outcome)| *outcome)
    }

    fn known(&self) -> Turn {
        self.published.turns.load(Ordering::Acquire) & !WAITED_FOR
    }

    /// The first turn that is not known, if a shard waits for it.
    pub(crate) fn wanted(&self) -> Option<Turn> {
        let published = self.published.turns.load(Ordering::Acquire);
        (published & WAITED_FOR != 0).then_some(published & !WAITED_FOR)
    }

    /// The outcome of a turn. If it is not known yet, the shard is woken when the next one is.
    #[inline]
    pub(crate) fn outcome(&self, turn: Turn, shard: usize) -> Option<bool> {
        if turn >= self.published.turns.load(Ordering::Acquire) & !WAITED_FOR {
            // Joined before the mark is set and the count read again: whoever publishes in between
            // finds the shard in the set.
            self.waiting.add(shard);
            if turn >= self.published.turns.fetch_or(WAITED_FOR, Ordering::AcqRel) & !WAITED_FOR {
                return None;
            }
        }
        // Acquire: pairs with the Release in `publish`. The count says that the turn is known: its
        // run is this one, or an earlier one that the slow way finds.
        let last = self.last_run.load(Ordering::Acquire);
        if turn >= last >> 1 {
            return Some(last & 1 == 1);
        }
        // lock: as in `publish`.
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let after = runs.known.partition_point(|(first, _)| *first <= turn);
        Some(runs.known[after - 1].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_keeps_its_outcome() {
        let outcomes = [true, true, false, true, false, false, true];
        for boards in [1, WAITING_BITS_MAX] {
            let board = Board::new(3, boards);
            for (turn, outcome) in outcomes.iter().enumerate() {
                assert_eq!(board.outcome(turn as Turn, 2), None);
                let mut woken = Vec::new();
                board.publish(*outcome, |shard| woken.push(shard));
                assert_eq!(woken, [2]);
                for (before, outcome) in outcomes[..=turn].iter().enumerate() {
                    assert_eq!(board.outcome(before as Turn, 0), Some(*outcome));
                }
            }
        }
    }
}
