//! Claim: an iteration of k-means over 10 million rows of 20 features takes at most 1.05 times the best
//! loop by hand, for 10 centres as for 100. Not claimed: how many iterations a search needs.
//!
//! Ours is `brambling::ml::KMeans` from centres that are given, with a tolerance of 0 and a fixed number
//! of iterations. The job itself notes when the columns have been looked at and when the last iteration
//! ends, so that first pass is not in the figure; every iteration's broadcast and reduction are. A loop by
//! hand that takes over twice as long as the best is not measured again.

mod check;
mod data;

use super::iterations::{self, Ideal, Job, Subject};
use crate::BenchError;
use crate::benches::made::Made;
use crate::described::Described;
use crate::limits::kmeans::{BareLoop, Centre, FEATURES, Members, Problem, plain_loop};
use crate::report::{
    Figures, Line, Report, limit_lines, limits, memory_line, ratio, share_of_ideal,
};
use crate::session::{Counts, How, Session};
use brambling::RunOptions;
use brambling::operators::ml::logistic_regression::partitions_of;
use brambling::program::Program;
use brambling_machine::measure::Measured;
use brambling_machine::probes::{
    ReadLoop, flops_per_ns, peak_rss_bytes, read_bandwidth, reset_peak_rss,
};
use brambling_machine::{Figure, IsaLevel, Rounds};
use check::AGREEMENT;
use data::Data;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::time::Instant;

const K: u32 = 10;
/// The limit that arithmetic sets.
const ARITHMETIC: &str = "peak-flops";

struct Sizes {
    k: usize,
    rows: usize,
    iterations: u64,
    bare_iterations: usize,
    /// How often the plain loop is measured: with many centres it takes longer than all else together.
    plain_samples: usize,
}

impl Sizes {
    fn of(session: &Session<'_>) -> Sizes {
        let k = session.options.k.unwrap_or(K) as usize;
        if session.options.smoke {
            return Sizes {
                k,
                rows: 20_000,
                iterations: 3,
                bare_iterations: 1,
                plain_samples: 1,
            };
        }
        Sizes {
            k,
            rows: 10_000_000,
            iterations: (100 / k as u64).clamp(3, 10),
            bare_iterations: 2,
            plain_samples: (70 / k).clamp(2, 7),
        }
    }

    /// Arithmetic of an iteration: a multiplication and an addition for each value of a row and a centre,
    /// and an addition for each value of a row. Comparisons are not counted.
    fn flops(&self) -> f64 {
        (self.rows * FEATURES * (2 * self.k + 1)) as f64
    }
}

/// What all closures of the rounds read.
struct Given<'d> {
    sizes: Sizes,
    data: &'d Data,
    problem: Problem<'d>,
    start: Vec<Centre>,
    /// What the plain loop found by these centres.
    right: Members,
}

/// What the rounds gave, and what is measured beside them.
struct Found {
    measured: Measured,
    plain: Figure,
    /// Bare loops that were not measured again, once one had been twice as fast.
    skipped: HashSet<&'static str>,
}

pub(crate) fn run(session: &mut Session<'_>) -> Result<Report, BenchError> {
    let sizes = Sizes::of(session);
    reset_peak_rss();
    let data = Data::generate(sizes.rows, session.threads as usize);
    let (problem, start) = (Problem::new(&data.x), data.start(sizes.k));
    let right = check::all_agree(session, &data, &problem, &start)?;
    if iterations::is_sweep(session) {
        return sweep(session, &sizes, &data, &problem, &start);
    }
    if session.options.workers.is_some() {
        return on_workers(session, &sizes, &data, &problem, &start);
    }
    let given = Given {
        sizes,
        data: &data,
        problem,
        start,
        right,
    };
    let how = iterations::how(session);
    let found = measure(session, &given, &how)?;
    let peak_rss = peak_rss_bytes().unwrap_or(0);
    let times = iterations::task_times(session, &how, &|session, how| {
        ours(session, &given.sizes, &data, &given.start, how)
    })?;
    let report = report(session, &given, &found, &how, peak_rss);
    Ok(report.with_task_times(times))
}

