//! Decides where a job's shards begin: ranges by the workers' threads, or columns of a grid; of a job that begins again at a snapshot, those that are left stay where
//! they were. The registry calls it once, when a generation begins. It never asks how busy workers are.

use brambling_program::GroupId;
use brambling_protocol::{Entry, EntryRange, PartitionMap, WorkerId};
use std::collections::BTreeMap;
use std::ops::Range;

/// The most shards of a grid whose columns are kept together: each is an entry of its own where columns end.
const GRID_MAX: u32 = 4096;

/// A map that gives each worker a share of each group, as long as its weight is of all weights. Shares are contiguous ranges; of a
/// group that is a grid of some columns (row by row; 0: none) they are so down one column after the other. Every version is 1.
///
/// # Panics
/// When all weights are 0 and there are shards, or columns are given for other groups than shards.
pub fn place(shards: &[u32], columns: &[u32], weights: &[(WorkerId, u32)]) -> PartitionMap {
    assert_eq!(shards.len(), columns.len(), "columns for each group");
    let mut map = PartitionMap::new(shards.iter().copied());
    for ((group, &count), &columns) in (0..).map(GroupId).zip(shards).zip(columns) {
        let entries = if is_grid(count, columns) {
            down_columns(columns, &share(count, weights))
        } else {
            share(count, weights)
        };
        fill(&mut map, group, entries);
    }
    map
}

/// A map that leaves shards with those who held them, as far as these have a weight, and shares out the others: who has least of what its weight says gets most. Every
/// version is 1.
///
/// # Panics
/// As [`place`].
pub fn place_again(
    held: &PartitionMap,
    columns: &[u32],
    weights: &[(WorkerId, u32)],
) -> PartitionMap {
    let counts = held.counts();
    assert_eq!(counts.len(), columns.len(), "columns for each group");
    let mut map = PartitionMap::new(counts.iter().copied());
    for ((group, &count), &columns) in (0..).map(GroupId).zip(&counts).zip(columns) {
        let is_left = |owner: WorkerId| {
            let mut weights = weights.iter();
            weights.any(|(worker, weight)| *worker == owner && *weight > 0)
        };
        let stays = |range: &EntryRange| range.group == group && is_left(range.entry.owner);
        let kept: Vec<_> = (held.entries().filter(stays))
            .map(|range| (range.first..range.end, range.entry.owner))
            .collect();
        let lost = lost(count, columns, &kept);
        let lacking = lacking(count, &kept, weights);
        let dealt = share(lost.len() as u32, &lacking).into_iter();
        let dealt = dealt.flat_map(|(places, owner)| {
            let indices = &lost[places.start as usize..places.end as usize];
            runs(indices.iter().map(move |index| (*index, owner)))
        });
        fill(&mut map, group, dealt.chain(kept.iter().cloned()));
    }
    map
}

/// Shards that nobody keeps, in the order in which they are shared out.
fn lost(count: u32, columns: u32, kept: &[(Range<u32>, WorkerId)]) -> Vec<u32> {
    let mut is_kept = vec![false; count as usize];
    for (range, _) in kept {
        is_kept[range.start as usize..range.end as usize].fill(true);
    }
    let mut lost: Vec<u32> = (0..count).filter(|it| !is_kept[*it as usize]).collect();
    if is_grid(count, columns) {
        lost.sort_by_key(|index| place_down(*index, count, columns));
    }
    lost
}

/// How many shards each worker has less than its weight says.
fn lacking(
    count: u32,
    kept: &[(Range<u32>, WorkerId)],
    weights: &[(WorkerId, u32)],
) -> Vec<(WorkerId, u32)> {
    let mut lacking: BTreeMap<WorkerId, u32> = BTreeMap::new();
    for (range, owner) in share(count, weights) {
        *lacking.entry(owner).or_default() += range.end - range.start;
    }
    for (range, owner) in kept {
        let of_it = lacking.entry(*owner).or_default();
        *of_it = of_it.saturating_sub(range.end - range.start);
    }
    lacking.into_iter().collect()
}

