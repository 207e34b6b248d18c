//! A job that has lost shards with a worker begins again, waits for a newcomer, or ends.

use crate::callers::{
    A, B, CLIENT, FIRST, OTHER, VERSION, ended, register, say, state, status, submit, told,
    two_workers,
};
use brambling_controller::registry::{
    BACKOFF_TIME, ClusterStore, LOSSES_MAX, NEWCOMER_TIME, Order, OwnedMessage, POISON_TIME,
    PeerLink, RETURN_TIME, Registry,
};
use brambling_controller::{ShardLoss, WorkerLoss};
use brambling_program::{CutPlan, GroupId, ShardId};
use brambling_protocol::message::{
    Accepted, EventKind, JobCuts, JobState, KeptPlace, Load, Message, RestoredParts, RunningTask,
    SnapshotEvery, Survives,
};
use brambling_protocol::{Entry, EntryRange, Generation, JobId, JobKey, PartitionMap, WorkerId};
use std::time::Duration;

const C: PeerLink = PeerLink(12);

fn generation(number: u64) -> JobKey {
    JobKey::new(FIRST.job, Generation(number))
}

/// A registry with workers 1 and 2, and a job that may begin again, or not.
fn running(repeats: bool) -> Registry {
    let mut registry = two_workers();
    say(
        &mut registry,
        CLIENT,
        Message::Survives(Survives {
            repeats,
            cuts: None,
        }),
    );
    say(&mut registry, CLIENT, submit(&[4]));
    registry
}

fn loss(worker: u32) -> ShardLoss {
    ShardLoss {
        worker: WorkerId(worker),
        why: format!("worker w{worker} is gone"),
        way_out: "start another",
        held: PartitionMap::new([4]),
    }
}

/// A worker's process ends, as its host sees, and its shards are lost.
fn dies(registry: &mut Registry, pid: u32, key: JobKey, now: Duration) -> Vec<Order> {
    registry.on_tick(now);
    registry.take_orders();
    registry.on_process_ended(ended(pid), "here", now);
    let worker = match pid {
        1 => WorkerId(1),
        _ => WorkerId(2),
    };
    let orders = registry.take_orders();
    let lost = orders.iter().find_map(|it| match it {
        Order::Lose {
            key, worker, how, ..
        } => Some((*key, *worker, *how)),
        _ => None,
    });
    assert_eq!(lost, Some((key, worker, WorkerLoss::Ended)), "{orders:?}");
    registry.on_loss(key, loss(worker.0));
    registry.take_orders()
}

#[test]
fn a_job_begins_again_on_those_that_are_left() {
    let mut registry = running(true);
    let orders = dies(&mut registry, 1, FIRST, Duration::from_millis(500));
    let [
        OwnedMessage::Recovering { job, why },
        OwnedMessage::Accepted(Accepted { key, members }),
    ] = told(&orders, CLIENT)[..]
    else {
        panic!("{orders:?}");
    };
    assert_eq!(
        (*job, &why[..]),
        (FIRST.job, "worker w1 is gone; the job begins again")
    );
    assert_eq!(*key, generation(1));
    let members: Vec<WorkerId> = members.iter().map(|it| it.worker).collect();
    assert_eq!(members, [WorkerId(2)]);
    // Those that ran it before let go of that first.
    let [OwnedMessage::Release(FIRST), OwnedMessage::Prepare(prepare)] = told(&orders, B)[..]
    else {
        panic!("{orders:?}");
    };
    assert_eq!(prepare.key, generation(1));
    assert!(prepare.map.iter().all(|it| it.entry.owner == WorkerId(2)));
    assert!(orders.contains(&Order::Forget(FIRST)));
    let job = &status(&registry).jobs[0];
    assert_eq!(
        (job.state, job.generation),
        (JobState::Running, Generation(1))
    );
    assert_eq!(registry.counts().recoveries, 1);
    // Another worker's loss at the same time, of the generation that is void.
    registry.on_loss(FIRST, loss(2));
    assert_eq!(registry.take_orders(), []);
}

#[test]
fn a_job_that_may_not_ends_with_its_loss() {
    let mut registry = running(false);
    let orders = dies(&mut registry, 1, FIRST, Duration::from_millis(500));
    let [Order::Cancel { key: FIRST, why }] = &orders[..] else {
        panic!("{orders:?}");
    };
    assert_eq!(why, "worker w1 is gone; start another");
}

