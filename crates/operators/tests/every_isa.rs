//! Each kernel gives the same bits on every instruction set that this CPU has.

use std::fmt::Debug;

use brambling_operators::graph::blocked_edges::{Bin, BlockedEdges};
use brambling_operators::graph::vertex_cut::SlotEdge;
use brambling_operators::grid::{Edge, Strip, heat_step, life_step};
use brambling_operators::ml::columns::{
    all_finite_block, column_stats_block, gram_block, logistic_curvature_bound,
};
use brambling_operators::ml::logistic::{
    ComputeLoss, Labelled, Linear, Partial, gradient_block, margins_block,
};
use brambling_operators::numerics;
use brambling_operators::simd::Isa;
use proptest::collection::vec;
use proptest::prelude::*;

/// Compares what `run` gives on each instruction set with what it gives on the first.
fn same<T: PartialEq + Debug>(run: impl Fn(Isa) -> T) -> T {
    let expected = run(Isa::V2);
    for isa in Isa::supported() {
        assert_eq!(run(isa), expected, "{isa}");
    }
    expected
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Any bits at all, and numbers of ordinary size.
fn number() -> impl Strategy<Value = f64> + Clone {
    prop_oneof![
        1 => any::<u64>().prop_map(f64::from_bits),
        6 => -4.0..4.0_f64,
        2 => -800.0..800.0_f64,
        1 => prop_oneof![Just(0.0), Just(-0.0), Just(-1.0), Just(1.0)],
    ]
}

/// Mostly numbers that keep sums finite, so that a comparison is not one of NaNs.
fn tame() -> impl Strategy<Value = f64> + Clone {
    prop_oneof![12 => -3.0..3.0_f64, 1 => -1e-300..1e-300_f64, 1 => Just(-0.0), 1 => -1e9..1e9_f64]
}

fn matrix() -> impl Strategy<Value = (usize, Vec<f64>, bool)> {
    (1..70_usize, 0..70_usize, any::<bool>()).prop_flat_map(|(columns, rows, wild)| {
        let values = if wild {
            number().boxed()
        } else {
            tame().boxed()
        };
        (Just(columns), vec(values, columns * rows), Just(wild))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn functions(x in vec(number(), 0..200), y in vec(0..2_u8, 200)) {
        let y: Vec<f64> = y[..x.len()].iter().map(|&y| f64::from(y)).collect();
        for kernel in [numerics::exp, numerics::log1p, numerics::sigmoid, numerics::softplus] {
            same(|isa| {
                let mut out = vec![0.0; x.len()];
                kernel(isa, &x, &mut out);
                bits(&out)
            });
        }
        same(|isa| {
            let mut out = vec![0.0; x.len()];
            numerics::log_loss(isa, &x, &y, &mut out);
            bits(&out)
        });
    }

    #[test]
    fn reductions(x in vec(number(), 0..300), y in vec(number(), 300), seeds in vec(any::<u64>(), 0..300)) {
        let floats: Vec<f32> = seeds.iter().map(|&s| f32::from_bits(s as u32)).collect();
        let tame: Vec<f32> = seeds.iter().map(|&s| s as i32 as f32 * 1e-9).collect();
        let signed: Vec<i64> = seeds.iter().map(|&s| s as i64).collect();
        same(|isa| {
            let mut sums = x.clone();
            numerics::add_into(isa, &mut sums, &y[..x.len()]);
            bits(&sums)
        });
        same(|isa| {
            let ends = [numerics::min(isa, &x), numerics::max(isa, &x)];
            (numerics::sum(isa, &x).to_bits(), ends.map(|end| end.map(f64::to_bits)))
        });
        for floats in [&floats, &tame] {
            same(|isa| {
                let ends = [numerics::min(isa, floats), numerics::max(isa, floats)];
                (numerics::sum(isa, floats).to_bits(), ends.map(|end| end.map(f32::to_bits)))
            });
        }
        let (sum, least, most) =
            same(|isa| (numerics::sum(isa, &signed), numerics::min(isa, &signed), numerics::max(isa, &signed)));
        prop_assert_eq!(sum, signed.iter().fold(0, |a: i64, &b| a.wrapping_add(b)));
        prop_assert_eq!((least, most), (signed.iter().copied().min(), signed.iter().copied().max()));
        let (sum, least, most) =
            same(|isa| (numerics::sum(isa, &seeds), numerics::min(isa, &seeds), numerics::max(isa, &seeds)));
        prop_assert_eq!(sum, seeds.iter().fold(0, |a: u64, &b| a.wrapping_add(b)));
        prop_assert_eq!((least, most), (seeds.iter().copied().min(), seeds.iter().copied().max()));
    }

    #[test]
    fn logistic((columns, x, _) in matrix(), weights in vec(tame(), 70), labels in vec(0..2_u8, 70)) {
        let rows = x.len() / columns;
        let y: Vec<f64> = labels[..rows].iter().map(|&y| f64::from(y)).collect();
        let model = Linear { weights: &weights[..columns], intercept: -0.25 };
        let block = Labelled { x: &x, y: &y, columns };
        let with_loss = same(|isa| {
            let mut out = Partial::new(columns);
            gradient_block(isa, block, model, ComputeLoss::Summed, &mut out);
            bits(out.values())
        });
        let without = same(|isa| {
            let mut out = Partial::new(columns);
            gradient_block(isa, block, model, ComputeLoss::Skipped, &mut out);
            bits(out.values())
        });
        prop_assert_eq!(&with_loss[..=columns], &without[..=columns]);
        same(|isa| {
            let mut out = vec![0.0; rows];
            margins_block(isa, &x, model, &mut out);
            bits(&out)
        });
    }

    #[test]
    fn columns((columns, x, _) in matrix()) {
        let finite = same(|isa| all_finite_block(isa, &x));
        prop_assert_eq!(finite, x.iter().all(|x| x.is_finite()));
        same(|isa| {
            let stats = column_stats_block(isa, &x, columns);
            (stats.weight.to_bits(), bits(&stats.means), bits(&stats.squares), stats.finite)
        });
        let mut gram = vec![0.0; (columns + 1) * (columns + 1)];
        same(|isa| {
            let mut out = gram.clone();
            gram_block(isa, &x, columns, &mut out);
            bits(&out)
        });
        gram_block(Isa::V2, &x, columns, &mut gram);
        same(|isa| logistic_curvature_bound(isa, &gram, columns, 1.5).to_bits());
    }

    #[test]
    fn grids(columns in 1..70_usize, rows in 1..6_usize, field in vec(number(), 70 * 8), cells in vec(0..2_u8, 70 * 8), wrap in any::<bool>()) {
        let edge = if wrap { Edge::Wrap } else { Edge::Held(0.5) };
        let strip = strip(&field, columns, rows, edge);
        same(|isa| {
            let mut new = vec![0.0; columns * rows];
            let change = heat_step(isa, strip, 0.2, &mut new);
            (change.to_bits(), bits(&new))
        });
        let edge = if wrap { Edge::Wrap } else { Edge::Held(0) };
        let strip = self::strip(&cells, columns, rows, edge);
        same(|isa| {
            let mut new = vec![0; columns * rows];
            (life_step(isa, strip, &mut new), new)
        });
    }
}

fn strip<T: Copy>(values: &[T], columns: usize, rows: usize, edge: Edge<T>) -> Strip<'_, T> {
    Strip {
        above: &values[..columns],
        cells: &values[columns..columns * (rows + 1)],
        below: &values[columns * (rows + 1)..columns * (rows + 2)],
        edge,
    }
}

/// 200,000 patterns of bits, for the functions that have the most branches to get wrong.
#[test]
fn functions_over_random_bits() {
    let mut state = 11_u64;
    for _ in 0..50 {
        let x: Vec<f64> = (0..4099)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                f64::from_bits(state ^ (state >> 29))
            })
            .collect();
        for kernel in [
            numerics::exp,
            numerics::log1p,
            numerics::sigmoid,
            numerics::softplus,
        ] {
            same(|isa| {
                let mut out = vec![0.0; x.len()];
                kernel(isa, &x, &mut out);
                bits(&out)
            });
        }
    }
}

