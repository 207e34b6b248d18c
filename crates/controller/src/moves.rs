//! Owns a shard's way from one worker to another, as the controller sees it (Canary, §3.3):
//! ordered, granted room, published, arrived. Balancing, drains and users order moves, and workers
//! answer. It never publishes a version before there is room (invariant 12), nor orders a move of a
//! shard that is on its way (invariant 1).

use crate::{Controller, ControllerEffect, ControllerError};
use brambling_memory::mutants;
use brambling_program::ShardId;
use brambling_protocol::frame::{Arrived, Body, Reserve, Reserved};
use brambling_protocol::{Entry, EntryRange, JobId, JobKey, MapError, Version, WorkerId};

/// A move that was ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OrderedMove {
    pub(crate) from: WorkerId,
    pub(crate) to: WorkerId,
    version: Version,
    /// Whether the new version was published: there was room.
    pub(crate) is_published: bool,
}

/// Why a move is not ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveRefusal {
    /// The job has ended, or all its shards have finished: they stay where they are.
    #[error("job {0} is over")]
    Over(JobId),
    /// The program has no such shard.
    #[error("the job has no such shard")]
    UnknownShard(#[from] MapError),
    /// No worker holds it yet.
    #[error("shard {0} has not been placed yet")]
    NotPlaced(ShardId),
    /// There is no such worker.
    #[error("there is no worker {0}")]
    UnknownWorker(WorkerId),
    /// It leaves.
    #[error("worker {0} is being drained; move the shard to another")]
    Leaving(WorkerId),
    /// It is there.
    #[error("shard {0} is there already")]
    AlreadyThere(ShardId),
    /// It moves.
    #[error("shard {0} is on its way to another worker; order it again when it has arrived")]
    OnItsWay(ShardId),
}

impl Controller {
    /// Orders a move. `bytes` is how large the shard is thought to be.
    ///
    /// The destination is asked for room first. When it grants it, the next version of the shard's entry, which names
    /// it, is published: the worker that holds the shard is told at once, sees that it belongs elsewhere, drains it and
    /// sends it; the others hear at the next tick, and send there what is for it. When the destination says that it runs, the move has ended, and
    /// only then another may be ordered: a version has one owner (invariant 1), and a shard is on one way at a time.
    ///
    /// # Errors
    /// When the order makes no sense. Nothing changes then.
    pub fn order(&mut self, shard: ShardId, to: WorkerId, bytes: u64) -> Result<(), MoveRefusal> {
        // A shard on its way would keep the job from ending.
        if self.ends.are_near() {
            return Err(MoveRefusal::Over(self.key.job));
        }
        let entry = self
            .map
            .entry(shard)?
            .ok_or(MoveRefusal::NotPlaced(shard))?;
        if !self.workers.contains_key(&to) {
            return Err(MoveRefusal::UnknownWorker(to));
        }
        if self.leaving.contains_key(&to) {
            return Err(MoveRefusal::Leaving(to));
        }
        // A second order before the first arrival would give one version two owners (invariant 1).
        if self.moves.contains_key(&shard) && !mutants::is_on("moves-overtake") {
            return Err(MoveRefusal::OnItsWay(shard));
        }
        if entry.owner == to {
            return Err(MoveRefusal::AlreadyThere(shard));
        }
        // A shard is saved by the worker that was told of the cut.
        self.give_up_cut();
        let version = entry.version + u64::from(!mutants::is_on("moves-keep-their-version"));
        let is_published = false;
        // Noted before the destination is asked: its answer is checked against the note.
        self.moves.insert(
            shard,
            OrderedMove {
                from: entry.owner,
                to,
                version,
                is_published,
            },
        );
        let reserve = Reserve {
            job: self.key.job,
            generation: self.key.generation,
            shard,
            version,
            holder: entry.owner,
            bytes,
        };
        self.send(to, &Body::Reserve(reserve));
        if mutants::is_on("moves-without-room") {
            self.depart(shard)?;
        }
        Ok(())
    }

    /// A worker says whether it has room.
    pub(crate) fn on_reserved(
        &mut self,
        from: WorkerId,
        answer: &Reserved,
    ) -> Result<(), ControllerError> {
        let Reserved {
            job,
            generation,
            shard,
            version,
            granted,
        } = *answer;
        let key = JobKey::new(job, generation);
        let ordered = self.ordered(from, key, shard, version)?;
        if !granted {
            self.moves.remove(&shard);
            let to = from;
            self.effects.push(ControllerEffect::Stays { shard, to });
            // A drain of the holder tries other workers until the next tick.
            self.note_full(ordered.from, to);
            self.go_on();
        } else if self.ends.are_near() && !ordered.is_published {
            // The shard stays where it is, as all shards do once the job is near its end.
            self.moves.remove(&shard);
        } else if !ordered.is_published {
            self.depart(shard)?;
        }
        Ok(())
    }

    /// There is room: the new version is published.
    fn depart(&mut self, shard: ShardId) -> Result<(), MapError> {
        let ordered = self.moves.get_mut(&shard).expect("the caller saw it");
        // From here on the move cannot be taken back: workers act on the version.
        ordered.is_published = true;
        let entry = EntryRange {
            group: shard.group,
            first: shard.index,
            end: shard.index + 1,
            entry: Entry {
                owner: ordered.to,
                version: ordered.version,
            },
        };
        let (from, to) = (ordered.from, ordered.to);
        // Pieces may be sent there from now on, so the worker cannot be spared any more
        // (`can_spare`).
        self.holders.insert(to);
        let _ = self.map.apply(&entry)?;
        self.publish(shard, entry, [from, to]);
        Ok(())
    }

    /// A worker says that a shard has arrived.
    pub(crate) fn on_arrived(
        &mut self,
        from: WorkerId,
        arrived: &Arrived,
    ) -> Result<(), ControllerError> {
        let Arrived {
            job,
            generation,
            shard,
            version,
        } = *arrived;
        let key = JobKey::new(job, generation);
        self.ordered(from, key, shard, version)?;
        self.moves.remove(&shard);
        let to = from;
        self.effects.push(ControllerEffect::Moved { shard, to });
        // The job may have waited for this shard alone.
        self.end_if_complete();
        self.go_on();
        Ok(())
    }

    fn ordered(
        &self,
        from: WorkerId,
        key: JobKey,
        shard: ShardId,
        version: Version,
    ) -> Result<OrderedMove, ControllerError> {
        let fits =
            // Key, worker and version have to fit: an answer to an earlier order of the same shard
            // may come late.
            |ordered: &&OrderedMove| key == self.key && ordered.to == from && ordered.version == version;
        self.moves
            .get(&shard)
            .filter(fits)
            .copied()
            .ok_or(ControllerError::NoSuchMove {
                worker: from,
                shard,
            })
    }
}
