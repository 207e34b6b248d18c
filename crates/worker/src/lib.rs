//! Shards, and the executor that runs them: a program and resident shards become running tasks.
//!
//! [`Shard`] is a pure state machine: it walks its group's code and says what to do next. [`executor`] holds
//! only queues, slots and wake-ups, and runs shards on threads.

#[cfg(not(loom))]
pub mod executor;
#[cfg(loom)]
#[path = "executor/loom_only.rs"]
pub mod executor;
mod shard;

pub use shard::{Issue, Next, Place, Shard, Surroundings, WINDOW};
