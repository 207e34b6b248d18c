//! A task graph by hand: pinned threads that each own a range of columns, and flags between them.
//!
//! A thread runs its columns timestep by timestep. The output of a task lies beside its flag, so that
//! a reader on another core fetches both at once, and beside those of its thread's other columns, on
//! cache lines that no other thread writes. The outputs of a timestep are kept for as long as a ring
//! is: their place is written again only when every thread that reads them has passed the timestep
//! that did. Each thread publishes how far it is, and looks at the others only when what it last saw
//! no longer suffices.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brambling_machine::crew::{self, Apart, Member};

use crate::task_graph::{Graph, Kernel, Payload};

/// In which order a thread runs its tasks of one timestep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// By column.
    Columns,
    /// Those that other threads read first, so that what they publish is there when it is needed.
    SharedFirst,
}

/// What the threads did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// From the first task to the last, on all threads.
    pub wall: Duration,
    /// How many tasks each point ran.
    pub tasks: Vec<u64>,
    /// How many inputs were read and checked.
    pub inputs: u64,
    /// How many of them were not what their task should have left, or stayed wrong at the end.
    pub mismatches: u64,
}

impl Order {
    /// Both orders.
    pub const ALL: [Order; 2] = [Order::Columns, Order::SharedFirst];

    /// A stable name, for tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Order::Columns => "threads-columns",
            Order::SharedFirst => "threads-shared-first",
        }
    }
}

impl Ran {
    /// Core time of one task, in microseconds: threads × wall ÷ tasks.
    pub fn overhead_us(&self, threads: usize) -> f64 {
        let tasks: u64 = self.tasks.iter().sum();
        threads as f64 * self.wall.as_secs_f64() * 1e6 / tasks as f64
    }

    /// Whether every task of `graph` ran once, read all its inputs and found them right.
    pub fn is_right(&self, graph: &Graph) -> bool {
        let active = |point: usize, timestep: &usize| point < graph.width_at(*timestep);
        let tasks = (0..graph.width()).map(|point| {
            (0..graph.timesteps())
                .filter(|at| active(point, at))
                .count() as u64
        });
        self.mismatches == 0
            && self.inputs == graph.inputs()
            && self.tasks.iter().copied().eq(tasks)
    }
}

// Timesteps that a column's outputs stay: how far a thread can run ahead of its readers.
const RING: usize = 8;

/// The output of one task.
#[derive(Debug, Default)]
struct Slot {
    /// One more than the timestep whose output this is; 0 before the first.
    flag: AtomicU64,
    timestep: AtomicU64,
    point: AtomicU64,
}

const SLOTS_PER_LINE: usize = 2;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([Slot; SLOTS_PER_LINE]);

/// The outputs of one timestep, of all columns.
#[derive(Debug)]
struct Outputs(Vec<Line>);

impl Outputs {
    fn slot(&self, at: u32) -> &Slot {
        &self.0[at as usize / SLOTS_PER_LINE].0[at as usize % SLOTS_PER_LINE]
    }
}

/// The slot of each column: close together, but no line for two threads.
fn slots_of(graph: &Graph, threads: usize) -> Vec<u32> {
    let mut slots = Vec::new();
    let mut next = 0;
    for thread in 0..threads {
        let columns = columns_of(graph, thread, threads).len() as u32;
        slots.extend(next..next + columns);
        next += columns.next_multiple_of(SLOTS_PER_LINE as u32);
    }
    slots
}

impl Slot {
    fn publish(&self, payload: Payload, timestep: usize) {
        self.timestep.store(payload.timestep, Ordering::Relaxed);
        self.point.store(payload.point, Ordering::Relaxed);
        // Release: publishes the payload. Pairs with the Acquire load in `is_published`.
        self.flag.store(timestep as u64 + 1, Ordering::Release);
    }

    fn is_published(&self, timestep: usize) -> bool {
        self.flag.load(Ordering::Acquire) == timestep as u64 + 1
    }

    fn payload(&self) -> Payload {
        Payload {
            timestep: self.timestep.load(Ordering::Relaxed),
            point: self.point.load(Ordering::Relaxed),
        }
    }
}

/// What one thread does at one timestep.
#[derive(Debug, Default)]
struct Step {
    tasks: Vec<Task>,
    /// What they read, task after task.
    inputs: Vec<Output>,
}

#[derive(Debug)]
struct Task {
    output: Output,
    inputs: u32,
}

/// Where a point leaves its output.
#[derive(Clone, Copy, Debug)]
struct Output {
    point: u32,
    slot: u32,
}

