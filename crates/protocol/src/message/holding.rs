//! What a worker tells a controller that has taken over, of a job that runs there.

use crate::frame::ShardRange;
use crate::ids::{JobKey, WorkerId};
use serde::{Deserialize, Serialize};

/// What a member has of a job. Told again and again until the controller says what becomes of the job: the newest counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Holding {
    /// The job, and the generation that is there.
    pub key: JobKey,
    /// Who the member is in it.
    pub me: WorkerId,
    /// The members that it knows, without itself.
    pub members: Vec<WorkerId>,
    /// The shards that are there, in order.
    pub shards: Vec<ShardRange>,
    /// It cannot be taken over as it is: a shard is on its way from there or to there, somebody leaves, or it was ended.
    pub is_busy: bool,
    /// It was told that the job has ended well.
    pub has_ended: bool,
}
