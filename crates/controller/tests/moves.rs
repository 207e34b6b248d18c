//! A move as the controller sees it: room first, then a version that those who move it hear at once and all others with a tick, then the end.
//!
//! Catches a version that is published without room or given twice, a second move that overtakes the first, and answers
//! of those who were not asked. What workers do in between the simulated cluster checks.

use brambling_controller::{Controller, ControllerEffect, ControllerError, MoveRefusal};
use brambling_program::{GroupId, ShardId};
use brambling_protocol::frame::{Ack, Arrived, Body, Frame, Joined, Reserve, Reserved};
use brambling_protocol::session::WINDOW;
use brambling_protocol::{
    Entry, EntryRange, Generation, JobId, PartitionMap, Priority, Sequence, WorkerId,
};

const JOB: JobId = JobId(1);
const NOW: Generation = Generation(0);
const FROM: WorkerId = WorkerId(0);
const TO: WorkerId = WorkerId(1);
const OTHER: WorkerId = WorkerId(2);
const SHARD: ShardId = ShardId {
    group: GroupId(0),
    index: 3,
};
const BEFORE: Entry = Entry {
    owner: FROM,
    version: 7,
};

fn controller() -> Controller {
    let mut map = PartitionMap::new([5, 2]);
    let everything = EntryRange {
        group: SHARD.group,
        first: 0,
        end: 5,
        entry: BEFORE,
    };
    let _ = map.apply(&everything).unwrap();
    Controller::new(JOB, NOW, map, [FROM, TO, OTHER])
}

/// What was sent, to whom, in words.
fn sent(controller: &mut Controller) -> Vec<(WorkerId, String)> {
    let sent = |effect| match effect {
        ControllerEffect::Send { to, bytes, .. } => {
            let (frame, _) = Frame::decode(&bytes).unwrap();
            let text = match frame.body {
                Body::Reserve(reserve) => {
                    let Reserve {
                        version,
                        holder,
                        bytes,
                        ..
                    } = reserve;
                    format!("reserve {version} of {holder}, {bytes}")
                }
                Body::MapUpdate(update) => {
                    let Entry { owner, version } = update.entries[0].entry;
                    format!("{owner} {version}")
                }
                Body::Ack(_) => "ack".into(),
                other => panic!("{other:?}"),
            };
            (to, text)
        }
        ControllerEffect::Moved { to, .. } => (to, "moved".into()),
        ControllerEffect::Stays { to, .. } => (to, "stays".into()),
        ControllerEffect::Left { worker } => (worker, "left".into()),
        effect => panic!("no shard has finished here, and none is lost or saved: {effect:?}"),
    };
    controller.take_effects().into_iter().map(sent).collect()
}

fn say(
    controller: &mut Controller,
    from: WorkerId,
    sequence: Sequence,
    body: Body<'_>,
) -> Result<(), ControllerError> {
    let mut bytes = Vec::new();
    Frame {
        priority: Priority::FIRST,
        sequence: Some(sequence),
        body,
    }
    .encode(&mut bytes);
    controller.on_frame(from, &bytes)
}

fn room(version: u64, granted: bool) -> Body<'static> {
    Body::Reserved(Reserved {
        job: JOB,
        generation: NOW,
        shard: SHARD,
        version,
        granted,
    })
}

fn arrived(version: u64) -> Body<'static> {
    Body::Arrived(Arrived {
        job: JOB,
        generation: NOW,
        shard: SHARD,
        version,
    })
}

fn words(expected: &[(WorkerId, &str)]) -> Vec<(WorkerId, String)> {
    let word = |(to, text): &(WorkerId, &str)| (*to, (*text).to_owned());
    expected.iter().map(word).collect()
}

