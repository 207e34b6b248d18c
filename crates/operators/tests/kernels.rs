//! Kernels against plain loops that follow the documented order, and against mathematics.
//!
//! The loops share the sigmoid and the softplus with the kernels (`functions.rs` answers for those)
//! and nothing else. They cannot catch a wrong order that is documented wrongly too.

use brambling_operators::grid::{Edge, LifeStep, Strip, heat_step, life_step};
use brambling_operators::ml::columns::{
    ColumnStats, column_stats_block, gram_block, largest_eigenvalue_bound, logistic_curvature_bound,
};
use brambling_operators::ml::logistic::{
    ComputeLoss, Labelled, Linear, Partial, gradient_block, margins_block,
};
use brambling_operators::numerics;
use brambling_operators::simd::{self, Isa};
use proptest::collection::vec;
use proptest::prelude::*;

fn newest() -> Isa {
    simd::detect()
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|x| x.to_bits()).collect()
}

fn halved(lanes: [f64; 8]) -> f64 {
    let fours: Vec<f64> = (0..4).map(|i| lanes[i] + lanes[i + 4]).collect();
    (fours[0] + fours[2]) + (fours[1] + fours[3])
}

fn plain_margin(row: &[f64], weights: &[f64], intercept: f64) -> f64 {
    let mut lanes = [0.0; 8];
    for (column, (x, w)) in row.iter().zip(weights).enumerate() {
        let lane = &mut lanes[column % 8];
        *lane = if column < 8 {
            x * w
        } else {
            x.mul_add(*w, *lane)
        };
    }
    halved(lanes) + intercept
}

/// When a row's group of eight is taken: those of the first half at even places, those of the second between them.
fn place(group: usize, groups: usize) -> usize {
    let half = groups / 2;
    match group / half.max(1) {
        0 if half > 0 => 2 * group,
        1 if half > 0 => 2 * (group - half) + 1,
        _ => group,
    }
}

