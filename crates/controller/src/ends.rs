//! When the job is over: all its shards have finished and none is on its way, or it has failed on a worker.
//!
//! Workers say which shards have finished, each once, in ranges: what the controller hears grows with shards, not with
//! tasks. Until the end is told, a worker that has nothing to run stays: shards may still come to it, and others may
//! still ask it. A shard that has finished may be on its way to another worker: its results are to be fetched from there, so it
//! arrives before the end is told.

use crate::{Controller, ControllerEffect, ControllerError};
use brambling_memory::mutants;
use brambling_program::ShardId;
use brambling_protocol::frame::{Body, Ended, Failed, Finished};
use brambling_protocol::patience::ACKNOWLEDGED_WITHIN;
use brambling_protocol::{JobKey, PartitionMap, WorkerId};
use std::collections::BTreeSet;

/// How a worker was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerLoss {
    /// Its process has ended.
    Ended,
    /// Its machine does not answer.
    CutOff,
}

impl WorkerLoss {
    /// What people can do.
    pub(crate) fn way_out(self) -> &'static str {
        match self {
            WorkerLoss::Ended => "start another worker, and run the program again",
            WorkerLoss::CutOff => {
                "look at the network between them, or start another worker, and run the program again"
            }
        }
    }
}

/// Shards that are lost with their worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardLoss {
    /// The worker.
    pub worker: WorkerId,
    /// What has happened.
    pub why: String,
    /// What people can do, where the job ends with it.
    pub way_out: &'static str,
    /// Who has what is near of the generation: who held shards at its newest snapshot, or holds them where it is not saved.
    pub held: PartitionMap,
}

impl ShardLoss {
    /// As the error of a job that ends with it.
    pub fn error(&self) -> String {
        format!("{}; {}", self.why, self.way_out)
    }
}

/// Who has finished.
#[derive(Default)]
pub(crate) struct Ends {
    finished: BTreeSet<ShardId>,
    /// All of them have.
    are_complete: bool,
    /// How the job has ended, once it has.
    over: Option<Result<(), String>>,
}

impl Ends {
    /// Whether the job is over.
    pub(crate) fn are_told(&self) -> bool {
        self.over.is_some()
    }

    /// Another controller has told that the job has ended well.
    pub(crate) fn have_been_told(&mut self) {
        self.over = Some(Ok(()));
    }

    /// Whether no move may begin any more: the job is over, or waits only for shards that are on their way.
    pub(crate) fn are_near(&self) -> bool {
        self.are_told() || self.are_complete
    }
}

impl Controller {
    /// Whether the job has ended: the workers have been told, or are being told.
    pub fn is_over(&self) -> bool {
        self.ends.are_told()
    }

    pub(crate) fn on_finished(
        &mut self,
        from: WorkerId,
        finished: &Finished,
    ) -> Result<(), ControllerError> {
        // Shards that an earlier generation has finished say nothing of this one.
        if JobKey::new(finished.job, finished.generation) != self.key {
            return Ok(());
        }
        let mut ranges = finished.shards.iter();
        // Checked before anything is noted: a refused frame must change nothing.
        if ranges.any(|range| range.end > self.map.shards(range.group)) {
            return Err(ControllerError::NoSuchShards { worker: from });
        }
        for range in &finished.shards {
            let shards = (range.first..range.end).map(|index| ShardId {
                group: range.group,
                index,
            });
            // A set: a shard that is said twice counts once.
            self.ends.finished.extend(shards);
        }
        let shards: u64 = self.map.counts().into_iter().map(u64::from).sum();
        self.ends.are_complete = self.ends.finished.len() as u64 == shards;
        self.end_if_complete();
        Ok(())
    }

    /// Ends the job when its shards have all finished, unless one is on its way.
    pub(crate) fn end_if_complete(&mut self) {
        // A move that is only ordered takes nothing away: its shard stays (`on_reserved`).
        let lies_still = self.moves.values().all(|it| !it.is_published);
        if self.ends.are_complete && (lies_still || mutants::is_on("jobs-end-while-shards-move")) {
            self.end(Ok(()));
        }
    }

    pub(crate) fn on_failed(&mut self, from: WorkerId, failed: &Failed<'_>) {
        if JobKey::new(failed.job, failed.generation) == self.key {
            let failure = format!("on worker {from}: {}", failed.failure);
            self.end(Err(failure));
        }
    }

    /// Ends the job for a reason that is nobody's failure: a user's wish, or a worker that is gone.
    pub fn cancel(&mut self, why: impl Into<String>) {
        self.end(Err(why.into()));
    }

    /// A worker is lost. Unless it never had anything of the job, this generation cannot go on ([`ControllerEffect::Lost`]): whoever runs this machine
    /// [ends](Controller::cancel) it, or begins the job again. A job that has ended well is lost with what its client has not fetched. `process` tells a
    /// reader which worker that was.
    pub fn lose(&mut self, worker: WorkerId, process: &str, how: WorkerLoss) {
        let held = self.held(worker);
        match self.ends.over {
            Some(Err(_)) => return,
            Some(Ok(())) if held == 0 => return,
            Some(Ok(())) => {}
            // A worker that never held a shard takes nothing of the job along.
            None if self.can_spare(worker) => return self.spare(worker),
            None => {}
        }
        let why = match how {
            WorkerLoss::Ended => format!(
                "worker {worker} ({process}) is gone, and with it {held} of the job's shards"
            ),
            WorkerLoss::CutOff => format!(
                "the controller cannot reach worker {worker} ({process}), whose machine has acknowledged nothing for {} s, and with it \
                 {held} of the job's shards are lost",
                ACKNOWLEDGED_WITHIN.as_secs()
            ),
        };
        let loss = ShardLoss {
            worker,
            why,
            way_out: how.way_out(),
            held: self.savers().clone(),
        };
        self.effects.push(ControllerEffect::Lost(loss));
    }

    /// How many shards a worker holds, as of the newest versions.
    pub fn held(&self, worker: WorkerId) -> u32 {
        let here = self
            .map
            .entries()
            .filter(|range| range.entry.owner == worker);
        here.map(|range| range.end - range.first).sum()
    }

    /// Tells every worker, once.
    fn end(&mut self, over: Result<(), String>) {
        if self.is_over() {
            return;
        }
        let failure = over.as_ref().err().cloned();
        // Noted before the workers are told: from now on `join` tells newcomers, too.
        self.ends.over = Some(over);
        for to in self.workers.keys().copied().collect::<Vec<_>>() {
            self.tell_end(to);
        }
        self.effects.push(ControllerEffect::Ended { failure });
    }

    /// Tells a worker that the job is over, if it is.
    pub(crate) fn tell_end(&mut self, to: WorkerId) {
        if let Some(over) = self.ends.over.clone() {
            let ended = Ended {
                job: self.key.job,
                generation: self.key.generation,
                failure: over.as_ref().err().map(String::as_str),
            };
            self.send(to, &Body::Ended(ended));
        }
    }
}
