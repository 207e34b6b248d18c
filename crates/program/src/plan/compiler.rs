//! Compiles a program's control flow: one walk over it makes the code of every group. A group's code has the loops and branches in which
//! it takes part, and those alone; so a lane enters them when it comes to the first of its stages there.

mod frees;
mod tasks;

use super::cuts::LoopTies;
use super::{Code, CutSite, LoopId, Op};
use crate::validate::Structure;
use crate::{BlockId, GroupId, Program, ProgramNode, Spec, StageId};

/// The code of one group as far as it is made.
#[derive(Default)]
struct Lane {
    code: Code,
    /// What it has entered of the path: the program's own block, and then one place for each frame.
    path: Vec<Entered>,
    /// The last outermost loop whose end it waits for.
    awaited: Option<LoopId>,
}

/// A block of the path that a lane has entered.
#[derive(Clone, Copy, Default)]
struct Entered {
    /// The block's local number.
    block: u32,
    /// Where its loop begins.
    begin: u32,
    /// Counter of a counted loop.
    counter: u32,
    /// The test to be told where its loop or side ends.
    leave: u32,
    /// The jump to be told where its branch ends.
    done: u32,
}

/// A loop or branch on the path from the program's own block to what is compiled now.
struct Frame {
    node: ProgramNode,
    /// Of a branch, whether its false side is compiled.
    otherwise: bool,
    /// The groups that have entered it.
    entered: Vec<GroupId>,
}

