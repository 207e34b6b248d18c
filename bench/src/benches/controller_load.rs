//! Claim: what the controller hears, says and computes in a second of a job does not depend on how many tasks the job has (Canary
//! §3.1: a controller that spawns no task), from a hundred thousand to a billion of them. It depends on how many workers there are,
//! who tell it how they fare.
//!
//! The program is that of `task-rate`; tasks work for so long that every job takes about as long; a billion of them take longer.
//!
//! A shard that moves costs messages of its own, which count; how many moved is told.

use super::task_rate::{self, STAGES};
use crate::BenchError;
use crate::cluster::{Load, Running};
use crate::described::Described;
use crate::report::{Figures, Line, LoadFigures, Report};
use crate::session::{CALL, Counts, Session};
use brambling_machine::Figure;
use brambling_machine::measure::Measured;
use std::cell::Cell;
use std::time::{Duration, Instant};

const WORKERS: [u32; 2] = [2, 16];
const TASKS: [u64; 3] = [100_000, 10_000_000, 1_000_000_000];
/// What the work of a job takes: it is that long at least.
const JOB_NS: f64 = 6e9;
/// What a job begins and ends with is not looked at: that comes once a job, however long it is.
const BEGINNING: Duration = Duration::from_secs(1);
const LOOKED_UNTIL: Duration = Duration::from_secs(5);

/// A job on the workers of a cluster, and what a second of it brought the controller the last time.
struct Case<'r> {
    running: &'r Running,
    workers: u32,
    tasks: u64,
    /// A step of a task's work.
    step_ns: f64,
    cpu_share: Cell<f64>,
    moves_per_s: Cell<f64>,
}

impl Case<'_> {
    fn name(&self, what: &str) -> String {
        let Case { workers, tasks, .. } = self;
        format!("{what} of {tasks} tasks on {workers} workers")
    }
}

pub(crate) fn run(session: &mut Session<'_>) -> Result<Report, BenchError> {
    let (workers, tasks) = match session.options.smoke {
        true => (&WORKERS[..1], &TASKS[..1]),
        false => (&WORKERS[..], &TASKS[..]),
    };
    let mut clusters = Vec::new();
    for &workers in workers {
        clusters.push((workers, session.start_workers(workers)?));
    }
    let step_ns = task_rate::step_ns(session);
    let case = |running, workers, tasks| Case {
        running,
        workers,
        tasks,
        step_ns,
        cpu_share: Cell::default(),
        moves_per_s: Cell::default(),
    };
    let cases: Vec<Case<'_>> = clusters
        .iter()
        .flat_map(|(workers, running)| tasks.iter().map(|tasks| case(running, *workers, *tasks)))
        .collect();
    let measured = measure(session, &cases)?;
    Ok(report(session, &measured, &cases))
}

fn measure(session: &mut Session<'_>, cases: &[Case<'_>]) -> Result<Measured, BenchError> {
    // What is counted does not change when the machine slows down.
    let mut rounds = session.rounds().no_repeats().beside(&CALL);
    for case in cases {
        rounds = rounds
            .ours(&case.name("messages"), |session| {
                messages_per_s(session, case)
            })
            .noted(&case.name("cpu"), &case.cpu_share)
            .noted(&case.name("moves"), &case.moves_per_s);
    }
    session.measure(rounds)
}

