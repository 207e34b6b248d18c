//! A job is over when all its shards have finished, or when it has failed on a worker, and every worker is told once.
//!
//! Catches an end that comes too early or twice, a newcomer that waits for ever, and shards that nobody has.

use brambling_controller::{
    Controller, ControllerEffect, ControllerError, MoveRefusal, WorkerLoss,
};
use brambling_program::{GroupId, ShardId};
use brambling_protocol::frame::{
    Arrived, Body, FAN_OUT, Failed, Finished, Frame, Reserved, ShardRange,
};
use brambling_protocol::{
    Entry, EntryRange, Generation, JobId, PartitionMap, Priority, Sequence, WorkerId,
};

const JOB: JobId = JobId(1);
const NOW: Generation = Generation(3);
const A: WorkerId = WorkerId(0);
const B: WorkerId = WorkerId(1);
const LATE: WorkerId = WorkerId(2);

/// Five shards in one group and two in another.
fn controller() -> Controller {
    let mut map = PartitionMap::new([5, 2]);
    for (group, end) in [(0, 5), (1, 2)] {
        let entry = Entry {
            owner: A,
            version: 1,
        };
        let (group, first) = (GroupId(group), 0);
        let _ = map
            .apply(&EntryRange {
                group,
                first,
                end,
                entry,
            })
            .unwrap();
    }
    Controller::new(JOB, NOW, map, [A, B])
}

fn say(
    controller: &mut Controller,
    from: WorkerId,
    sequence: Sequence,
    body: Body<'_>,
) -> Result<(), ControllerError> {
    let (priority, sequence) = (Priority::FIRST, Some(sequence));
    let frame = Frame {
        priority,
        sequence,
        body,
    };
    controller.on_frame(from, &frame.to_bytes())
}

fn finished(ranges: &[(u32, u32, u32)]) -> Body<'static> {
    let range = |&(group, first, end): &(u32, u32, u32)| ShardRange {
        group: GroupId(group),
        first,
        end,
    };
    Body::Finished(Finished {
        job: JOB,
        generation: NOW,
        shards: ranges.iter().map(range).collect(),
    })
}

/// Who was told that the job is over and how, and how often its end was an effect.
fn told(controller: &mut Controller) -> (Vec<(WorkerId, Option<String>)>, usize) {
    let (mut told, mut ends) = (Vec::new(), 0);
    for effect in controller.take_effects() {
        match effect {
            ControllerEffect::Ended { .. } => ends += 1,
            ControllerEffect::Send { to, bytes, .. } => {
                if let Body::Ended(ended) = Frame::decode(&bytes).unwrap().0.body {
                    assert_eq!((ended.job, ended.generation), (JOB, NOW));
                    told.push((to, ended.failure.map(str::to_owned)));
                }
            }
            other => panic!("{other:?}"),
        }
    }
    (told, ends)
}

#[test]
fn the_last_shard_ends_the_job() {
    let mut controller = controller();
    say(&mut controller, A, 0, finished(&[(0, 0, 3), (1, 1, 2)])).unwrap();
    // Shards that a worker names again are no more than they were.
    say(&mut controller, B, 0, finished(&[(0, 1, 4)])).unwrap();
    say(&mut controller, B, 1, finished(&[(0, 4, 5)])).unwrap();
    assert_eq!(told(&mut controller), (vec![], 0));
    assert!(!controller.is_over());
    say(&mut controller, A, 1, finished(&[(1, 0, 1)])).unwrap();
    assert_eq!(told(&mut controller), (vec![(A, None), (B, None)], 1));
    assert!(controller.is_over());
    // What comes after the end changes nothing.
    say(&mut controller, A, 2, finished(&[(1, 0, 1)])).unwrap();
    controller.cancel("too late");
    assert_eq!(told(&mut controller), (vec![], 0));
}

#[test]
fn the_first_failure_ends_the_job() {
    let mut controller = controller();
    let failed = |failure| {
        Body::Failed(Failed {
            job: JOB,
            generation: NOW,
            failure,
        })
    };
    say(&mut controller, B, 0, failed("no weights")).unwrap();
    say(&mut controller, A, 0, failed("no samples")).unwrap();
    let why = Some("on worker w1: no weights".to_owned());
    assert_eq!(
        told(&mut controller),
        (vec![(A, why.clone()), (B, why.clone())], 1)
    );
    // Whoever joins later hears it too.
    controller.join(LATE);
    assert_eq!(told(&mut controller), (vec![(LATE, why)], 0));
}

#[test]
fn what_is_said_of_another_generation_is_void() {
    let mut controller = controller();
    let older = Finished {
        job: JOB,
        generation: Generation(2),
        shards: vec![
            ShardRange {
                group: GroupId(0),
                first: 0,
                end: 5,
            },
            ShardRange {
                group: GroupId(1),
                first: 0,
                end: 2,
            },
        ],
    };
    say(&mut controller, A, 0, Body::Finished(older)).unwrap();
    let failed = Failed {
        job: JOB,
        generation: Generation(2),
        failure: "long ago",
    };
    say(&mut controller, A, 1, Body::Failed(failed)).unwrap();
    assert_eq!(told(&mut controller), (vec![], 0));
}

