//! Claims: PageRank does at least 0.45 (kron21) or 0.60 (lognormal) of the edges per second that the same
//! threads could gather from a table of 1 MB, and an iteration takes at most 0.75 times a bare pull loop over
//! compressed rows; the engine adds at most 24 bytes an edge. Not claimed: dealing the edges to partitions,
//! which is done once and reported beside.
//!
//! Ours is `brambling::graph::pagerank` with a tolerance of 0 and a fixed number of iterations. The job itself
//! notes when the edges are in their partitions and when the last iteration ends.

mod check;
mod data;

use super::iterations::{self, Ideal, Job, Subject};
use super::made::Made;
use crate::described::{Described, is_single};
use crate::limits::pagerank::{BareLoop, Gathers, InEdges, Real, plain_loop};
use crate::report::{
    Figures, Line, Report, limit_lines, limits, memory_line, ratio, share_of_ideal,
};
use crate::session::{Counts, How, Session};
use crate::uniform::below;
use crate::{BenchError, GraphName, Precision};
use brambling::RunOptions;
use brambling::graph::{PageRank, Ranked, pagerank_with};
use brambling::program::Program;
use brambling_machine::Rounds;
use brambling_machine::measure::Measured;
use brambling_machine::probes::{peak_rss_bytes, reset_peak_rss};
use data::Data;
use std::cell::Cell;
use std::time::Instant;

/// Of the table that is gathered from.
const TABLE_BYTES: usize = 1 << 20;
const BOUND_BY: &str = "gathers from the cache";

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
    if iterations::is_sweep(session) {
        return sweep::<R>(session, &sizes, data);
    }
    if session.options.workers.is_some() {
        return on_workers::<R>(session, &sizes, data);
    }
    // The first run, before there is anything else: its memory counts.
    reset_peak_rss();
    let before = peak_rss_bytes().unwrap_or(0);
    let how = iterations::how(session);
    let first = rank(session, data, sizes.compared, &how)?;
    let peak_rss = peak_rss_bytes().unwrap_or(0);
    let given = Given::<R> {
        in_edges: InEdges::new(data.vertices, &data.sources, &data.targets),
        gathering: Gathering::new(sizes.gathers),
        sizes,
        data,
    };
    check::all_agree(session, &given, &first)?;
    let measured = measure(session, &given, &how)?;
    let memory = Memory {
        peak_rss,
        added_per_edge: (peak_rss - before) as f64 / data.edges() as f64,
    };
    let times = iterations::task_times(session, &how, &|session, how| {
        ours(session, &given.sizes, data, how)
    })?;
    let report = report(session, &given, &measured, &first, &memory);
    Ok(report.with_task_times(times))
}

/// One search of as many iterations as a round has.
fn ours(
    session: &mut Session<'_>,
    sizes: &Sizes,
    data: &Data,
    how: &How,
) -> Result<Job, BenchError> {
    let ranked = rank(session, data, sizes.iterations, how)?;
    Ok(Job {
        ms_per_iteration: ranked.seconds_per_iteration() * 1e3,
        tally: ranked.tally,
        partitions: ranked.partitions,
        found: ranked.ranks,
    })
}

/// Ours with several numbers of partitions, beside as many gathers as there are edges. The first is checked against
/// the plain loop, the others against it.
fn sweep<R: Real>(
    session: &mut Session<'_>,
    sizes: &Sizes,
    data: &Data,
) -> Result<Report, BenchError> {
    let first = rank(session, data, sizes.compared, &iterations::how(session))?;
    let in_edges = InEdges::new(data.vertices, &data.sources, &data.targets);
    check::ours_agrees::<R>(session, &in_edges, sizes.compared, &first)?;
    drop((first, in_edges));
    let (gathering, places) = (Gathering::<R>::new(sizes.gathers), session.places.clone());
    let rounds = with_gathers(session.rounds(), &gathering, &places);
    let ours = |session: &mut Session<'_>, how: &How| ours(session, sizes, data, how);
    // The number of partitions enters the sums.
    let (measured, sweep) = iterations::sweep(session, rounds, check::agreement::<R>(), &ours)?;
    let (limit, gather) = measured.best(gathers());
    let ideal = Ideal {
        limit,
        ms: gather.scaled(data.edges() as f64 * 1e3),
        bound_by: BOUND_BY,
    };
    let limits = limits(&measured, gathers(), 1e9, "ns");
    let subject = Subject {
        graph: Some(session.options.graph.unwrap_or_default().name()),
        dtype: Some(session.options.dtype.unwrap_or_default().name()),
        ..Subject::default()
    };
    Ok(iterations::sweep_report(
        session, subject, &measured, sweep, &ideal, limits,
    ))
}