fn partitions(sizes: &Sizes, how: &How) -> u32 {
    let own = || partitions_of(sizes.rows, FEATURES);
    how.partitions.unwrap_or_else(own)
}

/// One search of as many iterations as a round has.
fn ours(
    session: &mut Session<'_>,
    sizes: &Sizes,
    data: &Data,
    start: &[Centre],
    how: &How,
) -> Result<Job, BenchError> {
    let fitted = check::fit(session, data, start, sizes.iterations, how)?;
    Ok(Job {
        ms_per_iteration: fitted.seconds_per_iteration() * 1e3,
        tally: fitted.tally,
        partitions: partitions(sizes, how),
        found: fitted.centres,
    })
}

/// Ours with several numbers of partitions, which must not change a bit, beside what reading and arithmetic take.
fn sweep(
    session: &mut Session<'_>,
    sizes: &Sizes,
    data: &Data,
    problem: &Problem<'_>,
    start: &[Centre],
) -> Result<Report, BenchError> {
    let (slices, places) = (problem.slices(), session.places.clone());
    let rounds = with_ideals(session.rounds(), sizes, data, &slices, &places);
    let ours = |session: &mut Session<'_>, how: &How| ours(session, sizes, data, start, how);
    let (measured, sweep) = iterations::sweep(session, rounds, 0.0, &ours)?;
    let limits = limits(&measured, reads().chain([ARITHMETIC]), 1.0, "ms");
    let subject = Subject {
        k: Some(sizes.k),
        ..Subject::default()
    };
    Ok(iterations::sweep_report(
        session,
        subject,
        &measured,
        sweep,
        &ideal(&measured),
        limits,
    ))
}

/// Ours on workers beside ours in one process, and what reading and arithmetic take.
fn on_workers(
    session: &mut Session<'_>,
    sizes: &Sizes,
    data: &Data,
    problem: &Problem<'_>,
    start: &[Centre],
) -> Result<Report, BenchError> {
    let (slices, places) = (problem.slices(), session.places.clone());
    let rounds = with_ideals(session.rounds(), sizes, data, &slices, &places);
    let described = |partitions| Described::KMeans {
        k: sizes.k,
        rows: sizes.rows,
        iterations: sizes.iterations,
        partitions,
    };
    let subject = Subject {
        k: Some(sizes.k),
        ..Subject::default()
    };
    let ours = |session: &mut Session<'_>, how: &How| ours(session, sizes, data, start, how);
    iterations::on_workers(session, rounds, described, subject, &ours)
}

/// What a worker runs: it makes the data once.
pub(crate) fn program(
    k: usize,
    rows: usize,
    iterations: u64,
    partitions: u32,
) -> Result<Program, String> {
    static MADE: Made<usize, Data> = Made::new();
    let data = MADE.get(&rows, || Data::generate(rows, 1));
    let (x, centres) = (data.x.clone(), data.start(k).as_flattened().to_vec());
    let options = RunOptions::new().partitions(partitions);
    let program = options.program_of(|options, caller| {
        check::model(iterations).fit(x, FEATURES, centres, options, caller)
    });
    program.map_err(|refused| format!("the fit was refused: {refused:?}"))
}

fn reads() -> impl Iterator<Item = &'static str> {
    ReadLoop::available().into_iter().map(|read| read.name())
}

/// What an iteration has to do: to read the input, and to calculate.
fn with_ideals<'r, 'a>(
    mut rounds: Rounds<'r, Session<'a>>,
    sizes: &Sizes,
    data: &Data,
    slices: &'r [&[f64]],
    places: &'r [usize],
) -> Rounds<'r, Session<'a>> {
    let (bytes, flops) = (data.bytes(), sizes.flops());
    for read in ReadLoop::available() {
        rounds = rounds.limit("read", read.name(), move |session: &mut Session<'a>| {
            // A byte per nanosecond is a gigabyte a second.
            session.sample(|_| Ok(bytes / read_bandwidth(read, slices, places) / 1e6))
        });
    }
    rounds.limit("flops", ARITHMETIC, move |session| {
        session.sample(|_| Ok(flops / flops_per_ns(IsaLevel::detect(), places) / 1e6))
    })
}

