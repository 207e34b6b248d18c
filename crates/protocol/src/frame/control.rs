//! The small bodies: everything but data.

use super::error::FrameError;
use crate::ids::{Generation, JobId, Sequence, Version, WorkerId};
use crate::map::EntryRange;
use brambling_program::{BlockId, ExchangeId, GroupId, Position, ShardId, Turn};
use serde::{Deserialize, Serialize};

/// The first frame of a link that carries a job's frames between two peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The job that is spoken of.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// Who speaks.
    pub worker: WorkerId,
    /// To whom.
    pub peer: WorkerId,
    /// Differs each time the speaker's process starts.
    pub epoch: u64,
    /// The newest frame format that the speaker reads.
    pub format: u16,
    /// All frames of the session before this one have arrived.
    pub received: Sequence,
}

/// The outcome of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SignalOutcome {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// Which signal, which turn.
    pub position: Position,
    /// What it decided.
    pub outcome: bool,
    /// The cut that is at the top of the next turn of its loop.
    pub cut: Option<u64>,
}

/// A question for an outcome that did not arrive: the broadcast is only a hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SignalQuery {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// Which signal, which turn.
    pub position: Position,
}

/// An outermost loop has ended: groups that take no part in it may go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LoopEnd {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// The loop's body.
    pub body: BlockId,
    /// How often the body ran.
    pub turns: Turn,
}

/// Destinations have retired turns of an exchange.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Credit {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// The exchange.
    pub exchange: ExchangeId,
    /// The group of the destinations.
    pub group: GroupId,
    /// Who has retired how many turns.
    pub retired: Vec<Retired>,
}

/// Destinations have retired turns of an exchange that has one source. It goes where that source is, as pieces do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceCredit {
    /// The sender's version of the source's entry.
    pub version: Version,
    /// What it is for.
    pub credit: Credit,
}

/// Destinations `first..end` have retired all turns before `turns`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Retired {
    /// The first destination.
    pub first: u32,
    /// One past the last.
    pub end: u32,
    /// The first turn that each has not retired.
    pub turns: Turn,
}

/// News for the partition map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MapUpdate {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// The entries.
    pub entries: Vec<EntryRange>,
}

/// All frames of the session before `received` have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ack {
    /// The first number that is missing.
    pub received: Sequence,
}

/// The controller asks for room for a shard, before anybody hears that it moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reserve {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// The shard.
    pub shard: ShardId,
    /// The version that its new place will have.
    pub version: Version,
    /// Who holds it now.
    pub holder: WorkerId,
    /// How large it is said to be.
    pub bytes: u64,
}

/// The answer to [`Reserve`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reserved {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// The shard.
    pub shard: ShardId,
    /// The version that was asked for.
    pub version: Version,
    /// Whether there is room.
    pub granted: bool,
}

/// A part of a shard on its way, from the worker that held it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardPart<'a> {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// The shard.
    pub shard: ShardId,
    /// The version of its new place.
    pub version: Version,
    /// Which part this is: the first is 0.
    pub part: u32,
    /// How many there are.
    pub parts: u32,
    /// The part.
    #[serde(borrow, with = "serde_bytes")]
    pub bytes: &'a [u8],
}

/// There is a worker: from now on it is told what all are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Joined {
    /// The worker.
    pub worker: WorkerId,
}

/// A worker leaves. No shard is there any more, and as far as the controller knows none comes: whoever hears this says nothing new to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Leaves {
    /// The worker.
    pub worker: WorkerId,
}

/// Nothing that was said to a worker that leaves is on its way any more; from that worker itself: nor is anything that it said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Parted {
    /// The worker that leaves.
    pub worker: WorkerId,
}

/// To a worker that leaves: nobody says anything to it any more. To the others: it has left, and is forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Gone {
    /// The worker.
    pub worker: WorkerId,
}

/// A shard has arrived and runs: the controller may move it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Arrived {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// The shard.
    pub shard: ShardId,
    /// The version of its new place.
    pub version: Version,
}

/// The program has ended for these shards.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finished {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// The shards, each in one range.
    pub shards: Vec<ShardRange>,
}

/// Shards `first..end` of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardRange {
    /// The group.
    pub group: GroupId,
    /// The first index.
    pub first: u32,
    /// One past the last.
    pub end: u32,
}

/// The job has failed on a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failed<'a> {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// What went wrong, and where.
    #[serde(borrow)]
    pub failure: &'a str,
}

/// The job is over: all its shards have finished, or it has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ended<'a> {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// What went wrong on which worker, if anything did.
    #[serde(borrow)]
    pub failure: Option<&'a str>,
}

pub(super) fn encode<T: Serialize>(body: &T, out: &mut Vec<u8>) {
    postcard::to_io(body, out).expect("plain values written to memory");
}

impl ShardPart<'_> {
    /// Its encoding, without its bytes at the end.
    pub(super) fn encode_head(&self, out: &mut Vec<u8>) {
        encode(
            &ShardPart {
                bytes: &[],
                ..*self
            },
            out,
        );
        // The length of no bytes, instead of which that of all of them ends the head.
        out.pop();
        encode(&self.bytes.len(), out);
    }
}

pub(super) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(bytes) {
        Ok((body, [])) => Ok(body),
        Ok(_) => Err(FrameError::Malformed {
            rule: "nothing after the last field",
        }),
        Err(_) => Err(FrameError::Malformed {
            rule: "the fields of its kind",
        }),
    }
}
