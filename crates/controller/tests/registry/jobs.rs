//! Jobs wait, begin on members, run side by side, end and are forgotten.

use crate::callers::{
    A, B, CLIENT, FIRST, OTHER, key, refusal, register, say, state, status, submit, told,
    two_workers,
};
use brambling_controller::registry::{Order, OwnedMessage, REMEMBERED, Registry, RegistryError};
use brambling_program::{GroupId, ShardId};
use brambling_protocol::message::{JobState, Message, Move, Prepare};
use brambling_protocol::{JobId, JobKey, PartitionMap, WorkerId};
use std::time::Duration;

#[test]
fn a_job_is_placed_by_threads_and_its_members_and_client_are_told() {
    let mut registry = two_workers();
    let orders = say(&mut registry, CLIENT, submit(&[8, 1]));
    let Some(Order::Begin {
        key,
        members,
        map,
        kept: None,
    }) = orders.get(1)
    else {
        panic!("{orders:?}");
    };
    assert_eq!(
        (*key, &members[..]),
        (FIRST, &[WorkerId(1), WorkerId(2)][..])
    );
    let owned = |worker| {
        let mine = map
            .entries()
            .filter(|it| it.entry.owner == WorkerId(worker));
        mine.map(|it| it.end - it.first).collect::<Vec<_>>()
    };
    assert_eq!((owned(1), owned(2)), (vec![2], vec![6, 1]));
    for worker in [A, B] {
        let [
            OwnedMessage::Prepare(Prepare {
                key: FIRST,
                members,
                shards,
                map: entries,
                ..
            }),
        ] = told(&orders, worker)[..]
        else {
            panic!("{orders:?}");
        };
        assert_eq!((members.len(), &shards[..]), (2, &[8, 1][..]));
        assert_eq!(*entries, map.entries().collect::<Vec<_>>());
    }
    let [
        OwnedMessage::Queued(JobId(1)),
        OwnedMessage::Accepted(accepted),
    ] = told(&orders, CLIENT)[..]
    else {
        panic!("{orders:?}");
    };
    assert_eq!(accepted.members[1].at.port(), 3);
}

#[test]
fn jobs_have_the_cluster_one_after_another() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    let queued = say(&mut registry, OTHER, submit(&[5]));
    assert_eq!(told(&queued, OTHER), [&OwnedMessage::Queued(JobId(2))]);
    assert_eq!(queued.len(), 1);
    assert_eq!(
        (state(&registry, 1), state(&registry, 2)),
        (JobState::Running, JobState::Queued)
    );
    registry.on_over(FIRST, None);
    let orders = registry.take_orders();
    assert_eq!(
        told(&orders, CLIENT),
        [&OwnedMessage::Over {
            job: JobId(1),
            failure: None
        }]
    );
    // What it left is still to be fetched.
    assert_eq!(state(&registry, 2), JobState::Queued);
    // Only its own client may say so.
    assert_eq!(say(&mut registry, OTHER, Message::Done(JobId(1))), []);
    let orders = say(&mut registry, CLIENT, Message::Done(JobId(1)));
    assert_eq!(told(&orders, A)[0], &OwnedMessage::Release(FIRST));
    assert!(orders.contains(&Order::Forget(FIRST)));
    assert!(matches!(
        told(&orders, OTHER)[..],
        [OwnedMessage::Accepted(_)]
    ));
    assert_eq!(
        (state(&registry, 1), state(&registry, 2)),
        (JobState::Succeeded, JobState::Running)
    );
}

#[test]
fn a_client_that_is_gone_ends_its_jobs() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, OTHER, submit(&[4]));
    registry.on_lost(CLIENT, Duration::ZERO);
    let orders = registry.take_orders();
    assert!(matches!(&orders[0], Order::Cancel { key: FIRST, why } if why.contains("client")));
    assert!(orders.contains(&Order::Forget(FIRST)));
    assert_eq!(
        (state(&registry, 1), state(&registry, 2)),
        (JobState::Failed, JobState::Failed)
    );
    assert_eq!(state(&registry, 3), JobState::Running);
    assert_eq!(told(&orders, CLIENT).len(), 0, "nobody is there to be told");
}

