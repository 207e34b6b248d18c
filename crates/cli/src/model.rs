//! `brambling model`: how long a job would take on hardware that is used to the full.
//!
//! This module owns the command's options and their checks. The model is `machine`'s; nothing here
//! computes or measures.

use crate::{OK, Streams, USAGE};
use brambling_machine::ideal::{IdealTime, Setup};
use brambling_machine::units::{self, Quantity};

pub(crate) const HELP: &str = "\
Examples:
  brambling model --nodes 1460 --input 1TB --disk-read 260MB/s --disk-write 260MB/s --network 110MB/s --took 62s
  brambling model --nodes 4000 --input 1PB --disk-read 780MB/s --disk-write 780MB/s --network 110MB/s \\
      --replication 3 --external --backup --took 21720s
  brambling model --nodes 8 --input 2TB --disk-read 2GB/s --disk-write 1.5GB/s --network 10Gbit/s --map-ratio 0.1 --json

Units are decimal: 1TB is 10^12 bytes, 1TiB is 2^40. Speeds are those of one node, its disks taken together.

JSON has `ideal_seconds`, `phases` (name, seconds, disk_seconds, network_seconds, bound_by, operations: name, resource, bytes
of one node, seconds), `bound_by`, `nodes_for` (null without --took) and `over_provisioned` (disk, network).";

#[derive(clap::Args)]
pub(crate) struct ModelArguments {
    /// How many nodes the cluster has
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = count)]
    nodes: u64,
    /// The input of the whole job, such as 1TB
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = size)]
    input: f64,
    /// What the disks of one node read together, such as 260MB/s
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, value_parser = rate)]
    disk_read: f64,
    /// What they write together
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, value_parser = rate)]
    disk_write: f64,
    /// What the network carries to or from one node, such as 110MB/s or 1Gbit/s
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, value_parser = rate)]
    network: f64,
    /// On how many nodes the output is stored; 1 is no replication
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true, value_parser = count)]
    replication: u64,
    /// Bytes that the map makes of one: 1 for a sort, 0 for a grep
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, allow_hyphen_values = true, value_parser = ratio)]
    map_ratio: f64,
    /// Bytes of output that the reduce makes of one byte of the map's
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, allow_hyphen_values = true, value_parser = ratio)]
    reduce_ratio: f64,
    /// Memory is too small: sorted batches are written to disk and read again
    #[arg(long)]
    external: bool,
    /// What the map makes is also written to disk, against failures
    #[arg(long)]
    backup: bool,
    /// How long the job took, such as 62s: how many nodes would have been enough?
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time)]
    took: Option<f64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ModelArguments {
    fn setup(&self) -> Setup {
        Setup {
            nodes: self.nodes,
            disk_read_bytes_per_s: self.disk_read,
            disk_write_bytes_per_s: self.disk_write,
            network_bytes_per_s: self.network,
            replication: self.replication,
            input_bytes: self.input,
            map_ratio: self.map_ratio,
            reduce_ratio: self.reduce_ratio,
            external: self.external,
            backup: self.backup,
        }
    }
}

pub(crate) fn model(arguments: &ModelArguments, streams: &mut Streams<'_>) -> u8 {
    match arguments.setup().ideal_time(arguments.took) {
        Ok(answer) => {
            streams.out(match arguments.json {
                true => model_json(&answer) + "\n",
                false => answer.to_string(),
            });
            OK
        }
        // It begins with the name of an option.
        Err(error) => {
            streams.err(format!("error: --{error}"));
            USAGE
        }
    }
}

/// The answer as one line of JSON; its keys are stable.
pub fn model_json(answer: &IdealTime) -> String {
    serde_json::to_string(answer).expect("names and finite numbers")
}

fn size(text: &str) -> Result<f64, String> {
    quantity(text, Quantity::Size)
}

fn rate(text: &str) -> Result<f64, String> {
    quantity(text, Quantity::Rate)
}

fn time(text: &str) -> Result<f64, String> {
    quantity(text, Quantity::Time)
}

fn quantity(text: &str, kind: Quantity) -> Result<f64, String> {
    units::parse(text, kind).map_err(|error| error.to_string())
}

fn count(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|&count| count > 0);
    count.ok_or_else(|| "give a whole number of at least 1, such as 3".to_owned())
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok();
    let ratio = ratio.filter(|ratio: &f64| ratio.is_finite() && *ratio >= 0.0);
    ratio.ok_or_else(|| "give a number of at least 0, such as 0.25".to_owned())
}
