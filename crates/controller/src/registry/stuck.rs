//! Workers on which a kernel still runs though its job is over: it takes its share of their time, and nobody knows for how long.
//!
//! # Rules
//! * Such a worker gets no shards of jobs that begin, and none that are levelled. When all are so, jobs wait.
//! * When it says that the kernels have ended it takes part again, in jobs that run as well.

use super::Registry;
use super::drains::Drain;
use brambling_protocol::WorkerId;
use brambling_protocol::message::StuckKernel;
use std::collections::BTreeSet;

impl Registry {
    /// A worker tells which kernels of its ended jobs still run.
    pub(super) fn on_stuck(&mut self, id: WorkerId, stuck: Vec<StuckKernel>) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut worker.stuck, stuck);
        if !before.is_empty() && worker.stuck.is_empty() {
            if worker.drain == Drain::No {
                self.admit(id);
            }
            self.begin_next();
        }
    }

    /// Workers that are to get no shards for that.
    pub fn stuck(&self) -> BTreeSet<WorkerId> {
        let stuck = self.workers.iter().filter(|(_, it)| !it.stuck.is_empty());
        stuck.map(|(id, _)| *id).collect()
    }
}
