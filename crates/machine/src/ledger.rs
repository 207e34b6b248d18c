//! What one job did and where its threads' time went, as whoever ran it counted: the report's input.
//!
//! An executor fills a ledger; a report judges it by what the machine can do. This module only says what is
//! counted, and never measures.

use serde::{Deserialize, Serialize};

/// What a job did, whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    /// The program's name.
    pub program: String,
    /// Seconds from the call that ran the job to its end.
    pub wall_s: f64,
    /// Whether the job ended well.
    pub succeeded: bool,
    /// The stages of the program, in its order.
    pub stages: Vec<StageEntry>,
    /// One for each process that ran a part: one alone, or every worker of a cluster.
    pub workers: Vec<WorkerEntry>,
}

/// One process's part of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerEntry {
    /// "here" for a process alone, else the worker's name, such as "w3".
    pub name: String,
    /// The name of its machine; empty where nobody knows, which counts as a machine of its own.
    pub host: String,
    /// CPUs that its threads may use.
    pub cpus: u32,
    /// Its threads, those of the pool first, then the calling thread when that ran stages.
    pub threads: Vec<ThreadEntry>,
    /// By stage, as in [`Ledger::stages`].
    pub stages: Vec<StageWork>,
    /// Tasks retired.
    pub tasks: u64,
    /// Shards that it held at the end.
    pub shards: u32,
    /// How long the shards of one group here ran, in seconds: the longest and the mean. Shards of a group do the same with other data, and
    /// the group is the one whose shards ran longest together; of one that has a single shard nothing is told.
    pub longest_shard_s: f64,
    /// See `longest_shard_s`.
    pub mean_shard_s: f64,
    /// Bytes sent to and received from other processes.
    pub sent_bytes: u64,
    /// See `sent_bytes`.
    pub received_bytes: u64,
    /// Bytes read from and written to disks: what kernels read and wrote of files, and what was spilled.
    pub disk_read_bytes: u64,
    /// See `disk_read_bytes`.
    pub disk_written_bytes: u64,
    /// Of those, what was spilled for want of memory.
    pub spilled_bytes: u64,
    /// What the job could take of this process's memory, and the most that it took.
    pub budget_bytes: u64,
    /// See `budget_bytes`.
    pub peak_bytes: u64,
    /// Seconds from the job's begin to the end of this worker's last task.
    pub last_task_s: f64,
}

/// Where one thread's time went. The parts sum to `wall_s`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadEntry {
    /// "thread 0", or "caller".
    pub name: String,
    /// Seconds from the job's begin to its end.
    pub wall_s: f64,
    /// Where they went.
    pub parts: TimeParts,
    /// The same in pieces of time, in order and without gaps; the parts of all of them sum to `parts`.
    pub moments: Vec<Moment>,
}

/// Seconds by what a thread did, or waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeParts {
    /// In kernels.
    pub kernels: f64,
    /// Finding, issuing and retiring tasks, waking shards.
    pub scheduling: f64,
    /// Without work, while shards waited for pieces of others.
    pub exchange: f64,
    /// Without work, while a shard waited for room in memory.
    pub memory: f64,
    /// Without work, while a disk was read or written.
    pub disk: f64,
    /// Without work, or in a task, while Python's interpreter was busy elsewhere.
    pub interpreter: f64,
    /// Writing to and reading from the spill directory.
    pub spilling: f64,
    /// Before the first task: placing shards, making their data.
    pub startup: f64,
    /// Without work, after this thread's last task and before the job's end: the last one is waited for.
    pub stragglers: f64,
    /// For other jobs that share the threads.
    pub other_jobs: f64,
}

/// A piece of a thread's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Moment {
    /// Seconds since the job's begin.
    pub begin_s: f64,
    /// How long it took: the sum of `parts`.
    pub parts: TimeParts,
    /// The stage whose kernels took most of it, as an index of [`Ledger::stages`].
    pub stage: Option<u32>,
    /// Tasks that ended in it.
    pub tasks: u64,
}

/// What a stage is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageEntry {
    /// Its name. A scatter and its gather may share one.
    pub name: String,
    /// "compute", "scatter", "gather" or "signal".
    pub kind: String,
    /// Whether it stands in a loop. The stages outside loops and those in them are the job's phases: "setup" and "loop".
    pub in_loop: bool,
    /// Whether it runs Python code under the interpreter's lock.
    pub python: bool,
}

/// What the tasks of a stage took and moved, in one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageWork {
    /// Seconds in its kernels, over all threads.
    pub kernel_s: f64,
    /// Bytes that built-in kernels read and wrote in order.
    pub streamed_bytes: u64,
    /// Places that built-in kernels read or wrote out of order, and the size of the table that they lie in, in bytes.
    pub random_accesses: u64,
    /// See `random_accesses`: the largest.
    pub table_bytes: u64,
    /// Floating-point operations of built-in kernels; a fused multiply-add is two.
    pub flops: u64,
    /// Bytes that built-in kernels read from files and wrote to them.
    pub file_read_bytes: u64,
    /// See `file_read_bytes`.
    pub file_written_bytes: u64,
}

impl TimeParts {
    /// Names and values, in the order in which they are shown. The names are the keys of the JSON.
    pub fn named(&self) -> [(&'static str, f64); 10] {
        [
            ("kernels", self.kernels),
            ("scheduling", self.scheduling),
            ("exchange", self.exchange),
            ("memory", self.memory),
            ("disk", self.disk),
            ("interpreter", self.interpreter),
            ("spilling", self.spilling),
            ("startup", self.startup),
            ("stragglers", self.stragglers),
            ("other_jobs", self.other_jobs),
        ]
    }

    /// The sum of all.
    pub fn total(&self) -> f64 {
        self.named().iter().map(|(_, seconds)| seconds).sum()
    }
}

impl Ledger {
    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a ledger has no keys but strings")
    }

    /// From JSON. What is missing is nothing.
    ///
    /// # Errors
    /// When it is none of a ledger.
    pub fn from_json(text: &str) -> Result<Ledger, serde_json::Error> {
        serde_json::from_str(text)
    }
}
