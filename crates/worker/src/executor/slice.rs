//! A slice: one thread runs one shard until it stalls or has used up its share.
#![allow(unsafe_code)] // Calls kernels over erased pointers; the plan fixed their types.

use super::failure::Failure;
use super::job::{Body, Job, Resident};
use super::watch::{Watch, Watches};
use crate::node::{self, NodeError, Taken};
use crate::pieces::{PieceMap, PieceQueue};
use crate::shard::{Issue, Next, Surroundings};
use brambling_exchange::in_process::{Heard, InProcess, Mark};
use brambling_memory::{Class, OutOfMemory};
use brambling_program::{
    Action, Context, DecodeError, ExchangeId, KernelError, LoopId, Pieces, Position, Progress,
    Runner, ShardId, Sink, StageId, StageKind, Task, Turn, Value,
};
use std::error::Error;
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

/// What a shard of this process sees.
struct Around<'a, 's> {
    job: &'a Job,
    number: u32,
    index: u32,
    thread: u32,
    lacks: &'s mut Vec<Lack<'a>>,
}

/// What a stalled gather lacks.
#[derive(Clone, Copy)]
pub(super) struct Lack<'a> {
    pub(super) exchange: ExchangeId,
    pub(super) turn: Turn,
    pub(super) source: u32,
    pub(super) mark: Mark<'a>,
}

impl Around<'_, '_> {
    fn shard(&self) -> ShardId {
        self.job.residents[self.number as usize].id()
    }
}

impl Surroundings for Around<'_, '_> {
    #[inline]
    fn is_complete(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        if let Some(ties) = &self.job.ties {
            let ask = |around: &mut node::Around<'_>| around.is_complete(exchange, turn);
            return ties.around(self.job, self.shard(), ask);
        }
        let in_process = self.job.exchange(exchange);
        let phase = in_process.phase(turn);
        match in_process.heard(turn, phase, self.index) {
            Heard::All => true,
            Heard::Missing { mark: None, .. } => false,
            Heard::Missing {
                source,
                mark: Some(mark),
            } => {
                self.lacks.push(Lack {
                    exchange,
                    turn,
                    source,
                    mark,
                });
                false
            }
        }
    }

    #[inline]
    fn has_room(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        if let Some(ties) = &self.job.ties {
            let ask = |around: &mut node::Around<'_>| around.has_room(exchange, turn);
            return ties.around(self.job, self.shard(), ask);
        }
        self.job.exchange(exchange).has_room(turn, self.index)
    }

    #[inline]
    fn outcome(&mut self, signal: StageId, turn: Turn) -> Option<bool> {
        if let Some(ties) = &self.job.ties {
            let ask = |around: &mut node::Around<'_>| around.outcome(signal, turn);
            return ties.around(self.job, self.shard(), ask);
        }
        let board = self.job.boards[signal.index()]
            .as_ref()
            .expect("a signal has a board");
        board.outcome(turn, self.number as usize)
    }

    fn has_ended(&mut self, outermost: LoopId) -> bool {
        if let Some(ties) = &self.job.ties {
            let ask = |around: &mut node::Around<'_>| around.has_ended(outermost);
            return ties.around(self.job, self.shard(), ask);
        }
        self.job.ends[outermost as usize]
            .outcome(0, self.number as usize)
            .is_some()
    }

