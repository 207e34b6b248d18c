//! Signals, models, turns of shards, and what they found.

use super::super::worker::Core;
use super::super::{Nanos, Spread};
use super::{Event, Note, Run};
use brambling_protocol::frame::FAN_OUT;

impl Run<'_> {
    /// The model's shard has folded what came, has stepped, and decides.
    pub(super) fn on_decided(&mut self, now: Nanos) {
        if now > self.began_at {
            self.note_iteration(now - self.decided_at);
        }
        (self.decided_at, self.collected, self.pieces) = (now, 0, 0);
        let enough = self.iteration >= self.scenario.work.iterations;
        self.is_over = enough && self.orders.is_empty();
        self.note_quiet(now);
        self.plant(self.root());
        self.deaf = self.tree.len() as u32 - 1;
        if self.deaf == 0 {
            self.signals.push(0);
        }
        let root = self.root();
        let told = self.hand_on(now, root, Note::Signal(self.iteration));
        if self.is_over {
            return self.finish(now, root);
        }
        self.start_changes(now);
        let sent = self.hand_on(told, root, Note::Model(self.iteration));
        // The thread that sends is busy for so long; the others begin.
        let core = &mut self.workers[root as usize].cores[0];
        if matches!(core, Core::Idle(_)) {
            *core = Core::Called;
            let (worker, core) = (root, 0);
            self.agenda.note(sent, Event::Core { worker, core });
        }
        self.begin_turn(now, root);
    }

    fn note_iteration(&mut self, took: Nanos) {
        self.outcome.tasks += 4;
        self.iteration += 1;
        let is_quiet = self.quiet_since.is_some();
        let iterations = match is_quiet {
            true => &mut self.quiet_iterations,
            false => &mut self.changing_iterations,
        };
        iterations.push(took);
    }

    /// Sends something on its way from a worker that has it: to those below it, or from the model to everybody. Gives when that is done.
    pub(super) fn hand_on(&mut self, mut at: Nanos, from: u32, note: Note) -> Nanos {
        let costs = &self.scenario.costs;
        let encode = match note {
            Note::Signal(_) => costs.hint_out_ns,
            _ => costs.piece_out_ns,
        };
        let ns = (encode + costs.machine.write_ns) as Nanos;
        let to = match note {
            // The engine hands these on, however the rest goes.
            Note::Signal(_) if self.scenario.spread == Spread::Direct => {
                self.below_by(from, FAN_OUT)
            }
            _ => self.below(from),
        };
        for to in to {
            at += ns;
            self.send(at, from, to, note);
        }
        at
    }

    /// To whom a worker hands on.
    fn below(&self, worker: u32) -> Vec<u32> {
        let is_root = worker == self.root();
        match self.scenario.spread {
            Spread::Direct if is_root => self.tree[1..].to_vec(),
            Spread::Direct => Vec::new(),
            Spread::Relayed { fan_out } => self.below_by(worker, fan_out as usize),
        }
    }

    /// The same, where each hands on to so many.
    fn below_by(&self, worker: u32, fan_out: usize) -> Vec<u32> {
        let place = self.place_in_tree[worker as usize].expect("a member");
        let first = (place * fan_out + 1).min(self.tree.len());
        let end = (first + fan_out).min(self.tree.len());
        self.tree[first..end].to_vec()
    }

    fn above(&self, worker: u32) -> u32 {
        let place = self.place_in_tree[worker as usize].expect("a member");
        match self.scenario.spread {
            Spread::Direct => self.root(),
            Spread::Relayed { fan_out } => self.tree[(place - 1) / fan_out as usize],
        }
    }

    pub(super) fn on_note(&mut self, now: Nanos, to: u32, note: Note) {
        match note {
            Note::Signal(iteration) => {
                // Who has no shards is waited for by nobody, and may be late.
                self.deaf -= u32::from(iteration == self.iteration);
                if self.deaf == 0 && iteration == self.iteration {
                    self.signals.push(now - self.decided_at);
                }
                let at = self.hand_on(now, to, note);
                self.busy(to, at);
                if self.is_over {
                    self.finish(at, to);
                }
            }
            Note::Model(iteration) => {
                let at = self.hand_on(now, to, note);
                self.busy(to, at);
                if iteration == self.iteration {
                    self.begin_turn(at, to);
                } else {
                    self.assert_empty(to);
                }
            }
            Note::Partial {
                iteration,
                shards,
                is_from_below,
            } => {
                if iteration != self.iteration {
                    assert_eq!(shards, 0, "an iteration ends before a result has come");
                    return;
                }
                self.workers[to as usize].below -= u32::from(is_from_below);
                if to == self.root() {
                    return self.collect(now, shards);
                }
                self.workers[to as usize].folded += shards;
                self.send_up(now, to);
            }
            Note::Greeting => {}
        }
    }

    fn assert_empty(&self, worker: u32) {
        let resident = self.workers[worker as usize].resident().count();
        assert_eq!(
            resident, 0,
            "an iteration ends before it has begun everywhere"
        );
    }

    /// The helper hands on until then.
    pub(super) fn busy(&mut self, worker: u32, until: Nanos) {
        let helper = &mut self.workers[worker as usize].helper_free;
        *helper = until.max(*helper);
    }

    /// A worker knows the model: its shards are ready.
    fn begin_turn(&mut self, now: Nanos, number: u32) {
        let below = match self.scenario.spread {
            Spread::Direct => 0,
            Spread::Relayed { .. } => self.below(number).len() as u32,
        };
        let iteration = self.iteration;
        let places = &self.places;
        let worker = &mut self.workers[number as usize];
        assert_eq!(worker.ready.iter().map(|it| it.len()).sum::<usize>(), 0);
        worker.begun = iteration + 1;
        (worker.below, worker.folded, worker.has_sent) = (below, 0, false);
        (worker.missing, worker.ready_since) = (0, now);
        for core in 0..worker.homes.len() {
            let waits = |shard: &&u32| places[**shard as usize].done == iteration;
            let ready = worker.homes[core].iter().filter(waits).copied();
            worker.ready[core] = ready.collect();
            worker.missing += worker.ready[core].len() as u32;
        }
        for core in 0..worker.cores.len() {
            self.call(now, number, core);
        }
        self.send_up(now, number);
    }

    /// What one turn of a shard takes, all its stages.
    fn turn_ns(&self, shard: u32, worker: u32) -> Nanos {
        let Self { scenario, .. } = self;
        let costs = &scenario.costs;
        let more = f64::from(scenario.work.stages.saturating_sub(1));
        let mut ns = costs.turn_ns + more * costs.task_ns + costs.fold_ns + costs.piece_out_ns;
        if scenario.spread == Spread::Direct {
            let write = costs.machine.write_ns;
            let is_far = worker != self.root();
            ns += f64::from(u8::from(is_far)) * write;
            ns += self.credits() * (costs.hint_out_ns + write);
        }
        scenario.work.kernels_ns(shard) + ns as Nanos
    }

    /// Credits for each turn of a shard: one to each peer, every second turn.
    fn credits(&self) -> f64 {
        (self.tree.len() - 1) as f64 / 2.0
    }

    /// A core ends what it ran, and looks for more.
    pub(super) fn on_core(&mut self, now: Nanos, number: u32, core: usize) {
        if let Core::Runs(shard) = self.workers[number as usize].cores[core] {
            self.workers[number as usize].cores[core] = Core::Called;
            self.on_ran(now, number, shard);
        }
        let next = self.workers[number as usize].next(core, now);
        let (state, at) = match next {
            Ok(shard) => (Core::Runs(shard), Some(now + self.turn_ns(shard, number))),
            Err(Some(at)) => (Core::Called, Some(at)),
            Err(None) => (Core::Idle(now), None),
        };
        self.workers[number as usize].cores[core] = state;
        if let Some(at) = at {
            let (worker, core) = (number, core as u16);
            self.agenda.note(at, Event::Core { worker, core });
        }
    }

    /// A shard has run its turn.
    fn on_ran(&mut self, now: Nanos, number: u32, shard: u32) {
        let place = &mut self.places[shard as usize];
        assert_eq!(place.worker, number, "shard {shard} runs where it is not");
        assert_eq!(
            place.done, self.iteration,
            "shard {shard} runs a turn twice"
        );
        place.done += 1;
        let (is_alone, leaves) = (std::mem::take(&mut place.alone), place.leaves.is_some());
        self.outcome.turns += 1;
        self.outcome.tasks += self.scenario.work.tasks_per_turn();
        if self.scenario.spread == Spread::Direct {
            // As many credits come from the others as go to them.
            let costs = &self.scenario.costs;
            let ns = self.credits() * (costs.hint_in_ns + costs.read_ns());
            self.helper(now, number, ns);
        }
        let worker = &mut self.workers[number as usize];
        worker.missing -= u32::from(!is_alone);
        let is_direct = self.scenario.spread == Spread::Direct;
        if is_direct || is_alone {
            self.give(now, number);
        } else {
            worker.folded += 1;
        }
        if leaves {
            self.depart(now, shard);
        }
        self.send_up(now, number);
    }

    /// What one shard has found goes straight to the model.
    fn give(&mut self, now: Nanos, from: u32) {
        let root = self.root();
        if from == root {
            self.collect(now, 1);
        } else {
            self.send(now, from, root, self.partial(1, false));
        }
    }

    fn partial(&self, shards: u32, is_from_below: bool) -> Note {
        let iteration = self.iteration;
        Note::Partial {
            iteration,
            shards,
            is_from_below,
        }
    }

    /// When all here and below have run, the partial result goes up.
    pub(super) fn send_up(&mut self, now: Nanos, number: u32) {
        if self.scenario.spread == Spread::Direct {
            return;
        }
        let worker = &mut self.workers[number as usize];
        let runs = worker.begun == self.iteration + 1 && !worker.has_sent;
        if !runs || worker.missing > 0 || (worker.below > 0 && number != self.tree[0]) {
            return;
        }
        worker.has_sent = true;
        let shards = std::mem::take(&mut worker.folded);
        if number == self.root() {
            return self.collect(now, shards);
        }
        let costs = &self.scenario.costs;
        let at = now + (costs.piece_out_ns + costs.machine.write_ns) as Nanos;
        self.send(at, number, self.above(number), self.partial(shards, true));
    }

    /// Results have come to the model.
    fn collect(&mut self, now: Nanos, shards: u32) {
        self.collected += shards;
        self.pieces += 1;
        let all = self.scenario.work.shards();
        assert!(self.collected <= all, "more results than shards");
        if self.collected < all {
            return;
        }
        let costs = &self.scenario.costs;
        let mut ns = f64::from(self.pieces) * costs.fold_ns + 4.0 * costs.task_ns;
        if self.scenario.spread == Spread::Direct {
            ns += self.credits() * (costs.hint_out_ns + costs.machine.write_ns);
        }
        self.agenda.note(now + ns as Nanos, Event::Decided);
    }
}
