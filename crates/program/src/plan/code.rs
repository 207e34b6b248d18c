//! Flat code: what a shard walks, and what running each of its tasks needs.

use super::CutSite;
use crate::{Kernel, Runner, StageId, StageKind, StreamSpec};
use std::sync::Arc;

/// A set over a group's resources: its datasets and its ends of exchanges. Beyond 128 resources some share
/// a bit, which orders more than is needed and never less.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mask(pub u128);

impl Mask {
    pub(super) fn add(&mut self, resource: usize) {
        self.0 |= 1 << (resource % 128);
    }

    /// Whether two sets share a resource.
    #[inline]
    pub fn meets(self, other: Mask) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets together.
    #[inline]
    #[must_use]
    pub fn with(self, other: Mask) -> Mask {
        Mask(self.0 | other.0)
    }
}

/// What an instruction of flat code does to a shard's own data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Runs a stage.
    Stage(StageKind),
    /// Frees datasets after their last use.
    Free,
}

/// An instruction with everything that running it needs.
#[derive(Clone, Debug)]
pub struct Task {
    /// The stage; for a free, the last stage before it.
    pub stage: StageId,
    /// What it does.
    pub action: Action,
    /// Local number of the block whose turns name its positions.
    pub block: u32,
    /// Cells of the kernel's arguments.
    pub cells: Box<[u32]>,
    /// Cells that it writes.
    pub writes_cells: Box<[u32]>,
    /// Whether the kernel gets cells instead of payloads.
    pub wants_cells: bool,
    /// Who runs it.
    pub runner: Runner,
    /// Whether something after it may go ahead while it is stalled: found when the code is compiled.
    pub look_past: bool,
    /// Whether it may change how much memory its group's datasets take.
    pub may_grow: bool,
    /// Its kernel; a free has none.
    pub kernel: Option<Linked>,
    /// What a streaming stage reads and writes.
    pub stream: Option<Arc<StreamSpec>>,
    /// What it reads.
    pub reads: Mask,
    /// What it writes.
    pub writes: Mask,
}

/// A kernel as a function of this process.
#[derive(Clone)]
pub struct Linked(pub Arc<dyn Kernel>);

impl std::fmt::Debug for Linked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("kernel")
    }
}

/// Flat code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Runs a task.
    Task {
        /// Its place in the group's tasks.
        index: u32,
        /// Local number of the block whose turns name its positions.
        block: u32,
    },
    /// Enters a block: its turn grows by one.
    Enter(u32),
    /// Starts a counted loop, or leaves for `exit` when it has no turns.
    Begin {
        /// Loop counter.
        counter: u32,
        /// How many turns.
        turns: u64,
        /// Where to go when there are none.
        exit: u32,
    },
    /// Ends a turn of a counted loop; unless it was the last, enters its block once more.
    Again {
        /// Loop counter.
        counter: u32,
        /// How many turns.
        turns: u64,
        /// Local number of the block that is its body.
        block: u32,
        /// Where the body starts, behind its entry.
        body: u32,
    },
    /// Waits for a signal and leaves for `exit` when it is false.
    Test {
        /// The signal.
        signal: StageId,
        /// Local number of the block whose turn names it.
        block: u32,
        /// Where to go.
        exit: u32,
    },
    /// Goes on elsewhere.
    Jump(u32),
    /// Tells everybody that an outermost loop has ended.
    Announce(LoopId),
    /// Waits until an outermost loop has ended.
    AwaitEnd(LoopId),
    /// The program has ended.
    Finish,
}

/// An outermost loop, by its place among them.
pub type LoopId = u32;

/// The code of one group.
#[derive(Clone, Debug, Default)]
pub struct Code {
    /// The instructions.
    pub ops: Vec<Op>,
    /// The tasks that they name.
    pub tasks: Vec<Task>,
    /// How many blocks it enters.
    pub blocks: u32,
    /// How many counted loops it has.
    pub counters: u32,
    /// Where its shards save in the outermost loops that they take part in.
    pub sites: Vec<(LoopId, CutSite)>,
}

impl Code {
    /// How many tasks a shard that walks this code retires; none where signals decide it.
    pub(super) fn task_count(&self) -> Option<u64> {
        let mut count = 0u64;
        // For each loop around the instruction at hand: how often it runs.
        let mut times = vec![1u64];
        for op in &self.ops {
            let now = *times.last()?;
            match *op {
                Op::Task { .. } => count = count.saturating_add(now),
                Op::Begin { turns, .. } => times.push(now.saturating_mul(turns)),
                Op::Again { .. } => {
                    times.pop();
                }
                // A signal decides how often what follows runs, and only the run shows that.
                Op::Test { .. } | Op::Jump(_) => return None,
                Op::Enter(_) | Op::Announce(_) | Op::AwaitEnd(_) | Op::Finish => {}
            }
        }
        Some(count)
    }
}
