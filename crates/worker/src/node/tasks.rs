//! Takes what whoever runs shards says of them and of their tasks, and passes it to the part of the
//! node that it concerns. The executor's remote side calls it (`executor/remote.rs`). It never runs
//! anything itself.

use super::{Node, NodeError};
use crate::piece_data::{Encoded, PieceData, items};
use crate::waiting::{ExchangeTurn, WaitingPiece};
use brambling_exchange::{Gathered, Item, Parcel};
use brambling_memory::mutants;
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, LoopId, Position, ShardId, StageId, Turn};
use brambling_protocol::frame::{Body, CutReply, CutWord, News, SignalOutcome};
use brambling_protocol::{Version, WorkerId};
use std::ops::Range;

impl Node {
    /// The job begins at a cut. So many turns of each exchange are over, these turns of signals were decided, and these loops have ended: all that whoever
    /// runs the node knows already. Members may have begun at different cuts, so what was decided is what everybody knows who knows it.
    ///
    /// # Errors
    /// When it is another program's.
    pub fn begin_at(
        &mut self,
        turns: &[Turn],
        decided: impl IntoIterator<Item = (StageId, Range<Turn>, bool)>,
        ended: impl IntoIterator<Item = LoopId>,
    ) -> Result<(), NodeError> {
        self.signals.begin_at(decided, ended);
        if mutants::is_on("nodes-begin-at-the-start") {
            return Ok(());
        }
        self.pieces.begin_at(&self.post, turns)
    }

    /// A shard starts here, by this version of its entry.
    pub fn settle(&mut self, shard: ShardId, version: Version) -> Result<(), NodeError> {
        self.pieces.take_in(&mut self.post, shard, version)
    }

    /// What a shard has sent to others that are not here, by ascending destination; to some nothing.
    pub fn scattered(
        &mut self,
        shard: ShardId,
        at: ExchangeTurn,
        pieces: impl IntoIterator<Item = (u32, Option<Encoded>)>,
    ) -> Result<(), NodeError> {
        self.pieces.scattered(&mut self.post, shard, at, pieces)
    }

    /// An item was for a shard that is not here any more.
    pub fn give_back(
        &mut self,
        shard: ShardId,
        at: ExchangeTurn,
        item: &Item<PieceData>,
    ) -> Result<(), NodeError> {
        let ShardId { group, index } = shard;
        let there = index..index + 1;
        self.pieces.route(&mut self.post, group, at, &there, item)
    }

    /// What had to be read back goes its way.
    ///
    /// # Errors
    /// When it cannot be routed.
    pub fn go_on(&mut self, parcel: &Parcel<PieceData>) -> Result<(), NodeError> {
        let (at, to) = ((parcel.exchange, parcel.turn), &parcel.destinations);
        self.pieces
            .route(&mut self.post, parcel.group, at, to, &parcel.item)
    }

    /// A shard here has retired all turns of an exchange before this one: sources elsewhere are told at the next flush. They may be K turns ahead of
    /// what they were told, so they need not be told of each.
    pub fn retired(
        &mut self,
        shard: ShardId,
        exchange: ExchangeId,
        turns: Turn,
    ) -> Result<(), NodeError> {
        self.pieces.retired(&mut self.post, shard, exchange, turns)
    }

    /// Sends what waits: at the end of a slice, or when nothing else is to be done.
    pub fn flush(&mut self) {
        while self.flush_pieces() {}
        self.flush_news();
    }

    /// Sends a frame of the pieces that wait, so that it may go before the next one is made; whether there may be more.
    pub fn flush_pieces(&mut self) -> bool {
        let to = self.pieces.next();
        if let Some(to) = to {
            self.hear_of(to);
            self.pieces.flush(&mut self.post);
        }
        to.is_some()
    }

    /// Sends what else waits.
    pub fn flush_news(&mut self) {
        self.signals.tell_finished(&mut self.post);
        for (source, credit) in self.pieces.take_due(&self.post) {
            match source {
                Some(source) => self.say_credit(source, credit),
                None => self.post.spread(&News::Credit(credit)),
            }
        }
    }

    // ---- what meets on its way

    /// An item has come to a relay that is here, or was when it came.
    pub fn meet(
        &mut self,
        relay: ShardId,
        at: ExchangeTurn,
        item: Item<WaitingPiece>,
    ) -> Result<(), NodeError> {
        self.pieces.meet(&mut self.post, relay, at, item)
    }

    /// The pieces of a complete group, by source, ascending.
    ///
    /// # Panics
    /// If nobody was told to merge them ([`Effect::Combine`](super::NodeEffect::Combine)).
    pub fn take_group(&mut self, at: ExchangeTurn, group: TreeNode) -> Vec<Gathered<WaitingPiece>> {
        self.pieces.take_group(at, group)
    }

    /// What merges at a shard has its turns told late: which is the lowest that it may still be about, as far as was told here.
    pub fn lowest_merged(&self, exchange: ExchangeId) -> Turn {
        self.pieces.lowest_merged(exchange)
    }

    /// What a group's pieces make together goes on ([`Node::send_on`], or [`Node::meet`] where it stays here).
    pub fn merged(&mut self, at: ExchangeTurn, group: TreeNode) {
        self.pieces.merged(at, group);
    }

    /// Sends what a node's sources have to a relay, or to the destination.
    pub fn send_on(
        &mut self,
        at: ExchangeTurn,
        to: Option<u32>,
        source: TreeNode,
        piece: Option<Encoded>,
    ) -> Result<(), NodeError> {
        let mut items = items(source, piece, self.chunk_bytes()).into_iter();
        items.try_for_each(|item| self.pass(at, to, &item))
    }

    /// Sends an item to a relay, or to the destination.
    pub fn pass(
        &mut self,
        at: ExchangeTurn,
        to: Option<u32>,
        item: &Item<PieceData>,
    ) -> Result<(), NodeError> {
        self.pieces.pass(&mut self.post, at, to, item)
    }

    // ---- what is decided once, and the end

    /// A signal has been given here, and with it the turn of a cut, perhaps.
    ///
    /// # Errors
    /// When a peer has said another outcome.
    pub fn decided(
        &mut self,
        position: Position,
        outcome: bool,
        cut: Option<u64>,
    ) -> Result<(), NodeError> {
        let (job, generation) = self.post.key();
        let signal = SignalOutcome {
            job,
            generation,
            position,
            outcome,
            cut,
        };
        self.signals.on_signal(&mut self.post, signal)?;
        self.post.spread(&News::Signal(signal));
        Ok(())
    }

    /// An outermost loop has ended for the shard that says so: everybody hears of it.
    pub fn announce(&mut self, outermost: LoopId) {
        self.signals.announce(&mut self.post, outermost);
    }

    /// The program has ended for a shard that is here; the controller hears of it at the next flush. Once for a shard,
    /// wherever it goes later.
    pub fn finished(&mut self, shard: ShardId) {
        self.signals.finished(shard);
    }

    /// The controller is told what shards here have done about a cut.
    pub fn tell_cut(&mut self, what: CutWord) {
        let (job, generation) = self.post.key();
        let reply = CutReply {
            job,
            generation,
            what,
        };
        self.post.send(WorkerId::CONTROLLER, &Body::CutReply(reply));
    }

    /// The job has failed here, as the text says.
    pub fn failed(&mut self, failure: &str) {
        self.post.fail(failure);
    }
}