/// What its client has not fetched would be missing.
#[test]
fn a_job_that_has_ended_well_begins_again_until_its_client_is_done_with_it() {
    let mut registry = running(true);
    registry.on_over(FIRST, None);
    registry.take_orders();
    let orders = dies(&mut registry, 1, FIRST, Duration::from_millis(500));
    assert!(
        matches!(
            told(&orders, CLIENT)[..],
            [
                OwnedMessage::Recovering { .. },
                OwnedMessage::Accepted(Accepted {
                    key: JobKey {
                        generation: Generation(1),
                        ..
                    },
                    ..
                })
            ]
        ),
        "{orders:?}"
    );
    assert_eq!(registry.counts().succeeded, 0);
    registry.on_over(generation(1), None);
    assert_eq!(registry.counts().succeeded, 1);
    say(&mut registry, CLIENT, Message::Done(FIRST.job));
    registry.on_process_ended(ended(3), "here", Duration::from_millis(600));
    let orders = registry.take_orders();
    assert!(
        !orders.iter().any(|it| matches!(it, Order::Lose { .. })),
        "{orders:?}"
    );
}

#[test]
fn without_workers_it_waits_for_a_newcomer_before_all_others() {
    let mut registry = running(true);
    say(&mut registry, OTHER, submit(&[2]));
    dies(&mut registry, 1, FIRST, Duration::from_millis(500));
    let orders = dies(&mut registry, 3, generation(1), Duration::from_millis(600));
    assert!(
        matches!(told(&orders, CLIENT)[..], [OwnedMessage::Recovering { .. }]),
        "{orders:?}"
    );
    assert_eq!(state(&registry, 1), JobState::Queued);
    assert_eq!(
        registry.waits(),
        [
            (JobId(1), "a worker that takes jobs".into()),
            (JobId(2), "1 job before it".into())
        ]
    );
    registry.on_tick(Duration::from_secs(59));
    let orders = say(&mut registry, C, register(4, None));
    let accepted = told(&orders, CLIENT);
    assert!(
        matches!(accepted[..], [OwnedMessage::Accepted(it)] if it.key == generation(2)),
        "{orders:?}"
    );
    assert_eq!(state(&registry, 2), JobState::Queued);
    // It waits no more.
    registry.on_tick(Duration::from_secs(600));
    assert_eq!(state(&registry, 1), JobState::Running);
}

#[test]
fn for_whom_no_worker_comes_ends_with_its_loss() {
    let mut registry = running(true);
    dies(&mut registry, 1, FIRST, Duration::from_millis(500));
    let at = Duration::from_millis(600);
    dies(&mut registry, 3, generation(1), at);
    registry.on_tick(at + NEWCOMER_TIME - RETURN_TIME);
    assert_eq!(registry.take_orders(), []);
    registry.on_tick(at + NEWCOMER_TIME);
    let orders = registry.take_orders();
    let over = OwnedMessage::Over {
        job: FIRST.job,
        failure: Some("worker w2 is gone; start another".into()),
    };
    assert_eq!(told(&orders, CLIENT), [&over]);
    assert_eq!(state(&registry, 1), JobState::Failed);
}

/// Its own client leaves while it waits.
#[test]
fn a_job_that_waits_ends_with_its_client() {
    let mut registry = running(true);
    dies(&mut registry, 1, FIRST, Duration::from_millis(500));
    dies(&mut registry, 3, generation(1), Duration::from_millis(600));
    registry.on_lost(CLIENT, Duration::from_millis(700));
    registry.take_orders();
    assert_eq!(state(&registry, 1), JobState::Failed);
    let orders = say(&mut registry, C, register(4, None));
    assert!(
        !orders.iter().any(|it| matches!(it, Order::Begin { .. })),
        "{orders:?}"
    );
}

