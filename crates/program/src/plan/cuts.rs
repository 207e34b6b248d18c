//! Where snapshots may be taken, and what a program's shards have done by then.
//!
//! All shards of a group have walked the same way to a cut (they take the same branches, and no exchange is open there), so one
//! state tells it for the whole group; but for shards that exchange nothing in a counted loop, each of which may be saved at another turn of it. Everything that a job needs to begin at a cut follows from these states, by one rule: an instruction has
//! run as often as its block was entered, less one where it stands behind the place at which the group stands.

use super::{Action, Code, LoopId, Op, Plan};
use crate::{ExchangeId, GroupId, ProgramNode, ShardId, Spec, StageId, StageKind, Turn};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A point at which no exchange is open: where a snapshot may be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cut {
    /// Before the first instruction.
    Start,
    /// The top of an outermost loop, at each of its turns.
    LoopTop(LoopId),
    /// After the last instruction.
    End,
}

/// At which turn of an outermost loop a cut is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CutTurn {
    /// So many turns of a counted loop are done: at least one, and fewer than it has.
    After(Turn),
    /// Whoever gives the loop's signal says it with an outcome.
    Signalled,
    /// Wherever a turn ends next, or the loop: for shards that exchange nothing in the loop, each for itself.
    Next,
}

/// What a shard says of a cut that it is told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CutAnswer {
    /// It will save there.
    Will,
    /// It has been there.
    Past,
}

/// What is needed to order cuts of a program, and to know when one is complete.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CutPlan {
    /// How many shards each group has.
    pub shards: Vec<u32>,
    /// Its outermost loops.
    pub loops: Vec<OutermostLoop>,
}

/// An outermost loop, for whoever orders cuts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutermostLoop {
    /// How many turns it has; none where a signal ends it.
    pub turns: Option<u64>,
    /// Whether an exchange is open across it: then it has no cuts.
    pub is_crossed: bool,
    /// Whether it is several loops that have nothing to do with each other, or whoever gives its signal waits for nobody: then it has no cuts.
    pub is_split: bool,
    /// The groups that take part.
    pub takers: Vec<GroupId>,
    /// Those of them whose shards exchange nothing in a counted loop: each runs as far ahead as it likes, and is saved where it is.
    pub free: Vec<GroupId>,
    /// Its first stage, by which people know it.
    pub first_stage: String,
}

/// Where the shards of a group save at the top of an outermost loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutSite {
    /// At the instruction that ends a turn of a counted loop.
    Again {
        /// Where the loop begins.
        begin: u32,
        /// The instruction.
        op: u32,
        /// The loop's counter.
        counter: u32,
    },
    /// At the jump that ends a turn of a loop that a signal ends.
    Jump {
        /// Where the signal is tested.
        test: u32,
        /// The jump.
        op: u32,
    },
    /// Where a group that takes no part waits for the loop's end.
    Await {
        /// The instruction that waits.
        op: u32,
    },
}

impl CutSite {
    /// The instruction at which a shard saves.
    pub fn op(self) -> u32 {
        match self {
            CutSite::Again { op, .. } | CutSite::Jump { op, .. } | CutSite::Await { op } => op,
        }
    }
}

/// Where the shards of a program stand at a cut.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CutStates {
    /// By group: all of its shards stand so, but for those below.
    pub groups: Vec<GroupState>,
    /// Shards that stand for themselves.
    pub shards: BTreeMap<ShardId, GroupState>,
}

impl CutStates {
    /// Where a shard stands.
    pub fn of(&self, shard: ShardId) -> &GroupState {
        let own = self.shards.get(&shard);
        own.unwrap_or(&self.groups[shard.group.index()])
    }

    /// Whether they are states of this program.
    pub fn fit(&self, plan: &Plan) -> bool {
        let fits = |(group, state): (usize, &GroupState)| {
            plan.codes.get(group).is_some_and(|code| state.fits(code))
        };
        let mut groups = self.groups.iter().enumerate();
        let mut shards = self.shards.iter();
        self.groups.len() == plan.codes.len()
            && groups.all(fits)
            && shards.all(|(shard, state)| fits((shard.group.index(), state)))
    }
}

/// Where all shards of a group stand at a cut.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GroupState {
    /// The instruction that comes next.
    pub at: u32,
    /// How often each block has been entered.
    pub entered: Vec<u64>,
    /// Turns done of each counted loop.
    pub counters: Vec<u64>,
}

