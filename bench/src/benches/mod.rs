//! The benches. Each measures ours and its limits in the same rounds, and checks what was computed.

mod barrier;
mod logistic;
mod task_graph;
mod task_rate;

use crate::session::Session;
use crate::{BenchError, Report};

pub(crate) struct Bench {
    pub(crate) name: &'static str,
    /// What it is there to show, in a line.
    pub(crate) claim: &'static str,
    pub(crate) run: fn(&mut Session<'_>) -> Result<Report, BenchError>,
}

pub(crate) const ALL: [Bench; 4] = [
    Bench {
        name: "task-rate",
        claim: "what it costs to spawn and dispatch a task",
        run: task_rate::run,
    },
    Bench {
        name: "barrier",
        claim: "a signal, a broadcast and a reduction in every iteration",
        run: barrier::run,
    },
    Bench {
        name: "task-graph",
        claim: "Task Bench's dependence patterns, beside hand-written threads",
        run: task_graph::run,
    },
    Bench {
        name: "logistic",
        claim: "logistic regression over 10 million rows, beside the memory's bandwidth",
        run: logistic::run,
    },
];
