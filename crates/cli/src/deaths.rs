//! Workers that were lost, as `brambling status` shows them.

use crate::table::shown;
use brambling::cluster::{Death, DeathKind};
use serde::Serialize;
use std::time::{Duration, SystemTime};

/// How a worker ended. The keys are stable.
#[derive(Serialize)]
pub(crate) struct DeathLine {
    worker: String,
    host: String,
    pid: u32,
    /// signal N, exit code N, fenced: silent, fenced: cut off, link closed, machine cut off.
    kind: String,
    cause: String,
    /// Whether memory had run out; none: not known.
    oom: Option<bool>,
    /// As it last told.
    memory_bytes: u64,
    stage: Option<String>,
    partition: Option<u32>,
    /// How long it had told nothing.
    silent_s: f64,
    /// When, in seconds since 1970.
    at_s: u64,
}

impl From<Death> for DeathLine {
    fn from(death: Death) -> DeathLine {
        DeathLine {
            worker: death.worker.to_string(),
            host: death.host,
            pid: death.pid,
            kind: kind(death.kind),
            cause: death.cause,
            oom: death.oom,
            memory_bytes: death.memory_bytes,
            stage: death.stage,
            partition: death.partition,
            silent_s: (death.silent_ms / 100) as f64 / 10.0,
            at_s: seconds_since_1970(Duration::from_millis(death.ago_ms)),
        }
    }
}

/// For `brambling top`.
pub(crate) fn line(death: &Death) -> String {
    let memory = match death.oom {
        Some(true) => ", for want of memory",
        _ => "",
    };
    let ran = match (&death.stage, death.partition) {
        (Some(stage), Some(partition)) => {
            format!("; it ran stage `{}` of partition {partition}", shown(stage))
        }
        _ => String::new(),
    };
    format!(
        "{} (process {} on {}) is gone since {} s: {}{memory}{ran}",
        death.worker,
        death.pid,
        shown(&death.host),
        death.ago_ms / 1_000,
        kind(death.kind)
    )
}

fn kind(kind: DeathKind) -> String {
    match kind {
        DeathKind::Signal(signal) => format!("signal {signal}"),
        DeathKind::Exit(code) => format!("exit code {code}"),
        DeathKind::FencedSilent => "fenced: silent".into(),
        DeathKind::FencedCutOff => "fenced: cut off".into(),
        DeathKind::LinkClosed => "link closed".into(),
        DeathKind::MachineCutOff => "machine cut off".into(),
    }
}

/// Of a moment so long ago, by this machine's clock.
fn seconds_since_1970(ago: Duration) -> u64 {
    let at = SystemTime::now().checked_sub(ago);
    let since = at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_secs())
}
