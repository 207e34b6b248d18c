//! The promise: one program value and the same input give the same bits, whatever runs it.

mod support;

use brambling::ml::LogisticRegression;
use brambling::operators::simd::Isa;
use brambling::prelude::*;
use brambling::program::{Key, partition_of};
use std::collections::BTreeMap;
use std::process::Command;
use support::{bits, block_sums, heat, heat_by_hand, keyed_rows, logistic, reductions, shuffled};

/// Where a child process writes its results.
const RESULTS: &str = "BRAMBLING_TEST_RESULTS";

/// A process fixes its instruction set once, so each has a process of its own: this very test, told by the
/// environment to write its results instead of comparing them.
///
/// Catches sums that threads, stealing or vector width regroup. Says nothing about CPUs it does not run on.
#[test]
fn same_bits_on_any_threads_and_instruction_set() {
    if let Some(path) = std::env::var_os(RESULTS) {
        std::fs::write(path, results()).unwrap();
        return;
    }
    let mut expected: Option<(Isa, String)> = None;
    for isa in Isa::supported() {
        let name = format!("brambling-promise-{}-{isa}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "same_bits_on_any_threads_and_instruction_set"])
            .env(RESULTS, &path)
            .env("BRAMBLING_ISA", isa.to_string())
            .output()
            .unwrap();
        assert!(
            status.status.success(),
            "{}",
            String::from_utf8_lossy(&status.stdout)
        );
        let found = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(found.starts_with(&format!("isa {isa}\n")));
        let found = found.split_once('\n').unwrap().1.to_owned();
        match &expected {
            None => expected = Some((isa, found)),
            Some((first, expected)) => assert_eq!(&found, expected, "{isa} against {first}"),
        }
    }
}

/// All programs' results, which must not depend on the number of threads.
fn results() -> String {
    let of = |threads: u32| {
        let options = RunOptions::new().threads(threads).partitions(7);
        let fitted = logistic(&options);
        let parameters = fitted.coef.into_iter().chain([fitted.intercept]);
        let rows = shuffled(&keyed_rows(), 5, 7, &options);
        let sums = rows.iter().flatten().scan(0.0, |sum, (key, value)| {
            *sum = *sum / 3.0 + value * (*key as f64);
            Some(*sum)
        });
        format!(
            "logistic {:x?}\nreduce and all_reduce {:x?}\nblocks {:x?}\nshuffle {:x?}\nheat {:x?}\n",
            bits(parameters),
            reductions(13, &options),
            block_sums(6, &options),
            bits(sums),
            heat(6, &options),
        )
    };
    let first = of(1);
    for threads in [2, 3, 8] {
        assert_eq!(of(threads), first, "{threads} threads against 1");
    }
    format!("isa {}\n{first}", brambling::operators::simd::active())
}

/// Catches partition counts that enter a sum over blocks; 64 partitions of 5 blocks leave most empty.
#[test]
fn same_bits_for_any_partitions_of_a_blocked_input() {
    let model = |partitions| {
        let fitted = logistic(&RunOptions::new().threads(2).partitions(partitions));
        assert_eq!(fitted.iterations, 12);
        bits(
            fitted
                .coef
                .into_iter()
                .chain([fitted.intercept, fitted.largest_gradient]),
        )
    };
    let sums = |partitions| block_sums(partitions, &RunOptions::new().threads(2));
    let (one_model, one_sum) = (model(1), sums(1));
    for partitions in [2, 7, 64] {
        assert_eq!(
            model(partitions),
            one_model,
            "model, {partitions} partitions"
        );
        assert_eq!(sums(partitions), one_sum, "sums, {partitions} partitions");
    }
}

/// Catches lost, doubled, misplaced and reordered rows.
#[test]
fn shuffle_keeps_source_order() {
    let rows = keyed_rows();
    let mut expected: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for &(key, value) in &rows {
        expected.entry(key).or_default().push(value);
    }
    for from in [1, 2, 7] {
        for to in [1, 2, 7, 64] {
            let mut found: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
            let partitions = shuffled(&rows, from, to, &RunOptions::new().threads(3));
            for (index, rows) in partitions.into_iter().enumerate() {
                for (key, value) in rows {
                    assert_eq!(partition_of(&key, to) as usize, index, "key {key}");
                    found.entry(key).or_default().push(value);
                }
            }
            assert_eq!(found, expected, "from {from} to {to}");
        }
    }
    assert_eq!(7u64.key_hash(), 7i32.key_hash());
}

/// Catches a halo that is stale, missing or swapped, against a loop that knows no strips.
#[test]
fn heat_gives_the_same_field() {
    let expected = heat_by_hand();
    assert!(
        expected.1 > 50,
        "{} turns are too few to show anything",
        expected.1
    );
    for strips in [1, 2, 5, 32, 64] {
        let found = heat(strips, &RunOptions::new().threads(2));
        assert!(found == expected, "{strips} strips, {} turns", found.1);
    }
}

/// An intercept is learnt or it is 0, and the search ends where it says.
#[test]
fn a_converged_model_stays_the_same() {
    let (x, y) = support::table(9_000, 3);
    let model = LogisticRegression {
        max_iter: 100_000,
        tol: 1e-3,
        ..Default::default()
    };
    let fitted = model
        .fit_owned(x.clone(), y.clone(), 3, &RunOptions::new())
        .unwrap();
    assert!(fitted.converged && fitted.largest_gradient <= 1e-3);
    let again = LogisticRegression {
        max_iter: fitted.iterations,
        ..model
    };
    let again = again.fit_owned(x, y, 3, &RunOptions::new()).unwrap();
    assert_eq!(bits(again.coef), bits(fitted.coef));
    assert!(again.converged);
}