/// A kernel that kills its worker would kill one after the other.
#[test]
fn the_third_loss_in_a_row_ends_it_and_one_after_a_long_time_is_not_in_a_row() {
    for apart in [Duration::from_secs(1), POISON_TIME] {
        let mut registry = running(true);
        let mut now = apart;
        let mut last = Vec::new();
        for number in 0..3 {
            let (pid, worker) = (40 + number, 3 + number);
            say(
                &mut registry,
                PeerLink(100 + u64::from(number)),
                register(pid, None),
            );
            registry.on_tick(now);
            registry.take_orders();
            registry.on_loss(generation(u64::from(number)), loss(worker));
            last = registry.take_orders();
            now += apart;
        }
        let cancelled = last.iter().find_map(|it| match it {
            Order::Cancel { key, why } => Some((*key, why.clone())),
            _ => None,
        });
        match apart == POISON_TIME {
            true => assert_eq!(cancelled, None, "{last:?}"),
            false => {
                let (key, why) = cancelled.expect("it ends");
                assert_eq!(key, generation(2));
                let all = "worker w3 is gone; worker w4 is gone; worker w5 is gone; look at what";
                assert!(why.contains(all), "{why}");
            }
        }
    }
}

/// A job that loses one worker after the other; each ran a task then, of this partition. Gives when each generation began, and how it ended.
fn losing(partitions: &[u32]) -> (Vec<Duration>, Option<String>) {
    let mut registry = running(true);
    let mut now = Duration::from_secs(1);
    let mut begun = Vec::new();
    for (number, partition) in (0u32..).zip(partitions) {
        let (key, worker) = (generation(u64::from(number)), 3 + number);
        let link = PeerLink(100 + u64::from(number));
        say(&mut registry, link, register(40 + number, None));
        let ran = RunningTask {
            key,
            stage: "grow".into(),
            partition: *partition,
        };
        let load = Load {
            memory_bytes: 0,
            idle_permille: 0,
            tasks: Vec::new(),
            running: vec![ran],
        };
        say(&mut registry, link, Message::Load(load));
        registry.on_process_ended(ended(40 + number), "here", now);
        registry.on_tick(now);
        registry.take_orders();
        registry.on_loss(key, loss(worker));
        let lost = now;
        loop {
            let orders = registry.take_orders();
            let cancelled = orders.iter().find_map(|it| match it {
                Order::Cancel { why, .. } => Some(why.clone()),
                _ => None,
            });
            if cancelled.is_some() {
                return (begun, cancelled);
            }
            if orders.iter().any(|it| matches!(it, Order::Begin { .. })) {
                break;
            }
            let waits = registry.waits();
            assert!(waits[0].1.contains("s to pass"), "{waits:?}");
            now += BACKOFF_TIME / 2;
            for link in [A, B] {
                registry.on_heartbeat(link, now);
            }
            registry.on_tick(now);
        }
        begun.push(now - lost);
    }
    (begun, None)
}

/// The third one ends it only if one task may have been the cause of all.
#[test]
fn losses_while_other_tasks_ran_make_it_rest_and_the_tenth_ends_it() {
    let (begun, why) = losing(&[7, 8, 7, 7]);
    let seconds = |begun: &[Duration]| begun.iter().map(Duration::as_secs).collect::<Vec<_>>();
    assert_eq!(seconds(&begun), [0, 0, 1]);
    let why = why.expect("it ends");
    assert!(
        why.contains("(it last ran stage `grow` of partition 8)"),
        "{why}"
    );
    let apart: Vec<u32> = (0..LOSSES_MAX as u32).collect();
    let (begun, why) = losing(&apart);
    assert_eq!(seconds(&begun), [0, 0, 1, 2, 4, 8, 16, 16, 16]);
    assert!(why.is_some());
}

/// A registry with a store and two workers, and a client who wants its job to begin at another's snapshot.
fn restoring(every: SnapshotEvery) -> (Registry, KeptPlace) {
    let mut registry = two_workers().with_store(ClusterStore {
        store: "/own".into(),
        prefix: "cluster-1".into(),
        every,
    });
    let at = KeptPlace {
        store: "/theirs".into(),
        place: "cluster-2/7".into(),
        cut: Some(12),
    };
    let cuts = JobCuts {
        program: 5,
        plan: CutPlan {
            shards: vec![4],
            loops: Vec::new(),
        },
        every: None,
    };
    let survives = Survives {
        repeats: true,
        cuts: Some(cuts),
    };
    say(&mut registry, CLIENT, Message::Survives(survives));
    say(&mut registry, CLIENT, Message::Restore(at.clone()));
    (registry, at)
}

