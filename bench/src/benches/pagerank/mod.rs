//! Claims: PageRank does at least 0.45 (kron21) or 0.60 (lognormal) of the edges per second that the same
//! threads could gather from a table of 1 MB, and an iteration takes at most 0.75 times a bare pull loop over
//! compressed rows; the engine adds at most 24 bytes an edge. Not claimed: dealing the edges to partitions,
//! which is done once and reported beside.
//!
//! Ours is `brambling::graph::pagerank` with a tolerance of 0 and a fixed number of iterations. The job itself
//! notes when the edges are in their partitions and when the last iteration ends.

mod check;
mod data;

use crate::limits::pagerank::{BareLoop, Gathers, InEdges, Real, plain_loop};
use crate::report::{Figures, Limit, Line, Report, ratio};
use crate::session::{Counts, Session, limit};
use crate::uniform::below;
use crate::{BenchError, Precision};
use brambling::graph::Ranked;
use brambling_machine::Figure;
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
    table: Vec<R>,
    gathers: Gathers,
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
    let first = rank(session, data, sizes.compared)?;
    let peak_rss = peak_rss_bytes().unwrap_or(0);
    let places = TABLE_BYTES / size_of::<R>();
    let at = (0..sizes.gathers as u64).map(|at| below(at, places as u64) as u32);
    let given = Given {
        in_edges: InEdges::new(data.vertices, &data.sources, &data.targets),
        table: (0..places).map(|at| R::of(at as f64)).collect(),
        gathers: Gathers::new(places, at.collect()),
        sizes,
        data,
    };
    check::all_agree(session, &given, &first)?;
    let measured = measure(session, &given)?;
    let memory = Memory {
        peak_rss,
        added_per_edge: (peak_rss - before) as f64 / data.edges() as f64,
    };
    Ok(report(session, &given, &measured, &first, &memory))
}

struct Memory {
    peak_rss: u64,
    added_per_edge: f64,
}

/// Does so many iterations, and refuses a search that ended before.
fn rank(session: &mut Session<'_>, data: &Data, iterations: u64) -> Result<Ranked, BenchError> {
    let how = brambling::graph::PageRank {
        tol: 0.0,
        max_iter: iterations,
        precision: session.options.dtype.unwrap_or_default(),
        ..Default::default()
    };
    let partitions = session
        .options
        .partitions_per_core
        .map(|k| k * session.threads);
    let ranked = session.analyse(partitions, |options, caller| {
        brambling::graph::pagerank_with(&data.list(), &how, options, caller)
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
) -> Result<Measured, BenchError> {
    let places = &session.places.clone();
    let seconds_per_task = &Cell::new(0.0);
    let dealing_ms = &Cell::new(0.0);
    let mut rounds = session.rounds();
    for bare in gathers() {
        rounds = rounds.limit("gather", bare.gather_name(), move |session| {
            // So short that one interruption would decide: the best of three.
            session.sample(|_| {
                let gather = |_| bare.gather(&given.table, &given.gathers, places).0;
                let seconds = (0..3).map(gather).fold(f64::INFINITY, f64::min);
                Ok(seconds / given.gathers.len() as f64)
            })
        });
    }
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
                let ranked = rank(session, given.data, given.sizes.iterations)?;
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
fn gathers() -> Vec<BareLoop> {
    let mut loops = BareLoop::available();
    loops.retain(|bare| !bare.has_prefetch());
    loops
}

/// Ideal ÷ ours within each round: before and after ours the machine was the same.
fn share_of_ideal(measured: &Measured, ideal: &str, edges: f64) -> Figure {
    let limits = measured.samples(ideal).chunks(2);
    let shares: Vec<f64> = measured
        .samples("engine")
        .iter()
        .zip(limits)
        .map(|(ours, limits)| {
            let best = limits.iter().copied().fold(f64::INFINITY, f64::min);
            best * edges * 1e3 / ours
        })
        .collect();
    Figure::of(&shares)
}

fn report<R: Real>(
    session: &Session<'_>,
    given: &Given<'_, R>,
    measured: &Measured,
    first: &Ranked,
    memory: &Memory,
) -> Report {
    let loops = BareLoop::available();
    let (best_gather, gather) = measured.best(gathers().iter().map(|bare| bare.gather_name()));
    let (best_bare, bare) = measured.best(loops.iter().map(|bare| bare.name()));
    let edges = given.data.edges() as f64;
    let ours = measured.figure("engine");
    let (ideal, gathers_per_s) = (gather.scaled(edges * 1e3), gather.rate(1.0));
    let edges_per_s = ours.rate(edges * 1e3);
    let share = share_of_ideal(measured, best_gather, edges);
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
    let limits: Vec<Limit> = gathers()
        .iter()
        .map(|bare| limit(measured, bare.gather_name(), 1e9, "ns"))
        .chain(
            loops
                .iter()
                .map(|bare| limit(measured, bare.name(), 1.0, "ms")),
        )
        .collect();
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
    for limit in &limits {
        let line = Line::new(format!("limit: {}", limit.name), limit.figure, limit.unit);
        lines.push(match limit.name.as_str() {
            name if name == best_gather => line.note(format!(
                "a gather from 1 MB: {:.0} million/s",
                gathers_per_s.median / 1e6
            )),
            name if name == best_bare => line.note("the best bare loop"),
            _ => line,
        });
    }
    let peak = Figure::of(&[memory.peak_rss as f64 / 1e9]);
    lines.push(Line::new("peak memory", peak, "GB").note(format!(
        "{:.1} bytes an edge beyond the arrays",
        memory.added_per_edge
    )));
    session.report(Counts::of([measured]), figures, limits, lines)
}
