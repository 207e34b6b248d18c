//! A sequential interpreter: walks the structured program with whole datasets in memory.
//!
//! Shares no code with worker and exchange, nor the compiled plan: groups, hazards, windows, credits and maps do
//! not exist here. It cannot notice what kernels and the builder do wrong, since it calls the same kernels.

use crate::kernels::{self, Port};
use crate::ports::{SimulatedQueue, SinkMap, StreamMap};
use crate::results::Results;
use brambling_memory::Budget;
use brambling_program::{
    BlockId, Context, Count, DatasetId, ExchangeId, GatherPieces, OpenTask, Position, Program,
    ProgramNode, Progress, Relation, Sink, Spec, StageId, StageKind, StreamId, Value,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::task::Waker;

/// How often a task may ask to be called again.
const CALLS_MAX: u32 = 10_000;

/// Runs a program in order. `symbols` are the counts bound to its symbols, by their place.
pub fn interpret(program: &Program, symbols: &[u32]) -> Results {
    let spec = program.spec();
    let count = |count: Count| match count {
        Count::Fixed(count) => count,
        Count::Symbol(symbol) => symbols[symbol as usize],
    };
    let counts: Vec<u32> = spec
        .datasets
        .iter()
        .map(|dataset| count(dataset.count))
        .collect();
    let initial = |(dataset, &count): (usize, &u32)| {
        let value = |index| program.initial(DatasetId(dataset as u32), index, count);
        (0..count).map(|index| Some(value(index))).collect()
    };
    let mut interpreter = Interpreter {
        program,
        spec,
        cells: counts.iter().enumerate().map(initial).collect(),
        counts,
        entered: vec![0; spec.blocks.len()],
        outcomes: BTreeMap::new(),
        pieces: BTreeMap::new(),
        chunks: BTreeMap::new(),
    };
    interpreter.block(Spec::ROOT);
    assert!(interpreter.chunks.is_empty(), "every stream is taken");
    assert!(
        interpreter.pieces.is_empty(),
        "every scatter has its gather"
    );
    interpreter.results()
}

struct Interpreter<'a> {
    program: &'a Program,
    spec: &'a Spec,
    counts: Vec<u32>,
    /// By dataset and index; absent while a kernel has them.
    cells: Vec<Vec<Option<Value>>>,
    /// How often each block has been entered.
    entered: Vec<u64>,
    /// The latest outcome of each signal.
    outcomes: BTreeMap<StageId, bool>,
    /// Pieces under way: by exchange and destination, then by source.
    pieces: BTreeMap<(ExchangeId, u32), BTreeMap<u32, Value>>,
    /// Chunks under way, in the order in which they are taken: sources send one after the other.
    chunks: BTreeMap<(ExchangeId, u32), VecDeque<(u32, Value)>>,
}

