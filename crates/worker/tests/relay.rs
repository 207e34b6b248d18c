//! What all are to hear, handed on: everybody hears, nobody sends much, and who is not there is missed by nobody else.
//!
//! Catches a part of a list that is dropped with the worker that should have handed it on, lists that go round, and a worker that leaves with
//! news for others. That it holds while frames are lost and workers come and go, the simulated cluster checks.

mod support;

use brambling_program::{GroupId, Plan, Position, ShardId, StageId};
use brambling_protocol::frame::{
    Ack, Body, FAN_OUT, Frame, Gone, Joined, Leaves, MapUpdate, News, Relay, SignalOutcome,
};
use brambling_protocol::{Entry, FrameSession, Generation, JobId, Priority, WorkerId};
use brambling_worker::Surroundings;
use brambling_worker::node::NodeEffect;
use std::collections::BTreeMap;
use support::{JOB, NOW, Worker, counting, one, options};

const SIGNAL: StageId = StageId(0);
const SHARD: ShardId = ShardId {
    group: GroupId(0),
    index: 1,
};

/// One of so many, which has heard nothing of the others.
fn node(plan: &Plan, me: u32, count: u32) -> Worker {
    support::worker(plan, options(WorkerId(me), (0..count).map(WorkerId)))
}

fn signal() -> SignalOutcome {
    let (stage, turn) = (SIGNAL, 0);
    SignalOutcome {
        job: JOB,
        generation: NOW,
        position: Position { stage, turn },
        outcome: true,
        cut: None,
    }
}

fn entry() -> Entry {
    let (owner, version) = (WorkerId(2), 7);
    Entry { owner, version }
}

fn update() -> MapUpdate {
    let Entry { owner, version } = entry();
    let entries = vec![one(SHARD, owner, version)];
    MapUpdate {
        job: JOB,
        generation: NOW,
        entries,
    }
}

fn knows_outcome(node: &mut Worker) -> bool {
    node.around(SHARD).outcome(SIGNAL, 0).is_some()
}

fn knows_entry(node: &Worker) -> bool {
    node.node().map().entry(SHARD) == Ok(Some(entry()))
}

fn relay(to: impl IntoIterator<Item = u32>, news: News) -> Body<'static> {
    let to = to.into_iter().map(WorkerId).collect();
    Body::Relay(Relay { to, news })
}

/// What the controller says to one worker.
#[derive(Default)]
struct Controller(FrameSession);

impl Controller {
    fn frame(&mut self, body: &Body<'_>) -> Vec<u8> {
        let said = self.0.say(Priority::FIRST, body).unwrap();
        said.to_bytes().to_vec()
    }

    fn says(&mut self, to: &mut Worker, body: &Body<'_>) {
        to.on_frame(WorkerId::CONTROLLER, &self.frame(body))
            .unwrap();
    }
}

fn hint(from: u32, to: &mut Worker, body: Body<'_>) {
    let bytes = Frame {
        priority: Priority::FIRST,
        sequence: None,
        body,
    }
    .to_bytes();
    to.on_frame(WorkerId(from), &bytes).unwrap();
}

/// Whom a node tells news, and whom those are to tell.
fn told(node: &mut Worker) -> BTreeMap<u32, Vec<u32>> {
    let mut told = BTreeMap::new();
    for effect in node.take_effects() {
        let NodeEffect::Send { to, packet, .. } = effect else {
            continue;
        };
        let bytes = packet.to_bytes();
        let rest = match Frame::decode(&bytes).unwrap().0.body {
            Body::Relay(relay) => relay.to.iter().map(|it| it.0).collect(),
            Body::Signal(_) | Body::MapUpdate(_) => Vec::new(),
            _ => continue,
        };
        assert_eq!(told.insert(to.0, rest), None, "{to} is told twice");
    }
    told
}

/// Carries what nodes send until nothing is under way. How many frames of news each has sent.
fn carry(nodes: &mut [Worker]) -> Vec<usize> {
    let mut sent = vec![0; nodes.len()];
    loop {
        let mut frames = Vec::new();
        for (at, node) in nodes.iter_mut().enumerate() {
            for effect in node.take_effects() {
                if let NodeEffect::Send { to, packet, .. } = effect
                    && to != WorkerId::CONTROLLER
                {
                    let bytes = packet.to_bytes();
                    let body = Frame::decode(&bytes).unwrap().0.body;
                    sent[at] += usize::from(!matches!(body, Body::Ack(_)));
                    frames.push((WorkerId(at as u32), to, bytes));
                }
            }
        }
        if frames.is_empty() {
            return sent;
        }
        for (from, to, bytes) in frames {
            nodes[to.0 as usize].on_frame(from, &bytes).unwrap();
        }
    }
}

