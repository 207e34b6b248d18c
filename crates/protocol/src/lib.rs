//! What nodes say to each other, how often they say it again, and the partition map.
//!
//! Frames are values here: nothing in this crate opens a connection or reads a clock. Decoding
//! never panics and never allocates more than the bytes at hand justify, whatever they are.

pub mod frame;
pub mod greeting;
mod ids;
pub mod kept;
pub mod map;
pub mod message;
pub mod patience;
pub mod session;

pub use ids::{Generation, JobId, JobKey, Priority, Sequence, Version, WorkerId};
pub use map::{Applied, Entry, EntryRange, MapError, PartitionMap, first_version};
pub use session::{FrameSession, Received, Session, SessionError};
