//! Room for pieces in inboxes: what counts for how long and as what, and where goes what finds none.
//!
//! Catches pieces that are not counted, counted twice or for ever, a lowest open turn that later ones keep out, and pieces that
//! come back otherwise than they went. It does not look at directories: the tests of `storage` do.

mod support;

use brambling_exchange::RouterError;
use brambling_memory::{Budget, Class, Floors, Spill, SpillError};
use brambling_program::tree::TreeNode;
use brambling_program::{Bindings, ExchangeId, Max, Plan, Program, ShardId, Turn, Value};
use brambling_protocol::frame::{Body, Data, DataHead, Frame, Reserve, VersionRange};
use brambling_protocol::{Priority, Version, WorkerId};
use brambling_worker::node::{NodeEffect, NodeError, NodeOptions};
use brambling_worker::piece_data::PieceBytes;
use std::ops::Range;
use std::sync::Arc;
use support::executor::SentPiece;
use support::shelf::Shelf;
use support::{JOB, ME, NOW, PEER, Worker, one, options};

const SHARDS: u32 = 4;
/// All sources send to one destination, which then sends to all of them.
const REDUCTION: ExchangeId = ExchangeId(0);
const BROADCAST: ExchangeId = ExchangeId(1);
const PIECE_BYTES: u64 = 100;

struct Fixture {
    plan: Plan,
    node: Worker,
    budget: Budget,
}

impl Fixture {
    /// A node that holds all shards, with so much for the exchange alone and for everything.
    fn new(exchange_bytes: u64, budget_bytes: u64, shelf: Option<&Arc<Shelf>>) -> Fixture {
        let mut it = Fixture::empty(ME, exchange_bytes, budget_bytes, shelf);
        it.settles_all();
        it
    }

    fn settles_all(&mut self) {
        for shard in shards(&self.plan) {
            self.node.settle(shard, 1).unwrap();
        }
    }

    /// The same of a worker that holds none.
    fn empty(
        me: WorkerId,
        exchange_bytes: u64,
        budget_bytes: u64,
        shelf: Option<&Arc<Shelf>>,
    ) -> Fixture {
        let mut p = Program::new("reduce");
        let counts = p.dataset::<u64>("counts", SHARDS);
        p.repeat(5, |p| p.all_reduce(Max, &counts, &counts));
        let plan = Plan::compile(Arc::new(p), &Bindings::default()).unwrap();
        let floors = Floors {
            exchange_bytes,
            ..Floors::default()
        };
        let budget = Budget::new(budget_bytes, floors);
        let options = NodeOptions {
            budget: budget.clone(),
            spill: shelf.map(|shelf| shelf.clone() as Arc<dyn Spill>),
            ..options(me, [ME, PEER])
        };
        let node = support::worker(&plan, options);
        Fixture { plan, node, budget }
    }

    fn source(&self, exchange: ExchangeId, index: u32) -> ShardId {
        support::source(&self.plan, exchange, index)
    }

    fn destination(&self, exchange: ExchangeId, index: u32) -> ShardId {
        support::destination(&self.plan, exchange, index)
    }

    /// A source speaks at the reduction.
    fn reduces(&mut self, source: u32, turn: Turn) -> Result<(), NodeError> {
        let piece = SentPiece::Encoded(payload(source, turn).into());
        let shard = self.source(REDUCTION, source);
        (self.node).scattered(shard, (REDUCTION, turn), [(0, piece)])
    }

    /// All of them do, at a turn.
    fn all_reduce(&mut self, turn: Turn) -> Result<(), NodeError> {
        (0..SHARDS).try_for_each(|source| self.reduces(source, turn))
    }

    /// A peer sends a piece for some destinations by this version of theirs.
    fn comes(
        &mut self,
        exchange: ExchangeId,
        destinations: Range<u32>,
        version: Version,
        payload: &[u8],
    ) -> Result<(), NodeError> {
        let ends = self.plan.exchanges[exchange.index()].as_ref().unwrap();
        let Range { start: first, end } = destinations;
        let body = Body::Data(Data {
            head: DataHead {
                job: JOB,
                generation: NOW,
                exchange,
                turn: 0,
                group: ends.destination,
            },
            versions: vec![VersionRange {
                first,
                end,
                version,
            }],
            pieces: vec![brambling_protocol::frame::Piece {
                first,
                end,
                source: TreeNode::leaf(0),
                chunk: 0,
                last: true,
                payload,
            }],
            empties: Vec::new(),
            routes: Vec::new(),
        });
        let frame = Frame {
            priority: Priority::FIRST,
            sequence: None,
            body,
        };
        self.node.on_frame(PEER, &frame.to_bytes())
    }

