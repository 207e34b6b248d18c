//! What a bench found: stable JSON keys, and the lines of a table.

use crate::benches::sort_costs::SortCostsFigures;
use crate::benches::word_count::WordCountFigures;
use crate::session::limit;
use crate::task_times::TaskTimesFigures;
use brambling_machine::Figure;
use brambling_machine::measure::Measured;
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
    /// How long tasks took, where that was asked for. With several numbers of partitions each has its own.
    #[serde(flatten)]
    pub task_times: Option<TaskTimesFigures>,
    /// Every limit's loop.
    pub limits: Vec<Limit>,
    /// The same for reading.
    #[serde(skip)]
    pub lines: Vec<Line>,
    /// What has more columns than a line.
    #[serde(skip)]
    pub tables: Vec<Table>,
}

impl Report {
    /// With how long the tasks of an iteration took, where that was asked for.
    pub(crate) fn with_task_times(mut self, figures: Option<TaskTimesFigures>) -> Report {
        let title = "the tasks of the iterations, in µs";
        let tables = figures
            .iter()
            .map(|figures| figures.table(title.to_owned()));
        self.tables.extend(tables);
        self.task_times = figures;
        self
    }
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
    /// `job-start`
    JobStart {
        /// From giving a program of eight tasks to having what it left, in this process.
        alone_ms: Figure,
        /// The calibration: a word to another core and back.
        spin_round_trip_ms: Figure,
    },
    /// `task-graph`
    TaskGraph {
        /// One per pattern and width.
        patterns: Vec<PatternFigures>,
    },
    /// `logistic`, `kmeans` and `pagerank`
    Iterations {
        /// What is iterated over.
        #[serde(flatten)]
        subject: Subject,
        /// Of the samples; in `pagerank` of vertices, and as many of edges.
        partitions: u32,
        /// One pass over the data, and what follows from it: an update of the weights, a move of the centres, the rule.
        ms_per_iteration: Figure,
        /// One iteration by the loop that anyone would write first, on one thread. In `kmeans` it takes so long that it
        /// has fewer samples where centres are many.
        plain_loop_ms: Figure,
        /// One iteration by the best bare loop, on as many threads.
        bare_loop_ms: Figure,
        /// The input's bytes ÷ the best read-only bandwidth of the run; in `kmeans` an iteration's arithmetic ÷ the run's
        /// peak, where that is longer; in `pagerank` as many gathers as there are edges, from a table of 1 MB.
        ideal_ms: Figure,
        /// Ideal ÷ ours.
        share_of_ideal: Figure,
        /// Tasks that the engine ran per second, over all threads.
        tasks_per_s: Figure,
        /// Which limit is nearer.
        bound_by: &'static str,
        /// Most memory that was resident at once; in `pagerank` during the first run.
        peak_rss_bytes: u64,
        /// What one of them has beside.
        #[serde(flatten)]
        own: Option<OwnFigures>,
    },
    /// `logistic`, `kmeans` and `pagerank` on workers
    OnWorkers {
        /// Processes.
        workers: u32,
        /// Of each.
        threads_per_worker: u32,
        /// What is iterated over.
        #[serde(flatten)]
        subject: Subject,
        /// Of the samples, or of vertices.
        partitions: u32,
        /// On the workers.
        ms_per_iteration: Figure,
        /// In one process of as many threads.
        one_process_ms: Figure,
        /// One process's time ÷ the workers', within each round.
        share_of_one_process: Figure,
    },
    /// `barrier` on workers
    BarrierOnWorkers {
        /// Processes.
        workers: u32,
        /// By number of shards.
        us_per_iteration: BTreeMap<&'static str, Figure>,
        /// The calibration: eight bytes to another thread and back over loopback TCP, both polling.
        polled_round_trip_us: Figure,
    },
    /// `job-start` on workers
    JobStartOnWorkers {
        /// Processes.
        workers: u32,
        /// From giving a program of eight tasks to having what it left.
        cluster_ms: Figure,
        /// The calibration: eight bytes to another thread and back over loopback TCP, both polling.
        polled_round_trip_ms: Figure,
    },
    /// `task-rate` on workers
    TaskRateOnWorkers {
        /// Processes.
        workers: u32,
        /// CPU time of all workers ÷ tasks.
        cpu_ns_per_task: Figure,
        /// The same of one worker.
        one_worker_cpu_ns_per_task: Figure,
    },
    /// `task-graph` on workers
    TaskGraphOnWorkers {
        /// Processes.
        workers: u32,
        /// Of each of them.
        threads_per_worker: u32,
        /// In Task Bench's order.
        patterns: Vec<PatternOnWorkers>,
    },
    /// `shuffle`
    Shuffle {
        /// Processes.
        workers: u32,
        /// From small pieces to large ones.
        sizes: Vec<SizeFigures>,
    },
    /// `word-count`
    WordCount(WordCountFigures),
    /// `sort-costs`
    SortCosts(SortCostsFigures),
    /// `controller-load`
    ControllerLoad {
        /// By workers, and then by tasks.
        runs: Vec<LoadFigures>,
        /// Messages of a second: the most ÷ the least over numbers of tasks, of the workers for which that is most.
        messages_over_tasks: f64,
        /// The same of CPU time.
        cpu_over_tasks: f64,
    },
    /// `logistic`, `kmeans` and `pagerank` with several numbers of partitions
    Sweep {
        /// What is iterated over.
        #[serde(flatten)]
        subject: Subject,
        /// As in the bench without a sweep.
        ideal_ms: Figure,
        /// Which limit that is.
        bound_by: &'static str,
        /// From few partitions to many.
        sweep: Vec<SweepFigures>,
    },
}

