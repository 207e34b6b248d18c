//! What `logistic`, `kmeans` and `pagerank` share: ours is a job of iterations, with so many partitions, beside bare
//! loops; or with several numbers of partitions in turn, or on workers.

use crate::BenchError;
use crate::described::Described;
use crate::report::{
    Figures, Limit, Line, OwnFigures, Report, Subject, SweepFigures, limit_lines, limits,
    memory_line, over, ratio, share_of_ideal,
};
use crate::session::{Counts, How, Samples, Session};
use crate::task_times::TaskTimesFigures;
use brambling::operators::ml::logistic_regression::partitions_of;
use brambling::{Tally, TaskTimes};
use brambling_machine::Figure;
use brambling_machine::measure::Measured;
use brambling_machine::probes::{ReadLoop, read_bandwidth};
use std::cell::{Cell, OnceCell};

/// A bench of iterations.
pub(super) trait Iterative {
    /// By what share of itself a result may differ with the number of partitions.
    const AGREEMENT: f64;

    /// What is iterated over.
    fn subject(&self) -> Subject;

    /// What workers are told of a job.
    fn described(&self, partitions: u32) -> Described;

    /// One job of as many iterations as a round has.
    fn ours(&self, session: &mut Session<'_>, how: &How) -> Result<Job, BenchError>;

    /// The loops that do what an iteration has to do at least.
    fn with_ideals<'r, 'a>(
        &'r self,
        rounds: Samples<'r, 'a>,
        places: &'r [usize],
    ) -> Samples<'r, 'a>;

    /// Their figures.
    fn limits(&self, measured: &Measured) -> Vec<Limit>;

    /// The best of them.
    fn ideal(&self, measured: &Measured) -> Ideal;

    /// The names of the bare loops.
    fn bares(&self) -> Vec<&'static str>;

    /// The bare loops, and the plain one as "plain-loop".
    fn with_loops<'r, 'a>(
        &'r self,
        rounds: Samples<'r, 'a>,
        places: &'r [usize],
    ) -> Samples<'r, 'a>;
}

/// What one job of ours did and found.
pub(super) struct Job {
    pub(super) ms_per_iteration: f64,
    pub(super) tally: Tally,
    /// Partitions that there were.
    pub(super) partitions: u32,
    /// The model or the ranks.
    pub(super) found: Vec<f64>,
    /// What dealing edges took.
    pub(super) dealing_ms: f64,
}

impl Job {
    fn seconds_per_task(&self) -> f64 {
        self.tally.wall.as_secs_f64() / self.tally.tasks as f64
    }
}

/// The limit of an iteration.
pub(super) struct Ideal {
    pub(super) limit: &'static str,
    /// Milliseconds of an iteration for what a sample of the limit counts.
    pub(super) scale: f64,
    pub(super) ms: Figure,
    pub(super) bound_by: &'static str,
}

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

/// Partitions of so many rows.
pub(super) fn partitions_of_rows(rows: usize, features: usize, how: &How) -> u32 {
    how.partitions
        .unwrap_or_else(|| partitions_of(rows, features))
}

/// Refuses a job that did more iterations than it should, or fewer.
pub(super) fn all_done(session: &Session<'_>, found: u64, expected: u64) -> Result<(), BenchError> {
    session.check(found == expected, || {
        format!("{found} iterations were done, not {expected}")
    })
}

/// The mean of so many seconds, in milliseconds.
pub(super) fn mean_ms(seconds: &[f64]) -> f64 {
    seconds.iter().sum::<f64>() * 1e3 / seconds.len() as f64
}

/// The names of the loops that only read.
pub(super) fn reads() -> impl Iterator<Item = &'static str> {
    ReadLoop::available().into_iter().map(ReadLoop::name)
}

/// The loops that only read the input, in milliseconds.
pub(super) fn with_reads<'r, 'a>(
    mut rounds: Samples<'r, 'a>,
    slices: &'r [&[f64]],
    places: &'r [usize],
) -> Samples<'r, 'a> {
    let bytes = slices.iter().copied().map(size_of_val).sum::<usize>() as f64;
    for read in ReadLoop::available() {
        // A byte per nanosecond is a gigabyte a second.
        rounds = rounds.limit("read", read.name(), move |_| {
            Ok(bytes / read_bandwidth(read, slices, places) / 1e6)
        });
    }
    rounds
}