    /// The map gives a shard to a worker.
    fn moves(
        &mut self,
        shard: ShardId,
        owner: WorkerId,
        version: Version,
    ) -> Result<(), NodeError> {
        self.node.on_update(&one(shard, owner, version))
    }

    /// The destination merges a turn of the reduction.
    fn merges(&mut self, turn: Turn) -> Result<(), NodeError> {
        let shard = self.destination(REDUCTION, 0);
        let taken = self.node.take(shard, (REDUCTION, turn))?;
        let taken: Vec<_> = (taken.into_iter())
            .map(|(source, piece)| (source, piece.to_vec()))
            .collect();
        let sent = (0..SHARDS).map(|source| (source, payload(source, turn).to_vec()));
        assert_eq!(taken, sent.collect::<Vec<_>>());
        self.node.gathered(shard, (REDUCTION, turn))
    }

    fn counted(&self) -> (u64, u64) {
        let of = |class| self.budget.class_in_use_bytes(class);
        (of(Class::Exchange), of(Class::Early))
    }
}

fn shards(plan: &Plan) -> Vec<ShardId> {
    let shards = (0..).zip(&plan.counts).flat_map(|(group, &count)| {
        let group = brambling_program::GroupId(group);
        (0..count).map(move |index| ShardId { group, index })
    });
    shards.collect()
}

fn payload(source: u32, turn: Turn) -> PieceBytes {
    let byte = |at| (source as u64 * 50 + turn * 7 + at) as u8;
    (0..PIECE_BYTES).map(byte).collect()
}

#[test]
fn pieces_count_from_their_arrival_until_they_are_merged() {
    let mut it = Fixture::new(10_000, 20_000, None);
    it.reduces(0, 0).unwrap();
    assert_eq!(it.counted(), (PIECE_BYTES, 0));
    // A turn that is not the lowest open one is early until it is.
    it.all_reduce(1).unwrap();
    assert_eq!(it.counted(), (PIECE_BYTES, 4 * PIECE_BYTES));
    (1..SHARDS).for_each(|source| it.reduces(source, 0).unwrap());
    assert_eq!(it.counted(), (4 * PIECE_BYTES, 4 * PIECE_BYTES));
    let shard = it.destination(REDUCTION, 0);
    let taken = it.node.take(shard, (REDUCTION, 0)).unwrap();
    drop(taken);
    let merging = (4 * PIECE_BYTES, 4 * PIECE_BYTES);
    assert_eq!(it.counted(), merging, "while its gather runs");
    it.node.gathered(shard, (REDUCTION, 0)).unwrap();
    assert_eq!(it.counted(), (4 * PIECE_BYTES, 0));
    it.merges(1).unwrap();
    assert_eq!(it.counted(), (0, 0));
}

#[test]
fn what_a_node_keeps_is_given_back_when_it_ends() {
    let mut it = Fixture::new(10_000, 20_000, None);
    it.all_reduce(0).unwrap();
    it.all_reduce(1).unwrap();
    drop(it.node);
    assert_eq!(it.budget.in_use_bytes(), 0);
}

#[test]
fn a_broadcast_counts_once() {
    let mut it = Fixture::new(10_000, 20_000, None);
    let shard = it.source(BROADCAST, 0);
    let piece = payload(0, 0);
    let to_all = (0..SHARDS).map(|to| (to, SentPiece::Encoded(piece.clone().into())));
    let to_all: Vec<_> = to_all.collect();
    it.node.scattered(shard, (BROADCAST, 0), to_all).unwrap();
    for index in 0..SHARDS {
        assert_eq!(
            it.counted(),
            (PIECE_BYTES, 0),
            "until the last has merged it"
        );
        let shard = it.destination(BROADCAST, index);
        let taken = it.node.take(shard, (BROADCAST, 0)).unwrap();
        assert_eq!(taken[0].1.to_vec(), piece);
        it.node.gathered(shard, (BROADCAST, 0)).unwrap();
    }
    assert_eq!(it.counted(), (0, 0));
}

