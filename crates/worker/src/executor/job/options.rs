//! Owns how a job is run: what whoever starts it may choose.

use crate::executor::saving::{CutKeeper, Restored};
use crate::executor::spilling::SpilledBytes;
use brambling_memory::{Budget, Spill};
use brambling_storage::FilePool;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a job is run.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// What its datasets and pieces may take.
    pub budget: Budget,
    /// After how long without any progress a job that waits for completions is ended.
    pub stall: Duration,
    /// For how many calls of kernels a thread has room to note how long they took; none: nothing is timed.
    pub timed_calls: Option<usize>,
    /// Its share of the threads while other jobs run on them: a job of weight 2 gets twice the time of one of weight 1. 1 to
    /// [`WEIGHT_MAX`]; [`Job::weigh`](super::Job::weigh) changes it.
    pub weight: u32,
    /// Who reads back what was spilled. None: the threads that gather it, which wait for that.
    pub files: Option<Arc<FilePool>>,
    /// Where chunks of streams go that find no room in a job of this process alone. A member of a cluster has what its node has.
    pub spill: Option<Arc<dyn Spill>>,
    /// No more than about so many bytes of chunks wait in memory where the others can be spilled. None: as the budget has room.
    pub exchange_bytes_max: Option<u64>,
    /// When whoever wants it asked for it: its ledger begins there. None: when it is made.
    pub asked: Option<Instant>,
    /// Where what it spills is counted.
    pub spilled: Arc<SpilledBytes>,
    /// Who hears what its shards say of cuts. None: they are not asked.
    pub cuts: Option<Arc<dyn CutKeeper>>,
    /// The cut at which it begins. None: its start.
    pub restored: Option<Arc<Restored>>,
}

/// How long a job may stand still and wait for a completion, unless it is [told](JobOptions::stall).
pub const STALL: Duration = Duration::from_secs(60);
/// The largest [weight](JobOptions::weight) of a job.
pub const WEIGHT_MAX: u32 = 1_000;

impl Default for JobOptions {
    fn default() -> JobOptions {
        JobOptions {
            budget: Budget::unlimited(),
            stall: STALL,
            timed_calls: None,
            weight: 1,
            files: None,
            spill: None,
            exchange_bytes_max: None,
            asked: None,
            spilled: Arc::default(),
            cuts: None,
            restored: None,
        }
    }
}
