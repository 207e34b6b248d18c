//! Compilation: a program with its partition counts bound becomes flat code per group.

use crate::validate::{self, Structure};
use crate::{
    BlockId, BuildError, Count, DatasetId, ExchangeId, Group, GroupId, Kernel, Links, Node,
    Program, Runner, Spec, StageId, StageKind, Use,
};
use std::sync::Arc;

/// Values of the program's symbols.
#[derive(Clone, Debug, Default)]
pub struct Bindings(Vec<(String, u32)>);

impl Bindings {
    /// The same with one more symbol bound.
    #[must_use]
    pub fn bind(mut self, symbol: impl Into<String>, count: u32) -> Self {
        self.0.push((symbol.into(), count));
        self
    }

    fn value(&self, spec: &Spec, dataset: &str, count: Count) -> Result<u32, BuildError> {
        let bound = match count {
            Count::Fixed(count) => count,
            Count::Symbol(symbol) => {
                let symbol = &spec.symbols[symbol as usize];
                let found = self.0.iter().rev().find(|(name, _)| name == symbol);
                found
                    .ok_or_else(|| BuildError::Unbound {
                        symbol: symbol.clone(),
                    })?
                    .1
            }
        };
        if bound == 0 {
            Err(BuildError::ZeroPartitions {
                dataset: dataset.to_owned(),
            })
        } else {
            Ok(bound)
        }
    }
}

/// A set over a group's resources: its datasets and its ends of exchanges. Beyond 128 resources some share
/// a bit, which orders more than is needed and never less.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mask(pub u128);

impl Mask {
    fn add(&mut self, resource: usize) {
        self.0 |= 1 << (resource % 128);
    }

    /// Whether two sets share a resource.
    #[inline]
    pub fn meets(self, other: Mask) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets together.
    #[inline]
    #[must_use]
    pub fn with(self, other: Mask) -> Mask {
        Mask(self.0 | other.0)
    }
}

/// What an instruction of flat code does to a shard's own data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Runs a stage.
    Stage(StageKind),
    /// Frees datasets after their last use.
    Free,
}

/// An instruction with everything that running it needs.
#[derive(Clone, Debug)]
pub struct Task {
    /// The stage; for a free, the last stage before it.
    pub stage: StageId,
    /// What it does.
    pub action: Action,
    /// Local number of the block whose turns name its positions.
    pub block: u16,
    /// Cells of the kernel's arguments.
    pub cells: Box<[u16]>,
    /// Cells that it writes.
    pub writes_cells: Box<[u16]>,
    /// Whether the kernel gets cells instead of payloads.
    pub wants_cells: bool,
    /// Who runs it.
    pub runner: Runner,
    /// Whether something after it may go ahead while it is stalled: found when the code is compiled.
    pub look_past: bool,
    /// Whether it may change how much memory its group's datasets take.
    pub may_grow: bool,
    /// Its kernel; a free has none.
    pub kernel: Option<Linked>,
    /// What it reads.
    pub reads: Mask,
    /// What it writes.
    pub writes: Mask,
}

/// A kernel as a function of this process.
#[derive(Clone)]
pub struct Linked(pub Arc<dyn Kernel>);

impl std::fmt::Debug for Linked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("kernel")
    }
}

/// Flat code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Runs a task, by its place in the group's tasks.
    Task(u32),
    /// Enters a block: its turn grows by one.
    Enter(u16),
    /// Starts a counted loop, or leaves for `exit` when it has no turns.
    Begin {
        /// Loop counter.
        counter: u16,
        /// How many turns.
        turns: u64,
        /// Where to go when there are none.
        exit: u32,
    },
    /// Ends a turn of a counted loop.
    Again {
        /// Loop counter.
        counter: u16,
        /// How many turns.
        turns: u64,
        /// Where the body starts.
        body: u32,
    },
    /// Waits for a signal and leaves for `exit` when it is false.
    Test {
        /// The signal.
        signal: StageId,
        /// Local number of the block whose turn names it.
        block: u16,
        /// Where to go.
        exit: u32,
    },
    /// Goes on elsewhere.
    Jump(u32),
    /// Tells everybody that an outermost loop has ended.
    Announce(LoopId),
    /// Waits until an outermost loop has ended.
    AwaitEnd(LoopId),
    /// The program has ended.
    Finish,
}

/// An outermost loop, by its place among them.
pub type LoopId = u32;

