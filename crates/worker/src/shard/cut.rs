//! A shard comes to a cut: it is told of one ahead of it, goes on to there, saves, and goes on.
//!
//! # Why nothing waits for ever
//! At its cut a shard waits for its own stalled instructions that write, and for nothing else. What these wait for stands before the cut in every
//! shard's program, so no shard that waits at the cut holds it up (as for the exchanges' room, waits point backwards only).

use super::{Counter, Shard};
use brambling_memory::mutants;
use brambling_program::{Action, Code, CutAnswer, CutSite, CutTurn, GroupState, Op, StageKind};

/// A cut ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DueCut {
    id: u64,
    site: CutSite,
    turn: CutTurn,
    /// Whether it comes at the end of this very turn, of a loop that a signal ends.
    is_armed: bool,
}

impl Shard {
    /// Tells the shard of a cut, in the loop whose site this is. One at a time.
    pub fn tell_cut(&mut self, code: &Code, id: u64, site: CutSite, turn: CutTurn) -> CutAnswer {
        self.forget_cut(code);
        // Behind its site a shard has gone on to what comes after the loop.
        if self.at > site.op() && !mutants::is_on("past-counts-as-will") {
            return CutAnswer::Past;
        }
        let mut turn = turn;
        if let CutSite::Again { begin, counter, .. } = site {
            let counter = &mut self.counters[counter as usize];
            let is_inside = self.at > begin;
            if turn == CutTurn::Next {
                turn = CutTurn::After(if is_inside { counter.done + 1 } else { 1 });
            }
            if let (CutTurn::After(turns), true) = (turn, is_inside) {
                if counter.done >= turns && !mutants::is_on("past-counts-as-will") {
                    return CutAnswer::Past;
                }
                counter.bound = counter.bound.min(turns);
            }
        }
        let is_armed = false;
        self.cut = Some(DueCut {
            id,
            site,
            turn,
            is_armed,
        });
        CutAnswer::Will
    }

    /// The cut is void, or saved: the shard goes on as if it had not been told.
    pub fn forget_cut(&mut self, code: &Code) {
        let Some(cut) = self.cut.take() else { return };
        if let CutSite::Again { op, counter, .. } = cut.site
            && let Op::Again { turns, .. } = code.ops[op as usize]
        {
            self.counters[counter as usize].bound = turns;
        }
    }

    /// The instruction at which it stands.
    pub fn at(&self) -> u32 {
        self.at
    }

    /// Where it stands, as all shards of its group do at a cut.
    pub fn group_state(&self) -> GroupState {
        GroupState {
            at: self.at,
            entered: self.entered.to_vec(),
            counters: self.counters.iter().map(|it| it.done).collect(),
        }
    }

    /// A counted loop begins.
    pub(super) fn begin_loop(&mut self, counter: u32, turns: u64) {
        let bound = match self.cut {
            Some(DueCut {
                site: CutSite::Again { counter: its, .. },
                turn: CutTurn::After(after),
                ..
            }) if its == counter => after.min(turns),
            _ => turns,
        };
        self.counters[counter as usize] = Counter { done: 0, bound };
    }

    /// The cut comes at the end of this turn. False where the shard has not been told of it.
    pub(super) fn arm(&mut self, id: u64) -> bool {
        let at = self.at;
        let is_it = |cut: &&mut DueCut| {
            cut.id == id && matches!(cut.site, CutSite::Jump { test, .. } if test == at)
        };
        let cut = self.cut.as_mut().filter(is_it);
        cut.map(|cut| cut.is_armed = true).is_some()
    }

    /// Whether it stands where it has to save.
    #[inline]
    pub(super) fn is_at_cut(&self) -> bool {
        self.cut
            .is_some_and(|cut| cut.site.op() == self.at && self.is_due(cut))
    }

    #[cold]
    fn is_due(&self, cut: DueCut) -> bool {
        match (cut.site, cut.turn) {
            (CutSite::Again { counter, .. }, CutTurn::After(turns)) => {
                self.counters[counter as usize].done + 1 == turns
            }
            (CutSite::Jump { .. }, _) => cut.is_armed,
            (CutSite::Await { .. }, _) => true,
            (CutSite::Again { .. }, CutTurn::Signalled | CutTurn::Next) => false,
        }
    }

    /// Whether something that stalls has still to write what is saved, or to decide. What only reads may run after the save: who takes what it sends has
    /// it before its own cut.
    pub(super) fn has_stalled_writers(&self, code: &Code) -> bool {
        let writes = |task: u32| {
            let task = &code.tasks[task as usize];
            let decides = task.action == Action::Stage(StageKind::Signal);
            decides || task.wants_cells || task.kernel.is_none() || !task.writes_cells.is_empty()
        };
        self.window.iter().any(|it| writes(it.task)) && !mutants::is_on("saves-early")
    }
}
