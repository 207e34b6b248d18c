//! Whatever can go wrong, by what the user was doing.

use crate::SettingsError;
use crate::cluster::ClusterError;
use crate::restore::RestoreError;
use brambling_operators::simd::SelectError;
use brambling_program::BuildError;
use brambling_storage::StoreError;
use brambling_worker::executor::Failure;

/// Why a program did not give its results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program is refused.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A setting cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The job ended early.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// The process's threads could not be started.
    #[error("{threads} threads could not be started; give fewer with threads or BRAMBLING_THREADS")]
    Threads {
        /// How many were asked for.
        threads: u32,
        /// Why.
        source: std::io::Error,
    },
    /// The process's kernels have run on another instruction set already.
    #[error(transparent)]
    InstructionSet(#[from] SelectError),
    /// The program did not run on the cluster, or the process takes no part in it.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// What is to be kept of jobs cannot be kept or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It was to go on from a snapshot, and cannot.
    #[error(transparent)]
    Restore(Box<RestoreError>),
    /// A job was started from inside a kernel.
    #[error(
        "a kernel cannot run a program: its thread is busy with this one; run it after the job has ended"
    )]
    Nested,
}

impl From<RestoreError> for Error {
    fn from(error: RestoreError) -> Error {
        Error::Restore(Box::new(error))
    }
}
