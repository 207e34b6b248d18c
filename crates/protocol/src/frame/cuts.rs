//! What is said of cuts: a controller asks the shards of a job to save, and workers tell what these have done. Which cut comes when is the
//! controller's to say; what a part consists of it never sees.

use crate::ids::{Generation, JobId};
use crate::kept::StoredPart;
use brambling_program::{
    CutAnswer, CutStates, CutTurn, GroupId, GroupState, LoopId, ShardId, StageId, Turn,
};
use serde::{Deserialize, Serialize};

/// A controller to a worker, for all shards that are there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CutCall {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// What.
    pub what: CutAsk,
}

/// What shards are asked. What is asked next takes the place of what some have not heard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CutAsk {
    /// Where they stand.
    Where,
    /// To save at a cut.
    Save(CutOrder),
    /// All have been told of the cut: whoever gives the signal of its loop next says at which turn it is.
    Name {
        /// The cut.
        cut: u64,
    },
    /// There is no cut.
    Forget,
    /// There is a snapshot of the cut: what was saved before it is of no more use.
    Committed {
        /// The cut.
        cut: u64,
    },
}

/// A cut at which all shards are to save.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CutOrder {
    /// Its number.
    pub cut: u64,
    /// The outermost loop at whose top it is.
    pub outermost: LoopId,
    /// The turn.
    pub turn: CutTurn,
    /// Groups whose shards save each for itself.
    pub free: Vec<GroupId>,
    /// Where all stood at the cut of which there is a snapshot: what was not written since is not saved again.
    pub base: Option<CutStates>,
}

/// A worker to the controller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CutReply {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// What.
    pub what: CutWord,
}

/// What a worker tells of shards that are there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CutWord {
    /// Where the furthest of each group stands: turns done of an outermost loop, or between loops.
    Stand(Vec<(GroupId, Option<(LoopId, Turn)>)>),
    /// Shards have been told of a cut.
    Told {
        /// The cut.
        cut: u64,
        /// Whether they will save there.
        answer: CutAnswer,
        /// Which.
        shards: Vec<ShardId>,
    },
    /// An outermost loop has ended.
    Ended(LoopId),
    /// Shards have saved, and what they have saved is in the store.
    Saved(SavedParts),
    /// Something of a cut could not be saved.
    Unsaved {
        /// The cut.
        cut: u64,
        /// What, and why.
        why: String,
    },
}

/// What shards of a worker have saved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SavedParts {
    /// The cut.
    pub cut: u64,
    /// Where shards stand.
    pub shards: Vec<SavedShards>,
    /// Outcomes of signals of the program's own block, as far as they are known there.
    pub outcomes: Vec<(StageId, bool)>,
    /// Objects that have been made.
    pub objects: Vec<String>,
    /// What lies in them.
    pub parts: Vec<StoredPart>,
    /// How long saving took of a thread's time.
    pub spent_ns: u64,
}

/// Shards that stand at one place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SavedShards {
    /// Where.
    pub state: GroupState,
    /// The turns done of an outermost loop, if that is in one.
    pub turns: Option<(LoopId, Turn)>,
    /// Which.
    pub shards: Vec<ShardId>,
}
