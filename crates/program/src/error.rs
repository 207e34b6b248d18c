//! What is wrong with a program, and what goes wrong in a kernel.

use brambling_memory::OutOfMemory;
use std::fmt;

/// Why a program is refused when it is built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A stage over datasets of different partition counts.
    #[error(
        "stage `{stage}` uses `{first}` ({first_count}) and `{second}` ({second_count}) together, but their partition \
         counts differ; give them the same count, or move one with broadcast, shuffle or reduce first"
    )]
    PartitionCounts {
        /// The stage.
        stage: String,
        /// One dataset.
        first: String,
        /// Its count.
        first_count: String,
        /// Another dataset.
        second: String,
        /// Its count.
        second_count: String,
    },
    /// A dataset of no partitions.
    #[error("dataset `{dataset}` has zero partitions; give it at least 1")]
    ZeroPartitions {
        /// The dataset.
        dataset: String,
    },
    /// A signal over more than one partition.
    #[error(
        "signal `{stage}` reads `{dataset}`, which has {count}; a signal needs a dataset of one partition: \
         reduce `{dataset}` to one first"
    )]
    SignalPartitions {
        /// The stage.
        stage: String,
        /// The dataset.
        dataset: String,
        /// Its count.
        count: String,
    },
    /// One stage both reads and writes a dataset.
    #[error("stage `{stage}` both reads and writes `{dataset}`; declare it once, with update")]
    ReadAndWrite {
        /// The stage.
        stage: String,
        /// The dataset.
        dataset: String,
    },
    /// One stage names a dataset twice.
    #[error("stage `{stage}` names `{dataset}` twice; name each dataset once")]
    NamedTwice {
        /// The stage.
        stage: String,
        /// The dataset.
        dataset: String,
    },
    /// A stage that uses nothing.
    #[error(
        "stage `{stage}` uses no dataset; a stage runs on the partitions of what it reads and writes"
    )]
    NoDataset {
        /// The stage.
        stage: String,
    },
    /// A scatter writes a dataset of its own group.
    #[error(
        "stage `{stage}` writes `{dataset}`; a scatter or signal only reads: write in a compute stage before it"
    )]
    ScatterWrites {
        /// The stage.
        stage: String,
        /// The dataset.
        dataset: String,
    },
    /// A scatter without its gather, or twice, or in another block.
    #[error(
        "exchange `{exchange}`: {problem}; an exchange is one scatter and then one gather, both in the same block"
    )]
    Exchange {
        /// The exchange.
        exchange: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// An end of a streamed exchange that is no streaming stage, or the other way round.
    #[error("stage `{stage}` and exchange `{exchange}`: {problem}")]
    Streamed {
        /// The stage.
        stage: String,
        /// The exchange.
        exchange: String,
        /// What is wrong and how to mend it.
        problem: &'static str,
    },
    /// A dataset that begins with values that nobody has given.
    #[error(
        "nobody has given what dataset `{dataset}` begins with: the program comes from another process; give it with give before it runs"
    )]
    NotGiven {
        /// The dataset.
        dataset: String,
    },
    /// A streaming stage that cannot be begun anew.
    #[error(
        "stage `{stage}` is said to be repeatable and takes chunks of `{exchange}`: a chunk is taken once, so it cannot be begun anew; \
         leave out repeatable"
    )]
    NotRepeatable {
        /// The stage.
        stage: String,
        /// What it takes from.
        exchange: String,
    },
    /// An exchange whose relation does not fit its partition counts.
    #[error("exchange `{exchange}`: {problem}")]
    Relation {
        /// The exchange.
        exchange: String,
        /// What is wrong and how to mend it.
        problem: String,
    },
    /// A branch on a signal that may not have been given.
    #[error(
        "a branch tests signal `{signal}`, which is not given before it in the same or an enclosing block; \
         give the signal first"
    )]
    SignalNotBefore {
        /// The signal.
        signal: String,
    },
    /// A handle of another program.
    #[error(
        "stage `{stage}` uses a dataset of another program; datasets belong to the program that made them"
    )]
    OtherProgram {
        /// The stage.
        stage: String,
    },
    /// A symbol that nobody bound.
    #[error("partition count `{symbol}` is not bound; bind it when the job starts")]
    Unbound {
        /// The symbol.
        symbol: String,
    },
    /// A stage whose builder was dropped unfinished.
    #[error("stage `{stage}` has no kernel; finish it with run")]
    NoKernel {
        /// The stage.
        stage: String,
    },
    /// Loops and branches in each other, too many of them.
    #[error(
        "loops and branches would stand {depth} deep in each other here, and the limit is {}; put blocks one after another, or \
         loop and branch in the kernels",
        crate::DEPTH_MAX
    )]
    TooDeep {
        /// How deep.
        depth: usize,
    },
    /// Bytes that are no program.
    #[error("these bytes are not a program: {reason}")]
    Malformed {
        /// What is wrong.
        reason: String,
    },
    /// A program of a newer format.
    #[error(
        "this program has format version {found}; this version of brambling reads up to {known}: upgrade it"
    )]
    NewerFormat {
        /// Its version.
        found: u16,
        /// The newest version known here.
        known: u16,
    },
}

/// What a kernel reports when it fails.
#[derive(Debug)]
pub struct KernelError {
    message: String,
    traceback: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl KernelError {
    /// An error with a message.
    pub fn new(message: impl Into<String>) -> KernelError {
        KernelError {
            message: message.into(),
            traceback: None,
            source: None,
        }
    }

    /// The same with the traceback of another language or a backtrace.
    #[must_use]
    pub fn with_traceback(mut self, traceback: impl Into<String>) -> KernelError {
        self.traceback = Some(traceback.into());
        self
    }

    /// The same with its cause.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> KernelError {
        self.source = Some(source.into());
        self
    }

    /// What happened.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Where it happened, as the kernel's language tells it.
    pub fn traceback(&self) -> Option<&str> {
        self.traceback.as_deref()
    }

    /// Takes the cause out.
    pub fn take_source(&mut self) -> Option<Box<dyn std::error::Error + Send + Sync>> {
        self.source.take()
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for KernelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<String> for KernelError {
    fn from(message: String) -> Self {
        KernelError::new(message)
    }
}

impl From<&str> for KernelError {
    fn from(message: &str) -> Self {
        KernelError::new(message)
    }
}

impl From<OutOfMemory> for KernelError {
    fn from(error: OutOfMemory) -> Self {
        KernelError::new(error.to_string()).with_source(error)
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for KernelError {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        KernelError::new(error.to_string()).with_source(error)
    }
}
