//! What of a sort only programs choose, to measure what it costs: the command has no flags for it.

use super::Sort;
use brambling_operators::sort::job::SortPlan;

/// How the input is divided among threads. (Krevat et al., §8: dynamic distribution of tasks against
/// stragglers.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitPlanning {
    /// Many small splits, each taken by whoever is free.
    #[default]
    Dynamic,
    /// As many splits as threads, each thread its own: who is slow is waited for.
    Static,
}

impl SplitPlanning {
    /// The number of splits for so many threads together, of a plan that is cut dynamically.
    pub(super) fn cut(self, plan: &mut SortPlan, threads: u32) {
        match self {
            SplitPlanning::Dynamic => {}
            SplitPlanning::Static => plan.split_statically(threads),
        }
    }
}

impl Sort {
    /// Whether records with equal keys stay as they came, as they do unless this says otherwise.
    /// Without that, the output has the same records in an order by their keys, but its bytes may
    /// depend on threads and memory.
    #[must_use]
    pub fn stable(mut self, is_stable: bool) -> Sort {
        self.is_unstable = !is_stable;
        self
    }

    /// How the input is divided among threads. The output does not depend on it.
    #[must_use]
    pub fn splits(mut self, planning: SplitPlanning) -> Sort {
        self.splits = planning;
        self
    }

    /// No more than about so many bytes of records on their way to their parts are in memory,
    /// whatever the budget has; the others are spilled to the directory for runs and read back. 0:
    /// all are, as in systems that always write what their first phase has made. For a sort in this
    /// process: one on a cluster is refused.
    #[must_use]
    pub fn exchange_memory(mut self, bytes: u64) -> Sort {
        self.exchange_bytes_max = Some(bytes);
        self
    }
}
