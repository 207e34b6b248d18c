//! Claim: spawning and dispatching a task costs at most 25 indirect calls of one core, and a core runs
//! millions of tasks a second with a tenth of its time spent on overhead. Not claimed: tasks that wait
//! for memory or for each other.
//!
//! On workers: a task of sixteen workers costs within a tenth the CPU time that it costs one. Nobody tells them what to run.
//!
//! The program is that of Canary's §5.2: a loop of compute stages over ten shards a core. First every
//! task bumps its partition's counter; then it works for a calibrated time.

use crate::BenchError;
use crate::cluster::Running;
use crate::described::Described;
use crate::report::{Figures, Line, Report, ratio};
use crate::session::{CALL, Counts, Session, limit, of_a_turn};
use crate::sweep::{Point, Sweep};
use brambling::Tally;
use brambling::prelude::*;
use brambling_machine::crew;
use brambling_machine::probes::process_cpu_time;
use std::hint::black_box;
use std::time::{Duration, Instant};

pub(crate) const SHARDS_PER_CORE: u32 = 10;
pub(crate) const STAGES: u64 = 5;

pub(crate) fn run(session: &mut Session<'_>) -> Result<Report, BenchError> {
    let turns = if session.options.smoke { 200 } else { 40_000 };
    if let Some(workers) = session.options.workers {
        return on_workers(session, workers, turns * 20);
    }
    let rounds = session
        .rounds()
        .beside(&CALL)
        .limit("plain", "plain-loop", move |session| {
            plain_loop_ns(session, turns)
        })
        .ours("task", move |session| core_ns(session, turns, 0))
        .ours("task-at-10pct", |session| ns_per_task_at_10pct(session));
    let measured = session.measure(rounds)?;
    let (call, call_line) = CALL.found(&measured, 1.0, "ns");
    let plain = limit(&measured, "plain-loop", 1.0, "ns");
    let task = measured.figure("task");
    let rate = measured.figure("task-at-10pct").rate(1e9);
    let figures = Figures::TaskRate {
        ns_per_task: task,
        tasks_per_s_per_core_at_10pct: rate,
        indirect_call_ns: call.figure,
        plain_loop_ns: plain.figure,
    };
    let lines = vec![
        Line::new("a task, of one core", task, "ns").note(ratio(
            task,
            call.figure,
            "an indirect call",
        )),
        Line::new("tasks a core at 10 % overhead", rate.scaled(1e-6), "M/s"),
        Line::new("one thread, plain loop", plain.figure, "ns")
            .note("the same kernels, called in a row"),
        call_line,
    ];
    let limits = vec![call, plain];
    Ok(session.report(Counts::of([&measured]), figures, limits, lines))
}

/// The loop over the workers of a cluster, beside one of them with as many shards as each of the others: their CPU time.
fn on_workers(session: &mut Session<'_>, workers: u32, turns: u64) -> Result<Report, BenchError> {
    let (one, all) = (&session.start_workers(1)?, &session.start_workers(workers)?);
    let per_worker = session.options.threads.unwrap_or(1) * SHARDS_PER_CORE;
    let rounds = session
        .rounds()
        .beside(&CALL)
        .ours("one", move |session| {
            cpu_ns_per_task(session, one, per_worker, turns)
        })
        .ours("all", move |session| {
            // As long a job: all of them share this machine's CPUs.
            let turns = (turns / u64::from(workers)).max(1);
            cpu_ns_per_task(session, all, workers * per_worker, turns)
        });
    let measured = session.measure(rounds)?;
    let (one, all) = (measured.figure("one"), measured.figure("all"));
    let figures = Figures::TaskRateOnWorkers {
        workers,
        cpu_ns_per_task: all,
        one_worker_cpu_ns_per_task: one,
    };
    let (limit, _) = CALL.found(&measured, 1.0, "ns");
    let lines = vec![
        Line::new(
            format!("CPU time of a task on {workers} workers"),
            all,
            "ns",
        )
        .note(ratio(all, one, "that on one")),
        Line::new("on one worker", one, "ns"),
    ];
    Ok(session.report(Counts::of([&measured]), figures, vec![limit], lines))
}

fn cpu_ns_per_task(
    session: &mut Session<'_>,
    running: &Running,
    shards: u32,
    turns: u64,
) -> Result<f64, BenchError> {
    let of_a_turn = of_a_turn([turns, 3 * turns], |turns| {
        let before = cpu_ns(session, running)?;
        let (program, counters) = program(shards, turns, 0);
        let described = Described::TaskRate {
            shards,
            turns,
            work: 0,
        };
        let outcome = session.run_on(running, program, &described)?;
        check(session, outcome, &counters, shards, turns)?;
        Ok(cpu_ns(session, running)? - before)
    })?;
    Ok(of_a_turn / (STAGES * u64::from(shards)) as f64)
}

/// CPU time of all workers since they began, in nanoseconds.
fn cpu_ns(session: &Session<'_>, running: &Running) -> Result<f64, BenchError> {
    let times = running.pids().into_iter().map(process_cpu_time);
    let total = times.sum::<std::io::Result<Duration>>();
    Ok(total.map_err(|error| session.system(error))?.as_secs_f64() * 1e9)
}

/// A loop of compute stages over ten shards a core, with `work` in each task.
pub(crate) fn program(shards: u32, turns: u64, work: u64) -> (Program, Dataset<u64>) {
    let mut p = Program::new("task-rate");
    let counters = p.dataset::<u64>("counters", shards);
    p.repeat(turns, |p| {
        for stage in 0..STAGES {
            let stage = p.compute(format!("bump {stage}")).update(&counters);
            if work == 0 {
                stage.run(|counter: &mut u64| *counter += 1);
            } else {
                stage.run(move |counter: &mut u64| bump_busily(counter, work));
            }
        }
    });
    (p, counters)
}

