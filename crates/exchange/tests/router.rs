//! One arrival, one decision: the rules of the router, line by line; and room for what it holds.

use brambling_exchange::*;
use brambling_memory::{Budget, Class, Floors, OutOfMemory, Spill, SpillError, Spilled};
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, GroupId, ShardId};
use brambling_protocol::{Applied, Entry, EntryRange, Generation, PartitionMap, WorkerId};
use std::sync::Arc;

const G: GroupId = GroupId(0);
const ME: WorkerId = WorkerId(1);
const OTHER: WorkerId = WorkerId(2);
const SENDER: WorkerId = WorkerId(9);
const NOW: Generation = Generation(5);

fn shard(index: u32) -> ShardId {
    ShardId { group: G, index }
}

fn entry(first: u32, end: u32, owner: WorkerId, version: u64) -> EntryRange {
    EntryRange {
        group: G,
        first,
        end,
        entry: Entry { owner, version },
    }
}

fn parcel(turn: u64, destinations: std::ops::Range<u32>, version: u64) -> Parcel<Vec<u8>> {
    let item = Item::whole(TreeNode::leaf(turn), vec![1; 10]);
    Parcel::new((ExchangeId(0), turn, G), destinations, version, item)
}

fn router(budget: Budget) -> Router<Vec<u8>> {
    let mut map = PartitionMap::new([4]);
    // 0 and 1 are mine at version 3; 2 is another's at 3; 3 has not been placed.
    assert_eq!(map.apply(&entry(0, 2, ME, 3)), Ok(Applied::Newer));
    assert_eq!(map.apply(&entry(2, 3, OTHER, 3)), Ok(Applied::Newer));
    let mut router = Router::new(ME, NOW, map, PieceRoom::new(budget, None));
    router.arrive(shard(0), &mut Vec::new());
    router
}

/// Says what the effects are, one line each.
fn told(effects: Vec<RouterEffect<Vec<u8>>>) -> Vec<String> {
    let line = |effect| match effect {
        RouterEffect::Deliver(parcel) => format!("deliver to {:?}", parcel.destinations),
        RouterEffect::Forward { to, parcel } => {
            format!(
                "forward {:?} to {to} at {}",
                parcel.destinations, parcel.version
            )
        }
        RouterEffect::SendEntry { to, entry } => {
            format!(
                "tell {to} {}..{} {:?}",
                entry.first, entry.end, entry.entry.owner
            )
        }
    };
    effects.into_iter().map(line).collect()
}

fn receive(
    router: &mut Router<Vec<u8>>,
    generation: Generation,
    parcel: Parcel<Vec<u8>>,
) -> Vec<String> {
    let mut effects = Vec::new();
    router
        .receive(SENDER, generation, parcel, &mut effects)
        .unwrap();
    told(effects)
}

fn each_rule_decides_as_written() {
    for (why, destinations, version, expected, held) in [
        ("here, sender older", 0..1, 1, vec!["deliver to 0..1"], 0),
        ("here, sender newer", 0..1, 9, vec!["deliver to 0..1"], 0),
        ("mine but not here yet, equal", 1..2, 3, vec![], 1),
        ("mine but not here yet, sender older", 1..2, 1, vec![], 1),
        ("mine but not here yet, sender newer", 1..2, 4, vec![], 1),
        (
            "another's, sender older",
            2..3,
            2,
            vec!["forward 2..3 to w2 at 3", "tell w9 2..3 w2"],
            0,
        ),
        ("another's, equal", 2..3, 3, vec![], 1),
        ("another's, sender newer", 2..3, 4, vec![], 1),
        ("not placed", 3..4, 1, vec![], 1),
        (
            "all of these",
            0..4,
            1,
            vec![
                "deliver to 0..1",
                "forward 2..3 to w2 at 3",
                "tell w9 2..3 w2",
            ],
            2,
        ),
    ] {
        let mut router = router(Budget::unlimited());
        assert_eq!(
            receive(&mut router, NOW, parcel(0, destinations.clone(), version)),
            expected,
            "{why}"
        );
        assert_eq!(router.held(), held, "{why}");
        // The second delivery is decided like the first: the inbox is the keeper of "once".
        assert_eq!(
            receive(&mut router, NOW, parcel(0, destinations, version)),
            expected,
            "{why}"
        );
        assert_eq!(router.held(), 2 * held, "{why}");
    }
}