/// Compiles all groups' projections of a program.
pub(super) struct Compiler<'a> {
    program: &'a Program,
    spec: &'a Spec,
    structure: &'a Structure,
    lanes: Vec<Lane>,
    frames: Vec<Frame>,
    /// By block that is on the path, how deep it stands.
    depths: Vec<u32>,
    /// Outermost loops so far, and the last of them that has stages.
    loops: LoopId,
    ended: Option<LoopId>,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(program: &'a Program, structure: &'a Structure) -> Self {
        let spec = program.spec();
        let mut compiler = Compiler {
            program,
            spec,
            structure,
            lanes: structure.groups.iter().map(|_| Lane::default()).collect(),
            frames: Vec::new(),
            depths: vec![0; spec.blocks.len()],
            loops: 0,
            ended: None,
        };
        for lane in &mut compiler.lanes {
            let block = lane.enter();
            lane.path.push(Entered {
                block,
                ..Entered::default()
            });
        }
        compiler
    }

    /// The code of each group.
    pub(super) fn compile(mut self) -> Vec<Code> {
        // Found before anything is compiled: a dataset is freed after its last use, wherever in the
        // program that stands.
        let frees = frees::last_uses(self.spec);
        for (place, node) in self.spec.blocks[0].iter().enumerate() {
            self.node(*node);
            if matches!(node, ProgramNode::Repeat { .. } | ProgramNode::While { .. }) {
                // Outermost loops are counted for all groups, also for those that take no part:
                // their numbers name the same loop everywhere.
                self.loops += 1;
            }
            self.free(frees.at(place));
        }
        for group in 0..self.lanes.len() {
            // A shard does not finish before the last loop's end is announced: a snapshot may still
            // order a cut of it.
            self.await_ends(GroupId(group as u32));
            self.lanes[group].code.ops.push(Op::Finish);
        }
        let finished = |lane: Lane| {
            let mut code = lane.code;
            for at in 0..code.ops.len() {
                if let Op::Task { index, .. } = code.ops[at] {
                    // Asked only when all code is there: the instructions after a task decide.
                    code.tasks[index as usize].look_past = code.has_independent_after(at);
                }
            }
            code
        };
        self.lanes.into_iter().map(finished).collect()
    }

    fn block(&mut self, block: BlockId) {
        // How many frames lie around the block: a group's path has one entry for each of them.
        self.depths[block.index()] = self.frames.len() as u32;
        for index in 0..self.spec.blocks[block.index()].len() {
            self.node(self.spec.blocks[block.index()][index]);
        }
    }

    fn node(&mut self, node: ProgramNode) {
        if let ProgramNode::Stage(stage) = node {
            let group = self.structure.group_of_stage[stage.index()];
            self.reach(group);
            return self.stage(group, stage);
        }
        self.frames.push(Frame {
            node,
            otherwise: false,
            entered: Vec::new(),
        });
        match node {
            ProgramNode::Stage(_) => unreachable!("returned above"),
            ProgramNode::Repeat { body, .. } => self.block(body),
            ProgramNode::While { test, body, .. } => {
                // The group that decides enters the loop even if nothing of its body is its own:
                // without it nobody would test.
                self.reach(self.structure.group_of_stage[test.index()]);
                self.block(body);
            }
            ProgramNode::Branch {
                then, otherwise, ..
            } => {
                self.block(then);
                self.turn_to_otherwise();
                self.block(otherwise);
            }
        }
        let frame = self.frames.pop().expect("pushed above");
        for group in &frame.entered {
            // Only groups that entered: the others have no code for this node at all.
            let site = self.lanes[group.index()].leave(node);
            let is_outermost = self.frames.is_empty();
            if let Some(site) = site.filter(|_| is_outermost) {
                self.lanes[group.index()]
                    .code
                    .sites
                    .push((self.loops, site));
            }
        }
        if self.frames.is_empty() && !matches!(node, ProgramNode::Branch { .. }) {
            self.end_of_outermost(&frame.entered);
        }
    }

    /// The end of an outermost loop is announced by shard 0 of the lowest group that takes part; a loop
    /// without stages has nobody to announce it and ends by itself.
    fn end_of_outermost(&mut self, entered: &[GroupId]) {
        // One group announces: the least, so that all builds choose the same. Not one that runs
        // ahead of the others: a cut of the loop may still be ordered.
        let ties = LoopTies::of(self.spec, &self.structure.group_of_stage, self.loops);
        let tied = entered.iter().filter(|group| ties.has(**group)).min();
        let Some(announcer) = tied.or(entered.iter().min()) else {
            return;
        };
        let code = &mut self.lanes[announcer.index()].code;
        code.ops.push(Op::Announce(self.loops));
        self.ended = Some(self.loops);
    }

    /// Before anything else of its own, a group waits for the ends of the outermost loops before it. They end in order, because who
    /// announces one has waited for the others: it is enough to wait for the last.
    fn await_ends(&mut self, group: GroupId) {
        let lane = &mut self.lanes[group.index()];
        // Once for each loop: the newest end stands for those before, since loops end in order.
        if let Some(ended) = self.ended.filter(|_| lane.awaited != self.ended) {
            lane.code.ops.push(Op::AwaitEnd(ended));
            lane.awaited = self.ended;
        }
    }

    /// A group has something to do here: it enters what it has not entered yet of the path.
    fn reach(&mut self, group: GroupId) {
        // At the outermost level: inside a loop the group has waited when it entered.
        if self.lanes[group.index()].path.len() == 1 {
            self.await_ends(group);
        }
        // A group enters blocks only when it first has something to do there, so it needs no turns
        // of loops that it takes no part in.
        while let Some(frame) = self
            .frames
            .get_mut(self.lanes[group.index()].path.len() - 1)
        {
            frame.entered.push(group);
            let (node, otherwise) = (frame.node, frame.otherwise);
            self.enter(group, node);
            if otherwise {
                let ProgramNode::Branch { .. } = node else {
                    unreachable!("only branches have two sides")
                };
                self.lanes[group.index()].turn_to_otherwise();
            }
        }
    }

    /// A group enters a loop, or the true side of a branch.
    fn enter(&mut self, group: GroupId, node: ProgramNode) {
        let lane = &mut self.lanes[group.index()];
        let mut entered = Entered {
            begin: lane.here(),
            ..Entered::default()
        };
        match node {
            ProgramNode::Stage(_) => unreachable!("a stage is not entered"),
            ProgramNode::Repeat { turns, .. } => {
                entered.counter = lane.code.counters;
                lane.code.counters += 1;
                lane.code.ops.push(Op::Begin {
                    // The exit is filled in when the group leaves: the end is not known yet.
                    counter: entered.counter,
                    turns,
                    exit: 0,
                });
            }
            ProgramNode::While { test, .. } => {
                let block = lane.enter();
                // Groups that do not decide only read the outcome.
                if self.structure.group_of_stage[test.index()] == group {
                    self.stage_in(group, test, block);
                }
                let lane = &mut self.lanes[group.index()];
                entered.leave = lane.test(test, block);
            }
            ProgramNode::Branch { signal, .. } => {
                // The block of a signal encloses whatever depends on it, so the group has entered it.
                let block = self.local(group, self.spec.stages[signal.index()].block);
                let lane = &mut self.lanes[group.index()];
                entered.leave = lane.test(signal, block);
            }
        }
        let lane = &mut self.lanes[group.index()];
        entered.block = lane.enter();
        lane.path.push(entered);
    }

    /// The local number of a block that a group has entered.
    fn local(&self, group: GroupId, block: BlockId) -> u32 {
        let depth = self.depths[block.index()] as usize;
        self.lanes[group.index()].path[depth].block
    }

    /// The true side of the innermost branch is compiled, and the false one comes.
    fn turn_to_otherwise(&mut self) {
        let frame = self.frames.last_mut().expect("a branch is on the path");
        frame.otherwise = true;
        for group in &frame.entered {
            self.lanes[group.index()].turn_to_otherwise();
        }
    }
}

