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

    /// What is announced may be wrong, or may not be told at all: then coflows are later, and none is lost.
    #[test]
    fn wrong_sizes_and_silent_hosts_cost_time_only(seed in 0..1000u64, coflows in 1..12u32) {
        let workload = made(coflows, 6, seed);
        for (sizes_off, silent) in [(0.5, 0.0), (1.0, 0.0), (0.0, 0.2), (0.5, 0.5), (0.0, 1.0)] {
            let options = SimulateOptions { sizes_off, silent, seed, ..SimulateOptions::default() };
            let choices = PolicyChoices::default();
            for took in simulate(&workload, PolicyName::ReceiverDriven, &choices, &options).coflows {
                prop_assert!(took.cct_s.is_finite() && took.cct_s >= took.isolated_s * (1.0 - 1e-9));
            }
        }
    }

    /// On a fat tree flows that end are looked at at ticks: what that changes is no more than a few of them.
    #[test]
    fn ticks_change_little(seed in 0..1000u64, coflows in 1..8u32) {
        let workload = made(coflows, 12, seed);
        for policy in [PolicyName::Fair, PolicyName::Stream, PolicyName::Varys, PolicyName::ReceiverDriven] {
            let of = |resolution_s| {
                let options = SimulateOptions {
                    fabric: Fabric::FatTree(4),
                    resolution_s,
                    ..SimulateOptions::default()
                };
                simulate(&workload, policy, &PolicyChoices::default(), &options).average_s()
            };
            let (exact, ticks) = (of(None), of(Some(1e-3)));
            prop_assert!(ticks > exact - 1e-9 - exact * 0.02, "{policy}: {ticks}, not {exact}");
            prop_assert!(ticks < exact * 1.02 + 2e-3, "{policy}: {ticks}, not {exact}");
        }
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

/// Two flows between hosts of their own: whether they meet on a link depends on where ports are and on the hash. Where they
/// meet each gets half of it, and where they do not the fat tree is a big switch.
#[test]
fn flows_of_a_fat_tree_share_what_they_meet_on() {
    let two = workload(16, &[&[(0, 1, 1.0)], &[(2, 3, 1.0)]]);
    let of = |seed| {
        let tree = SimulateOptions {
            fabric: Fabric::FatTree(4),
            seed,
            ..SimulateOptions::default()
        };
        let found = simulate(&two, PolicyName::Fair, &PolicyChoices::default(), &tree);
        found
            .coflows
            .iter()
            .map(|it| it.cct_s)
            .collect::<Vec<f64>>()
    };
    let (mut alone, mut met) = (0, 0);
    for seed in 0..200 {
        let times = of(seed);
        let is = |seconds: f64| times.iter().all(|it| (it - seconds).abs() < 1e-6);
        alone += u32::from(is(1.0));
        met += u32::from(is(2.0));
    }
    assert_eq!(alone + met, 200);
    assert!(alone > 100 && met > 5, "{met} met");
}
