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

use super::{Node, NodeOptions};
use brambling_memory::mutants;
use brambling_program::Position;
use brambling_protocol::frame::{Body, News, Relay, SignalQuery};
use brambling_protocol::{Priority, WorkerId};

impl Node {
    /// Tells these workers, some of them through others.
    pub(super) fn spread(&mut self, hearers: Vec<WorkerId>, news: &News) {
        let is_up = |it: &WorkerId| self.peers.get(it).is_some_and(|peer| peer.is_up());
        let anybody = mutants::is_on("anybody-hands-on");
        let (relays, others): (Vec<_>, Vec<_>) =
            hearers.into_iter().partition(|it| anybody || is_up(it));
        let fan_out = self.options.fan_out;
        let others = others.into_iter().map(|to| (to, news.body()));
        for (to, body) in news.relayed(&relays, fan_out).chain(others) {
            match news.is_hint() {
                true => self.hint(to, &body),
                false => self.send(to, Priority::FIRST, &body),
            }
        }
    }

    /// Tells those whom a peer has left to this node.
    pub(super) fn hand_on(&mut self, from: WorkerId, relay: &Relay) {
        let me = self.options.me;
        let is_told = |worker: &WorkerId| match relay.news.is_hint() {
            true => self.knows(*worker) && !self.leavers.leave(*worker),
            false => !self.leavers.have_left(*worker) && !self.leavers.are_parted_from(*worker),
        };
        let others = relay.to.iter().filter(|it| *it != me && *it != from);
        let hearers: Vec<WorkerId> = others.filter(is_told).collect();
        self.spread(hearers, &relay.news);
    }

    /// Asks for outcomes that shards here wait for: a few workers, and others the next time.
    pub(super) fn ask(&mut self, positions: &[Position]) {
        let peers = &self.options.peers;
        if positions.is_empty() || peers.is_empty() {
            return;
        }
        let count = self.options.fan_out.clamp(1, peers.len());
        let places = (self.asked..self.asked + count).map(|at| at % peers.len());
        let asked: Vec<WorkerId> = places.map(|at| peers[at]).collect();
        self.asked = (self.asked + count) % peers.len();
        let NodeOptions {
            job, generation, ..
        } = self.options;
        for &position in positions {
            for to in &asked {
                self.hint(
                    *to,
                    &Body::SignalQuery(SignalQuery {
                        job,
                        generation,
                        position,
                    }),
                );
            }
        }
    }
}
