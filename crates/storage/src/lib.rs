//! What lies outside of memory: a directory to which pieces are spilled that wait and find no room, and the threads that wait for files.

mod directory;
mod pool;
mod requests;
mod segment;

pub use directory::{Counts, OpenError, SpillDirectory};
pub use pool::{FilePool, Request, Ticket};
pub use requests::{Delete, FileError, Flush, NamedFile, Put, Read, Recall, Write};