fn plain_gradient(block: Labelled<'_>, model: Linear<'_>) -> Vec<f64> {
    let mut gradient = vec![0.0; block.columns];
    let mut residuals = [0.0; 8];
    let mut losses = [0.0; 8];
    let mut taken: Vec<usize> = (0..block.y.len()).collect();
    taken.sort_by_key(|row| place(row / 8, block.y.len() / 8));
    for index in taken {
        let (row, y) = (
            &block.x[index * block.columns..][..block.columns],
            block.y[index],
        );
        let z = [plain_margin(row, model.weights, model.intercept)];
        let (mut p, mut loss) = ([0.0], [0.0]);
        numerics::sigmoid(Isa::V2, &z, &mut p);
        numerics::log_loss(Isa::V2, &z, &[y], &mut loss);
        let residual = p[0] - y;
        residuals[index % 8] += residual;
        losses[index % 8] += loss[0];
        for (gradient, x) in gradient.iter_mut().zip(row) {
            *gradient = x.mul_add(residual, *gradient);
        }
    }
    gradient.extend([halved(residuals), halved(losses)]);
    gradient
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn gradient_follows_its_order(
        (columns, rows, x) in (1..70_usize, 0..60_usize)
            .prop_flat_map(|(c, r)| (Just(c), Just(r), vec(-3.0..3.0_f64, c * r))),
        weights in vec(-1.0..1.0_f64, 70),
        labels in vec(0..2_u8, 60),
    ) {
        let y: Vec<f64> = labels[..rows].iter().map(|&y| f64::from(y)).collect();
        let block = Labelled { x: &x, y: &y, columns };
        let model = Linear { weights: &weights[..columns], intercept: 0.125 };
        let mut out = Partial::new(columns);
        gradient_block(newest(), block, model, ComputeLoss::Summed, &mut out);
        prop_assert_eq!(bits(out.values()), bits(&plain_gradient(block, model)));

        let mut margins = vec![0.0; rows];
        margins_block(newest(), &x, model, &mut margins);
        let expected: Vec<f64> =
            x.chunks(columns).map(|row| plain_margin(row, model.weights, model.intercept)).collect();
        prop_assert_eq!(bits(&margins), bits(&expected));
    }

    #[test]
    fn gram_adds_rows_in_order((columns, x) in (1..40_usize, 0..40_usize)
        .prop_flat_map(|(c, r)| (Just(c), vec(-3.0..3.0_f64, c * r)))) {
        let order = columns + 1;
        let mut expected = vec![0.0_f64; order * order];
        for row in x.chunks(columns) {
            let row: Vec<f64> = row.iter().copied().chain([1.0]).collect();
            for (index, entry) in expected.iter_mut().enumerate() {
                *entry = row[index / order].mul_add(row[index % order], *entry);
            }
        }
        let mut gram = vec![f64::NAN; order * order];
        gram_block(newest(), &x, columns, &mut gram);
        prop_assert_eq!(bits(&gram), bits(&expected));
    }

    /// vᵀGv ÷ vᵀv is at most the largest eigenvalue, and power iteration comes near it.
    #[test]
    fn eigenvalue_bound_holds_and_is_tight((columns, x) in (1..30_usize, 1..40_usize)
        .prop_flat_map(|(c, r)| (Just(c), vec(-3.0..3.0_f64, c * r)))) {
        let order = columns + 1;
        let mut gram = vec![0.0; order * order];
        gram_block(newest(), &x, columns, &mut gram);
        let bound = largest_eigenvalue_bound(newest(), &gram, order);
        let mut v: Vec<f64> = (0..order).map(|i| 1.0 + i as f64 * 0.01).collect();
        let mut rayleigh = 0.0;
        for _ in 0..300 {
            let next: Vec<f64> = gram.chunks(order).map(|row| dot(row, &v)).collect();
            rayleigh = dot(&next, &v) / dot(&v, &v);
            let norm = dot(&next, &next).sqrt();
            v = next.iter().map(|x| x / norm).collect();
        }
        prop_assert!(bound >= rayleigh, "{bound} < {rayleigh}");
        prop_assert!(bound <= rayleigh * 1.08, "{bound} > {rayleigh}");
        let curvature = logistic_curvature_bound(newest(), &gram, columns, 2.0);
        prop_assert!((curvature - (1.0 + 0.5 * bound)).abs() <= 1e-9 * curvature);
    }

    #[test]
    fn column_stats_merge_to_those_of_the_whole((columns, x) in (1..30_usize, 0..50_usize)
        .prop_flat_map(|(c, r)| (Just(c), vec(99.0..101.0_f64, c * r))), cut in 0..50_usize) {
        let rows = x.len() / columns;
        let (head, tail) = x.split_at(cut.min(rows) * columns);
        let mut merged = column_stats_block(newest(), head, columns);
        merged.merge(&column_stats_block(newest(), tail, columns));
        let whole = column_stats_block(newest(), &x, columns);
        prop_assert_eq!(merged.weight, rows as f64);
        for column in 0..columns {
            let values: Vec<f64> = x.chunks(columns).map(|row| row[column]).collect();
            let mean = values.iter().sum::<f64>() / rows.max(1) as f64;
            let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
            for stats in [&merged, &whole] {
                prop_assert!((stats.means[column] - mean).abs() < 1e-11);
                prop_assert!((stats.squares[column] - squares).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn strips_of_any_height_give_the_same_field(
        columns in 1..40_usize, rows in 2..8_usize, cut in 1..8_usize,
        field in vec(-9.0..9.0_f64, 40 * 8), cells in vec(0..2_u8, 40 * 8), wrap in any::<bool>(),
    ) {
        let (field, cells) = (&field[..columns * rows], &cells[..columns * rows]);
        let cut = cut.min(rows - 1);
        let (edge, cell_edge) =
            if wrap { (Edge::Wrap, Edge::Wrap) } else { (Edge::Held(1.0), Edge::Held(1)) };

        let (whole, change) = step_heat(field, columns, edge, 0..rows);
        let (mut parts, first) = step_heat(field, columns, edge, 0..cut);
        let (second_part, second) = step_heat(field, columns, edge, cut..rows);
        parts.extend(second_part);
        prop_assert_eq!(bits(&whole), bits(&parts));
        prop_assert_eq!(change, first.max(second));
        prop_assert_eq!(bits(&whole), bits(&plain_heat(field, columns, edge)));

        let (whole, step) = step_life(cells, columns, cell_edge, 0..rows);
        let (mut parts, first) = step_life(cells, columns, cell_edge, 0..cut);
        let (second_part, second) = step_life(cells, columns, cell_edge, cut..rows);
        parts.extend(second_part);
        prop_assert_eq!(&whole, &parts);
        prop_assert_eq!(step.alive, first.alive + second.alive);
        prop_assert_eq!(step.changed, first.changed || second.changed);
        let expected = plain_life(cells, columns, cell_edge);
        prop_assert_eq!(step.alive, expected.iter().map(|&cell| u64::from(cell)).sum::<u64>());
        prop_assert_eq!(step.changed, expected != cells);
        prop_assert_eq!(whole, expected);
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Some rows of a grid as a strip; beyond the grid lies what `edge` says.
fn with_strip<T: Copy, R>(
    grid: &[T],
    columns: usize,
    edge: Edge<T>,
    rows: std::ops::Range<usize>,
    run: impl FnOnce(Strip<'_, T>) -> R,
) -> R {
    let height = grid.len() / columns;
    let row = |index: isize| -> Vec<T> {
        (0..columns as isize)
            .map(|column| at(grid, columns, edge, index, column))
            .collect()
    };
    assert!(rows.end <= height);
    let (above, below) = (row(rows.start as isize - 1), row(rows.end as isize));
    let cells = &grid[rows.start * columns..rows.end * columns];
    run(Strip {
        above: &above,
        cells,
        below: &below,
        edge,
    })
}

fn step_heat(
    field: &[f64],
    columns: usize,
    edge: Edge<f64>,
    rows: std::ops::Range<usize>,
) -> (Vec<f64>, f64) {
    let mut new = vec![0.0; rows.len() * columns];
    let change = with_strip(field, columns, edge, rows, |strip| {
        heat_step(newest(), strip, 0.2, &mut new)
    });
    (new, change)
}

fn step_life(
    cells: &[u8],
    columns: usize,
    edge: Edge<u8>,
    rows: std::ops::Range<usize>,
) -> (Vec<u8>, LifeStep) {
    let mut new = vec![0; rows.len() * columns];
    let step = with_strip(cells, columns, edge, rows, |strip| {
        life_step(newest(), strip, &mut new)
    });
    (new, step)
}

fn at<T: Copy>(grid: &[T], columns: usize, edge: Edge<T>, row: isize, column: isize) -> T {
    let (height, width) = ((grid.len() / columns) as isize, columns as isize);
    let inside = (0..height).contains(&row) && (0..width).contains(&column);
    match edge {
        Edge::Held(value) if !inside => value,
        _ => grid[(row.rem_euclid(height) * width + column.rem_euclid(width)) as usize],
    }
}

fn plain_heat(field: &[f64], columns: usize, edge: Edge<f64>) -> Vec<f64> {
    let cell = |index: usize| {
        let (row, column) = ((index / columns) as isize, (index % columns) as isize);
        let near = |down, right| at(field, columns, edge, row + down, column + right);
        let around = (near(-1, 0) + near(1, 0)) + (near(0, -1) + near(0, 1));
        0.2_f64.mul_add((-4.0_f64).mul_add(field[index], around), field[index])
    };
    (0..field.len()).map(cell).collect()
}

fn plain_life(cells: &[u8], columns: usize, edge: Edge<u8>) -> Vec<u8> {
    let cell = |index: usize| {
        let (row, column) = ((index / columns) as isize, (index % columns) as isize);
        let mut around = 0;
        for (down, right) in [
            (-1, -1),
            (-1, 0),
            (-1, 1),
            (0, -1),
            (0, 1),
            (1, -1),
            (1, 0),
            (1, 1),
        ] {
            around += at(cells, columns, edge, row + down, column + right);
        }
        u8::from(around == 3 || (around == 2 && cells[index] == 1))
    };
    (0..cells.len()).map(cell).collect()
}

#[test]
fn a_block_of_no_rows() {
    let mut out = Partial::new(3);
    out.values_mut().fill(7.0);
    let model = Linear {
        weights: &[1.0, 2.0, 3.0],
        intercept: 0.5,
    };
    let block: Labelled<'_> = Labelled {
        x: &[],
        y: &[],
        columns: 3,
    };
    gradient_block(newest(), block, model, ComputeLoss::Summed, &mut out);
    assert_eq!(out, Partial::new(3));
    assert_eq!(
        column_stats_block::<f64>(newest(), &[], 3),
        ColumnStats::new(3)
    );
}

#[test]
fn loss_is_exact_far_from_the_boundary() {
    // Margins of 800 overflow e^z; the loss there is the margin, and −0.0 must not appear.
    let mut out = Partial::new(1);
    let block = Labelled {
        x: &[800.0, -800.0],
        y: &[0.0, 0.0],
        columns: 1,
    };
    gradient_block(
        newest(),
        block,
        Linear {
            weights: &[1.0],
            intercept: 0.0,
        },
        ComputeLoss::Summed,
        &mut out,
    );
    assert_eq!(
        (out.loss(), out.intercept_gradient(), out.gradient()),
        (800.0, 1.0, &[800.0][..])
    );
}

#[test]
fn nan_and_infinity_are_seen() {
    let mut stats = column_stats_block(newest(), &[1.0, f64::INFINITY], 1);
    assert!(!stats.finite);
    stats.merge(&column_stats_block(newest(), &[1.0], 1));
    assert!(!stats.finite);
    // A sum of squares that overflows is not a value that is not finite.
    assert!(column_stats_block(newest(), &[1e200, -1e200], 1).finite);
    assert!(largest_eigenvalue_bound(newest(), &[f64::NAN], 1).is_nan());
    assert_eq!(largest_eigenvalue_bound(newest(), &[0.0; 4], 2), 0.0);
}

#[test]
fn extremes_order_zeros_and_spread_nan() {
    for isa in Isa::supported() {
        assert_eq!(
            numerics::min(isa, &[0.0, -0.0]).map(f64::to_bits),
            Some((-0.0_f64).to_bits())
        );
        assert_eq!(
            numerics::max(isa, &[-0.0, 0.0]).map(f64::to_bits),
            Some(0.0_f64.to_bits())
        );
        assert_eq!(
            numerics::max(isa, &[-2.0, -3.0, f64::NEG_INFINITY]),
            Some(-2.0)
        );
        assert_eq!(
            numerics::min(isa, &[-2.0_f32, 3.0, f32::INFINITY]),
            Some(-2.0)
        );
        let mut x = vec![1.0; 100];
        x[97] = -f64::NAN;
        let nan = Some(numerics::CANONICAL_NAN.to_bits());
        assert_eq!(numerics::max(isa, &x).map(f64::to_bits), nan);
        assert_eq!(numerics::min(isa, &x).map(f64::to_bits), nan);
        assert_eq!(numerics::max::<f64>(isa, &[]), None);
        assert_eq!(numerics::sum(isa, &[-0.0_f64]).to_bits(), 0);
    }
}

/// Kept results: a change to the order of any sum, on all instruction sets at once, shows here.
#[test]
fn golden_gradient() {
    let columns = 20;
    let x: Vec<f64> = (0..columns * 37)
        .map(|i| ((i * i % 101) as f64 - 50.0) / 16.1)
        .collect();
    let y: Vec<f64> = (0..37).map(|i| f64::from(i % 3 == 0)).collect();
    let weights: Vec<f64> = (0..columns).map(|i| (i as f64 - 9.5) / 31.0).collect();
    let mut out = Partial::new(columns);
    let model = Linear {
        weights: &weights,
        intercept: 0.3,
    };
    gradient_block(
        newest(),
        Labelled {
            x: &x,
            y: &y,
            columns,
        },
        model,
        ComputeLoss::Summed,
        &mut out,
    );
    let digest = xxhash_rust::xxh3::xxh3_64(
        &out.values()
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect::<Vec<u8>>(),
    );
    assert_eq!(digest, 6_630_716_119_858_820_993, "{:?}", out.values());
}
