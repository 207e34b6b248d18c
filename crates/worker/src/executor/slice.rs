//! A slice: one thread runs one shard until it stalls or has used up its share.
#![allow(unsafe_code)] // Calls kernels over erased pointers; the plan fixed their types.

mod around;
mod exchanging;

pub(super) use around::Lack;
pub(super) use exchanging::watch_for;

use super::failure::Failure;
use super::job::{Body, Job, Resident, Station};
use super::watch::Watches;
use crate::node::NodeError;
use crate::shard::{Issue, Next};
use around::Around;
use brambling_memory::{Class, OutOfMemory};
use brambling_program::{
    Action, Context, Kernel, KernelError, Position, Progress, Runner, StageId, StageKind, Task,
    Turn, Value,
};
use exchanging::told;
use std::sync::atomic::Ordering;

/// How long a slice should take: long against a reading of the clock, short against a user's patience.
const SLICE_NS: u64 = 100_000;
const SLICE_TASKS_MAX: u32 = 1 << 16;
const ARGS_INLINE: usize = 8;

/// Why a slice ended.
pub(super) enum End {
    Stalled,
    UsedUp,
    /// The next task is for another kind of thread.
    Elsewhere(Runner),
    /// The shard moves to another worker: no task of it starts here any more.
    Leaving,
    Finished,
    Failed,
}

/// How many tasks the next slice may run: as many as fit its time, growing by at most a factor of 8.
pub(super) fn next_share(share: u32, tasks: u32, took_ns: u64) -> u32 {
    if tasks == 0 {
        return share;
    }
    let fitting = SLICE_NS.saturating_mul(u64::from(tasks)) / took_ns.max(1);
    fitting.clamp(1, u64::from(share.saturating_mul(8).min(SLICE_TASKS_MAX))) as u32
}

pub(super) struct Slice<'a, 's> {
    job: &'a Job,
    station: &'a Station,
    resident: &'a Resident,
    number: u32,
    thread: u32,
    runner: Runner,
    /// What the thread looks at for its stalled shards.
    watches: &'s mut Watches<'a>,
    pub(super) tasks: u32,
    pub(super) failure: Option<Box<Failure>>,
}

impl<'a, 's> Slice<'a, 's> {
    #[inline]
    pub(super) fn new(
        job: &'a Job,
        number: u32,
        thread: u32,
        runner: Runner,
        watches: &'s mut Watches<'a>,
    ) -> Self {
        Slice {
            job,
            station: &job.stations[thread as usize],
            resident: &job.residents[number as usize],
            number,
            thread,
            runner,
            watches,
            tasks: 0,
            failure: None,
        }
    }

