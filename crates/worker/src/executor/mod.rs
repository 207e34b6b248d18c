//! Runs shards on threads: run queues, slots and wake-ups, and nothing that the protocols need to know.
//!
//! A shard belongs to one thread at a time, its owner: its home, or a thief for one slice. Only the owner
//! runs it and keeps it in its run queue. Whoever has something for a shard tells its owner: directly when that
//! is the same thread, else by mail, or by a mark that the owner looks at. A shard stalls by finding nothing to
//! run; whatever arrives later is published before the owner is told, so the next look finds it.

mod board;
mod failure;
mod job;
mod kept;
mod mail;
mod meter;
mod open;
mod panics;
mod patience;
mod pool;
mod printed;
mod ready;
mod seats;
mod sleep;
mod slice;
mod spread;
mod stall;
mod steps;
mod sync;
mod tally;
mod thread;
mod ties;
mod times;
mod travel;
mod watch;
mod weights;
mod woken;
mod zone;

pub use failure::{Failure, FailureKind, Origin, WaitsFor};
pub use job::{Job, JobOptions, WEIGHT_MAX, initial};
pub use mail::Mail;
pub use meter::Reading;
pub use pool::{Advance, Caller, Interrupted, Pool, QuietCaller, Silent};
pub use printed::{Printed, PrintedWhat};
pub use sleep::{Bed, Beds};
pub use tally::Tally;
pub use ties::{Carrier, Membership};
pub use times::KernelTimes;
pub use zone::Zone;
