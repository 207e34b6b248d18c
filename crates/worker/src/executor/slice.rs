//! Owns the run of one shard by one thread until it stalls or has used up its share. The thread's loop (`thread.rs`) calls
//! it, under its queue lock: everything here is inside but the call of the kernel ([`Slice::call`]). Nothing on the way of a
//! task whose pieces lie in slots allocates, locks or hashes, because a task may take less time than any of these.
#![allow(unsafe_code)] // Calls kernels over erased pointers; the plan fixed their types.

mod exchanging;
mod failing;
mod mailbox;
mod streaming;
mod unfinished;
mod view;

pub(super) use exchanging::watch_for;
pub(super) use view::MissingSource;

use super::book::SAMPLED_CALLS;
use super::failure::Failure;
use super::job::{Job, LoadedShard, ShardCell, ThreadState};
use super::open::OpenStreamTask;
use super::sampling::{TimedCall, TimedSample};
use super::steps::StepKind;
use super::watch::Watches;
use crate::shard::{InOrder, Issue, IssueSlot, Next};
use brambling_program::{Code, Context, Kernel, Position, Progress, Runner, Task, Value, Work};
use std::sync::atomic::Ordering;
use view::ShardView;

/// How long a slice should take: long against a reading of the clock, short against a user's patience.
const SLICE_NS: u64 = 100_000;
/// Tasks of a slice at most, however short they are.
const SLICE_TASKS_MAX: u32 = 1 << 16;
/// By how much a share grows from one slice to the next: a slice whose tasks were short by accident may
/// make the next one so many times too long, and no more.
const SLICE_GROWTH: u32 = 8;

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

/// How many tasks the next slice may run: as many as fit its time, and not many more than before.
pub(super) fn next_share(share: u32, tasks: u32, took_ns: u64) -> u32 {
    if tasks == 0 {
        return share;
    }
    let fitting = SLICE_NS.saturating_mul(u64::from(tasks)) / took_ns.max(1);
    fitting.clamp(
        1,
        u64::from(share.saturating_mul(SLICE_GROWTH).min(SLICE_TASKS_MAX)),
    ) as u32
}

pub(super) struct Slice<'a, 's> {
    job: &'a Job,
    thread_state: &'a ThreadState,
    resident: &'a ShardCell,
    number: u32,
    thread: u32,
    runner: Runner,
    /// What the thread looks at for its stalled shards.
    watches: &'s mut Watches<'a>,
    /// Calls that are timed, when this slice is a sampled one.
    sample: &'s mut TimedSample,
    /// Calls of kernels that it may still make.
    left: u32,
    /// Calls after which their tasks were not done.
    unfinished: u32,
    /// Whether a task has run that may change how much memory the shard's datasets take.
    may_grow: bool,
    pub(super) tasks: u32,
    pub(super) failure: Option<Box<Failure>>,
}

/// What came of running a shard for a while.
enum Ran {
    /// A task is done.
    Done,
    /// What comes is for [`Slice::run_general`].
    Other,
    /// A task has been called and is not done.
    Unfinished(Issue, Progress),
    /// The slice has ended.
    End(End),
}

impl<'a, 's> Slice<'a, 's> {
    #[inline]
    pub(super) fn new(
        job: &'a Job,
        number: u32,
        thread: u32,
        runner: Runner,
        watches: &'s mut Watches<'a>,
        sample: &'s mut TimedSample,
    ) -> Self {
        Slice {
            job,
            thread_state: &job.thread_states[thread as usize],
            resident: &job.residents[number as usize],
            number,
            thread,
            runner,
            watches,
            sample,
            left: 0,
            unfinished: 0,
            may_grow: false,
            tasks: 0,
            failure: None,
        }
    }

