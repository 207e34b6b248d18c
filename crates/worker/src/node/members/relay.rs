//! What all are to hear, where there are many: it is handed on from worker to worker.
//!
//! # Rules
//! * Who has news names everybody who is to hear, and says it to a few of them (`fan_out`), each with a part of the others. Where there are no
//!   more than that, all hear from whom it comes from.
//! * Whoever is given a part takes the news, and does the same with its part; never with itself, nor with whom it has it from.
//! * Who has neither acknowledged nor said anything here, as a newcomer that is still building its program, is told directly and hands on nothing:
//!   others would wait for it.
//! * Nothing is kept for it: what is handed on has left when the frame that brought it has been taken, and is acknowledged only after that.
//!
//! # Why nothing is lost
//! *Signals* are hints, and stay so on their way: neither numbered nor sent again. A worker that is not known here, or that leaves, is left out.
//! Whoever misses an outcome asks, a few workers each tick, and others the next: so it does not matter which of them was lost with whom.
//!
//! *News of the map*, what destinations have retired, and ends of loops are numbered by the session of each hop. Whom this node does not know is told nevertheless, as any worker is that the map
//! names. Those from whom it has parted are left out: they are told nothing any more, and have nobody's shards. A worker that leaves
//! goes when all that it was sent has come and all that it said is acknowledged ([`leaving`](super::leaving)), so what it was
//! to hand on is with the next by then: whoever sent it there does not part from it before that is acknowledged.
//!
//! Even so nobody's progress depends on news of the map. Who loses a shard, and who gets it, hear from the controller itself; all others find the way
//! by versions. What a relay that hangs keeps from others costs a detour.

use super::Members;
use brambling_memory::mutants;
use brambling_protocol::WorkerId;
use brambling_protocol::frame::{Body, News, Relay};

impl Members {
    /// What is said to whom so that all of these hear it, some of them through others.
    pub(crate) fn told(
        &self,
        hearers: Vec<WorkerId>,
        news: &News,
    ) -> Vec<(WorkerId, Body<'static>)> {
        let (relays, others) = self.split(hearers);
        let others = others.into_iter().map(|to| (to, news.body()));
        news.relayed(&relays, self.fan_out).chain(others).collect()
    }

    /// Those of some workers who hand something on, and those who are told directly.
    pub(crate) fn split(
        &self,
        hearers: impl IntoIterator<Item = WorkerId>,
    ) -> (Vec<WorkerId>, Vec<WorkerId>) {
        let is_up = |it: &WorkerId| self.peers.get(it).is_some_and(|it| it.session.is_up());
        let anybody = mutants::is_on("anybody-hands-on");
        hearers.into_iter().partition(|it| anybody || is_up(it))
    }

    /// What is to be said to whom so that those hear something whom a peer has left to this node.
    pub(crate) fn handed_on(
        &self,
        from: WorkerId,
        relay: &Relay,
    ) -> Vec<(WorkerId, Body<'static>)> {
        let is_told = |worker: &WorkerId| match relay.news.is_hint() {
            true => self.know(*worker) && !self.leavers.leave(*worker),
            false => self.may_hear(*worker),
        };
        let others = relay.to.iter().filter(|it| *it != self.me && *it != from);
        self.told(others.filter(is_told).collect(), &relay.news)
    }
}
