//! Workers that tell nothing, and machines that do not answer.

use crate::callers::{
    A, B, CLIENT, FIRST, OTHER, ended, key, register, say, state, status, submit, told, two_workers,
};
use brambling_controller::WorkerLoss;
use brambling_controller::registry::{Order, OwnedMessage, RETURN_TIME, Registry};
use brambling_protocol::WorkerId;
use brambling_protocol::message::{Accepted, Client, JobState, Message, StuckKernel};
use brambling_protocol::patience::LEFT_OUT_AFTER;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A registry of two workers, of which the second has told nothing for long.
fn one_silent() -> Registry {
    let mut registry = two_workers();
    registry.on_tick(LEFT_OUT_AFTER);
    registry.on_heartbeat(A, LEFT_OUT_AFTER);
    assert_eq!(registry.take_orders(), []);
    registry
}

fn members(orders: &[Order]) -> Vec<WorkerId> {
    let begins = orders.iter().find_map(|order| match order {
        Order::Begin { members, .. } => Some(members.clone()),
        _ => None,
    });
    begins.unwrap_or_default()
}

#[test]
fn how_long_workers_are_silent_is_told() {
    let mut registry = two_workers();
    registry.on_tick(SECOND);
    registry.on_heartbeat(B, SECOND * 3 / 2);
    registry.on_tick(2 * SECOND);
    let silent: Vec<u64> = status(&registry)
        .workers
        .iter()
        .map(|it| it.silent_ms)
        .collect();
    assert_eq!(silent, [2_000, 500]);
}

#[test]
fn jobs_begin_without_a_silent_worker_and_it_comes_in_when_it_is_heard() {
    let mut registry = one_silent();
    let orders = say(&mut registry, CLIENT, submit(&[4]));
    assert_eq!(members(&orders), [WorkerId(1)]);
    // Twice: the second finds it there.
    for admits in [1, 0] {
        registry.on_heartbeat(B, LEFT_OUT_AFTER + SECOND);
        let admitted = registry.take_orders();
        let is_it = |it: &&Order| {
            matches!(
                it,
                Order::Admit {
                    worker: WorkerId(2),
                    ..
                }
            )
        };
        assert_eq!(
            admitted.iter().filter(is_it).count(),
            admits,
            "{admitted:?}"
        );
    }
}

#[test]
fn a_silent_worker_that_leaves_does_not_come_in() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, OTHER, Message::Drain(WorkerId(2)));
    registry.on_tick(2 * LEFT_OUT_AFTER);
    registry.on_heartbeat(B, 2 * LEFT_OUT_AFTER);
    assert!(
        !registry
            .take_orders()
            .iter()
            .any(|it| matches!(it, Order::Admit { .. }))
    );
}

/// It is heard again, and a kernel of a job that is over still runs there.
#[test]
fn a_silent_worker_that_is_stuck_comes_in_when_it_is_neither() {
    let mut registry = two_workers();
    let (key, stage, seconds) = (key(9), "step".into(), 5);
    let stuck = vec![StuckKernel {
        key,
        stage,
        seconds,
    }];
    say(&mut registry, B, Message::Stuck(stuck));
    say(&mut registry, CLIENT, submit(&[4]));
    registry.on_tick(2 * LEFT_OUT_AFTER);
    registry.on_heartbeat(B, 2 * LEFT_OUT_AFTER);
    let admits = |orders: &[Order]| {
        let is_it = |it: &&Order| matches!(it, Order::Admit { .. });
        orders.iter().filter(is_it).count()
    };
    assert_eq!(admits(&registry.take_orders()), 0);
    let orders = say(&mut registry, B, Message::Stuck(Vec::new()));
    assert_eq!(admits(&orders), 1);
}

#[test]
fn where_all_are_silent_jobs_wait() {
    let mut registry = two_workers();
    registry.on_tick(LEFT_OUT_AFTER);
    let orders = say(&mut registry, CLIENT, submit(&[4]));
    assert_eq!(members(&orders), []);
    assert_eq!(state(&registry, 1), JobState::Queued);
    registry.on_heartbeat(B, LEFT_OUT_AFTER + SECOND);
    let orders = registry.take_orders();
    assert_eq!(members(&orders), [WorkerId(2)]);
    let accepted = told(&orders, CLIENT);
    assert!(matches!(
        accepted[..],
        [OwnedMessage::Accepted(Accepted { key: FIRST, .. })]
    ));
}

#[test]
fn a_worker_that_is_cut_off_is_lost_as_such() {
    for how in [WorkerLoss::Ended, WorkerLoss::CutOff] {
        let mut registry = two_workers();
        say(&mut registry, CLIENT, submit(&[4]));
        match how {
            WorkerLoss::Ended => registry.on_lost(A, SECOND),
            WorkerLoss::CutOff => registry.on_cut(A, SECOND),
        }
        registry.on_tick(SECOND + RETURN_TIME);
        let orders = registry.take_orders();
        assert!(
            matches!(&orders[..], [Order::Lose { worker: WorkerId(1), how: it, .. }] if *it == how),
            "{orders:?}"
        );
    }
}

#[test]
fn a_client_that_is_cut_off_is_named() {
    let mut registry = two_workers();
    let (user, host) = ("ada".into(), "node-7".into());
    let client = Client {
        user,
        host,
        pid: 42,
        log: None,
    };
    say(&mut registry, CLIENT, Message::Introduce(client));
    say(&mut registry, CLIENT, submit(&[4]));
    registry.on_cut(CLIENT, SECOND);
    let failures: Vec<_> = status(&registry)
        .jobs
        .into_iter()
        .map(|it| it.failure.unwrap())
        .collect();
    assert_eq!(
        failures,
        [
            "the controller cannot reach the client that asked for it (ada on node-7, process 42), whose machine has acknowledged nothing for 10 s"
        ]
    );
}

#[test]
fn whoever_started_a_process_may_see_its_end_first() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    registry.on_process_ended(ended(1), "elsewhere", SECOND);
    registry.on_process_ended(ended(7), "here", SECOND);
    assert_eq!(registry.take_orders(), []);
    for _ in 0..2 {
        registry.on_process_ended(ended(1), "here", SECOND);
    }
    let orders = registry.take_orders();
    assert!(
        matches!(
            &orders[..],
            [Order::Lose {
                worker: WorkerId(1),
                how: WorkerLoss::Ended,
                ..
            }]
        ),
        "{orders:?}"
    );
    // Its link ends later, or never.
    registry.on_lost(A, 2 * SECOND);
    registry.on_tick(4 * SECOND);
    assert!(registry.take_orders().is_empty());
    assert_eq!(registry.counts().workers_lost, 1);
}

#[test]
fn a_worker_comes_back_after_a_cut() {
    let mut registry = two_workers();
    registry.on_cut(A, SECOND);
    say(&mut registry, OTHER, register(1, Some(WorkerId(1))));
    say(&mut registry, CLIENT, submit(&[4]));
    registry.on_lost(OTHER, 2 * SECOND);
    registry.on_tick(2 * SECOND + RETURN_TIME);
    let orders = registry.take_orders();
    assert!(
        matches!(
            &orders[..],
            [Order::Lose {
                how: WorkerLoss::Ended,
                ..
            }]
        ),
        "{orders:?}"
    );
}
