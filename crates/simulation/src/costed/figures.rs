//! Figures 5, 6 and 8 of the paper, redrawn: local against central scheduling of the same work.

use super::{
    CostedWork, Costs, Lengths, LinkCosts, SPARK_TASKS_PER_S, Scenario, SpreadShape, central, local,
};
use serde::Serialize;

/// Cores of a worker (Canary, §5.1: c4.8xlarge).
const CORES: u32 = 18;
/// How many workers each hands on to, where things are relayed.
const RELAYED: SpreadShape = SpreadShape::Relayed { fan_out: 8 };
/// How much longer Spark's kernels take than the paper's C++ (Canary, Table 1: 2.59 s and 0.47 s).
const SPARK_KERNELS: f64 = 2.59 / 0.47;
/// The share of a core's time that scheduling may take (Canary, §5.2).
const SCHEDULING: f64 = 0.1;
/// Stages between two signals of the micro-benchmark: the paper does not say.
const STAGES: u32 = 1_000;

/// How far the sweeps go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Up to so many workers, in powers of two.
    pub workers: u32,
    /// Up to so many partitions a core, in powers of two.
    pub partitions: u32,
    /// On so many workers (Canary, Figure 8: 32).
    pub partitions_on: u32,
    /// So many iterations of each run.
    pub iterations: u32,
}

impl Scale {
    /// The paper's.
    pub const PAPER: Scale = Scale {
        workers: 64,
        partitions: 16,
        partitions_on: 32,
        iterations: 20,
    };
}

fn powers(up_to: u32) -> impl Iterator<Item = u32> {
    (0..32)
        .map(|power| 1 << power)
        .take_while(move |it| *it <= up_to)
}

/// One number of workers of Figure 5: tasks a second while scheduling takes at most a tenth of each core.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure5 {
    /// Workers of 18 cores.
    pub workers: u32,
    /// As many single workers would, without a signal between them.
    pub alone: f64,
    /// Local scheduling, what is sent handed on and merged.
    pub relayed: f64,
    /// Local scheduling, everything straight to its destination.
    pub direct: f64,
    /// The same with the paper's 0.7 µs for a task, whose kernels may then be as short as 6.6 µs (Canary, Figure 4).
    pub paper_costs: f64,
    /// A central scheduler at the rate of our RPC.
    pub central_rpc: f64,
    /// A central scheduler at Spark's rate.
    pub central_spark: f64,
}

/// Task throughput over workers.
pub fn figure_5(costs: &Costs, scale: Scale) -> Vec<Figure5> {
    let row = |workers| {
        let work = micro(costs.task_ns, workers, scale);
        let paper = Costs {
            task_ns: 700.0,
            ..*costs
        };
        let paper_work = CostedWork {
            stage_ns: 6_600.0,
            ..work
        };
        let cores = f64::from(workers * CORES);
        let rate = |work: CostedWork, costs: Costs, spread| {
            local(&Scenario::quiet(work, costs, spread)).tasks_per_s()
        };
        let centrally = |rate| {
            let network = LinkCosts::of_the_paper();
            // A stage of a shard is a task, and each is dispatched: one stage says it all.
            let work = CostedWork { stages: 1, ..work };
            central(&work, &network, rate).tasks_per_s()
        };
        Figure5 {
            workers,
            alone: cores * 1e9 / (work.stage_ns + costs.task_ns),
            relayed: rate(work, *costs, RELAYED),
            direct: rate(work, *costs, SpreadShape::Direct),
            paper_costs: rate(paper_work, paper, RELAYED),
            central_rpc: centrally(costs.rpc_tasks_per_s()),
            central_spark: centrally(SPARK_TASKS_PER_S),
        }
    };
    powers(scale.workers).map(row).collect()
}

/// The paper's micro-benchmark: stages that keep the core busy, ten partitions a core (Canary, §5.2).
fn micro(task_ns: f64, workers: u32, scale: Scale) -> CostedWork {
    CostedWork {
        workers,
        cores: CORES,
        shards_per_core: 10,
        iterations: scale.iterations,
        stages: STAGES,
        stage_ns: task_ns * (1.0 - SCHEDULING) / SCHEDULING,
        lengths: Lengths::Even,
        model_bytes: 8,
        shard_bytes: 1 << 20,
        seed: 5,
    }
}

/// The paper's logistic regression: a billion vectors of 20 numbers, of which eight workers each take 0.47 s for an iteration with one
/// partition a core (Canary, Table 1 and §5.1), the slowest task of each deciding.
pub fn logistic(workers: u32, partitions: u32, iterations: u32) -> CostedWork {
    fixed(0.47, 8 * 21, workers, partitions, iterations)
}

