//! Workers that leave while a job runs.
//!
//! # Rules
//! * Who hears that a worker leaves tells it no more of what all are told. Pieces still go there as long as the map here names it.
//! * When all that the controller said before has come, the map here does not name the worker: no newer version of anything does. When
//!   then all that was sent there has been acknowledged, this node has parted from it, says so, and sends it nothing more.
//! * The worker itself goes when it hears that all others have parted, when all that the controller said before has come, and all that it said
//!   itself has been acknowledged: so what it was to hand on has come.
//! * Who has left is forgotten; what comes late of it, as a repetition, is dropped.

use super::{Effect, Node};
use brambling_memory::mutants;
use brambling_protocol::frame::{Body, Gone, Leaves, Parted};
use brambling_protocol::{Priority, Sequence, WorkerId};
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
    pub(super) fn have_left(&self, worker: WorkerId) -> bool {
        self.gone.contains(&worker)
    }

    pub(super) fn leave(&self, worker: WorkerId) -> bool {
        self.others.contains_key(&worker)
    }

    pub(super) fn has_gone(&self) -> bool {
        self.has_gone
    }

    /// Whether nothing is said to it any more.
    pub(super) fn are_parted_from(&self, worker: WorkerId) -> bool {
        self.others.get(&worker).is_some_and(|it| it.is_told)
    }
}

impl Node {
    pub(super) fn on_leaves(&mut self, leaves: Leaves, at: Option<Sequence>) {
        let worker = leaves.worker;
        if worker == self.options.me || self.leavers.have_left(worker) {
            return;
        }
        self.options.peers.retain(|peer| *peer != worker);
        let (after, is_told) = (at.unwrap_or(0), false);
        let parting = Parting { after, is_told };
        self.leavers.others.insert(worker, parting);
    }

    pub(super) fn on_gone(&mut self, gone: Gone, at: Option<Sequence>) {
        let worker = gone.worker;
        if worker == self.options.me {
            self.leavers.may_go = Some(at.unwrap_or(0));
            return;
        }
        self.options.peers.retain(|peer| *peer != worker);
        self.peers.remove(&worker);
        self.leavers.others.remove(&worker);
        self.leavers.gone.insert(worker);
        self.effects.push(Effect::Forget(worker));
    }

    /// Says from whom this node has parted, and that it goes, when that is so.
    pub(super) fn part(&mut self) {
        if !self.leavers.others.is_empty() {
            let untold = self.leavers.others.iter().filter(|(_, it)| !it.is_told);
            let parted = untold.filter(|(worker, it)| self.has_parted(**worker, it.after));
            for worker in parted.map(|(worker, _)| *worker).collect::<Vec<_>>() {
                if let Some(parting) = self.leavers.others.get_mut(&worker) {
                    parting.is_told = true;
                }
                self.say_parted(worker);
            }
        }
        let after = self.leavers.may_go;
        if !self.leavers.has_gone && after.is_some_and(|after| self.may_go(after)) {
            self.leavers.has_gone = true;
            self.say_parted(self.options.me);
        }
    }

    fn say_parted(&mut self, worker: WorkerId) {
        let body = Body::Parted(Parted { worker });
        self.send(WorkerId::CONTROLLER, Priority::FIRST, &body);
    }

    fn has_parted(&self, worker: WorkerId, after: Sequence) -> bool {
        if mutants::is_on("nobody-waits-to-part") {
            return true;
        }
        let is_settled = |peer: WorkerId| self.peers.get(&peer).is_none_or(|it| it.is_settled());
        self.received(WorkerId::CONTROLLER) > after
            && is_settled(worker)
            && !self.outgoing.keys().any(|(to, ..)| *to == worker)
            && !self.map().entries().any(|it| it.entry.owner == worker)
    }

    /// Whether nothing that was said here is on its way, nor anything to here that is to be handed on.
    fn may_go(&self, after: Sequence) -> bool {
        let has_heard = self.received(WorkerId::CONTROLLER) > after;
        (has_heard || mutants::is_on("relays-go-before-they-hand-on"))
            && self.router.here().next().is_none()
            && !self.moving.is_any_leaving()
            && self.router.held() == 0
            && (self.meetings.is_empty() || mutants::is_on("nobody-waits-for-what-is-merged"))
            && self.outgoing.is_empty()
            && !self.outside.is_any()
            && self.due.is_empty()
            // What was noted for a source that was to come here goes where it is.
            && self.noted.is_empty()
            && self.finished.is_empty()
            && self.peers.values().all(|peer| peer.is_settled())
    }
}
