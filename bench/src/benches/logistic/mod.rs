//! Claim: an iteration of logistic regression over 10 million rows of 20 features takes at most 1.25
//! times what reading them takes, and at most 1.06 times the best loop by hand. Not claimed: how many
//! iterations gradient descent needs.
//!
//! Ours is `brambling::ml::LogisticRegression`, by gradient descent, with a tolerance of 0 and a fixed number of iterations.
//! The job itself notes when the step is known and when the last iteration ends, so the pass that finds
//! the step is not in the figure; every iteration's broadcast and reduction are.

mod check;
mod data;

use super::iterations::{self, Ideal, Iterative, Job, Own, Summary};
use crate::BenchError;
use crate::benches::made::Made;
use crate::described::Described;
use crate::limits::logistic::{BareLoop, FEATURES, Gradient, Model, Problem, plain_loop};
use crate::report::{Limit, Report, Subject, limits, ratio};
use crate::session::{How, Samples, Session, limit};
use brambling::RunOptions;
use brambling::program::Program;
use brambling_machine::measure::Measured;
use brambling_machine::probes::{peak_rss_bytes, reset_peak_rss};
use data::Data;
use std::time::Instant;

/// The limit that arithmetic sets.
const CACHED: &str = "in-cache";
/// Rows that stay in a core's second-level cache.
const CACHED_ROWS: usize = 1_024;

/// What all closures of the rounds read.
struct Given<'d> {
    rows: usize,
    iterations: u64,
    evaluations: usize,
    data: &'d Data,
    problem: Problem<'d>,
    slices: Vec<&'d [f64]>,
    /// As many rows as there are, all of them the same few that stay in the cache: what arithmetic allows.
    cached: Problem<'d>,
    model: Model,
    /// What the plain loop found.
    right: Gradient,
}

pub(crate) fn run(session: &mut Session<'_>) -> Result<Report, BenchError> {
    let (rows, iterations, evaluations) = match session.options.smoke {
        true => (20_000, 3, 1),
        false => (10_000_000, 10, 2),
    };
    reset_peak_rss();
    let data = &Data::generate(rows, session.threads as usize);
    let problem = Problem::new(&data.x, &data.y);
    check::fit_follows_the_gradient(session, data, &problem)?;
    let few = CACHED_ROWS.min(rows);
    let piece = (&data.x[..few * FEATURES], &data.y[..few]);
    let model = check::some_model();
    let given = Given {
        rows,
        iterations,
        evaluations,
        data,
        slices: problem.slices(),
        cached: Problem::of_pieces(std::iter::repeat_n(piece, rows / few)),
        right: plain_loop(&problem, &model),
        problem,
        model,
    };
    if let Some(report) = iterations::elsewhere(session, &given)? {
        return Ok(report);
    }
    let how = iterations::how(session);
    let measured = iterations::measure(session, &given, &how)?;
    let peak_rss = peak_rss_bytes().unwrap_or(0);
    let times = iterations::task_times(session, &given, &how)?;
    let report = report(session, &given, &measured, given.partitions(&how), peak_rss);
    Ok(report.with_task_times(times))
}

impl Given<'_> {
    fn partitions(&self, how: &How) -> u32 {
        iterations::partitions_of_rows(self.rows, FEATURES, how)
    }
}

impl Iterative for Given<'_> {
    /// Partitions must not change a bit.
    const AGREEMENT: f64 = 0.0;

    fn subject(&self) -> Subject {
        Subject::default()
    }

    fn described(&self, partitions: u32) -> Described {
        Described::Logistic {
            rows: self.rows,
            iterations: self.iterations,
            partitions,
        }
    }

    fn ours(&self, session: &mut Session<'_>, how: &How) -> Result<Job, BenchError> {
        let fitted = check::fit(session, self.data, self.iterations, how)?;
        let mut found = fitted.coef.clone();
        found.push(fitted.intercept);
        Ok(Job {
            ms_per_iteration: fitted.seconds_per_iteration() * 1e3,
            tally: fitted.tally,
            partitions: self.partitions(how),
            found,
            dealing_ms: 0.0,
        })
    }

    fn with_ideals<'r, 'a>(
        &'r self,
        rounds: Samples<'r, 'a>,
        places: &'r [usize],
    ) -> Samples<'r, 'a> {
        iterations::with_reads(rounds, &self.slices, places)
    }

    fn limits(&self, measured: &Measured) -> Vec<Limit> {
        limits(measured, iterations::reads(), 1.0, "ms")
    }

    fn ideal(&self, measured: &Measured) -> Ideal {
        iterations::best_read(measured)
    }

    fn bares(&self) -> Vec<&'static str> {
        BareLoop::available().iter().map(|bare| bare.name).collect()
    }

    fn with_loops<'r, 'a>(
        &'r self,
        mut rounds: Samples<'r, 'a>,
        places: &'r [usize],
    ) -> Samples<'r, 'a> {
        for bare in BareLoop::available() {
            rounds = rounds.limit("bare", bare.name, move |session| {
                let found = bare.evaluate(&self.problem, &self.model, places, self.evaluations);
                session.check(found.gradient.agrees_with(&self.right, 1e-9), || {
                    let (name, right) = (bare.name, &self.right);
                    format!("{name} found {:?}, not {right:?}", found.gradient)
                })?;
                Ok(iterations::mean_ms(&found.seconds))
            });
        }
        rounds
            .limit("cached", CACHED, move |_| {
                let found = BareLoop::widest().evaluate(&self.cached, &self.model, places, 1);
                Ok(iterations::mean_ms(&found.seconds))
            })
            .ours("plain-loop", move |session| {
                let start = Instant::now();
                let gradient = plain_loop(&self.problem, &self.model);
                let took = start.elapsed();
                session.check(gradient == self.right, || "the plain loop changed".into())?;
                Ok(took.as_secs_f64() * 1e3)
            })
    }
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

fn report(
    session: &Session<'_>,
    given: &Given<'_>,
    measured: &Measured,
    partitions: u32,
    peak_rss_bytes: u64,
) -> Report {
    let mut summary = Summary::new(given, measured);
    let cached = limit(measured, CACHED, 1.0, "ms");
    if summary.ideal.ms.median < cached.figure.median {
        summary.ideal.bound_by = "compute";
    }
    summary.limits.push(cached);
    let Ideal {
        limit,
        ms,
        bound_by,
        ..
    } = summary.ideal;
    let gb = given.data.bytes() as f64 / 1e9;
    let own = Own {
        partitions,
        figures: None,
        note: format!(
            "{}; {}; bound by {bound_by}",
            ratio(summary.ours, ms, "the ideal"),
            ratio(summary.ours, summary.bare, "the best bare loop"),
        ),
        lines: [None, None],
        limit: &|name| match name {
            CACHED => Some("the same arithmetic over rows that stay cached".to_owned()),
            name => (name == limit).then(|| format!("the ideal: {:.1} GB/s", gb * 1e3 / ms.median)),
        },
        peak_rss_bytes,
        memory: &|peak| format!("{:.2} × the input", peak / gb),
    };
    summary.report(session, given, own)
}