    fn announce(&mut self, outermost: LoopId) {
        if let Some(ties) = &self.job.ties {
            return ties.announce(self.job, self.shard(), outermost);
        }
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

pub(super) struct Slice<'a, 's> {
    job: &'a Job,
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
            let issue = match body.shard.next(code, &mut around) {
                Next::Run(issue) => issue,
                Next::Stalled => {
                    self.watch(lacks);
                    break End::Stalled;
                }
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
                    body.pending += 1;
                    body.shard.suspend(issue);
                }
                Progress::Failed => {
                    let error = context
                        .take_error()
                        .unwrap_or_else(|| "the kernel gave no reason".into());
                    self.failure = Some(Box::new(self.kernel_failure(task, issue, error)));
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

    /// Has the home thread look at what sources elsewhere owe the shard. A guest goes home by mail.
    #[inline]
    fn watch(&mut self, lacks: &[Lack<'a>]) {
        if self.job.homes[self.number as usize] == self.thread {
            for lack in lacks {
                watch_for(self.job, self.watches, self.number, *lack);
            }
        }
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

    #[inline]
    fn run_task(
        &mut self,
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
                    return self.publish(task.stage, issue.turn, context);
                }
                progress
            }
            StageKind::Scatter(id) if self.job.ties.is_some() => {
                self.scatter_far(id, issue.turn, context, call)
            }
            StageKind::Gather(id) if self.job.ties.is_some() => {
                self.gather_far(id, issue.turn, context, call)
            }
            StageKind::Scatter(id) => {
                let exchange = self.job.exchange(id);
                let (index, phase) = (self.resident.index, exchange.phase(issue.turn));
                let mut begun = None;
                let mut sink = exchange.outbox(issue.turn, phase, index, &mut begun);
                // SAFETY: the sink outlives the call.
                unsafe { context.lend_sink(&mut sink) };
                let progress = call(context);
                if progress != Progress::Done {
                    return cannot_continue(context, progress);
                }
                let charged = match exchange.finish(issue.turn, phase, index, &mut begun) {
                    Ok(0) => Ok(()),
                    Ok(growth) => self.charge_pieces(growth),
                    Err(error) => Err(error),
                };
                if let Err(error) = charged {
                    return context.fail(pieces_error(error));
                }
                self.sent(exchange, id, issue.turn, phase);
                Progress::Done
            }
            StageKind::Gather(id) => {
                let exchange = self.job.exchange(id);
                let (index, phase) = (self.resident.index, exchange.phase(issue.turn));
                let mut letters = None;
                let mut pieces = exchange.inbox(issue.turn, phase, index, &mut letters);
                // SAFETY: the pieces outlive the call.
                unsafe { context.lend_source(&mut pieces) };
                let progress = call(context);
                if progress != Progress::Done {
                    return cannot_continue(context, progress);
                }
                // What it held is given back before its sources hear of room.
                drop(letters);
                exchange.retire(issue.turn, index, |source| {
                    self.wake(self.job.number(self.job.ends(id).source, source));
                });
                Progress::Done
            }
        }
    }

    /// A scatter whose destinations may be on other workers.
    #[inline(never)]
    fn scatter_far(
        &self,
        id: ExchangeId,
        turn: Turn,
        context: &mut Context<'_>,
        call: impl FnOnce(&mut Context<'_>) -> Progress,
    ) -> Progress {
        let (job, shard) = (self.job, self.resident.id());
        let links = &job.ends(id).links;
        let places = 0..links.fan_out(turn, shard.index);
        let related = places.map(|place| links.destination(turn, shard.index, place).0);
        let ties = job.ties.as_ref().expect("the caller saw them");
        let mut pieces = PieceMap::new(shard.index, related, ties.spares(id));
        let mut sink = Sink::Other(&mut pieces);
        // SAFETY: the sink outlives the call.
        unsafe { context.lend_sink(&mut sink) };
        let progress = call(context);
        if progress != Progress::Done {
            return cannot_continue(context, progress);
        }
        let said = ties.scattered(job, shard, (id, turn), pieces.sent());
        told(context, said)
    }

    /// A gather whose sources may be on other workers.
    #[inline(never)]
    fn gather_far(
        &self,
        id: ExchangeId,
        turn: Turn,
        context: &mut Context<'_>,
        call: impl FnOnce(&mut Context<'_>) -> Progress,
    ) -> Progress {
        let (job, shard) = (self.job, self.resident.id());
        let ties = job.ties.as_ref().expect("the caller saw them");
        let spares = ties.spares(id);
        let value = |(source, taken): (u32, Taken)| {
            let value = taken.into_value(spares);
            value.map(|value| (source, value))
        };
        let taken = match ties.take(shard, (id, turn)) {
            Ok(taken) => taken,
            Err(error) => return told(context, Err(error)),
        };
        let mut pieces = match taken.into_iter().map(value).collect() {
            Ok(pieces) => PieceQueue::new(pieces),
            Err(error) => {
                let error: DecodeError = error;
                return told(context, Err(error));
            }
        };
        let mut source = Pieces::Other(&mut pieces);
        // SAFETY: the pieces outlive the call.
        unsafe { context.lend_source(&mut source) };
        let progress = call(context);
        if progress != Progress::Done {
            return cannot_continue(context, progress);
        }
        pieces.into_values().for_each(|value| spares.put(value));
        let said = ties.gathered(job, shard, (id, turn));
        told(context, said)
    }

    /// Tells a shard that something arrived. This very shard looks again anyway before its slice ends.
    #[inline]
    fn wake(&self, number: u32) {
        if number != self.number {
            self.job.wake(number, self.thread);
        }
    }

    fn publish(&self, stage: StageId, turn: Turn, context: &mut Context<'_>) -> Progress {
        let outcome = context.outcome();
        if let Some(ties) = &self.job.ties {
            let said = ties.decided(self.job, Position { stage, turn }, outcome);
            return told(context, said);
        }
        let board = self.job.boards[stage.index()]
            .as_ref()
            .expect("a signal has a board");
        board.publish(outcome, |shard| self.wake(shard as u32));
        Progress::Done
    }

    /// Ends the shard's turn of an exchange, and tells its destinations.
    #[inline]
    fn sent(&mut self, exchange: &'a InProcess, id: ExchangeId, turn: Turn, phase: usize) {
        let (job, me, index) = (self.job, self.thread, self.resident.index);
        // Nobody looks at the marks of a shard that runs as a guest.
        let must_wake = job.homes[self.number as usize] != me || exchange.must_wake();
        let (number, watches) = (self.number, &mut *self.watches);
        let is_near = |number| job.belongs_to(number, me);
        exchange.sent(turn, phase, index, is_near, |to, heard| match heard {
            None => {
                if must_wake || job.needs_mail(to) {
                    job.post(to);
                }
            }
            // This very shard looks again anyway before its slice ends.
            Some(_) if to == number => {}
            // SAFETY: inside our own zone, and the reference ends here.
            Some(Heard::All) => unsafe { job.ready(me) }.insert(to),
            Some(Heard::Missing { source, mark }) => {
                let lack = mark.map(|mark| Lack {
                    exchange: id,
                    turn,
                    source,
                    mark,
                });
                if let Some(lack) = lack.filter(|_| job.homes[to as usize] == me) {
                    watch_for(job, watches, to, lack);
                }
            }
        });
    }

    #[cold]
    fn charge_pieces(&self, growth: i64) -> Result<(), OutOfMemory> {
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
    fn kernel_failure(&self, task: &Task, issue: Issue, error: KernelError) -> Failure {
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
            turn: issue.turn,
            error,
        }
    }
}

/// Has a shard's home thread, which the caller is, look at the mark that the shard lacks; unless the source has
/// the same home: it will look for itself what the shard lacks.
#[inline]
pub(super) fn watch_for<'a>(job: &'a Job, watches: &mut Watches<'a>, number: u32, lack: Lack<'a>) {
    let resident = &job.residents[number as usize];
    let source = job.number(job.ends(lack.exchange).source, lack.source);
    if job.homes[source as usize] != job.homes[number as usize] {
        watches.add(Watch {
            mark: lack.mark,
            exchange: lack.exchange,
            turn: lack.turn,
            number,
            slices: resident.slices.load(Ordering::Relaxed),
        });
    }
}

#[cold]
fn pieces_error(error: OutOfMemory) -> KernelError {
    KernelError::new(error.to_string()).with_source(error)
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

/// A task has run, and its node was told: if that refuses it, the task has failed.
fn told(
    context: &mut Context<'_>,
    said: Result<(), impl Error + Send + Sync + 'static>,
) -> Progress {
    match said {
        Ok(()) => Progress::Done,
        Err(error) => context.fail(KernelError::new(error.to_string()).with_source(error)),
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