/// Invariant 12: however many pieces of later turns have come, those of the lowest open one have their room.
#[test]
fn early_pieces_that_find_no_room_are_spilled() {
    let shelf = Shelf::new(usize::MAX);
    let mut it = Fixture::new(4 * PIECE_BYTES, 6 * PIECE_BYTES, Some(&shelf));
    for turn in [3, 1, 2] {
        it.all_reduce(turn).unwrap();
    }
    assert_eq!(it.counted(), (0, 2 * PIECE_BYTES), "as much as is there");
    assert_eq!(shelf.spills(), 10);
    let trigger = shelf.triggers.lock().unwrap()[0];
    assert_eq!(
        (trigger.class, trigger.asked_bytes),
        (Class::Early, PIECE_BYTES)
    );
    it.all_reduce(0).unwrap();
    assert_eq!(shelf.spills(), 10, "the floor is there");
    for turn in 0..4 {
        it.merges(turn).unwrap();
    }
    assert_eq!(it.counted(), (0, 0));
}

/// A value that never was bytes comes back as it was.
#[test]
fn values_are_spilled_as_well() {
    let shelf = Shelf::new(usize::MAX);
    let mut it = Fixture::new(10_000, 10_000, Some(&shelf));
    let shard = it.source(REDUCTION, 2);
    let number = 0x0123_4567_89AB_CDEF_u64;
    let piece = SentPiece::Value(Value::new(number));
    (it.node)
        .scattered(shard, (REDUCTION, 1), [(0, piece)])
        .unwrap();
    assert_eq!(shelf.spills(), 1);
    it.all_reduce(0).unwrap();
    it.merges(0).unwrap();
    for source in [0, 1, 3] {
        it.reduces(source, 1).unwrap();
    }
    let to = it.destination(REDUCTION, 0);
    let taken = it.node.take(to, (REDUCTION, 1)).unwrap();
    assert_eq!(taken[2].1.to_vec(), number.to_le_bytes());
}

/// What fits the floor by itself begins, though others have filled it: theirs is spilled.
#[test]
fn a_gather_begins_if_its_own_turn_fits() {
    let shelf = Shelf::new(usize::MAX);
    let all = 4 * PIECE_BYTES;
    let mut it = Fixture::new(all, all, Some(&shelf));
    let shard = it.source(BROADCAST, 0);
    let to_each = (0..SHARDS).map(|to| (to, SentPiece::Encoded(payload(to, 0).into())));
    let to_each: Vec<_> = to_each.collect();
    it.node.scattered(shard, (BROADCAST, 0), to_each).unwrap();
    assert_eq!((it.counted(), shelf.spills()), ((all, 0), 0));
    it.all_reduce(0).unwrap();
    assert_eq!((it.counted(), shelf.spills()), ((all, 0), 4));
    it.merges(0).unwrap();
    assert_eq!((it.counted(), shelf.spills()), ((0, 0), 8));
    for index in 0..SHARDS {
        let shard = it.destination(BROADCAST, index);
        let taken = it.node.take(shard, (BROADCAST, 0)).unwrap();
        assert_eq!(taken[0].1.to_vec(), payload(index, 0));
        it.node.gathered(shard, (BROADCAST, 0)).unwrap();
    }
}

#[test]
fn pieces_without_bytes_stay_where_they_are() {
    let shelf = Shelf::new(usize::MAX);
    let all = 4 * PIECE_BYTES;
    let mut it = Fixture::new(all, all, Some(&shelf));
    let shard = it.source(BROADCAST, 0);
    let bytes_to = |to| match to {
        0 => PieceBytes::new(),
        to => payload(to, 0),
    };
    let to_each = (0..SHARDS).map(|to| (to, SentPiece::Encoded(bytes_to(to).into())));
    let to_each: Vec<_> = to_each.collect();
    it.node.scattered(shard, (BROADCAST, 0), to_each).unwrap();
    it.all_reduce(0).unwrap();
    it.merges(0).unwrap();
    assert_eq!(shelf.spills(), 3 + 3, "of each exchange");
    for index in 0..SHARDS {
        let shard = it.destination(BROADCAST, index);
        let taken = it.node.take(shard, (BROADCAST, 0)).unwrap();
        assert_eq!(taken[0].1.to_vec(), bytes_to(index));
    }
}

#[test]
fn a_turn_that_does_not_fit_is_an_error() {
    let shelf = Shelf::new(usize::MAX);
    let mut it = Fixture::new(399, 399, Some(&shelf));
    it.all_reduce(0).unwrap();
    let Err(NodeError::Router(RouterError::NoRoom(refused))) = it.merges(0) else {
        panic!("it was merged");
    };
    assert_eq!(
        (refused.exchange, refused.turn, refused.spill),
        (REDUCTION, 0, None)
    );
}