fn what_is_held_is_examined_at_every_update() {
    let mut router = router(Budget::unlimited());
    assert_eq!(receive(&mut router, NOW, parcel(0, 1..4, 3)), [""; 0]);
    let mut update = |update: EntryRange| {
        let mut effects = Vec::new();
        let applied = router.on_update(&update, &mut effects).unwrap();
        // Twice: nothing new.
        let before = effects.len();
        assert_eq!(
            router.on_update(&update, &mut effects).unwrap(),
            Applied::Ignored
        );
        assert_eq!(effects.len(), before);
        (applied, told(effects))
    };
    assert_eq!(update(entry(2, 3, ME, 2)), (Applied::Ignored, vec![]));
    let news = vec![
        "forward 2..3 to w7 at 4".to_owned(),
        "tell w9 2..3 w7".to_owned(),
    ];
    assert_eq!(update(entry(2, 3, WorkerId(7), 4)), (Applied::Newer, news));
    assert_eq!(update(entry(3, 4, ME, 4)), (Applied::Newer, vec![]));
    let mut effects = Vec::new();
    router.arrive(shard(3), &mut effects);
    router.arrive(shard(3), &mut effects);
    router.arrive(shard(1), &mut effects);
    assert_eq!(told(effects), ["deliver to 3..4", "deliver to 1..2"]);
    assert_eq!(router.held(), 0);
    router.leave(shard(3));
    assert!(!router.is_here(shard(3)));
    assert_eq!(receive(&mut router, NOW, parcel(0, 3..4, 4)), [""; 0]);
}

fn generations_do_not_mix() {
    let mut router = router(Budget::unlimited());
    assert_eq!(
        receive(&mut router, Generation(4), parcel(0, 0..1, 3)),
        [""; 0]
    );
    assert_eq!(
        receive(&mut router, Generation(6), parcel(1, 2..3, 1)),
        [""; 0]
    );
    assert_eq!(
        receive(&mut router, Generation(7), parcel(2, 2..3, 1)),
        [""; 0]
    );
    assert_eq!(receive(&mut router, NOW, parcel(3, 1..2, 3)), [""; 0]);
    assert_eq!(router.held(), 3);
    let mut effects = Vec::new();
    router.advance(Generation(6), &mut effects).unwrap();
    // What was held for the old generation is gone, and shard 0 has to arrive again.
    assert_eq!(
        told(effects),
        ["forward 2..3 to w2 at 3", "tell w9 2..3 w2"]
    );
    assert_eq!((router.held(), router.is_here(shard(0))), (1, false));
    let mut effects = Vec::new();
    router.advance(Generation(9), &mut effects).unwrap();
    assert_eq!((told(effects), router.held()), (vec![], 0));
}

/// Invariant 12's floor: later turns fill what they can, and the lowest open turn still has its room.
fn the_lowest_open_turn_is_always_admitted() {
    let floors = Floors {
        exchange_bytes: 1_000,
        ..Floors::default()
    };
    let budget = Budget::new(3_000, floors);
    let room = PieceRoom::new(budget.clone(), None);
    let admit = |turn, bytes| {
        let class = PieceRoom::class(turn, 4);
        room.admit(
            (ExchangeId(7), turn, shard(0)),
            class,
            Some(&mut vec![1; bytes]),
            0,
        )
    };
    let mut later = Vec::new();
    let refused = loop {
        match admit(5 + later.len() as u64 % 3, 90) {
            Ok(more) => later.push(more),
            Err(refused) => break refused,
        }
    };
    assert!(later.len() >= 20, "later turns may use the rest");
    assert!(refused.to_string().contains("exchange x7 turn"));
    assert!(refused.source.to_string().contains("BRAMBLING_MEMORY"));
    let lowest: Vec<_> = (0..10)
        .map(|_| admit(4, 100).expect("the floor is there"))
        .collect();
    assert!(
        admit(4, 100).is_err(),
        "beyond floor and rest even the lowest turn is refused"
    );
    drop((lowest, later));
    assert_eq!(budget.in_use_bytes(), 0);
}

