//! Claim: an iteration that every shard waits for costs at most 40 round trips of a word between two
//! cores at 2 shards, and at most 100 at 20. Not claimed: anything about the work in between.
//!
//! Each turn is what an iterative job does at its least: a signal decides on the turn, a value goes to
//! every shard, every shard answers with one, and the answers are added up.
//!
//! On workers: at most 6 round trips of a word over loopback TCP, both ends polling, at 2 shards on 2 workers.

use crate::BenchError;
use crate::cluster::Running;
use crate::described::Described;
use crate::report::{Figures, Line, Report, ratio};
use crate::session::{Counts, POLLED, SPIN, Session, of_a_turn};
use brambling::prelude::*;
use brambling_machine::Figure;
use brambling_machine::measure::Measured;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

const SHARDS: [(u32, &str); 2] = [(2, "2"), (20, "20")];

pub(crate) fn run(session: &mut Session<'_>) -> Result<Report, BenchError> {
    let turns = if session.options.smoke { 100 } else { 5_000 };
    if let Some(workers) = session.options.workers {
        // What a job costs to begin varies by milliseconds: as much as thousands of turns.
        return on_workers(session, workers, turns * 20);
    }
    let mut rounds = session.rounds().beside(&SPIN);
    for (shards, name) in SHARDS {
        // Not a limit of the machine: it costs nothing to wait for nobody.
        rounds = rounds
            .ours(&plain(name), move |session| {
                plain_loop_us(session, shards, turns * 20)
            })
            .ours(name, move |session| {
                us_per_iteration(session, shards, turns)
            });
    }
    let measured = session.measure(rounds)?;
    let (limit, limit_line) = SPIN.found(&measured, 1.0, "us");
    let (us_per_iteration, mut lines) = iterations(&measured, limit.figure, "a spin round trip");
    let plain_loop_us = SHARDS.map(|(_, name)| (name, measured.figure(&plain(name))));
    lines.extend(plain_loop_us.iter().map(|(name, figure)| {
        let name = format!("one thread, plain loop, {name} values");
        Line::new(name, *figure, "us").note("waits for nobody")
    }));
    lines.push(limit_line);
    let figures = Figures::Barrier {
        us_per_iteration,
        spin_round_trip_us: limit.figure,
        plain_loop_us: plain_loop_us.into(),
    };
    Ok(session.report(Counts::of([&measured]), figures, vec![limit], lines))
}

fn plain(name: &str) -> String {
    format!("plain-loop-{name}")
}

/// Iterations by number of shards, and a line for each.
fn iterations(
    measured: &Measured,
    trip: Figure,
    of: &str,
) -> (BTreeMap<&'static str, Figure>, Vec<Line>) {
    let figures = SHARDS.map(|(_, name)| (name, measured.figure(name)));
    let line = |(name, figure): &(&str, Figure)| {
        let line = Line::new(format!("an iteration of {name} shards"), *figure, "us");
        line.note(ratio(*figure, trip, of))
    };
    let lines = figures.iter().map(line).collect();
    (figures.into(), lines)
}

/// The same loop over the workers of a cluster.
fn on_workers(session: &mut Session<'_>, workers: u32, turns: u64) -> Result<Report, BenchError> {
    let running = &session.start_workers(workers)?;
    let mut rounds = session.rounds().beside(&POLLED);
    for (shards, name) in SHARDS {
        rounds = rounds.ours(name, move |session| {
            us_on_workers(session, running, shards, turns)
        });
    }
    let measured = session.measure(rounds)?;
    let (limit, limit_line) = POLLED.found(&measured, 1.0, "us");
    let (us_per_iteration, mut lines) = iterations(&measured, limit.figure, "a polled round trip");
    lines.push(limit_line);
    let figures = Figures::BarrierOnWorkers {
        workers,
        us_per_iteration,
        polled_round_trip_us: limit.figure,
    };
    Ok(session.report(Counts::of([&measured]), figures, vec![limit], lines))
}

fn us_on_workers(
    session: &mut Session<'_>,
    running: &Running,
    shards: u32,
    turns: u64,
) -> Result<f64, BenchError> {
    of_a_turn([turns / 10, turns], |turns| {
        let (p, shared) = program(shards, turns);
        let described = Described::Barrier { shards, turns };
        let outcome = session.run_on(running, p, &described)?;
        Ok(check(session, outcome, &shared, shards, turns)? * 1e6)
    })
}

fn us_per_iteration(session: &mut Session<'_>, shards: u32, turns: u64) -> Result<f64, BenchError> {
    let (p, shared) = program(shards, turns);
    let outcome = session.run(p, session.threads)?;
    Ok(check(session, outcome, &shared, shards, turns)? * 1e6 / turns as f64)
}

/// What is left: the turn, and the turns that each shard counted.
type Left = (Dataset<u64>, Dataset<u64>);

/// What the shards agree on: the turn, counted by reductions.
pub(crate) fn program(shards: u32, turns: u64) -> (Program, Left) {
    let mut p = Program::new("barrier");
    let turn = p.dataset::<u64>("turn", 1);
    let local = p.temporary::<u64>("local turn", shards);
    let answer = p.temporary::<u64>("answer", shards);
    let counters = p.dataset::<u64>("counters", shards);
    p.repeat_while(
        "more turns",
        &turn,
        move |turn| *turn < turns,
        |p| {
            p.broadcast(&turn, &local);
            p.compute("answer")
                .read(&local)
                .write(&answer)
                .update(&counters)
                .run(|local: &u64, answer: &mut u64, counter: &mut u64| {
                    *answer = *local;
                    *counter += 1;
                });
            // Every shard answers with the turn, so the sum is that many times the turn.
            p.reduce(Sum, &answer, &turn, move |turn: &mut u64, sum: &u64| {
                *turn = sum / u64::from(shards) + 1;
            });
        },
    );
    (p, (turn, counters))
}

/// The seconds that the job took, when it did what it should have.
fn check(
    session: &Session<'_>,
    mut outcome: Outcome,
    (turn, counters): &Left,
    shards: u32,
    turns: u64,
) -> Result<f64, BenchError> {
    let (reached, counts) = (outcome.take(turn), outcome.take_all(counters));
    session.check(
        reached == turns && counts.iter().all(|&count| count == turns),
        || format!("{reached} turns were counted, by shard {counts:?}; not {turns}"),
    )?;
    // Of each turn a signal, both sides of two exchanges, and the compute; the last signal is false.
    let tasks = turns * (3 + 3 * u64::from(shards)) + 1;
    let tally = outcome.tally();
    session.check(tally.tasks >= tasks, || {
        format!("{} tasks were retired, not {tasks}", tally.tasks)
    })?;
    Ok(tally.wall.as_secs_f64())
}

/// The same on one thread: a test, a copy to every place, a sum.
fn plain_loop_us(session: &mut Session<'_>, shards: u32, turns: u64) -> Result<f64, BenchError> {
    let mut local = vec![0u64; shards as usize];
    let mut turn = 0u64;
    let start = Instant::now();
    while black_box(turn) < turns {
        black_box(&mut local).fill(turn);
        turn = black_box(&local).iter().sum::<u64>() / u64::from(shards) + 1;
    }
    let took = start.elapsed();
    session.check(turn == turns, || format!("the plain loop counted {turn}"))?;
    Ok(took.as_secs_f64() * 1e6 / turns as f64)
}
