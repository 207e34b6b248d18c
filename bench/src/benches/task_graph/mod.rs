//! Claim: a stencil of 16 points costs at most 1.5 times what hand-written pinned threads cost in the
//! same run, and no pattern of Task Bench over 2.5 µs a task. Not claimed: anything of several machines.
//!
//! Overhead is cores × wall ÷ tasks with an empty kernel; a graph uses at most a core per point. METG is
//! Task Bench's: the smallest task with which the compute-bound kernel still reaches a share of the peak.

mod engine;

use crate::BenchError;
use crate::limits::dispatched::{self, Way};
use crate::limits::task_graph::{self as bare, Order, Ran};
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

pub(crate) fn run(session: &mut Session<'_>) -> Result<Report, BenchError> {
    let (mut patterns, mut limits, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    let mut all = Vec::new();
    for width in WIDTHS {
        for pattern in Pattern::ALL {
            let measured = measure(session, pattern, width)?;
            let name = format!("{} {width}", pattern.name());
            let orders = Order::ALL.map(Order::name);
            for limit in orders.into_iter().chain(Way::ALL.map(Way::name)) {
                let figure = measured.figure(limit);
                limits.push(Limit {
                    name: format!("{name} {limit}"),
                    unit: "us",
                    figure,
                });
            }
            let figures = figures(pattern, width, &measured);
            lines.extend(table(&name, &figures));
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

fn figures(pattern: Pattern, width: usize, measured: &Measured) -> PatternFigures {
    let (_, bare_overhead_us) = measured.best(Order::ALL.map(Order::name));
    // Pinned threads that run what they do not know.
    let (_, dispatched_us) = measured.best(Way::ALL.map(Way::name));
    PatternFigures {
        pattern: pattern.name(),
        width,
        overhead_us: measured.figure("engine"),
        bare_overhead_us,
        dispatched_us,
        plain_loop_us: measured.figure("plain-loop"),
        metg50_us: measured.figure(METG[0].0),
        metg75_us: measured.figure(METG[1].0),
    }
}

fn table(name: &str, figures: &PatternFigures) -> [Line; 4] {
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
    [
        Line::new(name, overhead_us, "us").note(format!("{beside}; {metg}")),
        Line::new("  limit: pinned threads, by hand", bare_overhead_us, "us"),
        Line::new(
            "  limit: the same, two calls a point",
            figures.dispatched_us,
            "us",
        ),
        Line::new("  one thread, plain loop", figures.plain_loop_us, "us"),
    ]
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
) -> Result<Measured, BenchError> {
    let cores = session.threads.min(width as u32);
    let places = session.places[..cores as usize].to_vec();
    let graph = Graph::new(
        pattern,
        width,
        if session.options.smoke {
            50
        } else {
            40_000 / width
        },
    );
    let (graph, places) = (&graph, &places);
    let round = Round::default();
    let round = &round;
    let mut rounds = session
        .rounds()
        .limit("peak", "peak", move |session: &mut Session<'_>| {
            session.sample(|session| {
                let sample = ns_per_flop(places, session.options.smoke);
                round.ns_per_flop.set(sample);
                Ok(sample)
            })
        });
    for order in Order::ALL {
        rounds = rounds.limit("bare", order.name(), move |session| {
            session.sample(|session| bare_us(session, graph, order, places))
        });
    }
    for way in Way::ALL {
        rounds = rounds.limit("dispatched", way.name(), move |session| {
            session.sample(|session| {
                let ran = dispatched::run(graph, Kernel::Empty, way, places);
                overhead_us(session, graph, &ran, places)
            })
        });
    }
    let rounds = rounds
        .ours("plain-loop", move |session| {
            session.sample(|session| bare_us(session, graph, Order::Columns, &places[..1]))
        })
        .ours("engine", move |session| {
            session.sample(|session| {
                let wall = engine::run(session, graph, Kernel::Empty, cores)?;
                let sample = core_ns(wall, cores, graph) / 1e3;
                round.overhead_us.set(sample);
                Ok(sample)
            })
        })
        .ours(METG[0].0, move |session| {
            session.sample(|session| {
                sweep(session, graph, cores, round)?;
                Ok(round.metg[0].get())
            })
        })
        .ours(METG[1].0, move |session| {
            session.sample(|_| Ok(round.metg[1].get()))
        });
    session.measure(rounds)
}

fn core_ns(wall: Duration, cores: u32, graph: &Graph) -> f64 {
    f64::from(cores) * wall.as_secs_f64() * 1e9 / graph.tasks() as f64
}

fn bare_us(
    session: &Session<'_>,
    graph: &Graph,
    order: Order,
    places: &[usize],
) -> Result<f64, BenchError> {
    let ran = bare::run(graph, Kernel::Empty, order, places);
    overhead_us(session, graph, &ran, places)
}

fn overhead_us(
    session: &Session<'_>,
    graph: &Graph,
    ran: &Ran,
    places: &[usize],
) -> Result<f64, BenchError> {
    session.check(ran.is_right(graph), || {
        format!("{}: the pinned threads did {ran:?}", graph.pattern().name())
    })?;
    Ok(ran.overhead_us(places.len()))
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
