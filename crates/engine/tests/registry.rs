//! The models of the registry: each has the same bits on any threads and partitions, and refuses what it cannot use.

use brambling::QuietCaller;
use brambling::ml::{self, FitError, MODELS};
use brambling::operators::ml::model::Found;
use brambling::operators::ml::samples::{SampleTable, SamplesError};
use brambling::prelude::*;
use brambling::program::Foreign;

const COLUMNS: usize = 3;
const ROWS: usize = 13_000;

fn numbers(count: usize, seed: usize) -> Vec<f64> {
    let number =
        |at: usize| ((at + 1) * (seed + 7) * 2_654_435_761 % 99_991) as f64 / 33_333.0 - 1.5;
    (0..count).map(number).collect()
}

fn table(weighted: bool) -> SampleTable {
    let weights = (0..ROWS).map(|row| ((row * 3 + 1) % 4) as f64);
    SampleTable {
        x: Foreign::owned(numbers(ROWS * COLUMNS, 1)),
        columns: COLUMNS,
        y: Foreign::owned(numbers(ROWS * 2, 2)),
        targets: 2,
        weights: Foreign::owned(if weighted {
            weights.collect()
        } else {
            Vec::new()
        }),
    }
}

/// Every parameter at ½: a truth, a tolerance and a penalty alike.
fn fit(model: &str, table: SampleTable, options: &RunOptions) -> Result<Found, FitError> {
    let model = ml::model(model).unwrap();
    let parameters = vec![0.5; model.parameters.len()];
    let fitted = ml::fit(model, &parameters, table, options, &mut QuietCaller)?;
    Ok(fitted.found)
}

#[test]
fn same_bits_on_any_threads_and_partitions() {
    for model in MODELS {
        for weighted in [false, true] {
            let on = |threads, partitions| {
                let options = RunOptions::new().threads(threads).partitions(partitions);
                let found = fit(model.name, table(weighted), &options).unwrap();
                let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect();
                found
                    .0
                    .into_iter()
                    .map(|(name, values)| (name, bits(values)))
                    .collect::<Vec<(String, Vec<u64>)>>()
            };
            let expected = on(1, 1);
            assert!(!expected.is_empty());
            for (threads, partitions) in [(1, 3), (2, 1), (2, 8)] {
                assert_eq!(on(threads, partitions), expected, "{}", model.name);
            }
        }
    }
}

#[test]
fn weights_are_repeated_rows() {
    let weighted = table(true);
    let times = |row: usize| 0..weighted.weights[row] as usize;
    let rows = || (0..ROWS).flat_map(|row| times(row).map(move |_| row));
    let of = |values: &[f64], width: usize| -> Vec<f64> {
        rows()
            .flat_map(|row| values[row * width..][..width].to_vec())
            .collect()
    };
    let repeated = SampleTable {
        x: Foreign::owned(of(&weighted.x, COLUMNS)),
        y: Foreign::owned(of(&weighted.y, 2)),
        weights: Foreign::default(),
        ..weighted.clone()
    };
    for model in MODELS {
        let options = RunOptions::new();
        let found = fit(model.name, weighted.clone(), &options).unwrap();
        let expected = fit(model.name, repeated.clone(), &options).unwrap();
        for ((name, found), (_, expected)) in found.0.iter().zip(&expected.0) {
            for (found, expected) in found.iter().zip(expected) {
                let apart = (found - expected).abs();
                assert!(
                    apart < 1e-10 * (1.0 + expected.abs()),
                    "{name}: {found} {expected}"
                );
            }
        }
    }
}

#[test]
fn least_squares_solve_the_normal_equations() {
    let table = table(true);
    let model = ml::model("LinearRegression").unwrap();
    let parameters = [1.0, 0.0];
    let fitted = ml::fit(
        model,
        &parameters,
        table.clone(),
        &RunOptions::new(),
        &mut QuietCaller,
    );
    let found = fitted.unwrap().found;
    let (coef, intercept) = (found.get("coef").unwrap(), found.get("intercept").unwrap());
    for target in 0..2 {
        // What is left is orthogonal to every column, and adds up to nothing.
        let mut products = [0.0; COLUMNS + 1];
        for row in 0..ROWS {
            let x = &table.x[row * COLUMNS..][..COLUMNS];
            let products_of_row = x.iter().zip(&coef[target * COLUMNS..]).map(|(x, c)| x * c);
            let left = table.y[row * 2 + target] - intercept[target] - products_of_row.sum::<f64>();
            for (sum, x) in products.iter_mut().zip(x.iter().chain([&1.0])) {
                *sum += table.weights[row] * left * x;
            }
        }
        assert!(products.iter().all(|sum| sum.abs() < 1e-8), "{products:?}");
    }
}

#[test]
fn samples_that_cannot_be_used() {
    let refused = |change: &dyn Fn(&mut SampleTable)| {
        let mut table = table(true);
        change(&mut table);
        match fit("Ridge", table, &RunOptions::new()) {
            Err(FitError::Samples(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let with = |values: &[f64], at: usize, value: f64| {
        let mut values = values.to_vec();
        values[at] = value;
        Foreign::owned(values)
    };
    let found = refused(&|table| table.x = with(&table.x, 12_000 * COLUMNS + 1, f64::NAN));
    assert!(
        matches!(
            found,
            SamplesError::NotFinite {
                row: 12_000,
                column: 1,
                ..
            }
        ),
        "{found}"
    );
    let found = refused(&|table| table.y = with(&table.y, 9_001, f64::INFINITY));
    assert!(
        matches!(found, SamplesError::Target { row: 4_500, .. }),
        "{found}"
    );
    let found = refused(&|table| table.weights = with(&table.weights, 7, -1.0));
    assert!(
        matches!(found, SamplesError::Weight { row: 7, .. }),
        "{found}"
    );
    let found = refused(&|table| table.weights = Foreign::owned(vec![0.0; ROWS]));
    assert!(matches!(found, SamplesError::NoWeight), "{found}");
    let found = refused(&|table| table.weights = Foreign::owned(vec![1e308; ROWS]));
    assert!(matches!(found, SamplesError::TooHeavy), "{found}");
    let found = refused(&|table| table.weights = Foreign::owned(vec![1.0]));
    assert!(
        matches!(found, SamplesError::Weights { weights: 1, .. }),
        "{found}"
    );
}