impl Lane {
    fn here(&self) -> u32 {
        self.code.ops.len() as u32
    }

    /// Enters a block and gives its local number.
    fn enter(&mut self) -> u32 {
        let local = self.code.blocks;
        self.code.blocks += 1;
        self.code.ops.push(Op::Enter(local));
        local
    }

    fn test(&mut self, signal: StageId, block: u32) -> u32 {
        let at = self.here();
        self.code.ops.push(Op::Test {
            signal,
            block,
            exit: 0,
        });
        at
    }

    fn turn_to_otherwise(&mut self) {
        // The jump over the second side is filled in by `leave`.
        let done = self.here();
        self.code.ops.push(Op::Jump(0));
        let leave = self.path.last().expect("a branch was entered").leave;
        self.patch(leave);
        let block = self.enter();
        let entered = self.path.last_mut().expect("as above");
        entered.done = done;
        entered.block = block;
    }

    /// Leaves the loop or branch that was entered last. Of a loop, where a turn of it ends.
    fn leave(&mut self, node: ProgramNode) -> Option<CutSite> {
        let entered = self.path.pop().expect("it was entered");
        match node {
            ProgramNode::Stage(_) => unreachable!("a stage is not entered"),
            ProgramNode::Repeat { turns, .. } => {
                let Entered {
                    block,
                    begin,
                    counter,
                    ..
                } = entered;
                self.code.ops.push(Op::Again {
                    counter,
                    turns,
                    block,
                    // After `Begin` and the `Enter` of the first turn: `Again` enters the block
                    // itself.
                    body: begin + 2,
                });
                let exit = self.here();
                self.code.ops[begin as usize] = Op::Begin {
                    counter,
                    turns,
                    exit,
                };
                let op = exit - 1;
                Some(CutSite::Again { begin, op, counter })
            }
            ProgramNode::While { .. } => {
                let (test, op) = (entered.leave, self.here());
                self.code.ops.push(Op::Jump(entered.begin));
                self.patch(entered.leave);
                Some(CutSite::Jump { test, op })
            }
            ProgramNode::Branch { .. } => {
                self.code.ops[entered.done as usize] = Op::Jump(self.here());
                None
            }
        }
    }

    fn patch(&mut self, at: u32) {
        let here = self.here();
        if let Op::Test { exit, .. } = &mut self.code.ops[at as usize] {
            *exit = here;
        }
    }
}