impl GroupState {
    /// Whether it is one of this code.
    pub fn fits(&self, code: &Code) -> bool {
        (self.at as usize) < code.ops.len()
            && self.entered.len() == code.blocks as usize
            && self.counters.len() == code.counters as usize
    }

    /// How often an instruction of a block has run.
    fn times(&self, op: usize, block: u32) -> u64 {
        let entered = self.entered[block as usize];
        match op < self.at as usize {
            true => entered,
            false => entered.saturating_sub(1),
        }
    }
}

/// Scatter and gather stand in one block, so an exchange that is open at a point of the program's own
/// block was opened in that block.
pub(super) fn find_cuts(spec: &Spec) -> Vec<Cut> {
    let mut cuts = vec![Cut::Start];
    let (mut open, mut loops) = (0usize, 0);
    for node in &spec.blocks[0] {
        match node {
            ProgramNode::Stage(stage) => {
                // Only the outermost level is looked at: validation lets no exchange reach across a
                // block's end.
                open += usize::from(spec.sends_to(*stage).is_some());
                open -= spec.takes_from(*stage).len();
            }
            ProgramNode::Repeat { .. } | ProgramNode::While { .. } => {
                if open == 0 {
                    cuts.push(Cut::LoopTop(loops));
                }
                loops += 1;
            }
            ProgramNode::Branch { .. } => {}
        }
    }
    cuts.push(Cut::End);
    cuts
}

/// How many turns an outermost loop has; none where a signal ends it.
fn turns(spec: &Spec, outermost: LoopId) -> Option<u64> {
    let mut loops = spec.blocks[0].iter().filter_map(|node| match node {
        ProgramNode::Repeat { turns, .. } => Some(Some(*turns)),
        ProgramNode::While { .. } => Some(None),
        ProgramNode::Stage(_) | ProgramNode::Branch { .. } => None,
    });
    loops.nth(outermost as usize)?
}

/// The body of an outermost loop.
fn body(spec: &Spec, outermost: LoopId) -> Option<crate::BlockId> {
    let mut bodies = spec.blocks[0].iter().filter_map(|node| match node {
        ProgramNode::Repeat { body, .. } | ProgramNode::While { body, .. } => Some(*body),
        ProgramNode::Stage(_) | ProgramNode::Branch { .. } => None,
    });
    bodies.nth(outermost as usize)
}

/// The signal of an outermost loop that one ends.
fn test(spec: &Spec, outermost: LoopId) -> Option<StageId> {
    let mut loops = spec.blocks[0].iter().filter_map(|node| match node {
        ProgramNode::Repeat { .. } => Some(None),
        ProgramNode::While { test, .. } => Some(Some(*test)),
        ProgramNode::Stage(_) | ProgramNode::Branch { .. } => None,
    });
    loops.nth(outermost as usize)?
}

/// The name of the first stage of an outermost loop.
fn first_stage(spec: &Spec, outermost: LoopId) -> Option<String> {
    let mut within = vec![body(spec, outermost)?];
    while let Some(block) = within.pop() {
        for node in &spec.blocks[block.index()] {
            match *node {
                ProgramNode::Stage(stage) => return Some(spec.stages[stage.index()].name.clone()),
                ProgramNode::Repeat { body, .. } | ProgramNode::While { body, .. } => {
                    within.push(body);
                }
                ProgramNode::Branch { then, .. } => within.push(then),
            }
        }
    }
    None
}

/// Which groups keep each other from running ahead in an outermost loop: those between which something is exchanged, and those that wait for a
/// signal of one.
pub(super) struct LoopTies {
    parts: Vec<BTreeSet<GroupId>>,
    /// Groups that exchange something there.
    exchanging: BTreeSet<GroupId>,
}