/// The paper's k-means over the same vectors: 13,000 tasks a second on 64 workers (Canary, §5.3), three for each of 1,152 partitions and
/// four more, are 0.27 s for an iteration there, and eight times that on eight. Ten centres.
pub fn kmeans(workers: u32, partitions: u32, iterations: u32) -> CostedWork {
    fixed(
        8.0 * 3_460.0 / 13_000.0,
        8 * 210,
        workers,
        partitions,
        iterations,
    )
}

/// CostedWork that takes eight workers so many seconds when the slowest task takes 4⁄3 of the mean.
fn fixed(
    slowest_s: f64,
    model_bytes: u64,
    workers: u32,
    partitions: u32,
    iterations: u32,
) -> CostedWork {
    let core_seconds = slowest_s * 0.75 * f64::from(8 * CORES);
    let shards = f64::from(workers * CORES * partitions);
    CostedWork {
        workers,
        cores: CORES,
        shards_per_core: partitions,
        iterations,
        stages: 1,
        stage_ns: core_seconds * 1e9 / shards,
        lengths: Lengths::Pages,
        model_bytes,
        shard_bytes: 1 << 20,
        seed: 6,
    }
}

/// One point of Figures 6 and 8: milliseconds an iteration, and tasks a second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureRow {
    /// Workers of 18 cores.
    pub workers: u32,
    /// Partitions a core.
    pub partitions: u32,
    /// If nothing cost anything but kernels and they were spread evenly.
    pub ideal_ms: f64,
    /// Local scheduling, what is sent handed on and merged.
    pub relayed_ms: f64,
    /// Its tasks a second, three for each partition.
    pub relayed_tasks_per_s: f64,
    /// Local scheduling, everything straight to its destination.
    pub direct_ms: f64,
    /// A central scheduler at the rate of our RPC, one task for each partition.
    pub central_rpc_ms: f64,
    /// Its tasks a second.
    pub central_rpc_tasks_per_s: f64,
    /// A central scheduler at Spark's rate, with our kernels.
    pub central_spark_ms: f64,
    /// Its tasks a second.
    pub central_spark_tasks_per_s: f64,
    /// The share of its cores' time in which no kernel ran.
    pub central_spark_idle: f64,
    /// The same with kernels as slow as Spark's.
    pub spark_ms: f64,
    /// Its tasks a second.
    pub spark_tasks_per_s: f64,
    /// The share of its cores' time in which no kernel ran.
    pub spark_idle: f64,
}

fn point(work: CostedWork, costs: &Costs) -> FigureRow {
    let network = LinkCosts::of_the_paper();
    let relayed = local(&Scenario::quiet(work, *costs, RELAYED));
    let direct = local(&Scenario::quiet(work, *costs, SpreadShape::Direct));
    let rpc = central(&work, &network, costs.rpc_tasks_per_s());
    let ours = central(&work, &network, SPARK_TASKS_PER_S);
    let slow = CostedWork {
        stage_ns: work.stage_ns * SPARK_KERNELS,
        ..work
    };
    let spark = central(&slow, &network, SPARK_TASKS_PER_S);
    FigureRow {
        workers: work.workers,
        partitions: work.shards_per_core,
        ideal_ms: work.ideal_ns() / 1e6,
        relayed_ms: relayed.iteration_ms.median,
        relayed_tasks_per_s: relayed.tasks_per_s(),
        direct_ms: direct.iteration_ms.median,
        central_rpc_ms: rpc.iteration_ms.median,
        central_rpc_tasks_per_s: rpc.tasks_per_s(),
        central_spark_ms: ours.iteration_ms.median,
        central_spark_tasks_per_s: ours.tasks_per_s(),
        central_spark_idle: ours.idle,
        spark_ms: spark.iteration_ms.median,
        spark_tasks_per_s: spark.tasks_per_s(),
        spark_idle: spark.idle,
    }
}

/// Figure 6: an iteration over one input on more and more workers, one partition a core.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure6 {
    /// Logistic regression.
    pub logistic: Vec<FigureRow>,
    /// k-means.
    pub kmeans: Vec<FigureRow>,
}

/// Iteration time over workers. PageRank is left out: the paper does not say what its exchange carries.
pub fn figure_6(costs: &Costs, scale: Scale) -> Figure6 {
    let row = |work: fn(u32, u32, u32) -> CostedWork| {
        let of = |workers| point(work(workers, 1, scale.iterations), costs);
        powers(scale.workers).map(of).collect()
    };
    Figure6 {
        logistic: row(logistic),
        kmeans: row(kmeans),
    }
}

/// Figure 8: logistic regression on 32 workers with more and more partitions a core.
pub type Figure8 = Vec<FigureRow>;

/// Iteration time and task rate over partitions a core.
pub fn figure_8(costs: &Costs, scale: Scale) -> Figure8 {
    let workers = scale.partitions_on;
    let of = |partitions| point(logistic(workers, partitions, scale.iterations), costs);
    powers(scale.partitions).map(of).collect()
}
