use super::encoded::chunks;
use super::*;
use crate::pieces::Spares;
use crate::waiting::{ExchangeTurn, WaitingPiece, WaitingRoom, whole};
use brambling_exchange::{Gathered, Item};
use brambling_memory::{Budget, Class};
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, GroupId, Payload, PayloadType, ShardId};

fn spares() -> Arc<Spares> {
    Arc::new(Spares::new(PayloadType::of::<Vec<f64>>()))
}

fn numbers() -> Vec<f64> {
    (0..1_000).map(f64::from).collect()
}

fn gathered(items: Vec<Item<PieceBytes>>) -> Vec<Gathered<PieceData>> {
    let gathered = |item| match item {
        Item::Piece {
            source,
            chunk,
            last,
            payload,
        } => Gathered {
            source,
            chunk,
            last,
            payload: PieceData::Bytes(payload),
        },
        Item::Empty { .. } => panic!("a piece was sent"),
    };
    items.into_iter().map(gathered).collect()
}

/// Cut anywhere, a piece comes as it was sent; its memory is spare once nobody holds what was sent.
#[test]
fn pieces_are_cut_and_joined() {
    for (shared_bytes, chunk_bytes) in [(1, 3), (1, 100), (1, 1 << 20), (1 << 20, 100)] {
        let spares = spares();
        let value = Value::new(numbers());
        let lay = value.as_ptr();
        let encoded = Encoded::of(value, &spares, shared_bytes);
        let items = chunks(TreeNode::leaf(7), &encoded, chunk_bytes);
        let last = |item: &Item<PieceBytes>| matches!(item, Item::Piece { last: true, .. });
        assert!(
            items
                .iter()
                .rev()
                .map(last)
                .eq((0..items.len()).map(|at| at == 0))
        );
        drop(encoded);
        let [(7, taken)] = &join(gathered(items))[..] else {
            panic!("one piece was sent");
        };
        let came = taken
            .clone()
            .into_value(&Spares::new(PayloadType::of::<Vec<f64>>()));
        assert_eq!(came.unwrap().get::<Vec<f64>>(), Some(&numbers()));
        let is_spare = shared_bytes > 1;
        let spare = spares.take();
        assert_eq!(spare.as_ptr() == lay, is_spare, "while its bytes are held");
    }
    let spares = spares();
    let value = Value::new(numbers());
    let lay = value.as_ptr();
    drop(Encoded::of(value, &spares, 1));
    assert_eq!(spares.take().as_ptr(), lay, "nobody holds its bytes");
}

/// What has come for so many shards, by shard.
fn come(destinations: usize, items: Vec<Item<PieceBytes>>) -> Vec<Vec<(u32, Taken)>> {
    let waits = WaitingRoom::new(Budget::unlimited(), None);
    let at: ExchangeTurn = (ExchangeId(0), 0);
    let (group, index) = (GroupId(0), 5);
    let first = ShardId { group, index };
    let gathered = |item: Item<WaitingPiece>| match item {
        Item::Piece {
            source,
            chunk,
            last,
            payload,
        } => Gathered {
            source,
            chunk,
            last,
            payload,
        },
        Item::Empty { .. } => panic!("a piece was sent"),
    };
    let mut chunks: Vec<Vec<Gathered<WaitingPiece>>> =
        (0..destinations).map(|_| Vec::new()).collect();
    for item in items {
        let item = item.map(PieceData::Bytes);
        let shared = waits.share(at, first, destinations, 0, item).unwrap();
        for (chunks, item) in chunks.iter_mut().zip(shared) {
            chunks.push(gathered(item));
        }
    }
    let pieces = chunks.into_iter().map(|chunks| whole(chunks, drop));
    pieces.collect()
}

/// The memory that shards get who are sent the same.
fn memory_of_each<T: Payload>(
    value: T,
    destinations: usize,
    at: fn(&T) -> *const f64,
) -> Vec<*const f64> {
    let spares = Arc::new(Spares::new(PayloadType::of::<T>()));
    let encoded = Encoded::of(Value::new(value), &spares, 1);
    let items = chunks(TreeNode::leaf(0), &encoded, 1 << 10);
    let taken = come(destinations, items).into_iter().flatten();
    let values = taken.map(|(_, taken)| taken.into_value(&spares).unwrap());
    let values: Vec<Value> = values.collect();
    let at = |value: &Value| at(value.get::<T>().expect("of this type"));
    values.iter().map(at).collect()
}

/// What several shards get alike is decoded once, where they can share it.
#[test]
fn what_comes_for_several_is_decoded_once() {
    let shared = memory_of_each(Arc::new(numbers()), 3, |it| it.as_ptr());
    assert!(shared.iter().all(|at| *at == shared[0]), "{shared:?}");
    let own = memory_of_each(numbers(), 3, |it| it.as_ptr());
    assert!(own[0] != own[1] && own[1] != own[2] && own[0] != own[2]);
    assert_eq!(
        memory_of_each(Arc::new(numbers()), 1, |it| it.as_ptr()).len(),
        1
    );
}

/// Bytes that nobody can decode are an error for each who gets them; nothing is left behind for others.
#[test]
fn who_cannot_decode_leaves_it_to_the_next() {
    let spares = Spares::new(PayloadType::of::<Arc<Vec<f64>>>());
    let item = Item::whole(TreeNode::leaf(0), PieceBytes::from_static(b"no numbers"));
    let taken: Vec<_> = come(2, vec![item]).into_iter().flatten().collect();
    assert_eq!(taken.len(), 2);
    for (_, taken) in taken {
        assert!(taken.into_value(&spares).is_err());
    }
}

/// Whoever is the last to have a value that waits gets it as it lies; others get their own.
#[test]
fn a_value_that_somebody_else_holds_is_copied() {
    let value = Value::new(numbers());
    let lay = value.as_ptr();
    let room = Budget::unlimited().reserve(Class::Exchange, 8_000).unwrap();
    let mut waits = PieceData::Value(value).park(room);
    let mut first = waits.clone();
    let taken = |cargo: &mut PieceData| {
        let in_use = cargo.unpark();
        assert!(in_use.is_some());
        match cargo {
            PieceData::Value(value) => (value.as_ptr(), value.get::<Vec<f64>>().cloned()),
            other => panic!("{other:?}"),
        }
    };
    let (at, copied) = taken(&mut first);
    assert_eq!(copied, Some(numbers()));
    assert_ne!(at, lay);
    assert_eq!(taken(&mut waits), (lay, Some(numbers())));
}

/// A value that was for this process leaves it in as many chunks as any other.
#[test]
fn values_that_leave_are_encoded() {
    let spares = spares();
    let encoded = Encoded::of(Value::new(numbers()), &spares, 1 << 20);
    let items = items(TreeNode::leaf(0), Some(encoded), 1 << 10);
    assert_eq!(items.len(), 8);
    let items = items.into_iter().map(|item| {
        item.map(|cargo| match cargo {
            PieceData::Bytes(bytes) => bytes,
            other => panic!("{other:?}"),
        })
    });
    let [(0, taken)] = &join(gathered(items.collect()))[..] else {
        panic!("one piece was sent");
    };
    let came = taken.clone().into_value(&spares).unwrap();
    assert_eq!(came.get::<Vec<f64>>(), Some(&numbers()));
}