/// Whether a group's shards lie down columns. Their entries may be one shard long, so large grids are left as they are.
fn is_grid(count: u32, columns: u32) -> bool {
    columns > 1 && count <= GRID_MAX && count.is_multiple_of(columns)
}

/// The place of a grid's index if shards were counted down one column after the other.
fn place_down(index: u32, count: u32, columns: u32) -> u32 {
    index % columns * (count / columns) + index / columns
}

/// Enters ranges of a group.
fn fill(
    map: &mut PartitionMap,
    group: GroupId,
    entries: impl IntoIterator<Item = (Range<u32>, WorkerId)>,
) {
    for (shards, owner) in entries {
        let entry = Entry { owner, version: 1 };
        let range = EntryRange {
            group,
            first: shards.start,
            end: shards.end,
            entry,
        };
        let _ = map.apply(&range).expect("a range of the group");
    }
}

/// Consecutive ranges that make up so many, as long as weights say; none is empty.
fn share(count: u32, weights: &[(WorkerId, u32)]) -> Vec<(Range<u32>, WorkerId)> {
    let all: u64 = weights.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let (mut before, mut first) = (0, 0);
    let range = |&(owner, weight): &(WorkerId, u32)| {
        before += u64::from(weight);
        // Two numbers of 32 bits: their product fits.
        let end = (u64::from(count) * before / all) as u32;
        let start = std::mem::replace(&mut first, end);
        (start < end).then_some((start..end, owner))
    };
    if count == 0 {
        return Vec::new();
    }
    weights.iter().filter_map(range).collect()
}

/// Turns places that count down columns into indices that count along rows.
fn down_columns(columns: u32, shares: &[(Range<u32>, WorkerId)]) -> Vec<(Range<u32>, WorkerId)> {
    let count = shares.last().map_or(0, |(range, _)| range.end);
    let owner = |index: u32| {
        let place = place_down(index, count, columns);
        let at = shares.partition_point(|(range, _)| range.end <= place);
        shares[at].1
    };
    runs((0..count).map(|index| (index, owner(index))))
}

