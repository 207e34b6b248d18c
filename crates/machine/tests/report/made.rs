//! Ledgers made by hand: what an executor would have written of a job that nothing hinders, and of hindered ones.

use brambling_machine::ledger::{
    Ledger, Moment, StageEntry, StageWork, ThreadEntry, TimeParts, WorkerEntry,
};
use brambling_machine::report::{RandomRoof, Roofs};

/// Bytes that a thread streams per second at best, in these ledgers.
pub const STREAMED_PER_THREAD_S: f64 = 3.0e9;

/// What the made machine can do with four threads.
pub fn roofs() -> Roofs {
    Roofs {
        probed: true,
        memory_read_bytes_per_s: Some(4.0 * STREAMED_PER_THREAD_S),
        memory_copy_bytes_per_s: Some(3.1 * STREAMED_PER_THREAD_S),
        random: vec![
            RandomRoof {
                table_bytes: 1 << 20,
                accesses_per_s: 8.0e8,
            },
            RandomRoof {
                table_bytes: 1 << 28,
                accesses_per_s: 1.2e8,
            },
        ],
        flops_per_s: Some(6.4e10),
        disk_read_bytes_per_s: Some(5.2e8),
        disk_write_bytes_per_s: Some(3.1e8),
        network_bytes_per_s: Some(1.1e9),
    }
}

/// A job of a setup and a loop, on so many workers with so many threads, each with so many moments of some tasks.
pub fn healthy(workers: usize, threads: usize, moments: usize) -> Ledger {
    let wall_s = 2.1;
    let stages = vec![
        stage("load", "compute", false),
        stage("normalise", "compute", false),
        stage("assign", "compute", true),
        stage("sums", "scatter", true),
        stage("sums", "gather", true),
        stage("centres moved", "signal", true),
    ];
    let mut chance = Chance(7);
    let made = (1..=workers).map(|number| {
        let name = if workers == 1 {
            "here".to_string()
        } else {
            format!("w{number}")
        };
        worker(name, threads, moments, wall_s, stages.len(), &mut chance)
    });
    Ledger {
        program: "kmeans".into(),
        wall_s,
        succeeded: true,
        workers: made.collect(),
        stages,
    }
}

/// A stage's entry.
pub fn stage(name: &str, kind: &str, in_loop: bool) -> StageEntry {
    StageEntry {
        name: name.into(),
        kind: kind.into(),
        in_loop,
        python: false,
    }
}

fn worker(
    name: String,
    threads: usize,
    moments: usize,
    wall_s: f64,
    stages: usize,
    chance: &mut Chance,
) -> WorkerEntry {
    let mut made = WorkerEntry {
        name,
        cpus: threads as u32,
        stages: vec![StageWork::default(); stages],
        ..WorkerEntry::default()
    };
    for index in 0..threads {
        let thread = thread(index, moments, wall_s, chance);
        for moment in &thread.moments {
            made.tasks += moment.tasks;
            if let Some(stage) = moment.stage {
                made.stages[stage as usize].kernel_s += moment.parts.kernels;
            }
        }
        made.threads.push(thread);
    }
    for (index, work) in made.stages.iter_mut().enumerate() {
        // How near each stage comes to the machine's bandwidth.
        let near = [0.55, 0.93, 0.94, 0.71, 0.66, 0.0][index];
        work.streamed_bytes = (work.kernel_s * STREAMED_PER_THREAD_S * near) as u64;
        work.flops = (work.streamed_bytes as f64 * [0.0, 0.25, 2.1, 0.1, 0.1, 0.0][index]) as u64;
    }
    made.shards = threads as u32 * 4;
    made.mean_shard_s =
        made.stages.iter().map(|work| work.kernel_s).sum::<f64>() / f64::from(made.shards);
    made.longest_shard_s = made.mean_shard_s * (1.05 + 0.1 * chance.next());
    (made.sent_bytes, made.received_bytes) = (38_000_000, 38_000_000);
    made.disk_read_bytes = 30_000_000;
    (made.budget_bytes, made.peak_bytes) = (8 << 30, (3.1 * 1e9) as u64);
    made.last_task_s = wall_s * (0.985 + 0.01 * chance.next());
    made
}

fn thread(index: usize, count: usize, wall_s: f64, chance: &mut Chance) -> ThreadEntry {
    let lengths: Vec<f64> = (0..count).map(|_| 0.6 + 0.8 * chance.next()).collect();
    let scale = wall_s / lengths.iter().sum::<f64>();
    let (mut begin_s, mut sum, mut moments) = (0.0, TimeParts::default(), Vec::new());
    for (number, length) in lengths.into_iter().enumerate() {
        let length = length * scale;
        let (shares, stage) = kept_busy(number as f64 / count as f64, chance);
        let parts = TimeParts {
            kernels: shares.kernels * length,
            scheduling: shares.scheduling * length,
            exchange: shares.exchange * length,
            disk: shares.disk * length,
            startup: shares.startup * length,
            stragglers: shares.stragglers * length,
            ..TimeParts::default()
        };
        moments.push(Moment {
            begin_s,
            parts,
            stage,
            tasks: u64::from(stage.is_some()),
        });
        begin_s += length;
        sum.kernels += parts.kernels;
        sum.scheduling += parts.scheduling;
        sum.exchange += parts.exchange;
        sum.disk += parts.disk;
        sum.startup += parts.startup;
        sum.stragglers += parts.stragglers;
    }
    ThreadEntry {
        name: format!("thread {index}"),
        wall_s,
        parts: sum,
        moments,
    }
}

/// What a thread does at a point of the job, 0 to 1: shares of a moment, and the stage.
fn kept_busy(at: f64, chance: &mut Chance) -> (TimeParts, Option<u32>) {
    if at < 0.015 {
        return (
            TimeParts {
                startup: 1.0,
                ..TimeParts::default()
            },
            None,
        );
    }
    if at > 0.985 + 0.012 * chance.next() {
        return (
            TimeParts {
                stragglers: 1.0,
                ..TimeParts::default()
            },
            None,
        );
    }
    let lost = 0.005 + 0.02 * chance.next();
    if at < 0.06 {
        let disk = 0.35 * chance.next();
        return (
            TimeParts {
                kernels: 1.0 - lost - disk,
                scheduling: lost,
                disk,
                ..TimeParts::default()
            },
            Some(0),
        );
    }
    if at < 0.12 {
        return (
            TimeParts {
                kernels: 1.0 - lost,
                scheduling: lost,
                ..TimeParts::default()
            },
            Some(1),
        );
    }
    // Twenty turns of a loop: most of each assigns, then sums go round.
    let turn = (at - 0.12) / 0.88 * 20.0 % 1.0;
    let (stage, exchange) = match turn {
        turn if turn < 0.78 => (2, 0.0),
        turn if turn < 0.88 => (3, 0.02),
        turn if turn < 0.97 => (4, 0.1 + 0.5 * chance.next()),
        _ => (5, 0.3 * chance.next()),
    };
    (
        TimeParts {
            kernels: 1.0 - lost - exchange,
            scheduling: lost,
            exchange,
            ..TimeParts::default()
        },
        Some(stage),
    )
}

/// Numbers that look like chance and are the same each time.
struct Chance(u64);

impl Chance {
    /// 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}
