//! What whoever looks after a cluster asks of it: what has happened, which snapshots there are, and a snapshot now.

use super::ClusterError;
use super::client::{Cluster, looking, refused};
use crate::Error;
use brambling_protocol::JobId;
use brambling_protocol::message::{ClusterEvent, Message, SnapshotStatus};
use brambling_worker::executor::Caller;
use std::time::{Duration, Instant};

impl Cluster {
    /// What has happened in the cluster after an event of this number; 0: all that its controller still knows. The oldest come first, some hundreds at a time:
    /// ask again after the last.
    ///
    /// # Errors
    /// When the controller is gone or does not answer.
    pub fn events(&self, after: u64) -> Result<Vec<ClusterEvent>, ClusterError> {
        let question = Message::AskEvents(after);
        self.ask(question, self.answers_soon(), |answer| match answer {
            Message::Events(events) => Some(Ok(events)),
            // Of an earlier conversation that was broken off.
            _ => None,
        })
    }

    /// The snapshots that there are of jobs that somebody asks for.
    ///
    /// # Errors
    /// When the controller is gone or does not answer.
    pub fn snapshots(&self) -> Result<Vec<SnapshotStatus>, ClusterError> {
        let question = Message::AskSnapshots;
        self.ask(question, self.answers_soon(), |answer| match answer {
            Message::Snapshots(snapshots) => Some(Ok(snapshots)),
            _ => None,
        })
    }

    /// Saves a job at its next cut, and gives the cut's number when there is a snapshot. `caller` is asked for interruptions, which leave the order as it is.
    ///
    /// # Errors
    /// When there is no such job, or it is not saved, or it is not saved after so long; or what became of the cluster.
    pub fn snapshot(
        &self,
        job: JobId,
        patience: Duration,
        caller: &mut dyn Caller,
    ) -> Result<u64, Error> {
        let deadline = Instant::now() + patience;
        let mut interrupted = looking(caller);
        let look = || {
            if Instant::now() >= deadline {
                let after = patience;
                return Err(ClusterError::NotSaved { job, after }.into());
            }
            interrupted()
        };
        self.ask(Message::Snapshot(job), look, |answer| match answer {
            Message::Snapshotted { job: it, cut } if it == job => Some(Ok(cut)),
            Message::Refused { why } => Some(Err(refused(why).into())),
            _ => None,
        })
    }
}
