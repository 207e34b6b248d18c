//! Distances against a plain loop in the documented order, on every instruction set.

use brambling_operators::ml::distances::{distances, inertia, join_block, potentials_block};
use brambling_operators::ml::nearest::labels;
use brambling_operators::simd::{self, Isa};
use proptest::collection::vec;
use proptest::prelude::*;

fn square(row: &[f64], centre: &[f64]) -> f64 {
    let pairs = row.iter().zip(centre);
    pairs.fold(0.0, |sum, (x, c)| sum + (x - c) * (x - c))
}

/// Squared distances of each row to each centre.
fn plain(x: &[f64], centres: &[f64], columns: usize) -> Vec<Vec<f64>> {
    let squares = |row| centres.chunks(columns).map(|c| square(row, c)).collect();
    x.chunks(columns).map(squares).collect()
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|x| x.to_bits()).collect()
}

fn check(isa: Isa, x: &[f64], centres: &[f64], columns: usize) {
    let squares = plain(x, centres, columns);
    let roots: Vec<f64> = squares.concat().iter().map(|x| x.sqrt()).collect();
    assert_eq!(
        bits(&distances(isa, x, columns, centres)),
        bits(&roots),
        "{isa}"
    );

    let mut near = vec![f64::INFINITY; squares.len()];
    join_block(isa, x, &centres[..columns], &mut near);
    let first: Vec<f64> = squares.iter().map(|squares| squares[0]).collect();
    assert_eq!(bits(&near), bits(&first), "{isa}");

    let mut sums = Vec::new();
    potentials_block(isa, x, columns, centres, &near, &mut sums);
    let expected: Vec<f64> = (0..centres.len() / columns)
        .map(|centre| {
            let mut lanes = [0.0; 8];
            for (row, squares) in squares.iter().enumerate() {
                lanes[row % 8] += squares[centre].min(squares[0]);
            }
            lanes[1..].iter().fold(lanes[0], |sum, lane| sum + lane)
        })
        .collect();
    assert_eq!(bits(&sums), bits(&expected), "{isa}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn distances_are_those_of_a_plain_loop_on_every_instruction_set(
        (columns, x, centres) in (1..70_usize, 0..60_usize, 1..20_usize).prop_flat_map(|(c, rows, k)| {
            (Just(c), vec(-3.0..3.0_f64, c * rows), vec(-3.0..3.0_f64, c * k))
        }),
    ) {
        for isa in [Isa::V2, Isa::V3, Isa::V4].into_iter().filter(|isa| *isa <= simd::detect()) {
            check(isa, &x, &centres, columns);
        }
    }

    #[test]
    fn inertia_is_the_sum_of_the_least_squares(
        (columns, x, centres) in (1..30_usize, 0..60_usize, 1..20_usize).prop_flat_map(|(c, rows, k)| {
            (Just(c), vec(-3.0..3.0_f64, c * rows), vec(-3.0..3.0_f64, c * k))
        }),
    ) {
        let labels = labels(simd::detect(), &x, columns, &centres);
        let found = inertia(&x, columns, &centres, &labels);
        let squares = plain(&x, &centres, columns);
        let expected: f64 = squares.iter().map(|s| s.iter().copied().fold(f64::INFINITY, f64::min)).sum();
        prop_assert!((found - expected).abs() <= 1e-9 * expected.max(1.0), "{} {}", found, expected);
    }
}
