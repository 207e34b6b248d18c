//! Owns one shard's walk through its group's code, as an out-of-order processor does it: issue in
//! order, let what cannot run wait in a small window, go on with what does not depend on it
//! (Canary, §4.1 and 4.3). Slices ask it for the next task and report with [`Shard::retire`]. A
//! pure state machine: it asks [`Surroundings`] what has arrived, and never runs, sends or waits.

mod cut;
mod issue;
mod state;

pub use issue::{InOrder, Issue, IssueSlot, Next};
pub use state::{BadState, ShardState};

use brambling_memory::mutants;
use brambling_program::{
    Action, Code, ExchangeId, LoopId, Mask, Op, Position, ShardId, StageId, StageKind, Task, Turn,
};
use cut::DueCut;

/// How many stalled instructions a shard looks past.
pub const WINDOW: usize = 8;
/// Control instructions walked before the shard gives way, so that a long empty loop can be interrupted.
const STEPS_MAX: u32 = 4_096;

/// What a shard can see of the world around it.
///
/// An answer of "no" must be followed by a wake-up of the shard when it becomes "yes".
pub trait Surroundings {
    /// Whether all pieces of an exchange's turn have reached this shard.
    fn is_complete(&mut self, exchange: ExchangeId, turn: Turn) -> bool;
    /// Whether all destinations of this shard have room for its pieces of a turn.
    fn has_room(&mut self, exchange: ExchangeId, turn: Turn) -> bool;
    /// The outcome of a signal at a turn, once known here.
    fn outcome(&mut self, signal: StageId, turn: Turn) -> Option<bool>;
    /// Whether the end of an outermost loop has been announced.
    fn has_ended(&mut self, outermost: LoopId) -> bool;
    /// Announces the end of an outermost loop to everybody. May be called again.
    fn announce(&mut self, outermost: LoopId);
    /// The cut that whoever gave a signal's outcome at this turn has put before the next, unless it is void.
    fn cut_after(&mut self, _signal: StageId, _turn: Turn) -> Option<u64> {
        None
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    /// On what it needs, or on earlier entries.
    Arrival,
    /// On a completion that its kernel asked for.
    Completion,
}

/// A stalled instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    task: u32,
    turn: Turn,
    wait: Wait,
}

/// One index of one group, and where it stands in the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shard {
    id: ShardId,
    at: u32,
    /// How often each block has been entered.
    entered: Box<[u64]>,
    /// All of that together. Only grows.
    entered_sum: u64,
    counters: Box<[Counter]>,
    window: Vec<Entry>,
    /// The cut that it has been told of and has not saved.
    cut: Option<DueCut>,
}

/// A counted loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counter {
    /// Turns done.
    done: u64,
    /// After how many the shard looks up: those of the loop, or fewer where it has to save.
    bound: u64,
}

/// No turn done, of each loop of a group's code.
fn counters(code: &Code) -> Box<[Counter]> {
    let mut counters = vec![Counter::default(); code.counters as usize];
    for op in &code.ops {
        if let Op::Again { counter, turns, .. } = *op {
            counters[counter as usize].bound = turns;
        }
    }
    counters.into()
}

/// What came of a control instruction.
enum Walked {
    On,
    /// It waits.
    Waits,
    /// A cut was found that the shard has not been told of: it is told when its next slice begins.
    AtUntoldCut,
}

impl Shard {
    /// A shard at the start of its code.
    pub fn new(id: ShardId, code: &Code) -> Shard {
        Shard {
            id,
            at: 0,
            entered: vec![0; code.blocks as usize].into(),
            entered_sum: 0,
            counters: counters(code),
            window: Vec::with_capacity(WINDOW),
            cut: None,
        }
    }

    /// Which shard this is.
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// What to do next. Does not change what has been issued: until [`Shard::retire`] the answer stays.
    pub fn next(&mut self, code: &Code, around: &mut impl Surroundings) -> Next {
        let ready = |index: u32, turn| is_ready(&code.tasks[index as usize], turn, around);
        match self.next_in_order(code, ready) {
            InOrder::Run(index, turn) => Next::Run(Issue {
                task: index,
                turn,
                place: IssueSlot::InOrder,
            }),
            InOrder::Stalled => Next::Stalled,
            InOrder::Other => self.next_general(code, around),
        }
    }

