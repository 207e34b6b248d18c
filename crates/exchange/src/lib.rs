//! The data plane's state machines: how pieces find their destination, exactly once.
//!
//! Nothing here but [`transports`] does I/O, reads a clock or draws a random number: events go in, effects come out.
//!
//! * [`ShardInbox`], one per shard, is the keeper of "exactly once". It moves with the shard.
//! * [`Router`], one per worker and job, delivers, forwards or holds what arrives.
//! * [`GroupMerge`] merges on their way what many sources send to one destination, along a [`CombiningTree`].
//! * [`Credits`] bound how many turns of an exchange are open at a destination.
//! * [`Session`](brambling_protocol::Session), one per pair of peers, sends again what was not acknowledged.
//!
//! # Why a piece is merged exactly once
//! *At least once*: a session keeps a frame until the peer has taken it; a router delivers a piece to
//! a shard that is here, passes it on towards a strictly newer version of the entry, or keeps it until
//! the map or the shard arrives, and versions are finite. *At most once*: whatever was repeated, by a
//! session or by a recovered map, ends at the one inbox of its destination, which knows (exchange,
//! turn, source node, chunk) and what it has retired.

#[cfg(not(brambling_loom))]
pub mod coflow;
pub mod combining;
pub mod credits;
pub mod in_process;
pub mod inbox;
pub mod parcel;
pub mod read_target;
pub mod room;
pub mod router;
pub mod sources;
#[cfg(not(brambling_loom))]
pub mod transports;

pub use combining::{CombiningOptions, CombiningTree, GroupMerge};
pub use credits::{Credits, UnknownDestination, fits};
pub use inbox::{Acceptance, Gathered, InboxError, InboxState, NextChunk, ShardInbox, WaitingItem};
pub use parcel::{Item, Parcel, PayloadWeight, coalesce, parcels};
pub use room::{NoRoom, PieceRoom};
pub use router::{Router, RouterEffect, RouterError};
pub use sources::{SourceRelation, Sources};

/// How many turns of an exchange are open per destination.
pub const OPEN_TURNS: u64 = 4;
