//! What lies outside of memory: files that jobs read and write in blocks, a directory to which pieces are spilled that wait and find no room,
//! and the threads that wait for files.

mod block;
mod cached;
mod counts;
mod directory;
mod handle;
mod hidden;
mod input;
mod objects;
mod output;
mod pool;
mod process;
mod requests;
mod scan;
mod segment;
mod shared_pool;
mod staging;
mod writer;

pub use block::Block;
pub use counts::{FileCounts, file_counts};
pub use directory::{OpenError, SpillCounts, SpillDirectory};
pub use hidden::remove_leftovers;
pub use input::{Fingerprint, InputFile, read_splits};
pub use objects::{
    DirectoryStore, LockWait, Locking, ObjectKey, ObjectStore, ObjectWriter, PlacedStore, S3Place,
    S3Store, StoreError, StoreLocation, StoreLock, StoreTrouble,
};
pub use output::{OutputFile, Publishing};
pub use pool::{FilePool, Request, Ticket, files_under_way};
pub use process::{peak_rss_bytes, process_name, rss_bytes};
pub use requests::{Delete, FileError, FileRead, FileWrite, Flush, NamedFile, Put, Recall};
pub use scan::{ReadAhead, Scan};
pub use staging::Staging;
pub use writer::BlockWriter;
