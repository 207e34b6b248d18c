//! Kernels that run on though their jobs are over: they are interrupted, then told, and at last they end their worker.
//!
//! A job that is over is cancelled, and ends when its kernels return. One that does not return keeps a thread of the job's, or of the pool,
//! and takes its share of the processor, and of an interpreter's lock, from the jobs that come. From outside a process nobody can end it but by ending the
//! process.

use super::hosted::Hosted;
use super::{State, WorkerEnd, WorkerShared};
use brambling_protocol::message::StuckKernel;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a kernel is interrupted: first after as long, since most return by themselves, and again because some ignore it.
const INTERRUPTS: Duration = Duration::from_secs(1);
/// A kernel that still runs then is told of.
const TOLD_AFTER: Duration = Duration::from_secs(5);
/// How often is looked whether kernels have returned.
const LOOKS: Duration = Duration::from_millis(100);

/// A job that is over and still runs here.
pub(super) struct Overdue {
    hosted: Arc<Hosted>,
    since: Instant,
    interrupted: Instant,
    /// Whether the worker's log has it.
    is_logged: bool,
}

impl Overdue {
    /// What is told of it, once it has run on for long.
    fn stuck(&self, shared: &WorkerShared, now: Instant) -> Option<StuckKernel> {
        let over = now.saturating_duration_since(self.since);
        (over >= TOLD_AFTER).then(|| StuckKernel {
            key: self.hosted.key(),
            stage: shared
                .source
                .kernel(self.hosted.prints())
                .unwrap_or_default(),
            seconds: over.as_secs(),
        })
    }
}

impl WorkerShared {
    /// Jobs are over here: those that still run are looked after.
    pub(super) fn watch_end(&self, jobs: impl IntoIterator<Item = Arc<Hosted>>) {
        let running = jobs.into_iter().filter(|job| job.runs());
        let now = Instant::now();
        let overdue = running.map(|hosted| Overdue {
            hosted,
            since: now,
            interrupted: now,
            is_logged: false,
        });
        self.state().overdue.extend(overdue);
        self.news.notify_all();
    }

    /// The thread that interrupts kernels.
    pub(super) fn end_overdue(&self) {
        let mut state = self.state();
        while state.end.is_none() {
            state.overdue.retain(|it| it.hosted.runs());
            let now = Instant::now();
            let due = |it: &&mut Overdue| now - it.interrupted >= INTERRUPTS;
            let due: Vec<Arc<Hosted>> = (state.overdue.iter_mut().filter(due))
                .map(|it| {
                    it.interrupted = now;
                    it.hosted.clone()
                })
                .collect();
            if !due.is_empty() {
                drop(state);
                due.iter().for_each(|it| self.source.interrupt(it.prints()));
                state = self.state();
                continue;
            }
            state = match state.overdue.is_empty() {
                true => state.wait(&self.news),
                false => state.wait_at_most(&self.news, LOOKS),
            };
        }
    }

    /// What the controller is to hear: as long as kernels run on, and once when they do no more.
    pub(super) fn tell_stuck(&self, state: &mut State, now: Instant) -> Option<Vec<StuckKernel>> {
        let stuck = self.stuck(state, now);
        let was_told = std::mem::replace(&mut state.told_stuck, !stuck.is_empty());
        (was_told || !stuck.is_empty()).then_some(stuck)
    }

    fn stuck(&self, state: &State, now: Instant) -> Vec<StuckKernel> {
        let running = state.overdue.iter().filter(|it| it.hosted.runs());
        running.filter_map(|it| it.stuck(self, now)).collect()
    }

    /// Ends the worker if a kernel has run on for too long.
    pub(super) fn end_if_stuck(&self, state: &mut State, now: Instant) {
        let long = |it: &&Overdue| now - it.since >= self.stuck_kernel && it.hosted.runs();
        let Some(it) = state.overdue.iter().find(long) else {
            return;
        };
        let end = WorkerEnd::Stuck {
            job: it.hosted.key().job,
            stage: self.source.kernel(it.hosted.prints()).unwrap_or_default(),
            after: self.stuck_kernel,
        };
        state.end.get_or_insert(end);
        self.news.notify_all();
    }

    /// What the worker's log does not have yet: kernels that run on, and shards that a task keeps from moving.
    pub(super) fn stuck_news(&self) -> Vec<String> {
        let jobs: Vec<Arc<Hosted>> = self.state().jobs.values().cloned().collect();
        let mut news: Vec<String> = jobs.iter().flat_map(|job| job.kept_news()).collect();
        let mut state = self.state();
        let now = Instant::now();
        for it in state.overdue.iter_mut().filter(|it| !it.is_logged) {
            if let Some(StuckKernel {
                key,
                stage,
                seconds,
            }) = it.stuck(self, now)
            {
                it.is_logged = true;
                news.push(format!(
                    "{} of job {key} runs on, {seconds} s after the job's end, and cannot be interrupted; this worker gets no shards meanwhile, and \
                     ends {} s after the job's end",
                    kernel(&stage),
                    self.stuck_kernel.as_secs_f64()
                ));
            }
        }
        news
    }
}

/// A kernel by its stage, if that is known.
pub(super) fn kernel(stage: &str) -> String {
    match stage {
        "" => "a kernel".to_owned(),
        stage => format!("the kernel of stage `{stage}`"),
    }
}

impl std::fmt::Display for WorkerEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WorkerEnd::Asked => f.write_str("it was asked to"),
            WorkerEnd::Drained => f.write_str("it was drained: it holds nothing"),
            WorkerEnd::Stuck { job, stage, after } => write!(
                f,
                "{} of job {job} ran on for {} s after the job's end, and nothing else ends it",
                kernel(stage),
                after.as_secs_f64()
            ),
            WorkerEnd::Fenced { why } => write!(
                f,
                "the cluster goes on without it, because {why}; start it again"
            ),
            WorkerEnd::Failed(error) => error.fmt(f),
        }
    }
}
