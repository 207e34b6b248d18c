//! Workers that are given up: those that tell nothing for too long, and one of two that cannot reach each other.

use crate::callers::{
    A, B, CLIENT, FIRST, OTHER, VERSION, key, register, say, state, status, submit, told,
    two_workers,
};
use brambling_controller::registry::{
    Apart, LOSSES_MAX, NEWCOMER_TIME, Order, OwnedMessage, PeerLink, RETURN_TIME, Registry,
};
use brambling_controller::{ShardLoss, WorkerLoss};
use brambling_protocol::message::{
    CutOff, DeathKind, JobState, Load, Message, StuckKernel, Survives,
};
use brambling_protocol::patience::{LEFT_OUT_AFTER, SILENCE};
use brambling_protocol::{Generation, JobKey, PartitionMap, WorkerId};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn load() -> Message<'static> {
    Message::Load(Load {
        memory_bytes: 4_096,
        idle_permille: 0,
        tasks: Vec::new(),
        running: Vec::new(),
    })
}

/// Two workers, and a job of theirs that may begin again.
fn running() -> Registry {
    let mut registry = two_workers();
    let survives = Survives {
        repeats: true,
        cuts: None,
    };
    say(&mut registry, CLIENT, Message::Survives(survives));
    say(&mut registry, CLIENT, submit(&[4]));
    registry
}

/// Time passes, in which the first worker is heard.
fn pass(registry: &mut Registry, until: Duration) -> Vec<Order> {
    registry.on_heartbeat(A, until);
    registry.on_tick(until);
    registry.take_orders()
}

fn lost(orders: &[Order]) -> Vec<(JobKey, WorkerId)> {
    let lost = orders.iter().filter_map(|it| match it {
        Order::Lose {
            key,
            worker,
            how: WorkerLoss::Ended,
            ..
        } => Some((*key, *worker)),
        _ => None,
    });
    lost.collect()
}