    /// What to do next where that is the ordinary: a task that comes in order, while nothing is stalled. Such a task runs
    /// [in order](IssueSlot::InOrder). `is_ready` says whether it has what it needs from elsewhere.
    #[inline(always)]
    pub fn next_in_order(
        &mut self,
        code: &Code,
        is_ready: impl FnOnce(u32, Turn) -> bool,
    ) -> InOrder {
        if !self.window.is_empty() {
            return InOrder::Other;
        }
        let mut op = &code.ops[self.at as usize];
        if let Op::Again {
            counter,
            turns,
            block,
            body,
        } = *op
        {
            self.again((counter, turns), (block, body));
            op = &code.ops[self.at as usize];
        }
        let Op::Task { index, block } = *op else {
            return InOrder::Other;
        };
        let turn = self.turn(block);
        if is_ready(index, turn) {
            return InOrder::Run(index, turn);
        }
        // Compilation has looked whether anything behind this task could go ahead: where nothing
        // can, no window is begun.
        match code.tasks[index as usize].look_past {
            true => InOrder::Other,
            false => InOrder::Stalled,
        }
    }

    /// What to do next where [`Shard::next_in_order`] does not say it.
    pub fn next_general(&mut self, code: &Code, around: &mut impl Surroundings) -> Next {
        // Oldest first: tasks in the window come before the one that the shard stands at, and other
        // shards may wait for them.
        if let Some(issue) = self.ready_in_window(code, around, self.window.len()) {
            return Next::Run(issue);
        }
        for _ in 0..STEPS_MAX {
            if self.is_at_cut() {
                return self.next_at_cut(code);
            }
            match code.ops[self.at as usize] {
                Op::Task { index, block } => {
                    let task = &code.tasks[index as usize];
                    let turn = self.turn(block);
                    // A task that waits for a completion may take one place beyond the window. Then
                    // the window is full for every other task.
                    let all = self.window.len();
                    // Looked at even if the task could run: a stalled task before it may have to
                    // read what this one writes.
                    let free = all <= WINDOW && !self.is_blocked(code, task, all);
                    if free && is_ready(task, turn, around) {
                        return Next::Run(Issue {
                            task: index,
                            turn,
                            place: IssueSlot::InOrder,
                        });
                    }
                    // A full window stalls the shard: the walk must not run ahead without bound.
                    if self.window.len() >= WINDOW || (self.window.is_empty() && !task.look_past) {
                        return Next::Stalled;
                    }
                    self.stall(index, turn);
                }
                Op::Finish if self.window.is_empty() => return Next::Finished,
                Op::Finish => return Next::Stalled,
                control => match self.walk(control, around) {
                    Walked::On => {}
                    Walked::Waits => return Next::Stalled,
                    Walked::AtUntoldCut => return Next::Yield,
                },
            }
        }
        Next::Yield
    }

    /// At a cut: what stalls and writes comes first.
    #[cold]
    fn next_at_cut(&self, code: &Code) -> Next {
        match self.has_stalled_writers(code) {
            true => Next::Stalled,
            false => Next::Save,
        }
    }

    /// Looks past the task at hand.
    fn stall(&mut self, task: u32, turn: Turn) {
        self.window.push(Entry {
            task,
            turn,
            wait: Wait::Arrival,
        });
        self.at += 1;
    }

