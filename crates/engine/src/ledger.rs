//! Owns the way from what the executor counts to what the machine's report reads: names for numbers, seconds for nanoseconds.
//! It decides nothing.

use crate::Outcome;
use brambling_machine::ledger::{
    Ledger, Moment, StageEntry, StageWork, ThreadEntry, TimeParts, WorkerEntry,
};
use brambling_memory::held;
use brambling_program::{Plan, Runner, StageKind};
use brambling_protocol::WorkerId;
use brambling_worker::executor::{self, Job, JobLedger, PartTimes, ThreadTimes, TimePart};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where jobs leave what they did: given to [`RunOptions::ledgers`](crate::RunOptions::ledgers), for whoever does not get their outcomes. A clone
/// is the same place.
///
/// ```
/// use brambling::Ledgers;
/// use brambling::prelude::*;
///
/// let ledgers = Ledgers::default();
/// let mut p = Program::new("count");
/// let counts = p.dataset::<u64>("counts", 4);
/// p.compute("bump").update(&counts).run(|count: &mut u64| *count += 1);
/// RunOptions::new().threads(1).ledgers(&ledgers).run(p)?;
/// let taken = ledgers.take();
/// assert_eq!((taken.len(), taken[0].program.as_str()), (1, "count"));
/// # Ok::<(), brambling::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Ledgers(Arc<Mutex<Vec<Ledger>>>);

impl Ledgers {
    /// Takes those of the jobs that have ended well since the last call, in the order in which they ended.
    pub fn take(&self) -> Vec<Ledger> {
        std::mem::take(&mut *held::lock(&self.0))
    }

    pub(crate) fn keep(&self, ledger: Ledger) {
        held::lock(&self.0).push(ledger);
    }
}

/// Those of all jobs of this process, since somebody asked for them.
static RECORDED: Mutex<Option<Vec<Ledger>>> = Mutex::new(None);

/// From now on every job that this process runs, or a cluster for it, leaves what it did: for whoever runs a script that is somebody
/// else's.
pub fn record_ledgers() {
    held::lock(&RECORDED).get_or_insert_default();
}

/// Takes what was recorded since the last call, in the order in which jobs ended.
pub fn recorded_ledgers() -> Vec<Ledger> {
    held::lock(&RECORDED)
        .as_mut()
        .map(std::mem::take)
        .unwrap_or_default()
}

/// A job has ended.
pub(crate) fn record(outcome: &mut Outcome) {
    // The ledger is made only when somebody asked: it is a copy of each thread's.
    if held::lock(&RECORDED).is_none() {
        return;
    }
    let ledger = outcome.ledger();
    if let Some(recorded) = &mut *held::lock(&RECORDED) {
        recorded.push(ledger);
    }
}

/// Of a job that ran in this process.
pub(crate) fn here(job: &mut Job) -> Ledger {
    let counted = job.ledger();
    let plan = job.plan();
    Ledger {
        program: plan.program.spec().name.clone(),
        wall_s: seconds(counted.wall_ns),
        succeeded: true,
        stages: stages(plan),
        workers: vec![worker(("here".into(), String::new()), plan, &counted, 0)],
    }
}

/// Of a job that ran on a cluster's workers, and took so long for its client. What that one waited for before the workers began and
/// after they ended is a thread's startup.
pub(crate) fn of_workers(
    plan: &Plan,
    wall: Duration,
    ledgers: BTreeMap<WorkerId, (String, JobLedger)>,
) -> Ledger {
    let wall_ns = wall.as_nanos() as u64;
    let entry = |(id, (host, counted)): (WorkerId, (String, JobLedger))| {
        let before_ns = wall_ns.saturating_sub(counted.wall_ns);
        worker((id.to_string(), host), plan, &counted, before_ns)
    };
    Ledger {
        program: plan.program.spec().name.clone(),
        wall_s: wall.as_secs_f64(),
        succeeded: true,
        stages: stages(plan),
        workers: ledgers.into_iter().map(entry).collect(),
    }
}

