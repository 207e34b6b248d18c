//! Names of what exists outside a program: workers, jobs, generations.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A process that holds shards.
    WorkerId(u32),
    "w"
);
impl WorkerId {
    /// No worker: by this name the controller takes part in sessions.
    pub const CONTROLLER: WorkerId = WorkerId(u32::MAX);
}

id!(
    /// One run of a program.
    JobId(u64),
    "j"
);
id!(
    /// How often a job was recovered: what belongs to an older generation is void.
    Generation(u64),
    "generation "
);

/// By what a process knows all that it has of a job: a generation shares nothing with those before it, which may still be there. Who asks for a
/// job, or for its end, knows its number alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct JobKey {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
}

impl JobKey {
    /// The key of this generation of a job.
    pub fn new(job: JobId, generation: Generation) -> JobKey {
        JobKey { job, generation }
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.generation {
            Generation(0) => self.job.fmt(f),
            generation => write!(f, "{} ({generation})", self.job),
        }
    }
}

/// The version of one entry of the partition map. It only grows.
pub type Version = u64;

/// The number of a frame within the session of two peers: the first is 0.
pub type Sequence = u64;

/// The class of a frame on the wire: 0 goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Priority(u8);

impl Priority {
    /// Credits, acknowledgements, signals.
    pub const FIRST: Priority = Priority(0);
    /// Migrations, snapshots and forwarded frames.
    pub const LAST: Priority = Priority(7);

    /// The class of this number, if there is one.
    pub fn new(class: u8) -> Option<Priority> {
        (class <= Priority::LAST.0).then_some(Priority(class))
    }

    /// Its number.
    pub fn get(self) -> u8 {
        self.0
    }
}