/// Ours on workers beside ours in one process, and as many gathers as there are edges.
fn on_workers<R: Real>(
    session: &mut Session<'_>,
    sizes: &Sizes,
    data: &Data,
) -> Result<Report, BenchError> {
    let first = rank(session, data, sizes.compared, &How::default())?;
    let in_edges = InEdges::new(data.vertices, &data.sources, &data.targets);
    check::ours_agrees::<R>(session, &in_edges, sizes.compared, &first)?;
    drop((first, in_edges));
    let (gathering, places) = (Gathering::<R>::new(sizes.gathers), session.places.clone());
    let rounds = with_gathers(session.rounds(), &gathering, &places);
    let (graph, dtype) = (session.options.graph, session.options.dtype);
    let (graph, dtype) = (graph.unwrap_or_default(), dtype.unwrap_or_default());
    let smoke = session.options.smoke;
    let described = |partitions| Described::PageRank {
        graph,
        dtype: is_single(dtype),
        smoke,
        iterations: sizes.iterations,
        partitions,
    };
    let subject = Subject {
        graph: Some(graph.name()),
        dtype: Some(dtype.name()),
        ..Subject::default()
    };
    let ours = |session: &mut Session<'_>, how: &How| ours(session, sizes, data, how);
    iterations::on_workers(session, rounds, described, subject, &ours)
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

/// Gathers from the cache: seconds of each.
fn with_gathers<'r, 'a, R: Real>(
    mut rounds: Rounds<'r, Session<'a>>,
    gathering: &'r Gathering<R>,
    places: &'r [usize],
) -> Rounds<'r, Session<'a>> {
    for bare in cached_loops() {
        rounds = rounds.limit("gather", bare.gather_name(), move |session| {
            // So short that one interruption would decide: the best of three.
            session.sample(|_| {
                let gather = |_| bare.gather(&gathering.table, &gathering.at, places).0;
                let seconds = (0..3).map(gather).fold(f64::INFINITY, f64::min);
                Ok(seconds / gathering.at.len() as f64)
            })
        });
    }
    rounds
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
    session.check(ranked.iterations == iterations, || {
        format!(
            "{} iterations were done, not {iterations}",
            ranked.iterations
        )
    })?;
    Ok(ranked)
}

fn measure<R: Real>(
    session: &mut Session<'_>,
    given: &Given<'_, R>,
    how: &How,
) -> Result<Measured, BenchError> {
    let places = &session.places.clone();
    let seconds_per_task = &Cell::new(0.0);
    let dealing_ms = &Cell::new(0.0);
    let mut rounds = with_gathers(session.rounds(), &given.gathering, places);
    for bare in BareLoop::available() {
        rounds = rounds.limit("bare", bare.name(), move |session| {
            session.sample(|session| {
                let found = bare.iterate::<R>(&given.in_edges, places, given.sizes.bare_iterations);
                session.check(found.change > 0.0, || format!("{}: no change", bare.name()))?;
                let total: f64 = found.seconds.iter().sum();
                Ok(total * 1e3 / found.seconds.len() as f64)
            })
        });
    }
    let rounds = rounds
        .ours("plain-loop", move |session| {
            session.sample(|_| {
                let begin = Instant::now();
                std::hint::black_box(plain_loop::<R>(&given.in_edges, 1));
                Ok(begin.elapsed().as_secs_f64() * 1e3)
            })
        })
        .ours("engine", move |session| {
            session.sample(|session| {
                let ranked = rank(session, given.data, given.sizes.iterations, how)?;
                let wall = ranked.tally.wall.as_secs_f64();
                seconds_per_task.set(wall / ranked.tally.tasks as f64);
                dealing_ms.set(ranked.dealing.as_secs_f64() * 1e3);
                Ok(ranked.seconds_per_iteration() * 1e3)
            })
        })
        .ours("task", move |session| {
            session.sample(|_| Ok(seconds_per_task.get()))
        })
        .ours("dealing", move |session| {
            session.sample(|_| Ok(dealing_ms.get()))
        });
    session.measure(rounds)
}

/// The loops that gather from the cache, where a prefetch has nothing to do.
fn cached_loops() -> Vec<BareLoop> {
    let mut loops = BareLoop::available();
    loops.retain(|bare| !bare.has_prefetch());
    loops
}

fn gathers() -> impl Iterator<Item = &'static str> {
    cached_loops().into_iter().map(BareLoop::gather_name)
}

