//! What a shard sees of the world around it, from the thread that runs it.

use super::mail;
use crate::arrivals::Arrivals;
use crate::executor::job::Job;
use crate::executor::steps::{By, Step, Way};
use crate::shard::Surroundings;
use crate::waits::At;
use brambling_exchange::in_process::{Heard, Mark};
use brambling_program::{ExchangeId, LoopId, StageId, Turn};

/// What a shard of this process sees.
pub(super) struct Around<'a, 's> {
    pub(super) job: &'a Job,
    pub(super) number: u32,
    pub(super) index: u32,
    pub(super) thread: u32,
    /// What has come by mail and was taken out of the mailbox.
    pub(super) arrivals: &'s mut Arrivals,
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
    /// Whether a step has what it needs from elsewhere.
    #[inline(always)]
    pub(super) fn is_ready(&mut self, step: &Step, turn: Turn) -> bool {
        match step.way {
            Way::Plain | Way::Signal => true,
            Way::Scatter(id, source) => source.has_seen_room(turn) || self.has_room(id, turn),
            Way::Gather(id, destination) | Way::GatherTied(id, destination) => {
                self.is_all((id, turn), destination.heard(turn))
            }
            Way::ScatterOtherwise(id, _) => self.has_room(id, turn),
            Way::GatherOtherwise(id, by) => self.has_come(id, turn, by),
            Way::Stream(output) => output.is_none_or(|id| self.has_room(id, turn)),
        }
    }

    #[inline(never)]
    fn has_come(&mut self, id: ExchangeId, turn: Turn, by: By) -> bool {
        let at = (id, turn);
        if by == By::Mail {
            return self.arrivals.is_complete(at, self.job) && self.is_back(at);
        }
        let heard = self.job.exchange(id).heard(turn, self.index);
        self.is_all(at, heard)
            && (by == By::Places
                || mail::is_complete(self.job, self.number, self.arrivals, at) && self.is_back(at))
    }

    /// Whether nothing of a complete turn is to be read back: else the shard is woken when something was.
    fn is_back(&mut self, at: At) -> bool {
        let waker = || self.job.looks(self.number);
        self.arrivals.is_back(at, &self.job.waits, waker)
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
}

impl Surroundings for Around<'_, '_> {
    #[inline(never)]
    fn is_complete(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        let by = self.job.gathers_by(exchange, self.number);
        self.has_come(exchange, turn, by)
    }

    #[inline(never)]
    fn has_room(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        self.job.exchange(exchange).has_room(turn, self.index)
    }

    #[inline]
    fn outcome(&mut self, signal: StageId, turn: Turn) -> Option<bool> {
        let board = self.job.board(signal);
        board.outcome(turn, self.number as usize)
    }

    fn has_ended(&mut self, outermost: LoopId) -> bool {
        self.job.ends[outermost as usize]
            .outcome(0, self.number as usize)
            .is_some()
    }

    fn announce(&mut self, outermost: LoopId) {
        let job = self.job;
        let end = &job.ends[outermost as usize];
        let wake = |shard| job.wake(shard as u32, self.thread);
        match &job.ties {
            None => end.publish(false, wake),
            Some(ties) => {
                end.learn(0..1, false, wake);
                ties.announce(job, outermost);
            }
        }
    }
}