#[test]
fn a_job_that_waits_can_be_cancelled_and_one_that_a_member_cannot_prepare_ends() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, OTHER, submit(&[4]));
    let orders = say(&mut registry, CLIENT, Message::Cancel(JobId(2)));
    assert!(matches!(
        told(&orders, OTHER)[..],
        [OwnedMessage::Over {
            failure: Some(_),
            ..
        }]
    ));
    assert_eq!(state(&registry, 2), JobState::Failed);
    let (key, why) = (FIRST, "no such module");
    let orders = say(&mut registry, B, Message::Unprepared { key, why });
    let why = "on worker w2: no such module".to_owned();
    assert_eq!(orders, [Order::Cancel { key, why }]);
    assert!(refusal(&say(&mut registry, OTHER, Message::Cancel(JobId(9))), OTHER).contains("j9"));
}

/// Jobs that run side by side, as many as there may be.
#[test]
fn jobs_run_side_by_side_and_each_is_released_by_itself() {
    let mut registry = two_workers().with_jobs_at_once(2);
    for _ in 0..3 {
        say(&mut registry, CLIENT, submit(&[4]));
    }
    const THIRD: JobKey = key(3);
    let states = |registry: &Registry| [1, 2, 3].map(|job| state(registry, job));
    let (running, queued) = (JobState::Running, JobState::Queued);
    assert_eq!(states(&registry), [running, running, queued]);
    let held = |key, _| if key == FIRST { 3 } else { 4 };
    assert_eq!(registry.status(held).workers[0].shards, 7);
    // Two run: a shard's job must be named.
    let shard = ShardId {
        group: GroupId(0),
        index: 1,
    };
    let to = WorkerId(2);
    let wish = |job| Message::Move(Move { job, shard, to });
    let orders = say(&mut registry, OTHER, wish(None));
    assert!(refusal(&orders, OTHER).contains("--job"));
    let key = key(2);
    let ordered = say(&mut registry, OTHER, wish(Some(key.job)));
    assert_eq!(ordered, [Order::Move { key, shard, to }]);
    // The end of one begins the next, and leaves the other alone.
    registry.on_over(FIRST, None);
    registry.take_orders();
    assert_eq!(states(&registry)[2], queued);
    let orders = say(&mut registry, CLIENT, Message::Done(JobId(1)));
    assert_eq!(told(&orders, A)[0], &OwnedMessage::Release(FIRST));
    assert_eq!(told(&orders, A).len(), 2, "{orders:?}");
    assert!(matches!(told(&orders, A)[1], OwnedMessage::Prepare(it) if it.key == THIRD));
    assert_eq!(states(&registry)[1..], [running, running]);
    // Who comes takes part in both.
    let orders = say(&mut registry, OTHER, register(9, None));
    let worker = WorkerId(3);
    for key in [key, THIRD] {
        assert!(orders.contains(&Order::Admit { key, worker }), "{orders:?}");
    }
}

/// What a client says of columns is for the program that it submits next, and for no other.
#[test]
fn a_grid_is_placed_by_columns_once() {
    let mut registry = two_workers();
    let arrange = |columns: &[u32]| {
        let columns = columns.to_vec();
        Message::Arrange { columns }
    };
    let owners = |orders: &[Order]| -> Vec<u32> {
        let map = orders.iter().find_map(|order| match order {
            Order::Begin { map, .. } => Some(map),
            _ => None,
        });
        let map = map.expect("the job begins");
        let shard = |index| ShardId {
            group: GroupId(0),
            index,
        };
        let owner = |index| map.entry(shard(index)).unwrap().unwrap().owner.0;
        (0..8).map(owner).collect()
    };
    assert_eq!(say(&mut registry, CLIENT, arrange(&[4])), []);
    let orders = say(&mut registry, CLIENT, submit(&[8]));
    assert_eq!(owners(&orders), [1, 2, 2, 2, 1, 2, 2, 2]);
    say(&mut registry, CLIENT, Message::Done(JobId(1)));
    // Not for the one after it, nor another client's, nor for whoever comes after it.
    let lies_as_ever = |registry: &mut Registry, client, job| {
        let orders = say(registry, client, submit(&[8]));
        assert_eq!(owners(&orders), [1, 1, 2, 2, 2, 2, 2, 2]);
        say(registry, client, Message::Done(JobId(job)));
    };
    lies_as_ever(&mut registry, CLIENT, 2);
    say(&mut registry, CLIENT, arrange(&[4]));
    lies_as_ever(&mut registry, OTHER, 3);
    registry.on_lost(CLIENT, Duration::ZERO);
    lies_as_ever(&mut registry, CLIENT, 4);
    // One that no program has fits.
    say(&mut registry, OTHER, arrange(&[4, 4]));
    let refused = registry.on_message(OTHER, submit(&[8]));
    let expected = RegistryError::Arranged {
        arranged: 2,
        groups: 1,
    };
    assert_eq!(refused, Err(expected));
}

