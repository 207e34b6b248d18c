//! `brambling coflow`: says how long coflows take under each policy.
//!
//! This module owns the command's options and what it says. The engine simulates; nothing here knows a policy's rule.

use crate::{FAILED, OK, Streams, USAGE, table};
use brambling::coflow::policy::{PolicyChoices, PolicyName, StreamRule};
use brambling::coflow::simulate::{Fabric, Outcome, PeerRelay, SimulateOptions, Summary, simulate};
use brambling::coflow::workload::{Dag, GenerateOptions, Tails, Workload};
use brambling_machine::units::{self, Quantity};
use clap::{Subcommand, ValueEnum};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

pub(crate) const HELP: &str = "\
Examples:
  brambling coflow simulate --trace FB2010-1Hr-150-0.txt --policy fair,stream,receiver-driven
  brambling coflow simulate --generate 100 --policy all --json
  brambling coflow simulate --generate 100 --fabric fattree:8 --policy stream --waves 3
  brambling coflow simulate --trace trace.txt --policy stream --relay none --csv times.csv

A trace has `PORTS COFLOWS` in its first line, and then a coflow a line: NAME ARRIVAL_MS MAPPERS PORT... REDUCERS PORT:MB...

JSON has an object for each policy: `average_s`, `p50_s`, `p95_s`, `slowdown` (how many times as long as alone), `category`
(by size, I to V), `bin` (short or long, narrow or wide) and `messages`. CSV has `policy`, `coflow`, `arrival_s`, `cct_s`,
`isolated_s` and `bytes`.";

#[derive(clap::Args)]
pub(crate) struct CoflowArguments {
    #[command(subcommand)]
    command: CoflowCommand,
}

#[derive(Subcommand)]
enum CoflowCommand {
    /// Say how long coflows take under each policy, on links that they share
    #[command(after_help = HELP)]
    Simulate(Box<SimulateArguments>),
}

#[derive(Clone, Copy, ValueEnum)]
enum RelayName {
    /// Receivers of a coflow know at once what the others have
    Perfect,
    /// They hear it through senders, a round trip later
    Rtt,
    /// They never do
    None,
}

#[derive(Clone, Copy, ValueEnum)]
enum RuleName {
    /// The class is the number of thresholds that are passed
    Recommended,
    /// Equation 2 with one threshold
    Fixed,
    /// Equation 2 with the threshold of the class at hand
    Current,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SizesName {
    /// Senders announce them
    Known,
    /// Bytes that have come are all that is known
    Unknown,
}

#[derive(clap::Args)]
struct SimulateArguments {
    /// A trace of coflows
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "generate",
        conflicts_with = "generate"
    )]
    trace: Option<PathBuf>,
    /// Make so many coflows whose sizes have heavy tails
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    generate: Option<u32>,
    /// fair, fifo, baraat, aalo, stream, varys, receiver-driven (or ours), several of them, or all
    #[arg(long, value_name = "NAME[,NAME]...", default_value = "all", value_delimiter = ',', value_parser = policies)]
    policy: Vec<Policies>,
    /// big-switch, or fattree:K with K pods
    #[arg(long, value_name = "FABRIC", default_value = "big-switch")]
    fabric: Fabric,
    /// Gigabits that a link carries in a second
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive)]
    gbps: f64,
    /// Queues of aalo, stream and receiver-driven: 10 for aalo and 8 for the others unless told
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    queues: Option<u8>,
    /// Where the first queue of aalo and stream ends
    #[arg(long, value_name = "SIZE", default_value = "10MB", value_parser = size)]
    threshold: f64,
    /// How many times as far each next one does
    #[arg(long, value_name = "N", default_value = "10", value_parser = factor)]
    factor: f64,
    /// How stream reads the paper's equation 2
    #[arg(long, value_name = "RULE", default_value = "recommended")]
    rule: RuleName,
    /// How receivers of a coflow hear of each other
    #[arg(long, value_name = "HOW", default_value = "perfect")]
    relay: RelayName,
    /// How long a packet and its answer take
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = time)]
    rtt: f64,
    /// Whether receiver-driven knows sizes
    #[arg(long, value_name = "WHETHER", default_value = "known")]
    sizes: SizesName,
    /// In how many waves a coflow comes
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=4))]
    waves: u8,
    /// All coflows come at once
    #[arg(long)]
    burst: bool,
    /// Each coflow becomes a graph of exchanges: tpcds42 or tao
    #[arg(long, value_name = "GRAPH", conflicts_with = "waves")]
    dag: Option<Dag>,
    /// How many times as fast coflows come
    #[arg(long, value_name = "X", default_value = "1", value_parser = positive)]
    load: f64,
    /// On a fat tree, how far apart the moments are at which rates are looked at
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = time)]
    resolution: f64,
    /// What --generate makes, and where ports and paths of a fat tree are
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Write each coflow's times to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One policy, or all.
#[derive(Clone)]
struct Policies(Vec<PolicyName>);

