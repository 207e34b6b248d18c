//! What a node says at once: in frames that stay small, however much of it there is.
//!
//! Catches a frame that grows with its turn until nothing may send it.

mod support;

use brambling_exchange::CombiningOptions;
use brambling_program::{Bindings, ExchangeId, GroupId, Max, Plan, Program, ShardId};
use brambling_protocol::frame::{Body, Frame};
use brambling_protocol::{Entry, EntryRange, PartitionMap, WorkerId};
use brambling_worker::Surroundings;
use brambling_worker::node::{Node, NodeEffect, NodeOptions};
use brambling_worker::piece_data::PieceBytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use support::executor::SentPiece;
use support::{ME, PEER, Worker, nowhere, options};

const SHARDS: u32 = 300;
const REDUCTION: ExchangeId = ExchangeId(0);

fn plan() -> Plan {
    let mut p = Program::new("reduce");
    let counts = p.dataset::<u64>("counts", SHARDS);
    p.all_reduce(Max, &counts, &counts);
    Plan::compile(Arc::new(p), &Bindings::default()).unwrap()
}

/// The sources are at one worker, the destination at the other.
fn map(plan: &Plan) -> PartitionMap {
    let mut map = nowhere(plan);
    let destination = plan.exchanges[0].as_ref().unwrap().destination;
    for (group, &end) in (0..).map(GroupId).zip(&plan.counts) {
        let owner = if group == destination { PEER } else { ME };
        let version = 1;
        let entry = Entry { owner, version };
        let first = 0;
        let placed = EntryRange {
            group,
            first,
            end,
            entry,
        };
        let _ = map.apply(&placed).unwrap();
    }
    map
}

fn node(me: WorkerId, plan: &Plan, frame_bytes: usize) -> Worker {
    let options = NodeOptions {
        frame_bytes,
        // Pieces go straight to where they are gathered.
        combining: CombiningOptions {
            sources_min: u32::MAX,
            ..CombiningOptions::USUAL
        },
        ..options(me, [ME, PEER])
    };
    let open_turns = options.open_turns;
    Worker::new(Node::new(plan, map(plan), options), open_turns)
}

fn sent(node: &mut Worker, to: WorkerId) -> Vec<PieceBytes> {
    let sent = |effect| match effect {
        NodeEffect::Send {
            to: peer, packet, ..
        } if peer == to => Some(packet.to_bytes()),
        _ => None,
    };
    node.take_effects().into_iter().filter_map(sent).collect()
}

fn piece(source: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (source as usize + at) as u8).collect()
}

/// All sources of a reduction speak in one turn of a worker. Returns how many frames that makes, and their largest.
fn check(piece_bytes: usize, frame_bytes: usize) -> (usize, usize) {
    let plan = plan();
    let (mut here, mut there) = (node(ME, &plan, frame_bytes), node(PEER, &plan, frame_bytes));
    let ends = plan.exchanges[0].as_ref().unwrap();
    let (group, at) = (ends.source, (REDUCTION, 0));
    for index in 0..SHARDS {
        let shard = ShardId { group, index };
        here.settle(shard, 1).unwrap();
        let sent = PieceBytes::from(piece(index, piece_bytes));
        here.scattered(shard, at, [(0, SentPiece::Encoded(sent.into()))])
            .unwrap();
    }
    let destination = ShardId {
        group: ends.destination,
        index: 0,
    };
    there.settle(destination, 1).unwrap();
    here.flush();
    let frames = sent(&mut here, PEER);
    for frame in &frames {
        assert!(!there.around(destination).is_complete(REDUCTION, 0));
        there.on_frame(ME, frame).unwrap();
    }
    assert!(there.around(destination).is_complete(REDUCTION, 0));
    let taken = there.take(destination, at).unwrap().into_iter();
    let taken: Vec<_> = taken
        .map(|(source, piece)| (source, piece.to_vec()))
        .collect();
    let expected = (0..SHARDS).map(|source| (source, piece(source, piece_bytes)));
    assert_eq!(taken, expected.collect::<Vec<_>>());
    let largest = frames.iter().map(|frame| frame.len()).max();
    (frames.len(), largest.unwrap())
}

#[test]
fn a_turn_that_fits_one_frame_is_one() {
    assert_eq!(check(100, 1 << 20).0, 1);
}

#[test]
fn a_large_turn_is_several_frames() {
    let (frames, largest) = check(1_000, 10_000);
    assert!(frames >= 30, "{frames}");
    assert!(largest <= 11_000, "{largest}");
}

#[test]
fn a_piece_that_is_larger_than_a_frame_goes_alone() {
    let (frames, _) = check(1_000, 500);
    assert_eq!(frames, SHARDS as usize);
}

/// One frame of it would be larger than a frame may be.
#[test]
fn a_turn_larger_than_any_frame() {
    let (frames, largest) = check(250_000, 1 << 20);
    assert!(frames > 70, "{frames}");
    assert!(largest < 2 << 20, "{largest}");
}

#[test]
fn however_many_shards_finish_their_frames_stay_small() {
    let plan = plan();
    let mut node = node(ME, &plan, 1 << 20);
    let group = GroupId(0);
    // None is another's neighbour, so each is an entry.
    let all: BTreeSet<u32> = (0..100_000).map(|shard| 2 * shard).collect();
    for &index in &all {
        node.finished(ShardId { group, index });
    }
    node.flush();
    let frames = sent(&mut node, WorkerId::CONTROLLER);
    assert!(frames.len() > 10, "{}", frames.len());
    let mut told = BTreeSet::new();
    for frame in &frames {
        assert!(frame.len() < 1 << 17, "{}", frame.len());
        let Body::Finished(finished) = Frame::decode(frame).unwrap().0.body else {
            panic!("something else");
        };
        for range in finished.shards {
            told.extend(range.first..range.end);
        }
    }
    assert_eq!(told, all);
}
