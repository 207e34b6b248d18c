//! A slice: one thread runs one shard until it stalls or has used up its share.
#![allow(unsafe_code)] // Calls kernels over erased pointers; the plan fixed their types.

use super::failure::Failure;
use super::job::{Body, Job, Resident};
use crate::shard::{Issue, Next, Surroundings};
use brambling_exchange::in_process::{Arrival, InProcess, LocalInbox, LocalOutbox};
use brambling_memory::Class;
use brambling_program::{
    Action, Context, ExchangeId, KernelError, LoopId, PieceSink, PieceSource, Position, Progress,
    Runner, StageId, StageKind, Task, Turn, Value,
};
use std::ptr::NonNull;
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
    Finished,
    Failed,
}

/// What a shard of this process sees.
struct Around<'a> {
    job: &'a Job,
    number: u32,
    index: u32,
    thread: u32,
}

impl<'a> Around<'a> {
    #[inline]
    fn exchange(&self, exchange: ExchangeId) -> &'a InProcess {
        self.job.exchanges[exchange.index()]
            .as_ref()
            .expect("an exchange with a stage has both")
    }
}

impl Surroundings for Around<'_> {
    #[inline]
    fn is_complete(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        self.exchange(exchange).is_complete(turn, self.index)
    }

    #[inline]
    fn has_room(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        self.exchange(exchange).has_room(turn, self.index)
    }

    #[inline]
    fn outcome(&mut self, signal: StageId, turn: Turn) -> Option<bool> {
        let board = self.job.boards[signal.index()]
            .as_ref()
            .expect("a signal has a board");
        board.outcome(turn, self.number as usize)
    }

    fn has_ended(&mut self, outermost: LoopId) -> bool {
        self.job.ends[outermost as usize]
            .outcome(0, self.number as usize)
            .is_some()
    }

    fn announce(&mut self, outermost: LoopId) {
        self.job.ends[outermost as usize]
            .publish(false, |shard| self.job.wake(shard as u32, self.thread));
    }
}

/// How many tasks the next slice may run: as many as fit its time, growing by at most a factor of 8.
pub(super) fn next_share(share: u32, tasks: u32, took_ns: u64) -> u32 {
    if tasks == 0 {
        return share;
    }
    let fitting = SLICE_NS.saturating_mul(u64::from(tasks)) / took_ns.max(1);
    fitting.clamp(1, u64::from(share.saturating_mul(8).min(SLICE_TASKS_MAX))) as u32
}

pub(super) struct Slice<'a> {
    job: &'a Job,
    resident: &'a Resident,
    number: u32,
    thread: u32,
    runner: Runner,
    pub(super) tasks: u32,
    pub(super) failure: Option<Box<Failure>>,
}

impl<'a> Slice<'a> {
    #[inline]
    pub(super) fn new(
        job: &'a Job,
        resident: &'a Resident,
        number: u32,
        thread: u32,
        runner: Runner,
    ) -> Self {
        Slice {
            job,
            resident,
            number,
            thread,
            runner,
            tasks: 0,
            failure: None,
        }
    }

    #[inline]
    pub(super) fn run(&mut self, body: &mut Body) -> End {
        let job = self.job;
        let code = &job.plan.codes[self.resident.group.index()];
        let mut around = Around {
            job,
            number: self.number,
            index: self.resident.index,
            thread: self.thread,
        };
        let completion = || job.completion(self.number);
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
        let end = loop {
            let issue = match body.shard.next(code, &mut around) {
                Next::Run(issue) => issue,
                Next::Stalled => break End::Stalled,
                Next::Yield => break End::UsedUp,
                Next::Finished => break End::Finished,
            };
            let task = &code.tasks[issue.task as usize];
            if task.runner != self.runner && matches!(task.action, Action::Stage(_)) {
                break End::Elsewhere(task.runner);
            }
            if left == 0 || job.stop.load(Ordering::Relaxed) {
                break End::UsedUp;
            }
            left -= 1;
            body.running = Some(Position {
                stage: task.stage,
                turn: issue.turn,
            });
            may_grow |= task.may_grow;
            match self.run_task(body, task, issue, &mut context) {
                Progress::Done => {
                    body.shard.retire(issue);
                    tasks += 1;
                }
                Progress::More => {}
                Progress::Pending => {
                    job.pending.fetch_add(1, Ordering::AcqRel);
                    body.shard.suspend(issue);
                }
                Progress::Failed => {
                    let error = context
                        .take_error()
                        .unwrap_or_else(|| "the kernel gave no reason".into());
                    self.failure = Some(Box::new(self.kernel_failure(task, issue, error)));
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
        body.shard.complete();
    }

    #[inline]
    fn run_task(
        &self,
        body: &mut Body,
        task: &Task,
        issue: Issue,
        context: &mut Context<'_>,
    ) -> Progress {
        let (Action::Stage(kind), Some(kernel)) = (task.action, &task.kernel) else {
            for cell in &task.cells {
                let cell = &mut body.cells[usize::from(*cell)];
                *cell = Value::default_of(cell.payload_type());
            }
            return Progress::Done;
        };
        let mut inline = [std::ptr::null_mut(); ARGS_INLINE];
        let mut long = Vec::new();
        let args: &mut [*mut u8] = if task.cells.len() <= ARGS_INLINE {
            &mut inline
        } else {
            long.resize(task.cells.len(), std::ptr::null_mut());
            &mut long
        };
        arguments(body, task, args);
        context.enter(Position {
            stage: task.stage,
            turn: issue.turn,
        });
        let zone = &self.job.stations[self.thread as usize].zone;
        let call = |context: &mut Context<'_>| {
            zone.leave();
            // SAFETY: the arguments are the declared cells, of the declared types; those written are unshared,
            // and the shard is run by this thread alone. Ports are of the exchange's piece type.
            let progress = unsafe { kernel.0.call(context, args.as_ptr()) };
            zone.enter();
            progress
        };
        match kind {
            StageKind::Compute => call(context),
            StageKind::Signal => {
                let progress = call(context);
                if progress == Progress::Done {
                    self.publish(task.stage, context.outcome());
                }
                progress
            }
            StageKind::Scatter(id) => {
                let exchange = self.exchange(id);
                let mut outbox = exchange.outbox(issue.turn, self.resident.index);
                // SAFETY: the outbox outlives the call.
                unsafe { context.lend_sink(erase(NonNull::from(&mut outbox))) };
                let progress = call(context);
                if progress != Progress::Done {
                    return cannot_continue(context, progress);
                }
                self.sent(context, id, exchange, issue.turn)
            }
            StageKind::Gather(id) => {
                let exchange = self.exchange(id);
                let mut inbox = exchange.inbox(issue.turn, self.resident.index);
                // SAFETY: the inbox outlives the call.
                unsafe { context.lend_source(erase_source(NonNull::from(&mut inbox))) };
                let progress = call(context);
                if progress != Progress::Done {
                    return cannot_continue(context, progress);
                }
                drop(inbox);
                let sources = self.ends(id).source;
                exchange.retire(issue.turn, self.resident.index, |source| {
                    self.wake(self.job.number(sources, source));
                });
                Progress::Done
            }
        }
    }

    #[inline]
    fn exchange(&self, id: ExchangeId) -> &'a InProcess {
        self.job.exchanges[id.index()]
            .as_ref()
            .expect("used by a stage")
    }

    #[inline]
    fn ends(&self, id: ExchangeId) -> &'a brambling_program::ExchangePlan {
        self.job.plan.exchanges[id.index()]
            .as_ref()
            .expect("used by a stage")
    }