/// Workers that have all heard of each other.
fn nodes(count: u32) -> Vec<Worker> {
    let plan = counting();
    let mut nodes: Vec<Worker> = (0..count).map(|me| node(&plan, me, count)).collect();
    for node in &mut nodes {
        node.around(SHARD).announce(0);
    }
    carry(&mut nodes);
    nodes
}

/// The first of so many, which has heard of all others.
fn first(count: u32) -> Worker {
    let mut node = node(&counting(), 0, count);
    for peer in (1..count).map(WorkerId) {
        let joined = Body::Joined(Joined { worker: peer });
        let said = FrameSession::default().say(Priority::FIRST, &joined);
        node.on_frame(peer, &said.unwrap().to_bytes()).unwrap();
    }
    node.take_effects();
    node
}

#[test]
fn all_hear_of_a_signal_and_nobody_sends_much() {
    for count in [2, 9, 10, 20, 200] {
        let mut nodes = nodes(count);
        let teller = count as usize / 2;
        nodes[teller].decided(signal().position, true).unwrap();
        let sent = carry(&mut nodes);
        assert!(nodes.iter_mut().all(knows_outcome), "of {count}");
        assert_eq!(sent.iter().sum::<usize>(), count as usize - 1, "once each");
        assert!(sent.iter().all(|it| *it <= FAN_OUT), "{sent:?}");
        assert_eq!(sent[teller], FAN_OUT.min(count as usize - 1));
    }
}

#[test]
fn all_hear_news_of_the_map_that_the_first_was_told() {
    let mut nodes = nodes(200);
    let news = News::MapUpdate(update());
    Controller::default().says(&mut nodes[3], &relay(0..200, news));
    let sent = carry(&mut nodes);
    assert!(nodes.iter().all(knows_entry));
    assert_eq!(sent.iter().sum::<usize>(), 199, "once each");
    assert!(sent.iter().all(|it| *it <= FAN_OUT), "{sent:?}");
    nodes.iter_mut().for_each(Worker::on_tick);
    carry(&mut nodes);
    assert!(nodes.iter().all(Worker::is_settled), "and are acknowledged");
}

#[cfg(feature = "mutants")]
#[test]
fn mutant_of_news_that_are_not_all_handed_on() {
    use brambling_memory::mutants::assert_caught;
    let name = "relay-forgets-its-last-child";
    assert_caught(name, all_hear_of_a_signal_and_nobody_sends_much);
    assert_caught(name, all_hear_news_of_the_map_that_the_first_was_told);
}

/// Neither itself nor whom it has it from, whatever the list says.
#[test]
fn a_list_that_names_oneself_goes_round_nowhere() {
    let mut node = first(30);
    hint(1, &mut node, relay(0..30, News::Signal(signal())));
    assert!(knows_outcome(&mut node));
    let told = told(&mut node);
    let mut all: Vec<u32> = told.keys().copied().collect();
    all.extend(told.values().flatten());
    all.sort_unstable();
    assert_eq!(all, (2..30).collect::<Vec<_>>());
}

/// A signal is not for strangers; the map is for whoever was named by the controller, who may know more.
#[test]
fn who_is_unknown_hears_of_the_map_and_loses_nobody_a_signal() {
    let mut few = first(3);
    hint(1, &mut few, relay(2..30, News::Signal(signal())));
    assert_eq!(told(&mut few), BTreeMap::from([(2, vec![])]));
    let mut few = first(3);
    let news = News::MapUpdate(update());
    Controller::default().says(&mut few, &relay(2..30, news));
    let told = told(&mut few);
    assert_eq!(told, (2..30).map(|it| (it, vec![])).collect());
    assert!(told.keys().all(|it| few.knows(WorkerId(*it))));
}

/// It may be building its program for a while: others would wait for it.
#[test]
fn who_is_not_up_hands_on_nothing() {
    for news in [News::Signal(signal()), News::MapUpdate(update())] {
        let mut node = first(20);
        let mut controller = Controller::default();
        for worker in (20..40).map(WorkerId) {
            controller.says(&mut node, &Body::Joined(Joined { worker }));
        }
        node.take_effects();
        hint(1, &mut node, relay(2..40, news));
        let told = told(&mut node);
        assert_eq!(told.len(), FAN_OUT + 20);
        for (to, rest) in told {
            assert!(rest.iter().all(|it| *it < 20), "{rest:?}");
            assert!(to < 20 || rest.is_empty(), "{to} is to tell {rest:?}");
        }
    }
}

