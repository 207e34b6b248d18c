//! Benches, each printed next to its limit: what the same machine does for a hand-written loop in
//! the same run.

mod cluster;
mod described;
mod limits;
mod report;
mod session;
mod sweep;
mod task_graph;
mod task_times;
mod uniform;

mod benches;

use std::ffi::OsString;
use std::ops::RangeInclusive;

pub use benches::sort_costs::{FeatureCost, SortCostsFigures};
pub use benches::word_count::WordCountFigures;
pub use brambling::graph::Precision;
pub use described::program;
pub use report::{Figures, Limit, Line, OwnFigures, PatternFigures, Report, SizeFigures, Subject};
pub use report::{SweepFigures, Table};
pub use task_times::{Spread, StageFigures, TaskTimesFigures};

/// How a bench is run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Threads of the engine and of every limit. Unset: as any job's.
    pub threads: Option<u32>,
    /// Tiny sizes and one round: shows that the bench works, and says nothing about speed.
    pub smoke: bool,
    /// Centres of `kmeans`, one of [`K_RANGE`]. Unset: 10.
    pub k: Option<u32>,
    /// The graph of `pagerank`. Unset: kron21.
    pub graph: Option<GraphName>,
    /// The width of a rank in `pagerank`. Unset: 64 bits.
    pub dtype: Option<Precision>,
    /// Partitions for each thread in `logistic`, `kmeans` and `pagerank`, of [`PARTITIONS_PER_CORE_RANGE`]. None: as
    /// any job's. Several: a sweep, which measures ours with each of them and no bare loop.
    pub partitions_per_core: Vec<u32>,
    /// Whether `logistic`, `kmeans` and `pagerank` also time each task of an iteration.
    pub task_times: bool,
    /// Bytes of the input of `sort-costs`, of [`BYTES_RANGE`]. Unset: a gigabyte.
    pub bytes: Option<u64>,
    /// Rounds of `sort-costs`, of [`ROUNDS_RANGE`]. Unset: seven.
    pub rounds: Option<u32>,
    /// Workers of a cluster on this machine, of [`WORKERS_RANGE`], beside one process of as many threads. `threads` are then those
    /// of each worker, one unless told.
    pub workers: Option<u32>,
    /// What begins a `brambling` command in another process: workers are started so.
    pub command: Vec<OsString>,
}

/// How many workers a bench can start.
pub const WORKERS_RANGE: RangeInclusive<u32> = 1..=64;

/// How many rounds a bench can be told to take.
pub const ROUNDS_RANGE: RangeInclusive<u32> = 1..=100;

/// How long an input can be that a bench makes, in bytes.
pub const BYTES_RANGE: RangeInclusive<u64> = 16_000_000..=1_000_000_000_000;

/// How many centres `kmeans` can have.
pub const K_RANGE: RangeInclusive<u32> = 1..=1_024;

/// How many partitions a thread can have.
pub const PARTITIONS_PER_CORE_RANGE: RangeInclusive<u32> = 1..=64;

/// An option that only some benches have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    K,
    Graph,
    Dtype,
    PartitionsPerCore,
    TaskTimes,
    Workers,
    Bytes,
    Rounds,
}

impl Own {
    const ALL: [Own; 8] = [
        Own::K,
        Own::Graph,
        Own::Dtype,
        Own::PartitionsPerCore,
        Own::TaskTimes,
        Own::Workers,
        Own::Bytes,
        Own::Rounds,
    ];

    /// As it is typed.
    fn name(self) -> &'static str {
        match self {
            Own::K => "--k",
            Own::Graph => "--graph",
            Own::Dtype => "--dtype",
            Own::PartitionsPerCore => "--partitions-per-core",
            Own::TaskTimes => "--task-times",
            Own::Workers => "--workers",
            Own::Bytes => "--bytes",
            Own::Rounds => "--rounds",
        }
    }

    fn is_given(self, options: &Options) -> bool {
        match self {
            Own::K => options.k.is_some(),
            Own::Graph => options.graph.is_some(),
            Own::Dtype => options.dtype.is_some(),
            Own::PartitionsPerCore => !options.partitions_per_core.is_empty(),
            Own::TaskTimes => options.task_times,
            Own::Workers => options.workers.is_some(),
            Own::Bytes => options.bytes.is_some(),
            Own::Rounds => options.rounds.is_some(),
        }
    }
}

/// A graph that `pagerank` can rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum GraphName {
    /// Graph500's Kronecker graph of scale 21, edge factor 16, undirected, without self-loops and duplicates.
    #[default]
    Kron21,
    /// 500,000 vertices with log-normal out-degrees, 63 million edges.
    LogNormal,
}

impl GraphName {
    /// All of them.
    pub const ALL: [GraphName; 2] = [GraphName::Kron21, GraphName::LogNormal];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            GraphName::Kron21 => "kron21",
            GraphName::LogNormal => "lognormal",
        }
    }
}

impl Options {
    /// As a user runs it.
    pub fn new() -> Options {
        Options::default()
    }

