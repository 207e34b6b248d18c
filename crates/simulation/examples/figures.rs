//! Figures 5, 6 and 8 of the paper, redrawn by the simulation, as JSON.
//!
//! `cargo run --release -p brambling-simulation --example figures -- [--json] [--costs FILE]`
#![allow(clippy::print_stdout)]

mod measured;

use brambling_simulation::costed::{LinkCosts, Scale, figure_5, figure_6, figure_8};
use serde_json::json;
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let costs = measured::costs(&args)?;
    let start = Instant::now();
    let shown = json!({
        "figure_5": figure_5(&costs, Scale::PAPER),
        "figure_6": figure_6(&costs, Scale::PAPER),
        "figure_8": figure_8(&costs, Scale::PAPER),
        "rpc_tasks_per_s": costs.rpc_tasks_per_s(),
        "costs": costs,
        "network": LinkCosts::of_the_paper(),
        "seconds": start.elapsed().as_secs_f64(),
    });
    if args.iter().any(|arg| arg == "--json") {
        println!("{shown}");
    } else {
        println!("{shown:#}");
    }
    Ok(())
}
