//! Workers that tell nothing, and machines that do not answer.
//!
//! # Rules
//! * A worker that has told nothing for [`LEFT_OUT_AFTER`] gets no shards of jobs that begin. When all are so, jobs wait. When it tells something
//!   again it takes part again, in jobs that run as well.
//! * A worker that has told nothing for longer than the [setting](Registry::with_silence) says is [fenced](super::fences).
//! * Of two members of a job that cannot reach each other one is fenced at once. One that the controller has not heard for [`LEFT_OUT_AFTER`] either is cut off from
//!   everybody, so it is that one: the link to it would tell so later.
//! * Time is what [`Registry::on_tick`] and [`Registry::on_heartbeat`] are given: whoever runs the registry leaves out time in which it did not run
//!   itself, so that one that was stopped finds nobody silent.

use super::drains::Drain;
use super::{Apart, JobState, Order, Registry, Worker};
use brambling_protocol::WorkerId;
use brambling_protocol::message::{CutOff, DeathKind};
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

    /// A worker has had no way to another one for too long: one of the two is given up. If the controller has not heard of the other one either, it is that one; else
    /// the job says how many shards each of them has.
    pub(super) fn on_cut_off(&mut self, from: WorkerId, cut: &CutOff<'_>) {
        let pair = [from, cut.peer];
        let is_member = |job: &super::RegisteredJob| {
            job.state == JobState::Running
                && (pair.iter()).all(|it| job.members.contains(it) && self.workers.contains_key(it))
        };
        if from == cut.peer || !self.job_in(cut.key).is_some_and(is_member) {
            return;
        }
        let how = format!("for {} s: {}", cut.for_ms / 1_000, cut.why);
        let peer = &self.workers[&cut.peer];
        if peer.caller.is_none() || self.is_left_out(peer) {
            let who = self.named(from);
            let cause = format!("neither the controller nor {who} has reached it, {how}");
            return self.fence(cut.peer, DeathKind::FencedCutOff, cause);
        }
        let key = cut.key;
        let workers = pair;
        self.orders.push(Order::Part(Apart { key, workers, how }));
    }

    /// So many shards of the job each of the two holds: less is lost with the one that has fewer, and of two that have as many the one goes that came later.
    pub fn on_apart(&mut self, apart: &Apart, held: [u32; 2]) {
        let [from, peer] = apart.workers;
        let is_there = |it: &WorkerId| self.workers.contains_key(it);
        // The first of their complaints has parted them.
        if self.job_in(apart.key).is_none() || !apart.workers.iter().all(is_there) {
            return;
        }
        let goes_first = (held[0], std::cmp::Reverse(from)) < (held[1], std::cmp::Reverse(peer));
        let (goes, stays) = match goes_first {
            true => (from, peer),
            false => (peer, from),
        };
        let (stays, how) = (self.named(stays), &apart.how);
        let cause = format!(
            "it and {stays} cannot reach each other, {how}; it had no more shards than that one, so the controller has given it up"
        );
        self.fence(goes, DeathKind::FencedCutOff, cause);
    }

    /// A worker, for people.
    fn named(&self, id: WorkerId) -> String {
        let worker = &self.workers[&id];
        format!(
            "worker {id} ({}) at {}",
            worker.process(),
            worker.listens_at
        )
    }
}