    /// On so many threads.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Options {
        self.threads = Some(threads);
        self
    }

    /// Tiny sizes and one round.
    #[must_use]
    pub fn smoke(mut self, smoke: bool) -> Options {
        self.smoke = smoke;
        self
    }

    /// With so many centres, where the bench is `kmeans`.
    #[must_use]
    pub fn k(mut self, k: u32) -> Options {
        self.k = Some(k);
        self
    }

    /// Refuses every option that only some benches have: for a bench that is none of these.
    ///
    /// # Errors
    /// Names the first such option that is given.
    pub fn refuse_own(&self, bench: &str) -> Result<(), BenchError> {
        self.refuse_all_but(bench, &[])
    }

    fn refuse_all_but(&self, bench: &str, takes: &[Own]) -> Result<(), BenchError> {
        let mut given = Own::ALL.into_iter().filter(|own| own.is_given(self));
        match given.find(|own| !takes.contains(own)) {
            None => Ok(()),
            Some(own) => Err(BenchError::NotItsOption {
                bench: bench.to_owned(),
                option: own.name(),
            }),
        }
    }

    /// Refuses what the bench does not have, and values that no bench can use.
    fn check(&self, bench: &benches::Bench) -> Result<(), BenchError> {
        self.refuse_all_but(bench.name, bench.takes)?;
        let in_wide_range =
            |own: Own, value: u64, range: RangeInclusive<u64>| match range.contains(&value) {
                true => Ok(()),
                false => Err(BenchError::OutOfRange {
                    option: own.name(),
                    value,
                    range,
                }),
            };
        let in_range = |own: Own, values: &[u32], range: RangeInclusive<u32>| {
            let range = u64::from(*range.start())..=u64::from(*range.end());
            let mut values = values.iter().map(|value| u64::from(*value));
            values.try_for_each(|value| in_wide_range(own, value, range.clone()))
        };
        if let Some(bytes) = self.bytes {
            in_wide_range(Own::Bytes, bytes, BYTES_RANGE)?;
        }
        in_range(Own::Rounds, self.rounds.as_slice(), ROUNDS_RANGE)?;
        in_range(Own::K, self.k.as_slice(), K_RANGE)?;
        in_range(Own::Workers, self.workers.as_slice(), WORKERS_RANGE)?;
        let beside = [Own::PartitionsPerCore, Own::TaskTimes];
        if let (Some(_), Some(own)) = (self.workers, beside.iter().find(|own| own.is_given(self))) {
            return Err(BenchError::NotWithWorkers { option: own.name() });
        }
        in_range(
            Own::PartitionsPerCore,
            &self.partitions_per_core,
            PARTITIONS_PER_CORE_RANGE,
        )
    }
}

/// Why a bench gave no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// There is no such bench.
    #[error("there is no bench {name:?}; there are {}", names().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The bench does not have an option that another one has.
    #[error("the bench \"{bench}\" has no option {option}; {}", who_has(option))]
    NotItsOption {
        /// The bench.
        bench: String,
        /// The option, as it is typed.
        option: &'static str,
    },
    /// An option's value is none that the bench can use.
    #[error("{option} is {value}: it has to be between {} and {}", range.start(), range.end())]
    OutOfRange {
        /// The option, as it is typed.
        option: &'static str,
        /// What was asked for.
        value: u64,
        /// What can be asked for.
        range: RangeInclusive<u64>,
    },
    /// An option that says nothing about workers.
    #[error("{option} is measured in one process; leave out it or --workers")]
    NotWithWorkers {
        /// The option, as it is typed.
        option: &'static str,
    },
    /// A file could not be made, sorted or checked.
    #[error(transparent)]
    Sort(#[from] Box<brambling::sort::SortError>),
    /// The user interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// The engine refused or ended a job.
    #[error(transparent)]
    Job(#[from] brambling::Error),
    /// A limit or ours computed something else than it should have: its figures say nothing.
    #[error("{bench}: {what}")]
    Wrong {
        /// The bench.
        bench: &'static str,
        /// What was found and what was expected.
        what: String,
    },
    /// What the machine has cannot be found out.
    #[error("the system does not give what the bench asks of it: {0}")]
    Machine(#[source] std::io::Error),
}

/// The benches.
pub fn names() -> Vec<&'static str> {
    benches::ALL.iter().map(|bench| bench.name).collect()
}

fn who_has(option: &str) -> String {
    let has = |bench: &&benches::Bench| bench.takes.iter().any(|own| own.name() == option);
    let names: Vec<_> = benches::ALL.iter().filter(has).map(|b| b.name).collect();
    match names.as_slice() {
        [name] => format!("{name} has it"),
        [names @ .., last] => format!("{} and {last} have it", names.join(", ")),
        [] => unreachable!("some bench has each option"),
    }
}

/// The benches with a line on each.
pub fn descriptions() -> Vec<(&'static str, &'static str)> {
    benches::ALL
        .iter()
        .map(|bench| (bench.name, bench.claim))
        .collect()
}

/// Runs a bench. `interrupted` is asked every few milliseconds while the engine runs, and between
/// measurements.
///
/// # Errors
/// No such bench, an option that it does not have, interrupted, refused by the engine, or a result that is not what it should be.
pub fn run(
    name: &str,
    options: &Options,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Report, BenchError> {
    let bench = benches::ALL
        .iter()
        .find(|bench| bench.name == name)
        .ok_or_else(|| BenchError::Unknown {
            name: name.to_owned(),
        })?;
    options.check(bench)?;
    let mut session = session::Session::new(bench.name, options, interrupted)?;
    (bench.run)(&mut session)
}