/// What `logistic`, `kmeans` and `pagerank` iterate over: those of a bench's options that say it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Subject {
    /// Centres of `kmeans`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k: Option<usize>,
    /// Which graph of `pagerank`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<&'static str>,
    /// In `pagerank`, of ranks, of the table that is gathered from, and of the loops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<&'static str>,
}

/// Figures of iterations that one bench has.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum OwnFigures {
    /// `kmeans`
    KMeans {
        /// Arithmetic of an iteration ÷ its median time.
        gflops: f64,
    },
    /// `pagerank`
    PageRank {
        /// Vertices.
        vertices: usize,
        /// Directed edges.
        edges: usize,
        /// Edges ÷ the time of an iteration.
        edges_per_s: Figure,
        /// Gathers from a table of 1 MB, by the best loop on as many threads.
        gathers_per_s: Figure,
        /// From the arrays to the edges in their partitions.
        dealing_ms: Figure,
        /// Most memory beyond the arrays of sources and targets at once ÷ edges, in the first run.
        added_bytes_per_edge: f64,
    },
}

/// Pieces of one size between two workers.
#[derive(Clone, Debug, Serialize)]
pub struct SizeFigures {
    /// Of a piece.
    pub message_bytes: usize,
    /// Ours, over both directions.
    pub bytes_per_s: Figure,
    /// Bare TCP in the same pattern, the best loop.
    pub raw_tcp_bytes_per_s: Figure,
    /// Ours ÷ bare TCP.
    pub share: Figure,
    /// Bare Unix sockets in the same pattern, the best loop.
    pub raw_unix_bytes_per_s: Figure,
    /// Ours ÷ bare Unix sockets.
    pub share_of_unix: Figure,
}

/// What a second of a job brings the controller.
#[derive(Clone, Debug, Serialize)]
pub struct LoadFigures {
    /// Processes.
    pub workers: u32,
    /// Of the job, about.
    pub tasks: u64,
    /// Frames that it hears and says.
    pub messages_per_s: Figure,
    /// Shards that moved meanwhile.
    pub moves_per_s: Figure,
    /// CPU time of its threads.
    pub cpu_ms_per_s: Figure,
}

