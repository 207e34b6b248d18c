//! What the machines of a node share: whose node it is, who sends to whom in the program, and the way out.
//!
//! # Rules
//! * A machine is passed it with each call and keeps nothing of it. What it says goes to sessions ([`Members`]), all else that is to be done is an
//!   effect; both come out in the order in which they were asked for.
//! * What is said here reaches whom this node knows. Whom only the map or a request names is met first (`Node::say`), so that it hears nothing before
//!   it was greeted.

use super::members::Members;
use super::{NodeEffect, NodeOptions, PieceBytes, Relations};
use brambling_protocol::frame::{Body, Frame, MapUpdate, News, Packet};
use brambling_protocol::{EntryRange, FrameSession, Generation, JobId, Priority, WorkerId};
use std::sync::Arc;

/// Whose node it is, of what, and the way to others.
pub(super) struct Post {
    pub(super) options: NodeOptions,
    pub(super) relations: Arc<Relations>,
    pub(super) members: Members,
    pub(super) effects: Vec<NodeEffect>,
    /// How the job has failed here.
    pub(super) failure: Option<String>,
}

impl Post {
    pub(super) fn me(&self) -> WorkerId {
        self.options.me
    }

    /// The job and its generation.
    pub(super) fn key(&self) -> (JobId, Generation) {
        (self.options.job, self.options.generation)
    }

    /// A frame that is sent again until it is acknowledged.
    pub(super) fn send(&mut self, to: WorkerId, body: &Body<'_>) {
        let priority = Priority::FIRST;
        self.say(to, priority, |peer| peer.say(priority, body));
    }

    /// The same, of what has payloads.
    pub(super) fn send_with(
        &mut self,
        to: WorkerId,
        priority: Priority,
        body: &Body<'_>,
        payloads: &[PieceBytes],
    ) {
        self.say(to, priority, |peer| peer.say_with(priority, body, payloads));
    }

    fn say(
        &mut self,
        to: WorkerId,
        priority: Priority,
        say: impl FnOnce(&mut FrameSession) -> Option<Packet>,
    ) {
        let packet = self.members.session(to).and_then(say);
        let effect = packet.map(|packet| NodeEffect::Send {
            to,
            priority,
            packet,
        });
        self.effects.extend(effect);
    }

    /// A frame that may be lost.
    pub(super) fn hint(&mut self, to: WorkerId, body: Body<'_>) {
        let priority = Priority::FIRST;
        let frame = Frame {
            priority,
            sequence: None,
            body,
        };
        self.effects.push(NodeEffect::Send {
            to,
            priority,
            packet: frame.to_bytes().into(),
        });
    }

    /// Says where shards are.
    pub(super) fn send_entry(&mut self, to: WorkerId, entry: EntryRange) {
        let (job, generation) = self.key();
        let entries = vec![entry];
        self.send(
            to,
            &Body::MapUpdate(MapUpdate {
                job,
                generation,
                entries,
            }),
        );
    }

    /// Tells all other workers, some of them through others.
    pub(super) fn spread(&mut self, news: &News) {
        let hearers = self.members.others().to_vec();
        for (to, body) in self.members.told(hearers, news) {
            match news.is_hint() {
                true => self.hint(to, body),
                false => self.send(to, &body),
            }
        }
    }
}
