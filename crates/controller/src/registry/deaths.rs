//! Owns what is known of workers that are gone: how each ended, and how it fared when it last told. The registry calls it when it buries a worker, and when whoever
//! started a process has seen how that ended. It decides nothing.
//!
//! # Rules
//! * The last [`DEATHS`] are remembered. A worker that was drained is no death.
//! * Of each is kept what its threads ran when it last told: tasks that run may have killed it.
//! * A link that is lost may be all that is known of a death. Whoever started the process may tell more later: the record is corrected.

use super::{Registry, Worker};
use crate::{ShardLoss, WorkerLoss};
use brambling_protocol::message::{Death, DeathKind, RunningTask};
use brambling_protocol::patience::ACKNOWLEDGED_WITHIN;
use brambling_protocol::{JobKey, WorkerId};
use std::collections::VecDeque;
use std::time::Duration;

/// So many of the tasks that a worker ran when it died are told.
const TOLD_TASKS: usize = 3;

/// So many deaths are remembered.
pub const DEATHS: usize = 20;

/// How a process has ended, as whoever started it has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessEnd {
    /// Which.
    pub pid: u32,
    /// A signal or an exit code; none: not known.
    pub kind: Option<DeathKind>,
    /// Whether the system has killed a process of its control group meanwhile, because memory ran out.
    pub oom: Option<bool>,
}

impl ProcessEnd {
    fn cause(&self) -> Option<LossCause> {
        let kind = self.kind?;
        let in_words = match (kind, self.oom) {
            (DeathKind::Signal(9), Some(true)) => {
                "it was killed by signal 9, as the system does when memory runs out, and it has just done so".into()
            }
            (DeathKind::Signal(signal), _) => format!("it was killed by signal {signal}"),
            (DeathKind::Exit(code), _) => format!("it ended with exit code {code}"),
            _ => return None,
        };
        Some(LossCause {
            kind,
            oom: self.oom,
            in_words,
        })
    }
}

/// Why a worker is buried.
pub(super) struct LossCause {
    pub(super) kind: DeathKind,
    pub(super) oom: Option<bool>,
    pub(super) in_words: String,
}

impl LossCause {
    /// All that a lost link tells.
    pub(super) fn of_link(how: WorkerLoss) -> LossCause {
        let (kind, in_words) = match how {
            WorkerLoss::Ended => (DeathKind::LinkClosed, "its link was closed".into()),
            WorkerLoss::CutOff => (
                DeathKind::MachineCutOff,
                format!(
                    "its machine has acknowledged nothing for {} s",
                    ACKNOWLEDGED_WITHIN.as_secs()
                ),
            ),
        };
        let oom = None;
        LossCause {
            kind,
            oom,
            in_words,
        }
    }
}

/// A death, and what else is known of it.
struct RecordedDeath {
    at: Duration,
    death: Death,
    /// What ran when it last told.
    running: Vec<RunningTask>,
}

/// The last deaths, the newest last.
#[derive(Default)]
pub(super) struct Deaths(VecDeque<RecordedDeath>);

impl Deaths {
    fn last_of(&self, worker: WorkerId) -> Option<&RecordedDeath> {
        self.0.iter().rev().find(|it| it.death.worker == worker)
    }

    /// What of a generation of a job ran on a worker that is gone, when that last told.
    pub(super) fn ran(&self, worker: WorkerId, key: JobKey) -> impl Iterator<Item = &RunningTask> {
        let tasks = self.last_of(worker).map(|it| &it.running[..]);
        let tasks = tasks.unwrap_or_default().iter();
        tasks.filter(move |it| it.key == key)
    }

    /// Whether a worker that is gone was given up because it and another could not reach each other.
    pub(super) fn was_cut_off(&self, worker: WorkerId) -> bool {
        let death = self.last_of(worker).map(|it| it.death.kind);
        death == Some(DeathKind::FencedCutOff)
    }
}