/// An iteration with so many partitions.
#[derive(Clone, Debug, Serialize)]
pub struct SweepFigures {
    /// For each thread.
    pub partitions_per_core: u32,
    /// That there were: of the samples, or of vertices.
    pub partitions: u32,
    /// Of an iteration.
    pub ms_per_iteration: Figure,
    /// Tasks that the engine ran per second, over all threads.
    pub tasks_per_s: Figure,
    /// How long they took, where that was asked for.
    #[serde(flatten)]
    pub task_times: Option<TaskTimesFigures>,
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
    /// The same of hand-written pinned threads, which call a point through a pointer and pass outputs through flagged slots. The
    /// threads of earlier versions knew what their tasks do: their figures do not compare with these.
    pub bare_overhead_us: Figure,
    /// The same of one such thread alone: a loop that calls the points in order.
    pub plain_loop_us: Figure,
    /// The same of the stencil with MPI, a rank per thread. None for other patterns, and where MPI is not installed or does not run.
    pub mpi_us: Option<Figure>,
    /// Smallest task that still reaches half of the peak.
    pub metg50_us: Figure,
    /// Smallest task that still reaches three quarters of the peak.
    pub metg75_us: Figure,
}

/// The figures of a task graph on workers.
#[derive(Clone, Debug, Serialize)]
pub struct PatternOnWorkers {
    /// Task Bench's name.
    pub pattern: &'static str,
    /// Points of a timestep.
    pub width: usize,
    /// Cores × wall ÷ tasks with an empty kernel, of what a longer job has more than a shorter one.
    pub overhead_us: Figure,
    /// The same in one process of as many threads.
    pub one_process_us: Figure,
    /// The one by the other, pair by pair.
    pub over_one_process: Figure,
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

/// A table for reading, below the lines.
#[derive(Clone, Debug)]
pub struct Table {
    /// What it shows, and in which unit.
    pub title: String,
    /// Above each column but the first.
    pub heads: &'static [&'static str],
    /// A name, and a number for each column.
    pub rows: Vec<(String, Vec<f64>)>,
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

/// Ideal ÷ ours within each round, `scale` being the ideal's in ours' unit: before and after ours the machine
/// was the same.
pub(crate) fn share_of_ideal(measured: &Measured, ours: &str, ideal: &str, scale: f64) -> Figure {
    // A limit has two samples a round.
    let limits = measured.samples(ideal).chunks(2);
    let rounds = measured.samples(ours).iter().zip(limits);
    let shares: Vec<f64> = rounds
        .map(|(ours, limits)| {
            let best = limits.iter().copied().fold(f64::INFINITY, f64::min);
            best * scale / ours
        })
        .collect();
    Figure::of(&shares)
}

/// The one ÷ the other, within each round.
pub(crate) fn over(measured: &Measured, one: &str, other: &str) -> Figure {
    let pairs = measured.samples(one).iter().zip(measured.samples(other));
    let ratios: Vec<f64> = pairs.map(|(one, other)| one / other).collect();
    Figure::of(&ratios)
}

/// The loops of limits, in another unit.
pub(crate) fn limits<'n>(
    measured: &Measured,
    names: impl IntoIterator<Item = &'n str>,
    scale: f64,
    unit: &'static str,
) -> Vec<Limit> {
    let names = names.into_iter();
    names
        .map(|name| limit(measured, name, scale, unit))
        .collect()
}

/// A line for each limit's loop, with what `note` says about it.
pub(crate) fn limit_lines(
    limits: &[Limit],
    note: impl Fn(&str) -> Option<String>,
) -> impl Iterator<Item = Line> {
    limits.iter().map(move |limit| {
        let line = Line::new(format!("limit: {}", limit.name), limit.figure, limit.unit);
        line.note(note(&limit.name).unwrap_or_default())
    })
}

/// Most memory that was resident at once, and what `note` says about that many gigabytes.
pub(crate) fn memory_line(peak_rss_bytes: u64, note: impl FnOnce(f64) -> String) -> Line {
    let gb = peak_rss_bytes as f64 / 1e9;
    Line::new("peak memory", Figure::of(&[gb]), "GB").note(note(gb))
}