/// What a fenced worker is told, if it is.
fn fenced(orders: &[Order], to: PeerLink) -> Option<&str> {
    match told(orders, to)[..] {
        [OwnedMessage::Fenced { why }] => Some(why),
        [] => None,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_worker_that_tells_nothing_for_too_long_is_fenced() {
    let mut registry = running();
    assert_eq!(pass(&mut registry, SILENCE - SECOND), []);
    let orders = pass(&mut registry, SILENCE);
    assert_eq!(lost(&orders), [(FIRST, WorkerId(2))]);
    let why = "it told nothing for 30 s, so the controller has given it up";
    assert_eq!(fenced(&orders, B), Some(why));
    assert_eq!(registry.workers(), 1);
    // Once.
    assert_eq!(pass(&mut registry, SILENCE + SECOND), []);
    let death = &status(&registry).deaths[0];
    assert_eq!(
        (death.worker, death.kind),
        (WorkerId(2), DeathKind::FencedSilent)
    );
    assert_eq!(
        (&death.cause[..], death.silent_ms, death.ago_ms),
        (why, 30_000, 1_000)
    );
}

#[test]
fn the_setting_says_how_long() {
    let mut registry = running().with_silence(3 * SECOND);
    assert_eq!(pass(&mut registry, 2 * SECOND), []);
    assert_eq!(
        lost(&pass(&mut registry, 3 * SECOND)),
        [(FIRST, WorkerId(2))]
    );
}

/// It gets no CPU for 15 s, and is heard again.
#[test]
fn a_starved_worker_is_not_fenced() {
    let mut registry = running();
    assert_eq!(pass(&mut registry, 15 * SECOND), []);
    registry.on_heartbeat(B, 16 * SECOND);
    assert_eq!(lost(&pass(&mut registry, 45 * SECOND)), []);
    assert_eq!(
        lost(&pass(&mut registry, 46 * SECOND)),
        [(FIRST, WorkerId(2))]
    );
}

/// Its link has just ended, and it may come back.
#[test]
fn one_without_a_link_is_lost_and_not_fenced() {
    let mut registry = running();
    let at = SILENCE - RETURN_TIME / 2;
    assert_eq!(pass(&mut registry, at), []);
    registry.on_lost(B, at);
    assert_eq!(lost(&pass(&mut registry, SILENCE)), []);
    assert_eq!(
        lost(&pass(&mut registry, at + RETURN_TIME)),
        [(FIRST, WorkerId(2))]
    );
    assert_eq!(status(&registry).deaths[0].kind, DeathKind::LinkClosed);
}

/// Whether or not it has noticed that its link was lost, and under whatever name it comes.
#[test]
fn a_fenced_process_is_refused_on_any_link() {
    let mut registry = running();
    pass(&mut registry, SILENCE);
    for _ in 0..2 {
        let orders = say(&mut registry, B, load());
        assert!(fenced(&orders, B).is_some(), "{orders:?}");
    }
    for (link, known_as) in [(OTHER, Some(WorkerId(2))), (PeerLink(30), None)] {
        let orders = say(&mut registry, link, register(3, known_as));
        assert!(fenced(&orders, link).is_some(), "{orders:?}");
        let orders = say(&mut registry, link, load());
        assert!(fenced(&orders, link).is_some(), "{orders:?}");
    }
    assert_eq!(registry.workers(), 1);
    // The link of another process is no worker's, and another process on the same machine is another worker.
    registry.on_message(PeerLink(40), load()).unwrap_err();
    let orders = say(&mut registry, PeerLink(41), register(4, None));
    assert!(matches!(
        told(&orders, PeerLink(41))[0],
        OwnedMessage::Registered(_)
    ));
    // A link that has ended is nobody's.
    registry.on_lost(OTHER, SILENCE);
    registry.on_message(OTHER, load()).unwrap_err();
}

#[test]
fn what_a_fenced_worker_still_says_changes_nothing() {
    let mut registry = running();
    pass(&mut registry, SILENCE);
    let stuck = StuckKernel {
        key: FIRST,
        stage: "step".into(),
        seconds: 5,
    };
    let (peer, why) = (WorkerId(1), "nothing answers there");
    let for_ms = 5_000;
    let key = FIRST;
    for message in [
        Message::Unprepared { key, why },
        Message::Unrestored { key, why },
        Message::Stuck(vec![stuck]),
        Message::Uses(vec![(key, 4_096)]),
        Message::CutOff(CutOff {
            key,
            peer,
            for_ms,
            why,
        }),
    ] {
        assert_eq!(say(&mut registry, B, message), []);
    }
    assert_eq!(state(&registry, 1), JobState::Running);
}

#[test]
fn a_job_without_its_fenced_worker_begins_again_and_says_why() {
    let mut registry = running();
    pass(&mut registry, SILENCE);
    let loss = ShardLoss {
        worker: WorkerId(2),
        why: "worker w2 is gone, and with it 2 of the job's shards".into(),
        way_out: "start another",
        held: PartitionMap::new([4]),
    };
    registry.on_loss(FIRST, loss);
    let orders = registry.take_orders();
    let OwnedMessage::Recovering { why, .. } = told(&orders, CLIENT)[0] else {
        panic!("{orders:?}");
    };
    assert_eq!(
        why,
        "worker w2 is gone, and with it 2 of the job's shards: it told nothing for 30 s, so the controller has given it up; the job begins again"
    );
    assert!(NEWCOMER_TIME > SILENCE);
}

fn cut_off(peer: u32) -> Message<'static> {
    Message::CutOff(CutOff {
        key: key(1),
        peer: WorkerId(peer),
        for_ms: 5_400,
        why: "nothing answers there",
    })
}

fn apart(orders: &[Order]) -> &Apart {
    match orders {
        [Order::Part(apart)] => apart,
        _ => panic!("{orders:?}"),
    }
}

#[test]
fn of_two_that_cannot_reach_each_other_the_one_with_fewer_shards_goes() {
    for (from, peer, held, goes) in [
        (A, 2, [1, 3], 1),
        (A, 2, [3, 1], 2),
        (A, 2, [2, 2], 2),
        (B, 1, [2, 2], 2),
        (B, 1, [3, 2], 1),
    ] {
        let mut registry = running();
        let orders = say(&mut registry, from, cut_off(peer));
        let apart = apart(&orders);
        registry.on_apart(apart, held);
        let orders = registry.take_orders();
        assert_eq!(lost(&orders), [(FIRST, WorkerId(goes))], "{held:?}");
        let stays = 3 - goes;
        let (pid, why) = (
            [1, 3][stays as usize - 1],
            fenced(&orders, [A, B][goes as usize - 1]),
        );
        let expected = format!(
            "it and worker w{stays} (process {pid} on here) at 127.0.0.1:{pid} cannot reach each other, for 5 s: nothing answers there; it had no more shards \
             than that one, so the controller has given it up"
        );
        assert_eq!(why, Some(&expected[..]));
        // The other one says so as well, and the first one again.
        registry.on_apart(apart, held);
        for (from, peer) in [(A, 2), (B, 1)] {
            assert_eq!(lost(&say(&mut registry, from, cut_off(peer))), []);
        }
        assert_eq!(registry.workers(), 1);
        assert_eq!(status(&registry).deaths[0].kind, DeathKind::FencedCutOff);
    }
}

/// As a kernel that kills its worker would be, whatever ran meanwhile; and so the last of many ends it.
#[test]
fn links_that_are_cut_one_after_the_other_are_no_kernel_that_kills() {
    let mut registry = running();
    let (mut ended, mut losses, mut now) = (None, 0, Duration::ZERO);
    while ended.is_none() {
        let key = JobKey::new(FIRST.job, Generation(losses));
        let worker = WorkerId(losses as u32 + 2);
        let said = Message::CutOff(CutOff {
            key,
            peer: worker,
            for_ms: 5_400,
            why: "nothing answers there",
        });
        let orders = say(&mut registry, A, said);
        registry.on_apart(apart(&orders), [3, 1]);
        let link = PeerLink(100 + losses);
        say(&mut registry, link, register(40 + losses as u32, None));
        let loss = ShardLoss {
            worker,
            why: format!("worker {worker} is gone"),
            way_out: "start another",
            held: PartitionMap::new([4]),
        };
        registry.on_loss(key, loss);
        losses += 1;
        let orders = registry.take_orders();
        ended = orders.into_iter().find_map(|it| match it {
            Order::Cancel { why, .. } => Some(why),
            _ => None,
        });
        // Longer than any rest.
        for _ in 0..17 {
            now += SECOND;
            registry.on_heartbeat(link, now);
            pass(&mut registry, now);
        }
    }
    assert_eq!(losses as usize, LOSSES_MAX);
}

#[test]
fn who_is_no_member_parts_nobody() {
    let mut registry = running();
    for (from, peer) in [(A, 1), (A, 7), (B, 7)] {
        assert_eq!(say(&mut registry, from, cut_off(peer)), []);
    }
    registry.on_message(PeerLink(99), cut_off(1)).unwrap_err();
    registry.on_over(FIRST, Some("told".into()));
    registry.take_orders();
    assert_eq!(say(&mut registry, A, cut_off(2)), []);
}

/// A machine that acknowledges nothing, as the controller and a peer see it.
#[test]
fn one_that_nobody_reaches_goes_however_much_it_holds() {
    for is_lost in [false, true] {
        let mut registry = running();
        match is_lost {
            true => registry.on_cut(B, LEFT_OUT_AFTER - SECOND),
            false => assert_eq!(pass(&mut registry, LEFT_OUT_AFTER), []),
        }
        let orders = say(&mut registry, A, cut_off(2));
        assert_eq!(lost(&orders), [(FIRST, WorkerId(2))]);
        let cause = &status(&registry).deaths[0].cause;
        assert_eq!(
            cause,
            "neither the controller nor worker w1 (process 1 on here) at 127.0.0.1:1 has reached it, for 5 s: nothing answers there"
        );
    }
}

#[test]
fn a_registry_forgets_the_oldest_of_a_thousand_fences() {
    let mut registry = Registry::new(VERSION).with_silence(SECOND);
    for pid in 1..=1_001 {
        let (link, now) = (PeerLink(u64::from(pid) + 100), SECOND * (2 * pid));
        registry.on_tick(now);
        say(&mut registry, link, register(pid, None));
        registry.on_tick(now + SECOND);
        registry.on_lost(link, now + SECOND);
        assert_eq!(registry.workers(), 0);
        registry.take_orders();
    }
    let is_refused = |registry: &mut Registry, pid| {
        let orders = say(registry, OTHER, register(pid, None));
        let is_it = fenced_first(&orders);
        registry.on_lost(OTHER, SECOND);
        is_it
    };
    assert!(is_refused(&mut registry, 2));
    assert!(!is_refused(&mut registry, 1));
    assert_eq!(
        status(&registry).deaths.len(),
        brambling_controller::registry::DEATHS
    );
}

fn fenced_first(orders: &[Order]) -> bool {
    matches!(told(orders, OTHER)[0], OwnedMessage::Fenced { .. })
}
