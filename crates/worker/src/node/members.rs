//! Who takes part: sessions with other workers and the controller, and who joins and leaves while a job runs.
//!
//! # States of a worker, as it is seen here
//! *Unknown* until it is named, calls or says something; then *known*: it has a session, and is told what all are told. *Leaving* from when the
//! controller says so; *parted from* when nothing is left to be said to it; *gone* when the controller says that, and forgotten
//! (`members/leaving.rs`).
//!
//! # Rules
//! * All that is no hint is numbered by the session of its peer, and sent again after a reconnection.
//! * A peer keeps what it was not told of: it is told what has come after so many frames or bytes, and at ticks.
//! * What all are to hear is handed on from worker to worker where there are many (`members/relay.rs`).
//!
//! # Why a newcomer misses nothing
//! What is said to all is said to those who are known. Whoever comes to know a worker greets it with all that it could
//! not hear: what the shards here have retired, and the loops that have ended. Outcomes of signals it asks for, as anybody
//! does. A shard that is on its way says what it has retired when it arrives. So whoever holds a shard has told everybody
//! whom it knows, and a worker to which a shard moves hears with it whom its last holder knew, and where shards are as
//! far as the holder knew: the controller that should tell it may have fallen silent.

mod leaving;
mod relay;

use super::{NodeEffect, NodeError, Post};
use brambling_protocol::frame::{Ack, Body, Packet};
use brambling_protocol::{FrameSession, Priority, Sequence, WorkerId};
use leaving::Leavers;
use std::collections::BTreeMap;

/// Frames after which a peer is told at once what has come.
pub(super) const FRAMES_PER_ACK: u64 = 32;
/// Bytes after which it is.
const BYTES_PER_ACK: usize = 1 << 20;

/// The workers of a job, as far as they are known here, and its controller.
pub(super) struct Members {
    me: WorkerId,
    fan_out: usize,
    peers: BTreeMap<WorkerId, Peer>,
    /// The workers among them who are told what all are told.
    others: Vec<WorkerId>,
    leavers: Leavers,
}

#[derive(Default)]
struct Peer {
    session: FrameSession,
    /// Bytes that have come from it since it was last told.
    come: usize,
}

impl Members {
    /// The controller and these others, of whom nothing was heard yet.
    pub(super) fn new(me: WorkerId, others: Vec<WorkerId>, fan_out: usize) -> Members {
        let peers = others.iter().chain([&WorkerId::CONTROLLER]);
        Members {
            me,
            fan_out,
            peers: peers.map(|peer| (*peer, Peer::default())).collect(),
            others,
            leavers: Leavers::default(),
        }
    }

    /// The other workers who are told what all are told.
    pub(super) fn others(&self) -> &[WorkerId] {
        &self.others
    }

    /// Whether a worker, or the controller, is known.
    pub(super) fn know(&self, peer: WorkerId) -> bool {
        self.peers.contains_key(&peer)
    }

    /// Whether all other workers have acknowledged all that was sent.
    pub(super) fn are_settled(&self) -> bool {
        let mut others = self.others.iter();
        others.all(|worker| self.peers[worker].session.is_settled())
    }

    /// Another controller has taken over: nothing was said to it, nor heard of it.
    pub(super) fn meet_controller(&mut self) {
        self.peers.insert(WorkerId::CONTROLLER, Peer::default());
    }

    /// There is a worker; whether it is to be greeted, because it was unknown, and does not leave already.
    pub(super) fn join(&mut self, worker: WorkerId) -> bool {
        if worker == self.me || self.know(worker) || self.have_left(worker) {
            return false;
        }
        self.peers.insert(worker, Peer::default());
        // The news that a worker leaves may come before the worker does: then it is known, and no
        // news is said to it.
        let stays = !self.leavers.leave(worker);
        if stays {
            self.others.push(worker);
        }
        stays
    }

    /// The session in which something is to be said to a worker. None: it hears nothing of this node, any more or yet.
    pub(super) fn session(&mut self, to: WorkerId) -> Option<&mut FrameSession> {
        // The controller was told that nothing is sent there any more.
        if self.leavers.are_parted_from(to) {
            return None;
        }
        self.peers.get_mut(&to).map(|peer| &mut peer.session)
    }

    /// The session in which something of a peer's has come.
    pub(super) fn peer(&mut self, from: WorkerId) -> Result<&mut FrameSession, NodeError> {
        let peer = self.peers.get_mut(&from);
        Ok(&mut peer.ok_or(NodeError::Stranger(from))?.session)
    }

    /// The first frame of a peer's that is missing.
    pub(super) fn received(&self, peer: WorkerId) -> Sequence {
        self.peers.get(&peer).map_or(0, |it| it.session.received())
    }
}

impl Post {
    /// So many bytes of a peer's were taken: it is told what has come once these are many, or when it is news of so many frames.
    pub(super) fn acknowledge(&mut self, from: WorkerId, bytes: usize, frames: u64) {
        let Some(peer) = self.members.peers.get_mut(&from) else {
            return;
        };
        peer.come += bytes;
        // By bytes, too: the sender keeps what is not acknowledged, and few large frames are much
        // of it.
        let is_much = peer.come >= BYTES_PER_ACK;
        let told = peer.session.ack_after(if is_much { 1 } else { frames });
        if let Some(received) = told {
            peer.come = 0;
            self.hint(from, Body::Ack(Ack { received }));
        }
    }

    /// Each peer is told what has come, if that is news.
    pub(super) fn acknowledge_all(&mut self) {
        for peer in self.members.peers.keys().copied().collect::<Vec<_>>() {
            self.acknowledge(peer, 0, 1);
        }
    }

    /// A peer has told what has come: what waited for that is sent.
    pub(super) fn on_ack(&mut self, from: WorkerId, ack: Ack) -> Result<(), NodeError> {
        let opened = self.members.peer(from)?.on_ack(ack.received)?;
        self.effects.extend(opened.map(sending(from)));
        Ok(())
    }

    /// A new connection, on which the peer says that it has every frame before `received`: the others are sent again.
    pub(super) fn on_reconnect(
        &mut self,
        from: WorkerId,
        received: Sequence,
    ) -> Result<(), NodeError> {
        let again = self.members.peer(from)?.on_reconnect(received)?;
        self.effects.extend(again.map(sending(from)));
        Ok(())
    }
}

/// Sends what a session has kept.
fn sending<'a>(to: WorkerId) -> impl Fn((Sequence, &'a (Priority, Packet))) -> NodeEffect {
    move |(_, (priority, packet))| NodeEffect::Send {
        to,
        priority: *priority,
        packet: packet.clone(),
    }
}
