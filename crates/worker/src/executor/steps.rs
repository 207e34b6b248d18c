//! Owns what running each task of a shard needs, found once: its kernel, its end of an exchange,
//! and where its arguments lie. Slices ask it before each task. It never runs a kernel, and never
//! keeps an address beyond the round in which it was found.
//!
//! # Why what was found holds
//! A kernel and an end belong to the job, in which the shard lies, and never change. Arguments change their places
//! when a value that others see is copied before it is written, when a kernel is lent cells and may put other
//! values there, and when datasets are freed. Each of these begins a round, and what was found in an earlier one
//! is found anew.
#![allow(unsafe_code)] // Keeps erased pointers to values, and references into the job that keeps the shard.

use super::job::Job;
use brambling_exchange::in_process::{DestinationEnd, InProcess, SourceEnd};
use brambling_memory::mutants;
use brambling_program::{
    Action, Code, ExchangeId, Kernel, Runner, ShardId, StageId, StageKind, Task, Value,
};
use std::sync::Arc;

/// The tasks of one shard, as its code numbers them.
pub(super) struct Steps {
    list: Box<[Step]>,
    /// Pointers to arguments, task by task.
    args: Box<[*mut u8]>,
    /// Which round it is, from 1.
    round: u64,
}

/// One task of one shard.
pub(super) struct Step {
    /// The round in which its arguments were found; 0 for never.
    round: u64,
    /// Place of its first argument.
    start: usize,
    /// None where it frees.
    pub(super) kernel: Option<&'static dyn Kernel>,
    pub(super) way: StepKind,
    pub(super) stage: StageId,
    pub(super) runner: Runner,
    pub(super) may_grow: bool,
}

