//! Valid programs from a seed: every instruction, loops in loops, both sides of branches.

mod exchanges;
mod streaming;
mod streams;
mod variables;

use crate::kernels::{Mixer, TaskEnding, add_compute, mix};
use brambling_program::{
    Bindings, Context, Dataset, KernelSpec, Program, Rng, Runner, Signal, StageId, Use,
};
pub(crate) use exchanges::Joins;
use std::time::Duration;
use variables::{Any, DatasetFamily};

/// Loops, branches and what stands between a scatter and its gather nest this deep.
const DEPTH_MAX: u32 = 3;
/// How often the innermost block may run.
const TURNS_MAX: u64 = 40;
/// A turn of a loop whose groups wait for each other takes so long, so that it can be saved meanwhile.
const SLOW: Duration = Duration::from_micros(100);

/// A program with everything that running it needs.
pub struct RandomProgram {
    /// The program.
    pub program: Program,
    /// The counts bound to its symbols, by their place.
    pub symbols: Vec<u32>,
    /// Threads to run it on, 1 to 4.
    pub threads: u32,
}

impl RandomProgram {
    /// The counts of its symbols, by name.
    pub fn bindings(&self) -> Bindings {
        let names = self.program.spec().symbols.iter();
        names
            .zip(&self.symbols)
            .fold(Bindings::default(), |all, (name, count)| {
                all.bind(name, *count)
            })
    }
}

/// The program of a seed.
pub fn random_program(seed: u64) -> RandomProgram {
    write(seed, Manner::Any)
}

/// The program of a seed, all of whose exchanges are streamed.
pub fn random_streams(seed: u64) -> RandomProgram {
    write(seed, Manner::Streams)
}

/// The program of a seed, most of whose stages stand in long loops of the program's own block, whose groups wait for each other.
pub fn random_loops(seed: u64) -> RandomProgram {
    write(seed, Manner::Loops)
}

/// What programs are like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Any,
    Streams,
    Loops,
}

fn write(seed: u64, manner: Manner) -> RandomProgram {
    let mut program = Program::new(format!("random {seed}")).with_seed(mix(seed, seed));
    let mut random = Random(Rng::new(seed, StageId(u32::MAX), 0, manner as u64));
    let streams_only = manner == Manner::Streams;
    let mut symbols = Vec::new();
    let families = variables::declare(&mut program, &mut random, &mut symbols);
    let threads = 1 + random.below(4) as u32;
    let stages_left = match manner {
        Manner::Any => 4 + random.below(24),
        Manner::Streams => 2 + random.below(5),
        Manner::Loops => 4 + random.below(12),
    } as u32;
    let mut writer = Writer {
        random,
        families,
        signals: Vec::new(),
        stages_left,
        // Loops of streams are shorter: a turn has many frames.
        turns: if streams_only { 5 } else { 1 },
        names: 0,
        streams: Random(Rng::new(seed, StageId(u32::MAX), 3, 0)),
        streams_only,
        is_tied: false,
    };
    while writer.stages_left > 0 {
        match manner {
            Manner::Loops => writer.long_loop(&mut program),
            Manner::Any | Manner::Streams => writer.statement(&mut program, 0),
        }
    }
    RandomProgram {
        program,
        symbols,
        threads,
    }
}

/// Draws of one program.
pub(crate) struct Random(pub(crate) Rng);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub(crate) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    pub(crate) fn salt(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Different elements, at least one, at most `most`.
    fn some<T: Copy>(&mut self, from: &[T], most: u64) -> Vec<T> {
        let mut left = from.to_vec();
        let count = 1 + self.below(most.min(left.len() as u64));
        (0..count)
            .map(|_| left.swap_remove(self.below(left.len() as u64) as usize))
            .collect()
    }
}

/// Writes one program.
struct Writer {
    random: Random,
    /// The first is of one partition.
    families: Vec<DatasetFamily>,
    /// What a branch may test here.
    signals: Vec<Signal>,
    stages_left: u32,
    /// How often the current block runs.
    turns: u64,
    names: u32,
    /// Says which exchanges are streamed.
    streams: Random,
    /// Whether all of them are.
    streams_only: bool,
    /// Whether the groups of the next loop are to wait for each other.
    is_tied: bool,
}

