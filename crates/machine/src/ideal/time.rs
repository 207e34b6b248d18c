//! What the model says of a setup, for programs and for people.
//!
//! This module owns the answer, its keys and its text. The command and the Python package show it;
//! it never prints.

use super::nodes::nodes_by_proportion;
use super::{ModelPhase, ModelResource, Setup, SetupError};
use crate::units::{bytes, rate, seconds};
use serde::Serialize;
use std::fmt;

/// The ideal time of a setup, and what follows from it. Serialised, its keys are stable; what was
/// given is not among them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdealTime {
    /// The equation of Table 3, in seconds.
    pub ideal_seconds: f64,
    /// Map and reduce.
    pub phases: [ModelPhase; 2],
    /// What bounds the longest phase.
    pub bound_by: Option<ModelResource>,
    /// The smallest number of nodes whose ideal time is at most the time that the job took; none
    /// where that is not given.
    pub nodes_for: Option<u64>,
    /// How much of each resource could be absent.
    pub over_provisioned: OverProvisioned,
    #[serde(skip)]
    setup: Setup,
    #[serde(skip)]
    took_seconds: Option<f64>,
}

/// For each resource, 1 − the least speed that gives the same ideal ÷ the given speed: 0 where less
/// would be slower, 1 where it is not used at all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OverProvisioned {
    /// Of the disks, for reads and writes alike.
    pub disk: f64,
    /// Of the network.
    pub network: f64,
}

impl OverProvisioned {
    fn of(phases: &[ModelPhase; 2]) -> OverProvisioned {
        // A slower resource stretches its own part of each phase, until one phase is longer.
        let spare = |resource| {
            let moving = phases.iter().filter(|phase| phase.seconds > 0.0);
            let used = moving.map(|phase| phase.seconds_of(resource) / phase.seconds);
            1.0 - used.fold(0.0, f64::max)
        };
        OverProvisioned {
            disk: spare(ModelResource::Disk),
            network: spare(ModelResource::Network),
        }
    }
}

impl Setup {
    /// The ideal time of this setup; with the seconds that the job took, also how many nodes would
    /// have been enough.
    ///
    /// # Errors
    /// When a speed, the input or the time is not above zero, a ratio is negative, or there are no
    /// nodes or too few of them for the replicas.
    pub fn ideal_time(&self, took_seconds: Option<f64>) -> Result<IdealTime, SetupError> {
        self.check(took_seconds)?;
        let phases = self.phases();
        Ok(IdealTime {
            ideal_seconds: self.seconds(),
            bound_by: longest(&phases).bound_by,
            nodes_for: took_seconds.map(|took| self.nodes_for(took)).transpose()?,
            over_provisioned: OverProvisioned::of(&phases),
            phases,
            setup: *self,
            took_seconds,
        })
    }
}

/// The first of two that are as long.
fn longest(phases: &[ModelPhase; 2]) -> &ModelPhase {
    let [map, reduce] = phases;
    if reduce.seconds > map.seconds {
        reduce
    } else {
        map
    }
}

impl fmt::Display for IdealTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.setup.nodes;
        let on = if nodes == 1 { "node" } else { "nodes" };
        let ideal = seconds(self.ideal_seconds);
        writeln!(f, "ideal        {ideal} on {nodes} {on}")?;
        self.fmt_took(f)?;
        if let Some(resource) = self.bound_by {
            let phase = longest(&self.phases).name;
            writeln!(f, "bound by     {}, in the {phase} phase", resource.name())?;
        }
        for line in self.spare() {
            writeln!(f, "to spare     {line} would give the same")?;
        }
        self.phases.iter().try_for_each(|phase| fmt_phase(phase, f))
    }
}

fn fmt_phase(phase: &ModelPhase, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (name, time) = (phase.name, seconds(phase.seconds));
    let Some(by) = phase.bound_by else {
        return writeln!(f, "\n{name:<11}  {time}; a node moves nothing");
    };
    let by = by.name();
    writeln!(f, "\n{name:<11}  {time}, bound by {by}; a node moves")?;
    for it in phase.operations.iter().filter(|it| it.bytes > 0.0) {
        let (moved, time) = (bytes(it.bytes), seconds(it.seconds));
        writeln!(f, "  {:<21}{moved:>8}{time:>10}", it.name)?;
    }
    Ok(())
}

impl IdealTime {
    fn fmt_took(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(took), Some(enough)) = (self.took_seconds, self.nodes_for) else {
            return Ok(());
        };
        let (ideal, time) = (self.ideal_seconds, seconds(took));
        let (times, share) = (took / ideal, 100.0 * ideal / took);
        writeln!(
            f,
            "took         {time}: {times:.1} × the ideal, {share:.1} % of its speed"
        )?;
        let proportion = nodes_by_proportion(self.setup.nodes, ideal, took);
        writeln!(
            f,
            "enough       {enough} nodes, used to the full; n × ideal ÷ took: {proportion}"
        )
    }

    /// What could be absent, one resource a line.
    fn spare(&self) -> Vec<String> {
        let OverProvisioned { disk, network } = self.over_provisioned;
        let (reads, writes) = (
            self.setup.disk_read_bytes_per_s,
            self.setup.disk_write_bytes_per_s,
        );
        let of =
            |given: f64, spare: f64| format!("{} of {}", rate(given * (1.0 - spare)), rate(given));
        let disks = match reads == writes {
            true => of(reads, disk),
            false => format!("{} read and {} written", of(reads, disk), of(writes, disk)),
        };
        let network_only = of(self.setup.network_bytes_per_s, network);
        let told = [
            (disk, "disks'", disks),
            (network, "network's", network_only),
        ];
        // Less than half a percent is rounding.
        let told = told.into_iter().filter(|(spare, ..)| *spare >= 0.005);
        let line = |(spare, whose, enough)| {
            format!("{:.0} % of the {whose} speed: {enough}", 100.0 * spare)
        };
        told.map(line).collect()
    }
}
