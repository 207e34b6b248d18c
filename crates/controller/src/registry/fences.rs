//! Owns who was given up, and refuses them from then on. The registry asks it about whoever speaks.
//!
//! # Rules
//! * A worker that has told nothing for the [setting](Registry::with_silence) is fenced, and so is one of two that [cannot reach each other](super::silence).
//! * Fenced is a process, known by its epoch, not a name or a link. It is buried as if it had died, and hears of it when it speaks: on any link, and however often. A
//!   process that is started again is another one.
//! * What it still says changes nothing. What it has of jobs is of generations that are over.

use super::deaths::LossCause;
use super::{OwnedMessage, PeerLink, Registry};
use crate::WorkerLoss;
use brambling_memory::mutants;
use brambling_protocol::WorkerId;
use brambling_protocol::message::{DeathKind, Message};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// So many fenced processes are remembered. One that was forgotten comes as a worker that nobody knows, and drops what it has: no job has it as a member.
const FENCED_MAX: usize = 1_000;

/// Processes that are refused.
#[derive(Default)]
pub(super) struct Fences {
    /// By their epochs, with the reason.
    processes: VecDeque<(u64, String)>,
    /// Links of theirs.
    links: BTreeMap<PeerLink, u64>,
}

impl Fences {
    /// Why a process was fenced, if it was.
    pub(super) fn why(&self, epoch: u64) -> Option<&str> {
        let mut processes = self.processes.iter();
        let it = processes.find(|(fenced, _)| *fenced == epoch);
        it.map(|(_, why)| &why[..])
    }

    /// A link is lost.
    pub(super) fn forget(&mut self, link: PeerLink) {
        self.links.remove(&link);
    }
}

impl Registry {
    /// The same, which fences workers that have told nothing for so long.
    #[must_use]
    pub fn with_silence(mut self, silence: Duration) -> Registry {
        self.silence = silence;
        self
    }

    /// Workers that have told nothing for too long are given up. One without a link is lost sooner.
    pub(super) fn fence_silent(&mut self) {
        let workers = self.workers.iter();
        let silent = workers.filter(|(_, it)| it.caller.is_some());
        let silent = silent.filter(|(_, it)| self.silent_for(it) >= self.silence);
        for id in silent.map(|(id, _)| *id).collect::<Vec<_>>() {
            let cause = format!(
                "it told nothing for {} s, so the controller has given it up",
                self.silence.as_secs_f64()
            );
            self.fence(id, DeathKind::FencedSilent, cause);
        }
    }

    /// Gives a worker up.
    pub(super) fn fence(&mut self, id: WorkerId, kind: DeathKind, in_words: String) {
        let worker = self.workers.get_mut(&id).expect("the caller saw it");
        // What it has lost is told by the reason below, not by its link.
        worker.loss = WorkerLoss::Ended;
        let (epoch, caller) = (worker.epoch, worker.caller);
        self.fences.processes.push_back((epoch, in_words.clone()));
        let old = self.fences.processes.len().saturating_sub(FENCED_MAX);
        self.fences.processes.drain(..old);
        if let Some(caller) = caller {
            self.turn_away(caller, epoch);
        }
        let oom = None;
        let cause = LossCause {
            kind,
            oom,
            in_words,
        };
        self.bury(id, self.now, cause);
    }

    /// Tells a fenced process that it is, if it is; what it says on that link from now on is no worker's.
    pub(super) fn turn_away(&mut self, from: PeerLink, epoch: u64) -> bool {
        let why = self.fences.why(epoch).map(str::to_owned);
        let why = why.filter(|_| !mutants::is_on("fenced-workers-are-heard"));
        if let Some(why) = &why {
            self.fences.links.insert(from, epoch);
            let why = why.clone();
            self.tell(from, OwnedMessage::Fenced { why });
        }
        why.is_some()
    }

    /// Whether a message comes from a fenced process. It is told so again when it reports.
    pub(super) fn is_from_fenced(&mut self, from: PeerLink, message: &Message<'_>) -> bool {
        let Some(epoch) = self.fences.links.get(&from).copied() else {
            return false;
        };
        if let Message::Load(_) | Message::Register(_) = message {
            self.turn_away(from, epoch);
        }
        true
    }
}
