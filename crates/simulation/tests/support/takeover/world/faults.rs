//! What happens to a cluster: its processes crash, stop and wake, are cut off one way or from each other, and its store is full.

use super::super::peers::WorkerProcess;
use super::World;

impl World<'_> {
    pub(super) fn fault(&mut self) {
        match self.chance.below(10) {
            0 | 1 => self.crash_controller(),
            2 => self.stop_controller(),
            3 => self.kill_worker(),
            4 | 5 => self.stop_worker(),
            6 | 7 => self.block(),
            8 => self.part(),
            _ => {
                self.deeds.full += 1;
                self.shelf.full_until = self.now + self.chance.below(5_000);
            }
        }
    }

    fn crash_controller(&mut self) {
        let Some(term) = self.offices.last().map(|it| it.term) else {
            return;
        };
        self.deeds.crashes += 1;
        self.chronicle
            .tell(self.now, format!("term {term} crashes"));
        self.end_office(term);
        self.returns_at = Some(self.now + self.chance.below(3_000));
    }

    /// It runs no code for a while, and another takes over: when it wakes it does not know.
    fn stop_controller(&mut self) {
        let until = self.now + self.chance.below(8_000);
        let Some(office) = self.offices.last_mut() else {
            return;
        };
        self.deeds.stops += 1;
        office.stopped_until = until;
        self.chronicle.tell(
            self.now,
            format!("term {} stops until {until}", office.term),
        );
        self.returns_at = Some(self.now + self.chance.below(3_000));
    }

    fn a_worker(&mut self) -> Option<usize> {
        let up = (0..self.workers.len()).filter(|it| self.workers[*it].runs(self.now));
        self.chance.of(&up.collect::<Vec<_>>())
    }

    fn kill_worker(&mut self) {
        let Some(at) = self.a_worker() else { return };
        self.deeds.workers_killed += 1;
        self.chronicle.tell(self.now, format!("{at}: killed"));
        self.workers[at].exit = Some(9);
        self.workers[at]
            .wire
            .into_iter()
            .for_each(|it| self.cut(it));
    }

    fn stop_worker(&mut self) {
        let Some(at) = self.a_worker() else { return };
        self.deeds.workers_stopped += 1;
        let until = self.now + self.chance.below(9_000);
        self.chronicle
            .tell(self.now, format!("{at}: stopped until {until}"));
        self.workers[at].stopped_until = until;
    }

    /// What one side says does not come through for a while.
    fn block(&mut self) {
        let Some(at) = self.a_worker() else { return };
        let Some(wire) = self.workers[at].wire else {
            return;
        };
        self.deeds.one_way += 1;
        let until = self.now + self.chance.below(7_000);
        match self.chance.one_in(2) {
            true => self.wires[wire].up_blocked = until,
            false => self.wires[wire].down_blocked = until,
        }
    }

    /// Two workers cannot reach each other any more.
    fn part(&mut self) {
        let (Some(one), Some(other)) = (self.a_worker(), self.a_worker()) else {
            return;
        };
        if one != other && self.apart.is_none() {
            self.deeds.cut_off += 1;
            self.chronicle
                .tell(self.now, format!("{one} and {other} are apart"));
            self.apart = Some((one, other));
        }
    }

    /// Both say so now and then, or only one of them, until one has been given up.
    pub(super) fn complain(&mut self) {
        let Some((one, other)) = self.apart else {
            return;
        };
        if [one, other]
            .iter()
            .any(|it| self.workers[*it].exit.is_some())
        {
            self.apart = None;
            return;
        }
        let (from, to) = match self.chance.one_in(3) {
            true => (other, one),
            false => (one, other),
        };
        if self.chance.one_in(40)
            && self.workers[from].runs(self.now)
            && let Some(peer) = self.workers[to].known_as
        {
            self.workers[from].cannot_reach(peer);
        }
    }

    /// Whoever looks after the machines starts a worker in the place of one that has ended.
    pub(super) fn keep_workers(&mut self) {
        let up = self.workers.iter().filter(|it| it.exit.is_none()).count();
        if up < 2 {
            let epoch = 1_000 + self.workers.len() as u64;
            self.workers.push(WorkerProcess::new(epoch));
        }
    }
}
