//! Takes frames of other workers and of the controller: each goes to the machine that answers it,
//! news of the map to all that go by it. The executor's remote side calls it with each frame that a
//! link brings. It never acknowledges a frame before what that asks for is done.
//!
//! # Rules
//! * A frame that is numbered is taken once, and acknowledged when what it asks for has been done.
//! * What speaks of another job or generation is passed over, pieces apart: the router keeps those of a later one.
//! * Who sends something here by a version that is news knows that it names this worker: the map here learns it first.

use super::members::FRAMES_PER_ACK;
use super::{Node, NodeEffect, NodeError, one};
use crate::piece_data::PieceData;
use brambling_program::{Position, ShardId};
use brambling_protocol::frame::{Body, Data, Frame, Incoming, SourceCredit};
use brambling_protocol::{
    Entry, EntryRange, FrameSession, Generation, JobId, Received, Sequence, Version, WorkerId,
};

impl Node {
    /// A frame has come from a peer, or from the controller.
    pub fn on_frame<'a>(
        &mut self,
        from: WorkerId,
        incoming: impl Into<Incoming<'a>>,
    ) -> Result<(), NodeError> {
        let incoming = incoming.into();
        let frame = Frame::come(incoming)?;
        self.on_decoded(from, incoming, frame)
    }

    /// As [`Node::on_frame`], when it was decoded before.
    pub fn on_decoded(
        &mut self,
        from: WorkerId,
        incoming: Incoming<'_>,
        frame: Frame<'_>,
    ) -> Result<(), NodeError> {
        // A worker that has left only repeats what it had said before, and all of that was taken.
        if self.post.members.have_left(from) {
            return Ok(());
        }
        // A worker with a connection was let in by the cluster: one that is not known here is new.
        self.greet(from);
        // Asked before the body is looked at: a frame that was taken once must change nothing
        // again.
        if let Some(sequence) = frame.sequence
            && self.post.members.peer(from)?.receive(sequence)? == Received::Repeated
        {
            return Ok(());
        }
        self.on_body(from, frame.sequence, frame.body, incoming)?;
        // After the body: an acknowledged frame is not sent again, so it must have been taken.
        self.post.acknowledge(from, incoming.len(), FRAMES_PER_ACK);
        self.part();
        Ok(())
    }

    fn on_body(
        &mut self,
        from: WorkerId,
        sequence: Option<Sequence>,
        body: Body<'_>,
        incoming: Incoming<'_>,
    ) -> Result<(), NodeError> {
        if !is_ours(&body, self.post.key()) {
            return Ok(());
        }
        let post = &mut self.post;
        match body {
            Body::Data(data) => self.on_data(from, &data, incoming)?,
            Body::Signal(signal) => self.signals.on_signal(post, signal)?,
            Body::SignalQuery(query) => self.signals.on_query(post, from, query),
            Body::LoopEnd(end) => self.signals.on_loop_end(post, end)?,
            Body::Credit(credit) => self.pieces.on_credit(post, credit)?,
            Body::SourceCredit(credit) => self.on_source_credit(from, credit)?,
            Body::MapUpdate(update) => {
                let mut entries = update.entries.iter();
                entries.try_for_each(|entry| self.hear(entry))?;
            }
            Body::Joined(joined) => self.greet(joined.worker),
            Body::Leaves(leaves) => post.members.on_leaves(leaves, sequence),
            Body::Gone(gone) => post.on_gone(gone, sequence),
            Body::Relay(relay) => {
                // Taken before it is handed on: news that is refused here is not spread.
                self.on_body(from, sequence, relay.news.body(), incoming)?;
                self.hand_on(from, &relay);
            }
            Body::Reserve(reserve) => {
                self.pieces.entry(reserve.shard)?;
                let is_here = self.pieces.is_here(reserve.shard);
                if self.moves.on_reserve(post, &reserve, is_here)? {
                    self.pieces.expect(reserve.shard, reserve.holder);
                }
            }
            Body::ShardPart(part) => {
                let whole = self.moves.on_part(&part, incoming.keep(part.bytes))?;
                if let Some((metadata, body)) = whole {
                    self.arrive(part.shard, part.version, &metadata, body)?;
                }
            }
            Body::CutCall(call) => post.effects.push(NodeEffect::Cut(call.what)),
            Body::Ended(ended) => {
                let failure = ended.failure.map(str::to_owned);
                self.has_ended |= failure.is_none();
                self.is_void |= failure.is_some();
                post.effects.push(NodeEffect::End { failure });
            }
            Body::Ack(ack) => post.on_ack(from, ack)?,
            _ => {}
        }
        Ok(())
    }

    fn on_data(
        &mut self,
        from: WorkerId,
        data: &Data<'_>,
        incoming: Incoming<'_>,
    ) -> Result<(), NodeError> {
        let (group, generation) = (data.head.group, data.head.generation);
        for parcel in self.pieces.arrived(&mut self.post, data, incoming)? {
            // Versions belong to a generation: those of a newer one would overtake this one's.
            if generation == self.post.options.generation {
                for index in parcel.destinations.clone() {
                    self.learn_version(ShardId { group, index }, parcel.version)?;
                }
            }
            let parcel = parcel.map(PieceData::Bytes);
            self.pieces
                .receive(&mut self.post, from, generation, parcel)?;
        }
        Ok(())
    }

    fn on_source_credit(&mut self, from: WorkerId, it: SourceCredit) -> Result<(), NodeError> {
        let exchange = it.credit.exchange;
        self.post.relations.expect(exchange, it.credit.group)?;
        if let Some(source) = self.post.relations.only_source(exchange) {
            self.learn_version(source, it.version)?;
        }
        let further = self.pieces.on_source_credit(&mut self.post, from, it)?;
        if let Some((source, credit)) = further {
            self.say_credit(source, credit);
        }
        Ok(())
    }

    /// Somebody sends here what is for a shard, by this version: who does knows that it names this worker.
    fn learn_version(&mut self, shard: ShardId, version: Version) -> Result<(), NodeError> {
        if self.pieces.is_news(shard, version)? {
            let owner = self.me();
            self.hear(&one(shard, Entry { owner, version }))?;
        }
        Ok(())
    }

    /// News for the map.
    pub fn on_update(&mut self, update: &EntryRange) -> Result<(), NodeError> {
        self.pieces.on_update(&mut self.post, update)?;
        for (source, credit) in self.pieces.take_noted(&self.post, update) {
            self.say_credit(source, credit);
        }
        // After the map has changed: shards here that it now names elsewhere have to leave.
        let elsewhere = self.pieces.given_away(self.me(), update);
        self.moves.flag(&mut self.post, elsewhere);
        let calls = self.moves.calls(self.post.me(), self.pieces.map(), update);
        for (holder, entry) in calls {
            self.hear_of(holder);
            self.post.send_entry(holder, entry);
        }
        Ok(())
    }

    /// What this side says when it greets a peer: the first frame of theirs that is missing.
    pub fn received(&self, peer: WorkerId) -> Sequence {
        self.post.members.received(peer)
    }

    /// A new connection, on which the peer says that it has every frame before `received`. Whoever has one was let in: a
    /// newcomer may call before the controller has named it, and is greeted.
    pub fn on_reconnect(&mut self, peer: WorkerId, received: Sequence) -> Result<(), NodeError> {
        let members = &self.post.members;
        if members.have_left(peer) {
            return Ok(());
        }
        if !members.know(peer) && peer != self.me() {
            // This node has said nothing to the worker, so a fresh session stands for it.
            let _ = FrameSession::default().on_reconnect(received)?;
            self.greet(peer);
            return Ok(());
        }
        self.post.on_reconnect(peer, received)?;
        self.part();
        Ok(())
    }

    /// Now and then: asks for outcomes that shards here wait for, and acknowledges what has come.
    pub fn on_tick(&mut self, wanted: impl IntoIterator<Item = Position>) {
        self.part();
        self.post.acknowledge_all();
        self.signals.ask(&mut self.post, wanted);
    }
}

/// Whether a frame speaks of this job, and of its generation: each has links and nodes of its own.
fn is_ours(body: &Body<'_>, (job, generation): (JobId, Generation)) -> bool {
    let theirs = match body {
        Body::Data(it) => return it.head.job == job,
        Body::Relay(it) => return it.news.is_of(job, generation),
        Body::Signal(it) => (it.job, it.generation),
        Body::SignalQuery(it) => (it.job, it.generation),
        Body::LoopEnd(it) => (it.job, it.generation),
        Body::Credit(it) => (it.job, it.generation),
        Body::SourceCredit(it) => (it.credit.job, it.credit.generation),
        Body::MapUpdate(it) => (it.job, it.generation),
        Body::Reserve(it) => (it.job, it.generation),
        Body::ShardPart(it) => (it.job, it.generation),
        Body::Ended(it) => (it.job, it.generation),
        Body::CutCall(it) => (it.job, it.generation),
        _ => return true,
    };
    theirs == (job, generation)
}
