//! A task graph by hand: pinned threads that each own a range of columns, and flags between them.
//!
//! A thread runs its columns timestep by timestep, in a fixed order, and calls each point through a pointer: it
//! does not know what its tasks do, as no engine does. The output of a task lies beside its flag, so that
//! a reader on another core fetches both at once, and beside those of its thread's other columns, on
//! cache lines that no other thread writes. The outputs of a timestep are kept for as long as a ring
//! is: their place is written again only when every thread that reads them has passed the timestep
//! that did. Each thread publishes how far it is, and looks at the others only when what it last saw
//! no longer suffices. Nothing is scheduled, queued or stolen, and nobody sleeps.

use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brambling_machine::crew::{self, CacheAligned, CrewMember};

use crate::task_graph::{Graph, Kernel, Payload};

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

#[derive(Debug)]
struct Task {
    output: Output,
    inputs: Vec<Output>,
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
    columns: Range<usize>,
    /// The tasks of each representative timestep.
    steps: Vec<Vec<Task>>,
    /// The other threads that read a column of this one.
    readers: Vec<usize>,
}

fn columns_of(graph: &Graph, thread: usize, threads: usize) -> Range<usize> {
    graph.width() * thread / threads..graph.width() * (thread + 1) / threads
}

impl Plan {
    fn new(graph: &Graph, thread: usize, threads: usize) -> Plan {
        let columns = columns_of(graph, thread, threads);
        let slots = slots_of(graph, threads);
        let output = |point: usize| Output {
            point: point as u32,
            slot: slots[point],
        };
        let representatives = graph.prologue() + graph.period();
        let active = |timestep: usize| columns.start..columns.end.min(graph.width_at(timestep));
        let readers = |timestep: usize, point| {
            let after = 0..graph.width_at(timestep + 1);
            after.filter(move |&it| graph.dependencies(timestep + 1, it).contains(&point))
        };
        let step = |timestep: usize| {
            let mut points: Vec<usize> = active(timestep).collect();
            // What other threads read comes first, so that it is there when they need it.
            points.sort_by_key(|&point| readers(timestep, point).all(|it| columns.contains(&it)));
            let inputs = |point| graph.dependencies(timestep, point).into_iter();
            let task = |point| Task {
                output: output(point),
                inputs: inputs(point).map(output).collect(),
            };
            points.into_iter().map(task).collect()
        };
        let reads_us = |reader: &usize| {
            let theirs = columns_of(graph, *reader, threads);
            let reads = |at, point| readers(at, point).any(|it| theirs.contains(&it));
            (0..representatives).any(|at| active(at).any(|point| reads(at, point)))
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

/// A point, and what its tasks have counted.
#[derive(Debug, Default)]
struct Point {
    index: usize,
    tasks: u64,
    inputs: u64,
    mismatches: u64,
}

/// What the call of a point is given.
struct Inputs<'a> {
    /// Of the timestep before.
    outputs: &'a Outputs,
    from: &'a [Output],
}

/// A task, given its timestep: what it returns is its output.
type Call<'a> = dyn Fn(&mut Point, usize, &Inputs<'_>) -> Payload + Sync + 'a;

/// What all threads see.
struct Shared<'a> {
    graph: &'a Graph,
    plans: Vec<Plan>,
    outputs: [Outputs; RING],
    /// How many timesteps each thread has finished.
    finished: Vec<CacheAligned<AtomicU64>>,
    call: &'a Call<'a>,
}