/// The best loop that only reads.
pub(super) fn best_read(measured: &Measured) -> Ideal {
    let (limit, ms) = measured.best(reads());
    Ideal {
        limit,
        scale: 1.0,
        ms,
        bound_by: "memory bandwidth",
    }
}

/// The report of several numbers of partitions or of workers, where the options ask for one.
pub(super) fn elsewhere(
    session: &mut Session<'_>,
    bench: &impl Iterative,
) -> Result<Option<Report>, BenchError> {
    if session.options.partitions_per_core.len() > 1 {
        return sweep(session, bench).map(Some);
    }
    let workers = session.options.workers;
    let report = workers.map(|workers| on_workers(session, bench, workers));
    report.transpose()
}

/// Ours beside every limit.
pub(super) fn measure(
    session: &mut Session<'_>,
    bench: &impl Iterative,
    how: &How,
) -> Result<Measured, BenchError> {
    let places = &session.places.clone();
    let (seconds_per_task, dealing_ms) = &(Cell::new(0.0), Cell::new(0.0));
    let rounds = bench.with_ideals(session.rounds(), places);
    let rounds = bench
        .with_loops(rounds, places)
        .ours("engine", move |session| {
            let job = bench.ours(session, how)?;
            seconds_per_task.set(job.seconds_per_task());
            dealing_ms.set(job.dealing_ms);
            Ok(job.ms_per_iteration)
        })
        .noted("task", seconds_per_task)
        .noted("dealing", dealing_ms);
    session.measure(rounds)
}

/// How long the tasks of one more job take, where that was asked for.
pub(super) fn task_times(
    session: &mut Session<'_>,
    bench: &impl Iterative,
    how: &How,
) -> Result<Option<TaskTimesFigures>, BenchError> {
    if !session.options.task_times {
        return Ok(None);
    }
    let times = TaskTimes::new();
    let how = How {
        times: Some(times.clone()),
        ..how.clone()
    };
    bench.ours(session, &how)?;
    Ok(Some(TaskTimesFigures::of(&times.take())))
}

/// What every bench of iterations tells.
pub(super) struct Summary<'m> {
    measured: &'m Measured,
    pub(super) ideal: Ideal,
    pub(super) ours: Figure,
    pub(super) plain: Figure,
    pub(super) bare: Figure,
    best_bare: &'static str,
    share: Figure,
    pub(super) limits: Vec<Limit>,
}

/// What one bench tells beside.
pub(super) struct Own<'o> {
    pub(super) partitions: u32,
    pub(super) figures: Option<OwnFigures>,
    /// Of ours.
    pub(super) note: String,
    /// Before and after the share of the ideal.
    pub(super) lines: [Option<Line>; 2],
    /// Of a limit's loop.
    pub(super) limit: &'o dyn Fn(&str) -> Option<String>,
    pub(super) peak_rss_bytes: u64,
    /// Of so many gigabytes.
    pub(super) memory: &'o dyn Fn(f64) -> String,
}