impl Interpreter<'_> {
    fn block(&mut self, block: BlockId) {
        self.entered[block.index()] += 1;
        for node in &self.spec.blocks[block.index()] {
            self.node(*node);
        }
    }

    fn node(&mut self, node: ProgramNode) {
        match node {
            ProgramNode::Stage(stage) => self.stage(stage),
            ProgramNode::Repeat { turns, body } => (0..turns).for_each(|_| self.block(body)),
            ProgramNode::While {
                test_block,
                test,
                body,
            } => loop {
                self.entered[test_block.index()] += 1;
                self.stage(test);
                if !self.outcomes[&test] {
                    break;
                }
                self.block(body);
            },
            ProgramNode::Branch {
                signal,
                then,
                otherwise,
            } => {
                self.block(if self.outcomes[&signal] {
                    then
                } else {
                    otherwise
                });
            }
        }
    }

    fn stage(&mut self, id: StageId) {
        let stage = &self.spec.stages[id.index()];
        let partitions = self.counts[stage.uses[0].0.index()];
        let at = Position {
            stage: id,
            turn: self.entered[stage.block.index()] - 1,
        };
        for index in 0..partitions {
            match stage.kind {
                StageKind::Compute => {
                    self.task(at, index, partitions, Port::None);
                }
                StageKind::Signal => {
                    let outcome = self.task(at, index, partitions, Port::None);
                    self.outcomes.insert(id, outcome);
                }
                StageKind::Scatter(exchange) => self.scatter(at, exchange, index, partitions),
                StageKind::Stream(stream) => self.stream(at, stream, index, partitions),
                StageKind::Gather(exchange) => {
                    let pieces = self.pieces.remove(&(exchange, index)).unwrap_or_default();
                    let mut pieces = SimulatedQueue::new(pieces);
                    self.task(
                        at,
                        index,
                        partitions,
                        Port::Source(GatherPieces::Other(&mut pieces)),
                    );
                }
            }
        }
    }

    fn scatter(&mut self, at: Position, exchange: ExchangeId, source: u32, sources: u32) {
        let related = self.related(at, exchange, source, sources);
        let mut sink = SinkMap::new(source, related, self.program.piece_type(exchange));
        self.task(at, source, sources, Port::Sink(Sink::Other(&mut sink)));
        for (destination, piece) in sink.sent {
            let pieces = self.pieces.entry((exchange, destination)).or_default();
            let before = pieces.insert(source, piece);
            assert!(before.is_none(), "a source sends one piece a turn");
        }
    }

    /// To whom a source may send.
    fn related(&self, at: Position, exchange: ExchangeId, source: u32, sources: u32) -> Vec<u32> {
        let mut stages = (0..self.spec.stages.len() as u32).map(StageId);
        let gather = stages.find(|stage| self.spec.takes_from(*stage).contains(&exchange));
        let gather = gather.expect("every scatter has its gather").index();
        let destinations = self.counts[self.spec.stages[gather].uses[0].0.index()];
        let relation = &self.spec.exchanges[exchange.index()].relation;
        let may_send = |to: &u32| may_send(relation, at.turn, source, *to, sources);
        (0..destinations).filter(may_send).collect()
    }

    fn stream(&mut self, at: Position, stream: StreamId, index: u32, partitions: u32) {
        let spec = &self.spec.streams[stream.index()];
        let input = |id: &ExchangeId| {
            let chunks = self.chunks.remove(&(*id, index));
            (*id, chunks.unwrap_or_default())
        };
        let inputs = spec.inputs.iter().map(input).collect();
        let (mut related, mut output) = (Vec::new(), None);
        if let Some(id) = spec.output {
            related = self.related(at, id, index, partitions);
            output = Some((id, self.program.piece_type(id)));
        }
        let takes = spec
            .inputs
            .iter()
            .map(|id| (*id, self.program.piece_type(*id)));
        let mut ports = StreamMap::new(takes.collect(), inputs, output, related);
        let open = OpenTask {
            state: None,
            ports: &mut ports,
        };
        self.task(at, index, partitions, Port::Open(open));
        ports.end();
        for (destination, chunk) in ports.sent {
            let (id, _) = output.expect("it has sent to it");
            let chunks = self.chunks.entry((id, destination)).or_default();
            chunks.push_back((index, chunk));
        }
    }

    fn task(&mut self, at: Position, index: u32, partitions: u32, mut port: Port<'_>) -> bool {
        let uses = &self.spec.stages[at.stage.index()].uses;
        let cells = &mut self.cells;
        let mut take = |dataset: DatasetId| cells[dataset.index()][index as usize].take();
        let mut args: Vec<Value> = uses
            .iter()
            .map(|(dataset, _)| take(*dataset).expect("named once"))
            .collect();
        let cancel = AtomicBool::new(false);
        let completion = |_| Waker::noop().clone();
        let budget = Budget::unlimited();
        let seed = self.spec.seed;
        let mut context = Context::new(index, partitions, seed, &cancel, &completion, &budget);
        let mut calls = 0;
        loop {
            // Each call has its own numbers from the first on, as where a shard comes back to a task.
            context.enter(at);
            calls += 1;
            assert!(calls < CALLS_MAX, "{at} does not end");
            match kernels::call(self.program, at.stage, &mut context, &mut args, &mut port) {
                Progress::Done => break,
                Progress::More | Progress::Pending => {}
                Progress::Failed => panic!("{at} failed: {:?}", context.take_error()),
            }
        }
        for ((dataset, _), value) in uses.iter().zip(args) {
            self.cells[dataset.index()][index as usize] = Some(value);
        }
        context.outcome()
    }

    fn results(&self) -> Results {
        let mut results = Results::default();
        let kept = self
            .spec
            .datasets
            .iter()
            .enumerate()
            .filter(|(_, dataset)| dataset.keep);
        for (dataset, _) in kept {
            for (index, cell) in self.cells[dataset].iter().enumerate() {
                let value = cell.as_ref().expect("no kernel runs any more");
                results.add(dataset, index as u32, value);
            }
        }
        results
    }
}

/// Whether a relation lets a source send to a destination at a turn, by definition.
fn may_send(relation: &Relation, turn: u64, source: u32, destination: u32, sources: u32) -> bool {
    match relation {
        Relation::OneToAll | Relation::AllToOne | Relation::AllToAll => true,
        Relation::Offsets { offsets, wrap } => offsets.iter().any(|offset| {
            let to = i64::from(source) + offset;
            let to = if *wrap {
                to.rem_euclid(sources.into())
            } else {
                to
            };
            to == i64::from(destination)
        }),
        Relation::Tables { prologue, period } => {
            let turn = turn as usize;
            let table = match prologue.get(turn) {
                Some(table) => table,
                None => &period[(turn - prologue.len()) % period.len()],
            };
            table.sources[destination as usize].contains(&source)
        }
    }
}
