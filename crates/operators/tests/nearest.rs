//! The nearest centres against a plain loop in the documented order, on every instruction set.

use brambling_operators::ml::nearest::{Centres, Members, labels_block, members_block};
use brambling_operators::simd::{self, Isa};
use proptest::collection::vec;
use proptest::prelude::*;

fn plain(x: &[f64], centres: &[f64], columns: usize) -> (Vec<u32>, Vec<f64>, Vec<u64>) {
    let count = centres.len() / columns;
    let (mut labels, mut sums) = (Vec::new(), vec![0.0; centres.len()]);
    let mut counts = vec![0; count];
    for row in x.chunks_exact(columns) {
        let score = |centre: &[f64]| {
            let square = centre.iter().fold(0.0f64, |sum, c| c.mul_add(*c, sum));
            let pairs = row.iter().zip(centre);
            pairs.fold(0.5 * square, |score, (x, c)| x.mul_add(-c, score))
        };
        let mut least = (f64::INFINITY, 0);
        for (index, centre) in centres.chunks_exact(columns).enumerate() {
            if score(centre) < least.0 {
                least = (score(centre), index);
            }
        }
        labels.push(least.1 as u32);
        counts[least.1] += 1;
        for (sum, x) in sums[least.1 * columns..][..columns].iter_mut().zip(row) {
            *sum += x;
        }
    }
    (labels, sums, counts)
}

fn bits(values: &[f64]) -> Vec<u64> {
    // Which NaN a sum becomes is the CPU's choice.
    let number = |x: &f64| if x.is_nan() { f64::NAN } else { *x };
    values.iter().map(|x| number(x).to_bits()).collect()
}

fn check(isa: Isa, x: &[f64], values: &[f64], columns: usize) {
    let (labels, sums, counts) = plain(x, values, columns);
    let mut centres = Centres::default();
    centres.prepare(isa, values, columns);
    let mut ours = vec![u32::MAX; labels.len()];
    labels_block(isa, x, &centres, &mut ours);
    assert_eq!(ours, labels, "{isa}");
    let mut members = Members::default();
    members_block(isa, x, &centres, &mut members);
    let found: Vec<f64> = (0..centres.count())
        .flat_map(|centre| members.sums(centre))
        .collect();
    assert_eq!(bits(&found), bits(&sums), "{isa}");
    assert_eq!(members.counts(), counts, "{isa}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn every_row_joins_its_nearest_centre_on_every_instruction_set(
        (columns, x, centres) in (1..70_usize, 0..60_usize, 1..40_usize).prop_flat_map(|(c, rows, k)| {
            (Just(c), vec(-3.0..3.0_f64, c * rows), vec(-3.0..3.0_f64, c * k))
        }),
    ) {
        for isa in [Isa::V2, Isa::V3, Isa::V4].into_iter().filter(|isa| *isa <= simd::detect()) {
            check(isa, &x, &centres, columns);
        }
    }
}

#[test]
fn of_equal_centres_the_first_is_taken() {
    // The second and the fourth are the same; so are all, for a row as far from each.
    let centres = [5.0, 5.0, 1.0, 1.0, 9.0, 9.0, 1.0, 1.0];
    for isa in [Isa::V2, Isa::V3, Isa::V4] {
        if isa <= simd::detect() {
            check(isa, &[1.0, 1.0, 0.5, 0.5, 5.0, 5.0], &centres, 2);
        }
    }
}

#[test]
fn a_score_that_is_no_number_is_passed_over() {
    // The first and the last centre's squares are infinite, and so are their products with this row.
    let centres = [1e200, 1e200, 2.0, 2.0, 1.0, 1.0, 1e200, 1e200];
    for isa in [Isa::V2, Isa::V3, Isa::V4] {
        if isa <= simd::detect() {
            check(isa, &[1e200, 1e200, 3.0, 3.0, f64::NAN, 0.0], &centres, 2);
        }
    }
}

