//! `brambling coflow`: coflows, the flows of one exchange, under policies that say which goes first.
//!
//! This module owns the commands. The engine simulates; nothing here knows a policy's rule.

mod options;
mod reproduce;
mod runs;
mod simulate;

pub use simulate::{coflow_json, coflow_simulate};

use crate::{Host, Streams};
use clap::Subcommand;
use options::SimulateArguments;
use reproduce::ReproduceArguments;

#[derive(clap::Args)]
pub(crate) struct CoflowArguments {
    #[command(subcommand)]
    command: CoflowCommand,
}

#[derive(Subcommand)]
enum CoflowCommand {
    /// Say how long coflows take under each policy, on links that they share
    #[command(after_help = simulate::HELP)]
    Simulate(Box<SimulateArguments>),
    /// Draw the figures of the paper on Stream, from simulations, with ours beside them
    #[command(after_help = reproduce::HELP)]
    Reproduce(ReproduceArguments),
}

pub(crate) fn coflow(
    arguments: &CoflowArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    match &arguments.command {
        CoflowCommand::Simulate(arguments) => simulate::simulate(arguments, host, streams),
        CoflowCommand::Reproduce(arguments) => reproduce::reproduce(arguments, host, streams),
    }
}
