//! A task graph as a program: a shard per point, one exchange whose relation is the graph's edges.
//!
//! A turn is a timestep: a scatter hands each reader the task's output, a gather checks every input and
//! does the work. The first timestep has no inputs and is a compute stage before the loop.

use crate::BenchError;
use crate::session::Session;
use crate::task_graph::{Graph, Kernel, Payload};
use brambling::prelude::*;
use brambling::program::{DecodeError, RelationTable};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// What a task leaves, as it travels: 16 bytes, nothing behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Piece(Payload);

impl brambling::program::Payload for Piece {
    const FIXED: bool = true;
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("brambling_bench::Piece")
    }
    fn heap_bytes(&self) -> usize {
        0
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.timestep.encode(out);
        self.0.point.encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let (timestep, point) = (u64::decode(input)?, u64::decode(input)?);
        Ok(Piece(Payload { timestep, point }))
    }
}

/// A point's shard: what it did last, and what it has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Point {
    index: u32,
    output: Payload,
    /// Timesteps that have passed, tasks or not.
    passed: u64,
    /// Which set of inputs comes next.
    at: u32,
    tasks: u64,
    inputs: u64,
    mismatches: u64,
}

impl brambling::program::Payload for Point {
    const FIXED: bool = true;
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("brambling_bench::Point")
    }
    fn heap_bytes(&self) -> usize {
        0
    }
    fn encode(&self, out: &mut Vec<u8>) {
        Piece(self.output).encode(out);
        let counts = (self.passed, self.tasks, self.inputs, self.mismatches);
        (counts, self.at, self.index).encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let Piece(output) = Piece::decode(input)?;
        let ((passed, tasks, inputs, mismatches), at, index) =
            <((u64, u64, u64, u64), u32, u32)>::decode(input)?;
        Ok(Point {
            index,
            output,
            passed,
            at,
            tasks,
            inputs,
            mismatches,
        })
    }
}

/// What a point does at a timestep.
#[derive(Clone, Debug)]
enum Step {
    /// The point has no task there.
    Absent,
    /// Reads the outputs of these points, ascending.
    Reads(Vec<u32>),
}

/// The steps of every point over the representative timesteps from 1 on.
struct Steps {
    of_point: Vec<Vec<Step>>,
    /// Where the period begins.
    period_at: u32,
}

impl Steps {
    fn new(graph: &Graph) -> Steps {
        let last = graph.prologue() + graph.period();
        let step = |point: usize, timestep: usize| {
            if point >= graph.width_at(timestep) {
                return Step::Absent;
            }
            let mut reads: Vec<u32> = graph
                .dependencies(timestep, point)
                .into_iter()
                .map(|source| source as u32)
                .collect();
            reads.sort_unstable();
            Step::Reads(reads)
        };
        Steps {
            of_point: (0..graph.width())
                .map(|point| (1..last).map(|at| step(point, at)).collect())
                .collect(),
            period_at: graph.prologue() as u32 - 1,
        }
    }

    /// Turn t of the exchange leads from timestep t to t + 1.
    fn relation(&self) -> Relation {
        let table = |at: usize| RelationTable {
            sources: self
                .of_point
                .iter()
                .map(|steps| match &steps[at] {
                    Step::Absent => Vec::new(),
                    Step::Reads(points) => points.clone(),
                })
                .collect(),
        };
        let period_at = self.period_at as usize;
        Relation::Tables {
            prologue: (0..period_at).map(table).collect(),
            period: (period_at..self.of_point[0].len()).map(table).collect(),
        }
    }

    /// Checks every input of the point's next task, and does its work.
    #[inline]
    fn take(&self, point: &mut Point, inbox: &mut Inbox<'_, Piece>, kernel: Kernel) {
        let steps = &self.of_point[point.index as usize];
        let before = point.passed;
        let step = &steps[point.at as usize];
        point.passed += 1;
        point.at += 1;
        if point.at as usize == steps.len() {
            point.at = self.period_at;
        }
        let Step::Reads(expected) = step else {
            point.mismatches += inbox.count() as u64;
            return;
        };
        let mut expected = expected.iter();
        for (source, piece) in inbox {
            let right = Payload::of(before as usize, source as usize);
            let is_right = expected.next() == Some(&source) && piece.0 == right;
            point.mismatches += u64::from(!is_right);
            point.inputs += 1;
        }
        point.mismatches += expected.len() as u64;
        kernel.execute();
        point.tasks += 1;
        point.output = Payload::of(point.passed as usize, point.index as usize);
    }
}

/// A graph as a program, and its points.
pub(super) fn program(graph: &Graph, kernel: Kernel) -> (Program, Dataset<Point>) {
    let steps = Arc::new(Steps::new(graph));
    let mut p = Program::new(format!("task-graph {}", graph.pattern().name()));
    let points = p.dataset::<Point>("points", graph.width() as u32);
    let first = graph.width_at(0) as u32;
    p.compute("first").update(&points).run_with_context(
        move |context: &mut Context<'_>, point: &mut Point| {
            point.index = context.partition();
            if point.index < first {
                kernel.execute();
                point.tasks += 1;
                point.output = Payload::of(0, point.index as usize);
            }
        },
    );
    let edges = p.exchange::<Piece>("edges", steps.relation());
    p.repeat(graph.timesteps() as u64 - 1, |p| {
        p.scatter("send", &edges).read(&points).run(
            |point: &Point, out: &mut Outbox<'_, Piece>| {
                out.for_each(|_, piece| *piece = Piece(point.output));
            },
        );
        let steps = steps.clone();
        p.gather("task", &edges).update(&points).run(
            move |inbox: &mut Inbox<'_, Piece>, point: &mut Point| {
                steps.take(point, inbox, kernel);
            },
        );
    });
    p.keep(&points);
    (p, points)
}

/// Runs a graph on `threads` threads of the engine, and gives the wall time from its first task to its last.
pub(super) fn run(
    session: &mut Session<'_>,
    graph: &Graph,
    kernel: Kernel,
    threads: u32,
) -> Result<Duration, BenchError> {
    let (program, points) = program(graph, kernel);
    let mut outcome = session.run(program, threads)?;
    let wall = outcome.tally().wall;
    check(session, graph, &outcome.take_all(&points))?;
    Ok(wall)
}

pub(super) fn check(
    session: &Session<'_>,
    graph: &Graph,
    points: &[Point],
) -> Result<(), BenchError> {
    let tasks: u64 = points.iter().map(|point| point.tasks).sum();
    let inputs: u64 = points.iter().map(|point| point.inputs).sum();
    let mismatches: u64 = points.iter().map(|point| point.mismatches).sum();
    let last = graph.timesteps() - 1;
    let outputs_are_right = points
        .iter()
        .take(graph.width_at(last))
        .enumerate()
        .all(|(index, point)| point.output == Payload::of(last, index));
    let expected = (graph.tasks(), graph.inputs());
    session.check(
        (tasks, inputs) == expected && mismatches == 0 && outputs_are_right,
        || {
            format!(
                "{}: {tasks} tasks with {inputs} inputs, not {expected:?}, {mismatches} of them wrong",
                graph.pattern().name()
            )
        },
    )
}
