//! Exchange within a process: what shards send each other, and who keeps it until it is gathered. Nothing is encoded.
//!
//! A destination has K turns of pieces open. It counts one more turn as retired when it has gathered it ([`RetiredTurns`]); a source sends in a turn only when
//! all its destinations have retired the turn K before it, so the waits point only backwards in program order.
//!
//! An exchange has one of two keepers, wherever its shards are. *Slots*: each pair of a source and a destination that start here has a place for each
//! open turn, which the source writes and stamps. *Mailboxes*, for all else: a shard has one ([`Mailbox`]), into which anybody puts what is for it.
//! Where there are too many pairs for places, a source stamps the turn once when all that it sends lies in mailboxes ([`Stamped`]). What comes through the mailbox
//! for a shard that has a place for it is put there by that shard's thread.
//!
//! # What crosses between two CPUs
//! Lines, each about a tenth of a microsecond. A piece and its stamp share one, and nothing else crosses as long
//! as the destination's thread is awake: it looks at the stamp itself ([`StampRef`]). A source keeps the retired
//! count that it saw, and fetches it again only when that no longer suffices.

pub mod fences;
#[cfg(not(brambling_loom))]
mod local;
mod mailbox;
mod retired_turns;
#[cfg(not(brambling_loom))]
mod slots;
mod stamp;
#[cfg(not(brambling_loom))]
mod stamped;
mod sync;
mod waiters;

#[cfg(not(brambling_loom))]
pub use local::{InProcess, Keeper};
pub use mailbox::{Drained, Mailbox};
pub use retired_turns::RetiredTurns;
#[cfg(not(brambling_loom))]
pub use slots::{DestinationEnd, Destinations, Slots, SourceEnd, StampRef, TurnStatus};
pub use stamp::Stamp;
#[cfg(not(brambling_loom))]
pub use stamped::Stamped;
pub use waiters::Waiters;

/// What the executor knows of a shard at one side of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardSide {
    /// What it calls it.
    pub number: u32,
    /// Whether the job begins with it in this process.
    pub starts_here: bool,
}

#[cfg(all(test, not(brambling_loom)))]
mod tests;
