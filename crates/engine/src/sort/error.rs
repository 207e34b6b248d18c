//! Owns why files are not sorted. Everything of a sort tells it; nothing here opens a file.

use crate::{Error, Failure};
use brambling_operators::parts::CopyFault;
use brambling_operators::sort::RecordMakerError;
use brambling_storage::FileError;
use std::path::PathBuf;

/// Why files were not sorted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SortError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// An input would be lost.
    #[error("{} is an input and the output: give another name for the output", .0.display())]
    OverInput(PathBuf),
    /// Records of one width that the file's length is no multiple of.
    #[error(
        "{} has {bytes} bytes, which is no multiple of the {width} bytes of a record: its last record is cut, or records are not so wide (--width), or it has lines (--lines)",
        .path.display()
    )]
    CutRecord {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        bytes: u64,
        /// Bytes of a record.
        width: u64,
    },
    /// The output is not what the input was: a fault of ours, or of the machine's memory.
    #[error(
        "{read_records} records of {read_bytes} bytes were read, and {records} of {bytes} bytes written, or their checksums differ: the output was not kept; please report this, and try the machine's memory"
    )]
    Differs {
        /// Records that were read.
        read_records: u64,
        /// Their bytes.
        read_bytes: u64,
        /// Records that were written.
        records: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// More copies than workers.
    #[error(
        "--replication {replication} needs {replication} workers, and there {}: start more, or ask for fewer copies",
        if *.workers == 1 { "is 1".to_owned() } else { format!("are {workers}") }
    )]
    TooFewWorkers {
        /// How often the output was to be stored.
        replication: u32,
        /// How many workers there are.
        workers: u32,
    },
    /// Files of workers, where there are none.
    #[error("--local sorts a file of each worker of a cluster: name its --controller")]
    LocalHere,
    /// A bound for chunks of this process, of a sort that other processes do.
    #[error(
        "workers of a cluster have memory of their own for chunks: leave out exchange_memory, or sort in this process"
    )]
    ExchangeMemoryThere,
    /// Several names where each worker has one file.
    #[error(
        "--local sorts one file of each worker, under the same name everywhere: give one name, and the output"
    )]
    OneLocal,
    /// A path that means nothing.
    #[error("{}: {source}; give its path from the root", .path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Copies are not what they are to be.
    #[error(transparent)]
    Copies(#[from] CopyFault),
    /// Records that cannot be made.
    #[error(transparent)]
    Maker(RecordMakerError),
    /// The job did not end well.
    #[error(transparent)]
    Run(#[from] Error),
}

impl SortError {
    /// Whether the user ended it.
    pub fn is_interruption(&self) -> bool {
        matches!(self, SortError::Run(Error::Failure(Failure::Interrupted)))
    }

    /// A kernel that could not read or write a file says so in its error's source.
    pub(super) fn of(mut error: Error) -> SortError {
        let Error::Failure(Failure::Kernel { error: kernel, .. }) = &mut error else {
            return SortError::Run(error);
        };
        match kernel.take_source().map(|source| source.downcast()) {
            Some(Ok(file)) => SortError::File(*file),
            _ => SortError::Run(error),
        }
    }
}
