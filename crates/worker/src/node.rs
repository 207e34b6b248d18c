//! Owns everything of one job on one worker that its shards share, and all that comes from other
//! workers. The executor calls it behind a lock (`executor/remote.rs`), and the simulation without.
//! It never encodes, decodes or drops a value of a user's, and never touches a file.
//!
//! A pure state machine: frames, news and finished tasks go in, [`NodeEffect`]s come out. It routes, numbers and acknowledges, and keeps nothing that a
//! gather waits for: what comes for a shard that is here is handed over ([`NodeEffect::Deliver`]), and so is what shards wait for.
//!
//! # Parts
//! Four machines, each with its own states and rules: *pieces* on their way and what is retired of them (`node/pieces.rs`), *signals* and the ends of
//! loops (`node/signals.rs`), shards that *move* (`node/moves.rs`) and the *members* of the job with their sessions (`node/members.rs`). None sees
//! another's state: each is passed the way out (`node/post.rs`) and what it is asked about. Here is what concerns several of them: a frame that comes
//! goes to the machine that answers it, news of the map to all three that go by it, and a worker that is met is greeted with what they know.
//!
//! # Rules
//! * All that it handles are bytes. Nothing is encoded or decoded here, no value of a user's is dropped, no file read or written: the node is locked
//!   while it is asked. What was spilled and is needed here is left to whoever runs the node ([`Errand`]).
//! * Who is named by the map, or by a request, is a worker: it is greeted before anything else is said to it.
//! * Whatever a frame asks for has been done when it is acknowledged.

mod effect;
mod error;
mod frames;
mod members;
mod moves;
mod pieces;
mod post;
mod relations;
mod signals;
mod tasks;
mod terms;

pub use effect::{NodeEffect, Outside};
pub use error::NodeError;
pub use pieces::{Errand, merged_at};
pub use relations::Relations;
pub(crate) use relations::sources;
pub use terms::NodeHolding;

use crate::piece_data::PieceBytes;
use brambling_exchange::{CombiningOptions, CombiningTree};
use brambling_memory::{Budget, Spill, mutants};
use brambling_program::{ExchangeId, GroupId, Plan, ShardId};
use brambling_protocol::frame::{Body, Credit, Joined, Relay, SourceCredit};
use brambling_protocol::{Entry, EntryRange, Generation, JobId, PartitionMap, Version, WorkerId};
use members::Members;
use moves::Moves;
use pieces::PieceRouting;
use post::Post;
use signals::Signals;
use std::ops::Range;
use std::sync::Arc;

/// A frame about shards has no more entries than this: it stays small, however many shards there are.
const ENTRIES_MAX: usize = 1 << 12;

/// Whose node it is, and of what.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// This worker.
    pub me: WorkerId,
    /// The other workers of the job.
    pub peers: Vec<WorkerId>,
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// How many turns of an exchange are open per destination.
    pub open_turns: u64,
    /// Larger pieces are cut.
    pub chunk_bytes: usize,
    /// Pieces of one turn for one worker go in frames of no more than about so many bytes, unless one alone is larger.
    pub frame_bytes: usize,
    /// A shard that moves is cut into parts of so many bytes.
    pub part_bytes: usize,
    /// What all are to hear is said to so many workers at most, which hand it on:
    /// [`FAN_OUT`](brambling_protocol::frame::FAN_OUT) for example.
    pub fan_out: usize,
    /// When pieces are merged on their way; the same on all workers of the job.
    pub combining: CombiningOptions,
    /// What pieces count in that wait here.
    pub budget: Budget,
    /// Where they go that find no room in it.
    pub spill: Option<Arc<dyn Spill>>,
}

/// The state of one job on one worker, beside its shards.
pub struct Node {
    /// Whose it is, the program's relations and the members.
    post: Post,
    pieces: PieceRouting,
    signals: Signals,
    moves: Moves,
    /// News of the map by smaller versions are those of controllers that others have taken over from.
    floor: Version,
    /// The job has ended well.
    has_ended: bool,
    /// A controller has ended it otherwise.
    is_void: bool,
}

impl Node {
    /// The node of a worker that knows `map`, with no shard here yet.
    pub fn new(plan: &Plan, map: PartitionMap, mut options: NodeOptions) -> Node {
        let others = std::mem::take(&mut options.peers);
        let post = Post {
            relations: Arc::new(Relations::new(plan, options.combining)),
            members: Members::new(options.me, others, options.fan_out),
            effects: Vec::new(),
            failure: None,
            options,
        };
        Node {
            pieces: PieceRouting::new(&post, plan, map),
            signals: Signals::new(plan),
            moves: Moves::default(),
            floor: 0,
            has_ended: false,
            is_void: false,
            post,
        }
    }

