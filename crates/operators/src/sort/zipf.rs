//! Ranks whose frequency falls as 1 over the rank, from a table that is drawn from in constant
//! time.

/// Ranks 0 up to a count, where rank r comes with a probability proportional to 1 / (r + 1).
///
/// The table is Walker's alias method: a column has two ranks, and where it is divided.
#[derive(Clone, Debug)]
pub(super) struct ZipfTable {
    columns: Vec<AliasColumn>,
}

#[derive(Clone, Copy, Debug)]
struct AliasColumn {
    /// Of 2³², how often the column's own rank is taken.
    own: u32,
    /// The rank that is taken otherwise.
    other: u32,
}

impl ZipfTable {
    /// A table of so many ranks, which must be a power of two below 2³².
    pub(super) fn new(ranks: u32) -> ZipfTable {
        assert!(ranks.is_power_of_two(), "columns are chosen by bits");
        let weights: Vec<f64> = (0..ranks).map(|rank| 1.0 / f64::from(rank + 1)).collect();
        // Summed in order, so the table is the same everywhere.
        let sum: f64 = weights.iter().sum();
        // A column has room for 1; heavy ranks fill up the columns of light ones.
        let scale = f64::from(ranks) / sum;
        let mut rooms: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
        let (mut light, mut heavy): (Vec<u32>, Vec<u32>) =
            (0..ranks).partition(|&rank| rooms[rank as usize] < 1.0);
        let full = |rank| AliasColumn {
            own: u32::MAX,
            other: rank,
        };
        let mut columns: Vec<AliasColumn> = (0..ranks).map(full).collect();
        while let (Some(rank), Some(&donor)) = (light.pop(), heavy.last()) {
            let own = rooms[rank as usize];
            columns[rank as usize] = AliasColumn {
                own: (own * 4_294_967_296.0) as u32,
                other: donor,
            };
            rooms[donor as usize] -= 1.0 - own;
            if rooms[donor as usize] < 1.0 {
                heavy.pop();
                light.push(donor);
            }
        }
        ZipfTable { columns }
    }

    /// The rank of 64 uniform bits.
    #[inline]
    pub(super) fn rank(&self, bits: u64) -> u32 {
        let at = (bits >> 32) as usize & (self.columns.len() - 1);
        let column = self.columns[at];
        if (bits as u32) < column.own {
            at as u32
        } else {
            column.other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::{Rng, StageId};

    #[test]
    fn frequencies_fall_as_one_over_the_rank() {
        let table = ZipfTable::new(1 << 10);
        let mut rng = Rng::new(3, StageId(0), 0, 0);
        let mut counts = vec![0u32; 1 << 10];
        const DRAWS: u32 = 1_000_000;
        for _ in 0..DRAWS {
            counts[table.rank(rng.next_u64()) as usize] += 1;
        }
        let sum: f64 = (1..=1024).map(|rank| 1.0 / f64::from(rank)).sum();
        for rank in [0, 1, 2, 9, 99] {
            let expected = f64::from(DRAWS) / sum / (rank + 1) as f64;
            let found = f64::from(counts[rank]);
            // Five standard deviations of a count.
            assert!(
                (found - expected).abs() < 5.0 * expected.sqrt(),
                "rank {rank}: {found} of {expected}"
            );
        }
    }
}
