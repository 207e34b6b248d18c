//! The report of a job: how near it came to what its machines can do, what bounds it, and where the rest went.
//!
//! A [`Ledger`] says what the job did, [`Roofs`] what the machines can do; a [`Report`] judges the one by the
//! other, and shows it as text, JSON, a page or a trace. It never measures, and never runs anything.

mod advice;
mod balance;
mod html;
mod ideal;
mod known;
mod perfetto;
mod phases;
mod pipeline;
mod roofs;
mod spent;
mod text;
mod threads;
mod timeline;
mod trace;
mod units;

use serde::Serialize;

pub use advice::{Advice, Cause};
pub use balance::Balance;
pub use ideal::{Phase, Resource, ResourceUse, StageReport};
pub use phases::PhaseReport;
pub use pipeline::{Pipeline, PipelineStep};
pub use roofs::{RandomRoof, Roofs};
pub use threads::{ThreadReport, WorkerReport};

use crate::ledger::{Ledger, TimeParts};
use ideal::{Size, share};

/// The thread that called the job, as a ledger names it. It is none of the pool's.
const CALLER: &str = "caller";

/// A share that is no more than sums of rounded numbers leave.
const NOISE: f64 = 1e-6;

/// The version of the keys of [`Report::to_json`]. A key that goes or changes its meaning raises it; a new one does not.
pub const VERSION: u32 = 1;

/// How near a job came to what its machines can do. Its JSON has these fields as keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// The program's name.
    pub program: String,
    /// Whether the job ended well.
    pub succeeded: bool,
    /// Whether probes measured the roofs.
    pub probed: bool,
    /// Seconds that the job took.
    pub actual_seconds: f64,
    /// The least seconds that its machines could have taken; null where nothing is known of them.
    pub ideal_seconds: Option<f64>,
    /// Ideal ÷ actual, 0 to 1.
    pub share_of_ideal: Option<f64>,
    /// Whether the ideal is the most that it can be: a part of it has no roof but the job's own best.
    pub at_most: bool,
    /// The resource that decides the ideal.
    pub bound_by: Option<Resource>,
    /// Workers that took part.
    pub worker_count: usize,
    /// Machines that they ran on.
    pub hosts: usize,
    /// Threads of their pools.
    pub threads: usize,
    /// Tasks retired.
    pub tasks: u64,
    /// Shards.
    pub shards: u64,
    /// Outside of loops, and in them.
    pub phases: Vec<PhaseReport>,
    /// In the program's order.
    pub stages: Vec<StageReport>,
    /// What the whole job used.
    pub resources: Vec<ResourceUse>,
    /// Shares of all threads' time by part, 0 to 1.
    pub shares: TimeParts,
    /// Share of all threads' time that no part explains.
    pub unattributed: f64,
    /// The same of the thread that has the largest.
    pub largest_unattributed: f64,
    /// What is no ideal time, the largest first. With the ideal share of the kernels they sum to 1.
    pub rest: Vec<Rest>,
    /// How evenly the work lay.
    pub balance: Balance,
    /// Every process.
    pub workers: Vec<WorkerReport>,
    /// A sentence for each cause that is known.
    pub advice: Vec<Advice>,
    /// What to know of the figures.
    pub notes: Vec<String>,
    #[serde(skip)]
    ledger: Ledger,
}

/// Time that an ideal job would not have taken.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rest {
    /// "kernels beyond ideal", a part's name, or "unattributed".
    pub what: &'static str,
    /// Mean seconds of a thread.
    pub seconds: f64,
    /// Share of all threads' time.
    pub share: f64,
}

impl Report {
    /// Judges what a job did by what its machines can do: each has `roofs` with the threads that the job used there.
    pub fn new(ledger: Ledger, roofs: &Roofs) -> Report {
        let size = Size::of(&ledger);
        let spent = spent::of(&ledger, size);
        let stages = ideal::stages(&ledger, roofs, &spent.stages, size);
        let phases = phases::phases(&ledger, roofs, &stages, &spent, size);
        let shares = threads::shares(ledger.workers.iter().flat_map(|worker| &worker.threads));
        let unattributed = (1.0 - shares.total()).max(0.0);
        let worked = ledger.wall_s > 0.0 && size.thread_seconds > 0.0;
        let ideal_seconds =
            worked.then(|| phases.iter().map(|phase| phase.ideal_seconds).sum::<f64>());
        let mut report = Report {
            version: VERSION,
            program: ledger.program.clone(),
            succeeded: ledger.succeeded,
            probed: roofs.probed,
            actual_seconds: ledger.wall_s,
            ideal_seconds,
            share_of_ideal: ideal_seconds.map(|ideal| share(ideal, ledger.wall_s).min(1.0)),
            at_most: stages.iter().any(|stage| stage.at_most),
            bound_by: bound_by(&phases, &stages),
            worker_count: ledger.workers.len(),
            hosts: size.hosts as usize,
            threads: size.threads as usize,
            tasks: ledger.workers.iter().map(|worker| worker.tasks).sum(),
            shards: ledger
                .workers
                .iter()
                .map(|worker| u64::from(worker.shards))
                .sum(),
            resources: of_job(&phases, &stages),
            rest: rest(
                &ledger,
                &stages,
                shares,
                if worked { unattributed } else { 0.0 },
                size,
            ),
            unattributed: if worked { unattributed } else { 0.0 },
            largest_unattributed: largest_unattributed(&ledger),
            balance: balance::of(&ledger),
            workers: threads::workers(&ledger),
            phases,
            stages,
            shares,
            advice: Vec::new(),
            notes: Vec::new(),
            ledger,
        };
        report.advice = advice::all(&report, roofs);
        report.notes = notes(&report, roofs);
        report
    }

