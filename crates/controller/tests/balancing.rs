//! A controller that balances: what workers tell becomes orders to move. Catches a controller that does not ask, asks too late, or orders what
//! it must not; whether what it orders is wise, the tests of the policy know.

use brambling_controller::balance::{Balancer, Proposal, Scales, WorkerLoad};
use brambling_controller::{Controller, ControllerEffect};
use brambling_program::{GroupId, ShardId};
use brambling_protocol::frame::{Body, Finished, Frame, ShardRange};
use brambling_protocol::message::{ShardTime, ShardTimes};
use brambling_protocol::{
    Entry, EntryRange, Generation, JobId, JobKey, PartitionMap, Priority, WorkerId,
};
use std::time::Duration;

const JOB: JobId = JobId(1);
const SLOW: WorkerId = WorkerId(1);
const FAST: WorkerId = WorkerId(2);
const PERIOD: Duration = Duration::from_secs(1);

fn shard(index: u32) -> ShardId {
    let group = GroupId(0);
    ShardId { group, index }
}

/// A job of eight shards, four on each of two workers.
fn controller(scales: Scales) -> Controller {
    let mut map = PartitionMap::new([8]);
    for (owner, first) in [(SLOW, 0), (FAST, 4)] {
        let entry = Entry { owner, version: 1 };
        let range = EntryRange {
            group: GroupId(0),
            first,
            end: first + 4,
            entry,
        };
        let _ = map.apply(&range).unwrap();
    }
    let mut controller = Controller::new(JOB, Generation(0), map, [SLOW, FAST]);
    controller.put_on(scales);
    controller
}

fn times(shards: impl IntoIterator<Item = u32>, ms: u64) -> ShardTimes {
    let time = |index| ShardTime {
        shard: shard(index),
        turns: 10,
        ran_ns: ms * 10_000_000,
        bytes: 1_000 + u64::from(index),
    };
    let shards = shards.into_iter().map(time).collect();
    let key = JobKey::new(JOB, Generation(0));
    ShardTimes { key, shards }
}

/// Who is asked for room for which shard of how many bytes.
fn asked(controller: &mut Controller) -> Vec<(WorkerId, u32, u64)> {
    let reserve = |effect: ControllerEffect| match effect {
        ControllerEffect::Send { to, bytes, .. } => match Frame::decode(&bytes).unwrap().0.body {
            Body::Reserve(it) => Some((to, it.shard.index, it.bytes)),
            _ => None,
        },
        _ => None,
    };
    let effects = controller.take_effects();
    effects.into_iter().filter_map(reserve).collect()
}

/// Each second both tell what they took, as often as said, and it is balanced.
fn pass(controller: &mut Controller, seconds: std::ops::Range<u64>, often: usize) {
    for second in seconds {
        for _ in 0..often {
            controller.on_times(SLOW, &times(0..4, 20));
            controller.on_times(FAST, &times(4..8, 5));
        }
        controller.balance(Duration::from_secs(second), |_| 1 << 40);
    }
}

#[test]
fn who_is_slow_sheds_shards_however_often_it_tells() {
    for often in [1, 2] {
        let mut controller = controller(Scales::levelling(PERIOD));
        pass(&mut controller, 1..3, often);
        let asked = asked(&mut controller);
        assert!(!asked.is_empty());
        for (to, index, bytes) in asked {
            assert_eq!((to, bytes), (FAST, 1_000 + u64::from(index)));
            assert!(index < 4);
        }
    }
}

#[test]
fn without_scales_nothing_moves() {
    let map = PartitionMap::new([8]);
    let mut controller = Controller::new(JOB, Generation(0), map, [SLOW, FAST]);
    // Of a job that is not balanced nothing has to be kept.
    controller.pin(shard(0));
    pass(&mut controller, 1..9, 1);
    assert_eq!(asked(&mut controller), []);
}

