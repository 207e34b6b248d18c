//! What has come for a shard, and what of it goes along when it moves.
//!
//! Catches sources that were heard here and are waited for there. What counts while it waits, the tests of `pieces` and of nodes check.

use super::*;
use brambling_exchange::Sources;
use brambling_memory::{Budget, Class, Floors, OutOfMemory, Spill, Spilled};
use brambling_program::Value;
use brambling_program::tree::TreeNode;

const AT: ExchangeTurn = (ExchangeId(0), 0);
const SHARD: ShardId = ShardId {
    group: GroupId(0),
    index: 3,
};

fn waits() -> WaitingRoom {
    WaitingRoom::new(Budget::unlimited(), None)
}

fn fresh() -> Arrivals {
    Arrivals::new(SHARD, [AT.0], 2)
}

fn comes(
    arrivals: &mut Arrivals,
    at: ExchangeTurn,
    source: u32,
    relation: &impl SourceRelation,
) -> Acceptance {
    let kept = WaitingPiece::uncounted(PieceData::Value(Value::new(u64::from(source))));
    let item = Item::whole(TreeNode::leaf(source.into()), kept);
    arrivals.accept(Delivery { at, item }, relation).unwrap()
}

fn travels(arrivals: Arrivals, relation: &impl SourceRelation) -> Arrivals {
    let budget = Budget::unlimited();
    let mut packing = Packing::new(&budget, 100);
    let state = arrivals.pack(&mut packing).unwrap();
    let parts = packing.finish(&state);
    let room = budget.reserve(Class::Transfer, 1_000).unwrap();
    let mut from = Unpacking::new(parts, room);
    let state = from.header().unwrap();
    Arrivals::unpack(SHARD, [AT.0], 2, state, &mut from, relation, &waits()).unwrap()
}

fn sources(arrivals: &mut Arrivals, relation: &impl SourceRelation) -> Vec<u32> {
    let pieces = arrivals.take(AT, relation, &waits()).unwrap();
    pieces.into_iter().map(|(source, _)| source).collect()
}

/// A piece that leaves with its shard counts until it was acknowledged, and takes nothing of what the exchange has for shards that stay.
fn what_leaves_counts_as_a_transfer() {
    const BYTES: usize = 10_000;
    let floors = Floors {
        exchange_bytes: BYTES as u64,
        transfer_bytes: BYTES as u64 + 1_000,
        ..Floors::default()
    };
    let budget = Budget::new(floors.sum_bytes(), floors);
    for spill in [None, Some(Arc::new(Full) as Arc<dyn Spill>)] {
        let waits = WaitingRoom::new(budget.clone(), spill);
        let mut here = fresh();
        let cargo = PieceData::Bytes(vec![7; BYTES].into());
        let mut kept = waits.admit(AT, SHARD, 1, 0, cargo).unwrap();
        let item = Item::whole(TreeNode::leaf(1), kept.next().unwrap());
        let sources = Sources::Dense(2);
        here.accept(Delivery { at: AT, item }, &sources).unwrap();
        let counted = || [Class::Exchange, Class::Transfer].map(|it| budget.class_in_use_bytes(it));
        assert_eq!(counted(), [BYTES as u64, 0]);
        let mut packing = Packing::new(&budget, 100);
        let state = here.pack(&mut packing).unwrap();
        let parts = packing.finish(&state);
        let [staying, leaving] = counted();
        assert!(
            staying == 0 && leaving >= BYTES as u64,
            "{staying} {leaving}"
        );
        drop(parts);
        assert_eq!(counted(), [0, 0]);
    }
}

/// Where nothing can be spilled to, though it is a place.
#[derive(Debug)]
struct Full;

impl Spill for Full {
    fn put(&self, _: &[&[u8]], _: &OutOfMemory) -> Result<Arc<dyn Spilled>, SpillError> {
        Err(SpillError::Nowhere)
    }
}

#[test]
fn what_leaves_takes_nothing_of_the_exchange() {
    what_leaves_counts_as_a_transfer();
}

#[cfg(feature = "mutants")]
#[test]
fn mutant_of_what_leaves_is_caught() {
    mutants::assert_caught(
        "who-leaves-keeps-the-floor",
        what_leaves_counts_as_a_transfer,
    );
}

/// Of sources that say by stamp that they have ended, and that sent nothing, nobody hears again where the shard is then.
#[test]
fn what_has_ended_goes_along() {
    let few = [1, 4, 6, 7, 90];
    for relation in [Sources::Dense(5), Sources::Sparse(&few)] {
        let leaf = |place: u32| match relation {
            Sources::Sparse(few) => few[place as usize],
            _ => place,
        };
        let mut here = fresh();
        comes(&mut here, AT, leaf(1), &relation);
        here.ended(AT, [0, 1, 2, 4], &relation);
        assert!(!here.is_complete(AT, &relation));
        let mut there = travels(here, &relation);
        assert!(!there.is_complete(AT, &relation));
        // What is under way to where it was comes again from where it is sent on to.
        assert_eq!(
            comes(&mut there, AT, leaf(1), &relation),
            Acceptance::Repeated
        );
        assert_eq!(
            comes(&mut there, AT, leaf(3), &relation),
            Acceptance::Complete
        );
        assert_eq!(sources(&mut there, &relation), [leaf(1), leaf(3)]);
    }
}

/// Though nothing else of the turn has come.
#[test]
fn a_turn_in_which_all_have_ended_goes_along() {
    let relation = Sources::Dense(70);
    let mut here = fresh();
    here.ended(AT, 0..70, &relation);
    let mut there = travels(here, &relation);
    assert!(there.is_complete(AT, &relation));
    assert_eq!(sources(&mut there, &relation), [0; 0]);
}