    /// `SAMPLED`: each call of a kernel is timed, and a slice of short tasks ends after a few of them. A parameter, so that the
    /// code of other slices has nothing of it.
    #[inline]
    pub(super) fn run<const SAMPLED: bool>(
        &mut self,
        body: &mut LoadedShard,
        missing: &mut Vec<MissingSource<'a>>,
        works: &mut [Work],
    ) -> End {
        let job = self.job;
        let slices = &self.resident.slices;
        let begun = slices.load(Ordering::Relaxed).wrapping_add(1);
        slices.store(begun, Ordering::Relaxed);
        let code = &job.plan.codes[self.resident.group.index()];
        if let Some(saving) = &job.saving
            && saving.has_news(&body.heard)
            && saving.hear(body, code)
        {
            return End::Stalled;
        }
        // SAFETY: whoever runs the shard touches what has come for it, and nobody else refers to it.
        let arrivals = unsafe { &mut *self.resident.arrivals.get() };
        let mut around = ShardView {
            job,
            number: self.number,
            index: self.resident.index,
            thread: self.thread,
            arrivals,
            missing,
        };
        let number = self.number;
        let completion = |at| job.completion(number, at);
        let partitions = job.plan.counts[self.resident.group.index()];
        let seed = job.plan.program.spec().seed;
        let mut context = Context::new(
            self.resident.index,
            partitions,
            seed,
            &job.stop,
            &completion,
            &job.options.budget,
        );
        context.sum_work(works);
        // Tasks, not time: a reading of the clock per task would cost as much as the task.
        let calls = match SAMPLED {
            true => body.slice_tasks.min(SAMPLED_CALLS),
            false => body.slice_tasks,
        };
        self.left = calls;
        // A look per slice: whoever wakes a task posts the shard, which begins another slice.
        if self.resident.woken.has_any() {
            self.complete(body, code);
        }
        let end = self.go_on::<SAMPLED>(body, code, &mut context, &mut around);
        if matches!(end, End::Stalled) {
            self.watch(missing);
        }
        // A call that left its task open has not finished a task.
        self.tasks = calls - self.left - self.unfinished;
        let failed = matches!(end, End::Failed);
        if self.may_grow
            && !failed
            && let Err(failure) = self.charge(body)
        {
            self.failure = Some(Box::new(failure));
            return End::Failed;
        }
        end
    }

    /// Runs until the slice ends, and takes what comes through the mailbox meanwhile.
    #[inline(always)]
    fn go_on<const SAMPLED: bool>(
        &mut self,
        body: &mut LoadedShard,
        code: &Code,
        context: &mut Context<'_>,
        around: &mut ShardView<'a, '_>,
    ) -> End {
        loop {
            // Looked at also after a stall: pieces that the shard has sent to itself lie in its
            // mailbox.
            if self.resident.mailbox.has_any()
                && let Err(error) = mailbox::take(self.job, self.number, around.arrivals)
            {
                self.failure = Some(Box::new(self.job.refusal(None, error)));
                return End::Failed;
            }
            // Between its calls an open task may have got what it lacked.
            if !body.open.is_empty() {
                self.resume(body, code, around.arrivals);
            }
            let ran = match self.run_in_order::<SAMPLED>(body, code, context, around) {
                Ran::Other => self.run_general::<SAMPLED>(body, code, context, around),
                Ran::End(End::Leaving) => self.run_held::<SAMPLED>(body, code, context, around),
                ran => ran,
            };
            match ran {
                Ran::Done | Ran::Other => {}
                Ran::Unfinished(issue, progress) => {
                    let task = &code.tasks[issue.task as usize];
                    let left = (issue, progress);
                    if let Some(end) = self.left_unfinished(body, task, left, context) {
                        return end;
                    }
                }
                // A piece that the shard has put into its own mailbox wakes nobody (`Slice::wake`):
                // the shard looks once more.
                Ran::End(End::Stalled) if self.resident.mailbox.has_any() => {}
                Ran::End(End::Stalled) if self.resume(body, code, around.arrivals) => {}
                Ran::End(End::Leaving)
                    if body.open.iter().any(OpenStreamTask::holds)
                        && self.resident.mailbox.has_any() => {}
                Ran::End(end) => return end,
            }
        }
    }

