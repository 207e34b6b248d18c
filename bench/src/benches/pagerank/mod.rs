//! Claims: PageRank does at least 0.45 (kron21) or 0.60 (lognormal) of the edges per second that the same
//! threads could gather from a table of 1 MB, and an iteration takes at most 0.75 times a bare pull loop over
//! compressed rows; the engine adds at most 24 bytes an edge. Not claimed: dealing the edges to partitions,
//! which is done once and reported beside.
//!
//! Ours is `brambling::graph::pagerank` with a tolerance of 0 and a fixed number of iterations. The job itself
//! notes when the edges are in their partitions and when the last iteration ends.

mod check;
mod data;

use super::iterations::{self, Ideal, Iterative, Job, Own, Summary};
use super::made::Made;
use crate::described::{Described, is_single};
use crate::limits::pagerank::{BareLoop, Gathers, InEdges, Real, plain_loop};
use crate::report::{Limit, Line, OwnFigures, Report, Subject, limits, ratio};
use crate::session::{How, Samples, Session};
use crate::uniform::below;
use crate::{BenchError, GraphName, Precision};
use brambling::RunOptions;
use brambling::graph::{PageRank, Ranked, pagerank_with};
use brambling::program::Program;
use brambling_machine::measure::Measured;
use brambling_machine::probes::{peak_rss_bytes, reset_peak_rss};
use data::Data;
use std::time::Instant;

/// Of the table that is gathered from.
const TABLE_BYTES: usize = 1 << 20;

struct Sizes {
    iterations: u64,
    /// After so many, ranks are compared.
    compared: u64,
    bare_iterations: usize,
    gathers: usize,
}

impl Sizes {
    fn of(session: &Session<'_>) -> Sizes {
        if session.options.smoke {
            return Sizes {
                iterations: 3,
                compared: 3,
                bare_iterations: 1,
                gathers: 100_000,
            };
        }
        Sizes {
            iterations: 10,
            compared: 3,
            bare_iterations: 2,
            gathers: 20_000_000,
        }
    }
}

/// What all closures of the rounds read.
struct Given<'d, R> {
    graph: GraphName,
    dtype: Precision,
    smoke: bool,
    sizes: Sizes,
    data: &'d Data,
    in_edges: InEdges,
    gathering: Gathering<R>,
}

/// A table that stays in the cache, and what is gathered from it.
struct Gathering<R> {
    table: Vec<R>,
    at: Gathers,
}

impl<R: Real> Gathering<R> {
    fn new(gathers: usize) -> Gathering<R> {
        let places = TABLE_BYTES / size_of::<R>();
        let at = (0..gathers as u64).map(|at| below(at, places as u64) as u32);
        Gathering {
            table: (0..places).map(|at| R::of(at as f64)).collect(),
            at: Gathers::new(places, at.collect()),
        }
    }
}

pub(crate) fn run(session: &mut Session<'_>) -> Result<Report, BenchError> {
    let graph = session.options.graph.unwrap_or_default();
    let data = Data::generate(graph, session.options.smoke, session.threads as usize);
    match session.options.dtype.unwrap_or_default() {
        Precision::F64 => run_with::<f64>(session, &data),
        Precision::F32 => run_with::<f32>(session, &data),
    }
}

fn run_with<R: Real>(session: &mut Session<'_>, data: &Data) -> Result<Report, BenchError> {
    let sizes = Sizes::of(session);
    // The first run, before there is anything else: its memory counts.
    reset_peak_rss();
    let before = peak_rss_bytes().unwrap_or(0);
    let how = iterations::how(session);
    let first = rank(session, data, sizes.compared, &how)?;
    let peak_rss = peak_rss_bytes().unwrap_or(0);
    let given = Given::<R> {
        graph: session.options.graph.unwrap_or_default(),
        dtype: session.options.dtype.unwrap_or_default(),
        smoke: session.options.smoke,
        in_edges: InEdges::new(data.vertices, &data.sources, &data.targets),
        gathering: Gathering::new(sizes.gathers),
        sizes,
        data,
    };
    let right = check::ours_agrees(session, &given, &first)?;
    if let Some(report) = iterations::elsewhere(session, &given)? {
        return Ok(report);
    }
    check::loops_agree(session, &given, &right)?;
    let measured = iterations::measure(session, &given, &how)?;
    let memory = Memory {
        peak_rss,
        added_per_edge: (peak_rss - before) as f64 / data.edges() as f64,
    };
    let times = iterations::task_times(session, &given, &how)?;
    let report = report(session, &given, &measured, first.partitions, &memory);
    Ok(report.with_task_times(times))
}

/// What a worker runs: it makes the graph once.
pub(crate) fn program(
    graph: GraphName,
    dtype: Precision,
    smoke: bool,
    iterations: u64,
    partitions: u32,
) -> Result<Program, String> {
    static MADE: Made<(GraphName, bool), Data> = Made::new();
    let data = MADE.get(&(graph, smoke), || Data::generate(graph, smoke, 1));
    let options = RunOptions::new().grid(partitions);
    let program = options.program_of(|options, caller| {
        pagerank_with(&data.list(), &search(dtype, iterations), options, caller)
    });
    program.map_err(|refused| format!("the graph was refused: {refused:?}"))
}

fn search(precision: Precision, iterations: u64) -> PageRank {
    PageRank {
        tol: 0.0,
        max_iter: iterations,
        precision,
        ..PageRank::default()
    }
}

