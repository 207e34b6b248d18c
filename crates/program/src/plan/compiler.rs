//! Compiles one group's projection of a program: its control flow.

mod tasks;

use super::{Code, LoopId, Op};
use crate::validate::Structure;
use crate::{BlockId, DatasetId, GroupId, Node, Program, Spec, StageId};

/// Compiles one group's projection of the program.
pub(super) struct Compiler<'a> {
    program: &'a Program,
    spec: &'a Spec,
    structure: &'a Structure,
    group: GroupId,
    code: Code,
    /// Local number of each block that the group enters.
    locals: Vec<Option<u16>>,
    loops: LoopId,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(program: &'a Program, structure: &'a Structure, group: GroupId) -> Self {
        let spec = program.spec();
        Compiler {
            program,
            spec,
            structure,
            group,
            code: Code::default(),
            locals: vec![None; spec.blocks.len()],
            loops: 0,
        }
    }

    pub(super) fn compile(mut self) -> Code {
        self.enter(Spec::ROOT);
        let mut frees = self.last_uses();
        for (place, node) in self.spec.blocks[0].iter().enumerate() {
            self.node(*node, true);
            if let Some(datasets) = frees.get_mut(place).filter(|list| !list.is_empty()) {
                let datasets = std::mem::take(datasets);
                self.free(&datasets);
            }
        }
        self.code.ops.push(Op::Finish);
        for at in 0..self.code.ops.len() {
            if let Op::Task { index, .. } = self.code.ops[at] {
                self.code.tasks[index as usize].look_past = self.code.has_independent_after(at);
            }
        }
        self.code
    }

    /// For each node of the program's own block, the group's datasets whose last use it is.
    fn last_uses(&self) -> Vec<Vec<DatasetId>> {
        let root = &self.spec.blocks[0];
        let mut last = vec![Vec::new(); root.len()];
        for &dataset in &self.structure.groups[self.group.index()].datasets {
            let uses = |stage: StageId| {
                self.spec.stages[stage.index()]
                    .uses
                    .iter()
                    .any(|(used, _)| *used == dataset)
            };
            let place = root.iter().rposition(|node| self.any_stage(*node, &uses));
            if let (Some(place), false) = (place, self.spec.datasets[dataset.index()].keep) {
                last[place].push(dataset);
            }
        }
        last
    }

    fn any_stage(&self, node: Node, test: &impl Fn(StageId) -> bool) -> bool {
        let block = |block: BlockId| {
            self.spec.blocks[block.index()]
                .iter()
                .any(|node| self.any_stage(*node, test))
        };
        match node {
            Node::Stage(stage) => test(stage),
            Node::Repeat { body, .. } => block(body),
            Node::While {
                test: stage, body, ..
            } => test(stage) || block(body),
            Node::Branch {
                then, otherwise, ..
            } => block(then) || block(otherwise),
        }
    }

    fn takes_part(&self, node: Node) -> bool {
        self.any_stage(node, &|stage| {
            self.structure.group_of_stage[stage.index()] == self.group
        })
    }

    fn node(&mut self, node: Node, outermost: bool) {
        let takes_part = self.takes_part(node);
        match node {
            Node::Stage(stage) if takes_part => self.stage(stage),
            Node::Stage(_) => {}
            Node::Repeat { turns, body } => {
                if takes_part {
                    self.repeat(turns, body);
                }
                if outermost {
                    self.end_of_outermost(node);
                }
            }
            Node::While {
                test_block,
                test,
                body,
            } => {
                if takes_part {
                    self.repeat_while(test_block, test, body);
                }
                if outermost {
                    self.end_of_outermost(node);
                }
            }
            Node::Branch {
                signal,
                then,
                otherwise,
            } if takes_part => self.branch(signal, then, otherwise),
            Node::Branch { .. } => {}
        }
    }

    /// The end of an outermost loop is announced by shard 0 of the lowest group that takes part; a loop
    /// without stages has nobody to announce it and ends by itself.
    fn end_of_outermost(&mut self, node: Node) {
        let announcer = (0..self.structure.groups.len()).find(|&group| {
            self.any_stage(node, &|stage| {
                self.structure.group_of_stage[stage.index()].index() == group
            })
        });
        if let Some(announcer) = announcer {
            if announcer == self.group.index() {
                self.code.ops.push(Op::Announce(self.loops));
            }
            self.code.ops.push(Op::AwaitEnd(self.loops));
        }
        self.loops += 1;
    }

    fn block(&mut self, block: BlockId) {
        self.enter(block);
        for index in 0..self.spec.blocks[block.index()].len() {
            self.node(self.spec.blocks[block.index()][index], false);
        }
    }

    fn enter(&mut self, block: BlockId) {
        let local = self.code.blocks;
        self.locals[block.index()] = Some(local);
        self.code.blocks += 1;
        self.code.ops.push(Op::Enter(local));
    }

    fn here(&self) -> u32 {
        self.code.ops.len() as u32
    }

    fn repeat(&mut self, turns: u64, block: BlockId) {
        let counter = self.code.counters;
        self.code.counters += 1;
        let begin = self.here() as usize;
        self.code.ops.push(Op::Begin {
            counter,
            turns,
            exit: 0,
        });
        self.block(block);
        self.code.ops.push(Op::Again {
            counter,
            turns,
            block: self.locals[block.index()].expect("entered above"),
            body: begin as u32 + 2,
        });
        self.code.ops[begin] = Op::Begin {
            counter,
            turns,
            exit: self.here(),
        };
    }

    fn repeat_while(&mut self, test_block: BlockId, test: StageId, body: BlockId) {
        let top = self.here();
        self.enter(test_block);
        if self.structure.group_of_stage[test.index()] == self.group {
            self.stage(test);
        }
        let leave = self.test(test, test_block);
        self.block(body);
        self.code.ops.push(Op::Jump(top));
        self.patch(leave);
    }

    fn branch(&mut self, signal: StageId, then: BlockId, otherwise: BlockId) {
        let block = self.spec.stages[signal.index()].block;
        let leave = self.test(signal, block);
        self.block(then);
        let done = self.here() as usize;
        self.code.ops.push(Op::Jump(0));
        self.patch(leave);
        self.block(otherwise);
        self.code.ops[done] = Op::Jump(self.here());
    }

    fn test(&mut self, signal: StageId, block: BlockId) -> usize {
        let at = self.here() as usize;
        // The block of a signal encloses whatever depends on it, so the group has entered it.
        let block = self.locals[block.index()].expect("a signal is given before it is tested");
        self.code.ops.push(Op::Test {
            signal,
            block,
            exit: 0,
        });
        at
    }

    fn patch(&mut self, at: usize) {
        let here = self.here();
        if let Op::Test { exit, .. } = &mut self.code.ops[at] {
            *exit = here;
        }
    }
}
