use super::super::ProbeListener;
use super::*;
use std::collections::BTreeSet;

fn listen(token: u8, dirs: &[&std::path::Path]) -> ProbeListener {
    let dirs = dirs.iter().map(|it| it.to_path_buf()).collect();
    ProbeListener::start(
        "127.0.0.1:0".parse().unwrap(),
        Token::new([token; 32]),
        dirs,
    )
    .unwrap()
}

fn told(hosts: &[String], token: u8) -> String {
    let probed = probe_hosts(hosts, &Token::new([token; 32]), &mut |_, _| true);
    probed.unwrap_err().to_string()
}

#[test]
fn every_pair_has_its_turn_and_no_host_two_at_once() {
    for hosts in [2, 3, 6, 7, 16] {
        let steps = steps(hosts);
        let all: BTreeSet<_> = steps.iter().flatten().copied().collect();
        assert_eq!(all, each_to_each(hosts).collect());
        assert_eq!(steps.iter().map(Vec::len).sum::<usize>(), all.len());
        for step in steps {
            let senders: BTreeSet<_> = step.iter().map(|it| it.0).collect();
            let receivers: BTreeSet<_> = step.iter().map(|it| it.1).collect();
            assert_eq!((senders.len(), receivers.len()), (step.len(), step.len()));
        }
    }
}

#[test]
fn two_hosts_are_measured_in_both_directions_with_their_disks() {
    let (one, other) = (listen(1, &[&std::env::temp_dir()]), listen(1, &[]));
    let hosts = [&one, &other].map(|it| it.address().to_string());
    let mut shares = Vec::new();
    let times = SampleTimes {
        flow: (Duration::from_millis(150), Duration::from_millis(200)),
        disks: Duration::from_millis(50),
        repeats: Duration::ZERO,
    };
    let found = probe_for(times, &hosts, &Token::new([1; 32]), &mut |_, share| {
        shares.push(share);
        true
    });
    let found = found.unwrap();
    assert!(shares.is_sorted() && shares[0] == 0.0);
    let ends: Vec<_> = found.pairs.iter().map(|it| (it.from, it.to)).collect();
    assert_eq!(ends, [(0, 1), (1, 0)]);
    assert!(
        found
            .pairs
            .iter()
            .chain(&found.all_to_all)
            .all(|it| it.bytes_per_s.median() > 1e6)
    );
    assert_eq!((found.all_to_all.len(), found.disks_at_once.len()), (2, 1));
    assert!(found.congestion.iter().all(|it| !it.is_empty()));
    assert!(found.disks_at_once[0].read_bytes_per_s.median() > 0.0);
}

#[test]
fn whoever_has_another_token_is_told() {
    let (one, other) = (listen(1, &[]), listen(2, &[]));
    let hosts = [&one, &other].map(|it| it.address().to_string());
    let answer = told(&hosts, 1);
    assert!(
        answer.starts_with(&format!(
            "{} does not take part: it has another token; ",
            hosts[1]
        )),
        "{answer}"
    );
    // A stranger's order is not heard.
    let mut stranger = TcpStream::connect(one.address()).unwrap();
    say(&mut stranger, &ProbeOrder::Hello).unwrap();
    stranger.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(hear::<ProbeReply>(&mut stranger).unwrap_or(None), None);
}

#[test]
fn hosts_that_cannot_be_probed_are_named_with_the_way_out() {
    let one = listen(1, &[]).address().to_string();
    // It is gone by now.
    let living = listen(1, &[]);
    let here = living.address().to_string();
    let answer = told(&[here.clone(), one.clone()], 1);
    assert!(
        answer.starts_with(&format!("nobody can be reached at {one}: ")),
        "{answer}"
    );
    assert!(told(std::slice::from_ref(&here), 1).starts_with("a network is between two hosts"));
    assert!(
        told(&[here.clone(), here.clone()], 1).ends_with("is given twice; give each host once")
    );
    assert!(told(&[here, "nowhere".into()], 1).starts_with("`nowhere` is no address; "));
}

#[test]
fn whoever_has_had_enough_is_heard() {
    let (one, other) = (listen(1, &[]), listen(1, &[]));
    let hosts = [&one, &other].map(|it| it.address().to_string());
    let mut asked = 0;
    let stopped = probe_hosts(&hosts, &Token::new([1; 32]), &mut |_, _| {
        asked += 1;
        asked < 2
    });
    assert!(matches!(stopped, Err(ProbeError::Interrupted)));
    assert_eq!(asked, 2);
}
