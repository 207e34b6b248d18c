//! Instances with known answers, and what has to hold of every simulation.
//!
//! A unit is what a link carries in a second.

mod properties;
mod shapes;
mod toys;

use super::{SimulateOptions, simulate};
use crate::coflow::policy::{PolicyChoices, PolicyName};
use crate::coflow::workload::{Coflow, FlowSpec, Workload};

/// What a link of 1 Gbit/s carries in a second.
const UNIT: f64 = 125e6;

fn flow((source, destination, units): (u32, u32, f64)) -> FlowSpec {
    FlowSpec {
        source,
        destination,
        bytes: units * UNIT,
    }
}

/// Coflows of flows: source, destination and units.
fn workload(ports: u32, coflows: &[&[(u32, u32, f64)]]) -> Workload {
    let coflow = |(name, flows): (u64, &&[(u32, u32, f64)])| {
        Coflow::of(name, 0.0, flows.iter().copied().map(flow).collect())
    };
    Workload::of(ports, (1..).zip(coflows).map(coflow).collect())
}

/// The time that each coflow takes, with thresholds of so many units.
fn times(workload: &Workload, policy: PolicyName, threshold: f64) -> Vec<f64> {
    let choices = PolicyChoices {
        threshold: threshold * UNIT,
        heavy_bytes: threshold * UNIT,
        ..PolicyChoices::default()
    };
    let found = simulate(workload, policy, &choices, &SimulateOptions::default());
    found.coflows.iter().map(|it| it.cct_s).collect()
}

fn assert_near(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let near = found
        .iter()
        .zip(expected)
        .all(|(found, expected)| (found - expected).abs() < 1e-6);
    assert!(near, "{what}: {found:?}, not {expected:?}");
}
