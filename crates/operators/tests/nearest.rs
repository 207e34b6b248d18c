//! The nearest centres against a plain loop in the documented order, on every instruction set.

use brambling_operators::ml::nearest::{CentreSums, Centres, labels_block, members_block};
use brambling_operators::simd::{self, Isa};
use proptest::collection::vec;
use proptest::prelude::*;

/// Labels, sums of rows, sums of their differences from their centres, and counts.
struct Found {
    labels: Vec<u32>,
    sums: Vec<f64>,
    differences: Vec<f64>,
    counts: Vec<u64>,
}

fn plain(x: &[f64], centres: &[f64], columns: usize) -> Found {
    let count = centres.len() / columns;
    let mut found = Found {
        labels: Vec::new(),
        sums: vec![0.0; centres.len()],
        differences: vec![0.0; centres.len()],
        counts: vec![0; count],
    };
    for row in x.chunks_exact(columns) {
        let square = |centre: &[f64]| {
            let pairs = row.iter().zip(centre);
            pairs.fold(0.0, |sum, (x, c)| sum + (x - c) * (x - c))
        };
        let mut least = (f64::INFINITY, 0);
        for (index, centre) in centres.chunks_exact(columns).enumerate() {
            if square(centre) < least.0 {
                least = (square(centre), index);
            }
        }
        found.labels.push(least.1 as u32);
        found.counts[least.1] += 1;
        let start = least.1 * columns;
        for (at, x) in row.iter().enumerate() {
            found.sums[start + at] += x;
            found.differences[start + at] += x - centres[start + at];
        }
    }
    found
}

fn bits(values: &[f64]) -> Vec<u64> {
    // Which NaN a sum becomes is the CPU's choice.
    let number = |x: &f64| if x.is_nan() { f64::NAN } else { *x };
    values.iter().map(|x| number(x).to_bits()).collect()
}

fn check(isa: Isa, x: &[f64], values: &[f64], columns: usize) -> u64 {
    let right = plain(x, values, columns);
    let mut centres = Centres::default();
    centres.prepare(isa, values, columns);
    let mut ours = vec![u32::MAX; right.labels.len()];
    labels_block(isa, x, &centres, &mut ours);
    assert_eq!(ours, right.labels, "{isa}");
    let mut members = CentreSums::default();
    let mut patterns = Vec::new();
    for (differences, sums) in [(true, &right.differences), (false, &right.sums)] {
        centres.sum_differences(differences);
        members_block(isa, x, &centres, &mut members);
        let found: Vec<f64> = (0..centres.count())
            .flat_map(|centre| members.sums(centre))
            .collect();
        assert_eq!(bits(&found), bits(sums), "{isa}");
        assert_eq!(members.counts(), right.counts, "{isa}");
        patterns.push(members.pattern());
    }
    assert_eq!(patterns[0], patterns[1]);
    patterns[0]
}

/// Checks every instruction set there is.
fn check_all(x: &[f64], values: &[f64], columns: usize) {
    let patterns: Vec<u64> = Isa::supported()
        .map(|isa| check(isa, x, values, columns))
        .collect();
    assert!(patterns.iter().all(|other| *other == patterns[0]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn every_row_joins_its_nearest_centre_on_every_instruction_set(
        (columns, x, centres) in (1..70_usize, 0..60_usize, 1..40_usize).prop_flat_map(|(c, rows, k)| {
            (Just(c), vec(-3.0..3.0_f64, c * rows), vec(-3.0..3.0_f64, c * k))
        }),
    ) {
        check_all(&x, &centres, columns);
    }
}

#[test]
fn of_equal_centres_the_first_is_taken() {
    // The second and the fourth are the same; so are all, for a row as far from each.
    let centres = [5.0, 5.0, 1.0, 1.0, 9.0, 9.0, 1.0, 1.0];
    check_all(&[1.0, 1.0, 0.5, 0.5, 5.0, 5.0], &centres, 2);
}

#[test]
fn a_score_that_is_no_number_hides_no_centre() {
    // The first and the last centre's squares are infinite, and so are their products with the first row.
    let centres = [1e200, 1e200, 2.0, 2.0, 1.0, 1.0, 1e200, 1e200];
    check_all(&[1e200, 1e200, 3.0, 3.0, f64::NAN, 0.0], &centres, 2);
}

#[test]
fn rows_far_from_the_origin_are_told_apart() {
    // Squares of 10²⁴, of which a score keeps 10⁸: more than what the centres are apart.
    let centres: Vec<f64> = (0..12).map(|at| 1e12 + f64::from(at % 7) * 0.25).collect();
    let x: Vec<f64> = (0..400)
        .map(|at| 1e12 + f64::from(at % 11) * 0.125)
        .collect();
    for columns in [1, 2, 4] {
        check_all(&x, &centres, columns);
    }
}

#[test]
fn a_label_more_or_less_changes_the_pattern() {
    let pattern = |x: &[f64]| check(simd::detect(), x, &[0.0, 1.0, 2.0], 1);
    let mut x: Vec<f64> = (0..203).map(|at| f64::from(at % 3)).collect();
    let mut patterns = vec![pattern(&x)];
    for at in 0..x.len() {
        x[at] = (x[at] + 1.0) % 3.0;
        patterns.push(pattern(&x));
    }
    for at in 8..x.len() {
        x.swap(at, at - 8);
        patterns.push(pattern(&x));
        x.swap(at, at - 8);
    }
    // Rows that are swapped with their like.
    let same = x.windows(9).filter(|nine| nine[0] == nine[8]).count();
    patterns.sort_unstable();
    patterns.dedup();
    assert_eq!(patterns.len(), 204 + (203 - 8) - same);
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
        far in prop_oneof![3 => Just(0.0), 1 => -1e3..1e3_f64, 1 => Just(1e8), 1 => Just(-1e12)],
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
        for value in x.iter_mut().chain(&mut centres) {
            *value += far;
        }
        check_all(&x, &centres, columns);
    }
}
