//! Runs shards on threads: ready queues, slots and wake-ups, and nothing that the protocols need to know.
//!
//! A shard belongs to one thread at a time, its owner: its home, or a thief for one slice. Only the owner
//! runs it and keeps it in its ready queue. Whoever has something for a shard tells its owner: directly when that
//! is the same thread, else by mail, or by a mark that the owner looks at. A shard stalls by finding nothing to
//! run; whatever arrives later is published before the owner is told, so the next look finds it.

mod biased_lock;
mod board;
mod book;
mod doorbell;
mod failure;
mod held_shards;
mod inside;
mod job;
mod ledger;
mod meter;
mod open;
mod panics;
mod parker;
mod patience;
mod pool;
mod printed;
mod ready_queue;
mod remote;
mod sampling;
mod saving;
mod slice;
mod spilling;
mod spread;
mod stall;
mod steps;
mod sync;
mod tally;
mod thread;
mod thread_jobs;
mod times;
mod travel;
mod watch;
mod weights;
mod woken;

pub use biased_lock::BiasedLock;
pub use doorbell::Doorbell;
pub use failure::{Failure, FailureKind, Origin, WaitsFor};
pub use inside::InterpreterWait;
pub use job::{Job, JobOptions, STALL, WEIGHT_MAX, initial};
pub use ledger::{
    BookedMoment, JobLedger, LedgerError, PARTS, PartTimes, StageTotals, ThreadTimes, TimePart,
};
pub use meter::Reading;
pub use parker::{Parker, Parkers};
pub use pool::{Advance, CALLER_LOOKS, Caller, Interrupted, Pool, QuietCaller, Silent};
pub use printed::{Printed, PrintedWhat};
pub use remote::{Membership, Transport};
pub use saving::{Capture, CapturedValue, CutKeeper, CutQuestion, CutRequest, Restored};
pub use spilling::{JobSpill, SpilledBytes};
pub use tally::Tally;
pub use times::KernelTimes;
