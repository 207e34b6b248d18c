//! A worker leaves a job: its shards move by the others' threads, then all part from it, then it goes.
//!
//! Catches a worker that goes while others may still send to it, or it to others, and one that newcomers do not hear of. What workers do
//! in between the simulated cluster checks.

use brambling_controller::{Controller, ControllerEffect, MoveRefusal};
use brambling_program::{GroupId, ShardId};
use brambling_protocol::frame::{Arrived, Body, Frame, Parted, Reserved};
use brambling_protocol::{
    Entry, EntryRange, Generation, JobId, PartitionMap, Priority, Sequence, Version, WorkerId,
};
use std::collections::BTreeMap;

const JOB: JobId = JobId(1);
const NOW: Generation = Generation(0);
const LEAVER: WorkerId = WorkerId(1);
const SMALL: WorkerId = WorkerId(2);
const LARGE: WorkerId = WorkerId(3);
const LATE: WorkerId = WorkerId(4);

/// A controller and the sessions of its workers, which grant all room.
struct Cluster {
    controller: Controller,
    said: BTreeMap<WorkerId, Sequence>,
    /// What workers were told of leaving, in words, and effects.
    told: Vec<(WorkerId, &'static str)>,
    has_room: bool,
}

impl Cluster {
    fn new(shards: u32) -> Cluster {
        let mut map = PartitionMap::new([shards]);
        let entry = Entry {
            owner: LEAVER,
            version: 1,
        };
        let (group, first, end) = (GroupId(0), 0, shards);
        let _ = map
            .apply(&EntryRange {
                group,
                first,
                end,
                entry,
            })
            .unwrap();
        let mut controller = Controller::new(JOB, NOW, map, [LEAVER, SMALL, LARGE]);
        controller.weigh(LARGE, 3);
        let (said, told) = (BTreeMap::new(), Vec::new());
        Cluster {
            controller,
            said,
            told,
            has_room: true,
        }
    }

    fn say(&mut self, from: WorkerId, body: Body<'_>) {
        let sequence = self.said.entry(from).or_default();
        let frame = Frame {
            priority: Priority::FIRST,
            sequence: Some(*sequence),
            body,
        };
        *sequence += 1;
        self.controller.on_frame(from, &frame.to_bytes()).unwrap();
    }

    fn parted(&mut self, from: WorkerId) {
        self.say(from, Body::Parted(Parted { worker: LEAVER }));
        self.answer();
    }

    /// Workers answer until nothing is asked any more; the shards arrive at once.
    fn answer(&mut self) {
        loop {
            let effects = self.controller.take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.answer_one(effect);
            }
        }
    }

    fn answer_one(&mut self, effect: ControllerEffect) {
        let (to, bytes) = match effect {
            ControllerEffect::Send { to, bytes, .. } => (to, bytes),
            ControllerEffect::Left { worker } => return self.told.push((worker, "has left")),
            _ => return,
        };
        match Frame::decode(&bytes).unwrap().0.body {
            Body::Reserve(it) => {
                let (job, generation, shard, version) =
                    (it.job, it.generation, it.shard, it.version);
                let granted = self.has_room || to == SMALL;
                self.say(
                    to,
                    Body::Reserved(Reserved {
                        job,
                        generation,
                        shard,
                        version,
                        granted,
                    }),
                );
                if granted {
                    self.arrives(to, shard, version);
                }
            }
            Body::Leaves(it) if it.worker == LEAVER => self.told.push((to, "leaves")),
            Body::Gone(it) if it.worker == LEAVER => self.told.push((to, "gone")),
            _ => {}
        }
    }

    fn arrives(&mut self, at: WorkerId, shard: ShardId, version: Version) {
        let (job, generation) = (JOB, NOW);
        self.say(
            at,
            Body::Arrived(Arrived {
                job,
                generation,
                shard,
                version,
            }),
        );
    }

    fn held(&self) -> Vec<u32> {
        [LEAVER, SMALL, LARGE]
            .map(|it| self.controller.held(it))
            .into()
    }

    fn told(&mut self) -> Vec<(WorkerId, &'static str)> {
        std::mem::take(&mut self.told)
    }
}