/// What one thread does.
#[derive(Debug)]
struct Plan {
    columns: std::ops::Range<usize>,
    /// One per representative timestep.
    steps: Vec<Step>,
    /// The other threads that read a column of this one.
    readers: Vec<usize>,
}

pub(super) fn columns_of(graph: &Graph, thread: usize, threads: usize) -> std::ops::Range<usize> {
    graph.width() * thread / threads..graph.width() * (thread + 1) / threads
}

impl Plan {
    fn new(graph: &Graph, order: Order, thread: usize, threads: usize) -> Plan {
        let columns = columns_of(graph, thread, threads);
        let slots = slots_of(graph, threads);
        let output = |point: usize| Output {
            point: point as u32,
            slot: slots[point],
        };
        let representatives = graph.prologue() + graph.period();
        // The last timestep has no readers, so a graph that ends one later tells those of all.
        let endless = Graph::new(graph.pattern(), graph.width(), representatives + 1);
        let is_shared = |timestep: usize, point: usize| {
            let readers = endless.reverse_dependencies(timestep, point);
            readers.into_iter().any(|reader| !columns.contains(&reader))
        };
        let step = |timestep: usize| {
            let mut points: Vec<usize> = columns
                .clone()
                .filter(|&point| point < graph.width_at(timestep))
                .collect();
            if order == Order::SharedFirst {
                points.sort_by_key(|&point| !is_shared(timestep, point));
            }
            let mut step = Step::default();
            for point in points {
                let inputs = graph.dependencies(timestep, point);
                step.tasks.push(Task {
                    output: output(point),
                    inputs: inputs.len() as u32,
                });
                step.inputs.extend(inputs.into_iter().map(output));
            }
            step
        };
        let reads_us = |reader: &usize| {
            let theirs = columns_of(graph, *reader, threads);
            let mut inputs = (1..representatives).flat_map(|timestep| {
                let active = theirs.start..theirs.end.min(graph.width_at(timestep));
                active.flat_map(move |point| graph.dependencies(timestep, point))
            });
            inputs.any(|input| columns.contains(&input))
        };
        Plan {
            steps: (0..representatives).map(step).collect(),
            readers: (0..threads)
                .filter(|&reader| reader != thread)
                .filter(reads_us)
                .collect(),
            columns,
        }
    }
}

/// Runs `graph` with `kernel` in every task, on one thread per entry of `places` (see
/// [`brambling_machine::cpu::places`]), pinned.
pub fn run(graph: &Graph, kernel: Kernel, order: Order, places: &[usize]) -> Ran {
    let threads = places.len();
    let plans: Vec<Plan> = (0..threads)
        .map(|thread| Plan::new(graph, order, thread, threads))
        .collect();
    let slots = slots_of(graph, threads);
    let lines = slots[graph.width() - 1] as usize / SLOTS_PER_LINE + 1;
    let outputs: [Outputs; RING] =
        std::array::from_fn(|_| Outputs((0..lines).map(|_| Line::default()).collect()));
    // How many timesteps each thread has finished.
    let finished: Vec<Apart<AtomicU64>> = (0..threads).map(|_| Apart::default()).collect();
    let parts = crew::run(places, |member| {
        let plan = &plans[member.index()];
        let mut part = Part {
            tasks: vec![0; plan.columns.len()],
            inputs: 0,
            mismatches: 0,
        };
        member.barrier();
        let start = Instant::now();
        part.run(graph, kernel, plan, &outputs, &finished, member);
        member.barrier();
        (start.elapsed(), part)
    });
    let wall = parts[0].0;
    let mut ran = Ran {
        wall,
        tasks: Vec::new(),
        inputs: 0,
        mismatches: 0,
    };
    for (_, part) in parts {
        ran.tasks.extend(part.tasks);
        ran.inputs += part.inputs;
        ran.mismatches += part.mismatches;
    }
    // Nobody has read the last outputs.
    let last = graph.timesteps() - 1;
    for (point, &slot) in slots.iter().enumerate().take(graph.width_at(last)) {
        let left = outputs[last % RING].slot(slot).payload();
        ran.mismatches += u64::from(left != Payload::of(last, point));
    }
    ran
}

struct Part {
    tasks: Vec<u64>,
    inputs: u64,
    mismatches: u64,
}

