//! Claim: a job costs at most 1 ms to start in a process, and at most 10 ms on two workers. Not claimed: anything about its data; a job here has eight
//! partitions of a number, and each has one task.
//!
//! What is measured is what a caller waits for from giving the program to having what it left. A job cannot be faster than what wakes its threads, or
//! carries a word to its workers.

use crate::BenchError;
use crate::cluster::Running;
use crate::report::{Figures, Line, Report, ratio};
use crate::session::{Counts, Session, limit};
use brambling::prelude::*;
use brambling_machine::probes::{polled_round_trip_us, spin_round_trip_us};
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
    match session.options.workers {
        None => alone(session, jobs),
        Some(workers) => on_workers(session, workers, jobs / 4 + 1),
    }
}

fn alone(session: &mut Session<'_>, jobs: u64) -> Result<Report, BenchError> {
    let rounds = session
        .rounds()
        .limit("spin", "spin-round-trip", |session: &mut Session<'_>| {
            session.sample(|_| Ok(spin_round_trip_us() / 1e3))
        })
        .ours("alone", move |session| {
            session.sample(|session| {
                let threads = session.threads;
                ms_of_a_job(session, jobs, |session, p| session.run(p, threads))
            })
        });
    let measured = session.measure(rounds)?;
    let (spin, ours) = (measured.figure("spin-round-trip"), measured.figure("alone"));
    let line = Line::new("a job of eight tasks", ours, "ms");
    let lines = vec![
        line.note(ratio(ours, spin, "a spin round trip")),
        Line::new("limit: a word to another core and back", spin, "ms"),
    ];
    let figures = Figures::JobStart {
        alone_ms: ours,
        spin_round_trip_ms: spin,
    };
    let limits = vec![limit(&measured, "spin-round-trip", 1.0, "ms")];
    Ok(session.report(Counts::of([&measured]), figures, limits, lines))
}

fn on_workers(session: &mut Session<'_>, workers: u32, jobs: u64) -> Result<Report, BenchError> {
    let running: &Running = &session.start_workers(workers)?;
    let rounds = session
        .rounds()
        .limit(
            "round-trip",
            "polled-round-trip",
            |session: &mut Session<'_>| {
                session.sample(|session| {
                    let trip = polled_round_trip_us().map_err(|error| session.system(error))?;
                    Ok(trip / 1e3)
                })
            },
        )
        .ours("cluster", move |session| {
            session.sample(|session| {
                ms_of_a_job(session, jobs, |session, p| session.run_linked(running, p))
            })
        });
    let measured = session.measure(rounds)?;
    let (trip, ours) = (
        measured.figure("polled-round-trip"),
        measured.figure("cluster"),
    );
    let line = Line::new(
        format!("a job of eight tasks on {workers} workers"),
        ours,
        "ms",
    );
    let lines = vec![
        line.note(ratio(ours, trip, "a polled round trip")),
        Line::new(
            "limit: a word over loopback TCP and back, polled",
            trip,
            "ms",
        ),
    ];
    let figures = Figures::JobStartOnWorkers {
        workers,
        cluster_ms: ours,
        polled_round_trip_ms: trip,
    };
    let limits = vec![limit(&measured, "polled-round-trip", 1.0, "ms")];
    Ok(session.report(Counts::of([&measured]), figures, limits, lines))
}

/// The mean over some jobs, one after the other, each checked.
fn ms_of_a_job(
    session: &mut Session<'_>,
    jobs: u64,
    mut run: impl FnMut(&mut Session<'_>, Program) -> Result<Outcome, BenchError>,
) -> Result<f64, BenchError> {
    let start = Instant::now();
    for first in 0..jobs {
        let (p, x) = program(first);
        let mut outcome = run(session, p)?;
        let found = outcome.take_all(&x);
        session.check(found == [first + 1; PARTITIONS as usize], || {
            format!("job {first} has left {found:?}")
        })?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e3 / jobs as f64)
}
