//! Owns what is known of workers that are gone: how each ended, and how it fared when it last told. The registry calls it when it buries a worker, and when whoever
//! started a process has seen how that ended. It decides nothing.
//!
//! # Rules
//! * The last [`DEATHS`] are remembered. A worker that was drained is no death.
//! * A link that is lost may be all that is known of a death. Whoever started the process may tell more later: the record is corrected.

use super::{Registry, Worker};
use crate::{ShardLoss, WorkerLoss};
use brambling_protocol::WorkerId;
use brambling_protocol::message::{Death, DeathKind};
use brambling_protocol::patience::ACKNOWLEDGED_WITHIN;
use std::collections::VecDeque;
use std::time::Duration;

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

/// The last deaths, the newest last, and when each was.
#[derive(Default)]
pub(super) struct Deaths(VecDeque<(Duration, Death)>);

impl Deaths {
    fn last_of(&self, worker: WorkerId) -> Option<&Death> {
        let of_it = self.0.iter().rev().find(|(_, it)| it.worker == worker);
        of_it.map(|(_, death)| death)
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
        let mut deaths = self.deaths.0.iter_mut().rev().map(|(_, death)| death);
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
        let death = Death {
            worker: id,
            host: worker.host.clone(),
            pid: worker.pid,
            kind: cause.kind,
            cause: cause.in_words,
            oom: cause.oom,
            memory_bytes: worker.load.memory_bytes,
            stage: (worker.stuck.first())
                .map(|it| it.stage.clone())
                .filter(|stage| !stage.is_empty()),
            silent_ms: silent.as_millis() as u64,
            ago_ms: 0,
        };
        self.deaths.0.push_back((now, death));
        let old = self.deaths.0.len().saturating_sub(DEATHS);
        self.deaths.0.drain(..old);
    }

    /// The last deaths, the newest last.
    pub(super) fn last_deaths(&self) -> Vec<Death> {
        let deaths = self.deaths.0.iter();
        let deaths = deaths.map(|(at, death)| Death {
            ago_ms: self.now.saturating_sub(*at).as_millis() as u64,
            ..death.clone()
        });
        deaths.collect()
    }

    /// A loss with what is known of the worker's end, where that says more than the loss does.
    pub(super) fn explained(&self, loss: ShardLoss) -> ShardLoss {
        let Some(death) = self.deaths.last_of(loss.worker) else {
            return loss;
        };
        let way_out = match death.kind {
            DeathKind::LinkClosed | DeathKind::MachineCutOff => return loss,
            DeathKind::FencedCutOff => WorkerLoss::CutOff.way_out(),
            _ => loss.way_out,
        };
        ShardLoss {
            why: format!("{}: {}", loss.why, death.cause),
            way_out,
            ..loss
        }
    }
}
