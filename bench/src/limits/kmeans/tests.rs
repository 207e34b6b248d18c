//! Every loop beside the plain one.

use super::*;
use crate::uniform::uniform;
use brambling_machine::cpu;

/// As many centres as fill groups of every loop, and one less or more.
const COUNTS: [usize; 9] = [1, 5, 7, 10, 12, 17, 33, 100, 105];

fn made(count: usize, value: impl Fn(u64) -> f64) -> Vec<Centre> {
    let value = |index, feature| value((index * FEATURES + feature) as u64);
    (0..count)
        .map(|index| std::array::from_fn(|feature| value(index, feature)))
        .collect()
}

fn rows(count: usize) -> Vec<Centre> {
    made(count, |at| uniform(at) * 4.0 - 2.0)
}

fn centres(count: usize) -> Vec<Centre> {
    made(count, |at| uniform((1 << 40) + at) * 3.0 - 1.5)
}

#[test]
fn the_plain_loop_is_the_definition() {
    let row = |first: f64| {
        let mut row = [1.0; FEATURES];
        row[0] = first;
        row
    };
    let rows = [row(0.0), row(4.0), row(9.0), row(5.0)];
    let centres = [row(8.0), row(2.0), row(-90.0)];
    // The last row is as near to the second centre as to the first.
    assert_eq!(plain_labels(&rows, &centres), [1, 1, 0, 0]);
    let members = plain_loop(&rows, &centres);
    assert_eq!(members.counts, [2, 2, 0]);
    assert_eq!(members.sums[0][..2], [14.0, 2.0]);
    assert_eq!(members.means(&centres), [row(7.0), row(2.0), row(-90.0)]);
}

#[test]
fn every_bare_loop_agrees_with_the_plain_loop() {
    let places = cpu::places(3).unwrap();
    for count in COUNTS {
        let centres = centres(count);
        for length in [0, 1, 7, 8, 15, 16, 17, 100, 2 * CHUNK_ROWS + 5] {
            // Not where an allocation begins: loads need not be aligned.
            let rows = &rows(length + 1)[1..];
            let expected = plain_loop(rows, &centres);
            let labels = plain_labels(rows, &centres);
            for bare in BareLoop::available() {
                let name = bare.name;
                let at = format!("{name}, {length} rows, {count} centres");
                assert_eq!(bare.labels(rows, &centres), labels, "{at}");
                let found = bare.iterate(rows, &centres, &places, 1);
                assert!(found.first.agrees_with(&expected, 1e-12), "{at}");
                let means = expected.means(&centres);
                assert!(agree(&found.centres, &means, 1e-12), "{at}");
                assert_eq!(found.seconds.len(), 1);
            }
        }
    }
}

#[test]
fn iterations_go_on_from_the_means() {
    let (rows, start) = (rows(3_000), centres(10));
    let mut expected = start.clone();
    for _ in 0..4 {
        expected = plain_loop(&rows, &expected).means(&expected);
    }
    for bare in BareLoop::available() {
        let found = bare.iterate(&rows, &start, &cpu::places(2).unwrap(), 4);
        assert!(agree(&found.centres, &expected, 1e-12), "{}", bare.name);
        assert!(found.first.agrees_with(&plain_loop(&rows, &start), 1e-12));
        assert_eq!(found.seconds.len(), 4);
    }
}

#[test]
fn of_equal_centres_the_first_counts() {
    let rows = rows(100);
    for count in COUNTS {
        // Everything twice, so the second half has no rows.
        let twice = centres(count).repeat(2);
        for bare in BareLoop::available() {
            let labels = bare.labels(&rows, &twice);
            let name = bare.name;
            assert_eq!(
                labels,
                plain_labels(&rows, &twice),
                "{name}, {count} centres"
            );
        }
    }
}

#[test]
fn agreement_asks_for_equal_counts_and_for_every_sum() {
    let one = Members {
        sums: vec![[1.0; FEATURES], [1000.0; FEATURES]],
        counts: vec![3, 4],
    };
    let mut other = one.clone();
    other.sums[0][3] += 0.5;
    assert!(one.agrees_with(&other, 1e-3));
    assert!(!one.agrees_with(&other, 1e-4));
    other.sums[0][3] = f64::NAN;
    assert!(!one.agrees_with(&other, 1.0));
    let mut other = one.clone();
    other.counts[1] += 1;
    assert!(!one.agrees_with(&other, 1.0));
}
