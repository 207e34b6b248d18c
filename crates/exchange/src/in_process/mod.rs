//! Exchange within a process: a scatter writes into memory that its destinations own. Nothing is encoded.
//!
//! A destination has K turns of pieces open. A piece's slot is stamped with the turn when its source's turn has
//! ended; where pieces come through mailboxes, the turn counts its sources ([`Arrivals`]). A gather runs when all
//! have arrived, then opens the turn K later and counts one more turn as retired ([`Room`]). A source
//! writes to a turn only when the destination has retired the turn K before it, so a place is never written
//! while it is read, and the waits point only backwards in program order.
//!
//! # What crosses between two CPUs
//! Lines, each about a tenth of a microsecond. A piece and its stamp share one, and nothing else crosses as long
//! as the destination's thread is awake: it looks at the stamp itself ([`Mark`]). A source keeps the retired
//! count that it saw, and fetches it again only when that no longer suffices.

mod arrivals;
pub mod fences;
#[cfg(not(loom))]
mod letters;
#[cfg(not(loom))]
mod local;
#[cfg(not(loom))]
mod mailbox;
mod room;
#[cfg(not(loom))]
mod sending;
#[cfg(not(loom))]
mod slots;
mod stamp;
mod sync;
mod waiters;

pub use arrivals::Arrivals;
#[cfg(not(loom))]
pub use letters::{MailboxIn, MailboxOut, Mailboxes};
#[cfg(not(loom))]
pub use local::{Carrier, InProcess};
pub use room::Room;
#[cfg(not(loom))]
pub use sending::Refused;
#[cfg(not(loom))]
pub use slots::{DestinationEnd, Destinations, Heard, Mark, Slots, SourceEnd};
pub use stamp::Stamp;
pub use waiters::Waiters;

/// How many turns of an exchange are open per destination.
pub const TURNS_OPEN: u64 = 4;

#[cfg(all(test, not(loom)))]
mod tests;