struct Memory {
    peak_rss: u64,
    added_per_edge: f64,
}

/// Does so many iterations, and refuses a search that ended before.
fn rank(
    session: &mut Session<'_>,
    data: &Data,
    iterations: u64,
    how: &How,
) -> Result<Ranked, BenchError> {
    let search = search(session.options.dtype.unwrap_or_default(), iterations);
    let ranked = session.analyse(how, |options, caller| {
        pagerank_with(&data.list(), &search, options, caller)
    })?;
    iterations::all_done(session, ranked.iterations, iterations)?;
    Ok(ranked)
}

impl<R: Real> Iterative for Given<'_, R> {
    /// The number of partitions enters the sums.
    const AGREEMENT: f64 = check::agreement::<R>();

    fn subject(&self) -> Subject {
        Subject {
            graph: Some(self.graph.name()),
            dtype: Some(self.dtype.name()),
            ..Subject::default()
        }
    }

    fn described(&self, partitions: u32) -> Described {
        Described::PageRank {
            graph: self.graph,
            dtype: is_single(self.dtype),
            smoke: self.smoke,
            iterations: self.sizes.iterations,
            partitions,
        }
    }

    fn ours(&self, session: &mut Session<'_>, how: &How) -> Result<Job, BenchError> {
        let ranked = rank(session, self.data, self.sizes.iterations, how)?;
        Ok(Job {
            ms_per_iteration: ranked.seconds_per_iteration() * 1e3,
            tally: ranked.tally,
            partitions: ranked.partitions,
            found: ranked.ranks,
            dealing_ms: ranked.dealing.as_secs_f64() * 1e3,
        })
    }

    /// Gathers from the cache: seconds of each.
    fn with_ideals<'r, 'a>(
        &'r self,
        mut rounds: Samples<'r, 'a>,
        places: &'r [usize],
    ) -> Samples<'r, 'a> {
        let Gathering { table, at } = &self.gathering;
        for (name, bare) in BareLoop::cached() {
            rounds = rounds.limit("gather", name, move |_| {
                // So short that one interruption would decide: the best of three.
                let gather = |_| bare.gather(table, at, places).0;
                let seconds = (0..3).map(gather).fold(f64::INFINITY, f64::min);
                Ok(seconds / at.len() as f64)
            });
        }
        rounds
    }

    fn limits(&self, measured: &Measured) -> Vec<Limit> {
        limits(measured, gathers::<R>(), 1e9, "ns")
    }

    fn ideal(&self, measured: &Measured) -> Ideal {
        let (limit, gather) = measured.best(gathers::<R>());
        let scale = self.data.edges() as f64 * 1e3;
        Ideal {
            limit,
            scale,
            ms: gather.scaled(scale),
            bound_by: "gathers from the cache",
        }
    }

    fn bares(&self) -> Vec<&'static str> {
        let all = BareLoop::<R>::available();
        all.iter().map(|bare| bare.name).collect()
    }

    fn with_loops<'r, 'a>(
        &'r self,
        mut rounds: Samples<'r, 'a>,
        places: &'r [usize],
    ) -> Samples<'r, 'a> {
        for bare in BareLoop::<R>::available() {
            rounds = rounds.limit("bare", bare.name, move |session| {
                let found = bare.iterate(&self.in_edges, places, self.sizes.bare_iterations);
                session.check(found.change > 0.0, || format!("{}: no change", bare.name))?;
                Ok(iterations::mean_ms(&found.seconds))
            });
        }
        rounds.ours("plain-loop", |_| {
            let begin = Instant::now();
            std::hint::black_box(plain_loop::<R>(&self.in_edges, 1));
            Ok(begin.elapsed().as_secs_f64() * 1e3)
        })
    }
}

fn gathers<R: Real>() -> impl Iterator<Item = &'static str> {
    BareLoop::<R>::cached().map(|(name, _)| name)
}

fn report<R: Real>(
    session: &Session<'_>,
    given: &Given<'_, R>,
    measured: &Measured,
    partitions: u32,
    memory: &Memory,
) -> Report {
    let summary = Summary::new(given, measured);
    let (best_gather, gather) = measured.best(gathers::<R>());
    let (vertices, edges) = (given.data.vertices, given.data.edges());
    let gathers_per_s = gather.rate(1.0);
    let edges_per_s = summary.ours.rate(edges as f64 * 1e3);
    let dealing_ms = measured.figure("dealing");
    let added_bytes_per_edge = memory.added_per_edge;
    let own = Own {
        partitions,
        figures: Some(OwnFigures::PageRank {
            vertices,
            edges,
            edges_per_s,
            gathers_per_s,
            dealing_ms,
            added_bytes_per_edge,
        }),
        note: format!(
            "{}; {}; {edges} edges in {partitions} partitions",
            ratio(summary.ours, summary.bare, "the best bare loop"),
            ratio(summary.ours, summary.ideal.ms, "as many gathers"),
        ),
        lines: [
            Some(Line::new("edges", edges_per_s.scaled(1e-6), "million/s")),
            Some(Line::new("dealing the edges", dealing_ms, "ms")),
        ],
        limit: &|name| {
            let rate = gathers_per_s.median / 1e6;
            (name == best_gather).then(|| format!("a gather from 1 MB: {rate:.0} million/s"))
        },
        peak_rss_bytes: memory.peak_rss,
        memory: &|_| format!("{added_bytes_per_edge:.1} bytes an edge beyond the arrays"),
    };
    summary.report(session, given, own)
}