/// Runs the program and gives the core time of a task, in nanoseconds.
fn core_ns(session: &mut Session<'_>, turns: u64, work: u64) -> Result<f64, BenchError> {
    let threads = session.threads;
    let shards = threads * SHARDS_PER_CORE;
    let (program, counters) = program(shards, turns, work);
    let outcome = session.run(program, threads)?;
    let (tally, tasks) = check(session, outcome, &counters, shards, turns)?;
    Ok(f64::from(threads) * tally.wall.as_secs_f64() * 1e9 / tasks as f64)
}

/// What the job did, and its tasks, when it counted right.
pub(crate) fn check(
    session: &Session<'_>,
    mut outcome: Outcome,
    counters: &Dataset<u64>,
    shards: u32,
    turns: u64,
) -> Result<(Tally, u64), BenchError> {
    let counts = outcome.take_all(counters);
    let expected = turns * STAGES;
    session.check(counts.iter().all(|&count| count == expected), || {
        format!("counters are {counts:?}, not {expected} each")
    })?;
    let (tally, tasks) = (outcome.tally(), expected * u64::from(shards));
    session.check(tally.tasks == tasks, || {
        format!("{} tasks were retired, not {tasks}", tally.tasks)
    })?;
    Ok((tally, tasks))
}

/// One thread, one call after another through a table: what the program says, without an engine.
fn plain_loop_ns(session: &mut Session<'_>, turns: u64) -> Result<f64, BenchError> {
    let shards = (session.threads * SHARDS_PER_CORE) as usize;
    let bump: &dyn Fn(&mut u64) = &|counter| *counter += 1;
    let kernels = [bump; STAGES as usize];
    let mut counters = vec![0u64; shards];
    let start = Instant::now();
    for counter in &mut counters {
        for _ in 0..turns {
            for kernel in black_box(&kernels) {
                kernel(counter);
            }
        }
    }
    let took = start.elapsed();
    session.check(
        counters.iter().all(|&count| count == turns * STAGES),
        || format!("the plain loop counted {counters:?}"),
    )?;
    Ok(took.as_secs_f64() * 1e9 / (turns * STAGES * shards as u64) as f64)
}

/// Works for a time that depends on `work` alone, a chain of dependent operations in registers, and then
/// counts. The chain starts at the counter and ends in it, so that no CPU can run the end of one call and
/// the start of the next at once: a row of calls would then take less than the calls that it is made of,
/// and what a task takes would be compared with what no single call can reach.
///
/// What the engine does between two tasks can still run beside the end of the first one's chain, as it can
/// beside any kernel that waits for its own results. So a task costs less here than an empty one.
///
/// A step is neither linear nor affine: of steps that are, compilers make one for many.
#[inline(never)]
fn bump_busily(counter: &mut u64, work: u64) {
    let mut state = *counter | 1;
    for _ in 0..work {
        state = (state ^ (state >> 32)).wrapping_mul(6_364_136_223_846_793_005);
    }
    *counter += 1 + (state & black_box(0));
}

/// What `bump_busily` takes on every core at once, in nanoseconds, where nothing else is done.
fn busy_ns(places: &[usize], work: u64, calls: u64) -> f64 {
    let times = crew::run(places, |member| {
        let mut counter = 0;
        member.barrier();
        let start = Instant::now();
        for _ in 0..calls {
            bump_busily(black_box(&mut counter), black_box(work));
        }
        start.elapsed()
    });
    let total: Duration = times.iter().sum();
    total.as_secs_f64() * 1e9 / (calls * times.len() as u64) as f64
}

/// What a unit of work takes on every core at once, in nanoseconds.
pub(crate) fn step_ns(session: &Session<'_>) -> f64 {
    const STEPS: u64 = 1_000_000;
    let tries = (0..TRIES).map(|_| busy_ns(&session.places, STEPS, 3) / STEPS as f64);
    tries.fold(f64::INFINITY, f64::min)
}

const OVERHEAD: f64 = 0.10;

/// The core time of a task when a tenth of it is overhead, in nanoseconds.
fn ns_per_task_at_10pct(session: &mut Session<'_>) -> Result<f64, BenchError> {
    let (steps, core_ms) = if session.options.smoke {
        (2, 0.2)
    } else {
        (6, 10.0)
    };
    let mut sweep = Sweep::default();
    sweep.seek(OVERHEAD, 200, steps, |work| {
        measure_share(session, work, core_ms)
    })?;
    Ok(sweep.core_ns_at(OVERHEAD))
}

/// How often a length of work is measured; the best counts, of the work alone as of the engine's tasks.
/// A tenth is a difference of two times: one disturbance in either would be all that is seen.
const TRIES: usize = 3;

fn measure_share(session: &mut Session<'_>, work: u64, core_ms: f64) -> Result<Point, BenchError> {
    // A unit of work takes five or six cycles; this need not be exact.
    let tasks_per_core = (core_ms * 1e6 / (work as f64 * 1.8 + 50.0)).max(100.0) as u64;
    let turns = (tasks_per_core / (STAGES * u64::from(SHARDS_PER_CORE))).max(1);
    let (mut busy, mut ours) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..TRIES {
        busy = busy.min(busy_ns(&session.places, work, tasks_per_core));
        ours = ours.min(core_ns(session, turns, work)?);
    }
    Ok(Point::new(work, ours, busy))
}
