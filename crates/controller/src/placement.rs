//! Where a job's shards begin.

use brambling_program::GroupId;
use brambling_protocol::{Entry, EntryRange, PartitionMap, WorkerId};

/// A map that gives each worker a contiguous range of each group, as long as its weight is of all weights. Every version
/// is 1.
///
/// # Panics
/// When all weights are 0 and there are shards.
pub fn place(shards: &[u32], weights: &[(WorkerId, u32)]) -> PartitionMap {
    let mut map = PartitionMap::new(shards.iter().copied());
    let all: u64 = weights.iter().map(|(_, weight)| u64::from(*weight)).sum();
    for (group, &count) in (0..).map(GroupId).zip(shards) {
        let mut before = 0;
        let mut first = 0;
        for &(owner, weight) in weights {
            before += u64::from(weight);
            // Two numbers of 32 bits: their product fits.
            let end = (u64::from(count) * before / all) as u32;
            if first < end {
                let entry = Entry { owner, version: 1 };
                let range = EntryRange {
                    group,
                    first,
                    end,
                    entry,
                };
                let _ = map.apply(&range).expect("a range of the group");
            }
            first = end;
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::ShardId;

    fn owners(shards: u32, weights: &[u32]) -> Vec<u32> {
        let weights: Vec<_> = (0..).map(WorkerId).zip(weights.iter().copied()).collect();
        let map = place(&[3, shards], &weights);
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
}
