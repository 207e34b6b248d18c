//! What a node knows of signals: as runs of turns, since a loop's signal is true, true, true, and then false. A loop of a thousand million turns
//! takes no more room than one of ten, nor does a run that a peer makes up.

use brambling_program::{Position, StageId, Turn};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::ops::Range;

/// The same outcome of a signal, some turns long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::node) struct OutcomeRun {
    signal: StageId,
    first: Turn,
    turns: u64,
    outcome: bool,
}

impl OutcomeRun {
    /// Its signal, turns and outcome. None: there are no such turns.
    pub(super) fn parts(self) -> Option<(StageId, Range<Turn>, bool)> {
        let end = self.first.checked_add(self.turns)?;
        Some((self.signal, self.first..end, self.outcome))
    }
}

/// The outcomes that are known.
#[derive(Default)]
pub(super) struct Outcomes {
    /// By signal and first turn: where the run ends, and its outcome. No two of a signal overlap, nor do equal ones meet.
    runs: BTreeMap<Position, (Turn, bool)>,
}

impl Outcomes {
    /// The outcome of a signal at a turn, if it is known.
    pub(super) fn get(&self, position: Position) -> Option<bool> {
        let first = Position {
            turn: 0,
            ..position
        };
        let (_, &(end, outcome)) = self.runs.range(first..=position).next_back()?;
        (position.turn < end).then_some(outcome)
    }

    /// Takes an outcome of some turns; whether that is news. What is known already may be said again.
    ///
    /// # Errors
    /// The first of the turns whose outcome is known to be the other one. Nothing was taken then.
    pub(super) fn learn(
        &mut self,
        signal: StageId,
        turns: Range<Turn>,
        outcome: bool,
    ) -> Result<bool, Position> {
        if turns.is_empty() {
            return Ok(false);
        }
        let at = |turn| Position {
            stage: signal,
            turn,
        };
        let Range { start, end } = turns;
        let (mut first, mut last) = (start, end);
        if let Some((before, &(until, found))) = self.runs.range(at(0)..=at(start)).next_back()
            && until >= start
        {
            match found == outcome {
                true if until >= end => return Ok(false),
                true => first = before.turn,
                false if until > start => return Err(at(start)),
                false => {}
            }
        }
        let further = (Excluded(at(start)), Included(at(end)));
        let mut overlapping = self.runs.range(further);
        let other = overlapping.find(|(run, (_, found))| *found != outcome && run.turn < end);
        if let Some((run, _)) = other {
            return Err(*run);
        }
        while let Some((&run, &(until, found))) = self.runs.range(further).next()
            && found == outcome
        {
            last = last.max(until);
            self.runs.remove(&run);
        }
        self.runs.insert(at(first), (last, outcome));
        Ok(true)
    }

    /// At how many turns a signal was true.
    pub(super) fn turns_true(&self, signal: StageId) -> Turn {
        let at = |turn| Position {
            stage: signal,
            turn,
        };
        let runs = self.runs.range(at(0)..=at(Turn::MAX));
        runs.filter(|(_, (_, outcome))| *outcome)
            .map(|(run, (end, _))| end - run.turn)
            .sum()
    }

    /// All that is known, as it travels.
    pub(super) fn runs(&self) -> Vec<OutcomeRun> {
        let run = |(run, &(end, outcome)): (&Position, &(Turn, bool))| OutcomeRun {
            signal: run.stage,
            first: run.turn,
            turns: end - run.turn,
            outcome,
        };
        self.runs.iter().map(run).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIGNAL: StageId = StageId(3);

    fn at(turn: Turn) -> Position {
        Position {
            stage: SIGNAL,
            turn,
        }
    }

    /// A loop's outcomes are one run, however long it is, and whoever says so.
    #[test]
    fn long_loops_take_no_more_room_than_short_ones() {
        let mut outcomes = Outcomes::default();
        for turn in 0..1_000 {
            outcomes.learn(SIGNAL, turn..turn + 1, true).unwrap();
        }
        outcomes.learn(SIGNAL, 1_000..1 << 63, true).unwrap();
        outcomes.learn(SIGNAL, 1 << 63..Turn::MAX, false).unwrap();
        assert_eq!(outcomes.runs.len(), 2);
        assert_eq!(outcomes.turns_true(SIGNAL), 1 << 63);
        assert_eq!(outcomes.get(at((1 << 63) - 1)), Some(true));
        assert_eq!(outcomes.get(at(1 << 63)), Some(false));
        assert_eq!(outcomes.get(at(Turn::MAX)), None);
        let again = outcomes.learn(SIGNAL, 500..Turn::MAX, true);
        assert_eq!(again, Err(at(1 << 63)));
        let unknown = Position {
            stage: StageId(4),
            turn: 1,
        };
        assert_eq!(outcomes.get(unknown), None);
    }

    #[test]
    fn runs_that_cannot_be_are_refused() {
        let run = |first, turns| OutcomeRun {
            signal: SIGNAL,
            first,
            turns,
            outcome: true,
        };
        assert_eq!(run(5, u64::MAX).parts(), None);
        assert_eq!(run(5, 2).parts(), Some((SIGNAL, 5..7, true)));
    }

    proptest! {
        /// As a map with every turn has it: what is known, what is refused and that nothing of it is taken, and what travels.
        #[test]
        fn as_if_every_turn_were_kept(
            said in prop::collection::vec((0u32..2, 0u64..24, 0u64..7, any::<bool>()), 0..40),
        ) {
            let mut outcomes = Outcomes::default();
            let mut model = BTreeMap::new();
            for (signal, first, turns, outcome) in said {
                let stage = StageId(signal);
                let positions = || (first..first + turns).map(|turn| Position { stage, turn });
                let other = positions().find(|it| model.get(it).is_some_and(|it| *it != outcome));
                let is_news = positions().any(|it| !model.contains_key(&it));
                let expected = other.map_or(Ok(is_news), Err);
                prop_assert_eq!(outcomes.learn(stage, first..first + turns, outcome), expected);
                if expected.is_ok() {
                    model.extend(positions().map(|it| (it, outcome)));
                }
            }
            for stage in [0, 1].map(StageId) {
                let mut changes = 0;
                let mut before = None;
                for turn in 0..40 {
                    let position = Position { stage, turn };
                    let known = outcomes.get(position);
                    prop_assert_eq!(known, model.get(&position).copied());
                    changes += usize::from(known.is_some() && known != before);
                    before = known;
                }
                let of = |it: &&Position| it.stage == stage;
                prop_assert_eq!(outcomes.runs.keys().filter(of).count(), changes);
                let all = model.iter().filter(|(it, outcome)| it.stage == stage && **outcome);
                prop_assert_eq!(outcomes.turns_true(stage), all.count() as Turn);
            }
            let mut told = Outcomes::default();
            for run in outcomes.runs() {
                let (signal, turns, outcome) = run.parts().unwrap();
                told.learn(signal, turns, outcome).unwrap();
            }
            prop_assert_eq!(told.runs, outcomes.runs);
        }
    }
}
