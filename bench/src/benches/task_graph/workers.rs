//! Task graphs on the workers of a cluster, beside one process of as many threads.

use super::{core_ns, engine};
use crate::BenchError;
use crate::cluster::Running;
use crate::described::Described;
use crate::report::{Figures, Line, PatternOnWorkers, Report, over, ratio};
use crate::session::{Counts, Session};
use crate::task_graph::{Graph, Kernel, Pattern};
use brambling::program::Program;
use brambling_machine::measure::Measured;
use std::time::Duration;

/// So many points for each thread: each has neighbours in its own thread and in others.
const POINTS_PER_THREAD: usize = 8;
/// How much longer the longer of two jobs is, whose difference is measured: what a job costs to begin is in both.
const LONGER: usize = 3;

/// What workers make of a description.
pub(crate) fn program(pattern: &str, width: usize, timesteps: usize) -> Result<Program, String> {
    let named = |it: &Pattern| it.name() == pattern;
    let pattern = Pattern::ALL.into_iter().find(named);
    let pattern = pattern.ok_or_else(|| "a pattern that Task Bench does not have".to_owned())?;
    let graph = Graph::new(pattern, width, timesteps);
    Ok(engine::program(&graph, Kernel::Empty).0)
}

pub(super) fn run(session: &mut Session<'_>, workers: u32) -> Result<Report, BenchError> {
    let threads_per_worker = session.options.threads.unwrap_or(1);
    let threads = workers * threads_per_worker;
    let width = POINTS_PER_THREAD * threads as usize;
    let running = session.start_workers(workers)?;
    let (mut patterns, mut lines, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for pattern in Pattern::ALL {
        let measured = measure(session, &running, (pattern, width), threads)?;
        let (one, ours) = (measured.figure("one"), measured.figure("workers"));
        let name = format!("{} {width} on {workers} workers", pattern.name());
        lines.push(Line::new(name, ours, "us").note(ratio(ours, one, "one process")));
        lines.push(Line::new("  in one process of as many threads", one, "us"));
        patterns.push(PatternOnWorkers {
            pattern: pattern.name(),
            width,
            overhead_us: ours,
            one_process_us: one,
            over_one_process: over(&measured, "workers", "one"),
        });
        all.push(measured);
    }
    let figures = Figures::TaskGraphOnWorkers {
        workers,
        threads_per_worker,
        patterns,
    };
    Ok(session.report(Counts::of(&all), figures, Vec::new(), lines))
}

fn measure(
    session: &mut Session<'_>,
    running: &Running,
    (pattern, width): (Pattern, usize),
    threads: u32,
) -> Result<Measured, BenchError> {
    let timesteps = match session.options.smoke {
        true => 50,
        false => 160_000 / width,
    };
    let graphs = &[1, LONGER].map(|times| Graph::new(pattern, width, times * timesteps));
    let rounds = session
        .rounds()
        .ours("one", move |session| {
            let run = |graph: &Graph| engine::run(session, graph, Kernel::Empty, threads);
            overhead_us(graphs, threads, run)
        })
        .ours("workers", move |session| {
            let run = |graph: &Graph| run_on(session, running, graph);
            overhead_us(graphs, threads, run)
        });
    session.measure(rounds)
}

/// Cores × wall ÷ tasks, of what the longer job has more.
fn overhead_us(
    graphs: &[Graph; 2],
    threads: u32,
    mut run: impl FnMut(&Graph) -> Result<Duration, BenchError>,
) -> Result<f64, BenchError> {
    let [short, long] = graphs;
    let took = [run(short)?, run(long)?];
    let total = |graph: &Graph, took| core_ns(took, threads, graph) * graph.tasks() as f64;
    let more = (long.tasks() - short.tasks()) as f64;
    Ok((total(long, took[1]) - total(short, took[0])) / more / 1e3)
}

fn run_on(
    session: &mut Session<'_>,
    running: &Running,
    graph: &Graph,
) -> Result<Duration, BenchError> {
    let (program, points) = engine::program(graph, Kernel::Empty);
    let described = Described::TaskGraph {
        pattern: graph.pattern().name().to_owned(),
        width: graph.width(),
        timesteps: graph.timesteps(),
    };
    let mut outcome = session.run_on(running, program, &described)?;
    let wall = outcome.tally().wall;
    engine::check(session, graph, &outcome.take_all(&points))?;
    Ok(wall)
}
