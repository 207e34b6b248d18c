//! Waves, graphs and flows without bytes: instances whose answers are known by hand.

use super::*;
use crate::coflow::workload::CoflowPart;
use PolicyName::{Aalo, Baraat, Fair, Fifo, ReceiverDriven, Stream, Varys};

/// What a part waits for, whether it is a wave, and its flows.
type PartOf<'p> = (&'p [u32], bool, &'p [(u32, u32, f64)]);

/// A coflow of parts.
fn parts(name: u64, arrival_s: f64, parts: &[PartOf<'_>]) -> Coflow {
    let part = |(after, is_wave, flows): &PartOf<'_>| CoflowPart {
        sub_coflow: 1,
        flows: flows.iter().copied().map(flow).collect(),
        after: after.to_vec(),
        is_wave: *is_wave,
    };
    Coflow {
        name,
        arrival_s,
        parts: parts.iter().map(part).collect(),
    }
}

fn all_times(workload: &Workload, policy: PolicyName) -> Vec<f64> {
    times(workload, policy, 10e6 / UNIT)
}

/// The first wave is done before it begins: the second one begins once, and leaves its links when it is done.
#[test]
fn a_wave_without_bytes_lets_the_next_one_begin_once() {
    let first: &[_] = &[(0, 1, 0.0), (0, 2, 0.0)];
    let waves = parts(1, 0.0, &[(&[], false, first), (&[0], true, &[(0, 3, 1.0)])]);
    let later = Coflow::of(2, 5.0, vec![flow((0, 4, 2.0))]);
    let both = Workload::of(5, vec![waves, later]);
    for policy in PolicyName::ALL {
        assert_near(&all_times(&both, policy), &[1.0, 2.0], policy.name());
    }
    let nothing = parts(1, 0.0, &[(&[], false, first), (&[0], true, first)]);
    let nothing = Workload::of(5, vec![nothing]);
    for policy in PolicyName::ALL {
        assert_near(&all_times(&nothing, policy), &[0.0], policy.name());
    }
}

/// A flow without bytes is on no link, and so does not take its coflow away from there.
#[test]
fn a_flow_without_bytes_takes_nobody_off_a_link() {
    let two = workload(4, &[&[(0, 2, 4.0), (0, 2, 0.0)], &[(0, 3, 4.0)]]);
    for policy in [Baraat, Fifo] {
        let found = times(&two, policy, 1e6);
        assert_near(&found, &[4.0, 8.0], policy.name());
    }
}

/// What waves before have brought is a coflow's own: it does not count twice.
#[test]
fn waves_count_once() {
    // 9 MB and then 2 MB into one port, where a small coflow comes while 9.9 MB have come of them: it shares.
    let megabytes = |it: f64| it * 1e6 / UNIT;
    let waves = parts(
        1,
        0.0,
        &[
            (&[], false, &[(0, 2, megabytes(9.0))]),
            (&[0], true, &[(0, 2, megabytes(2.0))]),
        ],
    );
    let later = Coflow::of(2, megabytes(9.5), vec![flow((1, 2, megabytes(0.4)))]);
    let both = Workload::of(3, vec![waves, later]);
    let found = all_times(&both, Stream);
    assert_near(&found[1..], &[megabytes(0.8)], "stream");
}

/// Two exchanges of one job run at once. When the job is known to be large, both make way.
#[test]
fn all_exchanges_of_a_job_sink_together() {
    let job = parts(
        1,
        0.0,
        &[(&[], false, &[(0, 2, 2.0)]), (&[], false, &[(1, 3, 2.0)])],
    );
    let small = Coflow::of(2, 1.0, vec![flow((1, 3, 0.05))]);
    let both = Workload::of(4, vec![job, small]);
    let found = all_times(&both, Aalo);
    assert_near(&found, &[2.05, 0.05], "aalo");
}

/// An exchange of a job that begins later is ranked by what it has to carry, not before everybody until somebody comes.
#[test]
fn who_knows_sizes_knows_those_of_later_exchanges() {
    let job = parts(
        1,
        0.0,
        &[(&[], false, &[(0, 2, 1.0)]), (&[0], false, &[(0, 2, 5.0)])],
    );
    let other = Coflow::of(2, 0.0, vec![flow((1, 2, 2.0))]);
    let both = Workload::of(3, vec![job, other]);
    assert_near(&all_times(&both, Varys), &[8.0, 3.0], "varys");
    let found = all_times(&both, ReceiverDriven);
    // A round trip passes before anybody has heard of it.
    assert!(
        (found[0] - 8.0).abs() < 1e-3 && (found[1] - 3.0).abs() < 1e-3,
        "{found:?}"
    );
}

/// Times as long after the beginning as milliseconds since 1970 are told as exactly as their last bits allow.
#[test]
fn late_times_end() {
    let mut two = workload(3, &[&[(0, 2, 0.5)], &[(1, 2, 0.25)]]);
    two.coflows.iter_mut().for_each(|it| it.arrival_s = 1.76e9);
    for policy in PolicyName::ALL {
        for took in simulate(
            &two,
            policy,
            &PolicyChoices::default(),
            &SimulateOptions::default(),
        )
        .coflows
        {
            assert!(took.cct_s > 0.2 && took.cct_s < 0.8, "{policy}: {took:?}");
        }
    }
    let tree = SimulateOptions {
        fabric: crate::coflow::simulate::Fabric::FatTree(4),
        resolution_s: Some(1e-3),
        ..SimulateOptions::default()
    };
    let found = simulate(&two, Fair, &PolicyChoices::default(), &tree);
    assert!(
        found
            .coflows
            .iter()
            .all(|it| it.cct_s > 0.2 && it.cct_s < 0.8)
    );
}

/// Who waits behind others for long is lifted, gets something, and sinks again: it is done sooner than without.
#[test]
fn who_starves_is_lifted() {
    let large: &[_] = &[(0, 9, 1.2)];
    // Small ones that fill the link for 8 seconds, one after the other.
    let mut coflows = vec![Coflow::of(
        1,
        0.0,
        large.iter().copied().map(flow).collect(),
    )];
    coflows.extend((0..160).map(|it| {
        let arrival_s = 1.0 + 0.05 * it as f64;
        Coflow::of(
            2 + it,
            arrival_s,
            vec![flow((1 + it as u32 % 8, 9, 0.0501))],
        )
    }));
    let all = Workload::of(10, coflows);
    let of = |starvation_s| {
        let mut choices = PolicyChoices::default();
        choices.stream.starvation_s = starvation_s;
        simulate(&all, Stream, &choices, &SimulateOptions::default()).coflows[0].cct_s
    };
    let (never, soon) = (of(None), of(Some(0.1)));
    assert!(never > 9.0 && soon < never - 0.5, "{never} s and {soon} s");
}