/// Messages of a second of the job; the controller's CPU time and the moves of a second are noted.
fn messages_per_s(session: &mut Session<'_>, case: &Case<'_>) -> Result<f64, BenchError> {
    let shards = case.workers * task_rate::SHARDS_PER_CORE;
    let turns = (case.tasks / (STAGES * u64::from(shards))).max(1);
    let tasks = turns * STAGES * u64::from(shards);
    let cores = f64::from(case.workers).min(session.places.len() as f64);
    let (job_ns, looked_at) = match session.options.smoke {
        true => (5e7, Duration::ZERO..Duration::MAX),
        false => (JOB_NS, BEGINNING..LOOKED_UNTIL),
    };
    // What running a task takes comes on top, as far as it is not done beside the work: no job is shorter.
    let work = (job_ns * cores / tasks as f64 / case.step_ns).ceil() as u64;
    let (program, counters) = task_rate::program(shards, turns, work);
    let described = Described::TaskRate {
        shards,
        turns,
        work,
    };
    let begin = Instant::now();
    // The first look, and the last.
    let mut seen: Vec<(Instant, std::io::Result<Load>)> = Vec::new();
    let mut look = || {
        if looked_at.contains(&begin.elapsed()) {
            seen.truncate(1);
            seen.push((Instant::now(), case.running.controller_load()));
        }
    };
    let outcome = session.run_watched(case.running, program, &described, &mut look)?;
    let took = begin.elapsed();
    task_rate::check(session, outcome, &counters, shards, turns)?;
    // A second of a job that is over brings nothing.
    session.check(session.options.smoke || took >= LOOKED_UNTIL, || {
        format!("the job was over after {took:?}, and was looked at until {LOOKED_UNTIL:?}")
    })?;
    let Ok([(from, first), (to, last)]) = <[_; 2]>::try_from(seen) else {
        let what = || format!("the job was over after {took:?}, before anybody could look twice");
        return session.check(false, what).map(|()| f64::NAN);
    };
    let first = first.map_err(|error| session.system(error))?;
    let last = last.map_err(|error| session.system(error))?;
    let seconds = (to - from).as_secs_f64();
    case.cpu_share
        .set((last.cpu - first.cpu).as_secs_f64() / seconds);
    case.moves_per_s
        .set((last.moves - first.moves) as f64 / seconds);
    Ok((last.messages - first.messages) as f64 / seconds)
}

fn report(session: &Session<'_>, measured: &Measured, cases: &[Case<'_>]) -> Report {
    let runs: Vec<LoadFigures> = cases
        .iter()
        .map(|case| LoadFigures {
            workers: case.workers,
            tasks: case.tasks,
            messages_per_s: measured.figure(&case.name("messages")),
            moves_per_s: measured.figure(&case.name("moves")),
            cpu_ms_per_s: measured.figure(&case.name("cpu")).scaled(1e3),
        })
        .collect();
    let messages_over_tasks = over_tasks(&runs, |run| run.messages_per_s);
    let cpu_over_tasks = over_tasks(&runs, |run| run.cpu_ms_per_s);
    let mut lines = Vec::new();
    for run in &runs {
        let LoadFigures { workers, tasks, .. } = run;
        let name = format!("{tasks:e} tasks, {workers} workers");
        lines.push(Line::new(&name, run.messages_per_s, "messages/s"));
        lines.push(Line::new(&name, run.cpu_ms_per_s, "ms CPU/s"));
        if run.moves_per_s.max > 0.0 {
            lines.push(Line::new(&name, run.moves_per_s, "moves/s"));
        }
    }
    let figures = Figures::ControllerLoad {
        runs,
        messages_over_tasks,
        cpu_over_tasks,
    };
    let (limit, _) = CALL.found(measured, 1.0, "ns");
    session.report(Counts::of([measured]), figures, vec![limit], lines)
}

/// The most ÷ the least over numbers of tasks, of the workers for which that is most.
fn over_tasks(runs: &[LoadFigures], figure: impl Fn(&LoadFigures) -> Figure) -> f64 {
    let ratio = |runs: &[LoadFigures]| {
        let medians = || runs.iter().map(|run| figure(run).median);
        medians().fold(0.0, f64::max) / medians().fold(f64::INFINITY, f64::min)
    };
    let by_workers = runs.chunk_by(|one, other| one.workers == other.workers);
    by_workers.map(ratio).fold(1.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_tasks_are_compared_for_as_many_workers() {
        let run = |workers, messages| LoadFigures {
            workers,
            tasks: 1,
            messages_per_s: Figure::of(&[messages]),
            moves_per_s: Figure::of(&[0.0]),
            cpu_ms_per_s: Figure::of(&[1.0]),
        };
        let runs = [run(2, 10.0), run(2, 12.0), run(16, 100.0), run(16, 110.0)];
        assert_eq!(over_tasks(&runs, |run| run.messages_per_s), 1.2);
        assert_eq!(over_tasks(&runs, |run| run.cpu_ms_per_s), 1.0);
    }
}