#[test]
fn a_job_that_begins_at_another_snapshot_waits_for_its_own() {
    let (mut registry, at) = restoring(SnapshotEvery::Turns(3));
    let orders = say(&mut registry, CLIENT, submit(&[4]));
    let copies = orders.iter().find_map(|it| match it {
        Order::Copy { key, from, into } => Some((*key, from.clone(), into.place.clone())),
        _ => None,
    });
    let place = format!("cluster-1/{}", FIRST.job.0);
    assert_eq!(copies, Some((FIRST, at, place)), "{orders:?}");
    assert!(told(&orders, B).is_empty(), "it has not begun");
    // Neither does it when something else happens.
    registry.on_tick(Duration::from_secs(1));
    assert_eq!(state(&registry, FIRST.job.0), JobState::Queued);
    registry.take_orders();
    registry.on_copied(FIRST, 1);
    let orders = registry.take_orders();
    let [OwnedMessage::Prepare(prepare)] = told(&orders, B)[..] else {
        panic!("{orders:?}");
    };
    assert_eq!(prepare.kept.as_ref().and_then(|it| it.cut), Some(1));
    // Said twice, it begins once.
    registry.on_copied(FIRST, 1);
    assert_eq!(registry.take_orders(), []);
    // What its client submits next begins at its start.
    let orders = say(&mut registry, CLIENT, submit(&[4]));
    assert!(!orders.iter().any(|it| matches!(it, Order::Copy { .. })));
}

#[test]
fn a_job_whose_snapshot_cannot_be_copied_ends_with_the_cause() {
    let (mut registry, _) = restoring(SnapshotEvery::Turns(3));
    say(&mut registry, CLIENT, submit(&[4]));
    registry.on_uncopied(FIRST, "it is damaged".into());
    let orders = registry.take_orders();
    let [OwnedMessage::Over { failure, .. }] = told(&orders, CLIENT)[..] else {
        panic!("{orders:?}");
    };
    assert_eq!(failure.as_deref(), Some("it is damaged"));
    // It came too late.
    registry.on_copied(FIRST, 1);
    assert_eq!(registry.take_orders(), []);
}

#[test]
fn a_cluster_without_snapshots_begins_no_job_at_one() {
    let (mut registry, _) = restoring(SnapshotEvery::Off);
    let orders = say(&mut registry, CLIENT, submit(&[4]));
    let [OwnedMessage::Refused { why }] = told(&orders, CLIENT)[..] else {
        panic!("{orders:?}");
    };
    assert!(why.contains("start its controller with --store or --state"));
    assert!(status(&registry).jobs.is_empty());
}

