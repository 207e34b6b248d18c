//! A job is in one generation. What is said of another changes nothing, and workers that still have one are told to let go of it.

use crate::callers::{
    A, B, CLIENT, FIRST, OTHER, register, say, status, submit, told, two_workers,
};
use brambling_controller::registry::{Apart, Order, OwnedMessage, Registry};
use brambling_program::{GroupId, ShardId};
use brambling_protocol::message::{CutOff, JobState, Load, Message, Move, Register};
use brambling_protocol::{Generation, JobKey, PartitionMap, WorkerId};

/// The generation of the first job that is not there.
const VOID: JobKey = JobKey {
    job: FIRST.job,
    generation: Generation(1),
};
const SHARD: ShardId = ShardId {
    group: GroupId(0),
    index: 1,
};

fn running() -> Registry {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    registry
}

#[test]
fn what_workers_say_of_another_generation_ends_nothing_and_counts_for_nothing() {
    let cut_off = |key| {
        Message::CutOff(CutOff {
            key,
            peer: WorkerId(2),
            for_ms: 11_000,
            why: "no route",
        })
    };
    let unprepared = |key| Message::Unprepared { key, why: "x" };
    for said in [unprepared, cut_off] {
        let mut registry = running();
        assert_eq!(say(&mut registry, A, said(VOID)), []);
        let orders = say(&mut registry, A, said(FIRST));
        assert!(
            matches!(
                &orders[..],
                [Order::Cancel { key: FIRST, .. } | Order::Part(Apart { key: FIRST, .. })]
            ),
            "{orders:?}"
        );
    }
    let mut registry = running();
    let load = |tasks| {
        Message::Load(Load {
            memory_bytes: 0,
            idle_permille: 0,
            tasks,
            running: Vec::new(),
        })
    };
    say(&mut registry, A, load(vec![(FIRST, 70), (VOID, 5)]));
    say(&mut registry, B, load(vec![(FIRST, 7)]));
    say(&mut registry, A, load(vec![(VOID, 6), (FIRST, 71)]));
    assert_eq!(status(&registry).jobs[0].position, 78);
    assert_eq!(registry.counts().tasks, 84, "all that was done");
}

#[test]
fn what_the_controller_of_another_generation_says_is_told_nobody() {
    let mut registry = running();
    let (group, to) = (SHARD.group, WorkerId(2));
    let wish = Move {
        job: Some(FIRST.job),
        shard: SHARD,
        to,
    };
    say(&mut registry, OTHER, Message::Move(wish));
    registry.on_over(VOID, None);
    registry.on_moved(VOID, SHARD, to);
    registry.on_stays(VOID, SHARD, "no room");
    registry.on_admitted(VOID, to, &PartitionMap::new([4]));
    assert_eq!(registry.take_orders(), []);
    assert_eq!(status(&registry).jobs[0].state, JobState::Running);
    // Who has left it is to let go of it, and is a member as before.
    registry.on_left(VOID, to);
    let orders = registry.take_orders();
    assert_eq!(orders.len(), 1, "{orders:?}");
    assert_eq!(told(&orders, B), [&OwnedMessage::Release(VOID)]);
    assert_eq!(registry.job_details()[0].workers.len(), 2);
    // All of it is as if nothing had been said.
    registry.on_moved(FIRST, ShardId { group, ..SHARD }, to);
    assert_eq!(
        told(&registry.take_orders(), OTHER),
        [&OwnedMessage::Moved(wish)]
    );
    registry.on_over(FIRST, None);
    assert_eq!(status(&registry).jobs[0].state, JobState::Succeeded);
}

#[test]
fn a_worker_that_comes_back_with_another_generation_lets_go_of_that_one() {
    let mut registry = running();
    let Message::Register(worker) = register(1, Some(WorkerId(1))) else {
        unreachable!()
    };
    let back = Message::Register(Register {
        jobs: vec![VOID, FIRST],
        ..worker
    });
    let orders = say(&mut registry, A, back);
    let [
        OwnedMessage::Registered(_),
        OwnedMessage::Release(VOID),
        OwnedMessage::Prepare(prepare),
    ] = told(&orders, A)[..]
    else {
        panic!("{orders:?}");
    };
    assert_eq!(prepare.key, FIRST);
}
