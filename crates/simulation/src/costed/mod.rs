//! A cluster in virtual time, with measured costs: how iterations, signals, the map and the controller fare with more workers than
//! anybody here has, and beside a central scheduler (Canary, §2 and §5).
//!
//! # What is real
//! * The controller: [`Registry`](brambling_controller::registry::Registry) and [`Controller`](brambling_controller::Controller), with
//!   each worker's session and partition map. What they say to each other are the frames that processes send, encoded and decoded;
//!   messages and bytes are counted from them. Shards move because the controller ordered it and workers answered.
//! * The costs: [`Costs`] are times of the production code, taken by [`calibrate`] at the start: the executor's tasks, the node's frames,
//!   the controller's machines; and of this machine's TCP and wake-ups, taken by the `machine` crate.
//!
//! # What is modelled, and why
//! * Shards and nodes. A node keeps what each destination has retired: a thousand of them with 180,000 shards would take gigabytes, and their
//!   frames to all peers would be the whole run. A shard's turn (gather, stages, scatter) is one event instead, which takes what the
//!   executor and the node were measured to take. Each shard runs each iteration exactly once; that is asserted.
//! * Threads: a core takes the oldest ready shard of its own, or steals from the longest queue what has waited for 20 µs, as the executor
//!   does; it polls for 75 µs and then has to be woken. Frames are taken in by one helper thread a host, which costs no core.
//! * The network ([`LinkCosts`]): a link a host, serialised in both directions, one latency between any two. Shards that move share it among
//!   themselves and do not hold up small frames.
//! * [`SpreadShape`] is how a broadcast and a reduction travel. [`SpreadShape::Direct`] is what the engine does today: straight from source
//!   to destination, a frame for each shard's part of a reduction, and every second turn a credit from each shard to every peer.
//!   [`SpreadShape::Relayed`] is what it needs for large clusters and does not have yet: a tree of workers along which broadcasts go down
//!   and partial results, combined, go up, and credits with them. Signals go along a tree in both, as they do in the engine; and so does what has moved
//!   since the controller's last tick, in the frames that the real controller sends and the real rules cut. The whole map, at the start, goes straight.
//! * A worker that is *lost and drained* gives up its shards in order first. One that [dies](recover) does not: the real registry begins the job again, at the
//!   snapshot of a cut that the real controller has ordered.
//! * The job begins when all members know its map; how the program's bytes get to them is left out, and so are the greetings' handshakes.
//!
//! No clock and no randomness: who runs it hands in the time for calibration, and task lengths follow from a seed.

mod agenda;
mod calibrate;
mod central;
mod control;
mod costs;
mod figures;
mod hosts;
mod local;
mod outcome;
mod work;
mod worker;

pub use calibrate::{Clock, calibrate};
pub use central::central;
pub use costs::{Costs, LinkCosts, Machine, SPARK_TASKS_PER_S};
pub use figures::{
    Figure5, Figure6, Figure8, FigureRow, Scale, figure_5, figure_6, figure_8, kmeans, logistic,
};
pub use local::{
    Change, Recovery, RecoveryOutcome, Scenario, SpreadShape, StoreCosts, local, recover,
};
pub use outcome::{CentralOutcome, ControllerLoad, DurationSummary, LocalOutcome};
pub use work::{CostedWork, Lengths};

/// Virtual time, in nanoseconds.
pub type Nanos = u64;
