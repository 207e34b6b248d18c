//! What a shard sees of the world around it, from the thread that runs it.

use crate::executor::job::Job;
use crate::executor::steps::{Step, Way};
use crate::node;
use crate::shard::Surroundings;
use brambling_exchange::in_process::{Heard, Mark};
use brambling_program::{ExchangeId, LoopId, ShardId, StageId, Turn};

/// What a shard of this process sees.
pub(super) struct Around<'a, 's> {
    pub(super) job: &'a Job,
    pub(super) number: u32,
    pub(super) index: u32,
    pub(super) thread: u32,
    pub(super) lacks: &'s mut Vec<Lack<'a>>,
}

/// What a stalled gather lacks.
#[derive(Clone, Copy)]
pub(in crate::executor) struct Lack<'a> {
    pub(in crate::executor) exchange: ExchangeId,
    pub(in crate::executor) turn: Turn,
    /// Number of the source's shard.
    pub(in crate::executor) source: u32,
    pub(in crate::executor) mark: Mark<'a>,
}

impl<'a> Around<'a, '_> {
    fn shard(&self) -> ShardId {
        self.job.residents[self.number as usize].id()
    }

    /// Whether a step has what it needs from elsewhere.
    #[inline(always)]
    pub(super) fn is_ready(&mut self, step: &Step, turn: Turn) -> bool {
        match step.way {
            Way::Plain | Way::Signal => true,
            Way::Scatter(id, source) => source.has_seen_room(turn) || self.has_room(id, turn),
            Way::Gather(id, destination) => self.is_all((id, turn), destination.heard(turn)),
            Way::ScatterOtherwise(id) => self.has_room(id, turn),
            Way::GatherOtherwise(id) => self.is_complete(id, turn),
        }
    }

    /// Whether all has been heard; what lacks is noted.
    #[inline(always)]
    fn is_all(&mut self, (exchange, turn): (ExchangeId, Turn), heard: Heard<'a>) -> bool {
        match heard {
            Heard::All => true,
            Heard::Missing { mark: None, .. } => false,
            Heard::Missing {
                source,
                mark: Some(mark),
            } => {
                self.lacks.push(Lack {
                    exchange,
                    turn,
                    source,
                    mark,
                });
                false
            }
        }
    }

    /// What the job's node says.
    #[inline(never)]
    fn far<R>(&self, ask: impl FnOnce(&mut node::Around<'_>) -> R) -> R {
        self.job.ties().around(self.job, self.shard(), ask)
    }
}

impl Surroundings for Around<'_, '_> {
    #[inline(never)]
    fn is_complete(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        let Some(in_process) = self.job.exchange(exchange) else {
            return self.far(|around| around.is_complete(exchange, turn));
        };
        let heard = in_process.heard(turn, self.index);
        self.is_all((exchange, turn), heard)
    }

    #[inline(never)]
    fn has_room(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        match self.job.exchange(exchange) {
            Some(in_process) => in_process.has_room(turn, self.index),
            None => self.far(|around| around.has_room(exchange, turn)),
        }
    }

    #[inline]
    fn outcome(&mut self, signal: StageId, turn: Turn) -> Option<bool> {
        if let Some(ties) = &self.job.ties {
            let ask = |around: &mut node::Around<'_>| around.outcome(signal, turn);
            return ties.around(self.job, self.shard(), ask);
        }
        let board = self.job.boards[signal.index()]
            .as_ref()
            .expect("a signal has a board");
        board.outcome(turn, self.number as usize)
    }

    fn has_ended(&mut self, outermost: LoopId) -> bool {
        if let Some(ties) = &self.job.ties {
            let ask = |around: &mut node::Around<'_>| around.has_ended(outermost);
            return ties.around(self.job, self.shard(), ask);
        }
        self.job.ends[outermost as usize]
            .outcome(0, self.number as usize)
            .is_some()
    }

    fn announce(&mut self, outermost: LoopId) {
        if let Some(ties) = &self.job.ties {
            return ties.announce(self.job, self.shard(), outermost);
        }
        self.job.ends[outermost as usize]
            .publish(false, |shard| self.job.wake(shard as u32, self.thread));
    }
}
