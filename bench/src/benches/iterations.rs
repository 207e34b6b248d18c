//! What `logistic`, `kmeans` and `pagerank` share: ours is a job of iterations, with so many partitions.

use crate::BenchError;
use crate::described::Described;
use crate::report::{Figures, Limit, Line, Report, SweepFigures, limit_lines, ratio};
use crate::session::{Counts, How, Session};
use crate::task_times::TaskTimesFigures;
use brambling::{Tally, TaskTimes};
use brambling_machine::measure::Measured;
use brambling_machine::{Figure, Rounds};
use std::cell::{Cell, OnceCell};

/// What one job of ours did and found.
pub(super) struct Job {
    pub(super) ms_per_iteration: f64,
    pub(super) tally: Tally,
    /// Partitions that there were.
    pub(super) partitions: u32,
    /// The model or the ranks.
    pub(super) found: Vec<f64>,
}

impl Job {
    pub(super) fn seconds_per_task(&self) -> f64 {
        self.tally.wall.as_secs_f64() / self.tally.tasks as f64
    }
}

/// Runs ours, as it is told.
pub(super) type Ours<'o> = &'o dyn Fn(&mut Session<'_>, &How) -> Result<Job, BenchError>;

/// How a job is run with so many partitions for each thread.
fn with_partitions(session: &Session<'_>, per_core: u32) -> How {
    How {
        partitions: Some(per_core * session.threads),
        ..How::default()
    }
}

/// How ours is run where there is no sweep.
pub(super) fn how(session: &Session<'_>) -> How {
    match session.options.partitions_per_core.first() {
        Some(&per_core) => with_partitions(session, per_core),
        None => How::default(),
    }
}

/// Whether ours is to be measured with several numbers of partitions.
pub(super) fn is_sweep(session: &Session<'_>) -> bool {
    session.options.partitions_per_core.len() > 1
}

/// How long the tasks of one more job take, where that was asked for.
pub(super) fn task_times(
    session: &mut Session<'_>,
    how: &How,
    ours: Ours<'_>,
) -> Result<Option<TaskTimesFigures>, BenchError> {
    if !session.options.task_times {
        return Ok(None);
    }
    let times = TaskTimes::new();
    let how = How {
        times: Some(times.clone()),
        ..how.clone()
    };
    ours(session, &how)?;
    Ok(Some(TaskTimesFigures::of(&times.take())))
}

/// Ours with each number of partitions, in turn within each round, beside the limits that `rounds` has. What the
/// jobs find may differ by a share of `agreement`.
pub(super) fn sweep<'a>(
    session: &mut Session<'a>,
    rounds: Rounds<'_, Session<'a>>,
    agreement: f64,
    ours: Ours<'_>,
) -> Result<(Measured, Vec<SweepFigures>), BenchError> {
    let mut counts = session.options.partitions_per_core.clone();
    counts.sort_unstable();
    counts.dedup();
    let first_found = &OnceCell::new();
    let seen = &vec![Cell::new((0, 0.0)); counts.len()];
    let mut rounds = rounds;
    for (&count, seen) in counts.iter().zip(seen) {
        let how = with_partitions(session, count);
        rounds = rounds.ours(&engine(count), move |session: &mut Session<'a>| {
            session.sample(|session| {
                let job = ours(session, &how)?;
                seen.set((job.partitions, job.seconds_per_task()));
                let expected = first_found.get_or_init(|| job.found.clone());
                check(session, &job.found, expected, agreement, count)?;
                Ok(job.ms_per_iteration)
            })
        });
        rounds = rounds.ours(&task(count), move |session| {
            session.sample(|_| Ok(seen.get().1))
        });
    }
    let measured = session.measure(rounds)?;
    let mut figures = Vec::new();
    for (&count, seen) in counts.iter().zip(seen) {
        let how = with_partitions(session, count);
        figures.push(SweepFigures {
            partitions_per_core: count,
            partitions: seen.get().0,
            ms_per_iteration: measured.figure(&engine(count)),
            tasks_per_s: measured.figure(&task(count)).rate(1.0),
            task_times: task_times(session, &how, ours)?,
        });
    }
    Ok((measured, figures))
}

fn engine(count: u32) -> String {
    format!("engine, {count} a core")
}

fn task(count: u32) -> String {
    format!("task, {count} a core")
}

fn check(
    session: &Session<'_>,
    found: &[f64],
    expected: &[f64],
    agreement: f64,
    count: u32,
) -> Result<(), BenchError> {
    let pairs = found.iter().zip(expected);
    let is_wrong = |(a, b): (&f64, &f64)| {
        let error = (a - b).abs();
        error.is_nan() || error > agreement * b.abs()
    };
    let wrong = pairs.map(is_wrong).position(|is_wrong| is_wrong);
    session.check(found.len() == expected.len() && wrong.is_none(), || {
        format!("{count} partitions a core gave another result than the fewest, at {wrong:?}")
    })
}