    /// Runs what comes in order, for as long as that is all there is to do. A function of its own, into which scatters and
    /// gathers in slots are inlined: the slice's other state is not in its registers.
    #[inline(never)]
    fn run_in_order<const SAMPLED: bool>(
        &mut self,
        body: &mut LoadedShard,
        code: &Code,
        context: &mut Context<'_>,
        around: &mut ShardView<'a, '_>,
    ) -> Ran {
        around.missing.clear();
        let remote = self.job.remote.as_deref();
        loop {
            // Before each task: from the flag on none may start (invariant 6), and a slice may be
            // long.
            if remote.is_some_and(|remote| remote.is_leaving(self.number)) {
                return Ran::End(End::Leaving);
            }
            let ready = |index, turn| around.is_ready(body.steps.at(index), turn);
            let issue = match body.shard.next_in_order(code, ready) {
                InOrder::Run(task, turn) => Issue {
                    task,
                    turn,
                    place: IssueSlot::InOrder,
                },
                InOrder::Stalled => return Ran::End(End::Stalled),
                InOrder::Other => return Ran::Other,
            };
            match self.run_task::<SAMPLED>(body, code, issue, context, around) {
                Ran::Done => {}
                ran => return ran,
            }
        }
    }

    /// One step of a shard where something is stalled, or where the program turns.
    #[inline(never)]
    fn run_general<const SAMPLED: bool>(
        &mut self,
        body: &mut LoadedShard,
        code: &Code,
        context: &mut Context<'_>,
        around: &mut ShardView<'a, '_>,
    ) -> Ran {
        around.missing.clear();
        match body.shard.next_general(code, around) {
            Next::Run(issue) => self.run_task::<SAMPLED>(body, code, issue, context, around),
            Next::Stalled => Ran::End(End::Stalled),
            Next::Yield => Ran::End(End::UsedUp),
            Next::Save => self.save(body),
            Next::Finished => Ran::End(End::Finished),
        }
    }

    /// The shard stands at a cut.
    #[cold]
    #[inline(never)]
    fn save(&mut self, body: &mut LoadedShard) -> Ran {
        let job = self.job;
        let saving = job.saving.as_ref().expect("nobody else tells of cuts");
        let is_interpreted =
            |cell: &u32| body.cells[*cell as usize].payload_type().is_interpreted();
        let cells = saving.cells(job, body);
        if self.runner != Runner::Caller && cells.iter().any(is_interpreted) {
            return Ran::End(End::Elsewhere(Runner::Caller));
        }
        let queue_lock = &self.thread_state.queue_lock;
        let alone = |encode: &mut dyn FnMut()| {
            // As around a kernel: whoever has the interpreter may want the lock.
            queue_lock.leave();
            encode();
            queue_lock.enter();
        };
        match saving.save(job, self.number, (body, &cells), alone) {
            true => Ran::End(End::Stalled),
            false => Ran::Other,
        }
    }

    /// The shard has to leave: of its tasks those go on that keep it here, and what they may wait for.
    #[cold]
    #[inline(never)]
    fn run_held<const SAMPLED: bool>(
        &mut self,
        body: &mut LoadedShard,
        code: &Code,
        context: &mut Context<'_>,
        around: &mut ShardView<'a, '_>,
    ) -> Ran {
        let is_held = |at| body.open.iter().any(|it| it.at == at && it.holds());
        around.missing.clear();
        around.arrivals.ask_anew();
        match body.shard.next_held(code, around, is_held) {
            Some(issue) => self.run_task::<SAMPLED>(body, code, issue, context, around),
            None => {
                // What was not asked for now is gathered elsewhere.
                around.arrivals.step_back();
                Ran::End(End::Leaving)
            }
        }
    }

