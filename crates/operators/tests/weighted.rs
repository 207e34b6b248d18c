//! Kernels over rows that have weights: the same bits on every instruction set, and what whole weights mean, which is repeated rows.

use brambling_operators::ml::columns::{column_stats_block, gram_block};
use brambling_operators::ml::distances::{
    inertia, potentials_block, weighted_inertia, weighted_potentials_block,
};
use brambling_operators::ml::k_means_init::rows_by_weight;
use brambling_operators::ml::logistic::{ComputeLoss, Labelled, Linear, gradient_block_into};
use brambling_operators::ml::logistic_weighted::{weighted_gradient_block, weighted_gram_block};
use brambling_operators::ml::moments::weighted_stats_block;
use brambling_operators::ml::nearest::{
    CentreSums, Centres, members_block, weighted_members_block,
};
use brambling_operators::ml::softmax::{self, Classified, Linears};
use brambling_operators::simd::{self, Isa};

const SHAPES: [(usize, usize); 6] = [(1, 1), (7, 3), (8, 8), (61, 5), (200, 17), (300, 70)];

/// Numbers without a pattern.
fn numbers(count: usize, seed: usize) -> Vec<f64> {
    let number =
        |at: usize| ((at + 1) * (seed + 7) * 2_654_435_761 % 99_991) as f64 / 33_333.0 - 1.5;
    (0..count).map(number).collect()
}

struct Rows {
    x: Vec<f64>,
    y: Vec<f64>,
    weights: Vec<f64>,
    columns: usize,
}

/// Rows with whole weights, some of them zero.
fn rows((rows, columns): (usize, usize), classes: usize) -> Rows {
    Rows {
        x: numbers(rows * columns, 1),
        y: (0..rows).map(|row| (row * 5 % classes) as f64).collect(),
        weights: (0..rows).map(|row| ((row * 3 + 1) % 4) as f64).collect(),
        columns,
    }
}

/// As many of each row as it weighs.
fn repeated(rows: &Rows) -> Rows {
    let of = |row: usize| 0..rows.weights[row] as usize;
    let all = || (0..rows.y.len()).flat_map(|row| of(row).map(move |_| row));
    let x = all().flat_map(|row| &rows.x[row * rows.columns..][..rows.columns]);
    Rows {
        x: x.copied().collect(),
        y: all().map(|row| rows.y[row]).collect(),
        weights: Vec::new(),
        columns: rows.columns,
    }
}

fn near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let apart = (found - expected).abs();
        assert!(
            apart <= 1e-11 * (1.0 + expected.abs()),
            "{found} {expected}"
        );
    }
}

/// What every instruction set gives, bit for bit.
fn on_all(run: impl Fn(Isa) -> Vec<f64>) -> Vec<f64> {
    let expected = run(simd::detect());
    for isa in Isa::supported() {
        let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(run(isa)), bits(expected.clone()), "{isa}");
    }
    expected
}

#[test]
fn moments_of_weighted_rows() {
    for shape in SHAPES {
        let table = rows(shape, 2);
        let found = on_all(|isa| {
            let stats = weighted_stats_block(isa, &table.x, table.columns, &table.weights);
            [vec![stats.weight], stats.means, stats.squares].concat()
        });
        let many = repeated(&table);
        let stats = column_stats_block(simd::detect(), &many.x, table.columns);
        near(
            &found,
            &[vec![stats.weight], stats.means, stats.squares].concat(),
        );
    }
    // Weights that add up to nothing leave nothing; and none at all are those of today.
    let none = weighted_stats_block(simd::detect(), &[1.0, f64::NAN], 1, &[0.0, 0.0]);
    assert_eq!((none.weight, none.finite), (0.0, false));
    let x = numbers(90, 2);
    let unweighted = weighted_stats_block(simd::detect(), &x, 3, &[]);
    assert_eq!(unweighted, column_stats_block(simd::detect(), &x, 3));
}

#[test]
fn huge_weights_of_merged_moments_do_not_overflow() {
    let part = |x: &[f64]| weighted_stats_block(simd::detect(), x, 1, &[1e300, 1e300]);
    let mut stats = part(&[1.0, 3.0]);
    stats.merge(&part(&[5.0, 7.0]));
    near(
        &[stats.means[0], stats.squares[0] / stats.weight],
        &[4.0, 5.0],
    );
}

#[test]
fn gradients_of_two_classes() {
    for shape in SHAPES {
        let (table, weights) = (rows(shape, 2), numbers(shape.1, 3));
        let model = Linear {
            weights: &weights,
            intercept: 0.25,
        };
        let labelled = |x, y| Labelled {
            x,
            y,
            columns: shape.1,
        };
        let found = on_all(|isa| {
            let mut out = vec![f64::NAN; shape.1 + 2];
            let block = labelled(&table.x[..], &table.y[..]);
            weighted_gradient_block(isa, block, &table.weights, model, &mut out);
            out
        });
        let (many, mut out) = (repeated(&table), vec![0.0; shape.1 + 2]);
        let block = labelled(&many.x[..], &many.y[..]);
        gradient_block_into(simd::detect(), block, model, ComputeLoss::Summed, &mut out);
        near(&found, &out);
    }
}

