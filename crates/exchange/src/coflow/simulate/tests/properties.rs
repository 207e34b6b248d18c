//! What has to hold of every simulation.

use super::*;
use crate::coflow::simulate::{Fabric, Outcome};
use crate::coflow::workload::{Dag, GenerateOptions, Tails};
use proptest::prelude::*;

fn made(coflows: u32, ports: u32, seed: u64) -> Workload {
    let options = GenerateOptions {
        coflows,
        ports,
        tails: Tails::Facebook,
        seed,
    };
    Workload::generate(&options).loaded(4.0)
}

fn run(workload: &Workload, policy: PolicyName, choices: &PolicyChoices) -> Outcome {
    simulate(workload, policy, choices, &SimulateOptions::default())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The engine looks at its rates after each change in tests: see `checks`.
    #[test]
    fn no_coflow_beats_its_bound(seed in 0..1000u64, coflows in 1..12u32) {
        let workload = made(coflows, 6, seed);
        for policy in PolicyName::ALL {
            for took in run(&workload, policy, &PolicyChoices::default()).coflows {
                prop_assert!(took.cct_s >= took.isolated_s * (1.0 - 1e-9), "{policy}: {took:?}");
            }
        }
    }

    #[test]
    fn one_queue_is_fair_sharing(seed in 0..1000u64, coflows in 1..12u32) {
        let workload = made(coflows, 6, seed);
        let one = PolicyChoices { queues: Some(1), ..PolicyChoices::default() };
        let fair = run(&workload, PolicyName::Fair, &one).coflows;
        prop_assert_eq!(run(&workload, PolicyName::Stream, &one).coflows, fair);
    }

    /// Coflows that come at the same instant may stand in any order, where it is not that order that decides.
    #[test]
    fn the_order_of_ties_does_not_matter(seed in 0..1000u64, coflows in 2..10u32) {
        let workload = made(coflows, 6, seed).burst();
        let mut turned = workload.clone();
        turned.coflows.reverse();
        for policy in [PolicyName::Fair, PolicyName::Stream] {
            let straight = run(&workload, policy, &PolicyChoices::default()).coflows;
            let mut other = run(&turned, policy, &PolicyChoices::default()).coflows;
            other.reverse();
            for (one, other) in straight.iter().zip(&other) {
                prop_assert!((one.cct_s / other.cct_s - 1.0).abs() < 1e-6, "{policy}: {one:?} {other:?}");
            }
        }
    }

    #[test]
    fn waves_and_graphs_end(seed in 0..1000u64, coflows in 1..6u32) {
        let workload = made(coflows, 6, seed);
        for shaped in [workload.clone().in_waves(4), workload.clone().as_dag(Dag::Tao), workload.as_dag(Dag::Tpcds42)] {
            for policy in PolicyName::ALL {
                for took in run(&shaped, policy, &PolicyChoices::default()).coflows {
                    prop_assert!(took.cct_s >= took.isolated_s * (1.0 - 1e-9), "{policy}: {took:?}");
                    prop_assert!(took.cct_s.is_finite());
                }
            }
        }
    }
}

/// One flow for each pair of hosts, and no two on a link: a fat tree is a big switch then.
#[test]
fn a_fat_tree_without_collisions_is_a_big_switch() {
    let within_edges: Vec<_> = (0..8)
        .map(|edge| (2 * edge, 2 * edge + 1, 1.0 + f64::from(edge)))
        .collect();
    let workload = workload(16, &[&within_edges]);
    let tree = SimulateOptions {
        fabric: Fabric::FatTree(4),
        ..SimulateOptions::default()
    };
    let of = |options: &SimulateOptions| {
        simulate(
            &workload,
            PolicyName::Fair,
            &PolicyChoices::default(),
            options,
        )
    };
    let tree = of(&tree);
    // Ports are put anywhere: flows may leave their edges.
    assert!(tree.coflows[0].cct_s >= of(&SimulateOptions::default()).coflows[0].cct_s - 1e-9);
    assert!(tree.coflows[0].cct_s >= tree.coflows[0].isolated_s - 1e-9);
}
