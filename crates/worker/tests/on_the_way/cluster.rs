//! A handful of nodes in one process. Their frames are carried as a test says: all, some, or the last one first.

use crate::support::executor::SentPiece;
use crate::support::{self, JOB, NOW, Worker, one};
use brambling_exchange::CombiningOptions;
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, Plan, ShardId, Turn, Value};
use brambling_protocol::frame::{Ack, Body, Frame, Gone, Leaves, MapUpdate, Reserve, Route};
use brambling_protocol::{FrameSession, Priority, Version, WorkerId};
use brambling_worker::node::{NodeEffect, NodeOptions};
use brambling_worker::piece_data::{Encoded, PieceBytes};
use brambling_worker::waiting::Charges;
use brambling_worker::{Spares, Surroundings};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An exchange, and its turn.
pub type At = (ExchangeId, Turn);

/// A frame on its way between workers.
pub struct Sent {
    pub from: u32,
    pub to: u32,
    pub bytes: PieceBytes,
}

impl Sent {
    pub fn body(&self) -> Body<'_> {
        Frame::decode(&self.bytes).unwrap().0.body
    }
}

/// What a frame of pieces had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pieces {
    pub from: u32,
    pub to: u32,
    /// Of its pieces, in their order; a piece in chunks has as many.
    pub sources: Vec<TreeNode>,
    pub routes: Vec<Route>,
}

pub struct Cluster {
    pub plan: Plan,
    pub nodes: Vec<Worker>,
    /// What the controller says to each.
    controller: Vec<FrameSession>,
    /// Where shards are.
    pub homes: BTreeMap<ShardId, u32>,
    /// Frames that have not come yet.
    pub under_way: Vec<Sent>,
    /// Whether of those the last ones come first.
    pub is_backwards: bool,
    /// All frames of pieces that were sent.
    pub pieces: Vec<Pieces>,
    /// Groups that are complete, by worker, and whether they are merged when [`Cluster::carry`] is called.
    pub complete: Vec<(u32, At, TreeNode)>,
    pub is_merged_later: bool,
    /// Groups that were merged, by worker.
    pub merged: Vec<(u32, At, TreeNode)>,
    /// How those count that are being merged.
    charges: BTreeMap<(u32, At, TreeNode), Charges>,
    /// Shards that were woken.
    pub woken: Vec<ShardId>,
}

/// Groups of two merge what they have to send, however few there are.
pub fn in_pairs(options: &mut NodeOptions) {
    let (sources_min, bits) = (0, 1);
    options.combining = CombiningOptions { sources_min, bits };
}

impl Cluster {
    /// So many workers that hold nothing yet.
    pub fn new(plan: Plan, count: u32, change: impl Fn(&mut NodeOptions)) -> Cluster {
        let node = |me: u32| {
            let mut options = support::options(WorkerId(me), (0..count).map(WorkerId));
            options.open_turns = 2;
            change(&mut options);
            support::worker(&plan, options)
        };
        Cluster {
            nodes: (0..count).map(node).collect(),
            plan,
            controller: (0..count).map(|_| FrameSession::default()).collect(),
            homes: BTreeMap::new(),
            under_way: Vec::new(),
            is_backwards: false,
            pieces: Vec::new(),
            complete: Vec::new(),
            is_merged_later: false,
            merged: Vec::new(),
            charges: BTreeMap::new(),
            woken: Vec::new(),
        }
    }

    pub fn source(&self, exchange: ExchangeId, index: u32) -> ShardId {
        support::source(&self.plan, exchange, index)
    }

    pub fn destination(&self, exchange: ExchangeId, index: u32) -> ShardId {
        support::destination(&self.plan, exchange, index)
    }

    /// A shard begins at a worker, and all know.
    pub fn places(&mut self, shard: ShardId, home: u32) {
        self.nodes[home as usize].settle(shard, 1).unwrap();
        self.homes.insert(shard, home);
        for worker in 0..self.nodes.len() as u32 {
            self.hears(worker, shard, home, 1);
        }
    }