#[test]
fn gradients_of_several_classes() {
    for shape in SHAPES {
        let (table, weights) = (rows(shape, 3), numbers(shape.1 * 3, 4));
        let model = Linears {
            weights: &weights,
            intercepts: &[0.5, 0.0, -0.25],
        };
        let classified = |x, y| Classified {
            x,
            y,
            columns: shape.1,
        };
        let found = on_all(|isa| {
            let mut out = vec![f64::NAN; 3 * shape.1 + 4];
            let block = classified(&table.x[..], &table.y[..]);
            softmax::weighted_gradient_block(isa, block, &table.weights, model, &mut out);
            out
        });
        let (many, mut out) = (repeated(&table), vec![0.0; 3 * shape.1 + 4]);
        let block = classified(&many.x[..], &many.y[..]);
        softmax::gradient_block(simd::detect(), block, model, &mut out);
        near(&found, &out);
    }
}

#[test]
fn logarithms_of_probabilities_add_up_to_one() {
    let margins = [0.5, -700.0, 2.0, 1e4, 0.0, -1e4, 0.0, 0.0, 0.0];
    let found = on_all(|isa| {
        let mut out = margins.to_vec();
        softmax::log_probabilities(isa, &mut out, 3);
        out
    });
    for row in found.chunks(3) {
        near(&[row.iter().map(|log| log.exp()).sum()], &[1.0]);
    }
    near(&found[4..6], &[-1e4, -2e4]);
    near(&found[6..], &[-(3.0_f64.ln()); 3]);
}

#[test]
fn gram_matrices() {
    for shape in SHAPES {
        let (table, order) = (rows(shape, 2), shape.1 + 1);
        let found = on_all(|isa| {
            let mut out = vec![f64::NAN; order * order];
            weighted_gram_block(isa, &table.x, &table.weights, shape.1, &mut out);
            out
        });
        let (many, mut out) = (repeated(&table), vec![0.0; order * order]);
        if !many.x.is_empty() {
            gram_block(simd::detect(), &many.x, shape.1, &mut out);
        }
        near(&found, &out);
    }
}

#[test]
fn members_of_centres() {
    for shape in SHAPES {
        let (table, values) = (rows(shape, 2), numbers(shape.1 * 5, 6));
        let sums = |members: &CentreSums| -> Vec<f64> {
            let of = |centre| members.sums(centre).chain([members.weight(centre)]);
            (0..5).flat_map(of).collect()
        };
        let of = |isa, x: &[f64], weights: Option<&[f64]>| {
            let (mut centres, mut members) = (Centres::default(), CentreSums::default());
            centres.prepare(isa, &values, shape.1);
            centres.sum_differences(true);
            match weights {
                Some(weights) => weighted_members_block(isa, x, weights, &centres, &mut members),
                None => members_block(isa, x, &centres, &mut members),
            }
            members
        };
        let found = on_all(|isa| sums(&of(isa, &table.x, Some(&table.weights))));
        let many = of(simd::detect(), &repeated(&table).x, None);
        near(&found, &sums(&many));
        // The pattern is that of the labels, whatever rows weigh.
        let isa = simd::detect();
        let weighted = of(isa, &table.x, Some(&table.weights));
        assert_eq!(weighted.pattern(), of(isa, &table.x, None).pattern());
        let mut twice = weighted.clone();
        twice.add(isa, &weighted);
        near(
            &sums(&twice),
            &sums(&weighted)
                .iter()
                .map(|sum| 2.0 * sum)
                .collect::<Vec<_>>(),
        );
    }
}

#[test]
fn potentials_and_inertia() {
    for shape in SHAPES {
        let (table, centres) = (rows(shape, 2), numbers(shape.1 * 3, 8));
        let near_by = vec![4.0; shape.0];
        let found = on_all(|isa| {
            let mut sums = Vec::new();
            let (x, weights) = (&table.x, &table.weights);
            weighted_potentials_block(isa, x, weights, shape.1, &centres, &near_by, &mut sums);
            sums
        });
        let (many, mut sums) = (repeated(&table), Vec::new());
        let near_many = vec![4.0; many.y.len()];
        potentials_block(
            simd::detect(),
            &many.x,
            shape.1,
            &centres,
            &near_many,
            &mut sums,
        );
        near(&found, &sums);
        let labels: Vec<u32> = (0..shape.0 as u32).map(|row| row % 3).collect();
        let by_hand = (0..shape.0).map(|row| {
            let one = |x: &[f64]| inertia(x, shape.1, &centres, &labels[row..=row]);
            table.weights[row] * one(&table.x[row * shape.1..][..shape.1])
        });
        let found = weighted_inertia(&table.x, &table.weights, shape.1, &centres, &labels);
        near(&[found], &[by_hand.sum()]);
    }
}

#[test]
fn rows_are_drawn_by_their_weights() {
    let mut met = [0; 4];
    for seed in 0..4_000 {
        let drawn = rows_by_weight(&[0.0, 1.0, 2.0, 5.0], 2, seed);
        assert_ne!(drawn[0], drawn[1]);
        met[drawn[0] as usize] += 1;
    }
    // 500, 1,000 and 2,500 are expected, with deviations of at most 31.
    assert_eq!(met[0], 0);
    for (met, expected) in met[1..].iter().zip([500.0, 1_000.0, 2_500.0]) {
        assert!((f64::from(*met) - expected).abs() < 130.0, "{met}");
    }
}
