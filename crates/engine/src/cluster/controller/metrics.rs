//! What a controller's metrics show: what its registry and its jobs' machines know, copied under their lock and written without it.

use super::super::metrics::{MetricsEndpoint, MetricsListener, Text, carried, process, table};
use super::super::{ClusterError, JobState, Status, WorkerId, WorkerStatus};
use super::{Controller, ControllerProcess, ControllerShared, Traffic};
use brambling_controller::registry::ClusterCounts;
use brambling_exchange::transports::tcp::Carried;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Moves of shards that have ended.
#[derive(Clone, Copy, Default)]
pub(super) struct EndedMoves {
    pub(super) arrived: u64,
    pub(super) refused: u64,
}

/// A worker, beside its status.
struct Member {
    status: WorkerStatus,
    memory_limit_bytes: u64,
    silence: Option<Duration>,
}

/// How a cluster fares, at one moment.
struct Survey {
    members: Vec<Member>,
    queued: usize,
    running: usize,
    term: u32,
    /// Those that are not over: name, generation, and age of the last snapshot.
    jobs: Vec<(String, u64, Option<u64>)>,
    counts: ClusterCounts,
    moves: EndedMoves,
    moving: usize,
    traffic: Traffic,
    carried: Carried,
}

impl ControllerProcess {
    /// Serves what it counts to Prometheus, until what this gives is dropped or the controller ends. Whoever reaches the listener reads it:
    /// there is no token.
    ///
    /// # Errors
    /// When the system gives no thread or poll.
    pub fn serve_metrics(
        &self,
        listener: MetricsListener,
    ) -> Result<MetricsEndpoint, ClusterError> {
        let shared = Arc::downgrade(&self.shared);
        MetricsEndpoint::start(listener, move || {
            let survey = Survey::take(&*shared.upgrade()?);
            let mut text = Text::default();
            process(&mut text, "controller");
            survey.write(&mut text);
            Some(text.finish())
        })
    }
}

impl Survey {
    fn take(shared: &ControllerShared) -> Survey {
        let mut state = shared.state();
        let now = state.now(shared);
        let (registry, jobs) = (&state.registry, &state.jobs);
        let held = |job, worker: WorkerId| {
            let machine = jobs.get(&job);
            machine.map_or(0, |machine: &Controller| machine.held(worker))
        };
        let Status {
            workers,
            jobs: all,
            term,
            ..
        } = registry.status(held);
        let member = |status: WorkerStatus| Member {
            memory_limit_bytes: registry.memory_limit_bytes(status.id),
            silence: registry.silence(status.id, now),
            status,
        };
        let of = |state| all.iter().filter(|job| job.state == state).count();
        Survey {
            members: workers.into_iter().map(member).collect(),
            term,
            jobs: (all.iter())
                .filter(|job| matches!(job.state, JobState::Queued | JobState::Running))
                .map(|job| (job.id.to_string(), job.generation.0, job.snapshot_age_ms))
                .collect(),
            queued: of(JobState::Queued),
            running: of(JobState::Running),
            counts: registry.counts(),
            moves: state.moves,
            moving: jobs.values().map(Controller::moving).sum(),
            traffic: Traffic {
                heard: shared.heard.load(Ordering::Relaxed),
                said: shared.said.load(Ordering::Relaxed),
            },
            carried: shared.board().carried(),
        }
    }

    fn write(&self, text: &mut Text) {
        carried(text, self.carried);
        self.write_members(text);
        self.write_counts(text);
        let mut moves = text.family(&table::MOVES);
        moves.add(&["arrived"], self.moves.arrived);
        moves.add(&["refused"], self.moves.refused);
        text.one(&table::MOVES_IN_FLIGHT, self.moving);
        let mut messages = text.family(&table::CONTROLLER_MESSAGES);
        messages.add(&["received"], self.traffic.heard);
        messages.add(&["sent"], self.traffic.said);
    }

    fn write_members(&self, text: &mut Text) {
        let names: Vec<String> = self
            .members
            .iter()
            .map(|it| it.status.id.to_string())
            .collect();
        let named = || names.iter().map(String::as_str).zip(&self.members);
        text.one(&table::WORKERS, self.members.len());
        let mut info = text.family(&table::WORKER_INFO);
        named().for_each(|(name, it)| info.add(&[name, &it.status.host], 1_u32));
        let mut threads = text.family(&table::WORKER_THREADS);
        named().for_each(|(name, it)| threads.add(&[name], it.status.threads));
        let mut shards = text.family(&table::WORKER_SHARDS);
        named().for_each(|(name, it)| shards.add(&[name], it.status.shards));
        let mut memory = text.family(&table::WORKER_MEMORY_BYTES);
        named().for_each(|(name, it)| memory.add(&[name], it.status.memory_bytes));
        let mut limit = text.family(&table::WORKER_MEMORY_LIMIT_BYTES);
        named().for_each(|(name, it)| limit.add(&[name], it.memory_limit_bytes));
        let mut idle = text.family(&table::WORKER_IDLE_RATIO);
        named().for_each(|(name, it)| {
            idle.add(&[name], f64::from(it.status.idle_permille) / 1_000.0);
        });
        let mut silence = text.family(&table::WORKER_SILENCE_SECONDS);
        for (name, it) in named() {
            if let Some(so_long) = it.silence {
                silence.add(&[name], so_long);
            }
        }
    }

    fn write_counts(&self, text: &mut Text) {
        let counts = &self.counts;
        text.one(&table::WORKERS_LOST, counts.workers_lost);
        text.one(&table::RECOVERIES, counts.recoveries);
        text.one(&table::SNAPSHOTS, counts.snapshots);
        text.one(&table::TERM, self.term);
        let mut generations = text.family(&table::JOB_GENERATION);
        for (job, generation, _) in &self.jobs {
            generations.add(&[job], *generation);
        }
        let mut ages = text.family(&table::SNAPSHOT_AGE_SECONDS);
        for (job, _, age_ms) in &self.jobs {
            if let Some(ms) = age_ms {
                ages.add(&[job], *ms as f64 / 1_000.0);
            }
        }
        text.one(&table::HEARTBEATS, counts.heartbeats);
        text.one(&table::HEARTBEATS_LATE, counts.heartbeats_late);
        text.one(&table::HEARTBEATS_MISSED, counts.heartbeats_missed);
        let mut jobs = text.family(&table::JOBS);
        jobs.add(&["queued"], self.queued);
        jobs.add(&["running"], self.running);
        text.one(&table::JOBS_SUBMITTED, counts.submitted);
        let mut ended = text.family(&table::JOBS_ENDED);
        ended.add(&["succeeded"], counts.succeeded);
        ended.add(&["failed"], counts.failed);
        text.one(&table::CLUSTER_TASKS, counts.tasks);
    }
}
