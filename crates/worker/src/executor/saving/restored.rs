//! What a job begins with that begins at a cut.

use crate::executor::board::Board;
use crate::executor::job::Job;
use brambling_memory::held;
use brambling_program::{
    Code, Cut, CutStates, DatasetId, GroupId, GroupState, LoopId, Op, Plan, ProgramNode, ShardId,
    Spec, StageId, Turn, Value,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

/// A job's state at a cut.
#[derive(Debug)]
pub struct Restored {
    cut: Cut,
    states: CutStates,
    outcomes: Vec<(StageId, bool)>,
    values: Mutex<BTreeMap<(DatasetId, u32), Value>>,
}

impl Restored {
    /// From where each group stood, what signals of the program's own block were, and what was saved of partitions of shards that are here. What no stage has
    /// written by then is made as at the start. None where that is not all, or not of this program.
    pub fn new(
        plan: &Plan,
        cut: Cut,
        states: CutStates,
        outcomes: Vec<(StageId, bool)>,
        values: BTreeMap<(DatasetId, u32), Value>,
        is_here: impl Fn(ShardId) -> bool,
    ) -> Option<Restored> {
        if !(plan.cuts.contains(&cut) && states.fit(plan)) {
            return None;
        }
        let wanted = Restored::wanted(plan, &states, is_here);
        let has_all = wanted.iter().all(|it| values.contains_key(it));
        has_all.then(|| Restored {
            cut,
            states,
            outcomes,
            values: Mutex::new(values),
        })
    }

    /// The partitions that have to be there, of shards that are here.
    pub fn wanted(
        plan: &Plan,
        states: &CutStates,
        is_here: impl Fn(ShardId) -> bool,
    ) -> Vec<(DatasetId, u32)> {
        let mut wanted = Vec::new();
        for (group, count) in (0..).map(GroupId).zip(&plan.counts) {
            for index in (0..*count).filter(|index| {
                is_here(ShardId {
                    group,
                    index: *index,
                })
            }) {
                let state = states.of(ShardId { group, index });
                for cell in plan.written_between(group, None, state) {
                    let dataset = plan.groups[group.index()].datasets[cell as usize];
                    wanted.push((dataset, index));
                }
            }
        }
        wanted
    }

    /// Whether it has what was saved of a partition.
    pub fn has(&self, of: (DatasetId, u32)) -> bool {
        held::lock(&self.values).contains_key(&of)
    }

    /// By exchange, how many turns are over.
    pub(in crate::executor) fn turns(&self, plan: &Plan) -> Vec<Turn> {
        plan.turns_at(&self.states)
    }

    pub(in crate::executor) fn state(&self, shard: ShardId) -> &GroupState {
        self.states.of(shard)
    }

    /// What was saved of a partition, once.
    pub(in crate::executor) fn take(&self, dataset: DatasetId, index: u32) -> Option<Value> {
        held::lock(&self.values).remove(&(dataset, index))
    }

    /// Whether whoever announces the end of a loop had done so: a shard that runs ahead of others may be behind the loop at a cut of it.
    fn has_announced(&self, plan: &Plan, outermost: LoopId) -> bool {
        let announces = |(group, code): (u32, &Code)| {
            let is_it = |op: &Op| *op == Op::Announce(outermost);
            let at = code.ops.iter().position(is_it)?;
            let (group, index) = (GroupId(group), 0);
            Some(self.states.of(ShardId { group, index }).at as usize > at)
        };
        (0..).zip(&plan.codes).find_map(announces).unwrap_or(false)
    }

    /// What is over by then is known.
    pub(in crate::executor) fn fill_boards(
        &self,
        plan: &Plan,
        boards: &[Option<Board>],
        ends: &[Board],
    ) {
        for (signal, turns, outcome) in self.decided(plan) {
            if let Some(board) = &boards[signal.index()] {
                board.learn(turns, outcome, |_| {});
            }
        }
        for end in &ends[..self.ended(plan) as usize] {
            end.learn(0..1, false, |_| {});
        }
    }

    /// Outcomes of signals that are over, as this process's boards have them. Nobody asks for those inside of loops any more: what stands for them is made up.
    fn decided(&self, plan: &Plan) -> Vec<(StageId, Range<Turn>, bool)> {
        let decided = plan.decided_at(&self.states).into_iter();
        let decided = decided.map(|(signal, turns)| {
            // Only outcomes of the program's own block can be asked for after a cut.
            let known = self.outcomes.iter().find(|(stage, _)| *stage == signal);
            (signal, 0..turns, known.is_none_or(|(_, outcome)| *outcome))
        });
        decided.collect()
    }

    /// Those of them that are not made up, as other workers may hear them. Their job may have begun at an earlier cut, so they know what signals inside of loops were
    /// between the two.
    pub(in crate::executor) fn outcomes(&self, plan: &Plan) -> Vec<(StageId, Range<Turn>, bool)> {
        let test = self.test(plan);
        let is_known = |signal: StageId| self.outcomes.iter().any(|(stage, _)| *stage == signal);
        let mut decided = self.decided(plan);
        decided.retain(|(signal, ..)| test == Some(*signal) || is_known(*signal));
        decided
    }

    /// What has been true in each turn of the loop of the cut, if that is one with a test and goes on.
    fn test(&self, plan: &Plan) -> Option<StageId> {
        let Cut::LoopTop(outermost) = self.cut else {
            return None;
        };
        let root = &plan.program.spec().blocks[Spec::ROOT.index()];
        let mut loops = root.iter().filter_map(|node| match node {
            ProgramNode::While { test, .. } => Some(Some(*test)),
            ProgramNode::Repeat { .. } => Some(None),
            ProgramNode::Stage(_) | ProgramNode::Branch { .. } => None,
        });
        let test = loops.nth(outermost as usize)?;
        test.filter(|_| self.ended(plan) <= outermost)
    }

    /// How many outermost loops have ended.
    pub(in crate::executor) fn ended(&self, plan: &Plan) -> LoopId {
        match self.cut {
            Cut::Start => 0,
            Cut::LoopTop(outermost) => {
                outermost + LoopId::from(self.has_announced(plan, outermost))
            }
            Cut::End => plan.loops,
        }
    }
}

impl Job {
    /// Exchanges begin at the turns that are not over.
    pub(in crate::executor) fn retire_before(&self, turns: &[Turn]) {
        for (exchange, turns) in self.exchanges.iter().zip(turns) {
            let Some(exchange) = exchange else { continue };
            for destination in 0..exchange.links().destination_count() {
                exchange.room(destination).retire_to(*turns, |_| {});
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::{Bindings, Program};
    use std::sync::Arc;

    /// A worker that joins later may begin at a later cut than the others: what it says of signals must be what they know.
    #[test]
    fn what_signals_inside_of_loops_were_is_not_made_up_for_others() {
        let mut p = Program::new("branches");
        let one = p.dataset::<u64>("one", 1);
        let first = p.signal("first").read(&one).run(|_: &u64| false);
        p.branch(first, |_| {}, |_| {});
        p.repeat_while(
            "goes on",
            &one,
            |one: &u64| *one < 10,
            |p: &mut Program| {
                let seldom = p.signal("seldom").read(&one).run(|one: &u64| *one == 3);
                let reset = |p: &mut Program| {
                    p.compute("reset")
                        .update(&one)
                        .run(|one: &mut u64| *one = 4);
                };
                p.branch(seldom, reset, |_| {});
                p.compute("count")
                    .update(&one)
                    .run(|one: &mut u64| *one += 1);
            },
        );
        let plan = Plan::compile(Arc::new(p), &Bindings::default()).unwrap();
        let stages = &plan.program.spec().stages;
        let stage = |name: &str| {
            let place = stages.iter().position(|it| it.name == name);
            StageId(place.unwrap() as u32)
        };
        // Five turns of the loop are done, in each of which all blocks but the branches' were entered.
        let state = |code: &Code| {
            let is_top = |op: &Op| matches!(op, Op::Enter(_));
            let top = code.ops.iter().rposition(is_top).unwrap_or(0);
            let mut entered = vec![5; code.blocks as usize];
            entered[0] = 1;
            GroupState {
                at: top as u32,
                entered,
                counters: vec![0; code.counters as usize],
            }
        };
        let states = CutStates {
            groups: plan.codes.iter().map(state).collect(),
            ..CutStates::default()
        };
        let restored = Restored {
            cut: Cut::LoopTop(0),
            states,
            outcomes: vec![(stage("first"), false)],
            values: Mutex::default(),
        };
        let told = restored.outcomes(&plan);
        let of = |name| told.iter().find(|(signal, ..)| *signal == stage(name));
        assert_eq!(of("seldom"), None);
        assert!(matches!(of("first"), Some((_, turns, false)) if *turns == (0..1)));
        assert!(matches!(of("goes on"), Some((_, turns, true)) if !turns.is_empty()));
        // When it has ended, one of its outcomes was false.
        let ended = Restored {
            cut: Cut::End,
            ..restored
        };
        let told = ended.outcomes(&plan);
        assert!(!told.iter().any(|(signal, ..)| *signal == stage("goes on")));
    }
}
