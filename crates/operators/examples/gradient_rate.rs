//! Claim: one pass of `gradient_block` streams its rows at 90 % of the memory's read bandwidth or more.
//! Not claimed: blocks that fit a cache.
//!
//! `gradient_rate [THREADS] [COLUMNS] [ROWS]`. Rounds of the read loop and of the kernel alternate. With
//! few rows each round repeats them, and shows what the kernel costs when memory does not limit it.
#![allow(clippy::print_stdout)]

use std::sync::Barrier;
use std::time::{Duration, Instant};

use brambling_operators::ml::columns::{all_finite_block, column_stats_block, gram_block};
use brambling_operators::ml::logistic::{ComputeLoss, Labelled, Linear, Partial, gradient_block};
use brambling_operators::numerics;
use brambling_operators::simd::Isa;

const BLOCK_ROWS: usize = 4096;
const ROUNDS: usize = 9;

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|a| a.parse::<usize>().expect("a number"));
    let threads = arguments.next().unwrap_or(2);
    let columns = arguments.next().unwrap_or(20);
    let rows = arguments.next().unwrap_or(4_000_000);
    let mut seed = 1_u64;
    let mut random = move || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
    };
    let x: Vec<f64> = (0..rows * columns).map(|_| random()).collect();
    let y: Vec<f64> = (0..rows).map(|_| f64::from(random() > 0.0)).collect();
    let weights: Vec<f64> = (0..columns).map(|_| random()).collect();
    let bytes = (rows * (columns + 1) * 8) as f64;
    let repeats = (4e8 / bytes).ceil() as usize;
    println!(
        "{rows} rows × {columns} columns, {:.0} MB, {threads} threads",
        bytes / 1e6
    );

    let newest = Isa::supported().last().expect("v2 is always there");
    let model = Linear {
        weights: &weights,
        intercept: 0.1,
    };
    let gradient = |isa, loss| {
        let (x, y) = (&x, &y);
        move |from: usize, to: usize| {
            let mut out = Partial::new(columns);
            for first in (from..to).step_by(BLOCK_ROWS) {
                let end = to.min(first + BLOCK_ROWS);
                let x = &x[first * columns..end * columns];
                let block = Labelled {
                    x,
                    y: &y[first..end],
                    columns,
                };
                gradient_block(isa, block, model, loss, &mut out);
            }
            std::hint::black_box(out);
        }
    };
    let blocks = |kernel: fn(&[f64], usize)| {
        let x = &x;
        move |from: usize, to: usize| {
            for first in (from..to).step_by(BLOCK_ROWS) {
                kernel(
                    &x[first * columns..to.min(first + BLOCK_ROWS) * columns],
                    columns,
                );
            }
        }
    };
    let (x_ref, y_ref) = (&x, &y);
    let read = move |from: usize, to: usize| {
        std::hint::black_box(read_loop(&x_ref[from * columns..to * columns]));
        std::hint::black_box(read_loop(&y_ref[from..to]));
    };
    let read_plain = move |from: usize, to: usize| {
        std::hint::black_box(numerics::sum(newest, &x_ref[from * columns..to * columns]));
        std::hint::black_box(numerics::sum(newest, &y_ref[from..to]));
    };
    type Body<'a> = Box<dyn Fn(usize, usize) + Sync + 'a>;
    let bodies: Vec<(&str, Body<'_>)> = vec![
        ("read, prefetched", Box::new(read)),
        ("read, sum()", Box::new(read_plain)),
        (
            "gradient v4 loss",
            Box::new(gradient(Isa::V4, ComputeLoss::Summed)),
        ),
        (
            "gradient v4",
            Box::new(gradient(Isa::V4, ComputeLoss::Skipped)),
        ),
        (
            "gradient v3 loss",
            Box::new(gradient(Isa::V3, ComputeLoss::Summed)),
        ),
        (
            "all_finite",
            Box::new(blocks(|x, _| assert!(all_finite_block(Isa::V4, x)))),
        ),
        (
            "column_stats",
            Box::new(blocks(|x, columns| {
                std::hint::black_box(column_stats_block(Isa::V4, x, columns));
            })),
        ),
        (
            "gram",
            Box::new(blocks(|x, columns| {
                let mut out = vec![0.0; (columns + 1) * (columns + 1)];
                gram_block(Isa::V4, x, columns, &mut out);
                std::hint::black_box(out);
            })),
        ),
    ];
    let mut times = vec![Vec::new(); bodies.len()];
    for _ in 0..ROUNDS {
        for (index, (_, body)) in bodies.iter().enumerate() {
            times[index].push(timed(threads, rows, repeats, body));
        }
    }
    for ((name, _), times) in bodies.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let [least, median, most] = [times[0], times[ROUNDS / 2], times[ROUNDS - 1]];
        println!(
            "{name:18} {:8.4} ms ({:.4}–{:.4})  {:5.2} GB/s, best {:5.2}",
            median * 1e3,
            least * 1e3,
            most * 1e3,
            bytes / median / 1e9,
            bytes / least / 1e9
        );
    }
}

/// Seconds from the first thread's start to the last one's end.
fn timed(threads: usize, rows: usize, repeats: usize, body: &(dyn Fn(usize, usize) + Sync)) -> f64 {
    let barrier = Barrier::new(threads);
    let origin = Instant::now();
    let spans: Vec<(Duration, Duration)> = std::thread::scope(|scope| {
        let mut handles = Vec::new();
        for thread in 0..threads {
            let barrier = &barrier;
            handles.push(scope.spawn(move || {
                barrier.wait();
                let start = origin.elapsed();
                for _ in 0..repeats {
                    body(rows * thread / threads, rows * (thread + 1) / threads);
                }
                (start, origin.elapsed())
            }));
        }
        handles
            .into_iter()
            .map(|handle| handle.join().expect("no panic"))
            .collect()
    });
    let start = spans.iter().map(|span| span.0).min().expect("a thread");
    let end = spans.iter().map(|span| span.1).max().expect("a thread");
    (end - start).as_secs_f64() / repeats as f64
}

/// Reads every line, with AVX-512 and prefetches: the bare limit.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn read_loop(values: &[f64]) -> f64 {
    use std::arch::x86_64::*;
    #[target_feature(enable = "avx512f")]
    fn body(values: &[f64]) -> f64 {
        let mut sums = [_mm512_setzero_pd(); 4];
        for chunk in values.as_chunks::<32>().0 {
            for (index, sum) in sums.iter_mut().enumerate() {
                let at = chunk[index * 8..].as_ptr();
                // SAFETY: eight of the chunk's 32 values; prefetches may name any address.
                unsafe {
                    _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(512).cast());
                    *sum = _mm512_add_pd(*sum, _mm512_loadu_pd(at));
                }
            }
        }
        let sum = _mm512_add_pd(
            _mm512_add_pd(sums[0], sums[1]),
            _mm512_add_pd(sums[2], sums[3]),
        );
        _mm512_reduce_add_pd(sum)
    }
    assert!(is_x86_feature_detected!("avx512f"));
    // SAFETY: just detected.
    unsafe { body(values) }
}
