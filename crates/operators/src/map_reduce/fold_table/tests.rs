//! The oracle is the standard library's map, which shares no code with the table.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const ALL: [ReduceFunction; 4] = [
    ReduceFunction::Sum,
    ReduceFunction::Count,
    ReduceFunction::Min,
    ReduceFunction::Max,
];

fn expected(fold: ReduceFunction, pairs: &[(Vec<u8>, u64)]) -> Vec<(Vec<u8>, u64)> {
    let mut values: BTreeMap<Vec<u8>, Vec<u64>> = BTreeMap::new();
    for (key, value) in pairs {
        values.entry(key.clone()).or_default().push(*value);
    }
    let reduce = |values: Vec<u64>| match fold {
        ReduceFunction::Sum => values.iter().sum(),
        ReduceFunction::Count => values.len() as u64,
        ReduceFunction::Min => values.into_iter().min().unwrap(),
        ReduceFunction::Max => values.into_iter().max().unwrap(),
    };
    values
        .into_iter()
        .map(|(key, values)| (key, reduce(values)))
        .collect()
}

fn sorted(table: &FoldTable) -> Vec<(Vec<u8>, u64)> {
    let order = table.order();
    let pairs = order.iter().map(|place| table.pair_at(*place));
    pairs
        .map(|(key, value)| (key.bytes().to_vec(), value))
        .collect()
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Few letters, zeros among them, so that keys meet; lengths on both sides of those that lie in a slot.
    let letters = prop::sample::select(&b"ab\0"[..]);
    prop_oneof![
        prop::collection::vec(letters.clone(), 0..4),
        prop::collection::vec(letters, 14..20),
    ]
}

proptest! {
    #[test]
    fn a_table_folds_as_a_map_of_the_standard_library(pairs in prop::collection::vec((key(), 0..9u64), 0..600)) {
        for fold in ALL {
            let mut table = FoldTable::new(fold, MAP_SALT);
            for (place, (key, value)) in pairs.iter().enumerate() {
                // Each way to add is taken by some, whatever waits.
                match place % 3 {
                    0 => table.add(key, fold.first(*value)),
                    _ => table.queue(key, fold.first(*value)),
                }
            }
            table.settle();
            prop_assert_eq!(sorted(&table), expected(fold, &pairs));
            table.clear();
            prop_assert!(table.is_empty() && sorted(&table).is_empty());
        }
    }

    /// Whatever follows a key in its text is no part of it.
    #[test]
    fn a_key_in_a_text_is_the_key_alone(text in prop::collection::vec(any::<u8>(), 0..60), begin in 0..60usize, len in 0..40usize) {
        let begin = begin.min(text.len());
        let end = (begin + len).min(text.len());
        let mut table = FoldTable::new(ReduceFunction::Sum, MAP_SALT);
        table.queue_in(&text, begin, end, 2);
        table.add(&text[begin..end], 3);
        table.settle();
        prop_assert_eq!(sorted(&table), [(text[begin..end].to_vec(), 5)]);
    }

    #[test]
    fn keys_are_dealt_as_a_shuffle_deals_them(keys in prop::collection::vec(key(), 0..50), partitions in 1..9u32) {
        let mut table = FoldTable::new(ReduceFunction::Sum, MAP_SALT);
        keys.iter().for_each(|key| table.add(key, 1));
        let mut dealt = vec![Vec::new(); partitions as usize];
        table.deal(&mut dealt, |_, buffer, wanted| buffer.reserve(wanted));
        for (to, bytes) in (0..).zip(&dealt) {
            for pair in pairs::iter(bytes) {
                let (key, _) = pair.unwrap();
                prop_assert_eq!(brambling_program::partition_of(&key.to_vec(), partitions), to);
            }
        }
    }
}

impl FoldTable {
    /// How far a short key lies from where its hash says, at most.
    fn farthest(&self) -> usize {
        let taken = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.len > 0);
        let far =
            taken.map(|(at, slot)| at.wrapping_sub(self.place(slot.key)) & (self.slots.len() - 1));
        far.max().unwrap_or(0)
    }
}

/// Keys that come in the order of another table's slots do not crowd: each goes through few slots. Without salts of their own it is thousands.
#[test]
fn keys_in_the_order_of_a_table_do_not_crowd() {
    let mut from = FoldTable::new(ReduceFunction::Sum, MAP_SALT);
    (0..100_000u32).for_each(|key| from.add(format!("w{key}").as_bytes(), 1));
    let mut into = FoldTable::new(ReduceFunction::Sum, REDUCE_SALT);
    let mut farthest = 0;
    for (place, (key, value)) in from.iter().enumerate() {
        into.add(key.bytes(), value);
        if place.is_power_of_two() {
            farthest = farthest.max(into.farthest());
        }
    }
    assert!((1..200).contains(&farthest), "{farthest}");
}

/// Long keys whose hashes are the same are still two.
#[test]
fn keys_of_one_hash_are_told_apart() {
    let mut table = FoldTable::new(ReduceFunction::Sum, MAP_SALT);
    for key in [b"a key that is long, one", b"a key that is long, two"] {
        table.fold_long(key, [1, 2], 1);
        table.fold_long(key, [1, 2], 1);
    }
    let found = sorted(&table);
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|(_, value)| *value == 2));
}
