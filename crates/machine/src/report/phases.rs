//! The phases of a job: how long each took, and could have taken. A ledger tells the bytes of networks, and of disks
//! that no stage has counted, by worker only, so this module says which phase they belong to.

use serde::{Deserialize, Serialize};

use super::ideal::{self, Phase, Resource, ResourceUse, Size, StageReport};
use super::roofs::{Roofs, positive};
use super::spent::Spent;
use crate::ledger::{Ledger, StageWork, TimeParts, WorkerEntry};

/// What a phase took beside what it could.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// "setup": stages outside of loops, and what came before the first task. "loop": stages in loops.
    pub name: Phase,
    /// Seconds of it, as a mean of the threads.
    pub actual_seconds: f64,
    /// The least seconds: those of its stages one after the other, or of the disks or the network, whichever takes the longest.
    pub ideal_seconds: f64,
    /// Ideal ÷ actual; null where it took no time.
    pub share_of_ideal: Option<f64>,
    /// The resource that takes the longest; null where nothing was used.
    pub bound_by: Option<Resource>,
    /// What it used.
    pub resources: Vec<ResourceUse>,
    /// Where its time went: mean seconds of a thread, by part.
    pub parts: TimeParts,
}

/// Both phases, those that took no time left out.
pub(super) fn phases(
    ledger: &Ledger,
    roofs: &Roofs,
    stages: &[StageReport],
    spent: &Spent,
    size: Size,
) -> Vec<PhaseReport> {
    let spent = spent.phase_seconds.into_iter().zip(spent.phases);
    let both = [Phase::Setup, Phase::Loop].into_iter().zip(spent);
    both.filter(|(phase, (actual, _))| {
        *actual > 0.0
            || stages
                .iter()
                .any(|stage| stage.phase == *phase && stage.actual_seconds > 0.0)
    })
    .map(|(phase, spent)| judged(phase, spent, ledger, roofs, stages, size))
    .collect()
}

fn judged(
    phase: Phase,
    (actual, parts): (f64, TimeParts),
    ledger: &Ledger,
    roofs: &Roofs,
    stages: &[StageReport],
    size: Size,
) -> PhaseReport {
    let its = || stages.iter().filter(|stage| stage.phase == phase);
    let mut resources = moved(phase, ledger, roofs, size);
    // A sum of nothing is a negative zero, which reads as if time had been gained.
    let kernels = its().fold(0.0, |sum, stage| sum + stage.kernels.ideal_seconds);
    let outside = resources
        .iter()
        .filter_map(|used| Some((used.resource, used.ideal_seconds?)));
    let slowest_outside = outside.max_by(|one, other| one.1.total_cmp(&other.1));
    let (bound_by, ideal) = match slowest_outside {
        // Files that the system still held in memory are read faster than the disk can.
        Some((resource, seconds)) if seconds > kernels => (Some(resource), seconds.min(actual)),
        _ => (longest(its()), kernels.min(actual)),
    };
    resources.extend(of_stages(its()));
    PhaseReport {
        name: phase,
        actual_seconds: actual,
        ideal_seconds: ideal,
        share_of_ideal: (actual > 0.0).then(|| ideal / actual),
        bound_by,
        resources,
        parts,
    }
}

/// The resource that bounds the kernels of stages for the longest.
pub(super) fn longest<'a>(
    stages: impl Iterator<Item = &'a StageReport> + Clone,
) -> Option<Resource> {
    let of = |resource| -> f64 {
        let its = stages
            .clone()
            .filter(move |stage| stage.kernels.bound_by == Some(resource));
        its.map(|stage| stage.kernels.ideal_seconds).sum()
    };
    let all = Resource::ALL
        .into_iter()
        .map(|resource| (resource, of(resource)));
    all.filter(|(_, seconds)| *seconds > 0.0)
        .max_by(|one, other| one.1.total_cmp(&other.1))
        .map(|(resource, _)| resource)
}

