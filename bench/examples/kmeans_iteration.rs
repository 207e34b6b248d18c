//! Prints the mean milliseconds of an iteration of k-means, on the data of the bench `kmeans`:
//! `kmeans_iteration [K] [THREADS] [ROWS]`. Nothing but the engine's public face, so that it can be built in an older version of
//! this repository too (`bench/claims/kmeans_before.sh`).
#![allow(clippy::print_stdout)]

use brambling::RunOptions;
use brambling::ml::KMeans;

const FEATURES: usize = 20;

fn main() {
    let argument = |at: usize, default: usize| {
        let given = std::env::args().nth(at);
        given.map_or(default, |given| given.parse().expect("a number"))
    };
    let (k, threads, rows) = (argument(1, 10), argument(2, 2), argument(3, 10_000_000));
    let x: Vec<f64> = (0..(rows * FEATURES) as u64).map(value).collect();
    let start = (0..k).flat_map(|index| {
        let row = index * rows / k;
        (0..FEATURES).map(move |column| value((row * FEATURES + column) as u64))
    });
    let model = KMeans {
        tol: 0.0,
        max_iter: (100 / k as u64).clamp(3, 10),
    };
    let options = RunOptions::new().threads(threads as u32);
    let fitted = model.fit_owned(x, FEATURES, start.collect(), &options);
    let fitted = fitted.expect("a fit");
    assert_eq!(fitted.iterations, model.max_iter);
    println!("{}", fitted.seconds_per_iteration() * 1e3);
}

/// Between -2 and 2, by the mixer of SplitMix64.
fn value(place: u64) -> f64 {
    let mut word = place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^= word >> 31;
    word as f64 / 2f64.powi(64) * 4.0 - 2.0
}