/// A worker hears what a job weighs when that is said, and when it hears of the job.
#[test]
fn what_a_job_weighs_is_told_to_its_members() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    let job = JobId(1);
    let weigh = |weight| Message::Weigh { job, weight };
    // Only its own client may say so.
    assert_eq!(say(&mut registry, OTHER, weigh(5)), []);
    for (said, weight) in [(3, 3), (0, 1), (u32::MAX, 1_000), (7, 7)] {
        let orders = say(&mut registry, CLIENT, weigh(said));
        for worker in [A, B] {
            assert_eq!(
                told(&orders, worker),
                [&OwnedMessage::Weigh { job, weight }]
            );
        }
    }
    // One that waits weighs when it begins.
    say(&mut registry, OTHER, submit(&[4]));
    let second = JobId(2);
    let light = Message::Weigh {
        job: second,
        weight: 2,
    };
    assert_eq!(say(&mut registry, OTHER, light), []);
    let orders = say(&mut registry, CLIENT, Message::Done(job));
    let weighs = OwnedMessage::Weigh {
        job: second,
        weight: 2,
    };
    assert_eq!(told(&orders, B).last(), Some(&&weighs));
}

/// Only those with a link begin; a job for which nobody has one waits for the first who comes back.
#[test]
fn a_job_begins_on_those_who_have_a_link() {
    let members = |orders: &[Order]| {
        let begun = orders.iter().find_map(|it| match it {
            Order::Begin { members, .. } => Some(members.clone()),
            _ => None,
        });
        begun.map(|members| members.iter().map(|it| it.0).collect::<Vec<_>>())
    };
    let mut registry = two_workers();
    registry.on_lost(A, Duration::ZERO);
    let orders = say(&mut registry, CLIENT, submit(&[4]));
    assert_eq!(members(&orders), Some(vec![2]));

    let mut registry = two_workers();
    registry.on_lost(A, Duration::ZERO);
    registry.on_lost(B, Duration::ZERO);
    let orders = say(&mut registry, CLIENT, submit(&[4]));
    assert_eq!(members(&orders), None);
    assert_eq!(state(&registry, 1), JobState::Queued);
    let orders = say(&mut registry, OTHER, register(3, Some(WorkerId(2))));
    assert_eq!(members(&orders), Some(vec![2]));
}

/// A job's controller may be slower than what happens to the job: what it says then concerns nobody any more.
#[test]
fn what_a_controller_says_too_late_is_told_nobody() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    let map = PartitionMap::new([4]);
    let (job, worker) = (FIRST.job, WorkerId(1));
    let shard = ShardId {
        group: GroupId(0),
        index: 1,
    };
    // Of jobs and workers that are none, and of a move for which nobody has asked.
    registry.on_admitted(key(9), worker, &map);
    registry.on_admitted(FIRST, WorkerId(9), &map);
    registry.on_left(key(9), worker);
    registry.on_over(key(9), None);
    registry.on_stays(FIRST, shard, "no room");
    assert_eq!(registry.take_orders(), []);
    assert_eq!(registry.job_details().len(), 1);
    // The client is done with it, and a newcomer was still being taken in.
    say(&mut registry, CLIENT, Message::Cancel(job));
    say(&mut registry, CLIENT, Message::Done(job));
    say(&mut registry, OTHER, register(9, None));
    registry.on_admitted(FIRST, WorkerId(3), &map);
    registry.on_over(FIRST, Some("cancelled".into()));
    registry.on_left(FIRST, worker);
    let orders = registry.take_orders();
    assert_eq!(
        orders,
        [Order::Tell {
            to: A,
            what: OwnedMessage::Release(FIRST)
        }]
    );
    let details = registry.job_details();
    assert_eq!(details[0].workers, [WorkerId(2)], "{details:?}");
}

#[test]
fn the_last_jobs_are_remembered_and_older_ones_are_not() {
    let mut registry = two_workers();
    let all = REMEMBERED as u64 + 3;
    for job in 1..=all {
        say(&mut registry, CLIENT, submit(&[4]));
        registry.on_over(key(job), None);
        say(&mut registry, CLIENT, Message::Done(JobId(job)));
    }
    let known: Vec<u64> = status(&registry).jobs.iter().map(|it| it.id.0).collect();
    assert_eq!(known, (4..=all).collect::<Vec<_>>());
    let orders = say(&mut registry, OTHER, Message::Cancel(JobId(3)));
    assert!(refusal(&orders, OTHER).contains("no job j3"));
}