#[test]
fn rules() {
    each_rule_decides_as_written();
}

#[test]
fn updates() {
    what_is_held_is_examined_at_every_update();
}

#[test]
fn generations() {
    generations_do_not_mix();
}

#[test]
fn floor() {
    the_lowest_open_turn_is_always_admitted();
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_caught() {
    use brambling_memory::mutants::assert_caught;
    assert_caught("router-never-forwards", each_rule_decides_as_written);
    assert_caught("router-forwards-to-older", each_rule_decides_as_written);
    assert_caught(
        "router-forgets-what-it-holds",
        what_is_held_is_examined_at_every_update,
    );
    assert_caught("router-takes-older-generations", generations_do_not_mix);
    assert_caught("router-drops-newer-generations", generations_do_not_mix);
    assert_caught(
        "room-gives-the-floor-to-later-turns",
        the_lowest_open_turn_is_always_admitted,
    );
}

#[test]
fn what_is_held_is_bounded_and_the_lowest_turn_comes_first() {
    let floors = Floors {
        exchange_bytes: 600,
        ..Floors::default()
    };
    let budget = Budget::new(1_500, floors);
    let mut router = router(budget.clone());
    let mut hold = |turn| router.receive(SENDER, NOW, parcel(turn, 1..2, 3), &mut Vec::new());
    // A later turn came first, so it was taken for the lowest one, until a lower one came.
    hold(8).unwrap();
    assert!(budget.class_in_use_bytes(Class::Exchange) > 0);
    hold(7).unwrap();
    let one = budget.class_in_use_bytes(Class::Exchange);
    assert_eq!(budget.class_in_use_bytes(Class::Early), one);
    let refused = loop {
        if let Err(refused) = hold(9) {
            break refused;
        }
    };
    assert!(
        matches!(refused, RouterError::NoRoom(NoRoom { turn: 9, .. })),
        "{refused}"
    );
    hold(7).unwrap();
    let empty = Parcel {
        bytes: 0,
        item: Item::Empty { sources: 0..1 },
        ..parcel(9, 1..2, 3)
    };
    let marks = (0..100).take_while(|_| {
        router
            .receive(SENDER, NOW, empty.clone(), &mut Vec::new())
            .is_ok()
    });
    assert!(marks.count() < 100, "empty marks take room as well");
    router.arrive(shard(1), &mut Vec::new());
    assert_eq!((router.held(), budget.in_use_bytes()), (0, 0));
}

#[test]
fn unknown_shards_are_an_error_and_cost_nothing() {
    let budget = Budget::unlimited();
    let mut router = router(budget.clone());
    for (group, destinations) in [(0, 3..5), (0, 0..u32::MAX), (8, 0..1), (0, 2..2)] {
        let parcel = Parcel {
            group: GroupId(group),
            ..parcel(0, destinations, 1)
        };
        for generation in [NOW, Generation(4), Generation(6)] {
            let refused = router.receive(SENDER, generation, parcel.clone(), &mut Vec::new());
            assert!(matches!(refused, Err(RouterError::Map(_))));
        }
    }
    assert!(
        router
            .on_update(&entry(0, 9, ME, 9), &mut Vec::new())
            .is_err()
    );
    assert_eq!((router.held(), budget.in_use_bytes()), (0, 0));
}

/// What is kept for a later generation counts as well: hostile or early, it must not grow beyond the budget.
#[test]
fn what_comes_for_a_later_generation_is_bounded() {
    let budget = Budget::new(1_500, Floors::default());
    let mut router = router(budget.clone());
    let later = Generation(NOW.0 + 1);
    let mut refused = Ok(());
    let mut kept = 0;
    while refused.is_ok() && kept < 100 {
        refused = router.receive(SENDER, later, parcel(0, 1..2, 3), &mut Vec::new());
        kept += usize::from(refused.is_ok());
    }
    assert!(
        matches!(refused, Err(RouterError::NoRoom(NoRoom { turn: 0, .. }))),
        "{refused:?}"
    );
    assert_eq!(router.held(), kept);
    router.advance(Generation(9), &mut Vec::new()).unwrap();
    assert_eq!((router.held(), budget.in_use_bytes()), (0, 0));
}

/// It was kept once for three destinations, and is held once for each of them from the recovery on.
#[test]
fn a_recovery_for_whose_pieces_there_is_no_room_is_an_error() {
    let budget = Budget::new(400, Floors::default());
    let mut router = router(budget.clone());
    let later = Generation(NOW.0 + 1);
    let to_three = Parcel {
        item: Item::whole(TreeNode::leaf(0), vec![1; 100]),
        ..parcel(0, 1..4, 3)
    };
    router
        .receive(SENDER, later, to_three, &mut Vec::new())
        .unwrap();
    let refused = router.advance(later, &mut Vec::new());
    assert!(
        matches!(refused, Err(RouterError::NoRoom(_))),
        "{refused:?}"
    );
}

/// Takes everything, and keeps nothing.
#[derive(Debug)]
struct Bottomless;

#[derive(Debug)]
struct Nothing;

impl Spilled for Nothing {
    fn bytes(&self) -> u64 {
        0
    }
    fn read(&self) -> Result<Vec<u8>, SpillError> {
        Ok(Vec::new())
    }
}

impl Spill for Bottomless {
    fn put(&self, _: &[&[u8]], _: &OutOfMemory) -> Result<Arc<dyn Spilled>, SpillError> {
        Ok(Arc::new(Nothing))
    }
}

#[derive(Debug)]
struct Elsewhere(u64);

impl PayloadWeight for Elsewhere {
    fn bytes(&self) -> u64 {
        self.0
    }
    fn spill(&mut self, to: &dyn Spill, refused: &OutOfMemory) -> Result<(), SpillError> {
        to.put(&[], refused)?;
        self.0 = 0;
        Ok(())
    }
}

/// A piece can be spilled, what is kept beside it cannot; that has the transfers' floor, and nothing beyond.
#[test]
fn what_is_kept_beside_a_spilled_piece_has_to_fit() {
    let floors = Floors {
        transfer_bytes: 150,
        ..Floors::default()
    };
    let budget = Budget::new(190, floors);
    let room = PieceRoom::new(budget.clone(), Some(Arc::new(Bottomless)));
    let admit = |piece: &mut Elsewhere| {
        let at = (ExchangeId(7), 3, shard(0));
        room.admit(at, Class::Early, Some(piece), 100)
    };
    let mut piece = Elsewhere(1_000);
    let kept = admit(&mut piece).expect("the floor of transfers is there");
    assert_eq!((piece.0, kept.bytes()), (0, 100));
    assert_eq!(budget.class_in_use_bytes(Class::Transfer), 100);
    let refused = admit(&mut Elsewhere(1_000)).unwrap_err();
    assert_eq!((refused.turn, refused.spill), (3, None));
    drop(kept);
    assert_eq!(budget.in_use_bytes(), 0);
    // What has no other place stays where it is, and finds no room.
    let mut stays = vec![1; 1_000];
    let at = (ExchangeId(7), 3, shard(0));
    let refused = room.admit(at, Class::Early, Some(&mut stays), 0);
    assert_eq!((refused.unwrap_err().spill, stays.len()), (None, 1_000));
}
