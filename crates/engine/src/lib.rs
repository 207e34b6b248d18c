//! Brambling: an in-memory data-parallel engine for iterative analytics whose workers schedule their own
//! tasks.
//!
//! A driver program is built once by ordinary code, then run by shards that find out for themselves what to
//! do next. See [`Program`](program::Program) for how it is built and [`RunOptions`] for how it is run.
//!
//! ```
//! use brambling::prelude::*;
//!
//! // Newton's method for √2, on four partitions that each start elsewhere.
//! let mut p = Program::new("square root");
//! let guess = p.load("guess", 4, Partitioner::Opaque, |index, _| 1.0 + f64::from(index));
//! p.keep(&guess);
//! p.repeat(20, |p| {
//!     p.compute("improve").update(&guess).run(|x: &mut f64| *x = (*x + 2.0 / *x) / 2.0);
//! });
//! let mut outcome = brambling::run(p)?;
//! assert!(outcome.take_all(&guess).iter().all(|x| (x * x - 2.0).abs() < 1e-12));
//! # Ok::<(), brambling::Error>(())
//! ```

pub mod cluster;
/// Coflows: policies that decide which goes first, and a simulator that compares them.
pub use brambling_exchange::coflow;
mod error;
pub mod graph;
pub mod grep;
mod interrupt;
mod ledger;
pub mod map_reduce;
pub mod ml;
mod outcome;
mod restore;
mod run;
mod settings;
pub mod sort;
mod stopwatch;
mod store;
mod task_times;

/// Which locks a thread holds that tasks may want: whoever has an interpreter for host asks.
#[doc(hidden)]
pub use brambling_memory::held;
#[doc(hidden)]
pub use brambling_worker::executor::InterpreterWait;

pub use brambling_controller::snapshots::SnapshotEvery;
pub use brambling_machine as machine;
pub use brambling_operators as operators;
pub use brambling_program as program;
pub use brambling_program::payload;
pub use brambling_storage::{StoreError, StoreLocation, StoreTrouble};
pub use brambling_worker::executor::{
    Advance, Caller, Failure, FailureKind, Interrupted, Origin, Printed, PrintedWhat, QuietCaller,
    Silent, Tally, WaitsFor,
};
pub use error::Error;
pub use ledger::{Ledgers, record_ledgers, recorded_ledgers};
pub use outcome::Outcome;
pub use restore::{
    ChosenSnapshot, ListedSnapshot, RestoreError, SnapshotStore, end_restore, give_restored,
    set_restore,
};
pub use run::{RunOptions, run};
pub use settings::{
    ENVIRONMENT, FILE_NAME, InUse, Log, Resolved, SETTINGS, Setting, SettingSource, Settings,
    SettingsError, SpillTo,
};
pub use store::{clear_stored, is_commanded, set_command, set_fresh, set_store};
pub use task_times::{StageTimes, TaskTimes, Timed};

/// What most programs need.
pub mod prelude {
    pub use crate::{Outcome, RunOptions};
    pub use brambling_program::{
        Blocked, Blocks, Combine, Context, Dataset, Inbox, Max, Min, Outbox, Partitioner, Payload,
        Program, Progress, Relation, Rows, Streams, Sum, links,
    };
}

/// The Rust of the pages, run as this crate's own examples are.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/start.md")]
    struct Start;
    #[doc = include_str!("../../../docs/coming-from.md")]
    struct ComingFrom;
    #[doc = include_str!("../../../docs/algorithms.md")]
    struct Algorithms;
    #[doc = include_str!("../../../docs/grep.md")]
    struct Grep;
    #[doc = include_str!("../../../docs/cluster.md")]
    struct Cluster;
    #[doc = include_str!("../../../docs/sort.md")]
    struct Sort;
}
