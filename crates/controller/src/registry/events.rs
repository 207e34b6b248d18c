//! What happens in a cluster, for those who look after it: each thing once, in order.

use super::{Order, Registry};
use brambling_protocol::message::{ClusterEvent, EventKind};
use brambling_protocol::{JobKey, WorkerId};

impl Registry {
    /// Something has happened. Whoever runs the registry gives it its number and its time.
    pub(super) fn note(&mut self, event: ClusterEvent) {
        self.orders.push(Order::Note(event));
    }

    pub(super) fn note_worker(&mut self, kind: EventKind, worker: WorkerId, cause: Option<String>) {
        self.note(ClusterEvent {
            worker: Some(worker),
            cause,
            ..ClusterEvent::of(kind)
        });
    }

    pub(super) fn note_job(&mut self, kind: EventKind, key: JobKey, cause: Option<String>) {
        let cut = self.jobs.get(&key.job).and_then(|job| job.snapshots.last());
        let cut = cut.copied().filter(|_| kind == EventKind::JobBegun);
        self.note(ClusterEvent {
            job: Some(key),
            cut,
            cause,
            ..ClusterEvent::of(kind)
        });
    }
}