    #[inline]
    pub(super) fn run(&mut self, body: &mut Body, lacks: &mut Vec<Lack<'a>>) -> End {
        let job = self.job;
        let slices = &self.resident.slices;
        slices.store(
            slices.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
        let code = &job.plan.codes[self.resident.group.index()];
        let mut around = Around {
            job,
            number: self.number,
            index: self.resident.index,
            thread: self.thread,
            lacks,
        };
        let number = self.number;
        let completion = || job.completion(number);
        let partitions = job.plan.counts[self.resident.group.index()];
        let seed = job.plan.program.spec().seed;
        let mut context = Context::new(
            self.resident.index,
            partitions,
            seed,
            &job.stop,
            &completion,
        );
        let mut may_grow = false;
        let mut left = body.slice_tasks;
        let mut tasks = 0;
        if self.resident.completions.load(Ordering::Acquire) > 0 {
            self.complete(body);
        }
        let ties = job.ties.as_deref();
        let end = loop {
            around.lacks.clear();
            if ties.is_some_and(|ties| ties.is_leaving(number)) {
                break End::Leaving;
            }
            // Taken apart, and put together where it is needed, so that it stays in registers.
            let (index, turn, place) = match body.shard.next(code, &mut around) {
                Next::Run(Issue { task, turn, place }) => (task, turn, place),
                Next::Stalled => {
                    self.watch(lacks);
                    break End::Stalled;
                }
                Next::Yield => break End::UsedUp,
                Next::Finished => break End::Finished,
            };
            let issue = || Issue {
                task: index,
                turn,
                place,
            };
            let task = &code.tasks[index as usize];
            if task.runner != self.runner && matches!(task.action, Action::Stage(_)) {
                break End::Elsewhere(task.runner);
            }
            if left == 0 || job.stop.load(Ordering::Relaxed) {
                break End::UsedUp;
            }
            left -= 1;
            body.running = Some(Position {
                stage: task.stage,
                turn,
            });
            may_grow |= task.may_grow;
            match self.run_task(body, task, turn, &mut context) {
                Progress::Done => {
                    body.shard.retire(issue());
                    tasks += 1;
                }
                Progress::More => {}
                Progress::Pending => {
                    job.pending.fetch_add(1, Ordering::AcqRel);
                    body.pending += 1;
                    body.shard.suspend(issue());
                }
                Progress::Failed => {
                    let error = context
                        .take_error()
                        .unwrap_or_else(|| "the kernel gave no reason".into());
                    self.failure = Some(Box::new(self.kernel_failure(task, turn, error)));
                    if context.has_seen_cancellation() {
                        // Nothing of its own went wrong.
                        body.running = None;
                    }
                    return End::Failed;
                }
            }
        };
        self.tasks = tasks;
        if may_grow && let Err(failure) = self.charge(body) {
            self.failure = Some(Box::new(failure));
            return End::Failed;
        }
        end
    }

    #[cold]
    fn complete(&self, body: &mut Body) {
        let arrived = self.resident.completions.swap(0, Ordering::AcqRel);
        self.job
            .pending
            .fetch_sub(arrived as usize, Ordering::AcqRel);
        body.pending -= arrived;
        body.shard.complete();
    }

    #[inline(always)]
    fn run_task(
        &mut self,
        body: &mut Body,
        task: &Task,
        turn: Turn,
        context: &mut Context<'_>,
    ) -> Progress {
        let (Action::Stage(kind), Some(kernel)) = (task.action, &task.kernel) else {
            for cell in &task.cells {
                let cell = &mut body.cells[usize::from(*cell)];
                *cell = Value::default_of(cell.payload_type());
            }
            return Progress::Done;
        };
        let at = Position {
            stage: task.stage,
            turn,
        };
        context.enter(at);
        let kernel = &*kernel.0;
        if task.cells.len() > ARGS_INLINE {
            return self.run_with_many(kind, body, task, at, context);
        }
        let mut args = [std::ptr::null_mut(); ARGS_INLINE];
        arguments(body, task, &mut args);
        self.run_stage(kind, at, kernel, args.as_ptr(), context)
    }

    /// As [`Slice::run_task`], for more arguments than are usual.
    #[cold]
    #[inline(never)]
    fn run_with_many(
        &mut self,
        kind: StageKind,
        body: &mut Body,
        task: &Task,
        at: Position,
        context: &mut Context<'_>,
    ) -> Progress {
        let mut args = vec![std::ptr::null_mut(); task.cells.len()];
        arguments(body, task, &mut args);
        let kernel = task.kernel.as_ref().expect("the caller saw it");
        self.run_stage(kind, at, &*kernel.0, args.as_ptr(), context)
    }

    /// Runs a stage, and what it needs before and after its kernel.
    #[inline(always)]
    fn run_stage(
        &mut self,
        kind: StageKind,
        at: Position,
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let turn = at.turn;
        match kind {
            StageKind::Compute => self.call(kernel, args, context),
            StageKind::Scatter(id) => self.scatter(id, turn, kernel, args, context),
            StageKind::Gather(id) => self.gather(id, turn, kernel, args, context),
            StageKind::Signal => match self.call(kernel, args, context) {
                Progress::Done => self.publish(at, context),
                progress => progress,
            },
        }
    }

    /// Calls a kernel, outside of the zone.
    #[inline(always)]
    fn call(
        &self,
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let zone = &self.station.zone;
        zone.leave();
        // SAFETY: the arguments are the declared cells, of the declared types; those written are unshared,
        // and the shard is run by this thread alone. Ports are of the exchange's piece type.
        let progress = unsafe { kernel.call(context, args) };
        zone.enter();
        progress
    }

    fn publish(&self, at: Position, context: &mut Context<'_>) -> Progress {
        let outcome = context.outcome();
        if let Some(ties) = &self.job.ties {
            let said = ties.decided(self.job, at, outcome);
            return told(context, said);
        }
        let board = self.job.boards[at.stage.index()]
            .as_ref()
            .expect("a signal has a board");
        board.publish(outcome, |shard| self.wake(shard as u32));
        Progress::Done
    }

    /// Tells the budget what the shard's cells take by now.
    fn charge(&self, body: &mut Body) -> Result<(), Failure> {
        let bytes: u64 = body.cells.iter().map(|cell| cell.bytes() as u64).sum();
        if bytes == body.charged_bytes {
            return Ok(());
        }
        self.job
            .options
            .budget
            .adjust(Class::Resident, body.charged_bytes, bytes)
            .map_err(|source| {
                let stage = body
                    .running
                    .map_or_else(String::new, |at| self.stage_name(at.stage));
                Failure::OutOfMemory {
                    stage,
                    partition: self.resident.index,
                    exchange: None,
                    source,
                    spill: None,
                }
            })?;
        body.charged_bytes = bytes;
        Ok(())
    }

    fn stage_name(&self, stage: StageId) -> String {
        self.job.plan.program.spec().stages[stage.index()]
            .name
            .clone()
    }

    #[cold]
    fn kernel_failure(&self, task: &Task, turn: Turn, error: KernelError) -> Failure {
        let cause = std::error::Error::source(&error);
        // Of `pieces_error`.
        if let Some(source) = cause.and_then(|cause| cause.downcast_ref::<OutOfMemory>()) {
            let index = self.resident.index;
            return self.job.no_room_for_pieces(task.stage, index, *source);
        }
        let stage = self.stage_name(task.stage);
        // Of `told`.
        if let Some(error) = cause.and_then(|cause| cause.downcast_ref::<NodeError>()) {
            let stage = match task.action {
                Action::Stage(StageKind::Gather(_)) => "return of spilled pieces",
                _ => &stage,
            };
            let at = Some((stage, self.resident.index));
            return self.job.refusal(at, error.clone());
        }
        Failure::Kernel {
            stage,
            partition: self.resident.index,
            turn,
            error,
        }
    }
}

/// Pointers to the kernel's arguments; what is written is unshared first.
#[inline(always)]
fn arguments(body: &mut Body, task: &Task, args: &mut [*mut u8]) {
    if task.wants_cells {
        for (arg, cell) in args.iter_mut().zip(&task.cells) {
            *arg = (&raw mut body.cells[usize::from(*cell)]).cast();
        }
        return;
    }
    for cell in &task.writes_cells {
        body.cells[usize::from(*cell)].make_unique();
    }
    for (arg, cell) in args.iter_mut().zip(&task.cells) {
        *arg = body.cells[usize::from(*cell)].as_ptr();
    }
}