    /// Tells a shard that something arrived. This very shard looks again anyway before its slice ends.
    #[inline]
    fn wake(&self, number: u32) {
        if number != self.number {
            self.job.wake(number, self.thread);
        }
    }

    fn publish(&self, signal: StageId, outcome: bool) {
        let board = self.job.boards[signal.index()]
            .as_ref()
            .expect("a signal has a board");
        board.publish(outcome, |shard| self.wake(shard as u32));
    }

    #[inline]
    fn sent(
        &self,
        context: &mut Context<'_>,
        id: ExchangeId,
        exchange: &InProcess,
        turn: Turn,
    ) -> Progress {
        let growth = exchange.growth(turn, self.resident.index);
        if growth != 0
            && let Err(error) = self.charge_pieces(growth)
        {
            let name = &self.job.plan.program.spec().exchanges[id.index()].name;
            return context.fail(
                KernelError::new(format!("pieces of exchange `{name}`: {error}"))
                    .with_source(error),
            );
        }
        exchange.sent(
            turn,
            self.resident.index,
            |number| {
                if self.job.belongs_to(number, self.thread) {
                    Arrival::Near
                } else {
                    Arrival::Far
                }
            },
            |number, arrival| match arrival {
                Arrival::Near => self.wake(number),
                Arrival::Far => self.job.post(number),
            },
        );
        Progress::Done
    }

    #[cold]
    fn charge_pieces(&self, growth: i64) -> Result<(), brambling_memory::OutOfMemory> {
        let (old, new) = if growth > 0 {
            (0, growth as u64)
        } else {
            (growth.unsigned_abs(), 0)
        };
        self.job.options.budget.adjust(Class::Exchange, old, new)?;
        self.job.exchange_bytes.fetch_add(growth, Ordering::Relaxed);
        Ok(())
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
                    source,
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

    fn kernel_failure(&self, task: &Task, issue: Issue, error: KernelError) -> Failure {
        let stage = self.stage_name(task.stage);
        Failure::Kernel {
            stage,
            partition: self.resident.index,
            turn: issue.turn,
            error,
        }
    }
}

/// Forgets how long the sink lives; the caller of `lend_sink` answers for that.
fn erase<'a>(sink: NonNull<LocalOutbox<'a>>) -> NonNull<dyn PieceSink> {
    let sink: NonNull<dyn PieceSink + 'a> = sink;
    // SAFETY: only the lifetime bound changes, not the layout.
    unsafe { std::mem::transmute::<NonNull<dyn PieceSink + 'a>, NonNull<dyn PieceSink>>(sink) }
}

/// As [`erase`], for a source.
fn erase_source<'a>(source: NonNull<LocalInbox<'a>>) -> NonNull<dyn PieceSource> {
    let source: NonNull<dyn PieceSource + 'a> = source;
    // SAFETY: only the lifetime bound changes, not the layout.
    unsafe {
        std::mem::transmute::<NonNull<dyn PieceSource + 'a>, NonNull<dyn PieceSource>>(source)
    }
}

/// Pointers to the kernel's arguments; what is written is unshared first.
#[inline]
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

/// A scatter or gather cannot be continued: its turn would be half sent or half taken.
#[cold]
fn cannot_continue(context: &mut Context<'_>, progress: Progress) -> Progress {
    if progress == Progress::Failed {
        return progress;
    }
    context.fail("a scatter or gather cannot return more or pending; split the stage".into())
}
