//! Shards, and the executor that runs them: a program and resident shards become running tasks.
//!
//! [`Shard`] is a pure state machine: it walks its group's code and says what to do next. [`executor`] holds
//! only queues, slots and wake-ups, and runs shards on threads. [`node`] is the pure state machine beside the
//! shards of a worker: what comes from other workers, and what goes to them.

pub mod arrivals;
// Only the executor begins assemblies, and under loom its models have none.
#[cfg_attr(brambling_loom, allow(dead_code))]
mod assembly;
#[cfg(not(brambling_loom))]
pub mod executor;
#[cfg(brambling_loom)]
#[path = "executor/loom_only.rs"]
pub mod executor;
#[cfg_attr(brambling_loom, allow(dead_code))]
mod flow;
pub mod node;
pub mod parts;
pub mod piece_data;
mod pieces;
mod shard;
pub mod waiting;

pub use pieces::{PieceMap, PieceQueue, PiecesRefused, Sent, Spares};
pub use shard::{
    BadState, InOrder, Issue, IssueSlot, Next, Shard, ShardState, Surroundings, WINDOW,
};
