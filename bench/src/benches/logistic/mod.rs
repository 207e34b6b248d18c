//! Claim: an iteration of logistic regression over 10 million rows of 20 features takes at most 1.25
//! times what reading them takes, and at most 1.06 times the best loop by hand. Not claimed: how many
//! iterations gradient descent needs.
//!
//! Ours is `brambling::ml::LogisticRegression`, by gradient descent, with a tolerance of 0 and a fixed number of iterations.
//! The job itself notes when the step is known and when the last iteration ends, so the pass that finds
//! the step is not in the figure; every iteration's broadcast and reduction are.

mod check;
mod data;

use super::iterations::{self, Ideal, Job, Subject};
use crate::BenchError;
use crate::benches::made::Made;
use crate::described::Described;
use crate::limits::logistic::{BareLoop, FEATURES, Gradient, Model, Problem, plain_loop};
use crate::report::{
    Figures, Line, Report, limit_lines, limits, memory_line, ratio, share_of_ideal,
};
use crate::session::{Counts, How, Session};
use brambling::RunOptions;
use brambling::operators::ml::logistic_regression::partitions_of;
use brambling::program::Program;
use brambling_machine::measure::Measured;
use brambling_machine::probes::{ReadLoop, peak_rss_bytes, read_bandwidth, reset_peak_rss};
use brambling_machine::{IsaLevel, Rounds};
use data::Data;
use std::cell::Cell;
use std::time::Instant;

/// The limit that arithmetic sets.
const CACHED: &str = "in-cache";
/// Rows that stay in a core's second-level cache.
const CACHED_ROWS: usize = 1_024;

struct Sizes {
    rows: usize,
    iterations: u64,
    evaluations: usize,
}

pub(crate) fn run(session: &mut Session<'_>) -> Result<Report, BenchError> {
    let sizes = if session.options.smoke {
        Sizes {
            rows: 20_000,
            iterations: 3,
            evaluations: 1,
        }
    } else {
        Sizes {
            rows: 10_000_000,
            iterations: 10,
            evaluations: 2,
        }
    };
    reset_peak_rss();
    let data = Data::generate(sizes.rows, session.threads as usize);
    let problem = Problem::new(&data.x, &data.y);
    check::fit_follows_the_gradient(session, &data, &problem)?;
    if iterations::is_sweep(session) {
        return sweep(session, &sizes, &data, &problem);
    }
    if session.options.workers.is_some() {
        return on_workers(session, &sizes, &data, &problem);
    }
    let model = check::some_model();
    let right = plain_loop(&problem, &model);
    let how = iterations::how(session);
    let measured = measure(session, &sizes, &data, &problem, &model, &right)?;
    let peak_rss = peak_rss_bytes().unwrap_or(0);
    let times = iterations::task_times(session, &how, &|session, how| {
        ours(session, &sizes, &data, how)
    })?;
    let partitions = partitions(&sizes, &how);
    let report = report(session, &data, &measured, partitions, peak_rss);
    Ok(report.with_task_times(times))
}

fn partitions(sizes: &Sizes, how: &How) -> u32 {
    let own = || partitions_of(sizes.rows, FEATURES);
    how.partitions.unwrap_or_else(own)
}

/// One fit of as many iterations as a round has.
fn ours(
    session: &mut Session<'_>,
    sizes: &Sizes,
    data: &Data,
    how: &How,
) -> Result<Job, BenchError> {
    let fitted = check::fit(session, data, sizes.iterations, how)?;
    let mut found = fitted.coef.clone();
    found.push(fitted.intercept);
    Ok(Job {
        ms_per_iteration: fitted.seconds_per_iteration() * 1e3,
        tally: fitted.tally,
        partitions: partitions(sizes, how),
        found,
    })
}

/// Ours with several numbers of partitions, which must not change a bit, beside reading alone.
fn sweep(
    session: &mut Session<'_>,
    sizes: &Sizes,
    data: &Data,
    problem: &Problem<'_>,
) -> Result<Report, BenchError> {
    let (slices, places) = (problem.slices(), session.places.clone());
    let rounds = with_reads(session.rounds(), data, &slices, &places);
    let ours = |session: &mut Session<'_>, how: &How| ours(session, sizes, data, how);
    let (measured, sweep) = iterations::sweep(session, rounds, 0.0, &ours)?;
    let (limit, ms) = measured.best(reads());
    let ideal = Ideal {
        limit,
        ms,
        bound_by: "memory bandwidth",
    };
    let limits = limits(&measured, reads(), 1.0, "ms");
    let subject = Subject::default();
    Ok(iterations::sweep_report(
        session, subject, &measured, sweep, &ideal, limits,
    ))
}

/// Ours on workers beside ours in one process, and reading alone.
fn on_workers(
    session: &mut Session<'_>,
    sizes: &Sizes,
    data: &Data,
    problem: &Problem<'_>,
) -> Result<Report, BenchError> {
    let (slices, places) = (problem.slices(), session.places.clone());
    let rounds = with_reads(session.rounds(), data, &slices, &places);
    let described = |partitions| Described::Logistic {
        rows: sizes.rows,
        iterations: sizes.iterations,
        partitions,
    };
    let ours = |session: &mut Session<'_>, how: &How| ours(session, sizes, data, how);
    iterations::on_workers(session, rounds, described, Subject::default(), &ours)
}

/// What a worker runs: it makes the data once.
pub(crate) fn program(rows: usize, iterations: u64, partitions: u32) -> Result<Program, String> {
    static MADE: Made<usize, Data> = Made::new();
    let data = MADE.get(&rows, || Data::generate(rows, 1));
    let (x, y) = (data.x.clone(), data.y.clone());
    let options = RunOptions::new().partitions(partitions);
    let program = options.program_of(|options, caller| {
        check::model(iterations).fit(x, y, FEATURES, options, caller)
    });
    program.map_err(|refused| format!("the fit was refused: {refused:?}"))
}