#[test]
fn where_nothing_is_spilled_the_error_says_how_it_would_be() {
    for (shelf, said) in [
        (None, "BRAMBLING_SPILL"),
        (Some(Shelf::new(2)), "the shelf has no room"),
    ] {
        let mut it = Fixture::new(1_000, 1_000, shelf.as_ref());
        it.all_reduce(0).unwrap();
        let refused = it.all_reduce(1).unwrap_err();
        let NodeError::Router(RouterError::NoRoom(refused)) = refused else {
            panic!("{refused}");
        };
        assert_eq!((refused.exchange, refused.turn), (REDUCTION, 1));
        let spill = refused.spill.unwrap().to_string();
        assert!(spill.contains(said), "{spill}");
    }
}

/// A shard takes along what was spilled, and it counts where it comes.
#[test]
fn what_was_spilled_moves_with_its_shard() {
    let shelf = Shelf::new(usize::MAX);
    let mut it = Fixture::new(1_000, 1_000, Some(&shelf));
    it.all_reduce(1).unwrap();
    it.all_reduce(0).unwrap();
    let shard = it.destination(REDUCTION, 0);
    it.moves(shard, PEER, 2).unwrap();
    it.node.take_effects();
    it.node.depart(shard, b"its data").unwrap();
    assert_eq!(it.counted(), (0, 0), "nothing of it is here");
    let sent = it.node.take_effects().into_iter();
    let bytes = sent.map(|effect| match effect {
        NodeEffect::Send { packet, .. } => packet.to_bytes().len() as u64,
        _ => 0,
    });
    assert!(bytes.sum::<u64>() > 8 * PIECE_BYTES);
}

/// Four pieces lie where three are to go: one stays in memory.
#[test]
fn no_more_is_spilled_for_a_gather_than_it_needs() {
    let shelf = Shelf::new(usize::MAX);
    let all = 5 * PIECE_BYTES;
    let mut it = Fixture::new(all, all, Some(&shelf));
    let shard = it.source(BROADCAST, 0);
    let to_each = (0..SHARDS).map(|to| (to, SentPiece::Encoded(payload(to, 0).into())));
    let to_each: Vec<_> = to_each.collect();
    it.node.scattered(shard, (BROADCAST, 0), to_each).unwrap();
    it.all_reduce(0).unwrap();
    assert_eq!((it.counted(), shelf.spills()), ((all, 0), 3));
    it.merges(0).unwrap();
    assert_eq!((it.counted(), shelf.spills()), ((PIECE_BYTES, 0), 3 + 3));
    for index in 0..SHARDS {
        let shard = it.destination(BROADCAST, index);
        let taken = it.node.take(shard, (BROADCAST, 0)).unwrap();
        assert_eq!(taken[0].1.to_vec(), payload(index, 0));
        it.node.gathered(shard, (BROADCAST, 0)).unwrap();
    }
}

/// It counts once, and lies in one place: it is written once, and each of them reads it.
#[test]
fn a_broadcast_is_spilled_once_for_all_who_share_it() {
    let shelf = Shelf::new(usize::MAX);
    let all = 4 * PIECE_BYTES;
    let mut it = Fixture::new(all, all, Some(&shelf));
    let shard = it.source(BROADCAST, 0);
    let piece = payload(0, 0);
    let to_all = (0..SHARDS).map(|to| (to, SentPiece::Encoded(piece.clone().into())));
    let to_all: Vec<_> = to_all.collect();
    it.node.scattered(shard, (BROADCAST, 0), to_all).unwrap();
    it.all_reduce(0).unwrap();
    assert_eq!((it.counted(), shelf.spills()), ((all, 0), 1));
    it.merges(0).unwrap();
    assert_eq!((it.counted(), shelf.spills()), ((0, 0), 1 + 1));
    for index in 0..SHARDS {
        let shard = it.destination(BROADCAST, index);
        let taken = it.node.take(shard, (BROADCAST, 0)).unwrap();
        assert_eq!(taken[0].1.to_vec(), piece);
        it.node.gathered(shard, (BROADCAST, 0)).unwrap();
    }
}