#[test]
fn shards_that_the_job_does_not_have_are_refused() {
    let mut controller = controller();
    for (sequence, range) in [(0, (0, 4, 6)), (1, (2, 0, 1)), (2, (u32::MAX, 0, u32::MAX))] {
        let error = say(&mut controller, B, sequence, finished(&[range])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "w1 says that shards have finished, or were saved, that its job does not have"
        );
    }
}

#[test]
fn shards_of_a_job_that_is_over_stay_where_they_are() {
    let mut controller = controller();
    controller.cancel("cancelled by its owner");
    let shard = ShardId {
        group: GroupId(0),
        index: 0,
    };
    let refusal = controller.order(shard, B, 0).unwrap_err();
    assert_eq!(refusal, MoveRefusal::Over(JOB));
    assert_eq!(refusal.to_string(), "job j1 is over");
}

/// It was ordered before the end, and is granted room after it: nobody hears of a version, and nothing is on its way.
#[test]
fn a_move_that_has_no_room_before_the_end_is_dropped() {
    let mut controller = controller();
    let shard = ShardId {
        group: GroupId(0),
        index: 0,
    };
    controller.order(shard, B, 0).unwrap();
    controller.cancel("cancelled by its owner");
    controller.take_effects();
    let room = Body::Reserved(Reserved {
        job: JOB,
        generation: NOW,
        shard,
        version: 2,
        granted: true,
    });
    say(&mut controller, B, 0, room).unwrap();
    for effect in controller.take_effects() {
        let ControllerEffect::Send { to: B, bytes, .. } = &effect else {
            panic!("{effect:?}");
        };
        let (frame, _) = Frame::decode(bytes).unwrap();
        assert!(matches!(frame.body, Body::Ack(_)), "{frame:?}");
    }
    assert_eq!(controller.moving(), 0);
    let stays = controller.map().entry(shard).unwrap();
    assert_eq!(stays.map(|entry| entry.owner), Some(A));
}

/// Its results are to be fetched from where it arrives; until then nobody is told that the job is over, and nothing else moves.
#[test]
fn a_job_ends_when_the_last_shard_that_moves_has_arrived() {
    let mut controller = controller();
    let shard = |index| ShardId {
        group: GroupId(0),
        index,
    };
    let (job, generation, version) = (JOB, NOW, 2);
    let room = |index| Reserved {
        job,
        generation,
        shard: shard(index),
        version,
        granted: true,
    };
    for index in [0, 1] {
        controller.order(shard(index), B, 0).unwrap();
    }
    say(&mut controller, B, 0, Body::Reserved(room(0))).unwrap();
    controller.take_effects();
    say(&mut controller, A, 0, finished(&[(0, 0, 5), (1, 0, 2)])).unwrap();
    assert_eq!(told(&mut controller), (vec![], 0));
    assert!(!controller.is_over());
    assert_eq!(
        controller.order(shard(2), B, 0),
        Err(MoveRefusal::Over(JOB))
    );
    // What is granted room only now stays.
    say(&mut controller, B, 1, Body::Reserved(room(1))).unwrap();
    assert_eq!(controller.moving(), 1);
    assert_eq!(controller.held(A), 6);
    let arrived = Arrived {
        job,
        generation,
        shard: shard(0),
        version,
    };
    say(&mut controller, B, 2, Body::Arrived(arrived)).unwrap();
    let effects = controller.take_effects();
    let ended = ControllerEffect::Ended { failure: None };
    assert_eq!(effects.iter().filter(|it| **it == ended).count(), 1);
    assert!(controller.is_over());
    assert_eq!(controller.moving(), 0);
}

/// A newcomer hears where all shards are, in frames that stay small.
#[test]
fn a_map_of_many_entries_is_several_frames() {
    const SHARDS: u32 = 10_000;
    let mut map = PartitionMap::new([SHARDS]);
    for first in 0..SHARDS {
        let entry = Entry {
            owner: if first % 2 == 0 { A } else { B },
            version: 1,
        };
        let (group, end) = (GroupId(0), first + 1);
        let _ = map
            .apply(&EntryRange {
                group,
                first,
                end,
                entry,
            })
            .unwrap();
    }
    let mut controller = Controller::new(JOB, NOW, map.clone(), [A, B]);
    controller.join(LATE);
    let mut heard = PartitionMap::new([SHARDS]);
    let mut frames = 0;
    for effect in controller.take_effects() {
        if let ControllerEffect::Send {
            to: LATE, bytes, ..
        } = effect
            && let Body::MapUpdate(update) = Frame::decode(&bytes).unwrap().0.body
        {
            assert!(bytes.len() < 1 << 17, "{}", bytes.len());
            frames += 1;
            for entry in &update.entries {
                let _ = heard.apply(entry).unwrap();
            }
        }
    }
    assert_eq!((heard, frames), (map, 3));
}