fn reads() -> impl Iterator<Item = &'static str> {
    ReadLoop::available().into_iter().map(|read| read.name())
}

/// The loops that only read the input.
fn with_reads<'r, 'a>(
    mut rounds: Rounds<'r, Session<'a>>,
    data: &Data,
    slices: &'r [&[f64]],
    places: &'r [usize],
) -> Rounds<'r, Session<'a>> {
    let bytes = data.bytes() as f64;
    for read in ReadLoop::available() {
        rounds = rounds.limit("read", read.name(), move |session: &mut Session<'a>| {
            // A byte per nanosecond is a gigabyte a second.
            session.sample(|_| Ok(bytes / read_bandwidth(read, slices, places) / 1e6))
        });
    }
    rounds
}

fn measure(
    session: &mut Session<'_>,
    sizes: &Sizes,
    data: &Data,
    problem: &Problem<'_>,
    model: &Model,
    right: &Gradient,
) -> Result<Measured, BenchError> {
    let places = &session.places.clone();
    let slices = &problem.slices();
    let cached = &cached(data, sizes.rows);
    let seconds_per_task = &Cell::new(0.0);
    let how = &iterations::how(session);
    let mut rounds = with_reads(session.rounds(), data, slices, places);
    for bare in BareLoop::available() {
        rounds = rounds.limit("bare", bare.name(), move |session| {
            session.sample(|session| {
                let evaluated = bare.evaluate(problem, model, places, sizes.evaluations);
                session.check(evaluated.gradient.agrees_with(right, 1e-9), || {
                    format!(
                        "{} found {:?}, not {right:?}",
                        bare.name(),
                        evaluated.gradient
                    )
                })?;
                let total: f64 = evaluated.seconds.iter().sum();
                Ok(total * 1e3 / evaluated.seconds.len() as f64)
            })
        });
    }
    let rounds = rounds
        .limit("cached", CACHED, move |session| {
            session.sample(|_| {
                let evaluated = widest().evaluate(cached, model, places, 1);
                Ok(evaluated.seconds[0] * 1e3)
            })
        })
        .ours("plain-loop", move |session| {
            session.sample(|session| {
                let start = Instant::now();
                let gradient = plain_loop(problem, model);
                let took = start.elapsed();
                session.check(gradient == *right, || "the plain loop changed".into())?;
                Ok(took.as_secs_f64() * 1e3)
            })
        })
        .ours("engine", move |session| {
            session.sample(|session| {
                let job = ours(session, sizes, data, how)?;
                seconds_per_task.set(job.seconds_per_task());
                Ok(job.ms_per_iteration)
            })
        })
        .ours("task", move |session| {
            session.sample(|_| Ok(seconds_per_task.get()))
        });
    session.measure(rounds)
}

/// As many rows as there are, all of them the same few that stay in the cache: what arithmetic allows.
fn cached<'d>(data: &'d Data, rows: usize) -> Problem<'d> {
    let few = CACHED_ROWS.min(rows);
    let piece = (&data.x[..few * FEATURES], &data.y[..few]);
    Problem::of_pieces(std::iter::repeat_n(piece, rows / few))
}

/// The loop for the best instruction set, without prefetches that a cache does not need.
fn widest() -> BareLoop {
    match IsaLevel::detect() {
        IsaLevel::V4 => BareLoop::Avx512,
        IsaLevel::V3 => BareLoop::Avx2,
        IsaLevel::V2 => BareLoop::Plain,
    }
}

fn bares() -> impl Iterator<Item = &'static str> {
    BareLoop::available().into_iter().map(|bare| bare.name())
}

fn report(
    session: &Session<'_>,
    data: &Data,
    measured: &Measured,
    partitions: u32,
    peak_rss_bytes: u64,
) -> Report {
    let (best_read, ideal) = measured.best(reads());
    let (best_bare, bare) = measured.best(bares());
    let (ours, plain) = (measured.figure("engine"), measured.figure("plain-loop"));
    let cached = measured.figure(CACHED);
    let share = share_of_ideal(measured, "engine", best_read, 1.0);
    let bound_by = if ideal.median >= cached.median {
        "memory bandwidth"
    } else {
        "compute"
    };
    let figures = Figures::Logistic {
        partitions,
        ms_per_iteration: ours,
        plain_loop_ms: plain,
        bare_loop_ms: bare,
        ideal_ms: ideal,
        share_of_ideal: share,
        tasks_per_s: measured.figure("task").rate(1.0),
        bound_by,
        peak_rss_bytes,
    };
    let names = reads().chain(bares()).chain([CACHED]);
    let limits = limits(measured, names, 1.0, "ms");
    let gb = data.bytes() as f64 / 1e9;
    let mut lines = vec![
        Line::new("an iteration", ours, "ms").note(format!(
            "{}; {}; bound by {bound_by}",
            ratio(ours, ideal, "the ideal"),
            ratio(ours, bare, "the best bare loop"),
        )),
        Line::new("share of the ideal", share.scaled(100.0), "%"),
        Line::new("one thread, plain loop", plain, "ms"),
    ];
    lines.extend(limit_lines(&limits, |name| match name {
        name if name == best_read => {
            Some(format!("the ideal: {:.1} GB/s", gb * 1e3 / ideal.median))
        }
        name if name == best_bare => Some("the best bare loop".to_owned()),
        CACHED => Some("the same arithmetic over rows that stay cached".to_owned()),
        _ => None,
    }));
    lines.push(memory_line(peak_rss_bytes, |peak| {
        format!("{:.2} × the input", peak / gb)
    }));
    session.report(Counts::of([measured]), figures, limits, lines)
}
