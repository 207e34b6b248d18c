//! Randomness that depends on where it is used, never on who computes it.

use crate::{StageId, Turn};

/// Counter-based random numbers (Philox 4×32-10, Salmon et al., SC 2011), keyed by (seed, stage, turn,
/// row): the same numbers on any thread, worker or partition.
#[derive(Clone, Debug)]
pub struct Rng {
    key: [u32; 2],
    counter: [u32; 4],
    block: [u32; 4],
    used: usize,
}

impl Rng {
    /// The stream of one row (or partition, or block) at one position.
    pub fn new(seed: u64, stage: StageId, turn: Turn, row: u64) -> Rng {
        // The key mixes seed and place; the counter carries the row and the number of blocks drawn.
        let place = splitmix(seed ^ splitmix(u64::from(stage.0) ^ splitmix(turn)));
        Rng {
            key: [place as u32, (place >> 32) as u32],
            counter: [0, 0, row as u32, (row >> 32) as u32],
            block: [0; 4],
            used: 4,
        }
    }

    /// The same stream, so many times 2³⁴ words of 32 bits further on.
    pub(crate) fn far_on(mut self, times: u32) -> Rng {
        self.counter[1] = self.counter[1].wrapping_add(times);
        self
    }

    /// 32 uniform bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            // A block is a function of key and counter alone: whoever draws, and when, changes
            // nothing.
            self.block = philox(self.counter, self.key);
            self.counter[0] = self.counter[0].wrapping_add(1);
            // The carry goes into the second word; the row has the last two.
            self.counter[1] = self.counter[1].wrapping_add(u32::from(self.counter[0] == 0));
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) | u64::from(self.next_u32()) << 32
    }

    /// Uniform in [0, 1), a multiple of 2⁻⁵³.
    pub fn next_f64(&mut self) -> f64 {
        // 53 bits, as many as the significand of a double has: each result is exact.
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `0..bound`, without bias. `bound` must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a number below 0 was asked for");
        // Lemire's method: reject the few low products that would favour some results.
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            // 2⁶⁴ modulo the bound is how many low products are left over.
            if product as u64 >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }
}

fn splitmix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    // Ten rounds, as published (Philox4x32-10).
    for _ in 0..10 {
        let first = u64::from(counter[0]) * 0xd251_1f53;
        let second = u64::from(counter[2]) * 0xcd9e_8d57;
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [
            key[0].wrapping_add(0x9e37_79b9),
            key[1].wrapping_add(0xbb67_ae85),
        ];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, Position};

    #[test]
    fn philox_agrees_with_the_published_vectors() {
        // Random123's known-answer tests.
        assert_eq!(
            philox([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
    }

    #[test]
    fn streams_differ_by_each_part_of_their_key() {
        let first = |seed, stage, turn, row| Rng::new(seed, StageId(stage), turn, row).next_u64();
        let base = first(1, 2, 3, 4);
        assert_eq!(base, first(1, 2, 3, 4));
        for other in [
            first(2, 2, 3, 4),
            first(1, 3, 3, 4),
            first(1, 2, 4, 4),
            first(1, 2, 3, 5),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn a_kernel_that_asks_again_gets_further_numbers() {
        let cancel = std::sync::atomic::AtomicBool::new(false);
        let completion = |_| unreachable!("nobody waits");
        let budget = brambling_memory::Budget::unlimited();
        let mut context = Context::new(4, 5, 1, &cancel, &completion, &budget);
        let at = |turn| Position {
            stage: StageId(2),
            turn,
        };
        let first = Rng::new(1, StageId(2), 3, 4).next_u64();
        context.enter(at(3));
        let asked: Vec<u64> = (0..3).map(|_| context.rng().next_u64()).collect();
        assert_eq!(asked[0], first);
        assert!(asked[0] != asked[1] && asked[1] != asked[2] && asked[0] != asked[2]);
        assert_eq!(context.rng_of_row(4).next_u64(), first);
        // The next call of a kernel begins anew, also where it is the same task's.
        context.enter(at(3));
        let again: Vec<u64> = (0..3).map(|_| context.rng().next_u64()).collect();
        assert_eq!(again, asked);
    }

    #[test]
    fn below_stays_below() {
        let mut rng = Rng::new(9, StageId(0), 0, 0);
        let mut seen = [0u32; 7];
        for _ in 0..7_000 {
            seen[rng.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| count > 800), "{seen:?}");
    }
}
