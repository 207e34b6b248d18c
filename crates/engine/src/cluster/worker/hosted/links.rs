//! A job's links on a worker: what it says to its peers, and what they say to it.

use super::super::WorkerShared;
use brambling_exchange::transports::switchboard::{Party, PartyRefusal};
use brambling_exchange::transports::tcp::ReadTarget;
use brambling_protocol::frame::{Incoming, Packet};
use brambling_protocol::message::CutOff;
use brambling_protocol::{JobKey, Priority, Sequence, WorkerId};
use brambling_worker::executor::{Failure, Job, Transport};
use std::sync::Weak;
use std::time::Duration;

/// Carries a job's frames.
pub(super) struct JobTransport {
    pub(super) key: JobKey,
    pub(super) shared: Weak<WorkerShared>,
}

impl Transport for JobTransport {
    fn send(&self, frames: Vec<(WorkerId, Priority, Packet)>) {
        if let Some(shared) = self.shared.upgrade() {
            let frames = frames.into_iter();
            shared
                .board()
                .send(self.key, frames.map(|(to, _, frame)| (to, frame)));
        }
    }
    fn poll(&self) -> bool {
        let shared = self.shared.upgrade();
        shared.is_some_and(|shared| shared.board().poll())
    }
    fn look(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.board().look();
        }
    }
    fn rest(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.board().rest();
        }
    }
    fn resume(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.board().resume();
        }
    }
    fn forget(&self, worker: WorkerId) {
        if let Some(shared) = self.shared.upgrade() {
            shared.board().forget(self.key, worker);
        }
    }
    fn explain(&self, failure: &Failure) -> String {
        let Some(shared) = self.shared.upgrade() else {
            return failure.to_string();
        };
        let hosted = shared.state().jobs.get(&self.key).cloned();
        match hosted {
            Some(hosted) => hosted.explain(&*shared.source, failure),
            None => shared.source.explain(failure),
        }
    }
}

/// A job's side of its links.
pub(super) struct Side {
    pub(super) key: JobKey,
    pub(super) job: Weak<Job>,
    pub(super) shared: Weak<WorkerShared>,
}

impl Party for Side {
    fn received(&self, peer: WorkerId) -> Sequence {
        let job = self.job.upgrade();
        job.map_or(0, |job| job.received(peer))
    }
    fn on_reconnect(&self, peer: WorkerId, received: Sequence) -> Result<(), PartyRefusal> {
        match self.job.upgrade() {
            Some(job) => Ok(job.on_reconnect(peer, received)?),
            None => Err("the job is over here".into()),
        }
    }
    fn place(&self, _peer: WorkerId, begun: &[u8]) -> Option<ReadTarget> {
        self.job.upgrade()?.place(begun)
    }
    fn on_frame(&self, peer: WorkerId, frame: Incoming<'_>) -> Result<(), PartyRefusal> {
        match self.job.upgrade() {
            Some(job) => Ok(job.on_frame(peer, frame)?),
            None => Ok(()),
        }
    }
    fn on_cut_off(&self, peer: WorkerId, so_long: Duration, why: &str) {
        // Its own link to the controller tells this worker of that.
        if peer == WorkerId::CONTROLLER {
            return;
        }
        if let Some(shared) = self.shared.upgrade() {
            shared.say_cut_off(CutOff {
                key: self.key,
                peer,
                for_ms: so_long.as_millis() as u64,
                why,
            });
        }
    }
}