/// What a task does besides calling its kernel.
#[derive(Clone, Copy)]
pub(super) enum StepKind {
    /// Nothing.
    Plain,
    /// Tells an outcome.
    Signal,
    /// Writes to places, always from the same end.
    Scatter(ExchangeId, SourceEnd<'static>),
    /// Reads from places, always at the same end, into which only their sources write.
    Gather(ExchangeId, DestinationEnd<'static>),
    /// The same, where some of it may come through the mailbox, and others hear of it.
    GatherRemote(ExchangeId, DestinationEnd<'static>),
    /// Scatters otherwise.
    ScatterGeneral(ExchangeId, GatherKeeper),
    /// Gathers otherwise.
    GatherGeneral(ExchangeId, GatherKeeper),
    /// Is called until it has ended, and perhaps sends to this exchange.
    Stream(Option<ExchangeId>),
}

/// Who keeps the pieces of a shard's end of an exchange that is no fixed one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GatherKeeper {
    /// Places; which depends on the turn.
    Slots,
    /// Its mailbox, and stamps say when what sources here send lies there.
    Stamped,
    /// Its mailbox alone.
    Mailbox,
}

// SAFETY: the pointers are to the values of the shard's cells, which are Send; whoever has the shard has both. What is
// referred to of the job is Sync.
unsafe impl Send for Steps {}

impl Steps {
    /// The steps of a shard, for a body that will lie in this job. One that has come by a move lives by its mailbox alone.
    pub(super) fn new(job: &Job, shard: ShardId) -> Steps {
        let code = &job.plan.codes[shard.group.index()];
        Steps::of(&code.tasks, |task| way(job, shard, task))
    }

    fn of(tasks: &[Task], way: impl Fn(&Task) -> StepKind) -> Steps {
        let mut start = 0;
        let step = |task: &Task| {
            let step = Step {
                round: 0,
                start,
                // SAFETY: the job drops its bodies before its plan, and the plan does not change.
                kernel: (task.kernel.as_ref()).map(|kernel| unsafe { &*Arc::as_ptr(&kernel.0) }),
                way: way(task),
                stage: task.stage,
                runner: task.runner,
                may_grow: task.may_grow,
            };
            start += task.cells.len();
            step
        };
        Steps {
            list: tasks.iter().map(step).collect(),
            args: vec![std::ptr::null_mut(); start].into(),
            round: 1,
        }
    }

    /// Values have moved: all addresses are found anew.
    pub(super) fn find_anew(&mut self) {
        self.round += 1;
    }

    /// A task, by its number.
    #[inline(always)]
    pub(super) fn at(&self, index: u32) -> &Step {
        &self.list[index as usize]
    }

    /// A task, and pointers to its kernel's arguments; what the kernel writes is unshared. They hold until the next
    /// round.
    #[inline(always)]
    pub(super) fn ready(
        &mut self,
        index: u32,
        code: &Code,
        cells: &mut [Value],
    ) -> (&Step, *const *mut u8) {
        let step = &mut self.list[index as usize];
        // One comparison for each task: addresses hold until some value has moved.
        if step.round != self.round {
            let task = &code.tasks[index as usize];
            find(step, &mut self.args, &mut self.round, task, cells);
        }
        // SAFETY: there are as many pointers as the tasks have arguments together.
        (step, unsafe { self.args.as_ptr().add(step.start) })
    }
}

#[cold]
#[inline(never)]
fn find(step: &mut Step, args: &mut [*mut u8], round: &mut u64, task: &Task, cells: &mut [Value]) {
    let args = &mut args[step.start..];
    if task.wants_cells {
        // The kernel gets the cells themselves and may put other values into them. Addresses that
        // other tasks have found do not hold afterwards, nor do these.
        *round += 1;
        for (arg, cell) in args.iter_mut().zip(&task.cells) {
            *arg = (&raw mut cells[*cell as usize]).cast();
        }
        return;
    }
    for cell in &task.writes_cells {
        let cell = &mut cells[*cell as usize];
        if cell.is_shared() && !mutants::is_on("writers-copy-nothing") {
            // `make_unique` moves the value, for every task that uses the cell.
            cell.make_unique();
            *round += 1;
        }
    }
    for (arg, cell) in args.iter_mut().zip(&task.cells) {
        *arg = cells[*cell as usize].as_ptr();
    }
    step.round = *round;
}

fn way(job: &Job, shard: ShardId, task: &Task) -> StepKind {
    let kind = match task.action {
        Action::Stage(kind) => kind,
        Action::Free => return StepKind::Plain,
    };
    let exchange = |id| {
        // SAFETY: the job drops its bodies before its exchanges, which lie in boxes and are never replaced.
        unsafe { &*std::ptr::from_ref::<InProcess>(job.exchange(id)) }
    };
    let at = shard.index;
    let number = job.number(shard.group, at);
    match kind {
        StageKind::Compute => StepKind::Plain,
        StageKind::Signal => StepKind::Signal,
        StageKind::Stream(_) => StepKind::Stream(task.stream.as_ref().and_then(|it| it.output)),
        StageKind::Scatter(id) => {
            let exchange = exchange(id);
            match (
                exchange.serves(at) && !job.has_moved(number),
                exchange.is_steady(),
            ) {
                (true, true) => {
                    StepKind::Scatter(id, exchange.source(0, at).expect("it is served"))
                }
                (true, false) => StepKind::ScatterGeneral(id, GatherKeeper::Slots),
                (false, _) => StepKind::ScatterGeneral(id, GatherKeeper::Mailbox),
            }
        }
        StageKind::Gather(id) => {
            let exchange = exchange(id);
            let by = job.gathers_by(id, number);
            match (by, exchange.destination(0, at), &job.remote) {
                (GatherKeeper::Slots, Some(end), None) if exchange.is_steady() => {
                    StepKind::Gather(id, end)
                }
                (GatherKeeper::Slots, Some(end), _) if exchange.is_steady() => {
                    StepKind::GatherRemote(id, end)
                }
                (by, ..) => StepKind::GatherGeneral(id, by),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::Mask;

    /// Tasks with cells, of which they write some. The first arguments of each.
    struct Shard {
        code: Code,
        steps: Steps,
        cells: Vec<Value>,
    }

    impl Shard {
        fn new(tasks: &[(&[u32], &[u32], bool)]) -> Shard {
            let task = |&(cells, writes, wants_cells): &(&[u32], &[u32], bool)| Task {
                stage: StageId(0),
                action: Action::Stage(StageKind::Compute),
                block: 0,
                cells: cells.into(),
                writes_cells: writes.into(),
                wants_cells,
                runner: Runner::Native,
                look_past: false,
                may_grow: false,
                kernel: None,
                stream: None,
                reads: Mask::default(),
                writes: Mask::default(),
            };
            let code = Code {
                tasks: tasks.iter().map(task).collect(),
                ..Code::default()
            };
            Shard {
                steps: Steps::of(&code.tasks, |_| StepKind::Plain),
                code,
                cells: vec![Value::new(1u64), Value::new(2u64)],
            }
        }

        fn args(&mut self, index: u32) -> Vec<*mut u8> {
            let count = self.code.tasks[index as usize].cells.len();
            let (_, args) = self.steps.ready(index, &self.code, &mut self.cells);
            // SAFETY: as many as the task has cells.
            (0..count).map(|at| unsafe { *args.add(at) }).collect()
        }
    }

    #[test]
    fn a_value_copied_for_one_task_is_found_by_the_others() {
        let mut shard = Shard::new(&[(&[0, 1], &[], false), (&[0], &[0], false)]);
        let handle = shard.cells[0].share::<u64>().unwrap();
        let seen = shard.args(0);
        assert_eq!(seen, [shard.cells[0].as_ptr(), shard.cells[1].as_ptr()]);
        let written = shard.args(1);
        assert_ne!(written[0], seen[0], "others see what was written");
        assert_eq!(shard.args(0), [written[0], seen[1]]);
        assert_eq!(shard.args(1), written);
        assert_eq!(*handle, 1);
    }

    #[test]
    fn a_value_that_was_shared_for_a_save_is_found_anew() {
        let mut shard = Shard::new(&[(&[0], &[], false), (&[0], &[0], false)]);
        let owned = shard.args(0);
        let saved = shard.cells[0].share_any();
        shard.steps.find_anew();
        // Sharing has moved it; who writes copies it, and what was saved stays.
        let shared = shard.args(0);
        assert_eq!(shared, [saved.as_ptr()]);
        assert_ne!(shared, owned);
        let written = shard.args(1);
        assert_ne!(written, shared);
        assert_eq!(shard.args(0), written);
        assert_eq!(saved.get::<u64>(), Some(&1));
    }

    #[test]
    fn what_a_kernel_put_into_its_cells_is_found_by_all() {
        let mut shard = Shard::new(&[(&[0], &[], false), (&[0], &[0], true)]);
        let before = shard.args(0);
        // Kept, so that no address comes twice.
        let mut old = Vec::new();
        for _ in 0..2 {
            let cells = shard.args(1);
            assert_eq!(cells, [(&raw mut shard.cells[0]).cast::<u8>()]);
            // As such a kernel would, from its second run on as well.
            old.push(std::mem::replace(&mut shard.cells[0], Value::new(3u64)));
            assert_eq!(shard.args(0), [shard.cells[0].as_ptr()]);
            assert_ne!(shard.args(0), before);
        }
        // Shared again by such a kernel: whoever writes copies it once more.
        let mut shard = Shard::new(&[(&[0], &[0], false), (&[0], &[0], true)]);
        shard.args(0);
        shard.args(1);
        let handle = shard.cells[0].share::<u64>().unwrap();
        assert_ne!(
            shard.args(0),
            [std::ptr::from_ref(&*handle).cast_mut().cast()]
        );
        assert_eq!(*handle, 1);
    }
}
