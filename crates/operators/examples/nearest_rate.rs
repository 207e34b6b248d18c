//! How fast the nearest centres are found: `nearest_rate [K] [COLUMNS] [ROWS] [THREADS]`. Few rows stay in the cache.

#![allow(clippy::print_stdout)] // A figure for whoever tunes the kernel.

use brambling_operators::ml::nearest::{CentreSums, Centres, members_block};
use brambling_operators::simd;
use std::time::Instant;

fn main() {
    let argument = |at: usize, default: usize| {
        let given = std::env::args().nth(at);
        given.map_or(default, |given| given.parse().expect("a number"))
    };
    let (k, columns) = (argument(1, 10), argument(2, 20));
    let (rows, threads) = (argument(3, 4_096), argument(4, 1));
    let passes = (400_000_000 / (rows * columns * k)).max(3);
    let isa = simd::detect();
    let seconds = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads)
            .map(|_| scope.spawn(move || best_pass(isa, k, columns, rows, passes)))
            .collect();
        let seconds = runs.into_iter().map(|run| run.join().expect("no panic"));
        seconds.fold(0.0, f64::max)
    });
    let flops = 2.0 * (rows * columns * k * threads) as f64;
    let ns = seconds * 1e9 / rows as f64;
    println!(
        "{isa}: {ns:.2} ns a row and thread, {:.1} GFLOP/s",
        flops / seconds / 1e9
    );
}

/// Seconds of the fastest of some passes over the rows, block by block.
fn best_pass(isa: simd::Isa, k: usize, columns: usize, rows: usize, passes: usize) -> f64 {
    let number = |seed: usize| ((seed * 2_654_435_761) % 10_007) as f64 / 10_007.0;
    let x: Vec<f64> = (0..rows * columns).map(number).collect();
    let values: Vec<f64> = (0..k * columns).map(|at| number(at + 77)).collect();
    let (mut centres, mut members) = (Centres::default(), CentreSums::default());
    centres.prepare(isa, &values, columns);
    let pass = |members: &mut CentreSums| {
        let start = Instant::now();
        for block in x.chunks(4_096 * columns) {
            members_block(isa, block, &centres, members);
        }
        start.elapsed().as_secs_f64()
    };
    (0..passes)
        .map(|_| pass(&mut members))
        .fold(f64::INFINITY, f64::min)
}
