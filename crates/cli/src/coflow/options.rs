//! The options of `brambling coflow simulate`, and what they mean to the engine.

use brambling::coflow::policy::{PolicyChoices, PolicyName, StreamRule};
use brambling::coflow::simulate::{Fabric, PeerRelay, SimulateOptions};
use brambling::coflow::workload::{Dag, GenerateOptions, Tails, Workload};
use brambling_machine::units::{self, Quantity};
use clap::ValueEnum;
use std::path::{Path, PathBuf};

/// Beyond it times are too far apart to be told from each other.
const LEAST_LOAD: f64 = 1e-6;
/// Below it ticks are.
const LEAST_RESOLUTION_S: f64 = 10e-6;

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

/// By what receiver-driven orders coflows.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OrderName {
    /// Senders serve grants by exact rank
    Rank,
    /// The network's classes alone
    Class,
}

#[derive(clap::Args)]
pub(super) struct SimulateArguments {
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
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive, allow_hyphen_values = true)]
    gbps: f64,
    /// Queues of aalo, stream and receiver-driven: 10 for aalo and 8 for the others unless told
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    queues: Option<u8>,
    /// Where the first queue of aalo and stream ends
    #[arg(long, value_name = "SIZE", default_value = "10MB", value_parser = size)]
    threshold: f64,
    /// How many times as far each next one does
    #[arg(long, value_name = "N", default_value = "10", value_parser = factor, allow_hyphen_values = true)]
    factor: f64,
    /// How stream reads the paper's equation 2
    #[arg(long, value_name = "RULE", default_value = "recommended")]
    rule: RuleName,
    /// How much later stream demotes a coflow most of whose flows are done: by up to such a share (the paper's alpha)
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share, allow_hyphen_values = true)]
    alpha: f64,
    /// How much what other receivers have counts to stream's (the paper's beta)
    #[arg(long, value_name = "X", default_value = "1", value_parser = not_negative, allow_hyphen_values = true)]
    beta: f64,
    /// After how long without a byte stream lifts a coflow by a class; never unless told
    #[arg(long, value_name = "TIME", value_parser = time)]
    starvation: Option<f64>,
    /// Stream's classes share links by weights, in place of one after the other
    #[arg(long)]
    wfq: bool,
    /// How receivers of a coflow hear of each other
    #[arg(long, value_name = "HOW", default_value = "perfect")]
    relay: RelayName,
    /// How long a packet and its answer take
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = time)]
    rtt: f64,
    /// Whether receiver-driven knows sizes
    #[arg(long, value_name = "WHETHER", default_value = "known")]
    sizes: SizesName,
    /// By what receiver-driven orders coflows
    #[arg(long, value_name = "WHAT", default_value = "rank")]
    order: OrderName,
    /// By up to which share announced sizes are off, such as 0.5
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share, allow_hyphen_values = true)]
    sizes_off: f64,
    /// Which share of hosts announces nothing, such as 0.01
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share, allow_hyphen_values = true)]
    silent: f64,
    /// In how many waves a coflow comes
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=4))]
    waves: u8,
    /// All coflows come at once
    #[arg(long)]
    burst: bool,
    /// Each coflow becomes a graph of exchanges: tpcds42 or tao
    #[arg(long, value_name = "GRAPH")]
    dag: Option<Dag>,
    /// How many times as fast coflows come
    #[arg(long, value_name = "X", default_value = "1", value_parser = load, allow_hyphen_values = true)]
    load: f64,
    /// On a fat tree, how far apart the moments are at which flows that have ended are looked at
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = resolution)]
    resolution: f64,
    /// What --generate makes, and where ports and paths of a fat tree are
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Write each coflow's times to this file
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
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

fn load(text: &str) -> Result<f64, String> {
    positive(text)
        .ok()
        .filter(|it| (LEAST_LOAD..=1.0 / LEAST_LOAD).contains(it))
        .ok_or_else(|| "give a number from 0.000001 to 1000000, such as 2".to_owned())
}

fn resolution(text: &str) -> Result<f64, String> {
    time(text)
        .ok()
        .filter(|it| *it >= LEAST_RESOLUTION_S)
        .ok_or_else(|| "give a time of at least 10us, such as 10ms".to_owned())
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|it: &f64| it.is_finite() && *it >= 0.0);
    number.ok_or_else(|| "give a number of at least 0, such as 1".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|it| (0.0..=1.0).contains(it));
    number.ok_or_else(|| "give a number from 0 to 1, such as 0.5".to_owned())
}

fn factor(text: &str) -> Result<f64, String> {
    positive(text)
        .ok()
        .filter(|it| *it > 1.0)
        .ok_or_else(|| "give a number above 1, such as 10".to_owned())
}

fn size(text: &str) -> Result<f64, String> {
    let size = units::parse(text, Quantity::Size).map_err(|error| error.to_string())?;
    Some(size)
        .filter(|it| *it > 0.0)
        .ok_or_else(|| "give a size above 0, such as 10MB".to_owned())
}

fn time(text: &str) -> Result<f64, String> {
    let time = units::parse(text, Quantity::Time).map_err(|error| error.to_string())?;
    Some(time)
        .filter(|it| *it > 0.0)
        .ok_or_else(|| "give a time above 0, such as 10ms".to_owned())
}

/// The coflows of a trace.
pub(super) fn trace(path: &Path) -> Result<Workload, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path)
        .map_err(|error| named(&error) + "; give a file that is a trace of coflows")?;
    Workload::from_trace(&text).map_err(|error| named(&error))
}

impl SimulateArguments {
    pub(super) fn workload(&self) -> Result<Workload, String> {
        if self.dag.is_some() && self.waves > 1 {
            return Err(
                "a coflow that becomes a graph has no waves; leave out --waves or --dag".to_owned(),
            );
        }
        let workload = match (&self.trace, self.generate) {
            (Some(path), _) => trace(path)?,
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

    pub(super) fn choices(&self) -> PolicyChoices {
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
        choices.stream.alpha = self.alpha;
        choices.stream.beta = self.beta;
        choices.stream.starvation_s = self.starvation;
        choices.stream.weighted = self.wfq;
        choices.receiver_driven.knows_sizes = self.sizes == SizesName::Known;
        choices.receiver_driven.by_rank = self.order == OrderName::Rank;
        choices
    }

    pub(super) fn options(&self) -> SimulateOptions {
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
            sizes_off: self.sizes_off,
            silent: self.silent,
            seed: self.seed,
        }
    }

    /// The policies that are asked for, each once, in that order.
    pub(super) fn policies(&self) -> Vec<PolicyName> {
        let mut names: Vec<PolicyName> = Vec::new();
        for name in self.policy.iter().flat_map(|it| &it.0) {
            if !names.contains(name) {
                names.push(*name);
            }
        }
        names
    }
}
