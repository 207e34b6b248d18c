//! Decides where shards live. It never sees their bytes, and no task waits for it (invariant 10).
//!
//! Pure state machines: frames and wishes go in, [`ControllerEffect`]s come out. The [`Controller`] has one job; who takes part in the
//! cluster at all, and which job has it, is the [registry](registry::Registry)'s. How a shard moves, and why it has one owner per
//! version, is told in [`Controller::order`].

mod adoption;
pub mod balance;
mod balancing;
mod cuts;
mod drains;
mod ends;
pub mod log;
mod moves;
mod news;
mod placement;
pub mod registry;
pub mod snapshots;

pub use adoption::Adoption;
pub use cuts::{MOVES_WAIT, SnapshotSetup};
pub use ends::{ShardLoss, WorkerLoss};
pub use moves::MoveRefusal;
pub use placement::{place, place_again};

use balance::Scales;
use brambling_program::ShardId;
use brambling_protocol::frame::{Ack, Body, FAN_OUT, Frame, FrameError, Joined, MapUpdate, Packet};
use brambling_protocol::kept::CutManifest;
use brambling_protocol::{
    EntryRange, FrameSession, Generation, JobId, JobKey, MapError, PartitionMap, Priority,
    Received, Sequence, SessionError, WorkerId,
};
use cuts::Cuts;
use drains::Leaving;
use ends::Ends;
use moves::OrderedMove;
use news::Untold;
use std::collections::{BTreeMap, BTreeSet};

/// A frame about shards has no more entries than this: it stays small, however many shards there are.
const ENTRIES_MAX: usize = 1 << 12;

/// A frame, shared until it has gone.
pub type FrameBytes = bytes::Bytes;

/// What whoever runs the controller has to do, or may want to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControllerEffect {
    /// Send a frame to a worker.
    Send {
        /// The worker.
        to: WorkerId,
        /// Its class.
        priority: Priority,
        /// The whole frame.
        bytes: FrameBytes,
    },
    /// A shard has moved.
    Moved {
        /// The shard.
        shard: ShardId,
        /// Where it is now.
        to: WorkerId,
    },
    /// A shard stays: its destination has no room.
    Stays {
        /// The shard.
        shard: ShardId,
        /// Who had no room.
        to: WorkerId,
    },
    /// A worker has left: it is no member any more, and holds nothing.
    Left {
        /// The worker.
        worker: WorkerId,
    },
    /// All shards have saved at a cut: make its manifest, and say so ([`Controller::on_committed`]).
    Commit(Box<CutManifest>),
    /// What was saved for a cut is of no use.
    Discard(u64),
    /// Tell people.
    Say(String),
    /// A worker is gone with what it held of the job. For each such worker it comes once.
    Lost(ShardLoss),
    /// The job is over; the workers are being told. It comes once.
    Ended {
        /// What went wrong on which worker, if anything did.
        failure: Option<String>,
    },
}

