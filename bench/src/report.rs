//! What a bench found: stable JSON keys, and the lines of a table.

use brambling_machine::Figure;
use serde::Serialize;
use std::collections::BTreeMap;

/// What a bench found. Serialises to the JSON that claims and users read; its keys are stable.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The bench.
    pub bench: &'static str,
    /// Version of Brambling.
    pub version: &'static str,
    /// The CPU's model.
    pub cpu: String,
    /// The best instruction set of the CPU.
    pub isa: &'static str,
    /// Threads of the engine and of every limit.
    pub threads: u32,
    /// Whether sizes were tiny: then no figure says anything.
    pub smoke: bool,
    /// Rounds that count.
    pub rounds: usize,
    /// Rounds thrown away because a limit moved by more than 10 % within them.
    pub repeated: usize,
    /// Rounds that count although a limit moved: the repeats were used up.
    pub unsettled: usize,
    /// The bench's own figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// Every limit's loop.
    pub limits: Vec<Limit>,
    /// The same for reading.
    #[serde(skip)]
    pub lines: Vec<Line>,
}

/// The figures of each bench.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Figures {
    /// `task-rate`
    TaskRate {
        /// Core time of a task that bumps a counter.
        ns_per_task: Figure,
        /// Tasks per second and core when a tenth of the time is overhead.
        tasks_per_s_per_core_at_10pct: Figure,
        /// The calibration: one dynamic call that bumps a counter.
        indirect_call_ns: Figure,
        /// The same stages one after another on one thread, called through the same kind of table.
        plain_loop_ns: Figure,
    },
    /// `barrier`
    Barrier {
        /// By number of shards.
        us_per_iteration: BTreeMap<&'static str, Figure>,
        /// The calibration: a word to another core and back.
        spin_round_trip_us: Figure,
        /// The same work on one thread without any engine, by number of shards.
        plain_loop_us: BTreeMap<&'static str, Figure>,
    },
    /// `task-graph`
    TaskGraph {
        /// One per pattern and width.
        patterns: Vec<PatternFigures>,
    },
    /// `logistic`
    Logistic {
        /// One pass over the data, one update of the weights.
        ms_per_iteration: Figure,
        /// One gradient by the loop that anyone would write first, on one thread.
        plain_loop_ms: Figure,
        /// One gradient by the best bare loop, on as many threads.
        bare_loop_ms: Figure,
        /// The input's bytes ÷ the best read-only bandwidth of the run.
        ideal_ms: Figure,
        /// Ideal ÷ ours.
        share_of_ideal: Figure,
        /// Tasks that the engine ran per second, over all threads.
        tasks_per_s: Figure,
        /// Which limit is nearer.
        bound_by: &'static str,
        /// Most memory that was resident at once.
        peak_rss_bytes: u64,
    },
    /// `kmeans`
    KMeans {
        /// Centres.
        k: usize,
        /// One pass over the data, one move of the centres.
        ms_per_iteration: Figure,
        /// One iteration by the loop that anyone would write first, on one thread. It takes so long that it
        /// has fewer samples where centres are many.
        plain_loop_ms: Figure,
        /// One iteration by the best bare loop, on as many threads.
        bare_loop_ms: Figure,
        /// The longer of two: the input's bytes ÷ the best read-only bandwidth of the run, and an iteration's
        /// arithmetic ÷ the run's peak.
        ideal_ms: Figure,
        /// Ideal ÷ ours.
        share_of_ideal: Figure,
        /// Tasks that the engine ran per second, over all threads.
        tasks_per_s: Figure,
        /// Which limit is nearer.
        bound_by: &'static str,
        /// Arithmetic of an iteration ÷ its median time.
        gflops: f64,
        /// Most memory that was resident at once.
        peak_rss_bytes: u64,
    },
    /// `pagerank`
    PageRank {
        /// Which graph.
        graph: &'static str,
        /// Of ranks, of the table that is gathered from, and of the loops.
        dtype: &'static str,
        /// Vertices.
        vertices: usize,
        /// Directed edges.
        edges: usize,
        /// Partitions of vertices, and as many of edges.
        partitions: u32,
        /// One pass over the edges, and the rule.
        ms_per_iteration: Figure,
        /// One iteration by the loop that anyone would write first, on one thread.
        plain_loop_ms: Figure,
        /// One iteration by the best bare pull loop, on as many threads.
        bare_loop_ms: Figure,
        /// As many gathers as there are edges, from a table of 1 MB, by the best loop on as many threads.
        ideal_ms: Figure,
        /// Ideal ÷ ours.
        share_of_ideal: Figure,
        /// Edges ÷ the time of an iteration.
        edges_per_s: Figure,
        /// Gathers from a table of 1 MB, by the best loop on as many threads.
        gathers_per_s: Figure,
        /// Tasks that the engine ran per second, over all threads.
        tasks_per_s: Figure,
        /// From the arrays to the edges in their partitions.
        dealing_ms: Figure,
        /// Most memory beyond the arrays of sources and targets at once ÷ edges, in the first run.
        added_bytes_per_edge: f64,
        /// Which limit is nearer.
        bound_by: &'static str,
        /// Most memory that was resident at once during that run.
        peak_rss_bytes: u64,
    },
}

/// The figures of a task graph.
#[derive(Clone, Debug, Serialize)]
pub struct PatternFigures {
    /// Task Bench's name.
    pub pattern: &'static str,
    /// Points of a timestep.
    pub width: usize,
    /// Cores × wall ÷ tasks with an empty kernel.
    pub overhead_us: Figure,
    /// The same of hand-written pinned threads.
    pub bare_overhead_us: Figure,
    /// The same of a plain loop on one thread.
    pub plain_loop_us: Figure,
    /// Smallest task that still reaches half of the peak.
    pub metg50_us: Figure,
    /// Smallest task that still reaches three quarters of the peak.
    pub metg75_us: Figure,
}

/// One loop of a limit.
#[derive(Clone, Debug, Serialize)]
pub struct Limit {
    /// Its stable name.
    pub name: String,
    /// The unit of its figure.
    pub unit: &'static str,
    /// What it took.
    #[serde(flatten)]
    pub figure: Figure,
}

/// A line of the table.
#[derive(Clone, Debug)]
pub struct Line {
    /// What was measured.
    pub name: String,
    /// How much of the unit.
    pub figure: Figure,
    /// The unit.
    pub unit: &'static str,
    /// What it is in terms of a limit, in words.
    pub note: String,
}

impl Line {
    pub(crate) fn new(name: impl Into<String>, figure: Figure, unit: &'static str) -> Line {
        Line {
            name: name.into(),
            figure,
            unit,
            note: String::new(),
        }
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Line {
        self.note = note.into();
        self
    }
}

/// `a ÷ b` of the medians, with what it is in terms of.
pub(crate) fn ratio(a: Figure, b: Figure, of: &str) -> String {
    format!("{:.2} × {of}", a.median / b.median)
}
