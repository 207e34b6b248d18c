//! What has happened in a cluster since its registry began, and how regularly its workers tell how they fare.

use super::drains::Drain;
use super::{JobState, PeerLink, Registry, Worker};
use brambling_protocol::patience::HEARTBEAT;
use brambling_protocol::{JobId, WorkerId};
use std::time::Duration;

/// What has happened. Only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClusterCounts {
    /// Jobs that clients have submitted.
    pub submitted: u64,
    /// Jobs that have ended well.
    pub succeeded: u64,
    /// Jobs that have failed, or were ended.
    pub failed: u64,
    /// Tasks that workers have told of.
    pub tasks: u64,
    /// Heartbeats that have come.
    pub heartbeats: u64,
    /// Those that came when at least one was missed since the one before.
    pub heartbeats_late: u64,
    /// Those that did not come when they were due.
    pub heartbeats_missed: u64,
    /// Times a job has begun again because of what it had lost with a worker.
    pub recoveries: u64,
    /// Snapshots of jobs that were taken.
    pub snapshots: u64,
    /// Workers that are gone without having been drained.
    pub workers_lost: u64,
}

/// How many heartbeats are missing in a gap between two, or after the last one.
fn missed(gap: Duration) -> u64 {
    let periods = gap.as_millis() / HEARTBEAT.as_millis();
    periods.saturating_sub(1) as u64
}

impl Registry {
    /// What has happened until now.
    pub fn counts(&self) -> ClusterCounts {
        self.counts
    }

    /// A worker tells how it fares. To be called beside [`Registry::on_message`], which hears what it tells.
    pub fn on_heartbeat(&mut self, from: PeerLink, now: Duration) {
        let Some(worker) = self.worker_of(from) else {
            return;
        };
        self.note_heard(worker, now);
        self.counts.heartbeats += 1;
        if let Some(before) = self.heard.insert(worker, now) {
            let missed = missed(now.saturating_sub(before));
            self.counts.heartbeats_missed += missed;
            self.counts.heartbeats_late += u64::from(missed > 0);
        }
    }

    /// How long a worker has told nothing; none: it never has.
    pub fn silence(&self, worker: WorkerId, now: Duration) -> Option<Duration> {
        let heard = self.heard.get(&worker)?;
        Some(now.saturating_sub(*heard))
    }

    /// A worker's memory budget.
    pub fn memory_limit_bytes(&self, worker: WorkerId) -> u64 {
        let worker = self.workers.get(&worker);
        worker.map_or(0, |worker| worker.memory_bytes)
    }

    /// A worker takes no part any more.
    pub(super) fn count_gone(&mut self, id: WorkerId, worker: &Worker, now: Duration) {
        let heard = self.heard.remove(&id);
        if worker.drain == Drain::Done {
            return;
        }
        self.counts.workers_lost += 1;
        let silence = heard.map_or(Duration::ZERO, |heard| now.saturating_sub(heard));
        self.counts.heartbeats_missed += missed(silence);
    }

    /// A job is to have ended from now on, well or not. To be called while it has not, and may be called again.
    pub(super) fn count_end(&mut self, job: JobId, is_well: bool) {
        let state = self.jobs.get(&job).map(|job| job.state);
        if let Some(JobState::Queued | JobState::Running) = state {
            self.counts.succeeded += u64::from(is_well);
            self.counts.failed += u64::from(!is_well);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_of_two_periods_lacks_one_heartbeat() {
        for (gap_ms, expected) in [(0, 0), (300, 0), (499, 0), (500, 1), (749, 1), (2_500, 9)] {
            assert_eq!(missed(Duration::from_millis(gap_ms)), expected, "{gap_ms}");
        }
    }
}