    /// Of an exchange its sources begin at these workers, and its destinations at those.
    pub fn places_all(&mut self, exchange: ExchangeId, sources: &[u32], destinations: &[u32]) {
        for (index, home) in (0..).zip(sources) {
            self.places(self.source(exchange, index), *home);
        }
        for (index, home) in (0..).zip(destinations) {
            self.places(self.destination(exchange, index), *home);
        }
    }

    /// So many of them, the first ones, have said something to each other: that a loop has ended.
    pub fn greet(&mut self, up: u32) {
        let shard = *self.homes.keys().next().expect("some shard");
        let up = up as usize;
        (self.nodes[..up].iter_mut()).for_each(|node| node.around(shard).announce(0));
        self.collect();
        self.under_way.retain(|sent| (sent.to as usize) < up);
        self.carry();
    }

    pub fn home(&mut self, shard: ShardId) -> &mut Worker {
        &mut self.nodes[self.homes[&shard] as usize]
    }

    /// A worker hears where a shard is.
    pub fn hears(&mut self, worker: u32, shard: ShardId, owner: u32, version: Version) {
        let update = one(shard, WorkerId(owner), version);
        self.nodes[worker as usize].on_update(&update).unwrap();
    }

    fn says(&mut self, to: u32, body: &Body<'_>) {
        let said = self.controller[to as usize].say(Priority::FIRST, body);
        let bytes = said.expect("few are under way").to_bytes();
        let node = &mut self.nodes[to as usize];
        node.on_frame(WorkerId::CONTROLLER, &bytes).unwrap();
    }

    /// The controller asks for room for a shard, which moves by this version.
    pub fn reserves(&mut self, shard: ShardId, to: u32, version: Version) {
        let reserve = Reserve {
            job: JOB,
            generation: NOW,
            shard,
            version,
            holder: WorkerId(self.homes[&shard]),
            bytes: 1 << 10,
        };
        self.says(to, &Body::Reserve(reserve));
    }

    /// The controller tells that a worker leaves.
    pub fn tells_leaves(&mut self, to: u32, worker: u32) {
        let worker = WorkerId(worker);
        self.says(to, &Body::Leaves(Leaves { worker }));
    }

    /// The controller tells that a worker has left.
    pub fn tells_gone(&mut self, to: u32, worker: u32) {
        let worker = WorkerId(worker);
        self.says(to, &Body::Gone(Gone { worker }));
    }

    /// The controller says where a shard is.
    pub fn tells_home(&mut self, to: u32, shard: ShardId, owner: u32, version: Version) {
        let entries = vec![one(shard, WorkerId(owner), version)];
        let job = JOB;
        self.says(
            to,
            &Body::MapUpdate(MapUpdate {
                job,
                generation: NOW,
                entries,
            }),
        );
    }

    /// There is room for a shard, and it leaves its worker, which has heard of it; nobody else has.
    pub fn departs(&mut self, shard: ShardId, to: u32, version: Version) {
        self.reserves(shard, to, version);
        self.hears(self.homes[&shard], shard, to, version);
        self.drained(shard);
    }

    /// No task of a shard runs any more.
    pub fn drained(&mut self, shard: ShardId) {
        let node = self.home(shard);
        assert!(!node.may_run(shard));
        node.depart(shard, &[]).unwrap();
    }

    /// The frames of all nodes are under way.
    pub fn collect(&mut self) {
        for at in 0..self.nodes.len() {
            self.nodes[at].flush();
            let woken = self.nodes[at].take_woken();
            self.woken.extend(woken);
            for effect in self.nodes[at].take_effects() {
                self.perform(at as u32, effect);
            }
        }
    }

