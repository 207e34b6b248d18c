//! Tasks that are open: they have been called and will be called again, and keep something between the calls.
//!
//! # Rules
//! * A task of a streaming stage is opened at its first call, and closed when it is done or fails, or when its shard leaves. What it kept is dropped then.
//! * One that is *repeatable* is begun anew where its shard arrives: it sends the same chunks under the same numbers, and what came twice is dropped. So its
//!   shard leaves at once. Any other open task keeps its shard here until it is done.

use super::job::{Job, LoadedShard};
use crate::flow::Flow;
use brambling_program::{Code, ExchangeId, Position, StreamSpec, Value};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// By exchange and destination, what waits there; nothing for an exchange that is not streamed.
pub(super) type Flows = Box<[Box<[Arc<Flow>]>]>;

/// A task that is open.
pub(super) struct OpenStreamTask {
    pub(super) at: Position,
    pub(super) stream: Arc<StreamSpec>,
    /// What its kernel keeps.
    pub(super) state: Option<Box<dyn Any + Send>>,
    /// By place among its destinations.
    pub(super) outlets: Vec<Outlet>,
    /// Inputs of which it found nothing at its last call.
    pub(super) missing: Vec<ExchangeId>,
    /// What its destinations are told: see [`Flow::set_busy`].
    pub(super) is_busy: bool,
    /// Whether it found no room at a destination in its last call.
    pub(super) lacks_room: bool,
}

/// What an open task has for one destination.
#[derive(Default)]
pub(super) struct Outlet {
    /// Chunks sent.
    pub(super) chunks: u32,
    /// The next one, while it is written.
    pub(super) begun: Option<Value>,
}

impl OpenStreamTask {
    pub(super) fn new(at: Position, stream: Arc<StreamSpec>, fan_out: u32) -> OpenStreamTask {
        OpenStreamTask {
            at,
            stream,
            state: None,
            outlets: (0..fan_out).map(|_| Outlet::default()).collect(),
            missing: Vec::new(),
            is_busy: false,
            lacks_room: false,
        }
    }

    /// Found no room, or is called again: the job counts such tasks, for whoever tells what its threads wait for.
    pub(super) fn set_lacks_room(&mut self, lacks_room: bool, job: &Job) {
        if std::mem::replace(&mut self.lacks_room, lacks_room) != lacks_room {
            match lacks_room {
                true => job.accounts.lacking_room.fetch_add(1, Ordering::Relaxed),
                false => job.accounts.lacking_room.fetch_sub(1, Ordering::Relaxed),
            };
        }
    }

    /// Whether its shard must stay until it is done.
    pub(super) fn holds(&self) -> bool {
        self.stream.keeps_its_shard()
    }
}

impl LoadedShard {
    /// What must be done before the shard leaves: a task of this stage, which was called here and cannot be begun anew.
    pub(super) fn held_by(&self, code: &Code) -> Option<Position> {
        let open = self.open.iter().find(|it| it.holds());
        let is_anew = |at: &Position| self.open.iter().any(|it| it.at == *at && !it.holds());
        let mut suspended = self.shard.suspended(code);
        open.map(|it| it.at)
            .or_else(|| suspended.find(|at| !is_anew(at)))
    }

    /// The shard leaves: what is open is begun anew where it arrives.
    pub(super) fn close_all(&mut self, job: &Job, code: &Code) {
        for mut open in self.open.drain(..) {
            open.set_lacks_room(false, job);
            if self.shard.complete(code, open.at) {
                job.pending.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}
