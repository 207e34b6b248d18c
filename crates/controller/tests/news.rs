//! News of the map: once for each tick, however many shards have moved, and from the controller to a few workers only.
//!
//! Catches workers that are not told or told one by one, and those to whom it would be left to hand on who are not up yet or about to go.

use brambling_controller::{Controller, ControllerEffect};
use brambling_program::{GroupId, ShardId};
use brambling_protocol::frame::{Ack, Body, FAN_OUT, Frame, News, Reserved};
use brambling_protocol::{
    Entry, EntryRange, Generation, JobId, PartitionMap, Priority, Sequence, WorkerId,
};
use std::collections::{BTreeMap, BTreeSet};

const JOB: JobId = JobId(1);
const NOW: Generation = Generation(0);
const WORKERS: u32 = 100;
/// It holds nothing at first.
const TO: u32 = 99;

fn shard(index: u32) -> ShardId {
    let group = GroupId(0);
    ShardId { group, index }
}

struct Cluster {
    controller: Controller,
    /// How many frames each worker was sent.
    sent: BTreeMap<u32, Sequence>,
    /// What each has said.
    said: BTreeMap<u32, Sequence>,
}

/// What one worker was told of the map, and by how many who else is to hear it.
type Told = BTreeMap<u32, (Vec<EntryRange>, Vec<u32>)>;

impl Cluster {
    /// Each worker but the last has one shard.
    fn new() -> Cluster {
        let mut map = PartitionMap::new([WORKERS]);
        for at in 0..WORKERS {
            let owner = WorkerId(at.min(TO - 1));
            let entry = Entry { owner, version: 1 };
            let (group, first, end) = (GroupId(0), at, at + 1);
            let range = EntryRange {
                group,
                first,
                end,
                entry,
            };
            let _ = map.apply(&range).unwrap();
        }
        Cluster {
            controller: Controller::new(JOB, NOW, map, (0..WORKERS).map(WorkerId)),
            sent: BTreeMap::new(),
            said: BTreeMap::new(),
        }
    }

    fn says(&mut self, from: u32, sequence: Option<Sequence>, body: Body<'_>) {
        let frame = Frame {
            priority: Priority::FIRST,
            sequence,
            body,
        };
        let taken = self.controller.on_frame(WorkerId(from), &frame.to_bytes());
        taken.unwrap();
    }

    /// What was sent of the map since the last call; the rest is counted.
    fn told(&mut self) -> Told {
        let mut told = Told::new();
        for effect in self.controller.take_effects() {
            let ControllerEffect::Send { to, bytes, .. } = effect else {
                continue;
            };
            let frame = Frame::decode(&bytes).unwrap().0;
            *self.sent.entry(to.0).or_default() += u64::from(frame.sequence.is_some());
            let (update, rest) = match frame.body {
                Body::MapUpdate(update) => (update, Vec::new()),
                Body::Relay(relay) => match relay.news {
                    News::MapUpdate(update) => (update, relay.to.iter().map(|it| it.0).collect()),
                    other => panic!("{other:?}"),
                },
                _ => continue,
            };
            let before = told.insert(to.0, (update.entries, rest));
            assert_eq!(before, None, "{to} is told twice");
        }
        told
    }

    fn acknowledge_all(&mut self) {
        for worker in 0..WORKERS {
            let received = self.sent.get(&worker).copied().unwrap_or(0);
            self.says(worker, None, Body::Ack(Ack { received }));
        }
    }

    fn moves(&mut self, index: u32) -> Told {
        let shard = shard(index);
        let to = WorkerId(TO);
        self.controller.order(shard, to, 0).unwrap();
        let sequence = self.said.entry(TO).or_default();
        let said = *sequence;
        *sequence += 1;
        let entry = self.controller.map().entry(shard);
        let answer = Reserved {
            job: JOB,
            generation: NOW,
            shard,
            version: entry.unwrap().unwrap().version + 1,
            granted: true,
        };
        self.says(TO, Some(said), Body::Reserved(answer));
        self.told()
    }

    fn tick(&mut self) -> Told {
        self.controller.on_tick();
        self.told()
    }
}