    /// Follows a control instruction.
    fn walk(&mut self, op: Op, around: &mut impl Surroundings) -> Walked {
        match op {
            Op::Enter(block) => {
                self.entered[block as usize] += 1;
                self.entered_sum = self.entered_sum.wrapping_add(1);
                self.at += 1;
            }
            Op::Begin {
                counter,
                turns,
                exit,
            } => {
                self.begin_loop(counter, turns);
                self.at = if turns == 0 { exit } else { self.at + 1 };
            }
            Op::Again {
                counter,
                turns,
                block,
                body,
            } => self.again((counter, turns), (block, body)),
            Op::Test {
                signal,
                block,
                exit,
            } => {
                let mut turn = self.turn(block);
                if mutants::is_on("stale-outcome") {
                    turn = turn.saturating_sub(1);
                }
                let Some(outcome) = around.outcome(signal, turn) else {
                    return Walked::Waits;
                };
                if outcome
                    && let Some(cut) = around.cut_after(signal, turn)
                    && !self.arm(cut)
                {
                    return Walked::AtUntoldCut;
                }
                self.at = if outcome { self.at + 1 } else { exit };
            }
            Op::Jump(to) => self.at = to,
            Op::Announce(outermost) => {
                // One shard of the group announces for all: each of them has walked the same turns.
                if self.id.index == 0 {
                    around.announce(outermost);
                }
                self.at += 1;
            }
            Op::AwaitEnd(outermost) => {
                if !around.has_ended(outermost) {
                    return Walked::Waits;
                }
                self.at += 1;
            }
            Op::Task { .. } | Op::Finish => unreachable!("handled by the caller"),
        }
        Walked::On
    }

    /// Ends a turn of a counted loop.
    #[inline(always)]
    fn again(&mut self, (counter, turns): (u32, u64), (block, body): (u32, u32)) {
        let place = counter as usize;
        let counter = &mut self.counters[place];
        let done = counter.done + 1;
        if done < counter.bound {
            counter.done = done;
            self.entered[block as usize] += 1;
            self.entered_sum = self.entered_sum.wrapping_add(1);
            self.at = body;
        } else {
            self.look_up(place, (done, turns));
        }
    }

    /// As many turns of a counted loop are done as the shard was to do without looking up: it leaves the loop, or has to save first and stays where it is.
    #[cold]
    #[inline(never)]
    fn look_up(&mut self, counter: usize, (done, turns): (u64, u64)) {
        if !self.is_at_cut() {
            assert!(done >= turns, "a shard looks up at a cut, or at the end");
            self.counters[counter].done = done;
            self.at += 1;
        }
    }

    #[inline]
    fn turn(&self, block: u32) -> Turn {
        self.entered[block as usize] - 1
    }

    /// The first stalled instruction that can run by now, of those before a place.
    fn ready_in_window(
        &self,
        code: &Code,
        around: &mut impl Surroundings,
        end: usize,
    ) -> Option<Issue> {
        (0..end).find_map(|place| {
            let Entry {
                task: index,
                turn,
                wait,
            } = self.window[place];
            let task = &code.tasks[index as usize];
            // A suspended task is called again only when its completion has come, whatever else has
            // come for it.
            let ready = wait == Wait::Arrival
                && !self.is_blocked(code, task, place)
                && is_ready(task, turn, around);
            ready.then_some(Issue {
                task: index,
                turn,
                place: IssueSlot::Window(place),
            })
        })
    }

    /// Whether a task must wait for one of the first `before` stalled ones: it reads what they write, writes
    /// what they read, or writes what they write (invariant 9).
    fn is_blocked(&self, code: &Code, task: &Task, before: usize) -> bool {
        let mut reads = Mask::default();
        let mut writes = Mask::default();
        for entry in &self.window[..before] {
            let stalled = &code.tasks[entry.task as usize];
            reads = reads.with(stalled.reads);
            writes = writes.with(stalled.writes);
        }
        // Three hazards: a read of what is still to be written, a write of what is still to be
        // read, and two writes in a row.
        let write_after_read = task.writes.meets(reads) && !mutants::is_on("write-overtakes-read");
        write_after_read || task.reads.meets(writes) || task.writes.meets(writes)
    }

    /// Ends an issued instruction: its position is done, and never comes again (invariant 7).
    #[inline]
    pub fn retire(&mut self, issue: Issue) {
        match issue.place {
            IssueSlot::InOrder => self.at += 1,
            IssueSlot::Window(_) if mutants::is_on("retired-twice") && issue.turn == 1 => {
                if let IssueSlot::Window(place) = issue.place {
                    self.window[place].turn += 1;
                }
            }
            IssueSlot::Window(place) => {
                // `remove` keeps the order of the other tasks, which is the program's.
                self.window.remove(place);
            }
        }
    }