/// The code of one group.
#[derive(Clone, Debug, Default)]
pub struct Code {
    /// The instructions.
    pub ops: Vec<Op>,
    /// The tasks that they name.
    pub tasks: Vec<Task>,
    /// How many blocks it enters.
    pub blocks: u16,
    /// How many counted loops it has.
    pub counters: u16,
}

/// How many tasks after a stalled one are searched for one that does not depend on it.
const LOOK_PAST_TASKS: usize = 8;
/// How far all paths together are followed: in nested loops there are exponentially many.
const LOOK_PAST_STEPS: usize = 1_024;

impl Code {
    /// Whether some task soon after the one at `at` depends neither on it nor on what depends on it.
    fn has_independent_after(&self, at: usize) -> bool {
        let Op::Task(first) = self.ops[at] else {
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
                    Op::Task(task) => {
                        let task = &self.tasks[task as usize];
                        if !task.writes.meets(reads.with(writes)) && !task.reads.meets(writes) {
                            return true;
                        }
                        reads = reads.with(task.reads);
                        writes = writes.with(task.writes);
                        seen += 1;
                        at += 1;
                    }
                    Op::Begin { exit, .. } | Op::Test { exit, .. } => {
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
                    Op::AwaitEnd(_) | Op::Finish => break,
                }
            }
        }
        false
    }
}

/// An exchange with its ends.
#[derive(Clone, Debug)]
pub struct ExchangePlan {
    /// The group that sends.
    pub source: GroupId,
    /// The group that receives.
    pub destination: GroupId,
    /// Who may send to whom.
    pub links: Links,
}

/// A point at which no exchange is open: where a snapshot may be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// Before the first instruction.
    Start,
    /// The top of an outermost loop, at each of its turns.
    LoopTop(LoopId),
}

/// A compiled program, ready to be run by shards.
#[derive(Clone)]
pub struct Plan {
    /// The program.
    pub program: Arc<Program>,
    /// Its groups.
    pub groups: Vec<Group>,
    /// Group of each dataset.
    pub group_of_dataset: Vec<GroupId>,
    /// Group of each stage.
    pub group_of_stage: Vec<GroupId>,
    /// Partition count of each group.
    pub counts: Vec<u32>,
    /// Code of each group.
    pub codes: Vec<Code>,
    /// Ends of each exchange; none for one that is never used.
    pub exchanges: Vec<Option<ExchangePlan>>,
    /// How many outermost loops there are.
    pub loops: u32,
    /// Where snapshots may be taken.
    pub cuts: Vec<Cut>,
}

impl Plan {
    /// Validates a program, binds its partition counts and compiles it.
    ///
    /// # Errors
    /// What is wrong with the program, or a symbol that is not bound.
    pub fn compile(program: Arc<Program>, bindings: &Bindings) -> Result<Plan, BuildError> {
        program.validate()?;
        let spec = program.spec();
        let structure = validate::validate(spec)?;
        let counts = structure
            .groups
            .iter()
            .map(|group| {
                bindings.value(
                    spec,
                    &spec.datasets[group.datasets[0].index()].name,
                    group.count,
                )
            })
            .collect::<Result<Vec<u32>, _>>()?;
        let exchanges = link_exchanges(spec, &structure, &counts)?;
        let codes = (0..structure.groups.len())
            .map(|group| Compiler::new(&program, &structure, GroupId(group as u32)).compile())
            .collect();
        let is_loop = |node: &&Node| matches!(node, Node::Repeat { .. } | Node::While { .. });
        let loops = spec.blocks[0].iter().filter(is_loop).count() as u32;
        let cuts = find_cuts(spec);
        let Structure {
            groups,
            group_of_dataset,
            group_of_stage,
            ..
        } = structure;
        Ok(Plan {
            groups,
            group_of_dataset,
            group_of_stage,
            counts,
            codes,
            exchanges,
            loops,
            cuts,
            program,
        })
    }

    /// The cell of a dataset within its group's shards.
    pub fn cell(&self, dataset: DatasetId) -> usize {
        let group = &self.groups[self.group_of_dataset[dataset.index()].index()];
        group
            .datasets
            .binary_search(&dataset)
            .expect("a group holds its datasets in order")
    }
}