impl LoopTies {
    pub(super) fn of(spec: &Spec, group_of_stage: &[GroupId], outermost: LoopId) -> LoopTies {
        let mut ties = LoopTies {
            parts: Vec::new(),
            exchanging: BTreeSet::new(),
        };
        let Some(body) = body(spec, outermost) else {
            return ties;
        };
        let mut within = vec![body];
        while let Some(block) = within.pop() {
            let mut in_block = Vec::new();
            for node in &spec.blocks[block.index()] {
                match *node {
                    ProgramNode::Stage(stage) => in_block.push(stage),
                    ProgramNode::Repeat { body, .. } => within.push(body),
                    ProgramNode::While { test, body, .. } => {
                        ties.tie_signal(spec, group_of_stage, test, &[body]);
                        within.push(body);
                    }
                    ProgramNode::Branch {
                        signal,
                        then,
                        otherwise,
                    } => {
                        ties.tie_signal(spec, group_of_stage, signal, &[then, otherwise]);
                        within.extend([then, otherwise]);
                    }
                }
            }
            for taker in &in_block {
                for exchange in spec.takes_from(*taker) {
                    let sends = |stage: &&StageId| spec.sends_to(**stage) == Some(*exchange);
                    let senders = in_block.iter().filter(sends);
                    let groups = senders.chain([taker]).map(|it| group_of_stage[it.index()]);
                    let groups: BTreeSet<GroupId> = groups.collect();
                    ties.exchanging.extend(&groups);
                    ties.tie(groups);
                }
            }
        }
        ties
    }

    /// Who decides, and all who do something that depends on it.
    fn tie_signal(
        &mut self,
        spec: &Spec,
        group_of_stage: &[GroupId],
        signal: StageId,
        blocks: &[crate::BlockId],
    ) {
        let mut groups = BTreeSet::from([group_of_stage[signal.index()]]);
        let mut within = blocks.to_vec();
        while let Some(block) = within.pop() {
            for node in &spec.blocks[block.index()] {
                match *node {
                    ProgramNode::Stage(stage) => drop(groups.insert(group_of_stage[stage.index()])),
                    ProgramNode::Repeat { body, .. } => within.push(body),
                    ProgramNode::While { body, .. } => within.push(body),
                    ProgramNode::Branch {
                        then, otherwise, ..
                    } => within.extend([then, otherwise]),
                }
            }
        }
        self.tie(groups);
    }

    fn tie(&mut self, mut groups: BTreeSet<GroupId>) {
        let meets = |part: &mut BTreeSet<GroupId>| !part.is_disjoint(&groups);
        let met: Vec<_> = self.parts.extract_if(.., meets).collect();
        met.into_iter().for_each(|part| groups.extend(part));
        self.parts.push(groups);
    }

    /// Whether a group is tied to another, or its shards to each other.
    pub(super) fn has(&self, group: GroupId) -> bool {
        self.parts.iter().any(|part| part.contains(&group))
    }

    fn parts(&self) -> usize {
        self.parts.len()
    }
}

impl Code {
    /// Where the group waits for the end of an outermost loop, or of one behind it.
    pub fn await_site(&self, outermost: LoopId) -> CutSite {
        let waits = |op: &Op| matches!(op, Op::AwaitEnd(ended) if *ended >= outermost);
        // Every group waits for the last loop's end, if only to finish.
        let op = self.ops.iter().position(waits);
        CutSite::Await {
            op: op.unwrap_or(self.ops.len() - 1) as u32,
        }
    }

    /// Where the group saves at the top of an outermost loop.
    pub fn cut_site(&self, outermost: LoopId) -> CutSite {
        let own = self.sites.iter().find(|(of, _)| *of == outermost);
        if let Some((_, site)) = own {
            return *site;
        }
        self.await_site(outermost)
    }

    /// Where a stage stands, with the block that counts its turns.
    fn place(&self, is_it: impl Fn(StageId, StageKind) -> bool) -> Option<(usize, u32)> {
        (0..).zip(&self.ops).find_map(|(at, op)| match *op {
            Op::Task { index, block } => {
                let task = &self.tasks[index as usize];
                match task.action {
                    Action::Stage(kind) if is_it(task.stage, kind) => Some((at, block)),
                    _ => None,
                }
            }
            _ => None,
        })
    }
}

impl Plan {
    /// How many turns an outermost loop has; none where a signal ends it.
    pub fn loop_turns(&self, outermost: LoopId) -> Option<u64> {
        turns(self.program.spec(), outermost)
    }