    /// Lets an issued instruction wait for a completion; later ones that do not depend on it go ahead.
    pub fn suspend(&mut self, issue: Issue) {
        match issue.place {
            IssueSlot::InOrder => {
                // The window may be full: one place beyond it is for the instruction at hand.
                self.window.push(Entry {
                    task: issue.task,
                    turn: issue.turn,
                    wait: Wait::Completion,
                });
                self.at += 1;
            }
            IssueSlot::Window(place) => self.window[place].wait = Wait::Completion,
        }
    }

    /// The completion of a task has come: it may be called again. Whether it was suspended: what comes late, or twice, changes nothing, and no
    /// other task is called for it.
    pub fn complete(&mut self, code: &Code, at: Position) -> bool {
        // By stage and turn, not by place: the window may have moved since.
        let is_it = |it: &&mut Entry| {
            (it.wait, it.turn) == (Wait::Completion, at.turn)
                && code.tasks[it.task as usize].stage == at.stage
        };
        let entry = self.window.iter_mut().find(is_it);
        entry.map(|it| it.wait = Wait::Arrival).is_some()
    }

    /// What to do next of a shard that has to leave and is held by some of its tasks, which were called and are not done: these, and what stands
    /// before them in the program. They may wait for that, by way of other shards; nothing of it waits for what stands behind them.
    pub fn next_held(
        &self,
        code: &Code,
        around: &mut impl Surroundings,
        is_held: impl Fn(Position) -> bool,
    ) -> Option<Issue> {
        // An instruction that frees a dataset also bears a stage's name, and nothing holds it.
        let is_held = |task: u32, turn| {
            let task = &code.tasks[task as usize];
            let stage = task.stage;
            task.kernel.is_some() && is_held(Position { stage, turn })
        };
        if let Op::Task { index: task, block } = self.op(code) {
            let (turn, place) = (self.turn(block), IssueSlot::InOrder);
            if is_held(task, turn) {
                let before = self.ready_in_window(code, around, self.window.len());
                return before.or(Some(Issue { task, turn, place }));
            }
        }
        let is_held = |it: &Entry| is_held(it.task, it.turn);
        let last = self.window.iter().rposition(is_held)?;
        self.ready_in_window(code, around, last + 1)
    }

    /// Where the tasks stand that wait for their completions.
    pub fn suspended<'a>(&'a self, code: &'a Code) -> impl Iterator<Item = Position> {
        let suspended = self.window.iter().filter(|it| it.wait == Wait::Completion);
        suspended.map(|it| Position {
            stage: code.tasks[it.task as usize].stage,
            turn: it.turn,
        })
    }

    /// Whether any does.
    pub fn is_suspended(&self) -> bool {
        self.window.iter().any(|it| it.wait == Wait::Completion)
    }

    /// The stages that the shard waits in, oldest first, with their turns: for whoever asks why it stalls.
    pub fn stalled<'a>(&'a self, code: &'a Code) -> impl Iterator<Item = (&'a Task, Turn)> {
        self.window
            .iter()
            .map(|entry| (&code.tasks[entry.task as usize], entry.turn))
    }

    /// How many blocks of the program it has entered, the body of a loop once more for each turn. Only grows.
    pub fn entered(&self) -> u64 {
        self.entered_sum
    }

    /// The instruction that the shard stands at.
    pub fn op(&self, code: &Code) -> Op {
        code.ops[self.at as usize]
    }
}

/// Whether an instruction has what it needs from elsewhere.
#[inline]
fn is_ready(task: &Task, turn: Turn, around: &mut impl Surroundings) -> bool {
    match task.action {
        Action::Stage(StageKind::Compute | StageKind::Signal) | Action::Free => true,
        Action::Stage(StageKind::Gather(exchange)) => around.is_complete(exchange, turn),
        Action::Stage(StageKind::Scatter(exchange)) => around.has_room(exchange, turn),
        Action::Stage(StageKind::Stream(_)) => {
            let output = task.stream.as_ref().and_then(|it| it.output);
            output.is_none_or(|exchange| around.has_room(exchange, turn))
        }
    }
}
