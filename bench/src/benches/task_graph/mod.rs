//! Claim: no pattern of Task Bench costs over 2.5 µs a task. Not claimed: anything of several machines.
//!
//! Overhead is cores × wall ÷ tasks with an empty kernel; a graph uses at most a core per point. METG is
//! Task Bench's: the smallest task with which the compute-bound kernel still reaches a share of the peak.
//! Beside each pattern stand pinned threads by hand, and beside the stencil MPI, where it is installed.
//! On workers: between neighbours in one worker a task costs at most 1.3 × what it costs without a cluster.

mod engine;
mod mpi;
mod workers;

pub(crate) use self::workers::program;

use self::mpi::Mpi;
use crate::BenchError;
use crate::limits::task_graph as bare;
use crate::report::{Figures, Limit, Line, PatternFigures, Report, ratio};
use crate::session::{Counts, Session};
use crate::sweep::{Point, Sweep};
use crate::task_graph::{Graph, Kernel, Pattern};
use brambling_machine::Figure;
use brambling_machine::crew;
use brambling_machine::measure::Measured;
use std::cell::Cell;
use std::time::{Duration, Instant};

const WIDTHS: [usize; 2] = [2, 16];
/// How often a size of task is measured; the best counts, as it does for the peak.
const TRIES: usize = 2;

/// The METG figures and which share of the peak is lost there.
const METG: [(&str, f64); 2] = [("metg50", 0.50), ("metg75", 0.25)];

/// The limit of every graph, as it is called among the limits.
const PINNED: &str = "pinned-threads";