    /// What is needed to order its cuts.
    pub fn cut_plan(&self) -> CutPlan {
        let spec = self.program.spec();
        let outermost = |id: LoopId| {
            let takes = |code: &Code| code.sites.iter().any(|(of, _)| *of == id);
            let takers = (0..).zip(&self.codes).filter(|(_, code)| takes(code));
            let ties = LoopTies::of(spec, &self.group_of_stage, id);
            let is_counted = self.loop_turns(id).is_some();
            let decider = test(spec, id).map(|test| self.group_of_stage[test.index()]);
            let is_free = |group: &GroupId| is_counted && !ties.has(*group);
            let takers: Vec<GroupId> = takers.map(|(group, _)| GroupId(group)).collect();
            OutermostLoop {
                turns: self.loop_turns(id),
                is_crossed: !self.cuts.contains(&Cut::LoopTop(id)),
                is_split: match decider {
                    None => ties.parts() > 1,
                    Some(decider) => takers.len() > 1 && !ties.exchanging.contains(&decider),
                },
                free: takers.iter().copied().filter(is_free).collect(),
                takers,
                first_stage: first_stage(spec, id).unwrap_or_default(),
            }
        };
        CutPlan {
            shards: self.counts.clone(),
            loops: (0..self.loops).map(outermost).collect(),
        }
    }

    /// In which outermost loop the shards of a group are that stand so, and how many turns of it they have done; none between loops.
    pub fn turn_of(&self, group: GroupId, state: &GroupState) -> Option<(LoopId, Turn)> {
        let code = &self.codes[group.index()];
        let inside = |&(outermost, site): &(LoopId, CutSite)| match site {
            CutSite::Again { begin, op, counter } if begin < state.at && state.at <= op => {
                Some((outermost, state.counters[counter as usize]))
            }
            CutSite::Jump { op, .. } => {
                let Op::Jump(begin) = code.ops[op as usize] else {
                    return None;
                };
                let Op::Enter(block) = code.ops[begin as usize] else {
                    return None;
                };
                let is_in = begin < state.at && state.at <= op;
                is_in.then(|| (outermost, state.entered[block as usize].saturating_sub(1)))
            }
            CutSite::Again { .. } | CutSite::Await { .. } => None,
        };
        code.sites.iter().find_map(inside)
    }

    /// By exchange, how many of its turns are over at a cut.
    pub fn turns_at(&self, states: &CutStates) -> Vec<Turn> {
        let spec = self.program.spec();
        let over = |(id, ends): (u32, &Option<super::ExchangePlan>)| {
            let Some(ends) = ends else { return 0 };
            let group = ends.destination.index();
            let takes = |stage, _| spec.takes_from(stage).contains(&ExchangeId(id));
            let place = self.codes[group].place(takes);
            let turns = place.map_or(0, |(op, block)| states.groups[group].times(op, block));
            turns + u64::from(brambling_memory::mutants::is_on("cuts-count-one-more"))
        };
        (0..).zip(&self.exchanges).map(over).collect()
    }

    /// By signal, how many of its outcomes are over at a cut.
    pub fn decided_at(&self, states: &CutStates) -> Vec<(StageId, Turn)> {
        let stages = (0..).zip(&self.program.spec().stages);
        let signals = stages.filter(|(_, stage)| stage.kind == StageKind::Signal);
        let decided = |(id, _): (u32, _)| {
            let group = self.group_of_stage[id as usize].index();
            let place = self.codes[group].place(|stage, _| stage == StageId(id));
            let turns = place.map_or(0, |(op, block)| states.groups[group].times(op, block));
            (StageId(id), turns)
        };
        signals.map(decided).collect()
    }

    /// Cells of a group that its shards may have written between two cuts, or since the start. An instruction that ran writes all that
    /// it may write, so this is never too few.
    pub fn written_between(
        &self,
        group: GroupId,
        from: Option<&GroupState>,
        to: &GroupState,
    ) -> Vec<u32> {
        let code = &self.codes[group.index()];
        let mut written = vec![false; self.groups[group.index()].datasets.len()];
        for (at, op) in code.ops.iter().enumerate() {
            let Op::Task { index, block } = *op else {
                continue;
            };
            let before = from.map_or(0, |from| from.times(at, block));
            if to.times(at, block) == before {
                continue;
            }
            let task = &code.tasks[index as usize];
            // A kernel that gets cells may put anything into them; what is freed is written.
            let writes = match task.wants_cells || task.action == Action::Free {
                true => &task.cells,
                false => &task.writes_cells,
            };
            writes
                .iter()
                .for_each(|cell| written[*cell as usize] = true);
        }
        (0..)
            .zip(written)
            .filter(|(_, is)| *is)
            .map(|(cell, _)| cell)
            .collect()
    }
}
