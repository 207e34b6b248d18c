//! How a node meets a controller that has taken over: it says what is here, and both begin their session anew.
//!
//! # Rules
//! * From the first word of a term on, news of the map by versions of earlier terms count no more: what was told as held stays until the new controller says
//!   otherwise. Shards that are on their way arrive all the same, by the version by which they left.
//! * The new session begins with all that the old one may not have carried: which shards here have finished, and how the job has failed here.
//!
//! # Why a shard that was told as held is not given away meanwhile
//! A shard leaves when the map here names another worker. Maps of earlier terms are not believed any more, and the new controller publishes
//! nothing before it has heard of every shard, from everybody, that none is on its way.

use super::{Node, shards};
use brambling_memory::mutants;
use brambling_program::{GroupId, ShardId};
use brambling_protocol::frame::ShardRange;
use brambling_protocol::{EntryRange, WorkerId, first_version};

/// What is on a worker of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeHolding {
    /// The other members, as far as they are known here.
    pub members: Vec<WorkerId>,
    /// The shards that are here, in order.
    pub shards: Vec<ShardRange>,
    /// Nothing can go on as it is: a shard is on its way from here or to here, somebody leaves, or a controller has ended the job, perhaps one that another had
    /// taken over from.
    pub is_busy: bool,
    /// The job has ended well.
    pub has_ended: bool,
}

impl Node {
    /// A controller has taken over in this term. Whether that is news: then the session with it has begun anew, and nothing is to come of the old one.
    pub fn begin_term(&mut self, term: u32) -> bool {
        let floor = first_version(term);
        if floor <= self.floor {
            return false;
        }
        self.floor = floor;
        self.post.members.meet_controller();
        self.signals.tell_again();
        self.post.fail_again();
        true
    }

    /// What is here.
    pub fn holding(&self) -> NodeHolding {
        let mut held: Vec<ShardRange> = Vec::new();
        let groups = (0..).map(GroupId).zip(self.map().counts());
        let all = groups.flat_map(|(group, count)| {
            let shard = |index| ShardId { group, index };
            self.pieces.here_in(shard(0)..shard(count))
        });
        for ShardId { group, index } in all {
            match held.last_mut() {
                Some(range) if range.group == group && range.end == index => range.end += 1,
                _ => held.push(ShardRange {
                    group,
                    first: index,
                    end: index + 1,
                }),
            }
        }
        NodeHolding {
            members: self.post.members.others().to_vec(),
            shards: held,
            is_busy: self.is_void
                || self.moves.are_under_way(self.me(), self.map())
                || self.post.members.do_any_leave(),
            has_ended: self.has_ended,
        }
    }

    /// News of where shards are.
    pub(super) fn hear(&mut self, entry: &EntryRange) -> Result<(), super::NodeError> {
        let is_past = entry.entry.version < self.floor;
        if is_past && !mutants::is_on("nodes-believe-earlier-terms") {
            return Ok(());
        }
        self.on_update(entry)?;
        if entry.entry.owner != self.me() {
            self.moves.forget(shards(entry), entry.entry.version);
        }
        Ok(())
    }
}