/// What no honest worker sends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// The bytes are no frame.
    #[error("a frame that cannot be read")]
    Frame(#[from] FrameError),
    /// A frame of somebody who is no member.
    #[error("{0} is not among the workers")]
    Stranger(WorkerId),
    /// The worker breaks the session's rules.
    #[error("a worker's session is broken")]
    Session(#[from] SessionError),
    /// News of shards that the program does not have.
    #[error("news that fits no shard of the job")]
    Map(#[from] MapError),
    /// An answer to what was not asked.
    #[error("{worker} speaks of a move of {shard} that was not ordered")]
    NoSuchMove {
        /// Who speaks.
        worker: WorkerId,
        /// The shard.
        shard: ShardId,
    },
    /// News of shards that the job does not have.
    #[error("{worker} says that shards have finished, or were saved, that its job does not have")]
    NoSuchShards {
        /// Who speaks.
        worker: WorkerId,
    },
}

/// The machine of one generation of a job: its members, its partition map, and the shards on their way.
pub struct Controller {
    key: JobKey,
    map: PartitionMap,
    moves: BTreeMap<ShardId, OrderedMove>,
    /// Who has had shards of it.
    holders: BTreeSet<WorkerId>,
    untold: Untold,
    ends: Ends,
    /// None when it is not balanced.
    scales: Option<Scales>,
    /// None when it is not saved.
    cuts: Option<Box<Cuts>>,
    workers: BTreeMap<WorkerId, FrameSession>,
    /// Threads, where they are known.
    threads: BTreeMap<WorkerId, u32>,
    leaving: BTreeMap<WorkerId, Leaving>,
    /// Members that had better get no shards.
    left_out: BTreeSet<WorkerId>,
    /// Who has left.
    gone: BTreeSet<WorkerId>,
    /// To how many workers news of the map are said at once.
    fan_out: usize,
    effects: Vec<ControllerEffect>,
}

impl Controller {
    /// A controller of a job that these workers take part in, and whose shards lie where `map` says.
    pub fn new(
        job: JobId,
        generation: Generation,
        map: PartitionMap,
        workers: impl IntoIterator<Item = WorkerId>,
    ) -> Controller {
        let peer = |worker| (worker, FrameSession::default());
        Controller {
            key: JobKey::new(job, generation),
            holders: map.entries().map(|range| range.entry.owner).collect(),
            map,
            moves: BTreeMap::new(),
            untold: Untold::default(),
            ends: Ends::default(),
            scales: None,
            cuts: None,
            workers: workers.into_iter().map(peer).collect(),
            threads: BTreeMap::new(),
            leaving: BTreeMap::new(),
            left_out: BTreeSet::new(),
            gone: BTreeSet::new(),
            fan_out: FAN_OUT,
            effects: Vec::new(),
        }
    }

    /// The same with another number of workers to which news of the map are said at once, and which hand them on.
    #[must_use]
    pub fn with_fan_out(mut self, workers: usize) -> Controller {
        self.fan_out = workers;
        self
    }

    /// A worker joins. Everybody hears of it, and it hears of everybody, where the shards are, and whether the job is over. Shards come to it
    /// when they are ordered to.
    pub fn join(&mut self, worker: WorkerId) {
        // A worker that has left stays out: the others have forgotten it, and its session would
        // begin anew.
        if self.workers.contains_key(&worker) || self.gone.contains(&worker) {
            return;
        }
        // Listed before the newcomer is among them: it is not told of itself.
        let others: Vec<WorkerId> = self.workers.keys().copied().collect();
        self.workers.insert(worker, FrameSession::default());
        for other in others {
            self.send(other, &Body::Joined(Joined { worker }));
            self.send(worker, &Body::Joined(Joined { worker: other }));
        }
        // The map goes before the workers that leave: a worker parts from another only by a map
        // that does not name that one.
        self.tell_map(worker);
        self.tell_end(worker);
        self.tell_leavers(worker);
    }

    /// Where the shards are, as of the newest version that was given.
    pub fn map(&self) -> &PartitionMap {
        &self.map
    }

    /// How many shards are on their way.
    pub fn moving(&self) -> usize {
        self.moves.len()
    }

    /// What has to be done since the last call.
    pub fn take_effects(&mut self) -> Vec<ControllerEffect> {
        std::mem::take(&mut self.effects)
    }

    /// Whether workers have acknowledged all that was sent.
    pub fn is_settled(&self) -> bool {
        self.workers.values().all(|peer| peer.is_settled())
    }

    /// A frame has come from a worker.
    ///
    /// # Errors
    /// What no honest worker sends; nothing changed then but that the frame counts as received.
    pub fn on_frame(&mut self, from: WorkerId, bytes: &[u8]) -> Result<(), ControllerError> {
        let (frame, _) = Frame::decode(bytes)?;
        if self.gone.contains(&from) {
            // The worker had said all that mattered before it left.
            return Ok(());
        }
        let peer = self
            .workers
            .get_mut(&from)
            .ok_or(ControllerError::Stranger(from))?;
        // Frames without a number are hints and acknowledgements: taking them twice changes
        // nothing.
        if let Some(sequence) = frame.sequence
            && peer.receive(sequence)? == Received::Repeated
        {
            return Ok(());
        }
        match frame.body {
            Body::Ack(ack) => self
                .effects
                .extend(peer.on_ack(ack.received)?.map(sending(from))),
            Body::Reserved(answer) => self.on_reserved(from, &answer)?,
            Body::Arrived(arrived) => self.on_arrived(from, &arrived)?,
            Body::Finished(finished) => self.on_finished(from, &finished)?,
            Body::Failed(failed) => self.on_failed(from, &failed),
            Body::Parted(parted) => self.on_parted(from, parted),
            Body::CutReply(reply) => self.on_cut_reply(from, reply)?,
            _ => {}
        }
        // Looked up again: the frame may have been the last word of a worker, which is told nothing
        // once it has left.
        let peer = self.workers.get_mut(&from);
        if let Some(received) = peer.and_then(|peer| peer.ack()) {
            let priority = Priority::FIRST;
            let body = Body::Ack(Ack { received });
            let bytes = Frame {
                priority,
                sequence: None,
                body,
            }
            .to_bytes();
            self.effects.push(ControllerEffect::Send {
                to: from,
                priority,
                bytes,
            });
        }
        Ok(())
    }

    /// What this side says when it greets a worker: the first frame of theirs that is missing.
    pub fn received(&self, worker: WorkerId) -> Sequence {
        self.workers.get(&worker).map_or(0, |peer| peer.received())
    }

    /// A new connection, on which the worker says that it has every frame before `received`.
    ///
    /// # Errors
    /// When the worker is a stranger, or speaks of another session.
    pub fn on_reconnect(
        &mut self,
        worker: WorkerId,
        received: Sequence,
    ) -> Result<(), ControllerError> {
        if self.gone.contains(&worker) {
            return Ok(());
        }
        let peer = self.workers.get_mut(&worker);
        let session = peer.ok_or(ControllerError::Stranger(worker))?;
        let again = session.on_reconnect(received)?;
        self.effects.extend(again.map(sending(worker)));
        Ok(())
    }

    fn send(&mut self, to: WorkerId, body: &Body<'_>) {
        let Some(peer) = self.workers.get_mut(&to) else {
            return;
        };
        self.effects.extend(say(peer, to, body));
    }

    /// Tells a worker every entry of the map.
    fn tell_map(&mut self, to: WorkerId) {
        let entries: Vec<EntryRange> = self.map.entries().collect();
        // Several frames: the worker may act on a part of the map, since each entry has its
        // version.
        for entries in entries.chunks(ENTRIES_MAX) {
            let update = self.update(entries.to_vec());
            self.send(to, &Body::MapUpdate(update));
        }
    }

    fn update(&self, entries: Vec<EntryRange>) -> MapUpdate {
        MapUpdate {
            job: self.key.job,
            generation: self.key.generation,
            entries,
        }
    }
}

/// Says something in a session, which keeps it.
fn say(peer: &mut FrameSession, to: WorkerId, body: &Body<'_>) -> Option<ControllerEffect> {
    let priority = Priority::FIRST;
    let bytes = peer.say(priority, body)?.to_bytes();
    Some(ControllerEffect::Send {
        to,
        priority,
        bytes,
    })
}

/// Sends what a session has kept.
fn sending<'a>(to: WorkerId) -> impl Fn((Sequence, &'a (Priority, Packet))) -> ControllerEffect {
    move |(_, (priority, packet))| ControllerEffect::Send {
        to,
        priority: *priority,
        bytes: packet.to_bytes(),
    }
}
