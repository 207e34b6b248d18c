//! What no honest peer sends, and room that is missing.

use brambling_exchange::{InboxError, RouterError, SessionError, UnknownDestination};
use brambling_program::BlockId;
use brambling_protocol::WorkerId;
use brambling_protocol::frame::FrameError;

/// Why a node cannot take what came.
#[derive(Debug, thiserror::Error)]
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
    /// The end of a loop that the program does not have.
    #[error("the end of a loop with body {0}, which is no outermost one")]
    UnknownLoop(BlockId),
}