/// Rows of every length up to 40, several of each, so that eight of them lie side by side and some do not; a hub
/// with more sources than a table holds places.
fn uneven_bins(weighted: bool) -> (Vec<Bin>, usize, usize) {
    let (sources, targets) = (70_000u32, 700u32);
    let mut edges: Vec<SlotEdge> = (0..sources)
        .map(|source| SlotEdge { source, target: 0 })
        .collect();
    for target in 1..targets {
        let length = target % 41;
        edges.extend((0..length).map(|step| SlotEdge {
            source: (step * step * 977 + target * 31) % sources,
            target,
        }));
    }
    let weights = (0..edges.len()).map(|at| (at % 7) as f64 / 3.0).collect();
    let weights = if weighted { weights } else { Vec::new() };
    (
        vec![Bin { edges, weights }],
        sources as usize,
        targets as usize,
    )
}

#[test]
fn sums_over_edges() {
    for weighted in [false, true] {
        let (bins, sources, targets) = uneven_bins(weighted);
        let mut expected = vec![0.0; targets];
        let share = |slot: u32| 1.0 / f64::from(slot + 3);
        for (at, edge) in bins[0].edges.iter().enumerate() {
            let weight = bins[0].weights.get(at).unwrap_or(&1.0);
            expected[edge.target as usize] += share(edge.source) * weight;
        }
        let blocked = BlockedEdges::new(bins, sources, targets);
        let sums = same(|isa| {
            let mut sums = vec![0.0; targets];
            blocked.sum_into(isa, share, &mut sums);
            bits(&sums)
        });
        let narrow = same(|isa| {
            let mut sums = vec![0.0; targets];
            blocked.sum_into(isa, |slot| share(slot) as f32, &mut sums);
            bits(&sums)
        });
        for (target, expected) in expected.iter().enumerate() {
            // Targets without an edge have no sum.
            let Ok(place) = blocked.targets().binary_search(&(target as u32)) else {
                assert_eq!(*expected, 0.0);
                continue;
            };
            let error = (f64::from_bits(sums[place]) - expected).abs();
            assert!(error <= 1e-13 * expected, "{target}");
            // What single shares lose, and no more for rows of any length.
            let error = (f64::from_bits(narrow[place]) - expected).abs();
            assert!(error <= 1e-7 * expected, "{target}");
        }
    }
}
