//! Streaming stages of a simulated worker: their tasks are open for as long as they are called, and no longer.

use super::Deeds;
use super::worker::{KernelCall, SimulatedShard, SimulatedWorker};
use crate::executor::SimulatedExecutor;
use crate::kernels::Port;
use brambling_memory::Class;
use brambling_program::{
    Code, ExchangeId, OpenTask, PayloadType, Plan, Polled, Position, Progress, ShardId,
    StreamPorts, StreamSpec, Turn, Value,
};
use brambling_worker::Spares;
use brambling_worker::arrivals::{ChunkCharge, NextArrived};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A task that is open.
pub(super) struct SimulatedOpenTask {
    pub(super) at: Position,
    /// Whether its shard stays until it is done.
    pub(super) holds: bool,
    state: Option<Box<dyn Any + Send>>,
    /// By destination: chunks sent, and the one that is written.
    sent: BTreeMap<u32, u32>,
    begun: BTreeMap<u32, Value>,
    /// How often it has asked for room.
    asked: u32,
    /// Inputs of which it found nothing at its last call.
    lacks: Vec<ExchangeId>,
}

impl SimulatedShard {
    /// Whether it may leave: nothing is under way here that could not be begun anew elsewhere.
    pub(super) fn is_free(&self, code: &Code) -> bool {
        let is_anew = |at: &Position| self.open.iter().any(|it| it.at == *at && !it.holds);
        !self.open.iter().any(|it| it.holds) && self.shard.suspended(code).all(|at| is_anew(&at))
    }
}

impl SimulatedWorker {
    /// Tasks whose completions may arrive: those that wait for chunks when these have.
    pub(super) fn completable(&mut self, plan: &Plan) -> Vec<(ShardId, Position)> {
        let mut all = Vec::new();
        for (&id, resident) in &self.shards {
            for at in resident.shard.suspended(&plan.codes[id.group.index()]) {
                let mut open = resident.open.iter().filter(|it| it.at == at);
                let lacks = open.next().map_or(&[][..], |it| &it.lacks);
                let mut has_come = |of: &ExchangeId| self.executor.has_next(id, (*of, at.turn));
                if lacks.is_empty() || lacks.iter().any(&mut has_come) {
                    all.push((id, at));
                }
            }
        }
        all
    }

    /// Calls a task of a streaming stage.
    pub(super) fn stream(
        &mut self,
        call: &mut KernelCall<'_>,
        stream: &StreamSpec,
        deeds: &mut Deeds,
    ) -> (Progress, bool) {
        let (id, at) = (call.id, call.at);
        let resident = self.shards.get_mut(&id).expect("a shard of this worker");
        let place = resident.open.iter().position(|it| it.at == at);
        let mut open = match place {
            Some(place) => resident.open.swap_remove(place),
            None => SimulatedOpenTask {
                at,
                holds: stream.keeps_its_shard(),
                state: None,
                sent: BTreeMap::new(),
                begun: BTreeMap::new(),
                asked: 0,
                lacks: Vec::new(),
            },
        };
        let all = stream.inputs.iter().chain(&stream.output);
        let spares = |id: &ExchangeId| (*id, self.spares(*id, call.plan));
        let spares: BTreeMap<ExchangeId, Arc<Spares>> = all.map(spares).collect();
        let piece = |id: ExchangeId| (id, call.plan.program.piece_type(id));
        let output = stream.output.map(piece);
        let related = |(to, _): (ExchangeId, _)| self.executor.related((to, at.turn), id.index);
        let mut ports = Ports {
            destinations: output.map(related).unwrap_or_default(),
            executor: &mut self.executor,
            id,
            turn: at.turn,
            spares,
            takes: stream.inputs.iter().map(|id| piece(*id)).collect(),
            output,
            open: &mut open,
            given: None,
            deeds,
        };
        let state = ports.open.state.take();
        ports.open.lacks.clear();
        let mut port = Port::Open(OpenTask {
            state,
            ports: &mut ports,
        });
        let done = call.run(&mut port);
        let Port::Open(lent) = port else {
            unreachable!("as it was made");
        };
        let state = lent.state;
        // Chunks that were handed out belong to the call.
        ports.given = None;
        if done.0 == Progress::Done {
            ports.end();
            for input in &stream.inputs {
                let taken = self.executor.taken(id, (*input, at.turn));
                taken.expect("a destination of this program");
            }
        } else {
            let waits = done.0 == Progress::Pending && !ports.open.lacks.is_empty();
            ports.deeds.waits += u64::from(waits);
            open.state = state;
            let resident = self.shards.get_mut(&id).expect("still here");
            resident.open.push(open);
        }
        done
    }
}

