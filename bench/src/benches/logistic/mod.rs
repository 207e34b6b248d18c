//! Claim: an iteration of logistic regression over 10 million rows of 20 features takes at most 1.25
//! times what reading them takes, and at most 1.06 times the best loop by hand. Not claimed: how many
//! iterations gradient descent needs.
//!
//! Ours is `brambling::ml::LogisticRegression`, by gradient descent, with a tolerance of 0 and a fixed number of iterations.
//! The job itself notes when the step is known and when the last iteration ends, so the pass that finds
//! the step is not in the figure; every iteration's broadcast and reduction are.

mod check;
mod data;

use crate::BenchError;
use crate::limits::logistic::{BareLoop, FEATURES, Gradient, Model, Problem, plain_loop};
use crate::report::{Figures, Limit, Line, Report, ratio};
use crate::session::{Counts, Session, limit};
use brambling_machine::measure::Measured;
use brambling_machine::probes::{ReadLoop, peak_rss_bytes, read_bandwidth, reset_peak_rss};
use brambling_machine::{Figure, Isa};
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
    let model = check::some_model();
    let right = plain_loop(&problem, &model);
    check::fit_follows_the_gradient(session, &data, &problem)?;
    let measured = measure(session, &sizes, &data, &problem, &model, &right)?;
    let peak_rss = peak_rss_bytes().unwrap_or(0);
    Ok(report(session, &data, &measured, peak_rss))
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
    let bytes = data.bytes() as f64;
    let cached = &cached(data, sizes.rows);
    let seconds_per_task = &Cell::new(0.0);
    let mut rounds = session.rounds();
    for read in ReadLoop::available() {
        rounds = rounds.limit("read", read.name(), move |session: &mut Session<'_>| {
            // A byte per nanosecond is a gigabyte a second.
            session.sample(|_| Ok(bytes / read_bandwidth(read, slices, places) / 1e6))
        });
    }
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
                let fitted = check::fit(session, data, sizes.iterations)?;
                let wall = fitted.tally.wall.as_secs_f64();
                seconds_per_task.set(wall / fitted.tally.tasks as f64);
                Ok(fitted.seconds_per_iteration() * 1e3)
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
    match Isa::detect() {
        Isa::V4 => BareLoop::Avx512,
        Isa::V3 => BareLoop::Avx2,
        Isa::V2 => BareLoop::Plain,
    }
}

/// Ideal ÷ ours within each round: before and after ours the machine was the same.
fn share_of_ideal(measured: &Measured, best_read: &str) -> Figure {
    let ours = measured.samples("engine");
    let reads = measured.samples(best_read).chunks(2);
    let shares: Vec<f64> = ours
        .iter()
        .zip(reads)
        .map(|(ours, reads)| reads.iter().copied().fold(f64::INFINITY, f64::min) / ours)
        .collect();
    Figure::of(&shares)
}

fn report(session: &Session<'_>, data: &Data, measured: &Measured, peak_rss_bytes: u64) -> Report {
    let reads = ReadLoop::available();
    let bares = BareLoop::available();
    let (best_read, ideal) = measured.best(reads.iter().map(|read| read.name()));
    let (best_bare, bare) = measured.best(bares.iter().map(|bare| bare.name()));
    let (ours, plain) = (measured.figure("engine"), measured.figure("plain-loop"));
    let cached = measured.figure(CACHED);
    let share = share_of_ideal(measured, best_read);
    let bound_by = if ideal.median >= cached.median {
        "memory bandwidth"
    } else {
        "compute"
    };
    let figures = Figures::Logistic {
        ms_per_iteration: ours,
        plain_loop_ms: plain,
        bare_loop_ms: bare,
        ideal_ms: ideal,
        share_of_ideal: share,
        tasks_per_s: measured.figure("task").rate(1.0),
        bound_by,
        peak_rss_bytes,
    };
    let limits: Vec<Limit> = reads
        .iter()
        .map(|read| read.name())
        .chain(bares.iter().map(|bare| bare.name()))
        .chain([CACHED])
        .map(|name| limit(measured, name, 1.0, "ms"))
        .collect();
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
    for limit in &limits {
        let line = Line::new(format!("limit: {}", limit.name), limit.figure, "ms");
        lines.push(match limit.name.as_str() {
            name if name == best_read => {
                line.note(format!("the ideal: {:.1} GB/s", gb * 1e3 / ideal.median))
            }
            name if name == best_bare => line.note("the best bare loop"),
            name if name == CACHED => line.note("the same arithmetic over rows that stay cached"),
            _ => line,
        });
    }
    let peak = Figure::of(&[peak_rss_bytes as f64 / 1e9]);
    lines.push(Line::new("peak memory", peak, "GB").note(ratio(
        peak,
        Figure::of(&[gb]),
        "the input",
    )));
    session.report(Counts::of([measured]), figures, limits, lines)
}
