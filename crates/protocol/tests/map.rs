//! Invariants 1 and 3: one owner per version, versions only grow, order does not matter.

use brambling_program::{GroupId, ShardId};
use brambling_protocol::{Applied, Entry, EntryRange, MapError, PartitionMap, WorkerId};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const SHARDS: [u32; 3] = [1, 12, 40];

fn shard(group: u32, index: u32) -> ShardId {
    ShardId {
        group: GroupId(group),
        index,
    }
}

/// As a controller numbers them: one owner for each version of a shard.
fn range(group: u32, first: u32, end: u32, version: u64) -> EntryRange {
    let owner = WorkerId((version * 7 % 5) as u32);
    EntryRange {
        group: GroupId(group),
        first,
        end,
        entry: Entry { owner, version },
    }
}

fn updates() -> impl Strategy<Value = Vec<EntryRange>> {
    let update =
        (0..3u32, 0..40u32, 1..40u32, 0..12u64).prop_map(|(group, first, len, version)| {
            let shards = SHARDS[group as usize];
            let first = first % shards;
            range(group, first, (first + len).min(shards), version)
        });
    prop::collection::vec(update, 0..25)
}

/// Each update once or several times, in any order.
fn deliveries() -> impl Strategy<Value = (Vec<EntryRange>, Vec<EntryRange>)> {
    updates().prop_flat_map(|updates| {
        let twice = [updates.clone(), updates.clone()].concat();
        (Just(updates), Just(twice).prop_shuffle())
    })
}

fn check((in_order, delivered): (Vec<EntryRange>, Vec<EntryRange>)) -> Result<(), TestCaseError> {
    let mut map = PartitionMap::new(SHARDS);
    for update in &delivered {
        let before = map.clone();
        let applied = map.apply(update).unwrap();
        prop_assert_eq!(applied == Applied::Newer, map != before);
        prop_assert_eq!(
            map.apply(update).unwrap(),
            Applied::Ignored,
            "the second delivery"
        );
    }
    // The oracle looks at each shard alone.
    for group in 0..3 {
        for index in 0..SHARDS[group as usize] {
            let names = |u: &&EntryRange| u.group.0 == group && (u.first..u.end).contains(&index);
            let newest = in_order
                .iter()
                .filter(names)
                .map(|u| u.entry)
                .max_by_key(|e| e.version);
            prop_assert_eq!(map.entry(shard(group, index)).unwrap(), newest);
        }
    }
    // A newcomer who is told every entry has the same map.
    let mut newcomer = PartitionMap::new(SHARDS);
    for update in map.entries() {
        prop_assert_eq!(newcomer.apply(&update).unwrap(), Applied::Newer);
    }
    prop_assert_eq!(&newcomer, &map);
    Ok(())
}

fn run() -> Result<(), String> {
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(300)
    };
    TestRunner::new(config)
        .run(&deliveries(), check)
        .map_err(|error| error.to_string())
}

#[test]
fn the_newest_entry_wins_in_any_order() {
    run().unwrap();
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_caught() {
    brambling_memory::mutants::assert_caught("map-takes-older", || run().unwrap());
}

#[test]
fn what_the_program_does_not_have_is_an_error() {
    let mut map = PartitionMap::new(SHARDS);
    let empty = map.clone();
    for (group, first, end) in [
        (3, 0, 1),
        (0, 0, 2),
        (1, 5, 5),
        (1, 6, 5),
        (2, 40, 41),
        (2, 0, u32::MAX),
        (u32::MAX, 0, 1),
    ] {
        let expected = MapError::UnknownShards {
            group: GroupId(group),
            first,
            end,
        };
        assert_eq!(map.apply(&range(group, first, end, 1)), Err(expected));
        assert_eq!(map.runs(GroupId(group), first..end).err(), Some(expected));
    }
    assert!(map.entry(shard(2, u32::MAX)).is_err());
    assert_eq!(map, empty);
}

#[test]
fn two_owners_of_one_version_are_an_error_and_change_nothing() {
    let mut map = PartitionMap::new(SHARDS);
    assert_eq!(map.apply(&range(1, 4, 6, 3)), Ok(Applied::Newer));
    let before = map.clone();
    let mut other = range(1, 0, 9, 3);
    other.entry.owner = WorkerId(9);
    let error = map.apply(&other).unwrap_err();
    assert_eq!(
        error.to_string(),
        "shard g1/4 has two owners at version 3: w1 and w9"
    );
    assert_eq!(map, before);
}

#[test]
fn runs_are_maximal_and_cut_to_the_question() {
    let mut map = PartitionMap::new([10]);
    let _ = map.apply(&range(0, 0, 4, 1)).unwrap();
    let _ = map.apply(&range(0, 4, 6, 1)).unwrap();
    let _ = map.apply(&range(0, 7, 9, 2)).unwrap();
    let runs: Vec<_> = map.runs(GroupId(0), 2..8).unwrap().collect();
    let versions: Vec<_> = runs
        .iter()
        .map(|(r, e)| (r.clone(), e.map(|e| e.version)))
        .collect();
    assert_eq!(versions, [(2..6, Some(1)), (6..7, None), (7..8, Some(2))]);
    assert_eq!(map.shards(GroupId(0)), 10);
    assert_eq!(map.shards(GroupId(1)), 0);
}
