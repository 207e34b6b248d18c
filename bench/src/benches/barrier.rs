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
use crate::session::{Counts, Session, limit};
use brambling::prelude::*;
use brambling_machine::measure::Measured;
use brambling_machine::probes::{polled_round_trip_us, spin_round_trip_us};
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
    let mut rounds =
        session
            .rounds()
            .limit("spin", "spin-round-trip", |session: &mut Session<'_>| {
                session.sample(|_| Ok(spin_round_trip_us()))
            });
    for (shards, name) in SHARDS {
        // Not a limit of the machine: it costs nothing to wait for nobody.
        rounds = rounds
            .ours(&format!("plain-loop-{name}"), move |session| {
                session.sample(|session| plain_loop_us(session, shards, turns * 20))
            })
            .ours(name, move |session| {
                session.sample(|session| us_per_iteration(session, shards, turns))
            });
    }
    let measured = session.measure(rounds)?;
    let spin = measured.figure("spin-round-trip");
    let by_shards = |figure: &dyn Fn(&Measured, &str) -> brambling_machine::Figure| {
        SHARDS
            .map(|(_, name)| (name, figure(&measured, name)))
            .into_iter()
            .collect::<BTreeMap<_, _>>()
    };
    let ours = by_shards(&|measured, name| measured.figure(name));
    let plain = by_shards(&|measured, name| measured.figure(&format!("plain-loop-{name}")));
    let mut lines = Vec::new();
    for (name, figure) in &ours {
        let line = Line::new(format!("an iteration of {name} shards"), *figure, "us");
        lines.push(line.note(ratio(*figure, spin, "a spin round trip")));
    }
    for (name, figure) in &plain {
        let line = Line::new(
            format!("one thread, plain loop, {name} values"),
            *figure,
            "us",
        );
        lines.push(line.note("waits for nobody"));
    }
    lines.push(Line::new(
        "limit: a word to another core and back",
        spin,
        "us",
    ));
    let figures = Figures::Barrier {
        us_per_iteration: ours,
        spin_round_trip_us: spin,
        plain_loop_us: plain,
    };
    let limits = vec![limit(&measured, "spin-round-trip", 1.0, "us")];
    Ok(session.report(Counts::of([&measured]), figures, limits, lines))
}

/// The same loop over the workers of a cluster.
fn on_workers(session: &mut Session<'_>, workers: u32, turns: u64) -> Result<Report, BenchError> {
    let running = &session.start_workers(workers)?;
    let mut rounds = session.rounds().limit(
        "round-trip",
        "polled-round-trip",
        |session: &mut Session<'_>| {
            session.sample(|session| polled_round_trip_us().map_err(|error| session.system(error)))
        },
    );
    for (shards, name) in SHARDS {
        rounds = rounds.ours(name, move |session| {
            session.sample(|session| us_on_workers(session, running, shards, turns))
        });
    }
    let measured = session.measure(rounds)?;
    let trip = measured.figure("polled-round-trip");
    let figures = SHARDS.map(|(_, name)| (name, measured.figure(name)));
    let mut lines: Vec<Line> = figures
        .iter()
        .map(|(name, figure)| {
            let line = Line::new(format!("an iteration of {name} shards"), *figure, "us");
            line.note(ratio(*figure, trip, "a polled round trip"))
        })
        .collect();
    lines.push(Line::new(
        "limit: a word over loopback TCP and back, polled",
        trip,
        "us",
    ));
    let figures = Figures::BarrierOnWorkers {
        workers,
        us_per_iteration: figures.into_iter().collect(),
        polled_round_trip_us: trip,
    };
    let limits = vec![limit(&measured, "polled-round-trip", 1.0, "us")];
    Ok(session.report(Counts::of([&measured]), figures, limits, lines))
}

/// The difference of two jobs of which one has ten times as many turns: what a job costs to begin is in both.
fn us_on_workers(
    session: &mut Session<'_>,
    running: &Running,
    shards: u32,
    turns: u64,
) -> Result<f64, BenchError> {
    let mut took = [0.0; 2];
    for (took, turns) in took.iter_mut().zip([turns / 10, turns]) {
        let (p, shared) = program(shards, turns);
        let described = Described::Barrier { shards, turns };
        let outcome = session.run_on(running, p, &described)?;
        *took = check(session, outcome, &shared, shards, turns)?;
    }
    Ok((took[1] - took[0]) * 1e6 / (turns - turns / 10) as f64)
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
