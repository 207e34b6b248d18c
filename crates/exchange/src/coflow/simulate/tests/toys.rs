//! Toy instances whose answers are known by hand, or from an independent simulator.

use super::*;
use PolicyName::{Aalo, Baraat, Fair, Fifo, ReceiverDriven, Stream, Varys};

/// More than any of them has.
const NO_THRESHOLD: f64 = 1e6;

fn check(workload: &Workload, threshold: f64, expected: &[(PolicyName, &[f64])]) {
    for (policy, times_s) in expected {
        assert_near(&times(workload, *policy, threshold), times_s, policy.name());
    }
}

/// Baraat's motivation: two tasks of two flows each, on one link.
#[test]
fn two_tasks_on_one_link() {
    let two: &[_] = &[(0, 2, 1.0), (1, 2, 1.0)];
    check(
        &workload(3, &[two, two]),
        NO_THRESHOLD,
        &[
            (Fair, &[4.0, 4.0]),
            (Fifo, &[2.0, 4.0]),
            (Baraat, &[2.0, 4.0]),
            (Aalo, &[2.0, 4.0]),
            (Stream, &[4.0, 4.0]),
            (Varys, &[2.0, 4.0]),
        ],
    );
}

#[test]
fn a_small_one_behind_a_large_one() {
    check(
        &workload(3, &[&[(0, 2, 10.0)], &[(1, 2, 1.0)]]),
        3.0,
        &[
            (Fair, &[11.0, 2.0]),
            (Fifo, &[10.0, 11.0]),
            (Baraat, &[11.0, 5.0]),
            (Aalo, &[11.0, 4.0]),
            (Stream, &[11.0, 2.0]),
            (Varys, &[11.0, 1.0]),
        ],
    );
}

/// Who shares each link alone, by its flows, gives the first flow half of its source: that is not max-min.
#[test]
fn what_others_cannot_use_is_used() {
    let each: [&[_]; 5] = [
        &[(0, 0, 0.096)],
        &[(0, 1, 0.096)],
        &[(1, 1, 0.096)],
        &[(2, 1, 0.096)],
        &[(3, 1, 0.096)],
    ];
    check(
        &workload(4, &each),
        NO_THRESHOLD,
        &[(Fair, &[0.128, 0.384, 0.384, 0.384, 0.384])],
    );
}

#[test]
fn all_to_all_twice() {
    let all: Vec<_> = (0..3)
        .flat_map(|from| (0..3).map(move |to| (from, to, 1.0)))
        .collect();
    check(
        &workload(3, &[&all, &all]),
        NO_THRESHOLD,
        &[
            (Fair, &[6.0, 6.0]),
            (Fifo, &[3.0, 6.0]),
            (Baraat, &[3.0, 6.0]),
            (Aalo, &[3.0, 6.0]),
            (Stream, &[6.0, 6.0]),
            (Varys, &[3.0, 6.0]),
        ],
    );
}

#[test]
fn crossed() {
    check(
        &workload(
            2,
            &[&[(0, 0, 1.0), (1, 1, 2.0)], &[(0, 0, 2.0), (1, 1, 1.0)]],
        ),
        NO_THRESHOLD,
        &[
            (Fair, &[3.0, 3.0]),
            (Fifo, &[2.0, 3.0]),
            (Aalo, &[2.0, 3.0]),
            (Stream, &[3.0, 3.0]),
            (Varys, &[2.0, 3.0]),
        ],
    );
}

#[test]
fn what_ends_together_leaves_room() {
    check(
        &workload(2, &[&[(0, 0, 1.0), (1, 0, 3.0)], &[(0, 1, 3.0)]]),
        NO_THRESHOLD,
        &[
            (Fair, &[4.0, 4.0]),
            (Fifo, &[4.0, 4.0]),
            (Stream, &[4.0, 4.0]),
            (Varys, &[4.0, 3.0]),
        ],
    );
}

/// Ten receivers of 2 MB each: only together they know that it is 20 MB.
#[test]
fn receivers_that_tell_each_other_see_a_large_coflow() {
    let megabytes = |megabytes: f64| megabytes * 1e6 / UNIT;
    let many: Vec<_> = (1..11).map(|to| (0, to, megabytes(2.0))).collect();
    let mut both = workload(12, &[&many, &[(0, 11, megabytes(5.0))]]);
    both.coflows[1].arrival_s = 0.12;
    let of = |relay| {
        let options = SimulateOptions {
            relay,
            ..SimulateOptions::default()
        };
        let found = simulate(&both, Stream, &PolicyChoices::default(), &options);
        found.coflows[1].cct_s
    };
    use crate::coflow::simulate::PeerRelay;
    assert_near(
        &[of(PeerRelay::Perfect), of(PeerRelay::None)],
        &[0.04, 0.08],
        "perfect and none",
    );
    assert!((of(PeerRelay::RoundTrip) - 0.04).abs() < 1e-3);
}

/// It comes slowly at first, and a policy that was told by what came then would let it stay in its class for long.
#[test]
fn a_coflow_of_many_flows_sinks_in_time() {
    let into_one = |from: u32, flows: u32, megabytes: f64| -> Vec<_> {
        let each = megabytes * 1e6 / UNIT / f64::from(flows);
        (from..from + flows).map(|it| (it, 500, each)).collect()
    };
    let (wide, crowd) = (into_one(0, 40, 400.0), into_one(40, 400, 2.0));
    let mut three = workload(501, &[&wide, &crowd, &into_one(440, 1, 1.0)]);
    three.coflows[2].arrival_s = 0.3;
    for policy in [Stream, Aalo] {
        let choices = PolicyChoices::default();
        let found = simulate(&three, policy, &choices, &SimulateOptions::default());
        assert_near(&[found.coflows[2].cct_s], &[0.008], policy.name());
    }
}

/// Two mappers and three reducers, and two flows from each of the former to each of the latter.
#[test]
fn messages_are_for_a_coflow_and_a_peer() {
    let flows: Vec<_> = (0..12).map(|it| (it % 2, 2 + it / 2 % 3, 1.0)).collect();
    let one = workload(5, &[&flows]);
    let of = |policy, relay| {
        let options = SimulateOptions {
            relay,
            ..SimulateOptions::default()
        };
        simulate(&one, policy, &PolicyChoices::default(), &options).messages
    };
    use crate::coflow::simulate::PeerRelay::{None, Perfect, RoundTrip};
    assert_eq!(of(Fair, Perfect), 0);
    // A controller tells each sender once.
    assert_eq!(of(Varys, Perfect), 2);
    // Each sender announces to each receiver, and the order goes back and forth between them.
    assert_eq!(of(ReceiverDriven, Perfect), 6 + 12);
    // Each receiver sinks by two classes for its own 500 MB, and by three for the 1.5 GB of all. It tells its senders, from
    // which what others have comes to it.
    assert_eq!((of(Stream, None), of(Stream, RoundTrip)), (2 * 6, 3 * 12));
}

#[test]
fn one_alone_takes_as_long_as_its_busiest_port() {
    let alone = workload(4, &[&[(0, 2, 1.0), (1, 2, 2.0), (3, 2, 0.5), (0, 1, 0.25)]]);
    for policy in PolicyName::ALL {
        assert_near(&times(&alone, policy, NO_THRESHOLD), &[3.5], policy.name());
    }
}
