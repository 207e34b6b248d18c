//! Runs shards on threads: queues, slots and wake-ups, and nothing that the protocols need to know.

mod board;
mod failure;
mod job;
mod panics;
mod pool;
mod queue;
mod sleep;
mod slice;
mod stall;
mod sync;
mod tally;
mod word;

pub use failure::{Failure, WaitsFor};
pub use job::{Job, JobOptions};
pub use pool::{Caller, Interrupted, Pool, QuietCaller};
pub use queue::Queue;
pub use sleep::Bed;
pub use tally::Tally;
pub use word::Word;
