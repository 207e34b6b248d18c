//! Workers that tell nothing, and machines that do not answer.
//!
//! # Rules
//! * A worker that has told nothing for [`LEFT_OUT_AFTER`] gets no shards of jobs that begin. When all are so, jobs wait. When it tells something
//!   again it takes part again, in jobs that run as well.
//! * Time is what [`Registry::on_tick`] and [`Registry::on_heartbeat`] are given: whoever runs the registry leaves out time in which it did not run
//!   itself, so that one that was stopped finds nobody silent.

use super::drains::Drain;
use super::{JobState, Registry, Worker};
use brambling_protocol::WorkerId;
use brambling_protocol::message::CutOff;
use brambling_protocol::patience::LEFT_OUT_AFTER;
use std::time::Duration;

impl Registry {
    /// How long a worker has told nothing.
    pub(super) fn silent_for(&self, worker: &Worker) -> Duration {
        self.now.saturating_sub(worker.heard_at)
    }

    /// Whether jobs begin without it.
    pub(super) fn is_left_out(&self, worker: &Worker) -> bool {
        self.silent_for(worker) >= LEFT_OUT_AFTER
    }

    /// A worker has told something.
    pub(super) fn note_heard(&mut self, id: WorkerId, now: Duration) {
        // Callers say what time it is, and time never goes back here.
        self.now = self.now.max(now);
        let now = self.now;
        let Some(worker) = self.workers.get(&id) else {
            return;
        };
        // Asked before the worker is noted as heard: afterwards it would not be silent.
        let was_left_out = self.is_left_out(worker);
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.heard_at = now;
        }
        if was_left_out {
            let worker = &self.workers[&id];
            if worker.drain == Drain::No && worker.stuck.is_empty() {
                self.admit(id);
            }
            self.begin_next();
        }
    }

    /// A worker has had no way to another one for too long: a job that needs both ends.
    pub(super) fn on_cut_off(&mut self, from: WorkerId, cut: &CutOff<'_>) {
        let is_member = |job: &super::RegisteredJob| {
            job.state == JobState::Running
                && [from, cut.peer].iter().all(|it| job.members.contains(it))
        };
        let Some(job) = self.job_in(cut.key).filter(|job| is_member(job)) else {
            return;
        };
        let named = |id: WorkerId| match self.workers.get(&id) {
            Some(worker) => format!("worker {id} ({})", worker.process()),
            None => format!("worker {id}"),
        };
        let at = self.workers.get(&cut.peer);
        let at = at.map_or_else(String::new, |it| format!(" at {}", it.listens_at));
        let why = format!(
            "{} cannot reach {}{at} for {} s: {}; look at the network between the two, and run `{}` again",
            named(from),
            named(cut.peer),
            cut.for_ms / 1_000,
            cut.why,
            job.name,
        );
        self.cancel(cut.key.job, why);
    }
}
