//! What a shard sees through its node; every "no" is noted, so that a wake-up follows.

use super::{Node, NodeOptions, body_of};
use crate::Surroundings;
use brambling_program::{ExchangeId, LoopId, Position, ShardId, StageId, Turn};
use brambling_protocol::frame::{LoopEnd, News};

/// What a shard sees of the world through its node.
pub struct Around<'a> {
    node: &'a mut Node,
    shard: ShardId,
}

impl<'a> Around<'a> {
    pub(super) fn new(node: &'a mut Node, shard: ShardId) -> Around<'a> {
        Around { node, shard }
    }
}

impl Surroundings for Around<'_> {
    fn is_complete(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        // Whoever completes the turn wakes the shard.
        let inbox = &self.node.inboxes[&self.shard];
        inbox.is_complete(exchange, turn, &self.node.relations)
    }

    fn has_room(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        let Node {
            relations,
            credits,
            waiting,
            ..
        } = &mut *self.node;
        let room = match relations.is_dense(exchange) {
            true => credits.has_room_everywhere(exchange, turn),
            false => relations
                .related(exchange, turn, self.shard.index)
                .all(|destination| credits.has_room(exchange, destination, turn)),
        };
        if !room {
            waiting.room.entry(exchange).or_default().insert(self.shard);
        }
        room
    }

    fn outcome(&mut self, signal: StageId, turn: Turn) -> Option<bool> {
        let position = Position {
            stage: signal,
            turn,
        };
        let outcome = self.node.outcomes.get(position);
        if outcome.is_none() {
            self.node
                .waiting
                .outcome
                .entry(position)
                .or_default()
                .insert(self.shard);
        }
        outcome
    }

    fn has_ended(&mut self, outermost: LoopId) -> bool {
        let ended = self.node.ended.contains(&outermost);
        if !ended {
            self.node
                .waiting
                .end
                .entry(outermost)
                .or_default()
                .insert(self.shard);
        }
        ended
    }

    fn announce(&mut self, outermost: LoopId) {
        if self.node.ended.contains(&outermost) {
            return;
        }
        self.node.end(outermost);
        let body = body_of(self.node.loops[outermost as usize]).expect("a loop");
        let NodeOptions {
            job, generation, ..
        } = self.node.options;
        let turns = self.node.turns(outermost);
        let end = News::LoopEnd(LoopEnd {
            job,
            generation,
            body,
            turns,
        });
        self.node.spread(self.node.options.peers.clone(), &end);
    }
}
