//! A node with the desk beside it: what it asks for is carried out at once.

use super::executor::{Merging, SentPiece, SimulatedExecutor, SimulatedView};
use brambling_memory::held::Held;
use brambling_program::tree::TreeNode;
use brambling_program::{Position, ShardId};
use brambling_protocol::frame::Incoming;
use brambling_protocol::{EntryRange, Sequence, Version, WorkerId};
use brambling_worker::arrivals::TurnPieces;
use brambling_worker::node::{Node, NodeEffect, NodeError};
use brambling_worker::waiting::ExchangeTurn;

pub struct Worker {
    executor: SimulatedExecutor,
    /// What concerns the world, or shards themselves.
    effects: Vec<NodeEffect>,
}

impl Worker {
    /// Of a node that has as many turns open.
    pub fn new(node: Node, open_turns: u64) -> Worker {
        let (executor, effects) = (SimulatedExecutor::new(node, open_turns), Vec::new());
        Worker { executor, effects }
    }

    /// The node itself: what it asks for then waits for the next call of something else.
    pub fn node(&self) -> Held<'_, Node> {
        self.executor.node()
    }

    /// What has to be done since the last call, by the world or by whoever has shards.
    pub fn take_effects(&mut self) -> Vec<NodeEffect> {
        self.carry_out().unwrap();
        std::mem::take(&mut self.effects)
    }

    /// Does what the node asks for. Gives the first error, as the node does in which others stand behind it.
    pub fn carry_out(&mut self) -> Result<(), NodeError> {
        let mut done = Ok(());
        loop {
            let effects = self.executor.node().take_effects();
            if effects.is_empty() {
                return done;
            }
            for effect in effects {
                match self.executor.perform(effect) {
                    Ok(left) => self.effects.extend(left),
                    Err(error) => done = done.and(Err(error)),
                }
            }
        }
    }

    fn after<T>(&mut self, asked: Result<T, NodeError>) -> Result<T, NodeError> {
        let carried_out = self.carry_out();
        let answer = asked?;
        carried_out.map(|()| answer)
    }

    fn ask(
        &mut self,
        ask: impl FnOnce(&mut Node) -> Result<(), NodeError>,
    ) -> Result<(), NodeError> {
        let asked = ask(&mut self.executor.node());
        self.after(asked)
    }

    fn tell(&mut self, tell: impl FnOnce(&mut Node)) {
        tell(&mut self.executor.node());
        self.carry_out().unwrap();
    }

    // ---- shards

    pub fn settle(&mut self, shard: ShardId, version: Version) -> Result<(), NodeError> {
        let settled = self.executor.settle(shard, version);
        self.after(settled)
    }

    pub fn around(&mut self, shard: ShardId) -> SimulatedView<'_> {
        self.executor.around(shard)
    }

    /// Shards that something has come for since the last call.
    pub fn take_woken(&mut self) -> Vec<ShardId> {
        self.executor.take_woken()
    }

    pub fn scattered(
        &mut self,
        shard: ShardId,
        at: ExchangeTurn,
        pieces: impl IntoIterator<Item = (u32, SentPiece)>,
    ) -> Result<(), NodeError> {
        let scattered = self.executor.scattered(shard, at, pieces);
        self.after(scattered)
    }

    pub fn take(&mut self, shard: ShardId, at: ExchangeTurn) -> Result<TurnPieces, NodeError> {
        self.executor.take(shard, at)
    }

    pub fn gathered(&mut self, shard: ShardId, at: ExchangeTurn) -> Result<(), NodeError> {
        let gathered = self.executor.gathered(shard, at);
        self.after(gathered)
    }

    pub fn take_group(&mut self, at: ExchangeTurn, group: TreeNode) -> Result<Merging, NodeError> {
        self.executor.take_group(at, group)
    }

    pub fn combined(
        &mut self,
        at: ExchangeTurn,
        group: TreeNode,
        piece: SentPiece,
    ) -> Result<(), NodeError> {
        let combined = self.executor.combined(at, group, piece);
        self.after(combined)
    }

    pub fn depart(&mut self, shard: ShardId, body: &[u8]) -> Result<(), NodeError> {
        let departed = self.executor.depart(shard, body);
        self.after(departed)
    }

    pub fn decided(&mut self, at: Position, outcome: bool) -> Result<(), NodeError> {
        self.ask(|node| node.decided(at, outcome, None))
    }

    pub fn finished(&mut self, shard: ShardId) {
        self.tell(|node| node.finished(shard));
    }

    pub fn failed(&mut self, failure: &str) {
        self.tell(|node| node.failed(failure));
    }

    // ---- the world

    pub fn on_frame<'a>(
        &mut self,
        from: WorkerId,
        incoming: impl Into<Incoming<'a>>,
    ) -> Result<(), NodeError> {
        self.ask(|node| node.on_frame(from, incoming))
    }

    pub fn on_update(&mut self, update: &EntryRange) -> Result<(), NodeError> {
        self.ask(|node| node.on_update(update))
    }

    pub fn on_reconnect(&mut self, peer: WorkerId, received: Sequence) -> Result<(), NodeError> {
        self.ask(|node| node.on_reconnect(peer, received))
    }

    pub fn on_tick(&mut self) {
        let wanted = self.executor.wanted();
        self.tell(|node| node.on_tick(wanted));
    }

    pub fn flush(&mut self) {
        self.tell(Node::flush);
    }

    // ---- what it knows

    pub fn may_run(&self, shard: ShardId) -> bool {
        self.node().may_run(shard)
    }

    pub fn knows(&self, peer: WorkerId) -> bool {
        self.node().knows(peer)
    }

    pub fn held(&self) -> usize {
        self.node().held()
    }

    pub fn is_settled(&self) -> bool {
        self.node().is_settled()
    }

    pub fn has_left(&self) -> bool {
        self.node().has_left()
    }
}
