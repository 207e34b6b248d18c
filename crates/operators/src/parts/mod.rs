//! What jobs share that write a directory of parts: sort and map-reduce build on it.
//!
//! A job has a number, by which its tasks find what they share in their process ([`JobTable`]). A
//! gate bounds how many of them work at once ([`Gate`]), and what they send lies in buffers that are
//! used again ([`ChunkPool`]). Parts lie in a directory that appears when
//! all of them are whole ([`PartsDirectory`]), and copies of them go to other workers
//! ([`CopyPlan`]). Nothing here knows what a part holds.

mod copies;
mod directory;
mod gate;
mod job_table;
mod pool;
mod publish;

pub(crate) use copies::CopyFiles;
pub use copies::{CopyCount, CopyFault, CopyPlan};
pub(crate) use directory::PartsDirectory;
pub(crate) use gate::{Gate, Pass};
pub(crate) use job_table::JobTable;
pub(crate) use pool::ChunkPool;
pub use publish::PartCount;
pub(crate) use publish::{PartOutput, publish};