fn policies(name: &str) -> Result<Policies, String> {
    match name {
        "all" => Ok(Policies(PolicyName::ALL.to_vec())),
        name => {
            let policy: PolicyName = name.parse().map_err(|error| format!("{error}; or all"))?;
            Ok(Policies(vec![policy]))
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|it: &f64| it.is_finite() && *it > 0.0);
    number.ok_or_else(|| "give a number above 0, such as 10".to_owned())
}

fn factor(text: &str) -> Result<f64, String> {
    positive(text)
        .ok()
        .filter(|it| *it > 1.0)
        .ok_or_else(|| "give a number above 1, such as 10".to_owned())
}

fn size(text: &str) -> Result<f64, String> {
    units::parse(text, Quantity::Size).map_err(|error| error.to_string())
}

fn time(text: &str) -> Result<f64, String> {
    let time = units::parse(text, Quantity::Time).map_err(|error| error.to_string())?;
    Some(time)
        .filter(|it| *it > 0.0)
        .ok_or_else(|| "give a time above 0, such as 10ms".to_owned())
}

impl SimulateArguments {
    fn workload(&self) -> Result<Workload, String> {
        let workload = match (&self.trace, self.generate) {
            (Some(path), _) => {
                let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
                let text = std::fs::read_to_string(path).map_err(|error| named(&error))?;
                Workload::from_trace(&text).map_err(|error| named(&error))?
            }
            (None, coflows) => Workload::generate(&GenerateOptions {
                coflows: coflows.unwrap_or(1),
                ports: 150,
                tails: Tails::Facebook,
                seed: self.seed,
            }),
        };
        let workload = workload.loaded(self.load);
        let workload = if self.burst {
            workload.burst()
        } else {
            workload
        };
        Ok(match self.dag {
            Some(dag) => workload.as_dag(dag),
            None if self.waves > 1 => workload.in_waves(usize::from(self.waves)),
            None => workload,
        })
    }

    fn choices(&self) -> PolicyChoices {
        let mut choices = PolicyChoices {
            queues: self.queues,
            threshold: self.threshold,
            factor: self.factor,
            rule: match self.rule {
                RuleName::Recommended => StreamRule::Recommended,
                RuleName::Fixed => StreamRule::Fixed,
                RuleName::Current => StreamRule::Current,
            },
            ..PolicyChoices::default()
        };
        choices.receiver_driven.knows_sizes = self.sizes == SizesName::Known;
        choices
    }

    fn options(&self) -> SimulateOptions {
        SimulateOptions {
            fabric: self.fabric,
            gbps: self.gbps,
            relay: match self.relay {
                RelayName::Perfect => PeerRelay::Perfect,
                RelayName::Rtt => PeerRelay::RoundTrip,
                RelayName::None => PeerRelay::None,
            },
            rtt_s: self.rtt,
            resolution_s: (self.fabric != Fabric::BigSwitch).then_some(self.resolution),
            seed: self.seed,
        }
    }
}

pub(crate) fn coflow(arguments: &CoflowArguments, streams: &mut Streams<'_>) -> u8 {
    let CoflowCommand::Simulate(arguments) = &arguments.command;
    let workload = match arguments.workload() {
        Ok(workload) => workload,
        Err(error) => {
            streams.err(format!("error: {error}\n"));
            return USAGE;
        }
    };
    let mut names: Vec<PolicyName> = Vec::new();
    for name in arguments.policy.iter().flat_map(|it| &it.0) {
        if !names.contains(name) {
            names.push(*name);
        }
    }
    let (choices, options) = (arguments.choices(), arguments.options());
    let mut found: Vec<(PolicyName, Outcome)> = Vec::new();
    for name in names {
        found.push((name, simulate(&workload, name, &choices, &options)));
    }
    if let Some(path) = &arguments.csv
        && let Err(error) = write_csv(path, &found)
    {
        streams.err(format!("error: {}: {error}\n", path.display()));
        return FAILED;
    }
    let summaries = found
        .iter()
        .map(|(name, outcome)| (name.name(), outcome.summary()));
    match arguments.json {
        true => {
            let by_name: BTreeMap<&str, Summary> = summaries.collect();
            streams.out(serde_json::to_string(&by_name).expect("names and finite numbers") + "\n");
        }
        false => streams.out(told(&workload, &summaries.collect::<Vec<_>>())),
    }
    OK
}

fn told(workload: &Workload, summaries: &[(&str, Summary)]) -> String {
    let head = format!(
        "{} coflows, {} flows, {}\n",
        workload.coflows.len(),
        workload.flows(),
        units::bytes(workload.bytes())
    );
    let titles = [
        "policy", "average", "median", "95 %", "slowdown", "messages",
    ]
    .map(str::to_owned);
    let mut lines = vec![titles];
    for (name, summary) in summaries {
        lines.push([
            (*name).to_owned(),
            units::seconds(summary.average_s),
            units::seconds(summary.p50_s),
            units::seconds(summary.p95_s),
            format!("{:.2}", summary.slowdown),
            summary.messages.to_string(),
        ]);
    }
    head + &table::rows(&lines)
}

fn write_csv(path: &Path, found: &[(PolicyName, Outcome)]) -> std::io::Result<()> {
    let mut text = "policy,coflow,arrival_s,cct_s,isolated_s,bytes\n".to_owned();
    for (name, outcome) in found {
        for took in &outcome.coflows {
            let _ = writeln!(
                text,
                "{name},{},{},{},{},{}",
                took.name, took.arrival_s, took.cct_s, took.isolated_s, took.bytes
            );
        }
    }
    std::fs::write(path, text)
}