/// An iteration has to read and to calculate: both overlap, so the longer one counts.
fn ideal(measured: &Measured) -> Ideal {
    let (limit, ms) = measured.best(reads());
    let arithmetic = measured.figure(ARITHMETIC);
    if ms.median >= arithmetic.median {
        let bound_by = "memory bandwidth";
        return Ideal {
            limit,
            ms,
            bound_by,
        };
    }
    Ideal {
        limit: ARITHMETIC,
        ms: arithmetic,
        bound_by: "compute",
    }
}

fn measure(session: &mut Session<'_>, given: &Given<'_>, how: &How) -> Result<Found, BenchError> {
    let places = &session.places.clone();
    let slices = &given.problem.slices();
    let seconds_per_task = &Cell::new(0.0);
    let plain_ms = &RefCell::new(Vec::new());
    let slow = &RefCell::new(Slow::default());
    let mut rounds = with_ideals(session.rounds(), &given.sizes, given.data, slices, places);
    for bare in BareLoop::available() {
        rounds = rounds.limit("bare", bare.name(), move |session| {
            session.sample(|session| {
                let known = slow.borrow_mut().skip(bare);
                if let Some(ms) = known {
                    return Ok(ms);
                }
                let ms = bare_ms(session, bare, given, places)?;
                slow.borrow_mut().note(bare, ms);
                Ok(ms)
            })
        });
    }
    let rounds = rounds
        .ours("plain-loop", move |session| {
            session.sample(|session| plain_if_due(session, given, &mut plain_ms.borrow_mut()))
        })
        .ours("engine", move |session| {
            session.sample(|session| {
                let job = ours(session, &given.sizes, given.data, &given.start, how)?;
                seconds_per_task.set(job.seconds_per_task());
                Ok(job.ms_per_iteration)
            })
        })
        .ours("task", move |session| {
            session.sample(|_| Ok(seconds_per_task.get()))
        });
    let measured = session.measure(rounds)?;
    let plain = Figure::of(&plain_ms.borrow());
    let skipped = slow.take().skipped.iter().map(|bare| bare.name()).collect();
    Ok(Found {
        measured,
        plain,
        skipped,
    })
}

/// Loops that cannot be the best one: their least figure so far stands for all later rounds, which with many
/// centres would otherwise be spent on them.
#[derive(Default)]
struct Slow {
    best_ms: Option<f64>,
    least: HashMap<BareLoop, f64>,
    skipped: HashSet<BareLoop>,
}

/// How many times as long as the best of the others a loop takes that is not measured again.
const SLOW: f64 = 2.0;

impl Slow {
    /// What stands for a loop that is not measured again.
    fn skip(&mut self, bare: BareLoop) -> Option<f64> {
        let best = self.best_ms?;
        let least = self.least.get(&bare).copied();
        let known = least.filter(|ms| *ms > SLOW * best)?;
        self.skipped.insert(bare);
        Some(known)
    }

    fn note(&mut self, bare: BareLoop, ms: f64) {
        let least = self.least.entry(bare).or_insert(ms);
        *least = least.min(ms);
        self.best_ms = Some(self.best_ms.map_or(ms, |best| best.min(ms)));
    }
}

/// Mean milliseconds of a bare loop's iteration.
fn bare_ms(
    session: &Session<'_>,
    bare: BareLoop,
    given: &Given<'_>,
    places: &[usize],
) -> Result<f64, BenchError> {
    let iterations = given.sizes.bare_iterations;
    let found = bare.iterate(&given.problem, &given.start, places, iterations);
    session.check(found.first.agrees_with(&given.right, AGREEMENT), || {
        check::disagreement(bare, &found.first, &given.right)
    })?;
    let total: f64 = found.seconds.iter().sum();
    Ok(total * 1e3 / found.seconds.len() as f64)
}

