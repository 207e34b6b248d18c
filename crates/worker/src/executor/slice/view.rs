//! What a shard sees of the world around it, from the thread that runs it.

use super::mailbox;
use crate::arrivals::Arrivals;
use crate::executor::job::Job;
use crate::executor::steps::{GatherKeeper, Step, StepKind};
use crate::shard::Surroundings;
use crate::waiting::ExchangeTurn;
use brambling_exchange::in_process::{StampRef, TurnStatus};
use brambling_program::{ExchangeId, LoopId, StageId, Turn};

/// What a shard of this process sees.
pub(super) struct ShardView<'a, 's> {
    pub(super) job: &'a Job,
    pub(super) number: u32,
    pub(super) index: u32,
    pub(super) thread: u32,
    /// What has come through the mailbox and was taken out of the mailbox.
    pub(super) arrivals: &'s mut Arrivals,
    pub(super) missing: &'s mut Vec<MissingSource<'a>>,
}

/// What a stalled gather lacks.
#[derive(Clone, Copy)]
pub(in crate::executor) struct MissingSource<'a> {
    pub(in crate::executor) exchange: ExchangeId,
    pub(in crate::executor) turn: Turn,
    /// Number of the source's shard.
    pub(in crate::executor) source: u32,
    pub(in crate::executor) mark: StampRef<'a>,
}

impl<'a> ShardView<'a, '_> {
    /// Whether a step has what it needs from elsewhere.
    #[inline(always)]
    pub(super) fn is_ready(&mut self, step: &Step, turn: Turn) -> bool {
        match step.way {
            StepKind::Plain | StepKind::Signal => true,
            StepKind::Scatter(id, source) => source.has_seen_room(turn) || self.has_room(id, turn),
            StepKind::Gather(id, destination) | StepKind::GatherRemote(id, destination) => {
                self.is_all((id, turn), destination.heard(turn))
            }
            StepKind::ScatterGeneral(id, _) => self.has_room(id, turn),
            StepKind::GatherGeneral(id, by) => self.has_come(id, turn, by),
            StepKind::Stream(output) => output.is_none_or(|id| self.has_room(id, turn)),
        }
    }

    #[inline(never)]
    fn has_come(&mut self, id: ExchangeId, turn: Turn, by: GatherKeeper) -> bool {
        let at = (id, turn);
        if by == GatherKeeper::Mailbox {
            return self.arrivals.is_complete(at, self.job) && self.is_back(at);
        }
        let heard = self.job.exchange(id).heard(turn, self.index);
        self.is_all(at, heard)
            && (by == GatherKeeper::Slots
                || mailbox::is_complete(self.job, self.number, self.arrivals, at)
                    && self.is_back(at))
    }

    /// Whether nothing of a complete turn is to be read back: else the shard is woken when something was.
    fn is_back(&mut self, at: ExchangeTurn) -> bool {
        let waker = || self.job.looks(self.number);
        self.arrivals.is_back(at, &self.job.waits, waker)
    }

    /// Whether all has been heard; what lacks is noted.
    #[inline(always)]
    fn is_all(&mut self, (exchange, turn): (ExchangeId, Turn), heard: TurnStatus<'a>) -> bool {
        match heard {
            TurnStatus::Complete => true,
            TurnStatus::Missing { mark: None, .. } => false,
            TurnStatus::Missing {
                source,
                mark: Some(mark),
            } => {
                self.missing.push(MissingSource {
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

impl Surroundings for ShardView<'_, '_> {
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

    #[inline]
    fn cut_after(&mut self, signal: StageId, turn: Turn) -> Option<u64> {
        let saving = self.job.saving.as_ref()?;
        // A mark of a cut that is void says nothing.
        let marked = self.job.board(signal).cut_after(turn);
        marked.filter(|cut| saving.is_open(*cut))
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
        match &job.remote {
            None => end.publish(false, wake),
            Some(remote) => {
                end.learn(0..1, false, wake);
                remote.announce(job, outermost);
            }
        }
    }
}