/// What a call is lent.
struct Ports<'a> {
    executor: &'a mut SimulatedExecutor,
    id: ShardId,
    turn: Turn,
    spares: BTreeMap<ExchangeId, Arc<Spares>>,
    /// In the order in which the stage takes them.
    takes: Vec<(ExchangeId, &'static PayloadType)>,
    output: Option<(ExchangeId, &'static PayloadType)>,
    destinations: Vec<u32>,
    open: &'a mut SimulatedOpenTask,
    /// Alive as long as the kernel may look at it: until it asks for the next one, or returns.
    given: Option<(Value, ChunkCharge)>,
    deeds: &'a mut Deeds,
}

impl Ports<'_> {
    fn say(&mut self, to: u32, value: Option<Value>) {
        let (id, _) = self.output.expect("it sends");
        let sent = self.open.sent.entry(to).or_default();
        let name = (*sent, value);
        *sent += 1;
        let said = self.executor.streamed(self.id, (id, self.turn), to, name);
        said.expect("room for what is held");
    }

    /// Invariant 12: what a task has counts while it has it. Those that were early stay it where the exchange has no room.
    fn assert_counted(&self) {
        let counted_bytes: u64 = [Class::Exchange, Class::Early]
            .map(|class| self.executor.node().budget().class_in_use_bytes(class))
            .iter()
            .sum();
        // Encoded, as it may have counted: a value takes a little more.
        let encoded = |(value, _): &(Value, ChunkCharge)| {
            let mut bytes = Vec::new();
            value.encode(&mut bytes);
            bytes.len() as u64
        };
        let bytes: u64 = self.given.iter().map(encoded).sum();
        assert!(
            bytes <= counted_bytes,
            "{} has chunks of {bytes} bytes, but {counted_bytes} are counted (invariant 12)",
            self.id
        );
    }

    fn end(&mut self) {
        self.deeds.unflushed += self.open.begun.len() as u64;
        for to in self.destinations.clone() {
            self.flush(to);
            self.say(to, None);
        }
    }
}

impl StreamPorts for Ports<'_> {
    fn poll(&mut self, from: ExchangeId) -> Polled {
        self.given = None;
        let next = self.executor.next_chunk(self.id, (from, self.turn));
        let (source, taken, charge) = match next.expect("what was spilled comes back") {
            NextArrived::Nothing => {
                self.open.lacks.push(from);
                return Polled::Nothing;
            }
            NextArrived::NoRoom => unreachable!("no other task has a chunk"),
            NextArrived::Ended => return Polled::Ended,
            NextArrived::Chunk(chunk) => chunk,
        };
        let value = taken.into_value(&self.spares[&from]);
        let mut value = value.expect("a source encoded it");
        value.make_unique();
        let place = value.as_ptr();
        self.deeds.chunks += 1;
        self.given = Some((value, charge));
        self.assert_counted();
        Polled::Chunk(source, place)
    }
    fn input(&self, place: usize) -> Option<(ExchangeId, &'static PayloadType)> {
        self.takes.get(place).copied()
    }
    fn output(&self) -> Option<(ExchangeId, &'static PayloadType)> {
        self.output
    }
    fn slot(&mut self, destination: u32) -> Option<*mut u8> {
        let (_, piece) = self.output?;
        let allowed = self.destinations.contains(&destination);
        let place = || Value::default_of(piece);
        let begun = &mut self.open.begun;
        allowed.then(|| begun.entry(destination).or_insert_with(place).as_ptr())
    }
    fn flush(&mut self, destination: u32) {
        if let Some(value) = self.open.begun.remove(&destination) {
            self.say(destination, Some(value));
        }
    }
    fn has_room(&mut self, _: u32) -> bool {
        self.open.asked += 1;
        !self.open.asked.is_multiple_of(3)
    }
    fn fan_out(&self) -> u32 {
        self.destinations.len() as u32
    }
    fn destination(&self, place: u32) -> u32 {
        self.destinations[place as usize]
    }
}
