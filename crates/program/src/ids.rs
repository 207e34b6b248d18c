//! Names of things inside a program: dense indexes, so that look-ups are array accesses.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an array index.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

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
    /// A variable of the driver program.
    DatasetId, "d"
);
id!(
    /// A stage: an instruction that runs user code.
    StageId, "s"
);
id!(
    /// A scatter and its gather.
    ExchangeId, "x"
);
id!(
    /// A set of datasets that some stage uses together.
    GroupId, "g"
);
id!(
    /// A body of instructions: the program's own, a loop's, or one side of a branch.
    BlockId, "b"
);
id!(
    /// What a streaming stage reads and writes by chunks.
    StreamId, "t"
);
id!(
    /// A user's function with its serialised parameters.
    KernelId, "k"
);

/// How often the enclosing block had been entered before: the first turn is 0.
pub type Turn = u64;

/// One index of one group: the unit of placement, scheduling, migration and recovery.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ShardId {
    /// The group.
    pub group: GroupId,
    /// The index within the group.
    pub index: u32,
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.index)
    }
}

/// A point of the program in program time. Names tasks, pieces and signals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Position {
    /// The instruction.
    pub stage: StageId,
    /// Its turn.
    pub turn: Turn,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} turn {}", self.stage, self.turn)
    }
}
