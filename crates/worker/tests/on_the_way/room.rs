//! Pieces that wait to be merged count, and are spilled, as those that wait for a gather do.

use crate::cluster::{Cluster, in_pairs, piece};
use crate::support::shelf::Shelf;
use crate::words::{
    BROADCAST, REDUCTION, encoding, expected, gathers, node, reduces, reduction_and_broadcast, say,
    word,
};
use brambling_exchange::RouterError;
use brambling_memory::{Budget, Class, Floors, Spill};
use brambling_program::Turn;
use brambling_protocol::WorkerId;
use brambling_worker::node::{NodeError, NodeOptions};
use brambling_worker::piece_data::PieceBytes;
use std::sync::Arc;

/// Whose room is looked at; the destination of the reduction is elsewhere.
const HERE: u32 = 0;
const ELSEWHERE: u32 = 1;

/// What a source's piece takes.
fn piece_bytes() -> u64 {
    encoding(0, word(0, 0)).len() as u64
}

fn with_room(
    exchange_bytes: u64,
    budget_bytes: u64,
    shelf: Option<&Arc<Shelf>>,
) -> (Budget, impl Fn(&mut NodeOptions)) {
    let floors = Floors {
        exchange_bytes,
        ..Floors::default()
    };
    let budget = Budget::new(budget_bytes, floors);
    let shelf = shelf.cloned();
    let here = budget.clone();
    let change = move |options: &mut NodeOptions| {
        in_pairs(options);
        if options.me == WorkerId(HERE) {
            options.budget = here.clone();
            options.spill = shelf.clone().map(|shelf| shelf as Arc<dyn Spill>);
        }
    };
    (budget, change)
}

fn counted(budget: &Budget) -> (u64, u64) {
    let of = |class| budget.class_in_use_bytes(class);
    (of(Class::Exchange), of(Class::Early))
}

/// Sources that are all here say their words; what is complete is merged later.
fn four(change: impl Fn(&mut NodeOptions)) -> Cluster {
    let mut it = reduces(3, &[HERE; 4], ELSEWHERE, change);
    it.is_merged_later = true;
    it
}

/// All sources that have not said anything yet do, and the turn is gathered.
fn ends(it: &mut Cluster, sources: impl IntoIterator<Item = u32>, turn: Turn) {
    it.is_merged_later = false;
    say(it, sources, turn);
    it.carry();
    assert_eq!(gathers(it, turn), (vec![0, 2], expected(0..4, turn)));
}

/// They count in the exchange's class, in any turn where nothing can be spilled: which is the lowest open one is heard late.
#[test]
fn pieces_that_wait_at_a_relay_count_until_they_are_merged() {
    let (budget, change) = with_room(10_000, 20_000, None);
    let mut it = four(change);
    let one = piece_bytes();
    say(&mut it, [1], 0);
    assert_eq!(counted(&budget), (one, 0));
    say(&mut it, [3], 1);
    assert_eq!(counted(&budget), (2 * one, 0));
    say(&mut it, [0], 0);
    it.carry();
    assert_eq!(counted(&budget), (3 * one, 0), "complete");
    let (at, pair) = ((REDUCTION, 0), node(1, 0));
    assert_eq!(it.complete, [(HERE, at, pair)]);
    it.complete.clear();
    let merged = it.takes(HERE, at, pair);
    assert_eq!(counted(&budget), (3 * one, 0), "while they are merged");
    it.combined(HERE, at, pair, merged);
    assert_eq!(counted(&budget), (one, 0));
    ends(&mut it, [2, 3], 0);
    ends(&mut it, [0, 1, 2], 1);
    assert_eq!(counted(&budget), (0, 0));
}

/// A relay that leaves sends them on.
#[test]
fn pieces_count_no_more_where_a_relay_was() {
    let (budget, change) = with_room(10_000, 20_000, None);
    let mut it = four(change);
    say(&mut it, [1], 0);
    say(&mut it, [1], 1);
    assert_eq!(counted(&budget), (2 * piece_bytes(), 0));
    it.departs(it.source(REDUCTION, 0), 2, 2);
    assert_eq!(counted(&budget), (0, 0));
}

