//! What happens in a cluster, for those who look after it: each thing once, in order.

use super::Registry;
use brambling_protocol::message::{ClusterEvent, EventKind};
use brambling_protocol::{JobKey, WorkerId};

impl Registry {
    /// What has happened since the last call. Whoever runs the registry gives each its number and its time.
    pub fn take_events(&mut self) -> Vec<ClusterEvent> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn note(&mut self, event: ClusterEvent) {
        self.events.push(event);
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
