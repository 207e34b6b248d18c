//! Pieces of one source for many workers are handed on.

use crate::cluster::{Cluster, Pieces, piece};
use crate::support::JOB;
use brambling_program::tree::TreeNode;
use brambling_program::{Bindings, ExchangeId, Inbox, Outbox, Plan, Program, Relation, Turn};
use brambling_protocol::frame::{Body, Data, DataHead, Frame, Piece as Sent, Route, VersionRange};
use brambling_protocol::{Generation, Priority, WorkerId};
use brambling_worker::Surroundings;
use brambling_worker::node::NodeOptions;
use brambling_worker::piece_data::PieceBytes;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const BROADCAST: ExchangeId = ExchangeId(0);

/// So many sources send to so many: the same to all, or what they like to each.
pub fn plan(sources: u32, destinations: u32, relation: Relation) -> Plan {
    let mut p = Program::new("to many");
    let one = p.dataset::<u64>("one", sources);
    let many = p.dataset::<u64>("many", destinations);
    p.repeat(5, |p| {
        let exchange = p.exchange::<u64>("out", relation);
        p.scatter("out", &exchange)
            .read(&one)
            .run(|_: &u64, _: &mut Outbox<'_, u64>| {});
        p.gather("out", &exchange)
            .update(&many)
            .run(|_: &mut Inbox<'_, u64>, _: &mut u64| {});
    });
    Plan::compile(Arc::new(p), &Bindings::default()).unwrap()
}

/// The source is at the first worker, the destinations at these; those of them that have said something are `up`.
fn sends(up: u32, destinations: &[u32], change: impl Fn(&mut NodeOptions)) -> Cluster {
    let workers = destinations.iter().max().expect("some") + 1;
    let count = destinations.len() as u32;
    let mut it = Cluster::new(plan(1, count, Relation::OneToAll), workers, change);
    it.places_all(BROADCAST, &[0], destinations);
    it.greet(up);
    it
}

/// The same piece to all, or one to each run of destinations.
pub fn scatters(it: &mut Cluster, turn: Turn, runs: &[(u32, &PieceBytes)]) {
    let shard = it.source(BROADCAST, 0);
    let mut first = 0;
    let each = runs.iter().flat_map(|(end, bytes)| {
        let run = first..*end;
        first = *end;
        run.map(|index| (index, piece(bytes)))
    });
    let each: Vec<_> = each.collect();
    let node = it.home(shard);
    node.scattered(shard, (BROADCAST, turn), each).unwrap();
}

/// What a destination has of a turn: its pieces.
pub fn gathers(it: &mut Cluster, index: u32, turn: Turn) -> Option<Vec<Vec<u8>>> {
    let shard = it.destination(BROADCAST, index);
    let node = it.home(shard);
    if !node.around(shard).is_complete(BROADCAST, turn) {
        return None;
    }
    let taken = node.take(shard, (BROADCAST, turn)).unwrap();
    node.gathered(shard, (BROADCAST, turn)).unwrap();
    Some(taken.into_iter().map(|(_, piece)| piece.to_vec()).collect())
}

/// Everybody has the piece of a turn, once.
fn all_have(it: &mut Cluster, destinations: u32, turn: Turn, bytes: &PieceBytes) {
    for index in 0..destinations {
        let has = gathers(it, index, turn);
        assert_eq!(has, Some(vec![bytes.to_vec()]), "destination {index}");
    }
}

/// How many frames each has sent, and each has got.
fn counts(pieces: &[Pieces]) -> (BTreeMap<u32, usize>, BTreeMap<u32, usize>) {
    let (mut sent, mut got) = (BTreeMap::new(), BTreeMap::new());
    for frame in pieces {
        *sent.entry(frame.from).or_default() += 1;
        *got.entry(frame.to).or_default() += 1;
    }
    (sent, got)
}

pub fn text() -> PieceBytes {
    PieceBytes::from_static(b"the same for all")
}

/// Each of 20 workers gets a piece for its destinations once, and sends no more frames than that.
fn hands_on(destinations: &[u32], frames_max: usize) {
    let mut it = sends(20, destinations, |options| options.fan_out = 2);
    let count = destinations.len() as u32;
    scatters(&mut it, 0, &[(count, &text())]);
    it.carry();
    let (sent, got) = counts(&it.pieces);
    assert_eq!(got, (1..20).map(|to| (to, 1)).collect(), "once each");
    assert!(sent.values().all(|it| *it <= frames_max), "{sent:?}");
    assert_eq!(sent[&0], 2);
    all_have(&mut it, count, 0, &text());
}

/// Those of the first worker of a part are its first ones, or its last.
#[test]
fn all_get_a_piece_once_and_nobody_sends_much() {
    hands_on(&(0..20).collect::<Vec<_>>(), 2);
    hands_on(&(0..20).rev().collect::<Vec<_>>(), 2);
    let three_each = (0..60).map(|index| index / 3);
    hands_on(&three_each.collect::<Vec<_>>(), 2);
}

/// Where shards have moved about, none of a worker's destinations are neighbours.
fn mixed() -> Vec<u32> {
    (0..60).map(|index| index * 7 % 20).collect()
}

#[test]
fn all_get_a_piece_once_wherever_destinations_are() {
    hands_on(&mixed(), 20);
}

#[test]
fn nobody_sends_much_wherever_destinations_are() {
    hands_on(&mixed(), 2);
}

/// They may be building their program: they get it from whoever has their part, and hand on nothing.
#[test]
fn who_is_not_up_is_sent_its_piece_directly() {
    let destinations: Vec<u32> = (0..20).collect();
    let mut it = sends(17, &destinations, |options| options.fan_out = 2);
    scatters(&mut it, 0, &[(20, &text())]);
    it.carry();
    let (sent, got) = counts(&it.pieces);
    assert_eq!(got, (1..20).map(|to| (to, 1)).collect(), "once each");
    assert_eq!(sent[&0], 2 + 3);
    let to_the_last = it.pieces.iter().filter(|frame| frame.to >= 17);
    assert!(to_the_last.clone().all(|frame| frame.from == 0));
    assert!(to_the_last.clone().all(|frame| frame.routes.is_empty()));
    let routes = it.pieces.iter().flat_map(|frame| &frame.routes);
    assert!(routes.clone().all(|route| route.to.0 < 17));
    all_have(&mut it, 20, 0, &text());
}

/// No more others than it may tell: nobody is asked to hand on anything.
#[test]
fn a_piece_for_few_goes_to_each_of_them() {
    for (destinations, fan_out) in [(6, 8), (6, 5)] {
        let homes: Vec<u32> = (0..destinations).collect();
        let mut it = sends(destinations, &homes, |options| options.fan_out = fan_out);
        scatters(&mut it, 0, &[(destinations, &text())]);
        it.carry();
        assert_eq!(it.pieces.len(), 5);
        let direct = |frame: &Pieces| frame.from == 0 && frame.routes.is_empty();
        assert!(it.pieces.iter().all(direct), "{:?}", it.pieces);
        all_have(&mut it, destinations, 0, &text());
    }
}

/// Where there are many sources everybody sends much: each sends what it has itself.
#[test]
fn pieces_of_one_among_many_are_not_handed_on() {
    let homes: Vec<u32> = (0..10).collect();
    for relation in [Relation::AllToAll, Relation::OneToAll] {
        let sources = if relation == Relation::AllToAll { 2 } else { 1 };
        let plan = plan(sources, 10, relation);
        let mut it = Cluster::new(plan, 10, |options| options.fan_out = 2);
        it.places_all(BROADCAST, &homes[..sources as usize], &homes);
        it.greet(10);
        scatters(&mut it, 0, &[(10, &text())]);
        it.carry();
        let is_direct = it.pieces.iter().all(|frame| frame.from == 0);
        assert_eq!(is_direct, sources == 2, "{:?}", it.pieces);
    }
}

/// Each of its chunks is in a frame of its own, and every frame says to whom it is handed on.
#[test]
fn all_chunks_of_a_piece_are_handed_on() {
    for is_backwards in [false, true] {
        let destinations: Vec<u32> = (0..12).collect();
        let mut it = sends(12, &destinations, |options| {
            (options.fan_out, options.chunk_bytes, options.frame_bytes) = (2, 100, 1);
        });
        it.is_backwards = is_backwards;
        let large: PieceBytes = (0..450u32).map(|at| at as u8).collect();
        scatters(&mut it, 0, &[(12, &large)]);
        it.carry();
        let (sent, got) = counts(&it.pieces);
        assert_eq!(got, (1..12).map(|to| (to, 5)).collect(), "once each");
        assert!(sent.values().all(|frames| *frames <= 10), "{sent:?}");
        all_have(&mut it, 12, 0, &large);
    }
}

/// What is for one run of destinations goes with what is for another: the routes of both are said.
#[test]
fn different_pieces_go_through_the_same_worker() {
    let homes: Vec<u32> = (0..10).chain(0..10).collect();
    for frame_bytes in [1 << 20, 1] {
        let plan = plan(1, 20, Relation::AllToAll);
        let mut it = Cluster::new(plan, 10, |options| {
            (options.fan_out, options.frame_bytes) = (2, frame_bytes);
        });
        it.places_all(BROADCAST, &[0], &homes);
        it.greet(10);
        let (one, other) = (text(), PieceBytes::from_static(b"for the others"));
        scatters(&mut it, 0, &[(10, &one), (20, &other)]);
        it.carry();
        let (sent, got) = counts(&it.pieces);
        let frames = if frame_bytes == 1 { 2 } else { 1 };
        assert_eq!(got, (1..10).map(|to| (to, frames)).collect());
        assert!(sent.values().all(|it| *it <= 2 * frames), "{sent:?}");
        for index in 0..20 {
            let bytes = if index < 10 { &one } else { &other };
            let has = gathers(&mut it, index, 0);
            assert_eq!(has, Some(vec![bytes.to_vec()]), "destination {index}");
        }
    }
}

/// A few of the destinations get nothing: their marks are handed on like pieces.
#[test]
fn empty_marks_are_handed_on() {
    let destinations: Vec<u32> = (0..20).collect();
    let mut it = sends(20, &destinations, |options| options.fan_out = 2);
    scatters(&mut it, 0, &[]);
    it.carry();
    let (sent, _) = counts(&it.pieces);
    assert!(sent.values().all(|frames| *frames <= 2), "{sent:?}");
    for index in 0..20 {
        assert_eq!(gathers(&mut it, index, 0), Some(vec![]));
    }
}

/// What its receiver drops, or keeps for later, is not for others now.
#[test]
fn pieces_of_another_generation_are_not_handed_on_as_of_this_one() {
    for generation in [Generation(1), Generation(3)] {
        let mut it = sends(3, &[1, 2], |options| options.generation = Generation(2));
        let group = it.destination(BROADCAST, 0).group;
        let routes = vec![Route {
            first: 1,
            end: 2,
            to: WorkerId(2),
        }];
        let body = Body::Data(Data {
            head: DataHead {
                job: JOB,
                generation,
                exchange: BROADCAST,
                turn: 0,
                group,
            },
            versions: vec![VersionRange {
                first: 0,
                end: 2,
                version: 1,
            }],
            pieces: vec![Sent {
                first: 0,
                end: 2,
                source: TreeNode::leaf(0),
                chunk: 0,
                last: true,
                payload: b"of another one",
            }],
            empties: Vec::new(),
            routes,
        });
        let (priority, sequence) = (Priority::FIRST, None);
        let frame = Frame {
            priority,
            sequence,
            body,
        };
        it.nodes[1]
            .on_frame(WorkerId(0), &frame.to_bytes())
            .unwrap();
        it.carry();
        for index in 0..2 {
            assert_eq!(gathers(&mut it, index, 0), None, "destination {index}");
        }
    }
}

/// A frame names 2 and 3 to the worker 1; 2 has left, and what it had is at 3, which the sender does not know.
fn with_one_that_leaves() -> Cluster {
    let mut it = sends(4, &[1, 2, 3], |options| options.fan_out = 1);
    scatters(&mut it, 0, &[(3, &text())]);
    it.carry_those(|_| false);
    assert_eq!(it.frames(), BTreeMap::from([((0, 1), 1)]));
    let routes = it.pieces[0].routes.iter().map(|route| route.to.0);
    assert_eq!(routes.collect::<Vec<_>>(), [2, 3]);
    let shard = it.destination(BROADCAST, 1);
    it.departs(shard, 3, 2);
    it.carry_those(|sent| sent.from != 0);
    assert_eq!(it.homes[&shard], 3);
    it.tells_leaves(1, 2);
    it.tells_home(1, shard, 3, 2);
    it
}

/// Nothing for it is on its way, nor will be.
#[test]
fn nobody_hands_on_to_who_has_left() {
    let mut it = with_one_that_leaves();
    it.tells_gone(1, 2);
    it.carry();
    assert!(!it.frames().contains_key(&(1, 2)), "{:?}", it.pieces);
    all_have(&mut it, 3, 0, &text());
}

/// It has said that nothing comes any more from here.
#[test]
fn nobody_hands_on_to_whom_it_has_parted_from() {
    let mut it = with_one_that_leaves();
    for _ in 0..2 {
        it.nodes.iter_mut().for_each(|node| node.on_tick());
        it.carry_those(|sent| sent.from != 0);
    }
    it.carry();
    assert!(!it.frames().contains_key(&(1, 2)), "{:?}", it.pieces);
    all_have(&mut it, 3, 0, &text());
}

/// It leaves, but pieces go there as long as they are on their way: it forwards them.
#[test]
fn who_leaves_is_handed_what_it_is_sent_until_others_have_parted() {
    let mut it = sends(4, &[1, 2, 3], |options| options.fan_out = 1);
    scatters(&mut it, 0, &[(3, &text())]);
    it.carry_those(|_| false);
    it.tells_leaves(1, 2);
    it.carry();
    assert_eq!(it.frames()[&(1, 2)], 1);
    all_have(&mut it, 3, 0, &text());
}

#[cfg(feature = "mutants")]
#[test]
fn mutant_of_pieces_for_who_has_left() {
    use brambling_memory::mutants::assert_caught;
    let name = "pieces-follow-who-has-left";
    assert_caught(name, nobody_hands_on_to_who_has_left);
    assert_caught(name, nobody_hands_on_to_whom_it_has_parted_from);
}

#[cfg(feature = "mutants")]
#[test]
fn mutant_of_a_part_that_is_not_sent() {
    let name = "pieces-forget-their-last-part";
    brambling_memory::mutants::assert_caught(name, all_get_a_piece_once_and_nobody_sends_much);
    brambling_memory::mutants::assert_caught(name, who_is_not_up_is_sent_its_piece_directly);
}
