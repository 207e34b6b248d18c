//! A simulated cluster: workers on one thread, every choice from one seed.
//!
//! Shards lie on random workers, of which some know at first where others are only by an older version, and a controller
//! moves them at random. A step runs a slice of some shard, delivers some frame (perhaps again, perhaps long after later ones), loses a
//! hint, breaks a connection, brings news of the map, or lets a completion arrive. Shards run only when they
//! were woken, so a wake-up that is missed is a hang.

mod draft;
mod network;
mod shelf;
mod streams;
mod watch;
mod worker;

use crate::random_program::Random;
use crate::results::Results;
use crate::{RandomProgram, interpret};
use brambling_controller::{Controller, ControllerEffect};
use brambling_memory::Class;
use brambling_program::{GroupId, Plan, Rng, ShardId, StageId};
use brambling_protocol::frame::Kind;
use brambling_protocol::{PartitionMap, Sequence, WorkerId};
use brambling_worker::node::{Node, NodeOptions};
use draft::{ClusterDraft, WorkerMemory};
use network::SimulatedNetwork;
use shelf::Shelf;
use std::fmt::Write;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use watch::InvariantWatch;
use worker::SimulatedWorker;

/// Far more than any seed takes.
const STEPS_MAX: u64 = 6_000_000;

/// What a simulated cluster did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deeds {
    /// Tasks that ran to their end.
    pub tasks: u64,
    /// Frames delivered, repetitions included.
    pub frames: u64,
    /// Parcels that a worker held because it knew no better.
    pub held: u64,
    /// Connections that broke.
    pub breaks: u64,
    /// Hints lost.
    pub lost: u64,
    /// Shards that moved.
    pub moves: u64,
    /// Open tasks of shards that moved: begun anew.
    pub anew: u64,
    /// Workers that joined.
    pub joins: u64,
    /// Workers that left.
    pub leaves: u64,
    /// Controllers that fell silent.
    pub silences: u64,
    /// Frames of news that were to be handed on.
    pub relays: u64,
    /// Frames of pieces that were.
    pub broadcasts: u64,
    /// Groups of sources whose pieces were merged on their way.
    pub merges: u64,
    /// What nodes left to do outside, and was done.
    pub errands: u64,
    /// Pieces that were spilled.
    pub spills: u64,
    /// Pieces that were read back.
    pub returns: u64,
    /// Chunks of streams that tasks have taken.
    pub chunks: u64,
    /// Calls of tasks that then waited for chunks.
    pub waits: u64,
    /// Chunks that a task had written and not flushed when it was done.
    pub unflushed: u64,
    /// Pieces and chunks that came again.
    pub repeats: u64,
    /// Pieces and chunks that came when their turn was over.
    pub late: u64,
    /// Pieces and chunks that moved with the shard they had come for.
    pub carried: u64,
}

impl AddAssign for Deeds {
    fn add_assign(&mut self, other: Deeds) {
        self.tasks += other.tasks;
        self.frames += other.frames;
        self.held += other.held;
        self.breaks += other.breaks;
        self.lost += other.lost;
        self.moves += other.moves;
        self.anew += other.anew;
        self.joins += other.joins;
        self.leaves += other.leaves;
        self.silences += other.silences;
        self.relays += other.relays;
        self.broadcasts += other.broadcasts;
        self.merges += other.merges;
        self.errands += other.errands;
        self.spills += other.spills;
        self.returns += other.returns;
        self.chunks += other.chunks;
        self.waits += other.waits;
        self.unflushed += other.unflushed;
        self.repeats += other.repeats;
        self.late += other.late;
        self.carried += other.carried;
    }
}

/// Runs a random program on a simulated cluster and compares it with the interpreter.
///
/// # Panics
/// With the story's end, when the results differ, an invariant is broken, or nothing moves any more.
pub fn simulate(seed: u64, random: &RandomProgram) -> Deeds {
    let program = Arc::new(random.program.clone());
    let plan = Plan::compile(program, &random.bindings()).expect("random programs are valid");
    let mut cluster = SimulatedCluster::new(seed, &plan);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        cluster.run();
        let expected = interpret(&random.program, &random.symbols);
        let difference = cluster.results().difference(&expected, &random.program);
        assert!(
            difference.is_none(),
            "other results than in order:\n{}",
            difference.unwrap()
        );
        cluster.come_to_rest();
    }));
    (cluster.deeds.spills, cluster.deeds.returns) = cluster.shelf.counts();
    for worker in &cluster.workers {
        let arrived = worker.executor.arrived();
        cluster.deeds.repeats += arrived.repeats;
        cluster.deeds.late += arrived.late;
        cluster.deeds.carried += arrived.carried;
    }
    if let Err(panic) = outcome {
        let formatted = panic.downcast_ref::<String>().map(String::as_str);
        let message = formatted.or_else(|| panic.downcast_ref::<&str>().copied());
        panic!(
            "seed {seed}: {}\n{}",
            message.unwrap_or("a panic"),
            cluster.story()
        );
    }
    cluster.deeds
}

