//! Where the time of a job's threads went, by phase and by stage.

use super::ideal::{self, Phase, Size, share};
use super::threads::{each, together};
use crate::ledger::{Ledger, ThreadEntry, TimeParts};

/// Mean seconds of a thread.
pub(super) struct Spent {
    /// By phase, setup and loop. They sum to the wall time.
    pub phase_seconds: [f64; 2],
    /// By phase and part; what no part explains is left out.
    pub phases: [TimeParts; 2],
    /// By stage and part: of the moments that it had most of.
    pub stages: Vec<TimeParts>,
}

/// Of a whole job.
pub(super) fn of(ledger: &Ledger, size: Size) -> Spent {
    let mut spent = Spent {
        phase_seconds: [0.0; 2],
        phases: [TimeParts::default(); 2],
        stages: vec![TimeParts::default(); ledger.stages.len()],
    };
    let shares = shares_of_kernels(ledger);
    for thread in ledger.workers.iter().flat_map(|worker| &worker.threads) {
        let before = spent.phases.map(|parts| parts.total());
        if thread.moments.is_empty() {
            by_kernels(&mut spent, ledger, &shares, thread);
        } else {
            by_moments(&mut spent, ledger, thread);
        }
        // What no part explains belongs to both phases alike.
        let [setup, in_loop] = [0, 1].map(|phase| spent.phases[phase].total() - before[phase]);
        let of_loop = share(in_loop, setup + in_loop) * thread.wall_s;
        spent.phase_seconds[0] += thread.wall_s - of_loop;
        spent.phase_seconds[1] += of_loop;
    }
    let mean = |seconds| share(seconds, size.thread_seconds) * ledger.wall_s;
    Spent {
        phase_seconds: spent.phase_seconds.map(mean),
        phases: spent.phases.map(|parts| each(parts, mean)),
        stages: spent
            .stages
            .into_iter()
            .map(|parts| each(parts, mean))
            .collect(),
    }
}

/// A moment without a stage belongs to the phase before it, and to no stage.
fn by_moments(spent: &mut Spent, ledger: &Ledger, thread: &ThreadEntry) {
    let mut phase = Phase::Setup;
    for moment in &thread.moments {
        let stage = moment
            .stage
            .map(|index| index as usize)
            .filter(|index| *index < ledger.stages.len());
        if let Some(stage) = stage {
            phase = Phase::of(&ledger.stages[stage]);
            spent.stages[stage] = together(spent.stages[stage], moment.parts);
        }
        spent.phases[phase as usize] = together(spent.phases[phase as usize], moment.parts);
    }
}

/// Without moments: what is no startup, as the kernels of the stages took it.
fn by_kernels(spent: &mut Spent, ledger: &Ledger, shares: &[f64], thread: &ThreadEntry) {
    let startup = TimeParts {
        startup: thread.parts.startup,
        ..TimeParts::default()
    };
    let rest = TimeParts {
        startup: 0.0,
        ..thread.parts
    };
    spent.phases[0] = together(spent.phases[0], startup);
    for (index, entry) in ledger.stages.iter().enumerate() {
        let part = each(rest, |seconds| seconds * shares[index]);
        spent.stages[index] = together(spent.stages[index], part);
        spent.phases[Phase::of(entry) as usize] =
            together(spent.phases[Phase::of(entry) as usize], part);
    }
}

fn shares_of_kernels(ledger: &Ledger) -> Vec<f64> {
    let seconds: Vec<f64> = (0..ledger.stages.len())
        .map(|index| ideal::work(ledger, index).kernel_s)
        .collect();
    let all = seconds.iter().sum();
    seconds
        .into_iter()
        .map(|seconds| share(seconds, all))
        .collect()
}
