//! Workers that leave while a job runs.
//!
//! # Rules
//! * Who hears that a worker leaves tells it no more of what all are told. Pieces still go there as long as the map here names it.
//! * When all that the controller said before has come, the map here does not name the worker: no newer version of anything does. When
//!   then all that was sent there has been acknowledged, this node has parted from it, says so, and sends it nothing more.
//! * The worker itself goes when it hears that all others have parted, when all that the controller said before has come, and all that it said
//!   itself has been acknowledged: so what it was to hand on has come.
//! * Who has left is forgotten; what comes late of it, as a repetition, is dropped.

use super::super::{NodeEffect, Post};
use super::Members;
use brambling_memory::mutants;
use brambling_protocol::frame::{Body, Gone, Leaves, Parted};
use brambling_protocol::{Sequence, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

/// Who leaves, and who has left.
#[derive(Default)]
pub(super) struct Leavers {
    others: BTreeMap<WorkerId, Parting>,
    /// If this worker leaves, and all others have parted from it: every frame of the controller's before this one has to come first.
    may_go: Option<Sequence>,
    has_gone: bool,
    gone: BTreeSet<WorkerId>,
}

struct Parting {
    /// Every frame of the controller's before this one has to come first.
    after: Sequence,
    is_told: bool,
}

impl Leavers {
    pub(super) fn leave(&self, worker: WorkerId) -> bool {
        self.others.contains_key(&worker)
    }

    /// Whether nothing is said to it any more.
    pub(super) fn are_parted_from(&self, worker: WorkerId) -> bool {
        self.others.get(&worker).is_some_and(|it| it.is_told)
    }
}

impl Members {
    /// Whether a worker has left: what comes of it is dropped.
    pub(crate) fn have_left(&self, worker: WorkerId) -> bool {
        self.leavers.gone.contains(&worker)
    }

    /// Whether somebody leaves, perhaps this worker.
    pub(crate) fn do_any_leave(&self) -> bool {
        !self.leavers.others.is_empty() || self.leavers.may_go.is_some()
    }

    /// Whether this worker itself has left.
    pub(crate) fn has_gone(&self) -> bool {
        self.leavers.has_gone
    }

    /// Whether a worker may be told something, known or not.
    pub(crate) fn may_hear(&self, worker: WorkerId) -> bool {
        !self.have_left(worker) && !self.leavers.are_parted_from(worker)
    }

    pub(crate) fn on_leaves(&mut self, leaves: Leaves, at: Option<Sequence>) {
        let worker = leaves.worker;
        if worker == self.me || self.have_left(worker) {
            return;
        }
        self.others.retain(|peer| *peer != worker);
        // The number of this frame: all that the controller said before it has to have come.
        let (after, is_told) = (at.unwrap_or(0), false);
        let parting = Parting { after, is_told };
        self.leavers.others.insert(worker, parting);
    }

    /// The controller says that a worker has gone; whether it is another one, which is forgotten.
    pub(crate) fn on_gone(&mut self, gone: Gone, at: Option<Sequence>) -> bool {
        let worker = gone.worker;
        if worker == self.me {
            self.leavers.may_go = Some(at.unwrap_or(0));
            return false;
        }
        self.others.retain(|peer| *peer != worker);
        self.peers.remove(&worker);
        self.leavers.others.remove(&worker);
        self.leavers.gone.insert(worker);
        true
    }

    /// From whom this node parts now: those who leave, to whom `is_done` says that nothing is to be sent.
    fn part(&mut self, is_done: impl Fn(WorkerId) -> bool) -> Vec<WorkerId> {
        if self.leavers.others.is_empty() {
            return Vec::new();
        }
        let untold = self.leavers.others.iter().filter(|(_, it)| !it.is_told);
        let parted = untold.filter(|(worker, it)| self.has_parted(**worker, it.after, &is_done));
        let parted: Vec<WorkerId> = parted.map(|(worker, _)| *worker).collect();
        for worker in &parted {
            if let Some(parting) = self.leavers.others.get_mut(worker) {
                parting.is_told = true;
            }
        }
        parted
    }

    fn has_parted(
        &self,
        worker: WorkerId,
        after: Sequence,
        is_done: impl Fn(WorkerId) -> bool,
    ) -> bool {
        if mutants::is_on("nobody-waits-to-part") {
            return true;
        }
        let peer = self.peers.get(&worker);
        // The controller told a map that no longer names the worker before `after`: without that
        // map an older version could still send there.
        self.received(WorkerId::CONTROLLER) > after
            && peer.is_none_or(|it| it.session.is_settled())
            && is_done(worker)
    }

    /// Whether this worker goes now: nothing that was said here is on its way, nor anything to here that is to be handed on, and `is_idle` says
    /// that nothing else is left.
    fn goes(&mut self, is_idle: impl FnOnce() -> bool) -> bool {
        let Some(after) = self.leavers.may_go.filter(|_| !self.leavers.has_gone) else {
            return false;
        };
        let has_heard = self.received(WorkerId::CONTROLLER) > after;
        self.leavers.has_gone = (has_heard || mutants::is_on("relays-go-before-they-hand-on"))
            && is_idle()
            // Frames that this worker forwarded last are only safe once they have been
            // acknowledged.
            && self.peers.values().all(|it| it.session.is_settled());
        self.leavers.has_gone
    }
}

impl Post {
    /// Says from whom this node has parted, and that it goes, when that is so.
    pub(crate) fn part(
        &mut self,
        is_done: impl Fn(WorkerId) -> bool,
        is_idle: impl FnOnce() -> bool,
    ) {
        for worker in self.members.part(is_done) {
            self.say_parted(worker);
        }
        if self.members.goes(is_idle) {
            self.say_parted(self.me());
        }
    }

    fn say_parted(&mut self, worker: WorkerId) {
        self.send(WorkerId::CONTROLLER, &Body::Parted(Parted { worker }));
    }

    /// A worker has gone, or this one may.
    pub(crate) fn on_gone(&mut self, gone: Gone, at: Option<Sequence>) {
        if self.members.on_gone(gone, at) {
            self.effects.push(NodeEffect::Forget(gone.worker));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_protocol::Priority;

    const ME: WorkerId = WorkerId(0);
    const LEAVES: WorkerId = WorkerId(1);
    const STAYS: WorkerId = WorkerId(2);

    fn members() -> Members {
        Members::new(ME, vec![LEAVES, STAYS], 8)
    }

    fn say(members: &mut Members, to: WorkerId) {
        let body = Body::Parted(Parted { worker: to });
        let session = members.session(to).expect("it may hear");
        let _ = session.say(Priority::FIRST, &body);
    }

    fn hear(members: &mut Members, from: WorkerId, sequence: Sequence) {
        let session = members.peer(from).unwrap();
        let _ = session.receive(sequence).unwrap();
    }

    fn acknowledge(members: &mut Members, from: WorkerId, received: Sequence) {
        let _ = members.peer(from).unwrap().on_ack(received).unwrap();
    }

    #[test]
    fn who_leaves_hears_ever_less() {
        let mut members = members();
        members.on_leaves(Leaves { worker: LEAVES }, Some(1));
        assert_eq!(members.others(), [STAYS]);
        say(&mut members, LEAVES);
        hear(&mut members, WorkerId::CONTROLLER, 1);
        assert_eq!(members.part(|_| true), [], "the controller's first frame");
        hear(&mut members, WorkerId::CONTROLLER, 0);
        assert_eq!(members.part(|_| true), [], "what was said to it");
        acknowledge(&mut members, LEAVES, 1);
        assert_eq!(members.part(|_| false), [], "what is still for it");
        assert_eq!(members.part(|_| true), [LEAVES]);
        assert_eq!(members.part(|_| true), [], "said once");
        assert!(members.know(LEAVES) && members.session(LEAVES).is_none());
        assert!(members.on_gone(Gone { worker: LEAVES }, Some(2)));
        assert!(!members.know(LEAVES) && !members.join(LEAVES));
    }

    #[test]
    fn this_worker_goes_when_all_that_it_said_has_come() {
        let mut members = members();
        assert!(!members.on_gone(Gone { worker: ME }, Some(0)));
        assert!(!members.goes(|| true), "the controller's first frame");
        hear(&mut members, WorkerId::CONTROLLER, 0);
        say(&mut members, STAYS);
        assert!(!members.goes(|| true), "what was said");
        acknowledge(&mut members, STAYS, 1);
        assert!(!members.goes(|| false), "what is left");
        assert!(members.goes(|| true) && members.has_gone());
        assert!(!members.goes(|| true), "said once");
    }
}