#[cfg(feature = "mutants")]
#[test]
fn mutant_of_workers_that_are_to_hand_on_before_they_are_up() {
    let name = "anybody-hands-on";
    brambling_memory::mutants::assert_caught(name, who_is_not_up_hands_on_nothing);
}

/// The list was written before the worker left: its part is told by another.
#[test]
fn who_has_left_is_left_out_and_nobody_with_it() {
    for news in [News::Signal(signal()), News::MapUpdate(update())] {
        let mut node = first(30);
        let mut controller = Controller::default();
        controller.says(
            &mut node,
            &Body::Leaves(Leaves {
                worker: WorkerId(2),
            }),
        );
        controller.says(
            &mut node,
            &Body::Leaves(Leaves {
                worker: WorkerId(6),
            }),
        );
        controller.says(
            &mut node,
            &Body::Gone(Gone {
                worker: WorkerId(6),
            }),
        );
        node.take_effects();
        controller.says(&mut node, &relay(1..30, news));
        let told = told(&mut node);
        let mut all: Vec<u32> = told.keys().copied().collect();
        all.extend(told.values().flatten());
        all.sort_unstable();
        let others = (1..30).filter(|it| ![2, 6].contains(it));
        assert_eq!(all, others.collect::<Vec<_>>());
    }
}

/// Frames overtake each other: that it may go has come, and what it is to hand on has not.
#[test]
fn a_worker_that_leaves_hands_on_first() {
    let me = WorkerId(0);
    let mut node = node(&counting(), 0, 2);
    let mut controller = Controller::default();
    controller.says(
        &mut node,
        &Body::Joined(Joined {
            worker: WorkerId(1),
        }),
    );
    let news = controller.frame(&relay([1], News::MapUpdate(update())));
    controller.says(&mut node, &Body::Gone(Gone { worker: me }));
    assert!(!node.has_left(), "the controller has said something before");
    node.on_frame(WorkerId::CONTROLLER, &news).unwrap();
    assert_eq!(told(&mut node), BTreeMap::from([(1, vec![])]));
    assert!(!node.has_left(), "what it handed on is on its way");
    hint(1, &mut node, Body::Ack(Ack { received: 1 }));
    assert!(node.has_left());
}

#[cfg(feature = "mutants")]
#[test]
fn mutant_of_a_worker_that_leaves_before_it_has_handed_on() {
    let name = "relays-go-before-they-hand-on";
    brambling_memory::mutants::assert_caught(name, a_worker_that_leaves_hands_on_first);
}

/// News of another job, or of another run of it, are nobody's.
#[test]
fn news_of_others_are_not_handed_on() {
    let mut node = first(30);
    let old = SignalOutcome {
        generation: Generation(1),
        ..signal()
    };
    hint(1, &mut node, relay(2..30, News::Signal(old)));
    let job = JobId(2);
    let other = MapUpdate { job, ..update() };
    hint(1, &mut node, relay(2..30, News::MapUpdate(other)));
    let generation = Generation(1);
    let other = MapUpdate {
        generation,
        ..update()
    };
    hint(1, &mut node, relay(2..30, News::MapUpdate(other)));
    assert_eq!(told(&mut node), BTreeMap::new());
    assert!(!knows_outcome(&mut node) && !knows_entry(&node));
}

/// Whoever misses an outcome asks a few each time, and has asked all after a while: any of them may know.
#[test]
fn a_tick_asks_some_and_the_next_ones_the_others() {
    let mut node = node(&counting(), 0, 21);
    let mut asked = BTreeMap::new();
    assert!(!knows_outcome(&mut node));
    for tick in 1..=5 {
        node.on_tick();
        let effects = node.take_effects();
        assert_eq!(effects.len(), FAN_OUT);
        for effect in effects {
            if let NodeEffect::Send { to, .. } = effect {
                *asked.entry(to).or_insert(0) += 1;
            }
        }
        assert_eq!(asked.len(), (tick * FAN_OUT).min(20));
    }
    assert!(asked.values().all(|it| *it == 2), "{asked:?}");
    hint(9, &mut node, Body::Signal(signal()));
    node.on_tick();
    assert!(node.take_effects().is_empty(), "it knows");
}