/// Indices one behind the other of one owner.
fn runs(owners: impl Iterator<Item = (u32, WorkerId)>) -> Vec<(Range<u32>, WorkerId)> {
    let mut runs: Vec<(Range<u32>, WorkerId)> = Vec::new();
    for (index, owner) in owners {
        match runs.last_mut() {
            Some((run, last)) if *last == owner && run.end == index => run.end += 1,
            _ => runs.push((index..index + 1, owner)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::ShardId;

    fn owners(shards: u32, weights: &[u32]) -> Vec<u32> {
        owners_in_grid(shards, 0, weights)
    }

    fn owners_in_grid(shards: u32, columns: u32, weights: &[u32]) -> Vec<u32> {
        let weights: Vec<_> = (0..).map(WorkerId).zip(weights.iter().copied()).collect();
        let map = place(&[3, shards], &[0, columns], &weights);
        let owner = |index| {
            let group = GroupId(1);
            let entry = map.entry(ShardId { group, index }).unwrap();
            entry.expect("every shard is placed").owner.0
        };
        (0..shards).map(owner).collect()
    }

    #[test]
    fn ranges_are_contiguous_and_as_long_as_weights_say() {
        assert_eq!(owners(6, &[1, 1]), [0, 0, 0, 1, 1, 1]);
        assert_eq!(owners(8, &[1, 2, 1]), [0, 0, 1, 1, 1, 1, 2, 2]);
        assert_eq!(owners(3, &[4, 0, 4]), [0, 2, 2]);
        assert_eq!(owners(1, &[1, 1, 1]), [2]);
        assert_eq!(owners(0, &[1]), Vec::<u32>::new());
        let many = owners(1_000_003, &[7, 11, 13]);
        assert!(many.is_sorted());
        let of = |worker| many.iter().filter(|owner| **owner == worker).count();
        let fair = |of: usize, weight: usize| of.abs_diff(1_000_003 * weight / 31) <= 1;
        assert!(fair(of(0), 7) && fair(of(1), 11) && fair(of(2), 13));
    }

    /// Who has the shards of a group that these held, once those are there.
    fn owners_again(held: &[u32], columns: u32, weights: &[(u32, u32)]) -> Vec<u32> {
        let group = GroupId(0);
        let mut map = PartitionMap::new([held.len() as u32]);
        let held = (0..).zip(held);
        fill(
            &mut map,
            group,
            held.map(|(index, owner)| (index..index + 1, WorkerId(*owner))),
        );
        let weights: Vec<_> = (weights.iter())
            .map(|&(worker, weight)| (WorkerId(worker), weight))
            .collect();
        let map = place_again(&map, &[columns], &weights);
        let owner = |index| {
            map.entry(ShardId { group, index })
                .unwrap()
                .unwrap()
                .owner
                .0
        };
        (0..map.shards(group)).map(owner).collect()
    }

    #[test]
    fn who_is_left_keeps_its_shards_and_gets_some_of_the_others() {
        let even = |workers: &[u32]| workers.iter().map(|it| (*it, 2)).collect::<Vec<_>>();
        let held = [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4];
        let again = owners_again(&held, 0, &even(&[1, 2, 4]));
        assert_eq!(again, [1, 1, 1, 2, 2, 2, 1, 2, 4, 4, 4, 4]);
        // Somebody comes instead.
        let again = owners_again(&held, 0, &even(&[1, 2, 4, 5]));
        assert_eq!(again, [1, 1, 1, 2, 2, 2, 5, 5, 5, 4, 4, 4]);
        // Who has more than its share gets nothing.
        let held = [1, 1, 1, 1, 2, 2, 3, 3];
        let again = owners_again(&held, 0, &even(&[1, 2]));
        assert_eq!(again, [1, 1, 1, 1, 2, 2, 2, 2]);
        // Nobody is left, and somebody has no threads.
        assert_eq!(owners_again(&[1, 1, 2], 0, &[(2, 0), (4, 1)]), [4; 3]);
        // Columns: the lost ones are dealt down these.
        let held = [1, 1, 2, 2, 1, 1, 2, 2];
        let again = owners_again(&held, 4, &even(&[1, 3, 4]));
        assert_eq!(again, [1, 1, 3, 4, 1, 1, 3, 4]);
        assert_eq!(owners_again(&[], 0, &even(&[1])), Vec::<u32>::new());
    }

    #[test]
    fn columns_stay_together() {
        // Two workers: two columns each.
        assert_eq!(owners_in_grid(8, 4, &[1, 1]), [0, 0, 1, 1, 0, 0, 1, 1]);
        // More workers than columns share them.
        assert_eq!(owners_in_grid(6, 2, &[1; 6]), [0, 3, 1, 4, 2, 5]);
        assert_eq!(owners_in_grid(6, 2, &[2, 1]), [0, 0, 0, 1, 0, 1]);
        assert_eq!(owners_in_grid(4, 2, &[0, 1]), [1; 4]);
        // Everybody gets as much as without columns.
        let weights = [7, 11, 13];
        let sorted = |mut owners: Vec<u32>| {
            owners.sort_unstable();
            owners
        };
        for (shards, columns) in [(1, 1), (12, 4), (1_024, 32), (0, 3)] {
            let grid = owners_in_grid(shards, columns, &weights);
            assert_eq!(sorted(grid), owners(shards, &weights));
        }
        // What is no grid, and what is too large a one, lies as ever.
        assert_eq!(owners_in_grid(7, 4, &[1, 1]), owners(7, &[1, 1]));
        let large = 2 * GRID_MAX;
        assert_eq!(owners_in_grid(large, 2, &[1, 1]), owners(large, &[1, 1]));
    }
}
