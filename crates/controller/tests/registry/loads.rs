//! What workers tell of themselves, and who asks for it.

use crate::callers::{A, B, CLIENT, FIRST, OTHER, say, status, submit, times, two_workers};
use brambling_controller::registry::Order;
use brambling_program::{GroupId, ShardId};
use brambling_protocol::WorkerId;
use brambling_protocol::message::{Load, Message, ShardTime};

#[test]
fn times_go_to_the_controller_of_the_job_and_room_is_what_the_budget_leaves() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    let took = ShardTime {
        shard: ShardId {
            group: GroupId(0),
            index: 3,
        },
        turns: 2,
        ran_ns: 7,
        bytes: 1,
    };
    let told = times(&[took]);
    let (worker, message) = (WorkerId(2), Message::Times(told.clone()));
    // Twice: what it means the job's controller knows.
    for _ in 0..2 {
        let orders = say(&mut registry, B, message.clone());
        let times = told.clone();
        assert_eq!(orders, [Order::Weigh { worker, times }]);
    }
    let all = registry.free_bytes(worker);
    let load = Load {
        memory_bytes: 77,
        idle_permille: 0,
        tasks: vec![],
        running: Vec::new(),
    };
    say(&mut registry, B, Message::Load(load));
    assert_eq!(registry.free_bytes(worker), all - 77);
    assert!(all > 77);
    assert_eq!(registry.free_bytes(WorkerId(9)), 0);
}

#[test]
fn loads_are_what_the_status_tells() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    for (caller, tasks) in [(A, 30), (B, 12)] {
        let tasks = vec![(FIRST, tasks)];
        let load = Load {
            memory_bytes: 77,
            idle_permille: 250,
            tasks,
            running: Vec::new(),
        };
        say(&mut registry, caller, Message::Load(load));
    }
    let status = status(&registry);
    assert_eq!(
        (status.jobs[0].position, &status.jobs[0].name[..]),
        (42, "a program")
    );
    let second = &status.workers[1];
    assert_eq!((second.pid, second.threads, second.shards), (3, 3, 200));
    assert_eq!((second.memory_bytes, second.idle_permille), (77, 250));
}

#[test]
fn a_shard_weighs_its_part_of_what_its_holder_holds() {
    let mut registry = two_workers();
    let load = Load {
        memory_bytes: 1_000,
        idle_permille: 0,
        tasks: vec![],
        running: Vec::new(),
    };
    say(&mut registry, A, Message::Load(load));
    assert_eq!(registry.shard_bytes(WorkerId(1), 8), 125);
    assert_eq!(registry.shard_bytes(WorkerId(1), 0), 1_000);
    assert_eq!(registry.shard_bytes(WorkerId(7), 8), 0);
}

#[test]
fn who_asks_is_told_and_workers_are_as_large_as_they_say() {
    let mut registry = two_workers();
    let orders = say(&mut registry, OTHER, Message::Ask);
    assert_eq!(orders, [Order::Report { to: OTHER }]);
    let known = |id| {
        let id = WorkerId(id);
        (registry.threads(id), registry.memory_limit_bytes(id))
    };
    assert_eq!([2, 9].map(known), [(3, 1 << 30), (1, 0)]);
}
