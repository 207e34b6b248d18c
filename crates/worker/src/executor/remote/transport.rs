//! Owns what a job asks of whoever carries its frames, and what it is given as a member of a
//! cluster. The process that hosts the job implements it.

use crate::executor::failure::Failure;
use crate::node::Node;
use brambling_program::ShardId;
use brambling_protocol::frame::Packet;
use brambling_protocol::{Priority, Version, WorkerId};
use std::sync::Arc;

/// Carries frames to other workers and to the controller.
pub trait Transport: Send + Sync {
    /// Sends whole frames, each to a peer. Called from any thread; it must not wait for peers, and may lose frames only
    /// together with their connection: a new one is greeted by [`Job::on_reconnect`](crate::executor::Job::on_reconnect).
    fn send(&self, frames: Vec<(WorkerId, Priority, Packet)>);
    /// Takes what has come and hands it to the job; whether anything came or went. Called by threads that have nothing else to do,
    /// again and again.
    fn poll(&self) -> bool {
        false
    }
    /// Takes what has come, too. Called by threads between two tasks, not too often.
    fn look(&self) {}
    /// A thread that polled does so no longer: it goes to sleep.
    fn rest(&self) {}
    /// It has woken.
    fn resume(&self) {}
    /// A worker has left the job: its link is not needed any more.
    fn forget(&self, _worker: WorkerId) {}
    /// A failure of this worker's as the cluster should read it.
    fn explain(&self, failure: &Failure) -> String {
        failure.to_string()
    }
}

/// This worker's part in a job of a cluster.
pub struct Membership {
    /// Its node, with no shard here yet.
    pub node: Node,
    /// What carries its frames.
    pub carrier: Arc<dyn Transport>,
    /// The shards that start here, with the versions of their entries.
    pub placed: Vec<(ShardId, Version)>,
}