    /// All fields, as JSON. A number that is not finite is null.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has no keys but strings")
    }

    /// What the job did.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

/// The resource that bounds phases for the longest; of a phase that kernels bound, each stage's own counts.
fn bound_by(phases: &[PhaseReport], stages: &[StageReport]) -> Option<Resource> {
    let of = |resource| -> f64 {
        let mut seconds = 0.0;
        for phase in phases {
            let outside = matches!(phase.bound_by, Some(Resource::Disk | Resource::Network));
            if outside && phase.bound_by == Some(resource) {
                seconds += phase.ideal_seconds;
            } else if !outside {
                let its = stages
                    .iter()
                    .filter(|stage| stage.phase == phase.name)
                    .map(|stage| &stage.kernels)
                    .filter(|kernels| kernels.bound_by == Some(resource));
                seconds += its.map(|kernels| kernels.ideal_seconds).sum::<f64>();
            }
        }
        seconds
    };
    let all = Resource::ALL
        .into_iter()
        .map(|resource| (resource, of(resource)));
    all.filter(|(_, seconds)| *seconds > 0.0)
        .max_by(|one, other| one.1.total_cmp(&other.1))
        .map(|(resource, _)| resource)
}

/// What stages used, and the disks and networks of both phases, in the order in which they are shown.
fn of_job(phases: &[PhaseReport], stages: &[StageReport]) -> Vec<ResourceUse> {
    let mut all = phases::of_stages(stages.iter());
    let outside = |used: &&ResourceUse| matches!(used.resource, Resource::Disk | Resource::Network);
    all.extend(
        phases
            .iter()
            .flat_map(|phase| phase.resources.iter().filter(outside)),
    );
    all.sort_by_key(|used| {
        Resource::ALL
            .iter()
            .position(|resource| *resource == used.resource)
    });
    all
}

fn rest(
    ledger: &Ledger,
    stages: &[StageReport],
    shares: TimeParts,
    unattributed: f64,
    size: Size,
) -> Vec<Rest> {
    let ideal: f64 = stages.iter().map(|it| it.kernels.ideal_seconds).sum();
    let beyond = (shares.kernels - share(ideal * size.threads, size.thread_seconds)).max(0.0);
    let parts = shares
        .named()
        .into_iter()
        .filter(|(name, _)| *name != "kernels");
    let all = [("kernels beyond ideal", beyond)]
        .into_iter()
        .chain(parts)
        .chain([("unattributed", unattributed)]);
    let mut all: Vec<_> = all
        .filter(|(_, share)| *share > NOISE)
        .map(|(what, share)| Rest {
            what,
            seconds: share * ledger.wall_s,
            share,
        })
        .collect();
    all.sort_by(|one, other| other.share.total_cmp(&one.share));
    all
}

fn largest_unattributed(ledger: &Ledger) -> f64 {
    let threads = ledger.workers.iter().flat_map(|worker| &worker.threads);
    threads.map(threads::unattributed).fold(0.0, f64::max)
}

/// What a reader has to know of the figures, a sentence each.
fn notes(report: &Report, roofs: &Roofs) -> Vec<String> {
    let mut notes = Vec::new();
    if !report.succeeded {
        notes.push("the job failed: these are the figures until then".into());
    }
    if !roofs.probed {
        notes
            .push("not probed: `brambling probe` (2 min) measures what this machine can do".into());
    }
    if report.at_most {
        notes.push(
            "without a roof the best rate that a stage of this job reached stands in for it: the true ideal is shorter, \
             so the share of ideal is at most this"
                .into(),
        );
    }
    let own = |resource: &ResourceUse| {
        matches!(
            resource.resource,
            Resource::Kernels | Resource::PythonKernels
        )
    };
    if report
        .stages
        .iter()
        .any(|stage| !stage.at_most && stage.resources.is_empty() && stage.actual_seconds > 0.0)
        && report.resources.iter().any(own)
    {
        notes.push(
            "nobody counts the bytes and operations of Python's and users' kernels: their own time, spread evenly over \
             the threads, counts as ideal"
                .into(),
        );
    }
    let (of_files, of_memory): (Vec<_>, Vec<_>) = report
        .stages
        .iter()
        .filter(|stage| stage.above_roof)
        .partition(|stage| stage.bound_by == Some(Resource::Disk));
    if let Some(which) = first_and_more(&of_memory) {
        notes.push(format!(
            "{which} ran faster than memory allows: the data lay in caches, and counts as ideal"
        ));
    }
    if let Some(which) = first_and_more(&of_files) {
        notes.push(format!(
            "{which} ran faster than the disk allows: files lay in the system's memory, and count as ideal"
        ));
    }
    notes
}

/// The first of these stages, and how many others there are.
fn first_and_more(stages: &[&StageReport]) -> Option<String> {
    let first = &stages.first()?.name;
    Some(match stages.len() - 1 {
        0 => first.clone(),
        more => format!("{first} and {more} more"),
    })
}