/// Measures the plain loop in the first rounds, until it has its samples.
fn plain_if_due(
    session: &Session<'_>,
    given: &Given<'_>,
    samples: &mut Vec<f64>,
) -> Result<f64, BenchError> {
    if samples.len() < given.sizes.plain_samples {
        let begin = Instant::now();
        let members = plain_loop(&given.problem, &given.start);
        let centres = members.means(&given.start);
        let took = begin.elapsed();
        let is_same = members == given.right && centres == given.right.means(&given.start);
        session.check(is_same, || "the plain loop changed".into())?;
        samples.push(took.as_secs_f64() * 1e3);
    }
    Ok(samples.last().copied().unwrap_or(1.0))
}

fn bares() -> impl Iterator<Item = &'static str> {
    BareLoop::available().into_iter().map(|bare| bare.name())
}

fn report(
    session: &Session<'_>,
    given: &Given<'_>,
    found: &Found,
    how: &How,
    peak_rss_bytes: u64,
) -> Report {
    let measured = &found.measured;
    let (best_read, read) = measured.best(reads());
    let (best_bare, bare) = measured.best(bares());
    let (ours, arithmetic) = (measured.figure("engine"), measured.figure(ARITHMETIC));
    let ideal = ideal(measured);
    let share = share_of_ideal(measured, "engine", ideal.limit, 1.0);
    let gflops = given.sizes.flops() / ours.median / 1e6;
    let figures = Figures::KMeans {
        k: given.sizes.k,
        partitions: partitions(&given.sizes, how),
        ms_per_iteration: ours,
        plain_loop_ms: found.plain,
        bare_loop_ms: bare,
        ideal_ms: ideal.ms,
        share_of_ideal: share,
        tasks_per_s: measured.figure("task").rate(1.0),
        bound_by: ideal.bound_by,
        gflops,
        peak_rss_bytes,
    };
    let names = reads().chain([ARITHMETIC]).chain(bares());
    let limits = limits(measured, names, 1.0, "ms");
    let mut lines = vec![
        Line::new("an iteration", ours, "ms").note(format!(
            "{}; {}; {gflops:.0} GFLOP/s; bound by {}",
            ratio(ours, ideal.ms, "the ideal"),
            ratio(ours, bare, "the best bare loop"),
            ideal.bound_by,
        )),
        Line::new("share of the ideal", share.scaled(100.0), "%"),
        Line::new("one thread, plain loop", found.plain, "ms"),
    ];
    let gb = given.data.bytes() / 1e9;
    lines.extend(limit_lines(&limits, |name| match name {
        name if name == best_read => {
            let rate = gb * 1e3 / read.median;
            Some(format!("reading alone: {rate:.1} GB/s"))
        }
        ARITHMETIC => {
            let rate = given.sizes.flops() / arithmetic.median / 1e6;
            Some(format!("arithmetic alone: {rate:.0} GFLOP/s"))
        }
        name if name == best_bare => Some("the best bare loop".to_owned()),
        name if found.skipped.contains(name) => {
            Some("not measured again: it is far from the best".to_owned())
        }
        _ => None,
    }));
    lines.push(memory_line(peak_rss_bytes, |peak| {
        format!("{:.2} × the input", peak / gb)
    }));
    session.report(Counts::of([measured]), figures, limits, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_far_from_the_best_is_not_measured_again() {
        let mut slow = Slow::default();
        let [first, second] = [BareLoop::Scalar, BareLoop::Avx2];
        assert_eq!(slow.skip(first), None);
        slow.note(first, 30.0);
        assert_eq!(slow.skip(first), None);
        slow.note(second, 10.0);
        slow.note(first, 25.0);
        assert_eq!((slow.skip(first), slow.skip(second)), (Some(25.0), None));
        assert_eq!(slow.skipped, HashSet::from([first]));
        // As fast as that it may become the best.
        slow.note(first, 19.0);
        assert_eq!(slow.skip(first), None);
    }
}
