//! What lies outside of memory: so far a directory to which pieces are spilled that wait and find no room.

mod directory;
mod segment;

pub use directory::{Counts, OpenError, SpillDirectory};