#[test]
fn room_first_then_a_version_for_all_then_the_end() {
    let mut controller = controller();
    controller.order(SHARD, TO, 1_000).unwrap();
    assert_eq!(
        sent(&mut controller),
        words(&[(TO, "reserve 8 of w0, 1000")])
    );
    assert_eq!(controller.map().entry(SHARD), Ok(Some(BEFORE)));
    say(&mut controller, TO, 0, room(8, true)).unwrap();
    let published = [(FROM, "w1 8"), (TO, "w1 8"), (TO, "ack")];
    assert_eq!(sent(&mut controller), words(&published));
    controller.on_tick();
    assert_eq!(sent(&mut controller), words(&[(OTHER, "w1 8")]));
    controller.on_tick();
    assert_eq!(sent(&mut controller), [], "once");
    let now = Entry {
        owner: TO,
        version: 8,
    };
    assert_eq!(controller.map().entry(SHARD), Ok(Some(now)));
    // The rest of the range stays.
    let neighbour = ShardId { index: 2, ..SHARD };
    assert_eq!(controller.map().entry(neighbour), Ok(Some(BEFORE)));
    assert_eq!(controller.moving(), 1);
    say(&mut controller, TO, 1, arrived(8)).unwrap();
    assert_eq!(sent(&mut controller), words(&[(TO, "moved"), (TO, "ack")]));
    assert_eq!(controller.moving(), 0);
    controller.order(SHARD, OTHER, 0).unwrap();
    assert_eq!(
        sent(&mut controller),
        words(&[(OTHER, "reserve 9 of w1, 0")])
    );
}

#[test]
fn without_room_the_shard_stays() {
    let mut controller = controller();
    controller.order(SHARD, TO, 1 << 40).unwrap();
    say(&mut controller, TO, 0, room(8, false)).unwrap();
    let said = sent(&mut controller);
    assert!(said.contains(&(TO, "stays".into())), "{said:?}");
    assert!(!said.contains(&(FROM, "w1 8".into())), "{said:?}");
    assert_eq!(controller.map().entry(SHARD), Ok(Some(BEFORE)));
    // Another may have room.
    assert_eq!(controller.order(SHARD, OTHER, 0), Ok(()));
}

#[test]
fn orders_that_make_no_sense_are_refused() {
    let mut controller = controller();
    let unplaced = ShardId {
        group: GroupId(1),
        index: 0,
    };
    let unknown = ShardId { index: 5, ..SHARD };
    let nobody = WorkerId(9);
    assert!(matches!(
        controller.order(unknown, TO, 0),
        Err(MoveRefusal::UnknownShard(_))
    ));
    assert_eq!(
        controller.order(unplaced, TO, 0),
        Err(MoveRefusal::NotPlaced(unplaced))
    );
    assert_eq!(
        controller.order(SHARD, nobody, 0),
        Err(MoveRefusal::UnknownWorker(nobody))
    );
    assert_eq!(
        controller.order(SHARD, FROM, 0),
        Err(MoveRefusal::AlreadyThere(SHARD))
    );
    assert_eq!(sent(&mut controller), []);
    controller.order(SHARD, TO, 0).unwrap();
    assert_eq!(
        controller.order(SHARD, OTHER, 0),
        Err(MoveRefusal::OnItsWay(SHARD))
    );
}

#[test]
fn only_who_was_asked_may_answer() {
    let mut controller = controller();
    let is_refused = |said: Result<(), ControllerError>| {
        matches!(said, Err(ControllerError::NoSuchMove { shard: SHARD, .. }))
    };
    assert!(is_refused(say(&mut controller, TO, 0, room(8, true))));
    controller.order(SHARD, TO, 0).unwrap();
    assert!(is_refused(say(&mut controller, OTHER, 0, room(8, true))));
    assert!(is_refused(say(&mut controller, TO, 1, room(9, true))));
    assert!(is_refused(say(&mut controller, OTHER, 1, arrived(8))));
    let of_another = |job, generation| {
        let (shard, version, granted) = (SHARD, 8, true);
        let room = Reserved {
            job,
            generation,
            shard,
            version,
            granted,
        };
        let arrived = Arrived {
            job,
            generation,
            shard,
            version,
        };
        [Body::Reserved(room), Body::Arrived(arrived)]
    };
    let (job, later) = (JobId(2), Generation(NOW.0 + 1));
    let of_others = [of_another(job, NOW), of_another(JOB, later)];
    for (sequence, said) in (2..).zip(of_others.into_iter().flatten()) {
        assert!(is_refused(say(&mut controller, TO, sequence, said)));
    }
    let stranger = say(&mut controller, WorkerId(9), 0, arrived(8));
    assert!(matches!(stranger, Err(ControllerError::Stranger(_))));
    assert_eq!(controller.map().entry(SHARD), Ok(Some(BEFORE)));
}

