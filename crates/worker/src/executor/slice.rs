//! A slice: one thread runs one shard until it stalls or has used up its share.
#![allow(unsafe_code)] // Calls kernels over erased pointers; the plan fixed their types.

use super::failure::Failure;
use super::job::{Body, Job, Resident};
use super::panics;
use super::tally::{ThreadTally, count};
use crate::shard::{Issue, Next, Surroundings};
use brambling_exchange::in_process::InProcess;
use brambling_memory::Class;
use brambling_program::{
    Action, Code, Completion, Context, ExchangeId, LoopId, PieceSource, Position, Progress, Runner,
    StageId, StageKind, Task, Turn, Value,
};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// How long a slice should take: long against its one clock reading, short against a user's patience.
const SLICE_NS: u64 = 100_000;
const SLICE_TASKS_MAX: u32 = 1 << 16;
const ARGS_INLINE: usize = 8;

/// Why a slice ended.
enum End {
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
        self.job.ends[outermost as usize].publish(false, |shard| self.job.wake(shard as u32));
    }
}

impl Job {
    /// Runs a queued shard for a slice on a thread. `from` is when the thread last looked at the clock; the
    /// result is when it did now.
    pub(super) fn run_slice(&self, number: u32, thread: u32, from: Instant) -> Instant {
        let resident = &self.residents[number as usize];
        let tally = &self.tallies[thread as usize];
        resident.word.start();
        count(&tally.pulse, 1);
        // SAFETY: this thread took the shard from its queue and set its word to running: nobody else
        // touches the body until the word leaves that state, below.
        let body = unsafe { &mut *resident.body.get() };
        let runner = if thread == self.threads() {
            Runner::Caller
        } else {
            Runner::Native
        };
        let mut slice = Slice {
            job: self,
            resident,
            number,
            runner,
            tasks: 0,
            failure: None,
        };
        let end = match panics::catch(|| slice.run(body)) {
            Ok(end) => end,
            Err((message, location)) => {
                slice.failure = Some(slice.panic(body, message, location));
                End::Failed
            }
        };
        let (tasks, failure) = (slice.tasks, slice.failure);
        let now = Instant::now();
        let took_ns = now.duration_since(from).as_nanos() as u64;
        body.slice_tasks = next_share(body.slice_tasks, tasks, took_ns);
        record(tally, tasks, took_ns);
        self.leave(resident, number, end, failure);
        now
    }

    /// Decides where a shard goes after its slice. Its body must not be touched any more.
    fn leave(&self, resident: &Resident, number: u32, end: End, failure: Option<Failure>) {
        match end {
            End::Stalled if resident.word.idle() => {}
            End::Stalled | End::UsedUp => self.requeue(resident, number, resident.home),
            End::Elsewhere(Runner::Native) => self.requeue(resident, number, resident.home),
            End::Elsewhere(Runner::Caller) => self.requeue(resident, number, self.threads()),
            End::Finished => {
                resident.word.done();
                self.finish_one();
            }
            End::Failed => {
                resident.word.done();
                self.fail(failure.expect("a failed slice has a failure"));
            }
        }
    }

    fn requeue(&self, resident: &Resident, number: u32, thread: u32) {
        resident.word.requeue();
        self.enqueue(number, thread);
    }
}

fn record(tally: &ThreadTally, tasks: u32, took_ns: u64) {
    count(&tally.tasks, u64::from(tasks));
    count(&tally.slices, 1);
    count(&tally.busy_ns, took_ns);
    count(&tally.pulse, 1);
}

/// How many tasks the next slice may run: as many as fit its time, growing by at most a factor of 8.
fn next_share(share: u32, tasks: u32, took_ns: u64) -> u32 {
    if tasks == 0 {
        return share;
    }
    let fitting = SLICE_NS.saturating_mul(u64::from(tasks)) / took_ns.max(1);
    fitting.clamp(1, u64::from(share.saturating_mul(8).min(SLICE_TASKS_MAX))) as u32
}

struct Slice<'a> {
    job: &'a Job,
    resident: &'a Resident,
    number: u32,
    runner: Runner,
    tasks: u32,
    failure: Option<Failure>,
}

impl<'a> Slice<'a> {
    fn run(&mut self, body: &mut Body) -> End {
        let job = self.job;
        let code = &job.plan.codes[self.resident.group.index()];
        let mut around = Around {
            job,
            number: self.number,
            index: self.resident.index,
        };
        let completion = || job.completion(self.number);
        let mut context = self.context(&completion);
        let mut written = 0u128;
        let mut left = body.slice_tasks;
        if self.resident.completions.load(Ordering::Acquire) > 0 {
            let arrived = self.resident.completions.swap(0, Ordering::AcqRel);
            job.pending.fetch_sub(arrived as usize, Ordering::AcqRel);
            body.shard.complete();
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
            if left == 0 {
                break End::UsedUp;
            }
            left -= 1;
            body.running = Some(Position {
                stage: task.stage,
                turn: issue.turn,
            });
            written |= task.writes.0;
            match self.run_task(body, task, issue, &mut context, &completion) {
                Progress::Done => {
                    body.shard.retire(issue);
                    self.tasks += 1;
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
                    self.failure = Some(self.kernel_failure(code, task, issue, error));
                    return End::Failed;
                }
            }
        };
        if written != 0
            && let Err(failure) = self.charge(body)
        {
            self.failure = Some(failure);
            return End::Failed;
        }
        end
    }