/// Of a job that goes on from a snapshot, shards that are left stay where they were when the others were lost.
#[test]
fn who_is_left_keeps_its_shards() {
    let store = ClusterStore {
        store: "/somewhere".into(),
        prefix: "cluster-1".into(),
        every: SnapshotEvery::Turns(10),
    };
    let mut registry = Registry::new(VERSION).with_store(store);
    for (link, pid) in [(A, 1), (B, 2), (C, 3)] {
        say(&mut registry, link, register(pid, None));
    }
    let cuts = JobCuts {
        program: 1,
        plan: CutPlan {
            shards: vec![6],
            loops: Vec::new(),
        },
        every: None,
    };
    let survives = Survives {
        repeats: true,
        cuts: Some(cuts),
    };
    say(&mut registry, CLIENT, Message::Survives(survives));
    say(&mut registry, CLIENT, submit(&[6]));
    let group = GroupId(0);
    let mut held = PartitionMap::new([6]);
    // Shards have moved since they were placed.
    for (index, owner) in [2, 1, 3, 3, 1, 2].into_iter().enumerate() {
        let (first, owner) = (index as u32, WorkerId(owner));
        let entry = Entry { owner, version: 5 };
        let end = first + 1;
        let range = EntryRange {
            group,
            first,
            end,
            entry,
        };
        let _ = held.apply(&range).unwrap();
    }
    registry.on_snapshot(FIRST, 1, 100, Duration::ZERO);
    registry.on_process_ended(ended(3), "here", Duration::ZERO);
    registry.on_loss(FIRST, ShardLoss { held, ..loss(3) });
    let orders = registry.take_orders();
    let begun = orders.iter().find_map(|it| match it {
        Order::Begin { map, .. } => Some(map),
        _ => None,
    });
    let map = begun.unwrap_or_else(|| panic!("{orders:?}"));
    let owner = |index| {
        map.entry(ShardId { group, index })
            .unwrap()
            .unwrap()
            .owner
            .0
    };
    // The second has twice the threads of the first, and gets what is lost.
    assert_eq!([0, 1, 2, 3, 4, 5].map(owner), [2, 1, 2, 2, 1, 2]);
    // Workers say where what they begin with came from.
    registry.take_events();
    let mut restored = RestoredParts {
        key: generation(1),
        cut: 1,
        read_bytes: 200,
        local_bytes: 400,
        took_ms: 7,
    };
    say(&mut registry, B, Message::Restored(restored));
    let told = registry.take_events();
    let [event] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(
        (event.kind, event.worker),
        (EventKind::JobRestored, Some(WorkerId(2)))
    );
    assert_eq!(
        (event.cut, event.bytes, event.took_ms),
        (Some(1), Some(200), Some(7))
    );
    assert_eq!(
        event.cause.as_deref(),
        Some("400 bytes more were still there")
    );
    // Of the generation that is void nobody wants to know.
    restored.key = FIRST;
    say(&mut registry, B, Message::Restored(restored));
    assert_eq!(registry.take_events(), []);
}

/// The same, with a store and a job that is saved there.
fn saved() -> Registry {
    let mut registry = two_workers().with_store(ClusterStore {
        store: "/store".into(),
        prefix: "cluster".into(),
        every: SnapshotEvery::DEFAULT,
    });
    let cuts = JobCuts {
        program: 1,
        plan: CutPlan {
            shards: vec![4],
            loops: Vec::new(),
        },
        every: None,
    };
    let survives = Survives {
        repeats: true,
        cuts: Some(cuts),
    };
    say(&mut registry, CLIENT, Message::Survives(survives));
    say(&mut registry, CLIENT, submit(&[4]));
    registry
}

/// At which snapshot a job begins again.
fn begins_at(orders: &[Order]) -> Option<u64> {
    let kept = orders.iter().find_map(|it| match it {
        Order::Begin { kept, .. } => Some(kept.clone()),
        _ => None,
    });
    let (place, _) = kept.expect("it begins").expect("it is saved");
    place.cut
}

#[test]
fn the_snapshot_at_which_a_generation_began_is_kept_for_whoever_joins_it() {
    let mut registry = saved();
    let at = Duration::ZERO;
    let kept: Vec<Vec<u64>> = (1..=3)
        .map(|cut| registry.on_snapshot(FIRST, cut, 1, at))
        .collect();
    assert_eq!(kept, [vec![1], vec![1, 2], vec![2, 3]]);
    let orders = dies(&mut registry, 1, FIRST, Duration::from_millis(500));
    assert_eq!(begins_at(&orders), Some(3));
    let kept: Vec<Vec<u64>> = (4..=6)
        .map(|cut| registry.on_snapshot(generation(1), cut, 1, at))
        .collect();
    assert_eq!(kept, [vec![3, 4], vec![4, 5, 3], vec![5, 6, 3]]);
}

/// A newcomer could not read the snapshot at which its generation began: it was an old one, and the job went back to one older than the newest.
#[test]
fn a_damaged_snapshot_is_not_used_again_and_newer_ones_are() {
    let mut registry = saved();
    let at = Duration::ZERO;
    (1..=2).for_each(|cut| drop(registry.on_snapshot(FIRST, cut, 1, at)));
    dies(&mut registry, 1, FIRST, Duration::from_millis(500));
    let unrestored = |generation| Message::Unrestored {
        key: generation,
        why: "it is damaged",
    };
    let orders = say(&mut registry, B, unrestored(generation(1)));
    assert_eq!(begins_at(&orders), Some(1));
    drop(registry.on_snapshot(generation(2), 3, 1, at));
    let orders = say(&mut registry, B, unrestored(generation(2)));
    assert_eq!(begins_at(&orders), Some(3));
}
