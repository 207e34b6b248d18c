//! Workers on which kernels run on though their jobs are over.

use crate::callers::{A, B, CLIENT, FIRST, OTHER, key, say, status, submit, two_workers};
use brambling_controller::registry::Order;
use brambling_protocol::WorkerId;
use brambling_protocol::message::{Message, StuckKernel};

fn stuck(seconds: u64) -> Message<'static> {
    Message::Stuck(vec![StuckKernel {
        key: key(9),
        stage: "step".into(),
        seconds,
    }])
}

/// Who begins the jobs that orders begin.
fn members(orders: &[Order]) -> Vec<Vec<WorkerId>> {
    let begun = orders.iter().filter_map(|order| match order {
        Order::Begin { members, .. } => Some(members.clone()),
        _ => None,
    });
    begun.collect()
}

#[test]
fn jobs_begin_without_a_worker_that_is_stuck_and_it_takes_part_again() {
    let mut registry = two_workers();
    // Twice: the later word counts.
    for seconds in [5, 6] {
        assert_eq!(say(&mut registry, A, stuck(seconds)), []);
    }
    assert_eq!(status(&registry).workers[0].stuck[0].seconds, 6);
    assert_eq!(
        registry.stuck().into_iter().collect::<Vec<_>>(),
        [WorkerId(1)]
    );
    let orders = say(&mut registry, CLIENT, submit(&[4]));
    assert_eq!(members(&orders), [[WorkerId(2)]]);
    let orders = say(&mut registry, A, Message::Stuck(vec![]));
    let admitted = Order::Admit {
        key: FIRST,
        worker: WorkerId(1),
    };
    assert_eq!(orders, [admitted]);
    assert_eq!(say(&mut registry, A, Message::Stuck(vec![])), []);
}

#[test]
fn when_all_are_stuck_jobs_wait() {
    let mut registry = two_workers();
    say(&mut registry, A, stuck(5));
    say(&mut registry, B, stuck(5));
    let orders = say(&mut registry, OTHER, submit(&[4]));
    assert_eq!(members(&orders), Vec::<Vec<WorkerId>>::new());
    let orders = say(&mut registry, B, Message::Stuck(vec![]));
    assert_eq!(members(&orders), [[WorkerId(2)]]);
}
