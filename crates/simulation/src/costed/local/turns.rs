//! Signals, models, turns of shards, and what they found.

use super::super::worker::Core;
use super::super::{Nanos, SpreadShape};
use super::{Event, MERGED_BITS, Note, Run};
use brambling_program::tree::TreeNode;
use brambling_protocol::frame::FAN_OUT;

impl Run<'_> {
    /// The model's shard has folded what came, has stepped, and decides.
    pub(super) fn on_decided(&mut self, now: Nanos) {
        if now > self.began_at {
            self.note_iteration(now - self.decided_at);
        }
        (self.decided_at, self.collected, self.pieces) = (now, 0, 0);
        self.met.iter_mut().for_each(|level| level.fill(0));
        let enough = self.iteration >= self.scenario.work.iterations;
        self.is_over = enough && self.orders.is_empty();
        self.note_quiet(now);
        self.plant(self.root());
        self.deaf = self.tree.len() as u32 - 1;
        if self.deaf == 0 {
            self.signals.push(0);
        }
        let root = self.root();
        self.name_cut(now);
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
            Note::Signal(_) if self.scenario.spread == SpreadShape::Direct => {
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
            SpreadShape::Direct if is_root => self.tree[1..].to_vec(),
            SpreadShape::Direct => Vec::new(),
            SpreadShape::Relayed { fan_out } => self.below_by(worker, fan_out as usize),
        }
    }

    /// The same, where each hands on to so many.
    fn below_by(&self, worker: u32, fan_out: usize) -> Vec<u32> {
        let place = self.place_in_tree[worker as usize].expect("a member");
        let first = (place * fan_out + 1).min(self.tree.len());
        let end = (first + fan_out).min(self.tree.len());
        self.tree[first..end].to_vec()
    }

    pub(super) fn on_note(&mut self, now: Nanos, to: u32, note: Note) {
        match note {
            Note::Signal(iteration) => {
                // Who has no shards is waited for by nobody, and may be late.
                self.deaf -= u32::from(iteration == self.iteration);
                if self.deaf == 0 && iteration == self.iteration {
                    self.signals.push(now - self.decided_at);
                }
                let at = self.hand_on(now, to, note) + self.told_ns(to);
                self.busy(to, at);
                self.save(at, to, iteration);
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
                node,
            } => {
                assert_eq!(
                    iteration, self.iteration,
                    "an iteration ends before a result has come"
                );
                let at = self.give(now, to, node, shards);
                self.busy(to, at);
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
        let iteration = self.iteration;
        let places = &self.places;
        let worker = &mut self.workers[number as usize];
        assert_eq!(worker.ready.iter().map(|it| it.len()).sum::<usize>(), 0);
        worker.begun = iteration + 1;
        worker.ready_since = now;
        for core in 0..worker.homes.len() {
            let waits = |shard: &&u32| places[**shard as usize].done == iteration;
            let ready = worker.homes[core].iter().filter(waits).copied();
            worker.ready[core] = ready.collect();
        }
        for core in 0..worker.cores.len() {
            self.call(now, number, core);
        }
    }

    /// What one turn of a shard takes, all its stages.
    fn turn_ns(&self, shard: u32, worker: u32) -> Nanos {
        let Self { scenario, .. } = self;
        let costs = &scenario.costs;
        let more = f64::from(scenario.work.stages.saturating_sub(1));
        let mut ns = costs.turn_ns + more * costs.task_ns;
        ns += match self.merging {
            Some(_) => costs.merge_ns,
            None if worker == self.root() => costs.fold_ns + costs.piece_out_ns,
            None => costs.fold_ns + costs.piece_out_ns + costs.machine.write_ns,
        };
        if scenario.spread == SpreadShape::Direct {
            ns += self.credits() * (costs.hint_out_ns + costs.machine.write_ns);
        }
        scenario.work.kernels_ns(shard) + ns as Nanos
    }

    /// Credits for each turn: one for each peer, every second turn.
    fn credits(&self) -> f64 {
        (self.tree.len() - 1) as f64 / 2.0
    }

    /// What a piece takes until it has been merged.
    pub(super) fn merge_ns(&self) -> f64 {
        match self.merging {
            Some(_) => self.scenario.costs.merge_ns,
            None => 0.0,
        }
    }

    /// Every second turn a worker hears what the reduction's destination has retired, hands that on, and tells the model's worker what its own shards
    /// have.
    fn told_ns(&self, worker: u32) -> Nanos {
        let costs = &self.scenario.costs;
        let heard = costs.hint_in_ns + costs.read_ns();
        let told =
            (self.below(worker).len() + 1) as f64 * (costs.hint_out_ns + costs.machine.write_ns);
        match self.scenario.spread {
            SpreadShape::Direct => 0,
            SpreadShape::Relayed { .. } => (0.5 * (heard + told)) as Nanos,
        }
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
        let leaves = place.leaves.is_some();
        self.outcome.turns += 1;
        self.outcome.tasks += self.scenario.work.tasks_per_turn();
        if self.scenario.spread == SpreadShape::Direct {
            // As many credits come from the others as go to them.
            let costs = &self.scenario.costs;
            let ns = self.credits() * (costs.hint_in_ns + costs.read_ns());
            self.helper(now, number, ns);
        }
        self.give(now, number, TreeNode::leaf(shard.into()), 1);
        if leaves {
            self.depart(now, shard);
        }
    }

    /// What shards have found is merged as far as all of a group is here, and goes on. Gives when that is done.
    fn give(&mut self, now: Nanos, from: u32, mut node: TreeNode, mut shards: u32) -> Nanos {
        let iteration = self.iteration;
        loop {
            let next = self.merging.and_then(|tree| Some((tree, tree.next(node)?)));
            let to = match next {
                Some((_, relay)) => self.places[relay as usize].worker,
                None => self.root(),
            };
            if to != from {
                let costs = &self.scenario.costs;
                let mut at = now;
                if next.is_some() || node.level > 0 {
                    at += (costs.piece_out_ns + costs.machine.write_ns) as Nanos;
                }
                let partial = Note::Partial {
                    iteration,
                    shards,
                    node,
                };
                self.send(at, from, to, partial);
                return at;
            }
            let Some((tree, relay)) = next else {
                self.collect(now, shards);
                return now;
            };
            let group = tree.group(relay, node).expect("its relay");
            let met = self.met(group);
            *met += shards;
            let sources = tree.sources_of(group);
            if u64::from(*met) < sources.end - sources.start {
                return now;
            }
            (node, shards) = (group, *met);
        }
    }

    /// How many shards of a group have met.
    fn met(&mut self, group: TreeNode) -> &mut u32 {
        let level = usize::from(group.level / MERGED_BITS) - 1;
        let groups = self.scenario.work.shards() >> group.level;
        if self.met.len() <= level {
            self.met.resize(level + 1, Vec::new());
        }
        self.met[level].resize(groups as usize + 1, 0);
        &mut self.met[level][group.index as usize]
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
        ns += match self.scenario.spread {
            SpreadShape::Direct => self.credits() * (costs.hint_out_ns + costs.machine.write_ns),
            // The helper takes in what each worker's shards have retired.
            SpreadShape::Relayed { .. } => self.credits() * (costs.hint_in_ns + costs.read_ns()),
        };
        self.agenda.note(now + ns as Nanos, Event::Decided);
    }
}
