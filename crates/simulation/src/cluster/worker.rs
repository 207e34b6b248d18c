//! A simulated worker: its node, its shards, and how it runs their tasks.

use super::Deeds;
use super::network::SimulatedNetwork;
use super::streams::SimulatedOpenTask;
use super::watch::InvariantWatch;
use crate::executor::{SentPiece, SimulatedExecutor};
use crate::kernels::{self, Port};
use crate::random_program::Random;
use brambling_memory::held::Held;
use brambling_memory::{Budget, Class};
use brambling_program::tree::TreeNode;
use brambling_program::{
    Action, Context, DatasetId, ExchangeId, GatherPieces, Links, Op, PieceSink, Plan, Position,
    Progress, ShardId, Sink, StageKind, Task, Turn, Value,
};
use brambling_protocol::Version;
use brambling_worker::node::{Node, NodeEffect};
use brambling_worker::piece_data::{Encoded, PieceBytes, Taken};
use brambling_worker::{Issue, Next, PieceMap, PieceQueue, Shard, ShardState, Spares};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Waker;

/// A shard with its data.
pub(super) struct SimulatedShard {
    pub(super) shard: Shard,
    /// Absent while a kernel has them.
    cells: Vec<Option<Value>>,
    finished: bool,
    pub(super) open: Vec<SimulatedOpenTask>,
}

impl SimulatedShard {
    pub(super) fn cell(&self, cell: usize) -> &Value {
        self.cells[cell].as_ref().expect("no kernel runs")
    }
}

pub(super) struct SimulatedWorker {
    /// Its node, and what has come for its shards.
    pub(super) executor: SimulatedExecutor,
    pub(super) shards: BTreeMap<ShardId, SimulatedShard>,
    /// Shards to be run, each once.
    pub(super) awake: Vec<ShardId>,
    /// It has left the job: its process is no more.
    pub(super) has_left: bool,
    /// Shards that have to leave.
    draining: Vec<ShardId>,
    /// Groups of sources whose pieces are to be merged.
    merging: Vec<((ExchangeId, Turn), TreeNode)>,
    /// What the node has asked for and was not carried out yet.
    effects: Vec<NodeEffect>,
    /// Memory of pieces.
    spares: BTreeMap<ExchangeId, Arc<Spares>>,
}

/// What moves with a shard: where it stands, whether it has finished, and its datasets.
type PackedShard = (ShardState, bool, Vec<Vec<u8>>);

impl SimulatedWorker {
    pub(super) fn new(node: Node, open_turns: u64) -> SimulatedWorker {
        SimulatedWorker {
            executor: SimulatedExecutor::new(node, open_turns),
            shards: BTreeMap::new(),
            awake: Vec::new(),
            has_left: false,
            draining: Vec::new(),
            merging: Vec::new(),
            effects: Vec::new(),
            spares: BTreeMap::new(),
        }
    }