    /// Calls what was issued, unless the slice ends before it, and retires it when it is done.
    #[inline(always)]
    fn run_task<const SAMPLED: bool>(
        &mut self,
        body: &mut LoadedShard,
        code: &Code,
        issue: Issue,
        context: &mut Context<'_>,
        around: &mut ShardView<'a, '_>,
    ) -> Ran {
        let (step, args) = body.steps.ready(issue.task, code, &mut body.cells);
        // An instruction that frees a dataset has no kernel, and runs on any thread.
        let is_elsewhere = step.runner != self.runner && step.kernel.is_some();
        // Before the task begins: one that has begun is never given up.
        if is_elsewhere || self.left == 0 || self.job.stop.load(Ordering::Relaxed) {
            return Ran::End(match is_elsewhere {
                true => End::Elsewhere(step.runner),
                false => End::UsedUp,
            });
        }
        self.left -= 1;
        let at = Position {
            stage: step.stage,
            turn: issue.turn,
        };
        body.running = Some(at);
        // For whoever reports. A store that nobody waits for: the line is the owner's already.
        self.resident.stage.store(at.stage.0, Ordering::Relaxed);
        if step.may_grow {
            self.may_grow = true;
            body.weights.note(issue.task);
        }
        let Some(kernel) = step.kernel else {
            free(body, &code.tasks[issue.task as usize]);
            body.shard.retire(issue);
            return Ran::Done;
        };
        context.enter(at);
        // SAFETY: the kernel lives as long as the plan.
        let timed = SAMPLED.then(|| unsafe { TimedCall::new(kernel) });
        let kernel: &dyn Kernel = match &timed {
            Some(timed) => timed,
            None => kernel,
        };
        let progress = self.run_stage(step.way, at, around, &mut body.open, kernel, args, context);
        if let Some(timed) = timed {
            self.sample.add(at.stage, timed.ns());
        }
        match progress {
            Progress::Done => {
                body.shard.retire(issue);
                Ran::Done
            }
            progress => Ran::Unfinished(issue, progress),
        }
    }

    /// Runs a stage, and what it needs before and after its kernel.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // It is inlined, and each is at hand.
    fn run_stage(
        &mut self,
        way: StepKind,
        at: Position,
        around: &mut ShardView<'a, '_>,
        open: &mut Vec<OpenStreamTask>,
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let turn = at.turn;
        match way {
            StepKind::Plain => self.call(kernel, args, context),
            StepKind::Scatter(id, source) => {
                self.scatter(source, (id, turn), kernel, args, context)
            }
            StepKind::Gather(id, end) => self.gather(end, (id, turn), kernel, args, context),
            StepKind::GatherRemote(id, end) => {
                self.gather_remote(end, (id, turn), around, kernel, args, context)
            }
            StepKind::ScatterGeneral(id, by) => {
                self.scatter_general(by, (id, turn), kernel, args, context)
            }
            StepKind::GatherGeneral(id, by) => {
                self.gather_general(by, (id, turn), around, kernel, args, context)
            }
            StepKind::Stream(_) => self.stream(at, around, open, (kernel, args), context),
            StepKind::Signal => match self.call(kernel, args, context) {
                Progress::Done => self.publish(at, context),
                progress => progress,
            },
        }
    }

    /// Calls a kernel, without the queue lock.
    #[inline(always)]
    fn call(
        &self,
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let queue_lock = &self.thread_state.queue_lock;
        // From here on a thief may take what is queued, so nothing below may touch the ready queue or
        // another shard until `enter`.
        queue_lock.leave();
        // SAFETY: the arguments are the declared cells, of the declared types; those written are unshared,
        // and the shard is run by this thread alone. Ports are of the exchange's piece type.
        let progress = unsafe { kernel.call(context, args) };
        queue_lock.enter();
        progress
    }
}

#[cold]
fn free(body: &mut LoadedShard, task: &Task) {
    for cell in &task.cells {
        let cell = &mut body.cells[*cell as usize];
        *cell = Value::default_of(cell.payload_type());
    }
}