impl Registry {
    /// A worker's process has ended, as whoever started it has seen: its link may not tell, if something else keeps that open.
    pub fn on_process_ended(&mut self, end: ProcessEnd, host: &str, now: Duration) {
        let is_it = |(_, it): &(&WorkerId, &Worker)| it.pid == end.pid && it.host == host;
        let ended = self.workers.iter().filter(is_it).map(|(id, _)| *id);
        for id in ended.collect::<Vec<_>>() {
            let cause = end.cause();
            self.bury(
                id,
                now,
                cause.unwrap_or_else(|| LossCause::of_link(WorkerLoss::Ended)),
            );
        }
        self.correct(&end, host);
    }

    /// Of a death nothing was known but that a link was lost.
    fn correct(&mut self, end: &ProcessEnd, host: &str) {
        let mut deaths = self.deaths.0.iter_mut().rev().map(|it| &mut it.death);
        let death = deaths.find(|it| it.pid == end.pid && it.host == host);
        if let (Some(death), Some(cause)) = (death, end.cause())
            && death.kind == DeathKind::LinkClosed
        {
            (death.kind, death.oom, death.cause) = (cause.kind, cause.oom, cause.in_words);
        }
    }

    /// A worker is gone. To be called while it is known when it was heard.
    pub(super) fn record(
        &mut self,
        id: WorkerId,
        worker: &Worker,
        now: Duration,
        cause: LossCause,
    ) {
        let silent = now.saturating_sub(worker.heard_at);
        let running = worker.load.running.clone();
        let stuck = worker.stuck.first().map(|it| &it.stage);
        let stuck = stuck.filter(|stage| !stage.is_empty()).cloned();
        let (stage, partition) = match (stuck, running.first()) {
            (Some(stage), _) => (Some(stage), None),
            (None, Some(task)) => (Some(task.stage.clone()), Some(task.partition)),
            (None, None) => (None, None),
        };
        let death = Death {
            worker: id,
            host: worker.host.clone(),
            pid: worker.pid,
            kind: cause.kind,
            cause: cause.in_words,
            oom: cause.oom,
            memory_bytes: worker.load.memory_bytes,
            stage,
            partition,
            silent_ms: silent.as_millis() as u64,
            ago_ms: 0,
        };
        self.deaths.0.push_back(RecordedDeath {
            at: now,
            death,
            running,
        });
        let old = self.deaths.0.len().saturating_sub(DEATHS);
        self.deaths.0.drain(..old);
    }

    /// The last deaths, the newest last.
    pub(super) fn last_deaths(&self) -> Vec<Death> {
        let deaths = self.deaths.0.iter();
        let deaths = deaths.map(|it| Death {
            ago_ms: self.now.saturating_sub(it.at).as_millis() as u64,
            ..it.death.clone()
        });
        deaths.collect()
    }

    /// A loss with what is known of the worker's end, where that says more than the loss does.
    pub(super) fn explained(&self, loss: ShardLoss, key: JobKey) -> ShardLoss {
        let Some(RecordedDeath { death, .. }) = self.deaths.last_of(loss.worker) else {
            return loss;
        };
        let (mut why, mut way_out) = (loss.why, loss.way_out);
        match death.kind {
            // All that the loss says already.
            DeathKind::LinkClosed | DeathKind::MachineCutOff => {}
            kind => {
                why = format!("{why}: {}", death.cause);
                if kind == DeathKind::FencedCutOff {
                    way_out = WorkerLoss::CutOff.way_out();
                }
            }
        }
        let ran = self.deaths.ran(loss.worker, key);
        let ran = ran.map(|it| format!("stage `{}` of partition {}", it.stage, it.partition));
        let mut ran: Vec<String> = ran.collect();
        if ran.len() > TOLD_TASKS {
            let more = ran.len() - TOLD_TASKS;
            ran.truncate(TOLD_TASKS);
            ran.push(format!("{more} more"));
        }
        if !ran.is_empty() {
            why = format!("{why} (it last ran {})", ran.join(", "));
        }
        ShardLoss {
            why,
            way_out,
            ..loss
        }
    }
}