impl Part {
    fn run(
        &mut self,
        graph: &Graph,
        kernel: Kernel,
        plan: &Plan,
        outputs: &[Outputs; RING],
        finished: &[Apart<AtomicU64>],
        member: &Member<'_>,
    ) {
        let ours = &finished[member.index()].0;
        let prologue = graph.prologue();
        // How many timesteps all readers are known to have finished.
        let mut readers_finished = if plan.readers.is_empty() { u64::MAX } else { 0 };
        let mut at = 0;
        for timestep in 0..graph.timesteps() {
            // The outputs of `timestep` − RING lie where ours go; they were read a timestep later.
            let needed = (timestep as u64 + 2).saturating_sub(RING as u64);
            if readers_finished < needed {
                readers_finished = wait_for_readers(plan, finished, needed, member);
            }
            let step = &plan.steps[at];
            // At timestep 0 there are no inputs.
            let before = &outputs[timestep.wrapping_sub(1) % RING];
            let now = &outputs[timestep % RING];
            let mut inputs = step.inputs.as_slice();
            for task in &step.tasks {
                let (own, rest) = inputs.split_at(task.inputs as usize);
                inputs = rest;
                for input in own {
                    self.check(before.slot(input.slot), timestep - 1, input.point, member);
                }
                self.inputs += own.len() as u64;
                kernel.execute();
                let Output { point, slot } = task.output;
                now.slot(slot)
                    .publish(Payload::of(timestep, point as usize), timestep);
                self.tasks[point as usize - plan.columns.start] += 1;
            }
            // Release: our reads of this timestep come before others see it finished. Pairs with
            // the Acquire load in `wait_for_readers`.
            ours.store(timestep as u64 + 1, Ordering::Release);
            at += 1;
            if at == plan.steps.len() {
                at = prologue;
            }
        }
    }

    #[inline]
    fn check(&mut self, slot: &Slot, timestep: usize, point: u32, member: &Member<'_>) {
        if !slot.is_published(timestep) {
            member.wait_until(|| slot.is_published(timestep));
        }
        self.mismatches += u64::from(slot.payload() != Payload::of(timestep, point as usize));
    }
}

#[cold]
fn wait_for_readers(
    plan: &Plan,
    finished: &[Apart<AtomicU64>],
    needed: u64,
    member: &Member<'_>,
) -> u64 {
    let mut all = u64::MAX;
    for &reader in &plan.readers {
        let finished = &finished[reader].0;
        member.wait_until(|| finished.load(Ordering::Acquire) >= needed);
        all = all.min(finished.load(Ordering::Acquire));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task_graph::Pattern;
    use brambling_machine::cpu;

    #[test]
    fn every_pattern_runs_right_on_any_number_of_threads() {
        for pattern in Pattern::ALL {
            for width in [1, 2, 5, 16] {
                for threads in [1, 2, 3] {
                    // Longer than the ring, and not a multiple of any period.
                    let graph = Graph::new(pattern, width, 101);
                    let places = cpu::places(threads).unwrap();
                    for order in Order::ALL {
                        let ran = run(&graph, Kernel::Empty, order, &places);
                        assert!(ran.is_right(&graph), "{graph:?} on {threads}: {ran:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_line_has_two_writers() {
        assert_eq!(
            slots_of(&Graph::new(Pattern::Trivial, 7, 1), 3),
            [0, 1, 2, 3, 4, 5, 6]
        );
        assert_eq!(
            slots_of(&Graph::new(Pattern::Trivial, 6, 1), 2),
            [0, 1, 2, 4, 5, 6]
        );
        assert_eq!(slots_of(&Graph::new(Pattern::Trivial, 2, 1), 3), [0, 2]);
        assert_eq!(size_of::<Line>(), 64);
    }

    #[test]
    fn short_graphs_and_kernels() {
        let places = cpu::places(2).unwrap();
        for pattern in Pattern::ALL {
            for timesteps in [1, 2, 3] {
                let graph = Graph::new(pattern, 7, timesteps);
                let kernel = Kernel::Compute { iterations: 3 };
                let ran = run(&graph, kernel, Order::SharedFirst, &places);
                assert!(ran.is_right(&graph), "{graph:?}: {ran:?}");
            }
        }
    }

    #[test]
    fn a_task_too_few_or_a_wrong_input_is_noticed() {
        let graph = Graph::new(Pattern::Stencil1d, 4, 10);
        let right = run(
            &graph,
            Kernel::Empty,
            Order::Columns,
            &cpu::places(1).unwrap(),
        );
        let mut wrong = right.clone();
        wrong.tasks[2] -= 1;
        assert!(!wrong.is_right(&graph));
        let wrong = Ran {
            mismatches: 1,
            ..right.clone()
        };
        assert!(!wrong.is_right(&graph));
        let wrong = Ran {
            inputs: right.inputs - 1,
            ..right
        };
        assert!(!wrong.is_right(&graph));
    }
}