impl Writer {
    fn name(&mut self, what: &str) -> String {
        self.names += 1;
        self.stages_left = self.stages_left.saturating_sub(1);
        format!("{what} {}", self.names)
    }

    fn family(&mut self) -> usize {
        self.random.below(self.families.len() as u64) as usize
    }

    fn statements(&mut self, p: &mut Program, depth: u32) {
        for _ in 0..1 + self.random.below(4) {
            self.statement(p, depth);
        }
    }

    /// As [`Writer::statements`], where signals given inside cannot be tested outside.
    fn block(&mut self, p: &mut Program, depth: u32) {
        let outside = self.signals.len();
        self.statements(p, depth);
        self.signals.truncate(outside);
    }

    fn statement(&mut self, p: &mut Program, depth: u32) {
        if self.streams_only {
            return self.streaming(p, depth);
        }
        match self.random.below(if depth < DEPTH_MAX { 24 } else { 16 }) {
            0..5 => self.compute(p),
            5 => self.typed_compute(p),
            6..10 => self.exchange(p, depth),
            10 => self.broadcast(p),
            11 if self.random.one_in(3) => self.merged(p),
            11 => self.reduce(p),
            12 => self.shuffle(p),
            13 => self.neighbours(p),
            14 => self.map_blocks(p),
            15 => {
                self.signal(p);
            }
            16..19 => self.branch(p, depth),
            19..22 => self.repeat(p, depth),
            _ => self.repeat_while(p, depth),
        }
    }

    /// Any number of datasets of a family, each used in any way.
    fn compute(&mut self, p: &mut Program) {
        let family = self.family();
        let members = self.families[family].members();
        let members = self.random.some(&members, 5);
        let mut uses: Vec<(Any, Use)> = Vec::new();
        for member in members {
            let ways: &[Use] = match member {
                // A written value has its own shape; blocks keep theirs.
                Any::Blocks(_) => &[Use::Read, Use::Update],
                _ => &[Use::Read, Use::Write, Use::Update],
            };
            uses.push((member, self.random.pick(ways)));
        }
        if uses.iter().all(|(_, how)| *how == Use::Read) {
            uses[0].1 = Use::Update;
        }
        // Without a change the next call would say the same, for ever; what is empty may stay so.
        let changes = |(any, how): &(Any, Use)| matches!((any, how), (Any::Number(_), Use::Update));
        let has_update = uses.iter().any(changes);
        let ending = match self.random.below(12) {
            0 if has_update => TaskEnding::More,
            1 if has_update => TaskEnding::Pending,
            _ => TaskEnding::Once,
        };
        let args = uses.iter().map(|(any, how)| (any.erased(), *how)).collect();
        let kernel = Mixer {
            args,
            salt: self.random.salt(),
            ending,
        };
        // As Python's kernels, most of those that handle objects run on the caller's thread.
        let is_called = kernel.is_interpreted() && !self.random.one_in(4);
        let runner = if is_called || self.random.one_in(40) {
            Runner::Caller
        } else {
            Runner::Native
        };
        let name = self.name("mix");
        let spec = KernelSpec {
            name: format!("{name} {ending:?}"),
            parameters: vec![],
            runner,
        };
        let uses = uses.iter().map(|(any, how)| (any.id(), *how)).collect();
        add_compute(p, name, uses, spec, kernel);
    }

    fn typed_compute(&mut self, p: &mut Program) {
        let family = self.family();
        let vectors = &self.families[family].vectors;
        let (from, to) = (vectors[0], self.random.pick(&vectors[1..]));
        let numbers = self.random.pick(&self.families[family].numbers);
        let salt = self.random.salt();
        let name = self.name("typed");
        p.compute(name)
            .read(&from)
            .update(&numbers)
            .write(&to)
            .run_with_context(
                move |context: &mut Context<'_>,
                      from: &Vec<u64>,
                      number: &mut u64,
                      to: &mut Vec<u64>| {
                    *number = mix(*number, mix(salt, context.turn()));
                    to.clear();
                    to.extend(from.iter().map(|value| mix(*value, *number)).take(9));
                    to.push(context.rng_of_row(7).next_u64());
                },
            );
    }