/// What kernels of stages used together, and the seconds of those that nobody can judge otherwise. Disks are the phase's.
pub(super) fn of_stages<'a>(
    stages: impl Iterator<Item = &'a StageReport> + Clone,
) -> Vec<ResourceUse> {
    let mut sums = Vec::new();
    for resource in Resource::ALL.into_iter().filter(|it| *it != Resource::Disk) {
        let uses = stages
            .clone()
            .flat_map(|stage| stage.resources.iter().map(move |used| (stage, used)));
        let uses = uses.filter(|(_, used)| used.resource == resource);
        let sum = uses.fold(None, |sum: Option<ResourceUse>, (stage, used)| {
            // What lay in caches took no longer than its kernels.
            let seconds = used
                .ideal_seconds
                .map(|seconds| seconds.min(stage.kernels.seconds));
            Some(match sum {
                None => ResourceUse {
                    ideal_seconds: seconds,
                    ..*used
                },
                Some(sum) => ResourceUse {
                    amount: sum.amount + used.amount,
                    // The tables of several stages have a roof each, so the sum has none.
                    roof_per_second: sum
                        .roof_per_second
                        .filter(|roof| Some(*roof) == used.roof_per_second),
                    ideal_seconds: sum
                        .ideal_seconds
                        .zip(seconds)
                        .map(|(one, other)| one + other),
                    ..sum
                },
            })
        });
        sums.extend(sum);
        let own = stages
            .clone()
            .filter(|stage| stage.kernels.bound_by == Some(resource));
        let seconds: f64 = own.map(|stage| stage.kernels.ideal_seconds).sum();
        if matches!(resource, Resource::Kernels | Resource::PythonKernels) && seconds > 0.0 {
            sums.push(ResourceUse {
                resource,
                amount: seconds,
                roof_per_second: None,
                ideal_seconds: Some(seconds),
            });
        }
    }
    sums
}

/// What went over disks and networks in a phase. What was spilled is left out: with more memory nothing would be.
fn moved(phase: Phase, ledger: &Ledger, roofs: &Roofs, size: Size) -> Vec<ResourceUse> {
    let (all_read, all_written) = from_disks(ledger);
    let (loop_read, loop_written) = of_files(ledger, Phase::Loop);
    let (read, written) = match phase {
        Phase::Loop => (loop_read, loop_written),
        // Of what no stage has counted nobody knows when it was read.
        Phase::Setup => (all_read - loop_read, all_written - loop_written),
    };
    let mut all: Vec<_> = ideal::disk(read, written, roofs, size)
        .into_iter()
        .collect();
    let sent = over_the_network(ledger);
    if phase == exchanging(ledger) && sent > 0.0 {
        all.push(ideal::used(
            Resource::Network,
            sent,
            positive(roofs.network_bytes_per_s),
            size,
        ));
    }
    all
}

/// The phase whose stages send pieces: the loop, where one does.
fn exchanging(ledger: &Ledger) -> Phase {
    let sends = |kind: &str| kind == "scatter" || kind == "gather";
    if ledger
        .stages
        .iter()
        .any(|stage| stage.in_loop && sends(&stage.kind))
    {
        Phase::Loop
    } else {
        Phase::Setup
    }
}

/// Bytes that went from worker to worker, each counted once: a machine sends and receives at once.
pub(super) fn over_the_network(ledger: &Ledger) -> f64 {
    if ledger.workers.len() < 2 {
        return 0.0;
    }
    let sum = |bytes: fn(&WorkerEntry) -> u64| {
        ledger
            .workers
            .iter()
            .map(|worker| bytes(worker) as f64)
            .sum::<f64>()
    };
    sum(|worker| worker.sent_bytes).max(sum(|worker| worker.received_bytes))
}

/// Bytes read from and written to disks, without what was spilled.
pub(super) fn from_disks(ledger: &Ledger) -> (f64, f64) {
    let without = |bytes: fn(&WorkerEntry) -> u64, of_files: fn(&StageWork) -> u64| {
        let of = |worker: &WorkerEntry| {
            let counted: u64 = worker.stages.iter().map(of_files).sum();
            // Not all that was spilled was read again: what stages have counted was no spilling.
            let others = bytes(worker).saturating_sub(worker.spilled_bytes);
            others.max(counted) as f64
        };
        ledger.workers.iter().map(of).sum()
    };
    (
        without(|worker| worker.disk_read_bytes, |work| work.file_read_bytes),
        without(
            |worker| worker.disk_written_bytes,
            |work| work.file_written_bytes,
        ),
    )
}

/// Bytes that the stages of a phase read from files and wrote to them.
fn of_files(ledger: &Ledger, phase: Phase) -> (f64, f64) {
    let stages = ledger.stages.iter().enumerate();
    let its = stages.filter(|(_, stage)| Phase::of(stage) == phase);
    its.fold((0.0, 0.0), |(read, written), (index, _)| {
        let work = ideal::work(ledger, index);
        (
            read + work.file_read_bytes as f64,
            written + work.file_written_bytes as f64,
        )
    })
}
