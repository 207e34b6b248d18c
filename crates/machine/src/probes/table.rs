//! How fast memory answers in no order: independent reads at random places of a table.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::crew;

// Independent chains of places, so that none waits for the step of another.
const CHAINS: usize = 4;
// Reads between two looks at the clock.
const BATCH: usize = 1 << 14;
// Knuth's multiplier for 64 bits (MMIX). The upper bits, which choose the place, are good.
const FACTOR: u64 = 6_364_136_223_846_793_005;
const TERM: u64 = 1_442_695_040_888_963_407;

/// How many reads of eight bytes per second one thread per entry of `places`, pinned, does together at random places of `table`, for at least
/// `least` of time. No read waits for the one before: as many are under way as the CPU keeps.
///
/// # Panics
/// When the table's length is no power of two, or one.
pub fn random_accesses_per_s(table: &[u64], places: &[usize], least: Duration) -> f64 {
    assert!(table.len().is_power_of_two() && table.len() > 1);
    let rates = crew::run(places, |member| {
        let seed = |chain: usize| (1 + member.index() * CHAINS + chain) as u64;
        let mut states: [u64; CHAINS] = std::array::from_fn(|chain| seed(chain).wrapping_mul(TERM));
        // Brings the table into those caches that hold it.
        black_box(walk(table, &mut states));
        member.barrier();
        let begin = Instant::now();
        let mut accesses = 0;
        loop {
            black_box(walk(table, &mut states));
            accesses += BATCH;
            let elapsed = begin.elapsed();
            if elapsed >= least {
                return accesses as f64 / elapsed.as_secs_f64();
            }
        }
    });
    rates.iter().sum()
}

/// One batch; the sum of what was read.
fn walk(table: &[u64], states: &mut [u64; CHAINS]) -> u64 {
    let shift = u64::BITS - table.len().ilog2();
    let mut sums = [0u64; CHAINS];
    let mut chains = *states;
    for _ in 0..BATCH / CHAINS {
        for (state, sum) in chains.iter_mut().zip(&mut sums) {
            *state = state.wrapping_mul(FACTOR).wrapping_add(TERM);
            *sum = sum.wrapping_add(table[(*state >> shift) as usize]);
        }
    }
    *states = chains;
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::places;

    #[test]
    fn places_are_spread_over_the_whole_table() {
        // Each read takes one bit of a place's number: all come, about equally often.
        let table: Vec<u64> = (0..256).map(|place| u64::from(place >= 128)).collect();
        let mut states = [1, 2, 3, 4];
        let upper = walk(&table, &mut states) as usize;
        assert!(upper.abs_diff(BATCH / 2) < BATCH / 20, "{upper} of {BATCH}");
        for quarter in 0..4 {
            let one: Vec<u64> = (0..256)
                .map(|place| u64::from(place / 64 == quarter))
                .collect();
            let hits = walk(&one, &mut states) as usize;
            assert!(hits.abs_diff(BATCH / 4) < BATCH / 20, "{hits} of {BATCH}");
        }
    }

    #[test]
    fn reads_take_time() {
        let table = vec![1; 1 << 12];
        let places = places(2).unwrap();
        let rate = random_accesses_per_s(&table, &places, Duration::from_millis(2));
        assert!(rate > 1e5 && rate.is_finite(), "{rate}");
    }
}