pub(crate) fn run(session: &mut Session<'_>) -> Result<Report, BenchError> {
    if let Some(workers) = session.options.workers {
        return workers::run(session, workers);
    }
    let (mut patterns, mut limits, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    let mut all = Vec::new();
    // A graph has at most a rank per point.
    let mpi = Mpi::build(session.threads.min(WIDTHS[1] as u32));
    for width in WIDTHS {
        for pattern in Pattern::ALL {
            let (mpi, no_mpi) = match (pattern, &mpi) {
                (Pattern::Stencil1d, Ok(mpi)) => (Some(mpi), None),
                (Pattern::Stencil1d, Err(why)) => (None, Some(why.as_str())),
                _ => (None, None),
            };
            let measured = measure(session, pattern, width, mpi)?;
            let figures = figures(pattern, width, &measured, mpi.is_some());
            let name = format!("{} {width}", pattern.name());
            lines.extend(table(&name, &figures, no_mpi));
            limits.push(Limit {
                name: format!("{name} {PINNED}"),
                unit: "us",
                figure: figures.bare_overhead_us,
            });
            patterns.push(figures);
            all.push(measured);
        }
    }
    let peak = Figure::of(
        &all.iter()
            .flat_map(|measured| measured.samples("peak"))
            .map(|ns_per_flop| 1.0 / ns_per_flop)
            .collect::<Vec<_>>(),
    );
    limits.push(Limit {
        name: "kernel-peak".into(),
        unit: "GFLOP/s a core",
        figure: peak,
    });
    lines.push(Line::new(
        "limit: the kernel's peak, a core",
        peak,
        "GFLOP/s",
    ));
    let figures = Figures::TaskGraph { patterns };
    Ok(session.report(Counts::of(&all), figures, limits, lines))
}

fn figures(pattern: Pattern, width: usize, measured: &Measured, has_mpi: bool) -> PatternFigures {
    PatternFigures {
        pattern: pattern.name(),
        width,
        overhead_us: measured.figure("engine"),
        bare_overhead_us: measured.figure(PINNED),
        plain_loop_us: measured.figure("plain-loop"),
        mpi_us: has_mpi.then(|| measured.figure("mpi")),
        metg50_us: measured.figure(METG[0].0),
        metg75_us: measured.figure(METG[1].0),
    }
}

/// The lines of a graph. Where MPI should stand beside it and does not, one says why.
fn table(name: &str, figures: &PatternFigures, no_mpi: Option<&str>) -> Vec<Line> {
    let PatternFigures {
        overhead_us,
        bare_overhead_us,
        ..
    } = *figures;
    let metg = format!(
        "METG 50 % {:.2}, 75 % {:.2} us",
        figures.metg50_us.median, figures.metg75_us.median
    );
    let beside = ratio(overhead_us, bare_overhead_us, "the pinned threads");
    let pinned = Line::new("  limit: pinned threads, by hand", bare_overhead_us, "us");
    let mut lines = vec![
        Line::new(name, overhead_us, "us").note(format!("{beside}; {metg}")),
        match no_mpi {
            Some(why) => pinned.note(format!("not beside MPI: {why}")),
            None => pinned,
        },
        Line::new("  one thread, plain loop", figures.plain_loop_us, "us"),
    ];
    lines.extend(figures.mpi_us.map(|mpi_us| {
        let beside = ratio(overhead_us, mpi_us, "MPI");
        Line::new("  MPI, a rank per thread", mpi_us, "us").note(format!("ours is {beside}"))
    }));
    lines
}

/// What the closures of one graph's rounds tell each other.
#[derive(Default)]
struct Round {
    ns_per_flop: Cell<f64>,
    overhead_us: Cell<f64>,
    metg: [Cell<f64>; 2],
}

fn measure(
    session: &mut Session<'_>,
    pattern: Pattern,
    width: usize,
    mpi: Option<&Mpi>,
) -> Result<Measured, BenchError> {
    let cores = session.threads.min(width as u32);
    let places = session.places[..cores as usize].to_vec();
    let timesteps = match session.options.smoke {
        true => 50,
        false => 40_000 / width,
    };
    let graph = &Graph::new(pattern, width, timesteps);
    let (places, round) = (&places, &Round::default());
    let mut rounds = session
        .rounds()
        .limit("peak", "peak", move |session| {
            let sample = ns_per_flop(places, session.options.smoke);
            round.ns_per_flop.set(sample);
            Ok(sample)
        })
        .limit("bare", PINNED, move |session| {
            bare_us(session, graph, places)
        })
        .ours("plain-loop", move |session| {
            bare_us(session, graph, &places[..1])
        })
        .ours("engine", move |session| {
            let wall = engine::run(session, graph, Kernel::Empty, cores)?;
            let sample = core_ns(wall, cores, graph) / 1e3;
            round.overhead_us.set(sample);
            Ok(sample)
        })
        .ours(METG[0].0, move |session| {
            sweep(session, graph, cores, round)?;
            Ok(round.metg[0].get())
        })
        .noted(METG[1].0, &round.metg[1]);
    if let Some(mpi) = mpi {
        // As ours: a rival whose ranks are disturbed is no reason to repeat a round.
        rounds = rounds.ours("mpi", move |session| mpi_us(session, mpi, graph, cores));
    }
    session.measure(rounds)
}

fn core_ns(wall: Duration, cores: u32, graph: &Graph) -> f64 {
    f64::from(cores) * wall.as_secs_f64() * 1e9 / graph.tasks() as f64
}

fn bare_us(session: &Session<'_>, graph: &Graph, places: &[usize]) -> Result<f64, BenchError> {
    let ran = bare::run(graph, Kernel::Empty, places);
    session.check(ran.is_right(graph), || {
        format!("{}: the pinned threads did {ran:?}", graph.pattern().name())
    })?;
    Ok(ran.overhead_us(places.len()))
}

fn mpi_us(session: &Session<'_>, mpi: &Mpi, graph: &Graph, ranks: u32) -> Result<f64, BenchError> {
    // It ran when it was built, so that it does not run now is no reason to leave it out.
    let ran = mpi
        .run(graph, Kernel::Empty, ranks)
        .map_err(|why| session.system(std::io::Error::other(why)))?;
    session.check(ran.is_right(graph), || {
        format!("{}: the ranks of MPI did {ran:?}", graph.pattern().name())
    })?;
    Ok(core_ns(ran.wall, ranks, graph) / 1e3)
}

/// Finds the smallest tasks that reach half and three quarters of the peak.
fn sweep(
    session: &mut Session<'_>,
    graph: &Graph,
    cores: u32,
    round: &Round,
) -> Result<(), BenchError> {
    let (steps, wall_us) = if session.options.smoke {
        (1, 200.0)
    } else {
        (4, 4_000.0)
    };
    let (ns_per_flop, overhead_us) = (round.ns_per_flop.get(), round.overhead_us.get());
    let busy_ns = |work: u64| {
        let kernel = Kernel::Compute { iterations: work };
        kernel.flops() as f64 * ns_per_flop
    };
    let mut sweep = Sweep::default();
    // As much work as there is overhead: about half of the peak.
    let first = (overhead_us * 1e3 / busy_ns(1)).max(1.0) as u64;
    for (at, (_, lost)) in METG.into_iter().enumerate() {
        sweep.seek(lost, first, steps, |work| {
            let kernel = Kernel::Compute { iterations: work };
            let task_us = overhead_us + busy_ns(work) / 1e3;
            let timesteps = f64::from(cores) * wall_us / task_us / graph.width() as f64;
            let timesteps = (timesteps as usize).max(2 * (graph.prologue() + graph.period()));
            let graph = Graph::new(graph.pattern(), graph.width(), timesteps);
            let mut wall = Duration::MAX;
            for _ in 0..TRIES {
                wall = wall.min(engine::run(session, &graph, kernel, cores)?);
            }
            Ok(Point::new(
                work,
                core_ns(wall, cores, &graph),
                busy_ns(work),
            ))
        })?;
        round.metg[at].set(sweep.core_ns_at(lost) / 1e3);
    }
    Ok(())
}

/// The kernel at its peak, on all cores at once: the time of one operation of one core.
fn ns_per_flop(places: &[usize], smoke: bool) -> f64 {
    let iterations = if smoke { 2_000 } else { 100_000 };
    let kernel = Kernel::Compute { iterations };
    let times = crew::run(places, |member| {
        member.barrier();
        // The best of a few: one in which the thread was not running says nothing.
        (0..4)
            .map(|_| {
                let start = Instant::now();
                kernel.execute();
                start.elapsed().as_secs_f64() * 1e9
            })
            .fold(f64::INFINITY, f64::min)
    });
    times.iter().sum::<f64>() / times.len() as f64 / kernel.flops() as f64
}