    fn signal(&mut self, p: &mut Program) -> Signal {
        let numbers = self.families[0].numbers.clone();
        let on: Dataset<u64> = self.random.pick(&numbers);
        let (salt, odds) = (self.random.salt(), 2 + self.random.below(2));
        let name = self.name("signal");
        let signal = p
            .signal(name)
            .read(&on)
            .run(move |value: &u64| mix(*value, salt).is_multiple_of(odds));
        self.signals.push(signal);
        signal
    }

    fn branch(&mut self, p: &mut Program, depth: u32) {
        let signal = match self.signals.len() {
            0 => self.signal(p),
            _ if self.random.one_in(2) => self.signal(p),
            _ => self.random.pick(&self.signals.clone()),
        };
        let otherwise = p.begin_branch(signal);
        self.block(p, depth + 1);
        p.end();
        p.reopen(otherwise);
        if !self.random.one_in(3) {
            self.block(p, depth + 1);
        }
        p.end();
    }

    fn loop_turns(&mut self, depth: u32) -> u64 {
        let most = TURNS_MAX / self.turns;
        let turns = match self.random.below(6) {
            0 => 0,
            // Longer than turns of an exchange may be open.
            1 if depth == 0 => 6 + self.random.below(6),
            _ => 1 + self.random.below(4),
        };
        turns.min(most)
    }

    /// A loop of the program's own block, and what stands before it. In most of them groups wait for each other, and for a slow one.
    fn long_loop(&mut self, p: &mut Program) {
        for _ in 0..self.random.below(3) {
            self.statement(p, 1);
        }
        self.is_tied = !self.random.one_in(4);
        let turns = 6 + self.random.below(20);
        match self.random.one_in(2) {
            true => self.repeat_while_below(p, turns, 0),
            false => self.repeat_turns(p, turns, 0),
        }
    }

    /// Each family sends to the first one, which takes its time, and gets something back.
    fn tie(&mut self, p: &mut Program) {
        let (number, vector) = (self.families[0].numbers[0], self.families[0].vectors[0]);
        let others: Vec<_> = self.families[1..].iter().map(|it| it.vectors[0]).collect();
        for other in &others {
            p.reduce_to(exchanges::fold, other, &vector);
        }
        let slow = p.compute(self.name("slow"));
        slow.read(&vector)
            .update(&number)
            .run(|vector: &Vec<u64>, number: &mut u64| {
                std::thread::sleep(SLOW);
                *number = mix(*number, vector.len() as u64);
            });
        for other in &others {
            p.broadcast(&vector, other);
        }
    }

    fn repeat(&mut self, p: &mut Program, depth: u32) {
        let turns = self.loop_turns(depth);
        self.repeat_turns(p, turns, depth);
    }

    fn repeat_turns(&mut self, p: &mut Program, turns: u64, depth: u32) {
        p.begin_repeat(turns);
        self.turns *= turns.max(1);
        if std::mem::take(&mut self.is_tied) {
            self.tie(p);
        }
        self.block(p, depth + 1);
        self.turns /= turns.max(1);
        p.end();
    }

    fn repeat_while(&mut self, p: &mut Program, depth: u32) {
        let turns = self.loop_turns(depth);
        self.repeat_while_below(p, turns, depth);
    }

    fn repeat_while_below(&mut self, p: &mut Program, turns: u64, depth: u32) {
        let name = self.name("while");
        let counter = p.dataset::<u64>(format!("counter of {name}"), 1);
        p.compute(format!("start {name}"))
            .write(&counter)
            .run(|count: &mut u64| *count = 0);
        let is_tied = std::mem::take(&mut self.is_tied);
        let other = match is_tied {
            true => self.families[0].numbers[0],
            false => self.random.pick(&self.families[0].numbers.clone()),
        };
        let together = self.random.one_in(2) || is_tied;
        self.turns *= turns.max(1);
        p.repeat_while(
            name.clone(),
            &counter,
            move |count| *count < turns,
            |p| {
                if is_tied {
                    self.tie(p);
                }
                self.block(p, depth + 1);
                let step = p.compute(format!("step of {name}"));
                if together {
                    step.update(&counter)
                        .update(&other)
                        .run(|count: &mut u64, other: &mut u64| {
                            *count += 1;
                            *other = mix(*other, *count);
                        });
                } else {
                    step.update(&counter).run(|count: &mut u64| *count += 1);
                }
            },
        );
        self.turns /= turns.max(1);
    }
}