/// Whoever needs what a disk has lost hears it: a gather, a shard that moves, and a piece that is sent on.
#[test]
fn what_cannot_be_read_back_is_an_error_for_who_needs_it() {
    let is_spilled = |outcome: Result<(), NodeError>| match outcome {
        Err(NodeError::Spilled(SpillError::Damaged { .. })) => {}
        other => panic!("{other:?}"),
    };
    let mut gathers = Fixture::new(2_000, 2_000, Some(&Shelf::broken()));
    gathers.all_reduce(1).unwrap();
    gathers.all_reduce(0).unwrap();
    gathers.merges(0).unwrap();
    is_spilled(gathers.merges(1));

    let mut departs = Fixture::new(2_000, 2_000, Some(&Shelf::broken()));
    departs.all_reduce(1).unwrap();
    let shard = departs.destination(REDUCTION, 0);
    departs.moves(shard, PEER, 2).unwrap();
    is_spilled(departs.node.depart(shard, &[]));

    // It waits for a shard that a newer version gives to this worker, and then to another.
    let shelf = Shelf::broken();
    let mut held = Fixture::new(9_000, 9_700, Some(&shelf));
    let shard = held.destination(BROADCAST, 1);
    held.moves(shard, PEER, 2).unwrap();
    held.node.depart(shard, &[]).unwrap();
    held.comes(BROADCAST, 1..2, 3, &[7; 1_000]).unwrap();
    assert_eq!((held.node.held(), shelf.spills()), (1, 1));
    is_spilled(held.moves(shard, PEER, 4));
}

/// Where the disk is full, what finds no room is refused, whatever it is.
#[test]
fn a_full_shelf_refuses_every_kind_of_piece() {
    let is_full = |outcome: Result<(), NodeError>| match outcome {
        Err(NodeError::Router(RouterError::NoRoom(refused))) => {
            let full = refused.spill.map(|spill| *spill);
            assert!(matches!(full, Some(SpillError::Full { .. })), "{full:?}");
        }
        other => panic!("{other:?}"),
    };
    let fixture = || Fixture::new(50, 50, Some(&Shelf::new(0)));
    is_full(fixture().reduces(0, 0));
    is_full(fixture().comes(BROADCAST, 0..SHARDS, 1, &[7; 60]));
    let mut value = Fixture::new(0, 7, Some(&Shelf::new(0)));
    let (shard, piece) = (
        value.source(REDUCTION, 2),
        SentPiece::Value(Value::new(5u64)),
    );
    is_full((value.node).scattered(shard, (REDUCTION, 0), [(0, piece)]));
    // What others wait for cannot make way either.
    let all = 4 * PIECE_BYTES;
    let mut gather = Fixture::new(all, all, Some(&Shelf::new(4)));
    let shard = gather.source(BROADCAST, 0);
    let to_each = (0..SHARDS).map(|to| (to, SentPiece::Encoded(payload(to, 0).into())));
    let to_each: Vec<_> = to_each.collect();
    (gather.node)
        .scattered(shard, (BROADCAST, 0), to_each)
        .unwrap();
    gather.all_reduce(0).unwrap();
    let refused = gather.merges(0);
    assert!(
        matches!(refused, Err(NodeError::Spilled(SpillError::Full { .. }))),
        "{refused:?}"
    );
}

/// Room was made for the shard; nobody else gets it before what waits for the shard counts for itself.
#[test]
fn a_shard_that_has_come_keeps_its_room_until_its_pieces_count() {
    let mut from = Fixture::empty(PEER, 10_000, 10_000, None);
    from.settles_all();
    from.all_reduce(0).unwrap();
    let shard = from.destination(REDUCTION, 0);
    from.moves(shard, ME, 2).unwrap();
    from.node.take_effects();
    from.node.depart(shard, b"its data").unwrap();
    let parts = from.node.take_effects().into_iter();
    let parts = parts.filter_map(|effect| match effect {
        NodeEffect::Send { packet, .. } => Some(packet.to_bytes()),
        _ => None,
    });
    let parts: Vec<PieceBytes> = parts.collect();
    let mut to = Fixture::empty(ME, 0, 1_200, None);
    let frame = Frame {
        priority: Priority::FIRST,
        sequence: Some(0),
        body: Body::Reserve(Reserve {
            job: JOB,
            generation: NOW,
            shard,
            version: 2,
            holder: PEER,
            bytes: 700,
        }),
    };
    let asked = to.node.on_frame(WorkerId::CONTROLLER, &frame.to_bytes());
    asked.unwrap();
    let come = |part| to.node.node().on_frame(PEER, part);
    parts.iter().try_for_each(come).unwrap();
    let (budget, pieces_bytes) = (to.budget.clone(), 4 * PIECE_BYTES);
    let room_bytes = budget.class_in_use_bytes(Class::Transfer);
    assert!((pieces_bytes..700).contains(&room_bytes), "{room_bytes}");
    let left = 1_200 - room_bytes;
    assert!(budget.reserve(Class::Resident, left + 1).is_err());
    let others = budget.reserve(Class::Resident, left).unwrap();
    to.node.carry_out().unwrap();
    drop(others);
    drop(to.node.take_effects());
    assert_eq!(budget.in_use_bytes(), pieces_bytes);
}