/// Numbers for tables whose labels 32-bit scores do not tell, or tell wrongly.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    /// Within -1 and 1.
    fn unit(&mut self) -> f64 {
        self.below(1 << 53) as f64 / 2.0f64.powi(52) - 1.0
    }

    fn power(&mut self, least: i32, greatest: i32) -> f64 {
        2.0f64.powi(least + self.below((greatest - least + 1) as usize) as i32)
    }

    fn value(&mut self, kind: usize) -> f64 {
        match kind {
            0 => self.unit(),
            1 => self.unit() * self.power(-100, 100),
            2 => self.below(7) as f64 - 3.0,
            3 => f64::from(u8::from(self.below(8) == 0)),
            4 => 1000.0 + self.unit(),
            5 => self.unit() * self.power(55, 70),
            6 => self.unit() * self.power(-75, -55),
            7 => self.unit() * self.power(-1074, -1000),
            _ => [f64::NAN, f64::INFINITY, 1e200, 1e38, -0.0, 1e-40, 2.0, 3.0][self.below(8)],
        }
    }

    fn table(&mut self, kind: usize, values: usize) -> Vec<f64> {
        let scale = if kind < 5 { self.power(-50, 50) } else { 1.0 };
        let scale = if self.below(2) == 0 { 1.0 } else { scale };
        (0..values).map(|_| self.value(kind) * scale).collect()
    }

    /// Each next to the middle between two singles, where rounding to one is off the most.
    fn between_singles(&mut self, row: &mut [f64]) {
        let down = self.below(2) as u64;
        for x in row {
            let cut = x.to_bits() & !0x1fff_ffff;
            *x = f64::from_bits((cut | 0x1000_0000) - down);
        }
    }

    /// The same up to some bits, mostly of the last: in one place or in each.
    fn nudge(&mut self, row: &mut [f64]) {
        let (all, one) = (self.below(2) == 0, self.below(row.len()));
        for (at, x) in row.iter_mut().enumerate() {
            if all || at == one {
                let shift = [0, 1, 8, 24, 27, 28, 29, 30, 32][self.below(9)];
                let by = (self.below(5) as u64).wrapping_sub(2) << shift;
                *x = f64::from_bits(x.to_bits().wrapping_add(by));
            }
        }
    }

    /// Some centres become others, or nearly so.
    fn bring_together(&mut self, centres: &mut [f64], columns: usize) {
        let count = centres.len() / columns;
        for _ in 0..self.below(count + 1) {
            let (from, to) = (self.below(count) * columns, self.below(count) * columns);
            centres.copy_within(from..from + columns, to);
            match self.below(5) {
                0 => {}
                1 => self.between_singles(&mut centres[to..to + columns]),
                _ => self.nudge(&mut centres[to..to + columns]),
            }
        }
    }

    /// Some rows come to lie between two centres, or nearly so.
    fn between(&mut self, x: &mut [f64], centres: &[f64], columns: usize) {
        let count = centres.len() / columns;
        for row in x.chunks_exact_mut(columns) {
            let (one, other) = (self.below(count) * columns, self.below(count) * columns);
            match self.below(4) {
                0 => continue,
                1 => row.copy_from_slice(&centres[one..][..columns]),
                _ => {
                    for (at, x) in row.iter_mut().enumerate() {
                        *x = 0.5 * centres[one + at] + 0.5 * centres[other + at];
                    }
                }
            }
            match self.below(5) {
                0 => {}
                1 => self.between_singles(row),
                _ => self.nudge(row),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn near_ties_of_any_size_are_told_apart_as_doubles_do(
        (columns, rows, k) in (prop_oneof![1..9_usize, 1..70_usize], 0..200_usize, prop_oneof![1..30_usize, 1..131_usize]),
        (centre_kind, row_kind, seed, ties) in (0..9_usize, 0..9_usize, any::<u64>(), any::<[bool; 3]>()),
    ) {
        let mut numbers = Numbers(seed);
        let mut centres = numbers.table(centre_kind, k * columns);
        let row_kind = if ties[2] { centre_kind } else { row_kind };
        let mut x = numbers.table(row_kind, rows * columns);
        if ties[0] {
            numbers.bring_together(&mut centres, columns);
        }
        if ties[1] {
            numbers.between(&mut x, &centres, columns);
        }
        for isa in [Isa::V3, Isa::V4].into_iter().filter(|isa| *isa <= simd::detect()) {
            check(isa, &x, &centres, columns);
        }
    }
}
