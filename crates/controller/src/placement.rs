//! Decides where a job's shards begin: ranges by the workers' threads, or columns of a grid. The
//! registry calls it once, when a job begins. It never asks how busy workers are.

use brambling_program::GroupId;
use brambling_protocol::{Entry, EntryRange, PartitionMap, WorkerId};
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
        // Down columns an entry may be one shard long, so large grids are left as they are.
        let is_grid = columns > 1 && count <= GRID_MAX && count.is_multiple_of(columns);
        let entries = if is_grid {
            down_columns(columns, &share(count, weights))
        } else {
            share(count, weights)
        };
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
    map
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

/// Turns places that count down columns into indices that count along rows: runs of one owner.
fn down_columns(columns: u32, shares: &[(Range<u32>, WorkerId)]) -> Vec<(Range<u32>, WorkerId)> {
    let count = shares.last().map_or(0, |(range, _)| range.end);
    let rows = count / columns;
    let owner = |index: u32| {
        // The index's place if shards were counted down one column after the other.
        let place = index % columns * rows + index / columns;
        let at = shares.partition_point(|(range, _)| range.end <= place);
        shares[at].1
    };
    let mut runs: Vec<(Range<u32>, WorkerId)> = Vec::new();
    for index in 0..count {
        let owner = owner(index);
        match runs.last_mut() {
            Some((run, last)) if *last == owner => run.end = index + 1,
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