impl<'m> Summary<'m> {
    pub(super) fn new(bench: &impl Iterative, measured: &'m Measured) -> Summary<'m> {
        let ideal = bench.ideal(measured);
        let (best_bare, bare) = measured.best(bench.bares());
        let mut all = bench.limits(measured);
        all.extend(limits(measured, bench.bares(), 1.0, "ms"));
        Summary {
            measured,
            ours: measured.figure("engine"),
            plain: measured.figure("plain-loop"),
            bare,
            best_bare,
            share: share_of_ideal(measured, "engine", ideal.limit, ideal.scale),
            ideal,
            limits: all,
        }
    }

    pub(super) fn report(
        self,
        session: &Session<'_>,
        bench: &impl Iterative,
        own: Own<'_>,
    ) -> Report {
        let Summary {
            ours, plain, share, ..
        } = self;
        let [before, after] = own.lines;
        let lines = [
            Some(Line::new("an iteration", ours, "ms").note(own.note)),
            before,
            Some(Line::new("share of the ideal", share.scaled(100.0), "%")),
            after,
            Some(Line::new("one thread, plain loop", plain, "ms")),
        ];
        let mut lines: Vec<Line> = lines.into_iter().flatten().collect();
        lines.extend(limit_lines(&self.limits, |name| match name {
            best if best == self.best_bare => Some("the best bare loop".to_owned()),
            name => (own.limit)(name),
        }));
        lines.push(memory_line(own.peak_rss_bytes, own.memory));
        let figures = Figures::Iterations {
            subject: bench.subject(),
            partitions: own.partitions,
            ms_per_iteration: ours,
            plain_loop_ms: plain,
            bare_loop_ms: self.bare,
            ideal_ms: self.ideal.ms,
            share_of_ideal: share,
            tasks_per_s: self.measured.figure("task").rate(1.0),
            bound_by: self.ideal.bound_by,
            peak_rss_bytes: own.peak_rss_bytes,
            own: own.figures,
        };
        session.report(Counts::of([self.measured]), figures, self.limits, lines)
    }
}

/// Ours with each number of partitions, in turn within each round, beside the ideal's loops.
fn sweep<B: Iterative>(session: &mut Session<'_>, bench: &B) -> Result<Report, BenchError> {
    let mut counts = session.options.partitions_per_core.clone();
    counts.sort_unstable();
    counts.dedup();
    let places = &session.places.clone();
    let first_found = &OnceCell::new();
    let seen = &vec![(Cell::new(0), Cell::new(0.0)); counts.len()];
    let mut rounds = bench.with_ideals(session.rounds(), places);
    for (&count, (partitions, seconds_per_task)) in counts.iter().zip(seen) {
        let how = with_partitions(session, count);
        rounds = rounds
            .ours(&engine(count), move |session| {
                let job = bench.ours(session, &how)?;
                partitions.set(job.partitions);
                seconds_per_task.set(job.seconds_per_task());
                let expected = first_found.get_or_init(|| job.found.clone());
                check(session, B::AGREEMENT, &job.found, expected, count)?;
                Ok(job.ms_per_iteration)
            })
            .noted(&task(count), seconds_per_task);
    }
    let measured = session.measure(rounds)?;
    let mut sweep = Vec::new();
    for (&count, (partitions, _)) in counts.iter().zip(seen) {
        let how = with_partitions(session, count);
        sweep.push(SweepFigures {
            partitions_per_core: count,
            partitions: partitions.get(),
            ms_per_iteration: measured.figure(&engine(count)),
            tasks_per_s: measured.figure(&task(count)).rate(1.0),
            task_times: task_times(session, bench, &how)?,
        });
    }
    Ok(sweep_report(session, bench, &measured, sweep))
}

fn engine(count: u32) -> String {
    format!("engine, {count} a core")
}

fn task(count: u32) -> String {
    format!("task, {count} a core")
}

fn check(
    session: &Session<'_>,
    agreement: f64,
    found: &[f64],
    expected: &[f64],
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

fn sweep_report(
    session: &Session<'_>,
    bench: &impl Iterative,
    measured: &Measured,
    sweep: Vec<SweepFigures>,
) -> Report {
    let (ideal, limits) = (bench.ideal(measured), bench.limits(measured));
    let mut lines: Vec<Line> = sweep.iter().map(|point| line(point, &ideal)).collect();
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
        subject: bench.subject(),
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

/// Ours on workers, in turn with ours in one process of as many threads, beside the ideal's loops. Both find the same
/// bits.
fn on_workers(
    session: &mut Session<'_>,
    bench: &impl Iterative,
    workers: u32,
) -> Result<Report, BenchError> {
    let running = session.start_workers(workers)?;
    let here = &How::default();
    let first = &bench.ours(session, here)?;
    let there = &How {
        partitions: Some(first.partitions),
        on: Some((running.cluster.clone(), bench.described(first.partitions))),
        ..How::default()
    };
    // The workers make their data, and keep it.
    bench.ours(session, there)?;
    let checked = move |session: &mut Session<'_>, how: &How| {
        let job = bench.ours(session, how)?;
        let bits = |found: &[f64]| found.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
        session.check(bits(&job.found) == bits(&first.found), || {
            "one process and the workers find different bits".into()
        })?;
        Ok(job.ms_per_iteration)
    };
    let places = &session.places.clone();
    let rounds = bench
        .with_ideals(session.rounds(), places)
        .ours(ONE_PROCESS, move |session| checked(session, here))
        .ours(WORKERS, move |session| checked(session, there));
    let measured = session.measure(rounds)?;
    let share = over(&measured, ONE_PROCESS, WORKERS);
    let (one, ours) = (measured.figure(ONE_PROCESS), measured.figure(WORKERS));
    let figures = Figures::OnWorkers {
        workers,
        threads_per_worker: session.options.threads.unwrap_or(1),
        subject: bench.subject(),
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