#[test]
fn who_leaves_takes_no_part_and_who_is_strange_is_not_heard() {
    let mut controller = controller(Scales::levelling(PERIOD));
    controller.drain(FAST, 1);
    // Its shards move; none comes.
    let leaving = asked(&mut controller);
    assert!(leaving.len() == 4 && leaving.iter().all(|(to, ..)| *to == SLOW));
    pass(&mut controller, 1..9, 1);
    assert_eq!(asked(&mut controller), []);

    // Who holds nothing and leaves is no place for what another sheds.
    let mut controller = self::controller(Scales::levelling(PERIOD));
    let empty = WorkerId(3);
    controller.join(empty);
    controller.drain(empty, 1);
    for second in 1..4 {
        controller.on_times(SLOW, &times(0..4, 20));
        controller.on_times(FAST, &times(4..8, 10));
        controller.on_times(empty, &times([], 0));
        controller.balance(Duration::from_secs(second), |_| 1 << 40);
    }
    let asked_whom: Vec<WorkerId> = asked(&mut controller).iter().map(|it| it.0).collect();
    assert_eq!(asked_whom, [FAST]);

    // Two leave and their shards have nowhere to go: what is told of these moves none of them.
    let mut controller = self::controller(Scales::levelling(PERIOD));
    controller.drain(SLOW, 1);
    controller.drain(FAST, 1);
    controller.join(WorkerId(3));
    controller.take_effects();
    pass(&mut controller, 1..9, 1);
    assert_eq!(asked(&mut controller), []);

    let mut controller = self::controller(Scales::levelling(PERIOD));
    for second in 1..9 {
        // A stranger's word, a shard of no group, and one that is another's.
        controller.on_times(WorkerId(7), &times(0..4, 20));
        controller.on_times(FAST, &times(0..4, 20));
        let mut unknown = times(0..1, 20);
        unknown.shards[0].shard.group = GroupId(9);
        controller.on_times(SLOW, &unknown);
        controller.balance(Duration::from_secs(second), |_| 1 << 40);
    }
    assert_eq!(asked(&mut controller), []);
}

#[test]
fn what_is_told_of_another_job_or_generation_moves_nothing() {
    let mut controller = controller(Scales::levelling(PERIOD));
    let others = [(JobId(9), Generation(0)), (JOB, Generation(1))];
    for second in 1..9 {
        for (worker, shards, ms) in [(SLOW, 0..4, 20), (FAST, 4..8, 5)] {
            for (job, generation) in others {
                let of_another = ShardTimes {
                    key: JobKey::new(job, generation),
                    ..times(shards.clone(), ms)
                };
                controller.on_times(worker, &of_another);
            }
        }
        controller.balance(Duration::from_secs(second), |_| 1 << 40);
    }
    assert_eq!(asked(&mut controller), []);
}

#[test]
fn what_a_user_has_moved_stays_and_so_does_all_when_the_shards_have_finished() {
    let mut controller = controller(Scales::levelling(PERIOD));
    (0..4).for_each(|index| controller.pin(shard(index)));
    pass(&mut controller, 1..9, 1);
    assert_eq!(asked(&mut controller), []);

    let mut controller = self::controller(Scales::levelling(PERIOD));
    let finished = Finished {
        job: JOB,
        generation: Generation(0),
        shards: vec![ShardRange {
            group: GroupId(0),
            first: 0,
            end: 8,
        }],
    };
    let frame = Frame {
        priority: Priority::FIRST,
        sequence: Some(0),
        body: Body::Finished(finished),
    };
    controller.on_frame(SLOW, &frame.to_bytes()).unwrap();
    pass(&mut controller, 1..9, 1);
    assert_eq!(asked(&mut controller), []);
}

/// A policy that wants what cannot be.
struct Unwise;

impl Balancer for Unwise {
    fn propose(&mut self, _: &[WorkerLoad]) -> Vec<Proposal> {
        let proposal = |index, to| Proposal {
            shard: shard(index),
            to,
            bytes: 7,
        };
        vec![
            proposal(99, FAST),
            proposal(0, WorkerId(9)),
            proposal(0, SLOW),
            proposal(1, FAST),
            proposal(1, FAST),
        ]
    }
}

#[test]
fn what_a_policy_wants_and_cannot_be_is_not_ordered() {
    let mut controller = controller(Scales::new(PERIOD, || Box::new(Unwise)));
    pass(&mut controller, 1..3, 1);
    // The second round finds it on its way.
    assert_eq!(asked(&mut controller), [(FAST, 1, 7)]);
}
