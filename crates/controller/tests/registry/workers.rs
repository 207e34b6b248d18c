//! Workers come, come back or are lost, and hear what they have to of the jobs that run.

use crate::callers::{
    A, B, CLIENT, FIRST, OTHER, UNKNOWN, register, say, state, status, submit, told, two_workers,
};
use brambling_controller::registry::{Order, OwnedMessage, PeerLink, RETURN_TIME};
use brambling_controller::{ShardLoss, WorkerLoss};
use brambling_protocol::message::{JobState, Message, Registered};
use brambling_protocol::{JobId, PartitionMap, WorkerId};
use std::time::Duration;

#[test]
fn a_worker_may_come_back_for_a_while_and_is_gone_then() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    registry.on_lost(A, Duration::from_secs(5));
    let before = Duration::from_secs(5) + RETURN_TIME / 2;
    registry.on_tick(before);
    assert_eq!(registry.take_orders(), []);
    // The same process on another link.
    let orders = say(&mut registry, OTHER, register(1, Some(WorkerId(1))));
    assert_eq!(
        told(&orders, OTHER)[0],
        &OwnedMessage::Registered(Registered {
            worker: WorkerId(1)
        })
    );
    registry.on_tick(before + 10 * RETURN_TIME);
    assert_eq!(registry.take_orders(), []);
    registry.on_lost(OTHER, before);
    registry.on_tick(before + RETURN_TIME);
    let orders = registry.take_orders();
    let [
        Order::Lose {
            key: FIRST,
            worker: WorkerId(1),
            process,
            how: WorkerLoss::Ended,
        },
    ] = &orders[..]
    else {
        panic!("{orders:?}");
    };
    assert_eq!(process, "process 1 on here");
    assert_eq!(status(&registry).workers.len(), 1);
    // It comes too late: it is another worker now.
    let orders = say(&mut registry, A, register(1, Some(WorkerId(1))));
    assert_eq!(
        told(&orders, A)[0],
        &OwnedMessage::Registered(Registered {
            worker: WorkerId(3)
        })
    );
}

#[test]
fn a_process_that_was_started_again_is_another_worker() {
    let mut registry = two_workers();
    let orders = say(&mut registry, OTHER, register(7, Some(WorkerId(1))));
    assert_eq!(
        told(&orders, OTHER)[0],
        &OwnedMessage::Registered(Registered {
            worker: WorkerId(3)
        })
    );
}

#[test]
fn a_worker_that_comes_back_hears_what_it_missed() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    registry.on_lost(A, Duration::ZERO);
    let back = PeerLink(12);
    // It has job 1, which runs, and job 77, which nobody asks for.
    let orders = say(&mut registry, back, register(1, Some(WorkerId(1))));
    let [
        OwnedMessage::Registered(_),
        OwnedMessage::Release(UNKNOWN),
        OwnedMessage::Prepare(prepare),
    ] = told(&orders, back)[..]
    else {
        panic!("{orders:?}");
    };
    assert_eq!((prepare.key, &prepare.shards[..]), (FIRST, &[4][..]));
    // The same link again: the same worker.
    let orders = say(&mut registry, back, register(1, None));
    let worker = WorkerId(1);
    assert_eq!(
        told(&orders, back)[0],
        &OwnedMessage::Registered(Registered { worker })
    );
    // A worker that came later is told when the job's controller has taken it in.
    let orders = say(&mut registry, OTHER, register(9, None));
    assert!(matches!(
        told(&orders, OTHER)[..],
        [OwnedMessage::Registered(_), OwnedMessage::Release(UNKNOWN)]
    ));
    say(&mut registry, CLIENT, Message::Done(JobId(1)));
    registry.on_lost(back, Duration::ZERO);
    let orders = say(&mut registry, A, register(1, Some(worker)));
    let released = [FIRST, UNKNOWN].map(OwnedMessage::Release);
    assert_eq!(told(&orders, A)[1..], released.each_ref()[..]);
}

