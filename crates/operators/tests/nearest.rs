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
    values.iter().map(|x| x.to_bits()).collect()
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
