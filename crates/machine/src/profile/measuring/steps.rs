//! Which probes there are, and in which order they run.

use crate::cpu;
use crate::isa::IsaLevel;
use crate::probes::disk::{DiskError, DiskFiles};
use std::io;
use std::path::PathBuf;

/// More flows than a machine's threads say nothing new.
const FLOWS_MOST: usize = 16;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbePart {
    /// Directories' disks.
    Disk,
    /// Memory in order.
    Memory,
    /// Memory in no order.
    Table,
    /// Arithmetic.
    Flops,
    /// The network within the host.
    Loopback,
}

impl ProbePart {
    /// All, in the order in which they are measured.
    pub const ALL: [ProbePart; 5] = [
        ProbePart::Disk,
        ProbePart::Memory,
        ProbePart::Table,
        ProbePart::Flops,
        ProbePart::Loopback,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ProbePart::Disk => "disk",
            ProbePart::Memory => "memory",
            ProbePart::Table => "table",
            ProbePart::Flops => "flops",
            ProbePart::Loopback => "loopback",
        }
    }
}

/// Why a host could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// A directory's disk cannot be.
    #[error("{0}")]
    Disk(#[from] DiskError),
    /// The system gives no sockets.
    #[error(
        "the network within this machine cannot be measured: {0}; look whether the device lo is up (`ip link set lo up`)"
    )]
    Loopback(io::Error),
    /// The system does not tell which CPUs there are.
    #[error(
        "the CPUs of this process cannot be read: {0}; let it call sched_getaffinity (a seccomp filter may forbid it)"
    )]
    Machine(io::Error),
    /// Whoever watches has said so.
    #[error("interrupted")]
    Interrupted,
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Measuring {
    /// The parts.
    pub parts: Vec<ProbePart>,
    /// Whose disks.
    pub dirs: Vec<PathBuf>,
}

/// One thing to measure.
pub(super) enum ProbeStep {
    Disk(PathBuf),
    Memory(usize),
    Tables(Vec<usize>),
    Flops(IsaLevel, usize),
    Messages(Vec<usize>),
}

impl ProbeStep {
    pub(super) fn name(&self) -> String {
        match self {
            ProbeStep::Disk(dir) => format!("disk of {}", dir.display()),
            ProbeStep::Memory(threads) => {
                format!("memory by {}", crate::profile::threads(*threads))
            }
            ProbeStep::Tables(_) => "random access".to_owned(),
            ProbeStep::Flops(isa, threads) => {
                format!("flops of {isa} by {}", crate::profile::threads(*threads))
            }
            ProbeStep::Messages(_) => "loopback".to_owned(),
        }
    }

    /// About what it takes on a calm machine, in seconds.
    pub(super) fn weight(&self) -> f64 {
        match self {
            ProbeStep::Disk(_) => 14.0,
            ProbeStep::Memory(_) => 3.0,
            ProbeStep::Tables(threads) => 3.0 + 1.2 * threads.len() as f64,
            ProbeStep::Flops(..) => 0.2,
            ProbeStep::Messages(flows) => 3.5 * flows.len() as f64,
        }
    }
}

/// What is asked for, step by step.
///
/// # Errors
/// When a directory cannot be written to.
pub(super) fn steps(what: &Measuring) -> Result<Vec<ProbeStep>, MeasureError> {
    let threads = cpu::Processor::read()
        .map_err(MeasureError::Machine)?
        .default_threads();
    let counts = counts(threads);
    let mut steps = Vec::new();
    let mut parts = what.parts.clone();
    parts.sort();
    parts.dedup();
    for part in parts {
        match part {
            ProbePart::Disk => {
                for dir in &what.dirs {
                    // The last directory is not to be refused when the first ones have been measured.
                    DiskFiles::create(dir, 1, 1 << 20)?;
                }
                steps.extend(what.dirs.iter().cloned().map(ProbeStep::Disk));
            }
            ProbePart::Memory => steps.extend(counts.iter().copied().map(ProbeStep::Memory)),
            ProbePart::Table => steps.push(ProbeStep::Tables(counts.clone())),
            ProbePart::Flops => {
                let available = IsaLevel::ALL.into_iter().filter(|it| it.is_available());
                for isa in available {
                    steps.extend(counts.iter().map(|&threads| ProbeStep::Flops(isa, threads)));
                }
            }
            ProbePart::Loopback => {
                let flows = counts.iter().copied().filter(|&it| it <= FLOWS_MOST);
                steps.push(ProbeStep::Messages(flows.collect()));
            }
        }
    }
    Ok(steps)
}

/// One thread, each power of two, and all.
fn counts(threads: usize) -> Vec<usize> {
    let powers = (0..usize::BITS).map(|it| 1 << it);
    powers
        .take_while(|&it| it < threads)
        .chain([threads])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_powers_of_two_and_all() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
        assert_eq!(counts(8), [1, 2, 4, 8]);
    }
}