/// Ours on workers, in turn with ours in one process of as many threads, beside the limits that `rounds` has. Both find the same
/// bits.
pub(super) fn on_workers<'a>(
    session: &mut Session<'a>,
    rounds: Rounds<'_, Session<'a>>,
    described: impl Fn(u32) -> Described,
    subject: Subject,
    ours: Ours<'_>,
) -> Result<Report, BenchError> {
    let workers = session.options.workers.expect("it was asked for");
    let running = session.start_workers(workers)?;
    let here = How::default();
    let first = ours(session, &here)?;
    let there = &How {
        partitions: Some(first.partitions),
        on: Some((running.cluster.clone(), described(first.partitions))),
        ..How::default()
    };
    // The workers make their data, and keep it.
    ours(session, there)?;
    let first = &first;
    let checked = move |session: &mut Session<'_>, how: &How| {
        let job = ours(session, how)?;
        let bits = |found: &[f64]| found.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
        session.check(bits(&job.found) == bits(&first.found), || {
            "one process and the workers find different bits".into()
        })?;
        Ok(job.ms_per_iteration)
    };
    let here = &here;
    let rounds = rounds
        .ours(ONE_PROCESS, move |session: &mut Session<'a>| {
            session.sample(|session| checked(session, here))
        })
        .ours(WORKERS, move |session| {
            session.sample(|session| checked(session, there))
        });
    let measured = session.measure(rounds)?;
    let pairs = measured
        .samples(ONE_PROCESS)
        .iter()
        .zip(measured.samples(WORKERS));
    let shares: Vec<f64> = pairs.map(|(one, workers)| one / workers).collect();
    let share = Figure::of(&shares);
    let (one, ours) = (measured.figure(ONE_PROCESS), measured.figure(WORKERS));
    let figures = Figures::OnWorkers {
        workers,
        threads_per_worker: session.options.threads.unwrap_or(1),
        k: subject.k,
        graph: subject.graph,
        dtype: subject.dtype,
        partitions: first.partitions,
        ms_per_iteration: ours,
        one_process_ms: one,
        share_of_one_process: share,
    };
    let lines = vec![
        Line::new(format!("an iteration on {workers} workers"), ours, "ms"),
        Line::new("in one process of as many threads", one, "ms"),
        Line::new("share of one process's speed", share.scaled(100.0), "%"),
    ];
    Ok(session.report(Counts::of([&measured]), figures, Vec::new(), lines))
}

const ONE_PROCESS: &str = "one-process";
const WORKERS: &str = "workers";

/// The limit of an iteration.
pub(super) struct Ideal {
    pub(super) limit: &'static str,
    pub(super) ms: Figure,
    pub(super) bound_by: &'static str,
}

/// What was swept: those of a bench's options that say it.
#[derive(Default)]
pub(super) struct Subject {
    pub(super) k: Option<usize>,
    pub(super) graph: Option<&'static str>,
    pub(super) dtype: Option<&'static str>,
}

/// The report of a sweep.
pub(super) fn sweep_report(
    session: &Session<'_>,
    subject: Subject,
    measured: &Measured,
    sweep: Vec<SweepFigures>,
    ideal: &Ideal,
    limits: Vec<Limit>,
) -> Report {
    let mut lines: Vec<Line> = sweep.iter().map(|point| line(point, ideal)).collect();
    lines.extend(limit_lines(&limits, |name| {
        (name == ideal.limit).then(|| format!("the ideal: {:.1} ms", ideal.ms.median))
    }));
    let tables = sweep.iter().flat_map(|point| {
        let count = point.partitions_per_core;
        let title = format!("the tasks of the iterations, {count} a core, in µs");
        point
            .task_times
            .iter()
            .map(move |times| times.table(title.clone()))
    });
    let tables = tables.collect();
    let figures = Figures::Sweep {
        k: subject.k,
        graph: subject.graph,
        dtype: subject.dtype,
        ideal_ms: ideal.ms,
        bound_by: ideal.bound_by,
        sweep,
    };
    let mut report = session.report(Counts::of([measured]), figures, limits, lines);
    report.tables = tables;
    report
}

fn line(point: &SweepFigures, ideal: &Ideal) -> Line {
    let name = format!("an iteration, {} a core", point.partitions_per_core);
    Line::new(name, point.ms_per_iteration, "ms").note(format!(
        "{}; {} partitions; {:.0} tasks/s",
        ratio(point.ms_per_iteration, ideal.ms, "the ideal"),
        point.partitions,
        point.tasks_per_s.median,
    ))
}