/// Runs `graph` with `kernel` in every task, on one thread per entry of `places` (see
/// [`brambling_machine::cpu::places`]), pinned.
pub fn run(graph: &Graph, kernel: Kernel, places: &[usize]) -> Ran {
    let threads = places.len();
    let slots = slots_of(graph, threads);
    let lines = slots[graph.width() - 1] as usize / SLOTS_PER_LINE + 1;
    let call = |point: &mut Point, timestep: usize, inputs: &Inputs<'_>| {
        for input in inputs.from {
            let found = inputs.outputs.slot(input.slot).payload();
            let expected = Payload::of(timestep - 1, input.point as usize);
            point.mismatches += u64::from(found != expected);
        }
        point.inputs += inputs.from.len() as u64;
        kernel.execute();
        point.tasks += 1;
        Payload::of(timestep, point.index)
    };
    let shared = Shared {
        graph,
        plans: (0..threads)
            .map(|thread| Plan::new(graph, thread, threads))
            .collect(),
        outputs: std::array::from_fn(|_| Outputs((0..lines).map(|_| Line::default()).collect())),
        finished: (0..threads).map(|_| CacheAligned::default()).collect(),
        // Or the compiler would put the task where it is called.
        call: black_box(&call),
    };
    let parts = crew::run(places, |member| {
        let mut points = shared.points_of(member);
        member.barrier();
        let start = Instant::now();
        shared.run(&mut points, member);
        member.barrier();
        (start.elapsed(), points)
    });
    let points = || parts.iter().flat_map(|(_, points)| points);
    // Nobody has read the last outputs.
    let last = graph.timesteps() - 1;
    let left = |point: usize| shared.outputs[last % RING].slot(slots[point]).payload();
    let wrong = (0..graph.width_at(last)).filter(|&point| left(point) != Payload::of(last, point));
    Ran {
        wall: parts[0].0,
        tasks: points().map(|point| point.tasks).collect(),
        inputs: points().map(|point| point.inputs).sum(),
        mismatches: points().map(|point| point.mismatches).sum::<u64>() + wrong.count() as u64,
    }
}

impl Shared<'_> {
    fn points_of(&self, member: &CrewMember<'_>) -> Vec<Point> {
        let columns = self.plans[member.index()].columns.clone();
        let point = |index| Point {
            index,
            ..Point::default()
        };
        columns.map(point).collect()
    }

    fn run(&self, points: &mut [Point], member: &CrewMember<'_>) {
        let plan = &self.plans[member.index()];
        let ours = &self.finished[member.index()].0;
        // How many timesteps all readers are known to have finished.
        let mut readers_finished = if plan.readers.is_empty() { u64::MAX } else { 0 };
        let mut at = 0;
        for timestep in 0..self.graph.timesteps() {
            // The outputs of `timestep` − RING lie where ours go; they were read a timestep later.
            let needed = (timestep as u64 + 2).saturating_sub(RING as u64);
            if readers_finished < needed {
                readers_finished = wait_for_readers(plan, &self.finished, needed, member);
            }
            // At timestep 0 there are no inputs.
            let before = &self.outputs[timestep.wrapping_sub(1) % RING];
            let now = &self.outputs[timestep % RING];
            for task in &plan.steps[at] {
                let inputs = Inputs {
                    outputs: before,
                    from: &task.inputs,
                };
                for input in inputs.from {
                    let slot = before.slot(input.slot);
                    if !slot.is_published(timestep - 1) {
                        member.wait_until(|| slot.is_published(timestep - 1));
                    }
                }
                let Output { point, slot } = task.output;
                let point = &mut points[point as usize - plan.columns.start];
                let output = (self.call)(point, timestep, &inputs);
                now.slot(slot).publish(output, timestep);
            }
            // Release: our reads of this timestep come before others see it finished. Pairs with
            // the Acquire load in `wait_for_readers`.
            ours.store(timestep as u64 + 1, Ordering::Release);
            at += 1;
            if at == plan.steps.len() {
                at = self.graph.prologue();
            }
        }
    }
}

#[cold]
fn wait_for_readers(
    plan: &Plan,
    finished: &[CacheAligned<AtomicU64>],
    needed: u64,
    member: &CrewMember<'_>,
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
                    let ran = run(&graph, Kernel::Empty, &places);
                    assert!(ran.is_right(&graph), "{graph:?} on {threads}: {ran:?}");
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

    /// A reader that came too early would count its input as wrong.
    #[test]
    fn an_output_is_of_its_timestep() {
        let slot = Slot::default();
        assert!(!slot.is_published(0));
        slot.publish(Payload::of(3, 5), 3);
        assert!(slot.is_published(3) && !slot.is_published(2) && !slot.is_published(4));
        assert_eq!(slot.payload(), Payload::of(3, 5));
    }

    #[test]
    fn short_graphs_and_kernels() {
        let places = cpu::places(2).unwrap();
        for pattern in Pattern::ALL {
            for timesteps in [1, 2, 3] {
                let graph = Graph::new(pattern, 7, timesteps);
                let kernel = Kernel::Compute { iterations: 3 };
                let ran = run(&graph, kernel, &places);
                assert!(ran.is_right(&graph), "{graph:?}: {ran:?}");
            }
        }
    }

    #[test]
    fn a_task_too_few_or_a_wrong_input_is_noticed() {
        let graph = Graph::new(Pattern::Stencil1d, 4, 10);
        let right = run(&graph, Kernel::Empty, &cpu::places(1).unwrap());
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