fn bares() -> impl Iterator<Item = &'static str> {
    BareLoop::available().into_iter().map(BareLoop::name)
}

fn report<R: Real>(
    session: &Session<'_>,
    given: &Given<'_, R>,
    measured: &Measured,
    first: &Ranked,
    memory: &Memory,
) -> Report {
    let (best_gather, gather) = measured.best(gathers());
    let (best_bare, bare) = measured.best(bares());
    let edges = given.data.edges() as f64;
    let ours = measured.figure("engine");
    let (ideal, gathers_per_s) = (gather.scaled(edges * 1e3), gather.rate(1.0));
    let edges_per_s = ours.rate(edges * 1e3);
    let share = share_of_ideal(measured, "engine", best_gather, edges * 1e3);
    let (graph, dtype) = (session.options.graph, session.options.dtype);
    let figures = Figures::PageRank {
        graph: graph.unwrap_or_default().name(),
        dtype: dtype.unwrap_or_default().name(),
        vertices: given.data.vertices,
        edges: given.data.edges(),
        partitions: first.partitions,
        ms_per_iteration: ours,
        plain_loop_ms: measured.figure("plain-loop"),
        bare_loop_ms: bare,
        ideal_ms: ideal,
        share_of_ideal: share,
        edges_per_s,
        gathers_per_s,
        tasks_per_s: measured.figure("task").rate(1.0),
        dealing_ms: measured.figure("dealing"),
        added_bytes_per_edge: memory.added_per_edge,
        bound_by: BOUND_BY,
        peak_rss_bytes: memory.peak_rss,
    };
    let mut limits_found = limits(measured, gathers(), 1e9, "ns");
    limits_found.extend(limits(measured, bares(), 1.0, "ms"));
    let mut lines = vec![
        Line::new("an iteration", ours, "ms").note(format!(
            "{}; {}; {} edges in {} partitions",
            ratio(ours, bare, "the best bare loop"),
            ratio(ours, ideal, "as many gathers"),
            given.data.edges(),
            first.partitions,
        )),
        Line::new("edges", edges_per_s.scaled(1e-6), "million/s"),
        Line::new("share of the ideal", share.scaled(100.0), "%"),
        Line::new("dealing the edges", measured.figure("dealing"), "ms"),
        Line::new(
            "one thread, plain loop",
            measured.figure("plain-loop"),
            "ms",
        ),
    ];
    lines.extend(limit_lines(&limits_found, |name| match name {
        name if name == best_gather => {
            let rate = gathers_per_s.median / 1e6;
            Some(format!("a gather from 1 MB: {rate:.0} million/s"))
        }
        name if name == best_bare => Some("the best bare loop".to_owned()),
        _ => None,
    }));
    lines.push(memory_line(memory.peak_rss, |_| {
        format!(
            "{:.1} bytes an edge beyond the arrays",
            memory.added_per_edge
        )
    }));
    session.report(Counts::of([measured]), figures, limits_found, lines)
}
