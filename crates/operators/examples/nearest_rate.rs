//! How fast the nearest centres are found in cached rows: `nearest_rate [K] [COLUMNS]`.

#![allow(clippy::print_stdout)] // A figure for whoever tunes the kernel.

use brambling_operators::ml::nearest::{Centres, Members, members_block};
use brambling_operators::simd;
use std::time::Instant;

fn main() {
    let argument = |at: usize, default: usize| {
        let given = std::env::args().nth(at);
        given.map_or(default, |given| given.parse().expect("a number"))
    };
    let (k, columns, rows) = (argument(1, 10), argument(2, 20), 4_096);
    let number = |seed: usize| ((seed * 2_654_435_761) % 10_007) as f64 / 10_007.0;
    let x: Vec<f64> = (0..rows * columns).map(number).collect();
    let values: Vec<f64> = (0..k * columns).map(|at| number(at + 77)).collect();
    let isa = simd::detect();
    let (mut centres, mut members) = (Centres::default(), Members::default());
    centres.prepare(isa, &values, columns);
    let mut best = f64::INFINITY;
    for _ in 0..50 {
        let start = Instant::now();
        for _ in 0..10 {
            members_block(isa, &x, &centres, &mut members);
        }
        best = best.min(start.elapsed().as_secs_f64() / 10.0);
    }
    let flops = 2.0 * (rows * columns * k) as f64;
    let ns = best * 1e9 / rows as f64;
    println!("{isa}: {ns:.2} ns a row, {:.1} GFLOP/s", flops / best / 1e9);
}