/// A worker may speak of a job that is another machine's.
#[test]
fn what_is_said_of_another_job_is_void() {
    let mut controller = controller();
    let job = JobId(9);
    let Body::Finished(all) = finished(&[(0, 0, 5), (1, 0, 2)]) else {
        unreachable!("made above");
    };
    let of_another = Body::Finished(Finished { job, ..all });
    say(&mut controller, A, 0, of_another).unwrap();
    assert_eq!(told(&mut controller), (vec![], 0));
    let failed = Failed {
        job,
        generation: NOW,
        failure: "of another",
    };
    say(&mut controller, A, 1, Body::Failed(failed)).unwrap();
    assert_eq!(told(&mut controller), (vec![], 0));
    assert!(!controller.is_over());
}

/// What was lost, in the words of a job that ends with it.
fn losses(controller: &mut Controller) -> Vec<(WorkerId, String)> {
    let lost = |effect| match effect {
        ControllerEffect::Lost(loss) => Some((loss.worker, loss.error())),
        _ => None,
    };
    controller
        .take_effects()
        .into_iter()
        .filter_map(lost)
        .collect()
}

/// Whether the job ends with that is for others to say.
#[test]
fn a_worker_that_is_gone_is_a_loss_and_is_named() {
    let mut controller = controller();
    controller.lose(A, "process 7 on node-3", WorkerLoss::Ended);
    let why = "worker w0 (process 7 on node-3) is gone, and with it 7 of the job's shards; start another worker, and run \
               the program again";
    assert_eq!(losses(&mut controller), [(A, why.to_owned())]);
    assert!(!controller.is_over());
}

#[test]
fn a_worker_that_is_cut_off_is_told_apart() {
    let mut controller = controller();
    controller.lose(A, "process 7 on node-3", WorkerLoss::CutOff);
    let why = "the controller cannot reach worker w0 (process 7 on node-3), whose machine has acknowledged nothing for 10 s, and with it 7 of \
               the job's shards are lost; look at the network between them, or start another worker, and run the program again";
    assert_eq!(losses(&mut controller), [(A, why.to_owned())]);
}

/// Its client may not have fetched all.
#[test]
fn what_a_job_has_left_can_be_lost_but_nothing_of_one_that_failed() {
    let mut controller = controller();
    say(&mut controller, A, 0, finished(&[(0, 0, 5), (1, 0, 2)])).unwrap();
    assert!(controller.is_over());
    controller.take_effects();
    controller.lose(B, "process 8 on node-3", WorkerLoss::Ended);
    assert_eq!(losses(&mut controller), [], "it held nothing");
    controller.lose(A, "process 7 on node-3", WorkerLoss::Ended);
    assert_eq!(losses(&mut controller).len(), 1);
    let mut failed = self::controller();
    failed.cancel("nobody wants it");
    failed.take_effects();
    failed.lose(A, "process 7 on node-3", WorkerLoss::Ended);
    assert_eq!(losses(&mut failed), []);
}

/// It never had a shard: no piece was sent there, and nobody waits for it.
#[test]
fn a_worker_that_never_had_anything_is_spared() {
    const C: WorkerId = WorkerId(2);
    let is_gone =
        |it: &ControllerEffect| matches!(it, ControllerEffect::Left { worker } if *worker == C);
    let mut controller = controller();
    controller.join(C);
    let shard = ShardId {
        group: GroupId(0),
        index: 0,
    };
    // It was asked whether it has room, and has not answered.
    controller.order(shard, C, 1).unwrap();
    controller.take_effects();
    controller.lose(C, "process 9 on node-3", WorkerLoss::Ended);
    let effects = controller.take_effects();
    assert!(!controller.is_over());
    assert_eq!(controller.moving(), 0);
    assert!(effects.iter().any(is_gone), "{effects:?}");
    let stays =
        |it: &ControllerEffect| matches!(it, ControllerEffect::Stays { to, .. } if *to == C);
    assert!(effects.iter().any(stays), "{effects:?}");
    // Once more, and late words of it.
    controller.lose(C, "process 9 on node-3", WorkerLoss::Ended);
    assert!(!controller.is_over());
    assert!(!controller.take_effects().iter().any(is_gone));
    // One that hands on for many others has what is theirs.
    let mut controller = self::controller();
    let last = WorkerId(FAN_OUT as u32 + 1);
    (2..=last.0).for_each(|at| controller.join(WorkerId(at)));
    controller.lose(last, "process 9 on node-3", WorkerLoss::Ended);
    assert_eq!(losses(&mut controller).len(), 1);
}

/// "Nothing changed then": of a frame that is refused not even the ranges before the one that is wrong are taken.
#[test]
fn a_frame_that_is_refused_finishes_nobody() {
    let mut controller = controller();
    let all_and_more = finished(&[(0, 0, 5), (1, 0, 2), (2, 0, 1)]);
    say(&mut controller, B, 0, all_and_more).unwrap_err();
    say(&mut controller, A, 0, finished(&[(0, 0, 1)])).unwrap();
    assert_eq!(told(&mut controller), (vec![], 0));
    assert!(!controller.is_over());
}