pub(crate) struct SimulatedCluster<'a> {
    plan: &'a Plan,
    random: Random,
    workers: Vec<SimulatedWorker>,
    network: SimulatedNetwork,
    /// News of the map that workers have not heard.
    news: Vec<(usize, brambling_protocol::EntryRange)>,
    watch: InvariantWatch,
    controller: Controller,
    /// One in so many of the steps that may order a move does; none does when this is 0.
    calm: u64,
    /// After so many steps the controller falls silent, if it ever does.
    silent_at: Option<u64>,
    is_silent: bool,
    /// Where pieces are spilled to.
    shelf: Arc<Shelf>,
    /// How many workers may still join, and how.
    joins: u64,
    newcomer: NodeOptions,
    memory: WorkerMemory,
    /// How many workers may still leave, and whether one was told to.
    leaves: u64,
    is_drained: bool,
    shards: Vec<ShardId>,
    deeds: Deeds,
}

impl<'a> SimulatedCluster<'a> {
    fn new(seed: u64, plan: &'a Plan) -> SimulatedCluster<'a> {
        let mut random = Random(Rng::new(seed, StageId(u32::MAX), 1, 0));
        let ClusterDraft {
            workers,
            news,
            controller,
            options,
            memory,
            shelf,
        } = ClusterDraft::new(plan, &mut random);
        let mut watch = InvariantWatch::new(plan, workers.len());
        for worker in &workers {
            for shard in worker.shards.keys() {
                watch.settles(*shard, worker.node().me());
            }
        }
        let calm = random.pick(&[0, 1, 1, 4]);
        let silent_at = random.one_in(3).then(|| random.below(1_000));
        let joins = random.below(3);
        let leaves = random.below(3);
        let shards = plan.counts.iter().zip(0..).flat_map(|(count, group)| {
            let group = GroupId(group);
            (0..*count).map(move |index| ShardId { group, index })
        });
        let mut cluster = SimulatedCluster {
            plan,
            random,
            network: SimulatedNetwork::default(),
            workers,
            news,
            watch,
            controller,
            calm,
            silent_at,
            is_silent: false,
            shelf,
            joins,
            newcomer: options,
            memory,
            leaves,
            is_drained: false,
            shards: shards.collect(),
            deeds: Deeds::default(),
        };
        for at in 0..cluster.workers.len() {
            cluster.collect(at);
        }
        cluster
    }

    fn run(&mut self) {
        let mut steps = 0;
        while self
            .workers
            .iter()
            .map(SimulatedWorker::finished)
            .sum::<usize>()
            < self.shards.len()
        {
            steps += 1;
            assert!(steps < STEPS_MAX, "no end in sight");
            if self.silent_at == Some(steps) {
                self.fall_silent();
            }
            self.step();
        }
    }

    fn step(&mut self) {
        let moved = match self.random.below(64) {
            0..32 => self.slice(),
            32..52 => self.deliver(),
            52..56 => self.flush(),
            56 => self.depart(),
            57 if self.random.one_in(6) => self.join(),
            57 if self.random.one_in(4) => self.drain(),
            57 => self.order(),
            58 => self.hear(),
            59 | 60 => self.complete(),
            61 => self.tick(),
            62 if self.random.one_in(8) => self.reconnect(),
            _ => true,
        };
        if !moved && self.is_quiet() {
            self.stir();
        }
    }

    /// Runs some woken shard for some tasks.
    fn slice(&mut self) -> bool {
        let at = self.worker();
        let count = self.workers[at].awake.len() as u64;
        if count == 0 {
            return false;
        }
        let place = self.random.below(count) as usize;
        let shard = self.workers[at].awake.swap_remove(place);
        let tasks = 1 + self.random.below(12);
        let worker = &mut self.workers[at];
        let stays = worker.slice(shard, tasks, self.plan, &mut self.watch, &mut self.deeds);
        if stays {
            worker.wake(shard);
        }
        self.collect(at);
        true
    }

    fn deliver(&mut self) -> bool {
        let Some(packet) = self.network.pick(&mut self.random, &mut self.deeds) else {
            return false;
        };
        self.deeds.frames += 1;
        match packet.relays() {
            Some(Kind::Data) => self.deeds.broadcasts += 1,
            Some(_) => self.deeds.relays += 1,
            None => {}
        }
        if packet.to == WorkerId::CONTROLLER {
            if self.is_silent {
                return true;
            }
            let taken = self.controller.on_frame(packet.from, &packet.bytes);
            taken.expect("workers answer what they were asked");
            self.collect_controller();
            return true;
        }
        let at = packet.to.0 as usize;
        let worker = &mut self.workers[at];
        if worker.has_left {
            return true;
        }
        let held = worker.node().held();
        if let Err(error) = worker.node().on_frame(packet.from, &packet.bytes) {
            panic!(
                "{} refuses a frame of {}: {error:?}",
                packet.to, packet.from
            );
        }
        self.deeds.held += worker.node().held().saturating_sub(held) as u64;
        self.watch.map(at, worker.node().map());
        self.collect(at);
        true
    }

    fn flush(&mut self) -> bool {
        let at = self.worker();
        self.workers[at].node().flush();
        self.collect(at)
    }

    /// News of the map reach a worker, in any order, some of them again later.
    fn hear(&mut self) -> bool {
        if self.news.is_empty() {
            return false;
        }
        let place = self.random.below(self.news.len() as u64) as usize;
        let (at, update) = match self.random.one_in(4) {
            true => self.news[place],
            false => self.news.swap_remove(place),
        };
        self.watch.note(|| format!("w{at} hears {update:?}"));
        let worker = &mut self.workers[at];
        worker
            .node()
            .on_update(&update)
            .expect("the controller numbers entries as it should");
        self.watch.map(at, worker.node().map());
        self.collect(at);
        true
    }

    fn complete(&mut self) -> bool {
        let at = self.worker();
        if self.random.one_in(2) && self.catch_up(at) {
            return true;
        }
        let worker = &mut self.workers[at];
        if worker.merge_some(&mut self.random, self.plan, &mut self.deeds) {
            self.collect(at);
            return true;
        }
        worker.complete_some(self.plan, &mut self.random)
    }

    /// Nobody hears of the controller any more, nor it of anybody (invariant 10).
    fn fall_silent(&mut self) {
        self.watch.note(|| "the controller falls silent".into());
        self.is_silent = true;
        self.deeds.silences += 1;
        for at in 0..self.workers.len() {
            self.network.cut(worker_id(at), WorkerId::CONTROLLER);
        }
    }

    /// A worker joins, holding nothing.
    fn join(&mut self) -> bool {
        if self.joins == 0 || self.is_silent {
            return true;
        }
        self.joins -= 1;
        self.deeds.joins += 1;
        self.watch.joins();
        let me = worker_id(self.workers.len());
        let options = NodeOptions {
            me,
            budget: self.memory.budget(),
            ..self.newcomer.clone()
        };
        // A process is told where shards are when it is told of the job. Here only those are that would perhaps not hear it later: from a
        // controller that falls silent, or of entries that name who has left.
        let is_needed = self.is_drained || self.silent_at.is_some();
        let map = match is_needed {
            true => self.controller.map().clone(),
            false => PartitionMap::new(self.plan.counts.iter().copied()),
        };
        let open_turns = options.open_turns;
        let node = Node::new(self.plan, map, options);
        self.workers.push(SimulatedWorker::new(node, open_turns));
        self.controller.join(me);
        self.collect_controller();
        true
    }

    /// A worker is to leave, if another stays.
    fn drain(&mut self) -> bool {
        let at = worker_id(self.worker());
        let count = self.workers.len();
        let stays = |id: &WorkerId| *id != at && !self.controller.is_leaving(*id);
        let staying = (0..count).filter(|at| !self.workers[*at].has_left);
        if self.leaves == 0 || self.is_silent || !staying.map(worker_id).any(|id| stays(&id)) {
            return true;
        }
        self.leaves -= 1;
        self.is_drained = true;
        self.watch.note(|| format!("{at} is to leave"));
        self.controller.drain(at, 100);
        self.collect_controller();
        true
    }

    /// A worker has left: its process ends.
    fn let_go(&mut self, at: WorkerId) {
        self.deeds.leaves += 1;
        self.watch.note(|| format!("{at} has left"));
        for party in 0..=self.workers.len() {
            self.network.cut(at, self.name(party));
        }
        let worker = &mut self.workers[at.0 as usize];
        worker.has_left = true;
        assert_eq!(worker.shards.len(), 0, "{at} leaves with shards");
        assert_eq!(worker.node().held(), 0, "{at} leaves with pieces");
    }

    /// A move is ordered, if it makes sense.
    fn order(&mut self) -> bool {
        if self.is_silent || self.calm == 0 || !self.random.one_in(self.calm) {
            return true;
        }
        let shard = self.random.pick(&self.shards);
        let to = worker_id(self.worker());
        let bytes = self.random.pick(&[0, 100, 1 << 20]);
        if self.controller.order(shard, to, bytes).is_ok() {
            self.watch
                .note(|| format!("the controller sends {shard} to {to}"));
        }
        self.collect_controller();
        true
    }

    fn depart(&mut self) -> bool {
        let at = self.worker();
        let any = self.workers[at].depart(self.plan, &mut self.watch, &mut self.deeds);
        self.collect(at) || any
    }

    fn collect_controller(&mut self) {
        for effect in self.controller.take_effects() {
            match effect {
                ControllerEffect::Send { to, bytes, .. } => {
                    self.network.send(WorkerId::CONTROLLER, to, bytes);
                }
                ControllerEffect::Moved { .. } => self.deeds.moves += 1,
                ControllerEffect::Left { worker } => self.let_go(worker),
                ControllerEffect::Ended { failure } => {
                    assert_eq!(failure, None, "nothing fails here");
                    let finished: usize = self.workers.iter().map(SimulatedWorker::finished).sum();
                    // Also none is on its way: results are fetched from where shards are.
                    assert_eq!(
                        finished,
                        self.shards.len(),
                        "the job is over before all of its shards have finished and arrived"
                    );
                }
                effect @ (ControllerEffect::Lost(_)
                | ControllerEffect::Commit(_)
                | ControllerEffect::Discard(_)
                | ControllerEffect::Say(_)) => {
                    unreachable!("nobody dies here, and nothing is saved: {effect:?}")
                }
                ControllerEffect::Stays { shard, to } => {
                    self.watch.note(|| format!("{to} has no room for {shard}"));
                }
            }
        }
    }

    fn tick(&mut self) -> bool {
        let at = self.worker();
        self.workers[at].tick();
        if !self.is_silent {
            self.controller.on_tick();
            self.collect_controller();
        }
        self.collect(at)
    }

    /// A connection breaks: what is under way on it is lost; both sides greet each other anew.
    fn reconnect(&mut self) -> bool {
        // One beyond the workers is the controller.
        let party = |random: &mut Random, count: usize| random.below(count as u64 + 1) as usize;
        let count = self.workers.len();
        let (a, b) = (
            party(&mut self.random, count),
            party(&mut self.random, count),
        );
        if a != b && !(self.is_silent && a.max(b) == count) {
            self.reconnect_between(a, b);
        }
        a != b
    }

    fn reconnect_between(&mut self, a: usize, b: usize) {
        let has_left = |party: usize| self.workers.get(party).is_some_and(|it| it.has_left);
        if has_left(a) || has_left(b) {
            return;
        }
        self.deeds.breaks += 1;
        self.watch
            .note(|| format!("w{a} and w{b} lose their connection"));
        self.network.cut(self.name(a), self.name(b));
        for (here, there) in [(a, b), (b, a)] {
            let received = self.received(there, here);
            let there = self.name(there);
            if here == self.workers.len() {
                let greeted = self.controller.on_reconnect(there, received);
                greeted.expect("what was sent was numbered");
                self.collect_controller();
            } else {
                let greeted = self.workers[here].node().on_reconnect(there, received);
                greeted.expect("what was sent was numbered");
                self.collect(here);
            }
        }
    }

    fn received(&self, here: usize, peer: usize) -> Sequence {
        let peer = self.name(peer);
        match self.workers.get(here) {
            Some(worker) => worker.node().received(peer),
            None => self.controller.received(peer),
        }
    }

    fn name(&self, party: usize) -> WorkerId {
        if party == self.workers.len() {
            WorkerId::CONTROLLER
        } else {
            worker_id(party)
        }
    }

    /// Carries out what a node asked for; whether there was anything.
    fn collect(&mut self, at: usize) -> bool {
        let mut any = false;
        loop {
            self.workers[at].wake_all();
            let effects = self.workers[at].node().take_effects();
            if self.workers[at].has_left || effects.is_empty() {
                return any;
            }
            any = true;
            for effect in effects {
                let now = match self.random.one_in(4) {
                    true => self.workers[at].put_off(effect),
                    false => Some(effect),
                };
                if let Some(effect) = now {
                    self.perform(at, effect);
                }
            }
        }
    }

    /// Something that was put off is carried out, whatever has happened since.
    fn catch_up(&mut self, at: usize) -> bool {
        let effect = self.workers[at].take_put_off(&mut self.random, &mut self.deeds);
        let any = effect.is_some();
        if let Some(effect) = effect {
            self.perform(at, effect);
            self.collect(at);
        }
        any
    }

    fn perform(&mut self, at: usize, effect: brambling_worker::node::NodeEffect) {
        self.workers[at].perform(effect, self.plan, &mut self.network, &mut self.watch);
    }

    /// Some worker that has not left.
    fn worker(&mut self) -> usize {
        loop {
            let at = self.random.below(self.workers.len() as u64) as usize;
            if !self.workers[at].has_left {
                return at;
            }
        }
    }

    fn is_quiet(&mut self) -> bool {
        let plan = self.plan;
        self.network.is_empty() && self.workers.iter_mut().all(|it| it.is_quiet(plan))
    }

    /// Nothing moves: now is the time for what comes now and then. When that brings nothing, it is a hang.
    fn stir(&mut self) {
        let mut moved = false;
        for at in 0..self.workers.len() {
            self.workers[at].node().flush();
            self.workers[at].tick();
            moved |= self.workers[at].depart(self.plan, &mut self.watch, &mut self.deeds);
            moved |= self.collect(at);
            moved |= self.catch_up(at);
        }
        while !self.news.is_empty() {
            moved |= self.hear();
        }
        assert!(moved, "nothing moves any more");
    }

    /// The results are there: what is under way arrives, and nothing is left over.
    fn come_to_rest(&mut self) {
        while !self.news.is_empty() {
            self.hear();
        }
        let count = self.workers.len();
        for round in 0..20 {
            if !self.is_silent {
                self.controller.on_tick();
                self.collect_controller();
            }
            for at in 0..count {
                self.workers[at].node().flush();
                self.workers[at].depart(self.plan, &mut self.watch, &mut self.deeds);
                self.collect(at);
                while self.catch_up(at) {}
            }
            if round % 4 == 3 {
                // An acknowledgement that was lost comes with the next greeting.
                let parties = count + usize::from(!self.is_silent);
                (0..parties).for_each(|a| (0..a).for_each(|b| self.reconnect_between(a, b)));
            }
            while self.deliver() || !self.network.is_empty() {}
        }
        let staying = self
            .workers
            .iter()
            .enumerate()
            .filter(|(_, it)| !it.has_left);
        for (at, worker) in staying {
            assert_eq!(worker.node().held(), 0, "w{at} holds something for ever");
            for class in [Class::Exchange, Class::Early] {
                let left = worker.node().budget().class_in_use_bytes(class);
                assert_eq!(left, 0, "w{at} counts {class} for ever");
            }
            // Of whom only the controller could say that it has gone, something may wait when that is silent.
            let is_untold = self.is_silent && self.workers.iter().any(|it| it.has_left);
            let is_settled = worker.node().is_settled();
            assert!(is_settled || is_untold, "w{at} has not sent everything");
            assert!(
                self.is_silent || worker.node().map() == self.controller.map(),
                "w{at} has not heard where shards are"
            );
        }
        assert!(
            self.is_silent || self.controller.is_settled() && self.controller.moving() == 0,
            "a move has not ended"
        );
        assert!(
            self.is_silent || self.watch.ended() + self.deeds.leaves as usize >= count,
            "{} of {count} workers know that the job is over",
            self.watch.ended()
        );
        assert_eq!(self.shelf.lying(), 0, "something is spilled for ever");
        self.watch.at_rest();
    }

    fn results(&self) -> Results {
        let mut results = Results::default();
        for (dataset, spec) in self.plan.program.spec().datasets.iter().enumerate() {
            let group = self.plan.group_of_dataset[dataset];
            for index in (0..self.plan.counts[group.index()]).filter(|_| spec.keep) {
                let shard = ShardId { group, index };
                let holder = self
                    .workers
                    .iter()
                    .find_map(|worker| worker.shards.get(&shard));
                let cell = self.plan.cell(brambling_program::DatasetId(dataset as u32));
                results.add(
                    dataset,
                    index,
                    holder.expect("somebody holds it").cell(cell),
                );
            }
        }
        results
    }

    /// The last events, and who waits for what.
    fn story(&self) -> String {
        let mut text = self.watch.story();
        for (at, worker) in self.workers.iter().enumerate() {
            let _ = writeln!(
                text,
                "w{at}: {} awake, {} held",
                worker.awake.len(),
                worker.node().held()
            );
            worker.describe(self.plan, &mut text);
        }
        let _ = write!(text, "{}", self.plan.program.spec());
        text
    }
}

fn worker_id(at: usize) -> WorkerId {
    WorkerId(at as u32)
}
