//! What a node asks of whoever runs it.

use super::Errand;
use crate::parts::Unpacking;
use crate::piece_data::PieceData;
use crate::waiting::{ExchangeTurn, WaitingPiece};
use brambling_exchange::{Item, Parcel};
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, LoopId, ShardId, StageId, Turn};
use brambling_protocol::frame::{CutAsk, Packet};
use brambling_protocol::{Priority, WorkerId};
use std::ops::Range;
use std::sync::Arc;

/// What whoever runs the node has to do.
#[derive(Debug)]
pub enum NodeEffect {
    /// Send a frame to a peer.
    Send {
        /// The peer.
        to: WorkerId,
        /// Its class.
        priority: Priority,
        /// The whole frame.
        packet: Packet,
    },
    /// Hand an item to shards that are here. To one that has left meanwhile it goes by [`Node::give_back`].
    Deliver(Parcel<PieceData>, Outside),
    /// The same, of what is merged at a shard that is here ([`Node::meet`]).
    Meet(Parcel<PieceData>, Outside),
    /// Something that was to be merged here goes on as it is ([`Node::pass`]).
    Pass {
        /// The exchange and its turn.
        at: ExchangeTurn,
        /// To which shard of those that merge; none: to the destination.
        to: Option<u32>,
        /// What.
        item: Item<WaitingPiece>,
        /// As above.
        outside: Outside,
    },
    /// All that a group of sources sends in a turn is here: merge it ([`Node::take_group`], [`Node::merged`]).
    Combine {
        /// The exchange and its turn.
        at: ExchangeTurn,
        /// The group.
        group: TreeNode,
    },
    /// Destinations have retired all turns of an exchange before this one.
    Room {
        /// The exchange.
        exchange: ExchangeId,
        /// The destinations.
        destinations: Range<u32>,
        /// The first turn that they have not retired.
        turns: Turn,
    },
    /// The outcome of a signal is known.
    Outcome {
        /// The signal.
        signal: StageId,
        /// At which turns.
        turns: Range<Turn>,
        /// What it is.
        outcome: bool,
    },
    /// The cut that is after a turn whose outcome comes next.
    CutNamed {
        /// The signal.
        signal: StageId,
        /// The turn.
        turn: Turn,
        /// The cut.
        cut: u64,
    },
    /// The controller asks the shards here about a cut.
    Cut(CutAsk),
    /// An outermost loop has ended.
    LoopEnd(LoopId),
    /// The shard moves: start no task of it; when none runs, call [`Node::leave`] and [`Node::depart`].
    Drain(ShardId),
    /// A shard has come, by what [`Node::depart`] was given elsewhere: run it.
    Settle {
        /// The shard.
        shard: ShardId,
        /// Where it stands, what has come for it, and its data.
        body: Unpacking,
    },
    /// Something that the node does not do, because files are read or written ([`Errand::run`]).
    Errand(Errand),
    /// A worker has left: no link to it is needed any more.
    Forget(WorkerId),
    /// The job is over: start no task of it any more.
    End {
        /// What went wrong on which worker, if anything did.
        failure: Option<String>,
    },
}

/// Kept for as long as something of the node's is outside of it: the worker does not leave before that.
#[derive(Clone, Debug, Default)]
pub struct Outside(Arc<()>);

impl Outside {
    pub(super) fn is_any(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
