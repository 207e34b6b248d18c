//! Claim: an iteration of k-means over 10 million rows of 20 features takes at most 1.05 times the best
//! loop by hand, for 10 centres as for 100. Not claimed: how many iterations a search needs.
//!
//! Ours is `brambling::ml::KMeans` from centres that are given, with a tolerance of 0 and a fixed number
//! of iterations. The job itself notes when the columns have been looked at and when the last iteration
//! ends, so that first pass is not in the figure; every iteration's broadcast and reduction are. A loop by
//! hand that takes over twice as long as the best is not measured again.

mod check;
mod data;

use super::iterations::{self, Ideal, Iterative, Job, Own, Summary};
use crate::BenchError;
use crate::benches::made::Made;
use crate::described::Described;
use crate::limits::CHUNK_ROWS;
use crate::limits::kmeans::{BareLoop, Centre, FEATURES, Members, plain_loop};
use crate::report::{Limit, OwnFigures, Report, Subject, limits, ratio};
use crate::session::{How, Samples, Session};
use brambling::RunOptions;
use brambling::program::Program;
use brambling_machine::measure::Measured;
use brambling_machine::probes::{flops_per_ns, peak_rss_bytes, reset_peak_rss};
use brambling_machine::{Figure, IsaLevel};
use check::AGREEMENT;
use data::Data;
use std::cell::RefCell;
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

/// What all closures of the rounds read, and what they note.
struct Given<'d> {
    sizes: Sizes,
    data: &'d Data,
    slices: Vec<&'d [f64]>,
    start: Vec<Centre>,
    /// What the plain loop found by these centres.
    right: Members,
    plain_ms: RefCell<Vec<f64>>,
    slow: RefCell<Slow>,
}

pub(crate) fn run(session: &mut Session<'_>) -> Result<Report, BenchError> {
    let sizes = Sizes::of(session);
    reset_peak_rss();
    let data = &Data::generate(sizes.rows, session.threads as usize);
    let start = data.start(sizes.k);
    let given = Given {
        right: check::all_agree(session, data, &start)?,
        sizes,
        data,
        slices: data.x.chunks(CHUNK_ROWS * FEATURES).collect(),
        start,
        plain_ms: RefCell::default(),
        slow: RefCell::default(),
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

impl Given<'_> {
    fn partitions(&self, how: &How) -> u32 {
        iterations::partitions_of_rows(self.sizes.rows, FEATURES, how)
    }

    /// Mean milliseconds of a bare loop's iteration.
    fn bare_ms(
        &self,
        session: &Session<'_>,
        bare: BareLoop,
        places: &[usize],
    ) -> Result<f64, BenchError> {
        let iterations = self.sizes.bare_iterations;
        let found = bare.iterate(self.data.rows(), &self.start, places, iterations);
        session.check(found.first.agrees_with(&self.right, AGREEMENT), || {
            check::disagreement(bare, &found.first, &self.right)
        })?;
        Ok(iterations::mean_ms(&found.seconds))
    }

    /// Measures the plain loop in the first rounds, until it has its samples.
    fn plain_if_due(&self, session: &Session<'_>) -> Result<f64, BenchError> {
        let mut samples = self.plain_ms.borrow_mut();
        if samples.len() < self.sizes.plain_samples {
            let begin = Instant::now();
            let members = plain_loop(self.data.rows(), &self.start);
            let centres = members.means(&self.start);
            let took = begin.elapsed();
            let is_same = members == self.right && centres == self.right.means(&self.start);
            session.check(is_same, || "the plain loop changed".into())?;
            samples.push(took.as_secs_f64() * 1e3);
        }
        Ok(samples.last().copied().unwrap_or(1.0))
    }
}

impl Iterative for Given<'_> {
    /// Partitions must not change a bit.
    const AGREEMENT: f64 = 0.0;

    fn subject(&self) -> Subject {
        Subject {
            k: Some(self.sizes.k),
            ..Subject::default()
        }
    }

    fn described(&self, partitions: u32) -> Described {
        Described::KMeans {
            k: self.sizes.k,
            rows: self.sizes.rows,
            iterations: self.sizes.iterations,
            partitions,
        }
    }

    fn ours(&self, session: &mut Session<'_>, how: &How) -> Result<Job, BenchError> {
        let fitted = check::fit(session, self.data, &self.start, self.sizes.iterations, how)?;
        Ok(Job {
            ms_per_iteration: fitted.seconds_per_iteration() * 1e3,
            tally: fitted.tally,
            partitions: self.partitions(how),
            found: fitted.centres,
            dealing_ms: 0.0,
        })
    }

    /// To read the input, and to calculate.
    fn with_ideals<'r, 'a>(
        &'r self,
        rounds: Samples<'r, 'a>,
        places: &'r [usize],
    ) -> Samples<'r, 'a> {
        let flops = self.sizes.flops();
        let rounds = iterations::with_reads(rounds, &self.slices, places);
        rounds.limit("flops", ARITHMETIC, move |_| {
            Ok(flops / flops_per_ns(IsaLevel::detect(), places) / 1e6)
        })
    }

    fn limits(&self, measured: &Measured) -> Vec<Limit> {
        let names = iterations::reads().chain([ARITHMETIC]);
        limits(measured, names, 1.0, "ms")
    }

    /// Reading and arithmetic overlap, so the longer one counts.
    fn ideal(&self, measured: &Measured) -> Ideal {
        let (read, arithmetic) = (iterations::best_read(measured), measured.figure(ARITHMETIC));
        if read.ms.median >= arithmetic.median {
            return read;
        }
        Ideal {
            limit: ARITHMETIC,
            ms: arithmetic,
            bound_by: "compute",
            ..read
        }
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
                let mut slow = self.slow.borrow_mut();
                if let Some(ms) = slow.skip(bare.name) {
                    return Ok(ms);
                }
                let ms = self.bare_ms(session, bare, places)?;
                slow.note(bare.name, ms);
                Ok(ms)
            });
        }
        rounds.ours("plain-loop", |session| self.plain_if_due(session))
    }
}

