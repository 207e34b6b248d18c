//! What no honest peer sends, and room that is missing.

use crate::arrivals::ArrivalRefusal;
use crate::waiting::Unreturned;
use brambling_exchange::{InboxError, NoRoom, RouterError, UnknownDestination};
use brambling_memory::{OutOfMemory, SpillError};
use brambling_program::{BlockId, DecodeError, ExchangeId, GroupId, Position, ShardId};
use brambling_protocol::frame::FrameError;
use brambling_protocol::{SessionError, Version, WorkerId};
use brambling_storage::FileError;

/// Why a node cannot take what came.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The bytes are no frame.
    #[error("a frame that cannot be read")]
    Frame(#[from] FrameError),
    /// A numbered frame of somebody who is no peer.
    #[error("worker {0} is not among the peers")]
    Stranger(WorkerId),
    /// The peer breaks the session's rules.
    #[error("a peer's session is broken")]
    Session(#[from] SessionError),
    /// It can neither be delivered, forwarded nor held.
    #[error("a piece or news that cannot be routed")]
    Router(#[from] RouterError),
    /// The destination refuses it.
    #[error("a piece that its destination refuses")]
    Inbox(#[from] InboxError),
    /// A credit for something that the program does not have.
    #[error("a credit that fits no exchange")]
    Credit(#[from] UnknownDestination),
    /// Pieces or a credit of an exchange that the program does not have, or that leads to another group.
    #[error("exchange {exchange}, which does not lead to group {group}")]
    UnknownExchange {
        /// The exchange.
        exchange: ExchangeId,
        /// The group said to be its destination.
        group: GroupId,
    },
    /// A piece that is to be merged on its way is no encoding of its type.
    #[error("a piece of exchange {exchange} that cannot be read: {error}")]
    Piece {
        /// The exchange.
        exchange: ExchangeId,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// Something to merge that no honest worker sends to this shard, or sends twice.
    #[error(
        "exchange {exchange}: partition {relay} does not merge what partition {leaf} sends, or has it already"
    )]
    NoRelay {
        /// The exchange.
        exchange: ExchangeId,
        /// Who was to merge it.
        relay: u32,
        /// The first partition of which it came.
        leaf: u64,
    },
    /// A signal with two outcomes at one turn.
    #[error("two outcomes of the signal at {0}")]
    TwoOutcomes(Position),
    /// An outcome of a turn that no loop comes to.
    #[error("an outcome of the signal at {0}, to which no loop comes")]
    NoTurn(Position),
    /// The end of a loop that the program does not have.
    #[error("the end of a loop with body {0}, which is no outermost one")]
    UnknownLoop(BlockId),
    /// A part of a shard for which nobody asked this worker to make room.
    #[error("a part of shard {shard} at version {version}, for which no room was reserved here")]
    Unexpected {
        /// The shard.
        shard: ShardId,
        /// The version that its new place would have.
        version: Version,
    },
    /// Room is asked for a shard that is here.
    #[error("room for shard {0}, which is here")]
    AlreadyHere(ShardId),
    /// Parts that do not make a whole.
    #[error("the parts of shard {0} do not fit together")]
    Parts(ShardId),
    /// A state that cannot be read.
    #[error("the state of shard {0} cannot be read")]
    State(ShardId),
    /// Pieces that found no room in memory, and are needed.
    #[error("pieces that were spilled")]
    Spilled(#[from] SpillError),
    /// The same, which nobody has read.
    #[error("pieces that were spilled were not read back")]
    Unread(#[from] FileError),
    /// A shard has arrived that is larger than the room that was made for it, and there is no more.
    #[error("no room for shard {shard}, which moves here")]
    NoRoom {
        /// The shard.
        shard: ShardId,
        /// What was asked, what is used, and which setting changes it.
        source: OutOfMemory,
    },
}

impl From<NoRoom> for NodeError {
    fn from(error: NoRoom) -> NodeError {
        NodeError::Router(RouterError::NoRoom(error))
    }
}

impl From<Unreturned> for NodeError {
    fn from(error: Unreturned) -> NodeError {
        match error {
            Unreturned::Spilled(error) => error.into(),
            Unreturned::NoRoom(error) => error.into(),
            Unreturned::Unread(error) => error.into(),
        }
    }
}

impl From<ArrivalRefusal> for NodeError {
    fn from(error: ArrivalRefusal) -> NodeError {
        match error {
            ArrivalRefusal::Inbox(error) => error.into(),
            ArrivalRefusal::NoRoom(error) => error.into(),
            ArrivalRefusal::Short(shard) => NodeError::State(shard),
        }
    }
}
