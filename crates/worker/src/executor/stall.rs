//! The watchdog: notices that nothing runs and nothing can, and says who waits for what.
#![allow(unsafe_code)] // Looks into shards after every thread has left the job.

use super::failure::{Failure, WaitsFor};
use super::job::Job;
use brambling_program::{Action, ExchangeId, Op, Spec, StageKind, StreamSpec};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Without a completion to wait for, nothing can move again: no need to be patient.
const HOPELESS: Duration = Duration::from_secs(2);

/// Looks of a thread after which there was nothing to do for it: one may have begun before the last thing moved.
const LOOKS: u64 = 2;

/// What the watchdog saw when it last saw something move.
pub(super) struct Watchdog {
    pulses: Vec<u64>,
    looks: Vec<u64>,
    since: Instant,
}

impl Watchdog {
    pub(super) fn new() -> Watchdog {
        Watchdog {
            pulses: Vec::new(),
            looks: Vec::new(),
            since: Instant::now(),
        }
    }

    /// Looks at the job; gives how long nothing has moved when that is too long. A long kernel is not a stall, nor is one of another
    /// job: the job stands still when every thread has looked for something to do for it, and found nothing.
    pub(super) fn look(&mut self, job: &Job) -> Option<Duration> {
        if job.remote.is_some() {
            // Frames of other workers may take their time; the controller knows which workers are
            // alive.
            return None;
        }
        let pulses = job.thread_states.iter();
        let pulses = pulses.map(|thread_state| thread_state.tally.slices.load(Ordering::Acquire));
        let pulses: Vec<u64> = pulses.collect();
        let pool = &job.thread_states[..job.threads() as usize];
        let looks = pool.iter();
        let looks = looks.map(|thread_state| thread_state.looks.load(Ordering::Acquire));
        let has_mail = job
            .thread_states
            .iter()
            .any(|thread_state| thread_state.doorbell.has_any());
        let mut idle = pool.iter().map(|it| it.idle.load(Ordering::Acquire));
        // Any of the three moves the start of the stall: a thread may be idle while its mail is
        // still on the way to it.
        let is_held = job.held.load(Ordering::Acquire) > 0;
        if has_mail || is_held || !idle.all(|is_idle| is_idle) || pulses != self.pulses {
            self.pulses = pulses;
            self.looks = looks.collect();
            self.since = Instant::now();
            return None;
        }
        let mut looked = looks.zip(&self.looks);
        // A thread that is in a kernel of another job has not looked, and may still find something.
        if !looked.all(|(now, before)| now >= before + LOOKS) {
            return None;
        }
        let pending = job.pending.load(Ordering::Acquire) > 0;
        let patience = if pending {
            job.options.stall
        } else {
            HOPELESS.min(job.options.stall)
        };
        let after = self.since.elapsed();
        (after >= patience).then_some(after)
    }
}

/// What a streaming stage may wait for.
fn streams(spec: &Spec, stream: &StreamSpec) -> WaitsFor {
    let name = |id: &ExchangeId| spec.exchanges[id.index()].name.clone();
    let inputs: Vec<String> = stream.inputs.iter().map(name).collect();
    match (&inputs[..], &stream.output) {
        ([], None) => WaitsFor::Completion,
        ([], Some(output)) => WaitsFor::Room(name(output)),
        _ => WaitsFor::Pieces(inputs.join("`, `")),
    }
}

/// Who waits for what, after every thread has left the job.
pub(super) fn describe(job: &Job, after: Duration) -> Failure {
    let spec = job.plan.program.spec();
    let stage_name = |stage: usize| spec.stages[stage].name.clone();
    let mut last = None;
    for resident in &job.residents {
        // SAFETY: every thread has left the job by now, see `Pool::run`.
        let Some(body) = (unsafe { &*resident.body.get() })
            .as_ref()
            .filter(|body| !body.done)
        else {
            continue;
        };
        let code = &job.plan.codes[resident.group.index()];
        let stalled = body
            .shard
            .stalled(code)
            .next()
            .and_then(|(task, turn)| match task.action {
                Action::Stage(kind) => Some((task.stage.index(), kind, turn)),
                Action::Free => None,
            });
        let failure = |stage: String, turn, waits_for| Failure::Stalled {
            stage,
            partition: resident.index,
            turn,
            waits_for,
            after,
        };
        match (stalled, body.shard.op(code)) {
            (Some((stage, kind, turn)), _) => {
                let exchange =
                    |id: brambling_program::ExchangeId| spec.exchanges[id.index()].name.clone();
                let waits_for = match kind {
                    StageKind::Stream(id) => streams(spec, &spec.streams[id.index()]),
                    StageKind::Gather(id) => WaitsFor::Pieces(exchange(id)),
                    StageKind::Scatter(id) => WaitsFor::Room(exchange(id)),
                    StageKind::Compute | StageKind::Signal => WaitsFor::Completion,
                };
                let failure = failure(stage_name(stage), turn, waits_for.clone());
                // Whoever waits for a completion is the cause; the others wait for it.
                if waits_for == WaitsFor::Completion {
                    return failure;
                }
                last = Some(failure);
            }
            (None, Op::Test { signal, .. }) => {
                let waits_for = WaitsFor::Signal(stage_name(signal.index()));
                last.get_or_insert_with(|| failure(stage_name(signal.index()), 0, waits_for));
            }
            (None, _) => {
                last.get_or_insert_with(|| {
                    failure("the end of a loop".into(), 0, WaitsFor::LoopEnd)
                });
            }
        }
    }
    last.unwrap_or_else(|| Failure::Stalled {
        stage: "none".into(),
        partition: 0,
        turn: 0,
        waits_for: WaitsFor::LoopEnd,
        after,
    })
}