fn link_exchanges(
    spec: &Spec,
    structure: &Structure,
    counts: &[u32],
) -> Result<Vec<Option<ExchangePlan>>, BuildError> {
    let link = |(id, pair): (usize, &Option<(StageId, StageId)>)| {
        let Some((scatter, gather)) = *pair else {
            return Ok(None);
        };
        let source = structure.group_of_stage[scatter.index()];
        let destination = structure.group_of_stage[gather.index()];
        let links = validate::link(
            spec,
            ExchangeId(id as u32),
            counts[source.index()],
            counts[destination.index()],
        )?;
        Ok(Some(ExchangePlan {
            source,
            destination,
            links,
        }))
    };
    structure.exchanges.iter().enumerate().map(link).collect()
}

/// Scatter and gather stand in one block, so an exchange that is open at a point of the program's own
/// block was opened in that block.
fn find_cuts(spec: &Spec) -> Vec<Cut> {
    let mut cuts = vec![Cut::Start];
    let (mut open, mut loops) = (0usize, 0);
    for node in &spec.blocks[0] {
        match node {
            Node::Stage(stage) => match spec.stages[stage.index()].kind {
                StageKind::Scatter(_) => open += 1,
                StageKind::Gather(_) => open -= 1,
                StageKind::Compute | StageKind::Signal => {}
            },
            Node::Repeat { .. } | Node::While { .. } => {
                if open == 0 {
                    cuts.push(Cut::LoopTop(loops));
                }
                loops += 1;
            }
            Node::Branch { .. } => {}
        }
    }
    cuts
}

/// Compiles one group's projection of the program.
struct Compiler<'a> {
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
    fn new(program: &'a Program, structure: &'a Structure, group: GroupId) -> Self {
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

    fn compile(mut self) -> Code {
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
            if let Op::Task(task) = self.code.ops[at] {
                self.code.tasks[task as usize].look_past = self.code.has_independent_after(at);
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
        let body = self.here();
        self.block(block);
        self.code.ops.push(Op::Again {
            counter,
            turns,
            body,
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

    fn stage(&mut self, id: StageId) {
        let stage = &self.spec.stages[id.index()];
        let datasets = &self.structure.groups[self.group.index()].datasets;
        let (mut reads, mut writes) = (Mask::default(), Mask::default());
        let (mut cells, mut writes_cells) = (Vec::new(), Vec::new());
        for &(dataset, how) in &stage.uses {
            // Under a mutant that splits groups a dataset may be missing; cell 0 then stands for it.
            let cell = datasets.binary_search(&dataset).unwrap_or(0);
            cells.push(cell as u16);
            if how == Use::Read {
                reads.add(cell);
            } else {
                writes.add(cell);
                writes_cells.push(cell as u16);
            }
        }
        match stage.kind {
            // Each end of an exchange runs in order of turns.
            StageKind::Scatter(exchange) => writes.add(datasets.len() + 2 * exchange.index()),
            StageKind::Gather(exchange) => writes.add(datasets.len() + 2 * exchange.index() + 1),
            StageKind::Compute | StageKind::Signal => {}
        }
        if stage.cells {
            // A kernel that gets cells may share the payloads it reads: nobody else reads meanwhile.
            writes = writes.with(reads);
        }
        let task = Task {
            stage: id,
            action: Action::Stage(stage.kind),
            block: self.locals[stage.block.index()].expect("a stage's block has been entered"),
            cells: cells.into(),
            writes_cells: writes_cells.into(),
            wants_cells: stage.cells,
            runner: self.spec.kernels[stage.kernel.index()].runner,
            look_past: false,
            may_grow: stage.uses.iter().any(|(dataset, how)| {
                *how != Use::Read && !self.program.payload_type(*dataset).is_fixed()
            }),
            kernel: Some(Linked(self.program.kernel(id).clone())),
            reads,
            writes,
        };
        self.push(task);
    }

    fn free(&mut self, datasets: &[DatasetId]) {
        let own = &self.structure.groups[self.group.index()].datasets;
        let cells: Box<[u16]> = datasets
            .iter()
            .map(|dataset| own.binary_search(dataset).expect("the group's own") as u16)
            .collect();
        let mut writes = Mask::default();
        cells.iter().for_each(|cell| writes.add(usize::from(*cell)));
        let stage = self.code.tasks.last().map_or(StageId(0), |task| task.stage);
        self.push(Task {
            stage,
            action: Action::Free,
            block: 0,
            writes_cells: cells.clone(),
            cells,
            wants_cells: true,
            runner: Runner::Native,
            look_past: false,
            may_grow: true,
            kernel: None,
            reads: Mask::default(),
            writes,
        });
    }

    fn push(&mut self, task: Task) {
        self.code.ops.push(Op::Task(self.code.tasks.len() as u32));
        self.code.tasks.push(task);
    }
}