fn stages(plan: &Plan) -> Vec<StageEntry> {
    let spec = plan.program.spec();
    let stages = spec.stages.iter().zip(spec.stages_in_loops());
    let entry = |(stage, in_loop): (&brambling_program::StageSpec, bool)| {
        let kind = match stage.kind {
            StageKind::Compute => "compute",
            StageKind::Scatter(_) => "scatter",
            StageKind::Gather(_) => "gather",
            StageKind::Signal => "signal",
            StageKind::Stream(_) => "stream",
        };
        let kernel = &spec.kernels[stage.kernel.index()];
        StageEntry {
            name: stage.name.clone(),
            kind: kind.into(),
            in_loop,
            python: kernel.runner == Runner::Caller,
        }
    };
    stages.map(entry).collect()
}

fn worker(
    (name, host): (String, String),
    plan: &Plan,
    counted: &JobLedger,
    before_ns: u64,
) -> WorkerEntry {
    let mut works = vec![StageWork::default(); plan.program.spec().stages.len()];
    for (stage, times) in &counted.stages {
        // What came from elsewhere may say anything.
        if let Some(work) = works.get_mut(*stage as usize) {
            *work = stage_work(times);
        }
    }
    // A stage of a number that no stage has counts nowhere.
    let files = |bytes: fn(&StageWork) -> u64| works.iter().map(bytes).sum::<u64>();
    let (read, written) = (
        files(|work| work.file_read_bytes),
        files(|work| work.file_written_bytes),
    );
    let named = (0..).zip(&counted.threads);
    let thread = |(number, times)| thread(number, times, before_ns);
    WorkerEntry {
        name,
        host,
        cpus: counted.threads.iter().filter(|it| !it.is_caller).count() as u32,
        threads: named.map(thread).collect(),
        stages: works,
        tasks: counted.tasks,
        shards: counted.shards,
        longest_shard_s: seconds(counted.longest_shard_ns),
        mean_shard_s: seconds(counted.mean_shard_ns),
        sent_bytes: counted.sent_bytes,
        received_bytes: counted.received_bytes,
        disk_read_bytes: counted.read_back_bytes + read,
        disk_written_bytes: counted.spilled_bytes + written,
        spilled_bytes: counted.spilled_bytes,
        budget_bytes: counted.budget_bytes,
        peak_bytes: counted.peak_bytes,
        last_task_s: seconds(before_ns + counted.last_task_ns),
    }
}

fn stage_work(times: &executor::StageTotals) -> StageWork {
    StageWork {
        kernel_s: seconds(times.kernel_ns),
        streamed_bytes: times.work.streamed_bytes,
        random_accesses: times.work.random_accesses,
        table_bytes: times.work.table_bytes,
        flops: times.work.flops,
        file_read_bytes: times.work.file_read_bytes,
        file_written_bytes: times.work.file_written_bytes,
    }
}

fn thread(number: u32, times: &ThreadTimes, before_ns: u64) -> ThreadEntry {
    let mut before = executor::BookedMoment::default();
    before.parts[TimePart::Startup as usize] = before_ns;
    let before = (before_ns > 0).then_some(before);
    let (mut begin_ns, mut sum) = (0, [0; executor::PARTS]);
    let mut moments = Vec::with_capacity(times.moments.len() + 1);
    for moment in before.iter().chain(&times.moments) {
        moments.push(Moment {
            begin_s: seconds(begin_ns),
            parts: parts(&moment.parts),
            stage: moment.stage.map(|(stage, _)| stage),
            tasks: moment.tasks,
        });
        begin_ns += moment.ns();
        for (sum, ns) in sum.iter_mut().zip(moment.parts) {
            *sum += ns;
        }
    }
    ThreadEntry {
        name: match times.is_caller {
            true => "caller".into(),
            false => format!("thread {number}"),
        },
        wall_s: seconds(begin_ns),
        parts: parts(&sum),
        moments,
    }
}

fn parts(ns: &PartTimes) -> TimeParts {
    let of = |part: TimePart| seconds(ns[part as usize]);
    TimeParts {
        kernels: of(TimePart::Kernels),
        scheduling: of(TimePart::Scheduling),
        exchange: of(TimePart::Exchange),
        memory: of(TimePart::Memory),
        disk: of(TimePart::Disk),
        interpreter: of(TimePart::Interpreter),
        spilling: of(TimePart::Spilling),
        startup: of(TimePart::Startup),
        stragglers: of(TimePart::Stragglers),
        other_jobs: of(TimePart::OtherJobs),
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
