//! How a job ends when it does not end well.

use crate::node::NodeError;
use brambling_memory::{OutOfMemory, SpillError};
use brambling_program::{GroupId, KernelError, StageId, Turn};
pub use brambling_protocol::message::FailureKind;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Why a job ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A kernel returned an error.
    #[error("stage `{stage}` failed on partition {partition} at turn {turn}: {error}")]
    Kernel {
        /// The stage.
        stage: String,
        /// The partition.
        partition: u32,
        /// The turn.
        turn: Turn,
        /// What the kernel said.
        error: KernelError,
    },
    /// A kernel panicked.
    #[error("stage `{stage}` panicked on partition {partition} at turn {turn}: {message}{}", at(.location))]
    Panic {
        /// The stage.
        stage: String,
        /// The partition.
        partition: u32,
        /// The turn.
        turn: Turn,
        /// The panic's message.
        message: String,
        /// File and line, and the backtrace when RUST_BACKTRACE asks for one.
        location: Option<String>,
    },
    /// The budget is used up.
    #[error("stage `{stage}` on partition {partition}{} ran {source}{}", sending(.exchange), unspilled(.spill))]
    OutOfMemory {
        /// The stage, or what was being loaded.
        stage: String,
        /// The partition.
        partition: u32,
        /// The exchange whose pieces the stage was sending.
        exchange: Option<String>,
        /// What was asked for.
        source: OutOfMemory,
        /// Why it was not spilled, if it could have been.
        spill: Option<Box<SpillError>>,
    },
    /// Pieces that were spilled are needed and cannot be had, or others cannot be spilled for them.
    #[error("{0}")]
    Spilled(SpillError),
    /// Nothing moves any more.
    #[error(
        "the job stalled: nothing has run for {} s; stage `{stage}` on partition {partition} at turn {turn} waits for \
         {waits_for}", .after.as_secs_f32()
    )]
    Stalled {
        /// The stage.
        stage: String,
        /// The partition.
        partition: u32,
        /// The turn.
        turn: Turn,
        /// What it needs.
        waits_for: WaitsFor,
        /// How long nothing had run.
        after: Duration,
    },
    /// A fault of ours.
    #[error("a fault in brambling itself, please report it: {message}")]
    Internal {
        /// The assertion that failed.
        message: String,
    },
    /// The job failed on another worker of the cluster, or was ended there.
    #[error("{failure}")]
    Elsewhere {
        /// Where, and why.
        failure: String,
        /// Where it began, if that was in the program and its worker has told.
        origin: Option<Box<Origin>>,
    },
    /// A worker said what no worker of this build says.
    #[error("a fault between workers, please report it: {}", with_causes(.0))]
    Peer(#[from] NodeError),
    /// The user interrupted the job.
    #[error("interrupted")]
    Interrupted,
}

/// Where a failure began, as the worker there tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Of what kind it was.
    pub kind: FailureKind,
    /// The stage.
    pub stage: String,
    /// The partition.
    pub partition: u32,
    /// The turn.
    pub turn: Turn,
    /// What went wrong, without the worker's name and without what its language adds.
    pub message: String,
    /// What the program's own language has for it, such as a pickled exception; empty when it has nothing.
    pub cause: Vec<u8>,
}

impl Origin {
    /// What another process should know of a failure, if it began in a program; `cause` is added.
    pub fn of(failure: &Failure, cause: Vec<u8>) -> Option<Origin> {
        let (kind, stage, partition, turn) = match failure {
            Failure::Kernel {
                stage,
                partition,
                turn,
                ..
            }
            | Failure::Panic {
                stage,
                partition,
                turn,
                ..
            } => (FailureKind::Kernel, stage, *partition, *turn),
            Failure::OutOfMemory {
                stage, partition, ..
            } => (FailureKind::OutOfMemory, stage, *partition, 0),
            Failure::Stalled {
                stage,
                partition,
                turn,
                ..
            } => (FailureKind::Stalled, stage, *partition, *turn),
            _ => return None,
        };
        Some(Origin {
            kind,
            stage: stage.clone(),
            partition,
            turn,
            message: failure.to_string(),
            cause,
        })
    }
}

/// Which of several failures is told: the smallest, so that it depends less on which of them came first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Rank {
    /// The user's wish, whatever else goes wrong meanwhile.
    Interrupted,
    /// While a shard was made.
    Load(GroupId, u32),
    /// In the program: its stage, turn and partition.
    At(StageId, Turn, u32),
    /// What another failure may have caused: that of a kernel which had seen that the job ends, or a fault of
    /// ours.
    After,
}

/// An error with what caused it.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

fn at(location: &Option<String>) -> String {
    location
        .as_ref()
        .map(|location| format!(" (at {location})"))
        .unwrap_or_default()
}

fn sending(exchange: &Option<String>) -> String {
    exchange
        .as_ref()
        .map(|exchange| format!(", sending pieces of exchange `{exchange}`,"))
        .unwrap_or_default()
}

fn unspilled(why: &Option<Box<SpillError>>) -> String {
    why.as_ref()
        .map(|why| format!("; {why}"))
        .unwrap_or_default()
}

/// What a stalled stage needs.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WaitsFor {
    /// Pieces of an exchange.
    Pieces(String),
    /// Room at the destinations of an exchange.
    Room(String),
    /// A signal.
    Signal(String),
    /// The end of a loop.
    LoopEnd,
    /// A completion that its kernel asked for.
    Completion,
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitsFor::Pieces(exchange) => write!(f, "pieces of exchange `{exchange}`"),
            WaitsFor::Room(exchange) => {
                write!(f, "room at the destinations of exchange `{exchange}`")
            }
            WaitsFor::Signal(signal) => write!(f, "signal `{signal}`"),
            WaitsFor::LoopEnd => f.write_str("the end of a loop"),
            WaitsFor::Completion => {
                f.write_str("a completion that its kernel asked for and nobody signalled")
            }
        }
    }
}