    pub(super) fn node(&self) -> Held<'_, Node> {
        self.executor.node()
    }

    pub(super) fn tick(&self) {
        let wanted = self.executor.wanted();
        self.node().on_tick(wanted);
    }

    pub(super) fn settle(&mut self, id: ShardId, version: Version, plan: &Plan) {
        let (group, count) = (
            &plan.groups[id.group.index()],
            plan.counts[id.group.index()],
        );
        let cell = |dataset| Some(plan.program.initial(dataset, id.index, count));
        let resident = SimulatedShard {
            shard: Shard::new(id, &plan.codes[id.group.index()]),
            cells: group
                .datasets
                .iter()
                .map(|dataset| cell(*dataset))
                .collect(),
            finished: false,
            open: Vec::new(),
        };
        self.shards.insert(id, resident);
        let settled = self.executor.settle(id, version);
        settled.expect("nothing is held yet");
        self.awake.push(id);
    }

    pub(super) fn wake(&mut self, shard: ShardId) {
        let is_finished = self.shards.get(&shard).map(|it| it.finished);
        if is_finished == Some(false) && !self.awake.contains(&shard) {
            self.awake.push(shard);
        }
    }

    /// Something that the node asks for is carried out, at once or later: whoever runs a node does so while others ask it already.
    pub(super) fn perform(
        &mut self,
        effect: NodeEffect,
        plan: &Plan,
        network: &mut SimulatedNetwork,
        watch: &mut InvariantWatch,
    ) {
        let me = self.node().me();
        let left = self.executor.perform(effect);
        match left.expect("room for what is held") {
            None => {}
            Some(NodeEffect::Drain(shard)) => {
                watch.flags(shard, me);
                self.draining.push(shard);
            }
            Some(NodeEffect::Settle { shard, mut body }) => {
                watch.settles(shard, me);
                let data = body.take(body.bytes()).expect("all of it has come");
                self.unpack(shard, &data, plan);
            }
            Some(NodeEffect::Send { to, packet, .. }) => network.send(me, to, packet.to_bytes()),
            Some(NodeEffect::Combine { at, group }) => self.merging.push((at, group)),
            Some(NodeEffect::End { failure }) => {
                assert_eq!(failure, None, "nothing fails here");
                watch.ends(me);
            }
            Some(NodeEffect::Forget(_)) => {}
            Some(effect) => unreachable!("{effect:?}"),
        }
    }

    /// Whoever something has come for is to be run.
    pub(super) fn wake_all(&mut self) {
        for shard in self.executor.take_woken() {
            self.wake(shard);
        }
    }

    /// What may be carried out later waits.
    pub(super) fn put_off(&mut self, effect: NodeEffect) -> Option<NodeEffect> {
        match effect {
            NodeEffect::Deliver(..)
            | NodeEffect::Meet(..)
            | NodeEffect::Pass { .. }
            | NodeEffect::Errand(_) => {
                self.effects.push(effect);
                None
            }
            effect => Some(effect),
        }
    }

    /// Some of what was put off.
    pub(super) fn take_put_off(
        &mut self,
        random: &mut Random,
        deeds: &mut Deeds,
    ) -> Option<NodeEffect> {
        if self.effects.is_empty() {
            return None;
        }
        let place = random.below(self.effects.len() as u64) as usize;
        let effect = self.effects.swap_remove(place);
        deeds.errands += u64::from(matches!(effect, NodeEffect::Errand(_)));
        Some(effect)
    }

    /// How many shards have finished here.
    pub(super) fn finished(&self) -> usize {
        let finished = |resident: &&SimulatedShard| resident.finished;
        self.shards.values().filter(finished).count()
    }

    /// A shard comes from another worker.
    fn unpack(&mut self, id: ShardId, body: &[u8], plan: &Plan) {
        let (state, finished, data): PackedShard =
            postcard::from_bytes(body).expect("packed by a worker");
        let group = &plan.groups[id.group.index()];
        let count = plan.counts[id.group.index()];
        let cell = |(dataset, bytes): (&DatasetId, Vec<u8>)| {
            let table = plan
                .program
                .initial(*dataset, id.index, count)
                .payload_type();
            Some(Value::decode(table, &mut &bytes[..]).expect("a worker encoded it"))
        };
        let code = &plan.codes[id.group.index()];
        let resident = SimulatedShard {
            shard: Shard::import(id, code, state).expect("a state of this program"),
            cells: group.datasets.iter().zip(data).map(cell).collect(),
            finished,
            open: Vec::new(),
        };
        let before = self.shards.insert(id, resident);
        assert!(before.is_none(), "{id} is here already");
        self.wake(id);
    }

    /// Shards that may leave do: no completion of theirs is under way, and no task is open that cannot be begun anew.
    pub(super) fn depart(
        &mut self,
        plan: &Plan,
        watch: &mut InvariantWatch,
        deeds: &mut Deeds,
    ) -> bool {
        let shards = &self.shards;
        let is_drained = |id: &ShardId| shards[id].is_free(&plan.codes[id.group.index()]);
        let (leaving, staying) = self.draining.drain(..).partition(is_drained);
        self.draining = staying;
        let leaving: Vec<ShardId> = leaving;
        for &id in &leaving {
            let mut resident = self.shards.remove(&id).expect("drained here");
            for open in resident.open.drain(..) {
                let code = &plan.codes[id.group.index()];
                let _ = resident.shard.complete(code, open.at);
                deeds.anew += 1;
            }
            self.awake.retain(|awake| *awake != id);
            let encode = |cell: &Option<Value>| {
                let mut bytes = Vec::new();
                cell.as_ref().expect("no kernel runs").encode(&mut bytes);
                bytes
            };
            let data = resident.cells.iter().map(encode).collect();
            let metadata: PackedShard = (resident.shard.export(), resident.finished, data);
            let body = postcard::to_stdvec(&metadata).expect("plain values");
            watch.departs(id, self.node().me());
            self.executor.depart(id, &body).expect("it was ordered");
        }
        !leaving.is_empty()
    }

    /// Whether nothing happens here by itself.
    pub(super) fn is_quiet(&mut self, plan: &Plan) -> bool {
        self.awake.is_empty()
            && self.draining.is_empty()
            && self.merging.is_empty()
            && self.effects.is_empty()
            && self.completable(plan).is_empty()
    }

    /// The pieces of some group are merged, whatever has happened since they had all come.
    pub(super) fn merge_some(
        &mut self,
        random: &mut Random,
        plan: &Plan,
        deeds: &mut Deeds,
    ) -> bool {
        if self.merging.is_empty() {
            return false;
        }
        let place = random.below(self.merging.len() as u64) as usize;
        let (at, group) = self.merging.swap_remove(place);
        let taken = self.executor.take_group(at, group);
        let (taken, _charges) = taken.expect("what was spilled comes back");
        let spares = self.spares(at.0, plan);
        let decode = |taken: Taken| taken.into_value(&spares).expect("a source encoded it");
        let mut pieces: Vec<Value> = taken.into_iter().map(decode).collect();
        let merge = plan.program.combiner(at.0).expect("only such pieces meet");
        let (first, others) = pieces.split_first_mut().expect("somebody sent something");
        merge(first, others);
        let first = pieces.swap_remove(0);
        let piece = match random.below(3) {
            0 => SentPiece::Value(first),
            _ => SentPiece::Encoded(Encoded::of(first, &spares, 1)),
        };
        let combined = self.executor.combined(at, group, piece);
        combined.expect("room for what is held");
        deeds.merges += 1;
        true
    }

    pub(super) fn spares(&mut self, exchange: ExchangeId, plan: &Plan) -> Arc<Spares> {
        let piece = plan.program.piece_type(exchange);
        let spares = self.spares.entry(exchange);
        spares
            .or_insert_with(|| Arc::new(Spares::new(piece)))
            .clone()
    }

    /// The completion of some task arrives, and beside it one of a turn that is long over.
    pub(super) fn complete_some(&mut self, plan: &Plan, random: &mut Random) -> bool {
        let suspended = self.completable(plan);
        if suspended.is_empty() {
            return false;
        }
        let (id, at) = random.pick(&suspended);
        let code = &plan.codes[id.group.index()];
        let resident = self.shards.get_mut(&id).expect("just seen");
        let late = Position {
            turn: at.turn.wrapping_sub(1),
            ..at
        };
        if !suspended.contains(&(id, late)) {
            assert!(!resident.shard.complete(code, late), "{id} at {late:?}");
        }
        assert!(resident.shard.complete(code, at), "{id} at {at:?}");
        self.wake(id);
        true
    }

    /// Runs a shard for some tasks; whether it wants to go on at once.
    pub(super) fn slice(
        &mut self,
        id: ShardId,
        tasks: u64,
        plan: &Plan,
        watch: &mut InvariantWatch,
        deeds: &mut Deeds,
    ) -> bool {
        let code = &plan.codes[id.group.index()];
        let may_run = self.node().may_run(id);
        for _ in 0..tasks {
            let resident = self.shards.get_mut(&id).expect("a shard of this worker");
            let mut around = watch.around(self.executor.around(id));
            let next = if may_run {
                resident.shard.next(code, &mut around)
            } else {
                let is_held = |at| resident.open.iter().any(|it| it.at == at && it.holds);
                let held = resident.shard.next_held(code, &mut around, is_held);
                held.map_or(Next::Stalled, Next::Run)
            };
            let issue = match next {
                Next::Run(issue) => issue,
                Next::Stalled => return false,
                Next::Yield => return true,
                Next::Save => unreachable!("no shard here is told of a cut"),
                Next::Finished => {
                    resident.finished = true;
                    self.node().finished(id);
                    return false;
                }
            };
            watch.window(id, resident.shard.stalled(code).count());
            let task = &code.tasks[issue.task as usize];
            match self.task(id, task, issue, plan, (watch, deeds)) {
                Progress::Done => {
                    let resident = self.shards.get_mut(&id).expect("still here");
                    resident.shard.retire(issue);
                    watch.retired(id, issue);
                    deeds.tasks += 1;
                }
                Progress::More => {}
                Progress::Pending => {
                    let resident = self.shards.get_mut(&id).expect("still here");
                    resident.shard.suspend(issue);
                }
                Progress::Failed => panic!("random programs do not fail"),
            }
        }
        true
    }

    fn task(
        &mut self,
        id: ShardId,
        task: &Task,
        issue: Issue,
        plan: &Plan,
        (watch, deeds): (&mut InvariantWatch, &mut Deeds),
    ) -> Progress {
        let me = self.node().me();
        let resident = self.shards.get_mut(&id).expect("a shard of this worker");
        let Action::Stage(kind) = task.action else {
            for cell in &task.cells {
                let cell = &mut resident.cells[*cell as usize];
                let table = cell.as_ref().expect("no kernel runs").payload_type();
                *cell = Some(Value::default_of(table));
            }
            return Progress::Done;
        };
        let at = Position {
            stage: task.stage,
            turn: issue.turn,
        };
        if !resident.open.iter().any(|it| it.at == at) {
            let is_held = resident.open.iter().any(|it| it.holds);
            watch.starts(id, me, (at, is_held), plan);
        }
        let mut take = |cell: &u32| resident.cells[*cell as usize].take().expect("named once");
        let mut args: Vec<Value> = task.cells.iter().map(&mut take).collect();
        let mut call = KernelCall {
            plan,
            id,
            at,
            args: &mut args,
        };
        let (progress, outcome) = match kind {
            StageKind::Compute | StageKind::Signal => call.run(&mut Port::None),
            StageKind::Scatter(exchange) => self.scatter(&mut call, exchange, watch),
            StageKind::Gather(exchange) => self.gather(&mut call, exchange, watch),
            StageKind::Stream(_) => {
                let stream = task.stream.clone().expect("a streaming stage");
                self.stream(&mut call, &stream, deeds)
            }
        };
        let resident = self.shards.get_mut(&id).expect("a shard of this worker");
        for (cell, value) in task.cells.iter().zip(args) {
            resident.cells[*cell as usize] = Some(value);
        }
        if kind == StageKind::Signal && progress == Progress::Done {
            watch.decided(at, outcome);
            let decided = self.executor.decided(at, outcome);
            decided.expect("one outcome of a position");
        }
        progress
    }

    fn scatter(
        &mut self,
        call: &mut KernelCall<'_>,
        exchange: ExchangeId,
        watch: &mut InvariantWatch,
    ) -> (Progress, bool) {
        let (id, turn, links) = (call.id, call.at.turn, call.links(exchange));
        let places = 0..links.fan_out(turn, id.index);
        let related = places.map(|place| links.destination(turn, id.index, place).0);
        let related: Vec<u32> = related.collect();
        let spares = self.spares(exchange, call.plan);
        let piece = call.plan.program.piece_type(exchange);
        let links = links.at(turn);
        let mut sink = PieceMap::new(id.index, links, piece, Some(&spares), None);
        let done = call.run(&mut Port::Sink(Sink::Other(&mut sink)));
        assert_eq!(sink.fan_out() as usize, related.len());
        let mut sent = sink.sent().expect("nothing is counted");
        let piece = |(place, destination): (u32, &u32)| Some((*destination, sent.take(place)?.0));
        let sent: Vec<(u32, Value)> = (0..).zip(&related).filter_map(piece).collect();
        let encode = |(destination, piece): &(u32, Value)| {
            let mut bytes = Vec::new();
            piece.encode(&mut bytes);
            (*destination, PieceBytes::from(bytes))
        };
        let encoded: BTreeMap<u32, PieceBytes> = sent.iter().map(encode).collect();
        watch.scattered(id, (exchange, turn), &related, &encoded);
        // In any form, wherever they go: who sends them may be wrong about who is near.
        let form = |(destination, value): (u32, Value)| {
            let piece = match (u64::from(destination + id.index) + turn) % 3 {
                0 => SentPiece::Value(value),
                1 => SentPiece::Encoded(Encoded::of(value, &spares, 1)),
                _ => SentPiece::Encoded(encoded[&destination].clone().into()),
            };
            (destination, piece)
        };
        let pieces: Vec<(u32, SentPiece)> = sent.into_iter().map(form).collect();
        let scattered = self.executor.scattered(id, (exchange, turn), pieces);
        scattered.expect("room for what is held");
        done
    }

    fn gather(
        &mut self,
        call: &mut KernelCall<'_>,
        exchange: ExchangeId,
        watch: &mut InvariantWatch,
    ) -> (Progress, bool) {
        let (id, turn) = (call.id, call.at.turn);
        let taken = self.executor.take(id, (exchange, turn));
        let taken = taken.expect("what was spilled comes back");
        // Those that were early stay it where the exchange has no room.
        let counted = [Class::Exchange, Class::Early]
            .map(|class| self.node().budget().class_in_use_bytes(class));
        let counted = counted.iter().sum();
        let fan_in = call.links(exchange).fan_in(turn, id.index);
        let is_combined = self.node().combining(exchange).is_some();
        let fan_in = (fan_in as usize, is_combined);
        watch.merged(id, (exchange, turn), fan_in, &taken, counted);
        let spares = self.spares(exchange, call.plan);
        let decode = |(source, taken): (u32, Taken)| {
            let value = taken.into_value(&spares);
            (source, value.expect("a source encoded it"))
        };
        let mut pieces = PieceQueue::new(taken.into_iter().map(decode).collect());
        let done = call.run(&mut Port::Source(GatherPieces::Other(&mut pieces)));
        let gathered = self.executor.gathered(id, (exchange, turn));
        gathered.expect("a destination of this program");
        done
    }

    /// What shards here wait for.
    pub(super) fn describe(&self, plan: &Plan, text: &mut String) {
        for (id, resident) in self
            .shards
            .iter()
            .filter(|(_, resident)| !resident.finished)
        {
            let code = &plan.codes[id.group.index()];
            let op: Op = resident.shard.op(code);
            let _ = write!(
                text,
                "  {id} at {op:?}, suspended {:?}:",
                resident
                    .shard
                    .suspended(code)
                    .map(|at| at.to_string())
                    .collect::<Vec<_>>()
            );
            for (task, turn) in resident.shard.stalled(code) {
                let _ = write!(text, " {} turn {turn}", task.stage);
            }
            text.push('\n');
        }
    }
}

/// One call of a stage's kernel.
pub(super) struct KernelCall<'a> {
    pub(super) plan: &'a Plan,
    pub(super) id: ShardId,
    pub(super) at: Position,
    args: &'a mut [Value],
}

impl<'a> KernelCall<'a> {
    fn links(&self, exchange: ExchangeId) -> &'a Links {
        let ends = self.plan.exchanges[exchange.index()].as_ref();
        &ends.expect("used").links
    }

    pub(super) fn run(&mut self, port: &mut Port<'_>) -> (Progress, bool) {
        let cancel = AtomicBool::new(false);
        let completion = |_| Waker::noop().clone();
        let partitions = self.plan.counts[self.id.group.index()];
        let seed = self.plan.program.spec().seed;
        let (index, budget) = (self.id.index, Budget::unlimited());
        let mut context = Context::new(index, partitions, seed, &cancel, &completion, &budget);
        context.enter(self.at);
        let program = Arc::clone(&self.plan.program);
        let stage = self.at.stage;
        let progress = kernels::call(&program, stage, &mut context, self.args, port);
        (progress, context.outcome())
    }
}