    fn context<'c>(&self, completion: &'c dyn Fn() -> Completion) -> Context<'c>
    where
        'a: 'c,
    {
        let partitions = self.job.plan.counts[self.resident.group.index()];
        let seed = self.job.plan.program.spec().seed;
        Context::new(
            self.resident.index,
            partitions,
            seed,
            &self.job.stop,
            completion,
        )
    }

    #[inline]
    fn run_task(
        &self,
        body: &mut Body,
        task: &Task,
        issue: Issue,
        context: &mut Context<'_>,
        completion: &dyn Fn() -> Completion,
    ) -> Progress {
        let Action::Stage(kind) = task.action else {
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
        let kernel = &self.job.plan.program.kernel(task.stage);
        let at = Position {
            stage: task.stage,
            turn: issue.turn,
        };
        match kind {
            StageKind::Compute => {
                context.enter(at);
                // SAFETY: the arguments are the declared cells, of the declared types; those written are
                // unshared, and the shard is run by this thread alone.
                unsafe { kernel.call(context, args.as_ptr()) }
            }
            StageKind::Signal => {
                context.enter(at);
                // SAFETY: as above.
                let progress = unsafe { kernel.call(context, args.as_ptr()) };
                if progress == Progress::Done {
                    let board = self.job.boards[task.stage.index()]
                        .as_ref()
                        .expect("a signal has a board");
                    board.publish(context.outcome(), |shard| self.job.wake(shard as u32));
                }
                progress
            }
            StageKind::Scatter(exchange) => {
                let exchange_local = self.job.exchanges[exchange.index()]
                    .as_ref()
                    .expect("used by a stage");
                let mut outbox = exchange_local.outbox(issue.turn, self.resident.index);
                let mut own = self.context(completion);
                own.enter(at);
                own.set_sink(&mut outbox);
                // SAFETY: as above; the sink's pieces are of the declared type.
                let progress = unsafe { kernel.call(&mut own, args.as_ptr()) };
                if progress != Progress::Done {
                    return settle(context, own, progress);
                }
                self.sent(context, exchange, exchange_local, issue.turn)
            }
            StageKind::Gather(exchange) => {
                let exchange_local = self.job.exchanges[exchange.index()]
                    .as_ref()
                    .expect("used by a stage");
                let mut inbox = exchange_local.inbox(issue.turn, self.resident.index);
                let mut own = self.context(completion);
                own.enter(at);
                own.set_source(&mut inbox as &mut dyn PieceSource);
                // SAFETY: as above; the source's pieces are of the declared type.
                let progress = unsafe { kernel.call(&mut own, args.as_ptr()) };
                if progress != Progress::Done {
                    return settle(context, own, progress);
                }
                drop(inbox);
                let sources = self.job.plan.exchanges[exchange.index()]
                    .as_ref()
                    .expect("used by a stage")
                    .source;
                exchange_local.retire(issue.turn, self.resident.index, |source| {
                    self.job.wake(self.job.number(sources, source));
                });
                Progress::Done
            }
        }
    }

    fn sent(
        &self,
        context: &mut Context<'_>,
        id: ExchangeId,
        exchange: &InProcess,
        turn: Turn,
    ) -> Progress {
        let growth = exchange.growth(turn, self.resident.index);
        if growth != 0 {
            let (old, new) = if growth > 0 {
                (0, growth as u64)
            } else {
                ((-growth) as u64, 0)
            };
            if let Err(error) = self.job.options.budget.adjust(Class::Exchange, old, new) {
                let name = &self.job.plan.program.spec().exchanges[id.index()].name;
                return context.fail(format!("pieces of exchange `{name}`: {error}").into());
            }
            self.job.exchange_bytes.fetch_add(growth, Ordering::Relaxed);
        }
        let destinations = self.job.plan.exchanges[id.index()]
            .as_ref()
            .expect("used by a stage")
            .destination;
        exchange.sent(turn, self.resident.index, |destination| {
            self.job.wake(self.job.number(destinations, destination));
        });
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

    fn kernel_failure(
        &self,
        _: &Code,
        task: &Task,
        issue: Issue,
        error: brambling_program::KernelError,
    ) -> Failure {
        Failure::Kernel {
            stage: self.stage_name(task.stage),
            partition: self.resident.index,
            turn: issue.turn,
            error,
        }
    }

    fn panic(&self, body: &Body, message: String, location: Option<String>) -> Failure {
        let at = body.running.expect("a panic comes from a task");
        Failure::Panic {
            stage: self.stage_name(at.stage),
            partition: self.resident.index,
            turn: at.turn,
            message,
            location,
        }
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
fn settle(context: &mut Context<'_>, mut own: Context<'_>, progress: Progress) -> Progress {
    match own.take_error() {
        Some(error) => context.fail(error),
        None if progress == Progress::Failed => Progress::Failed,
        None => context
            .fail("a scatter or gather cannot return more or pending; split the stage".into()),
    }
}