/// Those of later turns leave the floor to the lowest open one, and are read back when they are merged.
#[test]
fn pieces_that_find_no_room_at_a_relay_are_spilled() {
    let shelf = Shelf::new(usize::MAX);
    let one = piece_bytes();
    let (budget, change) = with_room(4 * one, 4 * one, Some(&shelf));
    let mut it = four(change);
    say(&mut it, 0..2, 1);
    assert_eq!(counted(&budget), (0, 0));
    assert_eq!(shelf.spills(), 2);
    it.collect();
    it.complete.clear();
    let (at, pair) = ((REDUCTION, 1), node(1, 0));
    let merged = it.takes(HERE, at, pair);
    assert_eq!(counted(&budget), (2 * one, 0), "read back");
    it.combined(HERE, at, pair, merged);
    assert_eq!(counted(&budget), (0, 0));
    ends(&mut it, 0..4, 0);
    ends(&mut it, 2..4, 1);
    assert_eq!(counted(&budget), (0, 0));
}

/// What was spilled goes on as it was, past a relay that leaves.
#[test]
fn spilled_pieces_are_read_back_when_a_relay_leaves() {
    let shelf = Shelf::new(usize::MAX);
    let one = piece_bytes();
    let (budget, change) = with_room(4 * one, 4 * one, Some(&shelf));
    let mut it = four(change);
    say(&mut it, [1], 1);
    assert_eq!(shelf.spills(), 1);
    it.departs(it.source(REDUCTION, 0), 2, 2);
    it.is_merged_later = false;
    say(&mut it, 0..4, 0);
    say(&mut it, [0, 2, 3], 1);
    it.carry();
    for turn in [0, 1] {
        assert_eq!(
            gathers(&mut it, turn),
            (vec![0, 1, 2], expected(0..4, turn))
        );
    }
    assert_eq!(counted(&budget), (0, 0));
}

#[test]
fn a_piece_for_which_there_is_no_room_at_a_relay_is_refused() {
    let (_, change) = with_room(piece_bytes(), piece_bytes(), None);
    let mut it = four(change);
    say(&mut it, [1], 0);
    let shard = it.source(REDUCTION, 0);
    let pieces = [(0, piece(&encoding(0, word(0, 0))))];
    let refused = it.home(shard).scattered(shard, (REDUCTION, 0), pieces);
    let Err(NodeError::Router(RouterError::NoRoom(refused))) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((refused.exchange, refused.shard), (REDUCTION, shard));
}

/// Sources and the destinations of a broadcast, all here, with room for four pieces.
fn with_broadcast(shelf: &Arc<Shelf>) -> (Cluster, u64) {
    let room = 4 * piece_bytes();
    let (_, change) = with_room(room, room, Some(shelf));
    let mut it = Cluster::new(reduction_and_broadcast(4), 2, change);
    it.places_all(REDUCTION, &[HERE; 4], &[HERE]);
    it.is_merged_later = true;
    (it, room)
}

/// Invariant 12: whatever others have, a gather begins if its own turn fits the floor.
#[test]
fn what_waits_at_a_relay_makes_way_for_a_gather() {
    let shelf = Shelf::new(usize::MAX);
    let (mut it, room) = with_broadcast(&shelf);
    say(&mut it, [1], 0);
    let large: PieceBytes = vec![7; room as usize].into();
    let source = it.source(BROADCAST, 0);
    let all: Vec<_> = (0..4).map(|to| (to, piece(&large))).collect();
    let home = it.home(source);
    home.scattered(source, (BROADCAST, 0), all).unwrap();
    let shard = it.destination(BROADCAST, 3);
    let taken = it.home(shard).take(shard, (BROADCAST, 0));
    assert_eq!(taken.unwrap()[0].1.to_vec(), large);
}

/// And so does a group: what waits for a gather of its relay makes way for it.
#[test]
fn what_waits_for_a_relays_own_gather_makes_way_for_its_group() {
    let shelf = Shelf::new(usize::MAX);
    let (mut it, room) = with_broadcast(&shelf);
    say(&mut it, 0..2, 1);
    assert_eq!(shelf.spills(), 2);
    let bytes = |to: u32| vec![7; if to == 0 { room as usize } else { 0 }];
    let source = it.source(BROADCAST, 0);
    let each = (0..4).map(|to| (to, piece(&bytes(to).into())));
    let each: Vec<_> = each.collect();
    let home = it.home(source);
    home.scattered(source, (BROADCAST, 0), each).unwrap();
    let at = (REDUCTION, 1);
    let taken = it.nodes[HERE as usize].take_group(at, node(1, 0));
    assert_eq!(taken.unwrap().0.len(), 2);
}
