//! Programs on many processes: a [`ControllerProcess`], [`WorkerProcess`]es that register with it, and a [`Cluster`], by
//! which a client runs programs there.
//!
//! A program travels as bytes that mean something to who made them and to the workers' [`Source`]: both build the same program
//! of them. The controller places its shards and never sees the bytes; results are fetched from the workers that hold them.
//! `docs/cluster.md` tells how processes find each other and what happens when one of them is gone.

mod certificates;
mod children;
mod client;
mod controller;
mod environment;
mod error;
mod jobs;
mod leave;
mod looking_after;
mod metrics;
mod prints;
mod probing;
mod rendezvous;
mod snapshots;
mod wire;
mod worker;

pub use brambling_program::{GroupId, ShardId};
pub use brambling_protocol::greeting::Token;
pub use brambling_protocol::message::SnapshotEvery;
pub use brambling_protocol::message::{
    Client, ClusterEvent, Death, DeathKind, EventKind, JobDetails, JobState, JobStatus,
    PrintStream, SnapshotStatus, Status, StuckKernel, WorkerStatus,
};
pub use brambling_protocol::patience::{LEFT_OUT_AFTER, SILENCE, TOLD_AFTER};
pub use brambling_protocol::{Generation, JobId, JobKey, WorkerId};
pub use certificates::{CERTIFICATES_LAST, Certificates, TLS_VARIABLE};
pub use children::{Children, EndedChild, Share};
pub use client::Cluster;
pub use controller::{
    BALANCE_EACH, ControllerOptions, ControllerProcess, JOBS_AT_ONCE, ProcessEnd, Traffic,
    stand_by, token_of,
};
pub use environment::forget_variable;
pub use error::{ClusterError, PackagesDiffer};
pub use jobs::ourselves;
pub use leave::leave;
pub use metrics::{MetricsEndpoint, MetricsListener};
pub use probing::{PROBE_PORT, ProbeError, ProbeListener, probe_hosts};
pub use rendezvous::{
    CONTROLLER_VARIABLE, Published, Rendezvous, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE,
};
pub use snapshots::SnapshotOptions;
use std::time::Duration;
pub use wire::set_when_input_ends;
pub use worker::{CAUSE_BYTES_MAX, Prints, Source, WorkerEnd, WorkerOptions, WorkerProcess};

/// The port of a controller when nobody names one.
pub const DEFAULT_PORT: u16 = 7077;

/// The variable that holds the name of the log that a process writes to, of one that `brambling submit` has started.
pub const SUBMISSION_VARIABLE: &str = "BRAMBLING_SUBMISSION";

/// What processes compare when they meet.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long a client or a worker dials a controller before it gives up.
const CONTROLLER_TIME: Duration = Duration::from_secs(10);
/// How long a controller is looked for whose jobs outlive it. Shorter: whoever starts another one by hand is too late. Longer: processes wait that nobody
/// needs any more.
const LASTING_TIME: Duration = Duration::from_secs(600);
/// How long after its link was lost, or could not be made, a controller or a worker is dialed again.
const REDIAL: Duration = Duration::from_millis(100);
