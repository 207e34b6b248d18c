//! Prints the hand-written yardsticks alone.
//! `cargo run --release -p brambling-bench --example limits [ROWS] [TIMESTEPS]`
#![allow(clippy::print_stdout)]

use std::time::Instant;

use brambling_bench::limits::kmeans;
use brambling_bench::limits::logistic::{BareLoop, FEATURES, Model, Problem, plain_loop};
use brambling_bench::limits::task_graph::run;
use brambling_bench::task_graph::{Graph, Kernel, Pattern};
use brambling_machine::cpu::{Processor, places};
use brambling_machine::measure::Figure;
use brambling_machine::probes::{ReadLoop, read_bandwidth};

fn main() {
    let mut args = std::env::args()
        .skip(1)
        .map(|arg| arg.parse().expect("a number"));
    let (rows, timesteps) = (
        args.next().unwrap_or(2_000_000),
        args.next().unwrap_or(20_000),
    );
    let threads = Processor::read()
        .expect("the affinity mask can be read")
        .default_threads();
    let places = places(threads).expect("the affinity mask can be read");
    if rows > 0 {
        logistic(rows, &places);
        for k in [10, 100] {
            kmeans(rows, k, &places);
        }
    }
    if timesteps == 0 {
        return;
    }
    for pattern in Pattern::ALL {
        for width in [2, 16] {
            let graph = Graph::new(pattern, width, timesteps);
            let samples = (0..7).map(|_| {
                let ran = run(&graph, Kernel::Empty, &places);
                assert!(ran.is_right(&graph));
                ran.overhead_us(threads)
            });
            println!("{:16} {width:3} {} us", pattern.name(), figure(samples));
        }
    }
}

fn logistic(rows: usize, places: &[usize]) {
    let value = |at: usize| (at.wrapping_mul(2_654_435_761) % 1_000) as f64 / 500.0 - 1.0;
    let x: Vec<f64> = (0..rows * FEATURES).map(value).collect();
    let y: Vec<f64> = (0..rows).map(|row| (row % 3 % 2) as f64).collect();
    let model = Model {
        weights: std::array::from_fn(|at| value(at * 31)),
        intercept: 0.1,
    };
    let problem = Problem::new(&x, &y);
    let bytes = (rows * (FEATURES + 1) * 8) as f64;
    let mut expected = plain_loop(&problem, &model);
    let plain = (0..3).map(|_| {
        let start = Instant::now();
        expected = plain_loop(&problem, &model);
        start.elapsed().as_secs_f64() * 1e3
    });
    println!("plain loop, one thread {} ms", figure(plain));
    for _ in 0..2 {
        for read_loop in ReadLoop::available() {
            let samples = (0..7).map(|_| read_bandwidth(read_loop, &problem.slices(), places));
            let ms: Vec<f64> = samples.map(|rate| bytes / rate / 1e6).collect();
            println!("{:24} {} ms", read_loop.name(), figure(ms.into_iter()));
        }
        for bare in BareLoop::available() {
            let evaluated = bare.evaluate(&problem, &model, places, 7);
            assert!(evaluated.gradient.agrees_with(&expected, 1e-9));
            let ms = evaluated.seconds.into_iter().map(|seconds| seconds * 1e3);
            println!("{:24} {} ms", bare.name(), figure(ms));
        }
    }
}

fn kmeans(rows: usize, k: usize, places: &[usize]) {
    // The low bits of a product are no noise: what is above them is.
    let value = |at: usize| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / 1e7;
    let x: Vec<f64> = (0..rows * FEATURES).map(value).collect();
    let (centres, _) = x.as_chunks();
    let start: Vec<kmeans::Centre> = centres.iter().step_by(rows / k).take(k).copied().collect();
    let problem = kmeans::Problem::new(&x);
    for _ in 0..2 {
        for bare in kmeans::BareLoop::available() {
            let iterated = bare.iterate(&problem, &start, places, 7);
            let ms = iterated.seconds.into_iter().map(|seconds| seconds * 1e3);
            println!("{k:3} centres {:28} {} ms", bare.name(), figure(ms));
        }
    }
}

fn figure(samples: impl Iterator<Item = f64>) -> String {
    let figure = Figure::of(&samples.collect::<Vec<_>>());
    format!("{:.3} ({:.3}–{:.3})", figure.median, figure.min, figure.max)
}