#[test]
fn shards_move_by_threads_then_all_part_then_it_goes() {
    let mut cluster = Cluster::new(400);
    cluster.controller.drain(LEAVER, 10);
    assert!(cluster.controller.moving() < 100, "not all at once");
    cluster.answer();
    assert_eq!(cluster.held(), [0, 100, 300]);
    assert_eq!(cluster.told(), [(SMALL, "leaves"), (LARGE, "leaves")]);
    // Nothing goes there any more.
    let shard = ShardId {
        group: GroupId(0),
        index: 3,
    };
    let order = cluster.controller.order(shard, LEAVER, 0);
    assert_eq!(order, Err(MoveRefusal::Leaving(LEAVER)));
    cluster.parted(SMALL);
    cluster.parted(SMALL);
    // It was not asked yet.
    cluster.parted(LEAVER);
    assert_eq!(cluster.told(), []);
    // Who joins now may be sent what is for it, and parts as well.
    cluster.controller.join(LATE);
    cluster.answer();
    assert_eq!(cluster.told(), [(LATE, "leaves")]);
    cluster.parted(LARGE);
    assert_eq!(cluster.told(), []);
    cluster.parted(LATE);
    assert_eq!(cluster.told(), [(LEAVER, "gone")]);
    cluster.parted(LEAVER);
    let all = [SMALL, LARGE, LATE].map(|it| (it, "gone"));
    let mut told = cluster.told();
    told.sort();
    assert_eq!(told[1..], all);
    assert_eq!(told[0], (LEAVER, "has left"));
    // What comes late of it is no news, and who joins later hears that it was there.
    cluster.parted(LEAVER);
    cluster.controller.join(WorkerId(9));
    cluster.controller.join(LEAVER);
    cluster.answer();
    assert_eq!(cluster.told(), [(WorkerId(9), "gone")]);
}

#[test]
fn who_has_no_room_is_asked_again_later() {
    let mut cluster = Cluster::new(4);
    cluster.has_room = false;
    cluster.controller.drain(LEAVER, 10);
    cluster.answer();
    assert_eq!(cluster.held(), [0, 4, 0]);
    // The only one that could take them has none.
    let mut cluster = Cluster::new(4);
    cluster.has_room = false;
    cluster.controller.drain(SMALL, 10);
    cluster.controller.drain(LEAVER, 10);
    cluster.answer();
    assert_eq!(cluster.held(), [4, 0, 0]);
    cluster.has_room = true;
    cluster.controller.on_tick();
    cluster.answer();
    assert_eq!(cluster.held(), [0, 0, 4]);
}

/// Two leave together: whoever goes first is not waited for by the other.
#[test]
fn who_has_gone_is_waited_for_by_nobody() {
    let mut cluster = Cluster::new(4);
    cluster.controller.drain(LEAVER, 10);
    cluster.controller.drain(SMALL, 10);
    cluster.answer();
    assert_eq!(cluster.held(), [0, 0, 4]);
    for worker in [LEAVER, SMALL] {
        cluster.say(LARGE, Body::Parted(Parted { worker }));
    }
    // It parts from one that stays, which says nothing.
    cluster.say(SMALL, Body::Parted(Parted { worker: LARGE }));
    let _ = cluster.told();
    cluster.parted(SMALL);
    assert_eq!(cluster.told(), [(LEAVER, "gone")]);
    cluster.parted(LEAVER);
    assert!(cluster.told().contains(&(LEAVER, "has left")));
    cluster.say(SMALL, Body::Parted(Parted { worker: SMALL }));
    cluster.answer();
    assert_eq!(cluster.told(), [(SMALL, "has left")]);
}

/// Who is no member cannot leave, who has left cannot come back, and who is there does not come again.
#[test]
fn members_come_once_and_go_once() {
    let mut cluster = Cluster::new(4);
    cluster.controller.join(SMALL);
    assert_eq!(cluster.controller.take_effects(), []);
    cluster.controller.drain(LATE, 10);
    assert!(!cluster.controller.is_leaving(LATE));
    assert_eq!(cluster.controller.take_effects(), []);

    cluster.controller.drain(LEAVER, 10);
    cluster.answer();
    for worker in [SMALL, LARGE, LEAVER] {
        cluster.parted(worker);
    }
    let told = cluster.told();
    assert!(told.contains(&(LEAVER, "has left")), "{told:?}");
    // It calls again, before it has heard that it may go: nothing is left to be said to it.
    cluster.controller.on_reconnect(LEAVER, 0).unwrap();
    assert_eq!(cluster.controller.take_effects(), []);
}
