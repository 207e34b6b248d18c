//! Claim: a job costs at most 1 ms to start in a process, and at most 10 ms on two workers. Not claimed: anything about its data; a job here has eight
//! partitions of a number, and each has one task.
//!
//! What is measured is what a caller waits for from giving the program to having what it left. A job cannot be faster than what wakes its threads, or
//! carries a word to its workers.

use crate::BenchError;
use crate::cluster::Running;
use crate::report::{Figures, Line, Report, ratio};
use crate::session::{Counts, POLLED, SPIN, Session};
use brambling::prelude::*;
use std::time::Instant;

const PARTITIONS: u32 = 8;

fn step(x: &mut u64) {
    *x += 1;
}

fn program(first: u64) -> (Program, Dataset<u64>) {
    let mut p = Program::new("job start");
    let x = build(&mut p, first);
    (p, x)
}

fn build(p: &mut Program, first: u64) -> Dataset<u64> {
    let x = p.value("x", PARTITIONS, first);
    p.compute("step").update(&x).run(step);
    x
}
links!("bench.job-start" 1, |p| {
    build(p, 0);
});

pub(crate) fn run(session: &mut Session<'_>) -> Result<Report, BenchError> {
    let jobs = if session.options.smoke { 2 } else { 200 };
    let workers = session.options.workers;
    let running = &match workers {
        Some(workers) => Some(session.start_workers(workers)?),
        None => None,
    };
    let (probe, trip, jobs) = match workers {
        None => (SPIN, "a spin round trip", jobs),
        Some(_) => (POLLED, "a polled round trip", jobs / 4 + 1),
    };
    let rounds = session
        .rounds()
        .beside(&probe)
        .ours("job", move |session| ms_of_a_job(session, running, jobs));
    let measured = session.measure(rounds)?;
    let (limit, limit_line) = probe.found(&measured, 1e-3, "ms");
    let (ours, calibration) = (measured.figure("job"), limit.figure);
    let on = workers.map(|workers| format!(" on {workers} workers"));
    let name = format!("a job of eight tasks{}", on.unwrap_or_default());
    let lines = vec![
        Line::new(name, ours, "ms").note(ratio(ours, calibration, trip)),
        limit_line,
    ];
    let figures = match workers {
        None => Figures::JobStart {
            alone_ms: ours,
            spin_round_trip_ms: calibration,
        },
        Some(workers) => Figures::JobStartOnWorkers {
            workers,
            cluster_ms: ours,
            polled_round_trip_ms: calibration,
        },
    };
    Ok(session.report(Counts::of([&measured]), figures, vec![limit], lines))
}

/// The mean over some jobs, one after the other, each checked.
fn ms_of_a_job(
    session: &mut Session<'_>,
    running: &Option<Running>,
    jobs: u64,
) -> Result<f64, BenchError> {
    let start = Instant::now();
    for first in 0..jobs {
        let (p, x) = program(first);
        let mut outcome = match running {
            None => session.run(p, session.threads)?,
            Some(running) => session.run_linked(running, p)?,
        };
        let found = outcome.take_all(&x);
        session.check(found == [first + 1; PARTITIONS as usize], || {
            format!("job {first} has left {found:?}")
        })?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e3 / jobs as f64)
}
