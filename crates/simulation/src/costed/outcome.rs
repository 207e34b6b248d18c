//! What a run has shown.

use super::Nanos;
use serde::Serialize;

/// Several times of one kind, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DurationSummary {
    /// How many.
    pub count: usize,
    /// The middle one.
    pub median: f64,
    /// Their mean.
    pub mean: f64,
    /// The longest.
    pub max: f64,
}

impl DurationSummary {
    pub(super) fn of(mut nanos: Vec<Nanos>) -> DurationSummary {
        nanos.sort_unstable();
        let ms = |nanos: Nanos| nanos as f64 / 1e6;
        let count = nanos.len();
        let Some(max) = nanos.last() else {
            return DurationSummary::default();
        };
        DurationSummary {
            count,
            median: ms(nanos[count / 2]),
            mean: nanos.iter().map(|it| ms(*it)).sum::<f64>() / count as f64,
            max: ms(*max),
        }
    }
}

/// What the controller had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ControllerLoad {
    /// Its processor's time by the measured costs, in seconds; the system calls are in it.
    pub cpu_s: f64,
    /// Frames that came to it, reports among them.
    pub messages_in: u64,
    /// Frames that it sent.
    pub messages_out: u64,
    /// Bytes of the frames that came.
    pub bytes_in: u64,
    /// Bytes of the frames that it sent.
    pub bytes_out: u64,
    /// Of the frames that came, workers' reports of how they fare.
    pub reports: u64,
    /// Of all frames, acknowledgements.
    pub acks: u64,
}

impl ControllerLoad {
    /// Frames in both directions.
    pub fn messages(&self) -> u64 {
        self.messages_in + self.messages_out
    }
}

/// A run in which workers schedule their own tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LocalOutcome {
    /// From the first iteration's signal to the last one's, in seconds of virtual time.
    pub virtual_s: f64,
    /// Tasks that ran.
    pub tasks: u64,
    /// Turns of shards that ran: shards times iterations.
    pub turns: u64,
    /// Iterations that ran.
    pub iterations: u32,
    /// From one signal to the next, no change being under way.
    pub iteration_ms: DurationSummary,
    /// The same while a change is under way.
    pub changing_iteration_ms: DurationSummary,
    /// From a signal's outcome until the last worker knows it.
    pub signal_ms: DurationSummary,
    /// From the job's submission until the last worker knows the whole map, in milliseconds.
    pub map_ms: f64,
    /// From a shard's new version until the last worker knows it.
    pub map_update_ms: DurationSummary,
    /// Shards that moved.
    pub moves: u64,
    /// For each change: from its first order until the last shard has arrived.
    pub change_ms: Vec<f64>,
    /// The controller, from the first worker's registration to the job's end.
    pub controller: ControllerLoad,
    /// Its messages by second, of a stretch without changes.
    pub controller_quiet_messages_per_s: f64,
    /// Frames between workers.
    pub frames: u64,
    /// Events that the simulation went through.
    pub events: u64,
}

impl LocalOutcome {
    /// Tasks a second of virtual time.
    pub fn tasks_per_s(&self) -> f64 {
        self.tasks as f64 / self.virtual_s
    }
}

/// A run in which a central scheduler dispatches every task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CentralOutcome {
    /// In seconds of virtual time.
    pub virtual_s: f64,
    /// Tasks that were dispatched.
    pub tasks: u64,
    /// From one iteration's beginning to the next one's.
    pub iteration_ms: DurationSummary,
    /// The share of all cores' time in which no kernel ran.
    pub idle: f64,
}

impl CentralOutcome {
    /// Tasks a second of virtual time.
    pub fn tasks_per_s(&self) -> f64 {
        self.tasks as f64 / self.virtual_s
    }
}
