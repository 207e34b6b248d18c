//! Workers that are drained leave their jobs and take no part in others.

use crate::callers::{
    A, B, CLIENT, FIRST, OTHER, UNKNOWN, key, refusal, register, say, status, submit, told,
    two_workers,
};
use brambling_controller::registry::{Order, OwnedMessage, RETURN_TIME, Registry};
use brambling_protocol::message::Message;
use brambling_protocol::{JobId, WorkerId};
use std::time::Duration;

#[test]
fn a_worker_that_is_drained_leaves_the_job_and_is_no_loss() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    let (key, worker) = (FIRST, WorkerId(1));
    let orders = say(&mut registry, OTHER, Message::Drain(WorkerId(7)));
    assert!(refusal(&orders, OTHER).contains("no worker w7"));
    let orders = say(&mut registry, OTHER, Message::Drain(worker));
    assert_eq!(orders, [Order::Drain { key, worker }]);
    // Once is enough, and the last one stays.
    assert_eq!(say(&mut registry, CLIENT, Message::Drain(worker)), []);
    let orders = say(&mut registry, OTHER, Message::Drain(WorkerId(2)));
    assert!(refusal(&orders, OTHER).contains("the last one"));
    registry.on_left(key, worker);
    let orders = registry.take_orders();
    let drained = OwnedMessage::Drained(worker);
    assert_eq!(told(&orders, A), [&OwnedMessage::Release(key), &drained]);
    assert_eq!(told(&orders, OTHER), [&drained]);
    assert_eq!(
        told(&orders, CLIENT),
        [&OwnedMessage::Left { key, worker }, &drained]
    );
    assert_eq!(status(&registry).workers.len(), 1);
    // It has not heard it: it hears it again, and nothing of the job.
    registry.on_lost(A, Duration::ZERO);
    let orders = say(&mut registry, A, register(1, Some(worker)));
    assert!(told(&orders, A).contains(&&drained));
    assert!(!orders.iter().any(|it| matches!(it, Order::Admit { .. })));
    // Its end is nobody's loss.
    registry.on_lost(A, Duration::ZERO);
    registry.on_tick(RETURN_TIME);
    assert_eq!(registry.take_orders(), []);
}

#[test]
fn a_worker_that_is_drained_takes_no_part_in_what_begins() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, OTHER, Message::Drain(WorkerId(1)));
    // Its job ends before it has left: then it does.
    registry.on_over(FIRST, None);
    registry.take_orders();
    let orders = say(&mut registry, CLIENT, Message::Done(JobId(1)));
    let drained = OwnedMessage::Drained(WorkerId(1));
    assert_eq!(told(&orders, A), [&OwnedMessage::Release(FIRST), &drained]);
    assert_eq!(told(&orders, OTHER), [&drained]);
    let begun = orders.iter().find_map(|it| match it {
        Order::Begin { members, .. } => Some(&members[..]),
        _ => None,
    });
    assert_eq!(begun, Some(&[WorkerId(2)][..]));
    // Who dies before it was drained was not.
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, OTHER, Message::Drain(WorkerId(1)));
    registry.on_lost(A, Duration::ZERO);
    registry.on_tick(RETURN_TIME);
    let orders = registry.take_orders();
    assert!(
        refusal(&orders, OTHER).contains("lost before"),
        "{orders:?}"
    );
    assert!(orders.iter().any(|it| matches!(it, Order::Lose { .. })));
}

/// A worker that several jobs have ends when the last of them has let go of it.
#[test]
fn who_is_drained_ends_when_no_job_has_it() {
    let mut registry = two_workers().with_jobs_at_once(2);
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, CLIENT, submit(&[4]));
    let worker = WorkerId(2);
    let orders = say(&mut registry, OTHER, Message::Drain(worker));
    for key in [1, 2].map(key) {
        assert!(orders.contains(&Order::Drain { key, worker }), "{orders:?}");
    }
    let is_told = |registry: &mut Registry| {
        let orders = registry.take_orders();
        let drained = &OwnedMessage::Drained(worker);
        (
            told(&orders, B).contains(&drained),
            told(&orders, OTHER).contains(&drained),
        )
    };
    registry.on_left(key(1), worker);
    assert_eq!(is_told(&mut registry), (false, false));
    registry.on_left(key(2), worker);
    assert_eq!(is_told(&mut registry), (true, true));
}

/// It comes back while its shards still move away: it stays a member, takes no part in anything new, and is not told that it may end.
#[test]
fn a_worker_that_comes_back_while_it_is_drained_goes_on_leaving() {
    let mut registry = two_workers().with_jobs_at_once(2);
    say(&mut registry, CLIENT, submit(&[4]));
    let worker = WorkerId(1);
    say(&mut registry, OTHER, Message::Drain(worker));
    registry.on_lost(A, Duration::ZERO);
    say(&mut registry, CLIENT, submit(&[4]));
    let orders = say(&mut registry, A, register(1, Some(worker)));
    assert!(!orders.iter().any(|it| matches!(it, Order::Admit { .. })));
    let [
        OwnedMessage::Registered(_),
        OwnedMessage::Release(UNKNOWN),
        OwnedMessage::Prepare(prepare),
    ] = told(&orders, A)[..]
    else {
        panic!("{orders:?}");
    };
    assert_eq!(prepare.key, FIRST);
}