fn entries(indexes: &[(u32, u32)]) -> Vec<EntryRange> {
    let (owner, version) = (WorkerId(TO), 2);
    let entry = Entry { owner, version };
    let group = GroupId(0);
    let range = |&(first, end): &(u32, u32)| EntryRange {
        group,
        first,
        end,
        entry,
    };
    indexes.iter().map(range).collect()
}

fn hearers(told: &Told) -> BTreeSet<u32> {
    let heard = told
        .iter()
        .flat_map(|(to, (_, rest))| rest.iter().chain([to]));
    heard.copied().collect()
}

fn all_but(workers: &[u32]) -> BTreeSet<u32> {
    (0..WORKERS).filter(|it| !workers.contains(it)).collect()
}

#[test]
fn those_of_a_move_hear_at_once_and_all_others_with_the_tick() {
    let mut cluster = Cluster::new();
    let told = cluster.moves(5);
    assert_eq!(told.keys().copied().collect::<Vec<_>>(), [5, TO]);
    let told = cluster.tick();
    assert_eq!(hearers(&told), all_but(&[5, TO]), "who knows is left out");
    assert_eq!(cluster.tick(), Told::new());
}

#[test]
fn what_moves_in_a_tick_is_told_in_one_frame() {
    let mut cluster = Cluster::new();
    for index in [5, 7, 6, 20] {
        cluster.moves(index);
    }
    let told = cluster.tick();
    assert_eq!(hearers(&told), all_but(&[TO]), "5 knows only of its own");
    for (entries, _) in told.values() {
        assert_eq!(*entries, self::entries(&[(5, 8), (20, 21)]));
    }
}

/// Who has not been heard from may be building its program.
#[test]
fn only_who_is_up_hands_on() {
    let mut cluster = Cluster::new();
    cluster.moves(5);
    let told = cluster.tick();
    assert_eq!(told.len(), WORKERS as usize - 2, "nobody is known to be up");
    cluster.acknowledge_all();
    cluster.moves(7);
    let told = cluster.tick();
    let relays = told.values().filter(|(_, rest)| !rest.is_empty());
    assert_eq!(relays.count(), FAN_OUT);
    // 5 and the newcomer were not told at the tick before, but when the shard moved.
    assert_eq!(told.len(), FAN_OUT);
    assert_eq!(hearers(&told), all_but(&[7, TO]));

    let late = WorkerId(WORKERS);
    cluster.controller.join(late);
    cluster.told();
    cluster.moves(8);
    let told = cluster.tick();
    assert_eq!(told.len(), FAN_OUT + 1);
    let (_, rest) = &told[&late.0];
    assert!(rest.is_empty(), "it joins, and hands nothing on yet");
    let named = told.values().any(|(_, rest)| rest.contains(&late.0));
    assert!(!named, "nor does anybody tell it who may not know it");
}

#[test]
fn who_goes_hands_nothing_on() {
    let mut cluster = Cluster::new();
    cluster.moves(0);
    cluster.tick();
    cluster.acknowledge_all();
    // What it held has gone: others part from it.
    let sequence = cluster.said[&TO];
    let arrived = brambling_protocol::frame::Arrived {
        job: JOB,
        generation: NOW,
        shard: shard(0),
        version: 2,
    };
    cluster.says(TO, Some(sequence), Body::Arrived(arrived));
    cluster.said.insert(TO, sequence + 1);
    cluster.controller.drain(WorkerId(0), 0);
    cluster.told();
    cluster.moves(7);
    let told = cluster.tick();
    let (_, rest) = &told[&0];
    assert!(rest.is_empty(), "others part from it");
    assert_eq!(hearers(&told), all_but(&[7, TO]));
}

#[cfg(feature = "mutants")]
#[test]
fn mutant_of_a_worker_that_is_to_hand_on_while_it_leaves() {
    use brambling_memory::mutants::assert_caught;
    assert_caught("anybody-hands-on", only_who_is_up_hands_on);
    assert_caught("anybody-hands-on", who_goes_hands_nothing_on);
}
