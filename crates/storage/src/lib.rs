//! What lies outside of memory: a directory to which pieces are spilled that wait and find no room, and the threads that wait for files.

mod directory;
mod pool;
mod requests;
mod segment;

pub use directory::{OpenError, SpillCounts, SpillDirectory};
pub use pool::{FilePool, Request, Ticket};
pub use requests::{Delete, FileError, FileRead, FileWrite, Flush, NamedFile, Put, Recall};