#[test]
fn a_worker_that_comes_while_a_job_runs_takes_part() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    let (key, worker) = (FIRST, WorkerId(3));
    let orders = say(&mut registry, OTHER, register(9, None));
    assert!(orders.contains(&Order::Admit { key, worker }), "{orders:?}");
    let map = PartitionMap::new([4]);
    registry.on_admitted(key, worker, &map);
    let orders = registry.take_orders();
    let [OwnedMessage::Prepare(prepare)] = told(&orders, OTHER)[..] else {
        panic!("{orders:?}");
    };
    let ports: Vec<u16> = prepare.members.iter().map(|it| it.at.port()).collect();
    assert_eq!((ports, &prepare.map[..]), (vec![1, 3, 9], &[][..]));
    let [OwnedMessage::Admitted { key: FIRST, member }] = told(&orders, CLIENT)[..] else {
        panic!("{orders:?}");
    };
    assert_eq!((member.worker, member.at.port()), (worker, 9));
    // Its link breaks: it is the same member, and hears again what it may have missed.
    registry.on_lost(OTHER, Duration::ZERO);
    let orders = say(&mut registry, OTHER, register(9, Some(worker)));
    assert!(!orders.contains(&Order::Admit { key, worker }));
    assert!(told(&orders, OTHER).contains(&&OwnedMessage::Prepare(prepare.clone())));
    // Who cannot build the program ends the job, and so does its death.
    let why = "no such module";
    let orders = say(&mut registry, OTHER, Message::Unprepared { key, why });
    assert!(matches!(&orders[..], [Order::Cancel { why, .. }] if why.contains("on worker w3")));
    registry.on_lost(OTHER, Duration::ZERO);
    registry.on_tick(RETURN_TIME);
    let orders = registry.take_orders();
    assert!(matches!(
        orders[..],
        [Order::Lose {
            worker: WorkerId(3),
            ..
        }]
    ));
    // To what is over nobody comes.
    registry.on_over(key, None);
    let orders = say(&mut registry, OTHER, register(11, None));
    assert!(!orders.iter().any(|it| matches!(it, Order::Admit { .. })));
}

/// Links break while a job begins and ends: the others hear what they are to hear, and who comes back hears it then.
#[test]
fn members_without_a_link_keep_nobody_waiting() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    let (job, newcomer) = (FIRST.job, WorkerId(3));
    say(&mut registry, OTHER, register(9, None));
    registry.on_lost(OTHER, Duration::ZERO);
    registry.on_admitted(FIRST, newcomer, &PartitionMap::new([4]));
    let orders = registry.take_orders();
    assert_eq!(orders.len(), 1, "{orders:?}");
    assert!(matches!(
        told(&orders, CLIENT)[..],
        [OwnedMessage::Admitted { .. }]
    ));
    let back = PeerLink(12);
    let orders = say(&mut registry, back, register(9, Some(newcomer)));
    assert!(
        told(&orders, back)
            .iter()
            .any(|it| matches!(it, OwnedMessage::Prepare(_)))
    );
    // One leaves whose link is broken.
    say(&mut registry, OTHER, Message::Drain(newcomer));
    registry.on_lost(back, Duration::ZERO);
    registry.on_left(FIRST, newcomer);
    let orders = registry.take_orders();
    assert_eq!(told(&orders, back), [] as [&OwnedMessage; 0]);
    assert_eq!(told(&orders, OTHER), [&OwnedMessage::Drained(newcomer)]);
    // One is lost for good: what is said to all members is said to the others.
    registry.on_lost(A, Duration::ZERO);
    registry.on_tick(RETURN_TIME);
    registry.take_orders();
    let weight = 5;
    let orders = say(&mut registry, CLIENT, Message::Weigh { job, weight });
    let weighs = OwnedMessage::Weigh { job, weight };
    let to = B;
    assert_eq!(orders, [Order::Tell { to, what: weighs }]);
    let orders = say(&mut registry, CLIENT, Message::Done(job));
    assert_eq!(told(&orders, B), [&OwnedMessage::Release(FIRST)]);
    assert_eq!(told(&orders, A), [] as [&OwnedMessage; 0]);
}

/// It is over, and its client still fetches what was kept: where the job may not begin again, its client sees for itself what is missing.
#[test]
fn who_is_lost_after_the_end_ends_nothing() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    registry.on_over(FIRST, None);
    registry.take_orders();
    registry.on_lost(A, Duration::ZERO);
    registry.on_tick(RETURN_TIME);
    let orders = registry.take_orders();
    assert!(
        matches!(orders[..], [Order::Lose { key: FIRST, .. }]),
        "{orders:?}"
    );
    registry.on_loss(
        FIRST,
        ShardLoss {
            worker: WorkerId(1),
            why: "worker w1 is gone".into(),
            way_out: "start another",
            held: PartitionMap::new([4]),
        },
    );
    assert_eq!(registry.take_orders(), []);
    assert_eq!(state(&registry, 1), JobState::Succeeded);
}