    /// What has to be done since the last call.
    pub fn take_effects(&mut self) -> Vec<NodeEffect> {
        // Pieces to be spilled are asked for with the effects: whoever runs the node writes them
        // once the node's lock is free.
        let spills = self.pieces.spills(self.spill()).into_iter();
        self.post.effects.extend(spills.map(NodeEffect::Errand));
        std::mem::take(&mut self.post.effects)
    }

    /// Whose node it is.
    pub fn me(&self) -> WorkerId {
        self.post.me()
    }

    /// Who holds what, as far as known here.
    pub fn map(&self) -> &PartitionMap {
        self.pieces.map()
    }

    /// How many parcels are held here.
    pub fn held(&self) -> usize {
        self.pieces.held()
    }

    /// What its pieces count in.
    pub fn budget(&self) -> &Budget {
        &self.post.options.budget
    }

    /// Where pieces are spilled that find no room.
    pub fn spill(&self) -> Option<&Arc<dyn Spill>> {
        self.post.options.spill.as_ref()
    }

    /// How large pieces may be that are not cut.
    pub fn chunk_bytes(&self) -> usize {
        self.post.options.chunk_bytes
    }

    /// How large the parts of a shard are that moves.
    pub fn part_bytes(&self) -> usize {
        self.post.options.part_bytes
    }

    /// Who sends to whom in the program.
    pub fn relations(&self) -> &Arc<Relations> {
        &self.post.relations
    }

    /// Whether a shard is here.
    pub fn is_here(&self, shard: ShardId) -> bool {
        self.pieces.is_here(shard)
    }

    /// Whether a worker, or the controller, is known here.
    pub fn knows(&self, peer: WorkerId) -> bool {
        self.post.members.know(peer)
    }

    /// Whether the other workers have acknowledged all that was sent, and nothing waits for a flush.
    pub fn is_settled(&self) -> bool {
        self.pieces.are_sent() && self.signals.are_told() && self.post.members.are_settled()
    }

    /// Whether this worker has left the job: it hears nothing, and what it says is no news.
    pub fn has_left(&self) -> bool {
        self.post.members.has_gone()
    }

    /// Where pieces of an exchange are merged on their way, and the group whose shards do it.
    pub fn combining(&self, exchange: ExchangeId) -> Option<(CombiningTree, GroupId)> {
        self.post.relations.combining(exchange)
    }

    /// There is a worker: greets it, unless it is known.
    fn greet(&mut self, worker: WorkerId) {
        // Greeted once: a session would begin anew otherwise.
        if !self.post.members.join(worker) {
            return;
        }
        // `Joined` goes before all else: the worker has to know the sender of what follows.
        let joined = Body::Joined(Joined { worker: self.me() });
        let credits = self.pieces.retired_here(&self.post).into_iter();
        let ends = self.signals.ends(&self.post).into_iter();
        let all = credits.map(Body::Credit).chain(ends.map(Body::LoopEnd));
        for body in std::iter::once(joined).chain(all) {
            self.post.send(worker, &body);
        }
    }

    /// The map, or a request, names a worker, whether or not it was heard of.
    fn hear_of(&mut self, worker: WorkerId) {
        if !mutants::is_on("strangers-are-told-nothing") {
            self.greet(worker);
        }
    }

    fn say(&mut self, to: WorkerId, body: &Body<'_>) {
        self.hear_of(to);
        self.post.send(to, body);
    }

    fn say_credit(&mut self, source: Entry, credit: Credit) {
        let version = source.version;
        let body = Body::SourceCredit(SourceCredit { version, credit });
        self.say(source.owner, &body);
    }

    /// Tells those whom a peer has left to this node.
    fn hand_on(&mut self, from: WorkerId, relay: &Relay) {
        for (to, body) in self.post.members.handed_on(from, relay) {
            // A hint may be lost, so this node greets no worker just to hand one on.
            match relay.news.is_hint() {
                true => self.post.hint(to, body),
                false => self.say(to, &body),
            }
        }
    }

    /// Says from whom this node has parted, and that it goes, when that is so.
    fn part(&mut self) {
        let (pieces, signals, moves) = (&self.pieces, &self.signals, &self.moves);
        let is_idle = || pieces.are_gone() && signals.are_told() && !moves.is_any_leaving();
        let is_done = |worker| pieces.are_done_with(worker);
        self.post.part(is_done, is_idle);
    }
}

/// An entry of one shard.
fn one(shard: ShardId, entry: Entry) -> EntryRange {
    EntryRange {
        group: shard.group,
        first: shard.index,
        end: shard.index + 1,
        entry,
    }
}

/// The shards that an update is about.
fn shards(update: &EntryRange) -> Range<ShardId> {
    let group = update.group;
    let shard = |index| ShardId { group, index };
    shard(update.first)..shard(update.end)
}
