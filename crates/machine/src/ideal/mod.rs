//! How long a map-reduce job takes on hardware that is used to the full: the model of Krevat et
//! al., "Applying performance models to understand data-intensive computing efficiency", §3.
//!
//! This module owns Table 1 (what is moved), Table 2 (the symbols, which are the fields of
//! [`Setup`]) and the four variants of Table 3. The command `brambling model` and `br.model` of the
//! Python package call it. It never measures anything: speeds are given.
//!
//! The model counts disk and network alone. Computing costs nothing, because it overlaps with
//! both; the network's core is wide enough; data is spread evenly, nodes are alike, and the job has
//! them for itself. So no job can be faster on that hardware, and its ideal time is a bound.
//!
//! ```
//! use brambling_machine::ideal::{ModelResource, Setup};
//!
//! // The TeraSort of Hadoop, §4: 62 s on 1,460 nodes of four disks.
//! let setup = Setup { nodes: 1460, ..Setup::sort(1e12, 260e6, 110e6) };
//! let answer = setup.ideal_time(Some(62.0))?;
//! assert_eq!(format!("{:.2}", answer.ideal_seconds), "8.86");
//! assert_eq!(answer.bound_by, Some(ModelResource::Network));
//! assert_eq!(answer.nodes_for, Some(208));
//! # Ok::<(), brambling_machine::ideal::SetupError>(())
//! ```

mod nodes;
mod phases;
#[cfg(test)]
mod published;
mod time;

pub use nodes::nodes_by_proportion;
pub use phases::{ModelPhase, ModelResource, Operation};
pub use time::{IdealTime, OverProvisioned};

/// A job and the cluster that it runs on: the symbols of Table 2, and the variant of Table 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// n: how many nodes the cluster has.
    pub nodes: u64,
    /// D_r: what the disks of one node read together, in bytes per second.
    pub disk_read_bytes_per_s: f64,
    /// D_w: what they write together, in bytes per second.
    pub disk_write_bytes_per_s: f64,
    /// N: what the network carries to or from one node, in bytes per second.
    pub network_bytes_per_s: f64,
    /// r: on how many nodes each byte of output is stored; 1 is no replication.
    pub replication: u64,
    /// i: the input of the whole job, in bytes.
    pub input_bytes: f64,
    /// e_M: bytes that the map makes of a byte of input; 1 for a sort, about 0 for a grep.
    pub map_ratio: f64,
    /// e_R: bytes of output that the reduce makes of a byte of the map's.
    pub reduce_ratio: f64,
    /// What the map makes does not fit in memory: sorted batches are written and read again.
    pub external: bool,
    /// What the map makes is also written to disk, against failures.
    pub backup: bool,
}

impl Setup {
    /// A sort in memory without backup or replication, on one node whose disks read as fast as they
    /// write; the other cases are changes of its fields.
    pub fn sort(input_bytes: f64, disk_bytes_per_s: f64, network_bytes_per_s: f64) -> Setup {
        Setup {
            nodes: 1,
            disk_read_bytes_per_s: disk_bytes_per_s,
            disk_write_bytes_per_s: disk_bytes_per_s,
            network_bytes_per_s,
            replication: 1,
            input_bytes,
            map_ratio: 1.0,
            reduce_ratio: 1.0,
            external: false,
            backup: false,
        }
    }

    /// The equation of Table 3 for this variant, in seconds.
    fn seconds(&self) -> f64 {
        self.phases().iter().map(|phase| phase.seconds).sum()
    }

    fn check(&self, took_seconds: Option<f64>) -> Result<(), SetupError> {
        let positive = [
            (Input::DiskRead, self.disk_read_bytes_per_s),
            (Input::DiskWrite, self.disk_write_bytes_per_s),
            (Input::Network, self.network_bytes_per_s),
            (Input::Input, self.input_bytes),
            (Input::Took, took_seconds.unwrap_or(1.0)),
        ];
        for (input, value) in positive {
            if !(value.is_finite() && value > 0.0) {
                return Err(SetupError::NotPositive { input, value });
            }
        }
        for (input, value) in [
            (Input::MapRatio, self.map_ratio),
            (Input::ReduceRatio, self.reduce_ratio),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(SetupError::NotARatio { input, value });
            }
        }
        let (nodes, replication) = (self.nodes, self.replication);
        if nodes == 0 {
            return Err(SetupError::NoNodes);
        }
        if replication == 0 {
            return Err(SetupError::NoReplica);
        }
        if replication > nodes {
            return Err(SetupError::TooFewNodes { replication, nodes });
        }
        if !self.seconds().is_finite() {
            return Err(SetupError::OutOfRange);
        }
        Ok(())
    }
}

/// What a setup is made of, by the names of the command's options and of Python's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Bytes that the disks of a node read in a second.
    DiskRead,
    /// Bytes that they write in a second.
    DiskWrite,
    /// Bytes that the network carries to or from a node in a second.
    Network,
    /// Bytes of input.
    Input,
    /// Bytes that the map makes of one.
    MapRatio,
    /// Bytes that the reduce makes of one.
    ReduceRatio,
    /// Seconds that the job took.
    Took,
}

impl std::fmt::Display for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Input::DiskRead => "disk-read",
            Input::DiskWrite => "disk-write",
            Input::Network => "network",
            Input::Input => "input",
            Input::MapRatio => "map-ratio",
            Input::ReduceRatio => "reduce-ratio",
            Input::Took => "took",
        })
    }
}

/// Why the model has no answer. Texts begin with the name of an input.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A speed, a size or a time is zero, negative or no number.
    #[error(
        "{input} is {value}; it has to be above 0, such as {}",
        match .input { Input::Input => "1TB", Input::Took => "62s", _ => "110MB/s" }
    )]
    NotPositive {
        /// Which one.
        input: Input,
        /// What was given.
        value: f64,
    },
    /// A ratio is negative or no number.
    #[error("{input} is {value}; it has to be 0 or above: 1 for a sort, 0 for a grep")]
    NotARatio {
        /// Which one.
        input: Input,
        /// What was given.
        value: f64,
    },
    /// A cluster without nodes.
    #[error("nodes is 0; give at least one node, such as 1460")]
    NoNodes,
    /// Output that is stored nowhere.
    #[error("replication is 0; give at least 1, which stores the output once")]
    NoReplica,
    /// Replicas of a byte are on different nodes.
    #[error(
        "replication is {replication} on {nodes} nodes; each replica is on a node of its own: give more nodes, or fewer replicas"
    )]
    TooFewNodes {
        /// How many replicas.
        replication: u64,
        /// How many nodes.
        nodes: u64,
    },
    /// The job would take longer than a number can say.
    #[error(
        "input is too large for these speeds: its ideal time is beyond what a number can hold; give less"
    )]
    OutOfRange,
    /// No number of nodes is as fast.
    #[error(
        "took is {took_seconds:e} s, which no number of nodes below 2^53 reaches; give a longer time"
    )]
    TookTooShort {
        /// What was given.
        took_seconds: f64,
    },
}