/// Loops that cannot be the best one: their least figure so far stands for all later rounds, which with many
/// centres would otherwise be spent on them.
#[derive(Default)]
struct Slow {
    best_ms: Option<f64>,
    least: HashMap<&'static str, f64>,
    skipped: HashSet<&'static str>,
}

/// How many times as long as the best of the others a loop takes that is not measured again.
const SLOW: f64 = 2.0;

impl Slow {
    /// What stands for a loop that is not measured again.
    fn skip(&mut self, bare: &'static str) -> Option<f64> {
        let best = self.best_ms?;
        let least = self.least.get(bare).copied();
        let known = least.filter(|ms| *ms > SLOW * best)?;
        self.skipped.insert(bare);
        Some(known)
    }

    fn note(&mut self, bare: &'static str, ms: f64) {
        let least = self.least.entry(bare).or_insert(ms);
        *least = least.min(ms);
        self.best_ms = Some(self.best_ms.map_or(ms, |best| best.min(ms)));
    }
}

fn report(
    session: &Session<'_>,
    given: &Given<'_>,
    measured: &Measured,
    partitions: u32,
    peak_rss_bytes: u64,
) -> Report {
    let mut summary = Summary::new(given, measured);
    summary.plain = Figure::of(&given.plain_ms.borrow());
    let (read, ideal) = (iterations::best_read(measured), &summary.ideal);
    let flops = given.sizes.flops();
    let gflops = flops / summary.ours.median / 1e6;
    let gb = given.data.bytes() / 1e9;
    let skipped = &given.slow.borrow().skipped;
    let own = Own {
        partitions,
        figures: Some(OwnFigures::KMeans { gflops }),
        note: format!(
            "{}; {}; {gflops:.0} GFLOP/s; bound by {}",
            ratio(summary.ours, ideal.ms, "the ideal"),
            ratio(summary.ours, summary.bare, "the best bare loop"),
            ideal.bound_by,
        ),
        lines: [None, None],
        limit: &|name| match name {
            name if name == read.limit => {
                let rate = gb * 1e3 / read.ms.median;
                Some(format!("reading alone: {rate:.1} GB/s"))
            }
            ARITHMETIC => {
                let rate = flops / measured.figure(ARITHMETIC).median / 1e6;
                Some(format!("arithmetic alone: {rate:.0} GFLOP/s"))
            }
            name => skipped
                .contains(name)
                .then(|| "not measured again: it is far from the best".to_owned()),
        },
        peak_rss_bytes,
        memory: &|peak| format!("{:.2} × the input", peak / gb),
    };
    summary.report(session, given, own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_far_from_the_best_is_not_measured_again() {
        let mut slow = Slow::default();
        let [first, second] = ["first", "second"];
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
