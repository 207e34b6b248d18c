//! The benches. Each measures ours and its limits in the same rounds, and checks what was computed.

pub(crate) mod barrier;
mod controller_load;
mod iterations;
mod job_start;
pub(crate) mod kmeans;
pub(crate) mod logistic;
mod made;
pub(crate) mod pagerank;
pub(crate) mod shuffle;
pub(crate) mod sort_costs;
pub(crate) mod task_graph;
pub(crate) mod task_rate;
pub(crate) mod word_count;

use crate::session::Session;
use crate::{BenchError, Own, Report};

pub(crate) struct Bench {
    pub(crate) name: &'static str,
    /// What it is there to show, in a line.
    pub(crate) claim: &'static str,
    /// The options that it has and others do not.
    pub(crate) takes: &'static [Own],
    pub(crate) run: fn(&mut Session<'_>) -> Result<Report, BenchError>,
}

pub(crate) const ALL: [Bench; 11] = [
    Bench {
        name: "task-rate",
        claim: "what it costs to spawn and dispatch a task",
        takes: &[Own::Workers],
        run: task_rate::run,
    },
    Bench {
        name: "barrier",
        claim: "a signal, a broadcast and a reduction in every iteration",
        takes: &[Own::Workers],
        run: barrier::run,
    },
    Bench {
        name: "job-start",
        claim: "what a job costs to begin and to end, alone and on workers",
        takes: &[Own::Workers],
        run: job_start::run,
    },
    Bench {
        name: "task-graph",
        claim: "Task Bench's dependence patterns, beside hand-written threads; the stencil beside MPI, if installed",
        takes: &[Own::Workers],
        run: task_graph::run,
    },
    Bench {
        name: "logistic",
        claim: "logistic regression over 10 million rows, beside the memory's bandwidth",
        takes: &[Own::PartitionsPerCore, Own::TaskTimes, Own::Workers],
        run: logistic::run,
    },
    Bench {
        name: "kmeans",
        claim: "k-means over 10 million rows, beside bare loops; --k N: centres, 10 unless told",
        takes: &[Own::K, Own::PartitionsPerCore, Own::TaskTimes, Own::Workers],
        run: kmeans::run,
    },
    Bench {
        name: "pagerank",
        claim: "PageRank beside bare pull loops and gathers; --graph kron21|lognormal, --dtype",
        takes: &[
            Own::Graph,
            Own::Dtype,
            Own::PartitionsPerCore,
            Own::TaskTimes,
            Own::Workers,
        ],
        run: pagerank::run,
    },
    Bench {
        name: "shuffle",
        claim: "pieces between two workers, beside bare sockets",
        takes: &[Own::Workers],
        run: shuffle::run,
    },
    Bench {
        name: "word-count",
        claim: "the words of a gigabyte of text, beside reading it and bare look-ups in a table",
        takes: &[],
        run: word_count::run,
    },
    Bench {
        name: "sort-costs",
        claim: "what each feature of a sort of files costs; --bytes of the input, --rounds",
        takes: &[Own::Bytes, Own::Rounds],
        run: sort_costs::run,
    },
    Bench {
        name: "controller-load",
        claim: "what the controller hears and computes, over 1e5 to 1e9 tasks (some ten minutes)",
        takes: &[],
        run: controller_load::run,
    },
];