#[test]
fn what_is_repeated_counts_once_and_what_is_lost_is_sent_again() {
    let mut controller = controller();
    controller.order(SHARD, TO, 0).unwrap();
    sent(&mut controller);
    // The connection broke before the worker heard of it.
    controller.on_reconnect(TO, 0).unwrap();
    assert_eq!(sent(&mut controller), words(&[(TO, "reserve 8 of w0, 0")]));
    say(&mut controller, TO, 0, room(8, true)).unwrap();
    sent(&mut controller);
    say(&mut controller, TO, 0, room(8, true)).unwrap();
    assert_eq!(sent(&mut controller), []);
    assert_eq!(controller.received(TO), 1);
    controller.on_tick();
    assert!(!controller.is_settled());
    for worker in [FROM, TO, OTHER] {
        let sent = if worker == TO { 2 } else { 1 };
        controller.on_reconnect(worker, sent).unwrap();
    }
    assert!(controller.is_settled());
}

/// Under another number it is no repetition of a frame: the worker has said it twice.
#[test]
fn room_that_is_granted_twice_publishes_one_version() {
    let mut controller = controller();
    controller.order(SHARD, TO, 0).unwrap();
    say(&mut controller, TO, 0, room(8, true)).unwrap();
    sent(&mut controller);
    say(&mut controller, TO, 1, room(8, true)).unwrap();
    assert_eq!(sent(&mut controller), words(&[(TO, "ack")]));
    assert_eq!(controller.moving(), 1);
    // Nor does the end of the job take back what was published: the shard is on its way.
    controller.cancel("cancelled by its owner");
    controller.take_effects();
    say(&mut controller, TO, 2, room(8, true)).unwrap();
    assert_eq!(sent(&mut controller), words(&[(TO, "ack")]));
    assert_eq!(controller.moving(), 1);
}

#[test]
fn what_no_honest_worker_says_is_refused() {
    let mut controller = controller();
    let is_frame = |said| matches!(said, Err(ControllerError::Frame(_)));
    let is_session = |said| matches!(said, Err(ControllerError::Session(_)));
    assert!(is_frame(controller.on_frame(TO, b"GET / HTTP/1.1\r\n\r\n")));
    // Numbers beyond all that may be under way, and word of frames that were never sent.
    assert!(is_session(say(&mut controller, TO, WINDOW, room(8, true))));
    let ack = Body::Ack(Ack { received: 1 });
    assert!(is_session(say(&mut controller, TO, 0, ack)));
    assert!(is_session(controller.on_reconnect(TO, 1)));
    let stranger = controller.on_reconnect(WorkerId(9), 0);
    assert!(matches!(stranger, Err(ControllerError::Stranger(_))));
    assert_eq!(sent(&mut controller), []);
    // What is no business of a controller is taken, and that is all.
    let joined = Body::Joined(Joined { worker: TO });
    say(&mut controller, OTHER, 0, joined).unwrap();
    assert_eq!(sent(&mut controller), words(&[(OTHER, "ack")]));
}

/// A worker that acknowledges nothing: what is said to it waits here, and comes in its order.
#[test]
fn no_more_than_a_window_is_under_way() {
    let mut controller = controller();
    let asks = |controller: &mut Controller, sequence| {
        controller.order(SHARD, TO, 0).unwrap();
        say(controller, TO, sequence, room(8, false)).unwrap();
        let sent = sent(controller);
        sent.contains(&(TO, "reserve 8 of w0, 0".into()))
    };
    let asked = (0..WINDOW + 3).filter(|it| asks(&mut controller, *it));
    assert_eq!(asked.count() as u64, WINDOW);
    let received = 2;
    let ack = Frame {
        priority: Priority::FIRST,
        sequence: None,
        body: Body::Ack(Ack { received }),
    };
    controller.on_frame(TO, &ack.to_bytes()).unwrap();
    let reserve = (TO, "reserve 8 of w0, 0");
    assert_eq!(sent(&mut controller), words(&[reserve, reserve]));
}
