//! What all are to hear, handed on from worker to worker.
//!
//! Who has news names everybody who is to hear them. Those are cut into a few parts; the first of each is told, with the rest of its part, and
//! does the same. So however differently workers believe who takes part, everybody who was named is told once, and every list is shorter
//! than the one that it was cut from: nothing goes round.

use super::{Body, Credit, LoopEnd, MapUpdate, SignalOutcome};
use crate::ids::{Generation, JobId, WorkerId};
use brambling_memory::mutants;
use serde::{Deserialize, Serialize};

/// To how many workers one sends news itself, unless it is told otherwise: 584 hear in three steps.
pub const FAN_OUT: usize = 8;
/// A list of hearers names no more workers than this.
pub const HEARERS_MAX: usize = 1 << 16;

/// Something that the receiver takes itself and hands on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Relay {
    /// Who else is to hear it, from the receiver.
    pub to: Hearers,
    /// What.
    pub news: News,
}

/// What can be handed on. New ones are added at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum News {
    /// The outcome of a signal: a hint, which may be lost.
    Signal(SignalOutcome),
    /// News for the partition map, which may not.
    MapUpdate(MapUpdate),
    /// How many turns destinations have retired.
    Credit(Credit),
    /// An outermost loop has ended.
    LoopEnd(LoopEnd),
}

impl News {
    /// Whether it speaks of this generation of this job.
    pub fn is_of(&self, job: JobId, generation: Generation) -> bool {
        match self {
            News::Signal(signal) => (signal.job, signal.generation) == (job, generation),
            News::MapUpdate(update) => (update.job, update.generation) == (job, generation),
            News::Credit(credit) => (credit.job, credit.generation) == (job, generation),
            News::LoopEnd(end) => (end.job, end.generation) == (job, generation),
        }
    }

    /// Whether it may be lost on its way.
    pub fn is_hint(&self) -> bool {
        matches!(self, News::Signal(_))
    }

    /// As it is said to somebody who is to hand it on to nobody.
    pub fn body(&self) -> Body<'static> {
        match self {
            News::Signal(signal) => Body::Signal(*signal),
            News::MapUpdate(update) => Body::MapUpdate(update.clone()),
            News::Credit(credit) => Body::Credit(credit.clone()),
            News::LoopEnd(end) => Body::LoopEnd(*end),
        }
    }

    /// To whom it is said, and how, so that `hearers` all hear it: to no more than `fan_out` of them, if each can name the rest of its part.
    pub fn relayed(
        &self,
        hearers: &[WorkerId],
        fan_out: usize,
    ) -> impl Iterator<Item = (WorkerId, Body<'static>)> {
        let parts = fan_out.max(hearers.len().div_ceil(HEARERS_MAX)).max(1);
        let parts = parts.min(hearers.len());
        let cut = move |part: usize| part * hearers.len() / parts;
        let forgets = mutants::is_on("relay-forgets-its-last-child");
        let count = parts.saturating_sub(usize::from(forgets));
        (0..count).map(move |part| {
            let part = &hearers[cut(part)..cut(part + 1)];
            let rest = match mutants::is_on("relay-goes-round") {
                true => hearers,
                false => &part[1..],
            };
            (part[0], self.to_hand_on(rest))
        })
    }

    fn to_hand_on(&self, rest: &[WorkerId]) -> Body<'static> {
        if rest.is_empty() {
            return self.body();
        }
        Body::Relay(Relay {
            to: rest.iter().copied().collect(),
            news: self.clone(),
        })
    }
}

/// Workers `first..end`, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerRange {
    /// The first.
    pub first: u32,
    /// One past the last.
    pub end: u32,
}

/// Workers, as ranges: each once, in ascending order, no more than [`HEARERS_MAX`]. What somebody else wrote is read only if it is that.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<WorkerRange>")]
pub struct Hearers(Vec<WorkerRange>);

/// Why ranges are no list of hearers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("workers as ranges that ascend, together {HEARERS_MAX} at most")]
pub struct NoHearers;

impl Hearers {
    /// Each of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = WorkerId> + '_ {
        let range = |range: &WorkerRange| (range.first..range.end).map(WorkerId);
        self.0.iter().flat_map(range)
    }
}

impl TryFrom<Vec<WorkerRange>> for Hearers {
    type Error = NoHearers;

    fn try_from(ranges: Vec<WorkerRange>) -> Result<Hearers, NoHearers> {
        let (mut end, mut count) = (0, 0);
        for range in &ranges {
            if range.first < end || range.end <= range.first {
                return Err(NoHearers);
            }
            end = range.end;
            count += u64::from(range.end - range.first);
        }
        match count <= HEARERS_MAX as u64 {
            true => Ok(Hearers(ranges)),
            false => Err(NoHearers),
        }
    }
}

impl FromIterator<WorkerId> for Hearers {
    /// # Panics
    /// When the controller is among them, which hears nothing of this.
    fn from_iter<I: IntoIterator<Item = WorkerId>>(workers: I) -> Hearers {
        let mut workers: Vec<WorkerId> = workers.into_iter().collect();
        workers.sort_unstable();
        workers.dedup();
        let mut ranges: Vec<WorkerRange> = Vec::new();
        for WorkerId(first) in workers {
            assert_ne!(WorkerId(first), WorkerId::CONTROLLER, "no worker");
            match ranges.last_mut() {
                Some(range) if range.end == first => range.end += 1,
                _ => ranges.push(WorkerRange {
                    first,
                    end: first + 1,
                }),
            }
        }
        Hearers(ranges)
    }
}
