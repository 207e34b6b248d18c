//! A thousand workers of 18 cores, ten shards a core, a hundred iterations of 1 ms tasks or more, until one worker was drained and one
//! added.
//!
//! `cargo run --release -p brambling-simulation --example thousand -- [--json] [--costs FILE] [--workers N] [--latency-us N]`;
//! with `--measure` it prints what things cost this machine, for `--costs`, and simulates nothing.
#![allow(clippy::print_stdout)]

mod measured;

use brambling_simulation::costed::{
    Change, CostedWork, Costs, Lengths, LinkCosts, LocalOutcome, Scenario, SpreadShape, local,
};
use serde_json::{Value, json};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--measure") {
        println!("{}", serde_json::to_string_pretty(&measured::measure()?)?);
        return Ok(());
    }
    let costs = measured::costs(&args)?;
    let workers = measured::number(&args, "--workers")?.map_or(1_000, |number| number as u32);
    let mut network = LinkCosts::of_the_paper();
    if let Some(us) = measured::number(&args, "--latency-us")? {
        network.latency_ns = (us * 1e3) as u64;
    }
    let start = Instant::now();
    let direct = local(&scenario(workers, costs, network, SpreadShape::Direct));
    let relayed = local(&scenario(
        workers,
        costs,
        network,
        SpreadShape::Relayed { fan_out: 8 },
    ));
    let seconds = start.elapsed().as_secs_f64();
    let mut shown = figures(&relayed);
    shown["seconds"] = json!(seconds);
    shown["workers"] = json!(workers);
    shown["ideal_iteration_ms"] = json!(work(workers).ideal_ns() / 1e6);
    shown["direct"] = figures(&direct);
    shown["costs"] = serde_json::to_value(costs)?;
    shown["network"] = serde_json::to_value(network)?;
    if args.iter().any(|arg| arg == "--json") {
        println!("{shown}");
    } else {
        println!("{shown:#}");
    }
    Ok(())
}

fn work(workers: u32) -> CostedWork {
    CostedWork {
        workers,
        cores: 18,
        shards_per_core: 10,
        iterations: 100,
        stages: 1,
        stage_ns: 1e6,
        lengths: Lengths::Even,
        model_bytes: 168,
        shard_bytes: 1 << 20,
        seed: 1,
    }
}

fn scenario(workers: u32, costs: Costs, network: LinkCosts, spread: SpreadShape) -> Scenario {
    let drained = Change::Drain {
        at: 20,
        worker: workers / 2,
    };
    Scenario {
        work: work(workers),
        costs,
        network,
        spread,
        changes: vec![drained, Change::Join { at: 60 }],
        moves_at_once: 8,
    }
}

/// The outcome, flat: names with their units.
fn figures(outcome: &LocalOutcome) -> Value {
    let load = &outcome.controller;
    json!({
        "virtual_s": outcome.virtual_s,
        "tasks": outcome.tasks,
        "tasks_per_s": outcome.tasks_per_s(),
        "iterations": outcome.iterations,
        "iteration_ms": outcome.iteration_ms,
        "changing_iteration_ms": outcome.changing_iteration_ms,
        "signal_ms": outcome.signal_ms,
        "map_ms": outcome.map_ms,
        "map_update_ms": outcome.map_update_ms,
        "moves": outcome.moves,
        "drain_ms": outcome.change_ms[0],
        "fill_ms": outcome.change_ms[1],
        "controller_cpu_s": load.cpu_s,
        "controller_messages": load.messages(),
        "controller_messages_in": load.messages_in,
        "controller_messages_out": load.messages_out,
        "controller_bytes": load.bytes_in + load.bytes_out,
        "controller_reports": load.reports,
        "controller_acks": load.acks,
        "controller_messages_per_s": load.messages() as f64 / outcome.virtual_s,
        "controller_quiet_messages_per_s": outcome.controller_quiet_messages_per_s,
        "frames_between_workers": outcome.frames,
        "events": outcome.events,
    })
}