    fn perform(&mut self, from: u32, effect: NodeEffect) {
        match effect {
            NodeEffect::Send { to, packet, .. } if to == WorkerId::CONTROLLER => {
                let bytes = packet.to_bytes();
                let session = &mut self.controller[from as usize];
                if let Some(sequence) = Frame::decode(&bytes).unwrap().0.sequence {
                    session.receive(sequence).unwrap();
                }
                let received = session.received();
                let ack = Frame {
                    priority: Priority::FIRST,
                    sequence: None,
                    body: Body::Ack(Ack { received }),
                };
                let node = &mut self.nodes[from as usize];
                node.on_frame(to, &ack.to_bytes()).unwrap();
            }
            NodeEffect::Send { to, packet, .. } => {
                let (to, bytes) = (to.0, packet.to_bytes());
                let sent = Sent { from, to, bytes };
                if let Body::Data(data) = sent.body() {
                    self.pieces.push(Pieces {
                        from,
                        to,
                        sources: data.pieces.iter().map(|piece| piece.source).collect(),
                        routes: data.routes.clone(),
                    });
                }
                self.under_way.push(sent);
            }
            NodeEffect::Combine { at, group } => self.complete.push((from, at, group)),
            NodeEffect::Settle { shard, .. } => {
                self.homes.insert(shard, from);
            }
            _ => {}
        }
    }

    /// Carries frames until none is under way, and merges what is complete, unless that is to wait.
    pub fn carry(&mut self) {
        self.carry_those(|_| true);
    }

    /// The same of those frames; others stay under way.
    pub fn carry_those(&mut self, comes: impl Fn(&Sent) -> bool) {
        loop {
            self.collect();
            let sent = std::mem::take(&mut self.under_way);
            let (mut come, stay): (Vec<Sent>, Vec<Sent>) = sent.into_iter().partition(&comes);
            self.under_way = stay;
            let is_over = come.is_empty() && (self.is_merged_later || self.complete.is_empty());
            if is_over {
                return;
            }
            if self.is_backwards {
                come.reverse();
            }
            for Sent { from, to, bytes } in come {
                let node = &mut self.nodes[to as usize];
                node.on_frame(WorkerId(from), &bytes).unwrap();
            }
            if !self.is_merged_later {
                self.merge_all();
            }
        }
    }

    /// Merges what is complete, as whoever runs the nodes does.
    pub fn merge_all(&mut self) {
        for (worker, at, group) in std::mem::take(&mut self.complete) {
            let piece = self.takes(worker, at, group);
            self.combined(worker, at, group, piece);
            self.merged.push((worker, at, group));
        }
    }

    /// Merges a group; its piece is handed in later.
    pub fn takes(&mut self, worker: u32, at: At, group: TreeNode) -> SentPiece {
        let program = &self.plan.program;
        let spares = Arc::new(Spares::new(program.piece_type(at.0)));
        let node = &mut self.nodes[worker as usize];
        let (taken, charges) = node.take_group(at, group).unwrap();
        self.charges.insert((worker, at, group), charges);
        let values = taken.into_iter().map(|it| it.into_value(&spares).unwrap());
        let mut values: Vec<Value> = values.collect();
        let merge = program.combiner(at.0).expect("only such pieces meet");
        let (first, others) = values.split_first_mut().expect("somebody sent something");
        merge(first, others);
        SentPiece::Encoded(Encoded::of(values.swap_remove(0), &spares, 1 << 10))
    }

    /// What a group makes together goes on.
    pub fn combined(&mut self, worker: u32, at: At, group: TreeNode, piece: SentPiece) {
        let node = &mut self.nodes[worker as usize];
        node.combined(at, group, piece).unwrap();
        self.charges.remove(&(worker, at, group));
    }

    /// Time goes by, until everybody has acknowledged what has come.
    pub fn tick(&mut self) {
        for _ in 0..2 {
            self.nodes.iter_mut().for_each(Worker::on_tick);
            self.carry();
        }
    }

    /// How many frames of pieces each has sent to whom.
    pub fn frames(&self) -> BTreeMap<(u32, u32), usize> {
        let mut frames = BTreeMap::new();
        for Pieces { from, to, .. } in &self.pieces {
            *frames.entry((*from, *to)).or_default() += 1;
        }
        frames
    }
}

/// A piece of these bytes.
pub fn piece(bytes: &PieceBytes) -> SentPiece {
    SentPiece::Encoded(Encoded::from(bytes.clone()))
}
