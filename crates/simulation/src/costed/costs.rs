//! What things cost, and where each figure is from.

use serde::{Deserialize, Serialize};

/// Tasks a second that Spark's central scheduler dispatches (Canary, §5.2 and Figure 8b: 2,600 measured, 2,500 at 16 partitions a core).
pub const SPARK_TASKS_PER_S: f64 = 2_600.0;

/// What the machine contributes; `brambling-machine` measures it, beside which [`calibrate`](super::calibrate) measures our own code.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// A sleeping thread runs after so long, in nanoseconds (`probes::wake_us`).
    pub wake_ns: f64,
    /// The system call that writes a small frame, in nanoseconds (`network::loopback`).
    pub write_ns: f64,
    /// Writing a small message and reading its answer while many are under way, in nanoseconds (`network::loopback`).
    pub pipelined_ns: f64,
    /// A small message there and back over TCP between polling threads of one machine, in nanoseconds (`network::loopback`): to judge
    /// the others by, which are its parts.
    pub round_trip_ns: f64,
}

/// Measured costs, each in nanoseconds of one thread unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// What the machine contributes.
    pub machine: Machine,
    /// One task, spawned and dispatched by the executor, its kernel next to nothing (as `brambling bench task-rate`).
    pub task_ns: f64,
    /// One shard's turn with its neighbours in one process: gather of a broadcast, an empty stage, scatter of a reduction, with
    /// the queue, the slice and its clock (as `brambling bench barrier`). Three tasks.
    pub turn_ns: f64,
    /// A scatter's only piece from the node until its frame is there to be written (`Node::scattered`, `Node::flush`).
    pub piece_out_ns: f64,
    /// A frame with one piece, until it lies in its shard's inbox (`Node::on_frame`).
    pub piece_in_ns: f64,
    /// A piece from the inbox into its gather (`Node::take`, by the number of pieces).
    pub fold_ns: f64,
    /// A scatter's only piece until it has been merged with those of its neighbours in the same process, on its way (`Node::scattered`,
    /// `Node::take_group`, `Node::combined`, by the number of pieces).
    pub merge_ns: f64,
    /// A signal or a credit for one peer, encoded (`Node::decided`, by the number of peers).
    pub hint_out_ns: f64,
    /// A signal or a credit taken in (`Node::on_frame`).
    pub hint_in_ns: f64,
    /// News of one entry of a map of a thousand workers (`Node::on_frame` of a `MapUpdate`).
    pub update_in_ns: f64,
    /// A frame that the controller takes in (`Controller::on_frame` of an acknowledgement, of a thousand workers).
    pub controller_in_ns: f64,
    /// A frame that the controller has for one worker (`Controller::on_frame` of a granted move, by the thousand workers that are told).
    pub controller_out_ns: f64,
    /// A worker's report taken in (`Registry::on_message`).
    pub report_in_ns: f64,
    /// Encoding or decoding a table, by its bytes (a `MapUpdate` of a thousand entries).
    pub table_byte_ns: f64,
    /// Encoding a small request and decoding a small answer: what an RPC needs beside the system calls.
    pub codec_ns: f64,
    /// A node of a thousand workers, of which one has 180 of 180,000 shards, made when a generation begins (`Node::new`).
    pub node_ns: f64,
    /// Decoding a manifest, by its parts (`CutManifest::decode`).
    pub manifest_part_ns: f64,
    /// Comparing a part of a snapshot with its checksum, by its bytes (`kept::checksum`).
    pub part_byte_ns: f64,
}

impl Costs {
    /// The system call that reads a small frame: what a message and its answer take beside the one that writes.
    pub fn read_ns(&self) -> f64 {
        (self.machine.pipelined_ns - self.machine.write_ns).max(0.0)
    }

    /// A link between two workers at one of its ends: four system calls, two of them to connect or accept, two greetings, and a thread that wakes twice.
    pub fn link_ns(&self) -> f64 {
        4.0 * self.machine.write_ns + 2.0 * self.machine.wake_ns
    }

    /// Tasks a second that a central scheduler could dispatch over frames like ours: one request and one answer a task, as many under
    /// way as there is room for, on one thread.
    pub fn rpc_tasks_per_s(&self) -> f64 {
        1e9 / (self.codec_ns + self.machine.pipelined_ns)
    }

    /// What [`calibrate`](super::calibrate) found on two shared virtual CPUs, those of `docs/benchmarks.md`: for tests, whose virtual times must not depend
    /// on the day.
    pub fn of_our_machine() -> Costs {
        Costs {
            machine: Machine {
                wake_ns: 41_000.0,
                write_ns: 5_800.0,
                pipelined_ns: 7_600.0,
                round_trip_ns: 12_800.0,
            },
            task_ns: 40.0,
            turn_ns: 470.0,
            piece_out_ns: 2_400.0,
            piece_in_ns: 1_160.0,
            fold_ns: 195.0,
            merge_ns: 600.0,
            hint_out_ns: 440.0,
            hint_in_ns: 340.0,
            update_in_ns: 16_200.0,
            controller_in_ns: 276.0,
            controller_out_ns: 668.0,
            report_in_ns: 2_920.0,
            table_byte_ns: 4.7,
            codec_ns: 320.0,
            node_ns: 30_000_000.0,
            manifest_part_ns: 250.0,
            part_byte_ns: 0.2,
        }
    }
}

/// The links between hosts. Not measured here: one machine has none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkCosts {
    /// From one host's link to another's, in nanoseconds.
    pub latency_ns: u64,
    /// What a host's link takes in each direction, in bytes a second.
    pub bytes_per_s: f64,
}

impl LinkCosts {
    /// The paper's cluster: 10 Gbit/s (Canary, §5.1), and 25 µs one way, which the paper does not say; within one placement group
    /// half a round trip is about that.
    pub fn of_the_paper() -> LinkCosts {
        LinkCosts {
            latency_ns: 25_000,
            bytes_per_s: 1.25e9,
        }
    }

    /// How long so many bytes occupy a link, in nanoseconds.
    pub fn occupied_ns(&self, bytes: u64) -> u64 {
        (bytes as f64 * 1e9 / self.bytes_per_s) as u64
    }
}
