//! Eight rows at a time in 512-bit vectors.
#![allow(unsafe_code)] // Vector loads, and calls of functions compiled for AVX-512.

use std::arch::x86_64::*;

use super::{FEATURES, Gradient, Model, ahead, order};

const ROWS: usize = 8;
// Two rows are five vectors: two of the first row, one of both rows' halves, two of the second row.
const PAIR_F64S: usize = 2 * FEATURES;

/// Adds the gradient of whole groups of eight rows to `gradient`, and returns how many rows that
/// were. The CPU must have AVX-512 F.
pub(super) fn add_rows<const PREFETCH: bool, const STREAMS: usize>(
    x: &[f64],
    y: &[f64],
    model: &Model,
    gradient: &mut Gradient,
) -> usize {
    debug_assert!(is_x86_feature_detected!("avx512f"));
    // SAFETY: `Bare::kernel` asserted that the CPU has it.
    unsafe { add_rows_avx512::<PREFETCH, STREAMS>(x, y, model, gradient) }
}

#[target_feature(enable = "avx512f")]
fn add_rows_avx512<const PREFETCH: bool, const STREAMS: usize>(
    x: &[f64],
    y: &[f64],
    model: &Model,
    gradient: &mut Gradient,
) -> usize {
    let w = &model.weights;
    let weights = |at: isize| -> __m512d {
        let lane = |lane: usize| {
            let feature = at + lane as isize;
            if (0..FEATURES as isize).contains(&feature) {
                w[feature as usize]
            } else {
                0.0
            }
        };
        load(&std::array::from_fn(lane))
    };
    // Zeros stand where the shared vector holds the other row's features.
    let first = [weights(0), weights(8), weights(16)];
    let second = [weights(-4), weights(4), weights(12)];
    let intercept = _mm512_set1_pd(model.intercept);
    let of_pair =
        |low: i64, high: i64| _mm512_set_epi64(high, high, high, high, low, low, low, low);

    let mut sums = [_mm512_setzero_pd(); 5];
    let mut residuals = _mm512_setzero_pd();
    for group in order::<STREAMS>(y.len() / ROWS) {
        let rows = &x[group * ROWS * FEATURES..][..ROWS * FEATURES];
        let labels = &y[group * ROWS..][..ROWS];
        if PREFETCH {
            ahead::prefetch_labels(labels);
        }
        let mut products = [_mm512_setzero_pd(); ROWS];
        for (pair, products) in rows
            .chunks_exact(PAIR_F64S)
            .zip(products.chunks_exact_mut(2))
        {
            if PREFETCH {
                for row in pair.chunks_exact(FEATURES) {
                    ahead::prefetch_row(row);
                }
            }
            let shared = load_at(pair, 16);
            let mut product = _mm512_mul_pd(load_at(pair, 0), first[0]);
            product = _mm512_fmadd_pd(load_at(pair, 8), first[1], product);
            products[0] = _mm512_fmadd_pd(shared, first[2], product);
            let mut product = _mm512_mul_pd(shared, second[0]);
            product = _mm512_fmadd_pd(load_at(pair, 24), second[1], product);
            products[1] = _mm512_fmadd_pd(load_at(pair, 32), second[2], product);
        }
        let product = _mm512_add_pd(sum_each(products), intercept);
        let one = _mm512_set1_pd(1.0);
        let odds = exp(_mm512_sub_pd(_mm512_setzero_pd(), product));
        let probability = _mm512_div_pd(one, _mm512_add_pd(one, odds));
        let residual = _mm512_sub_pd(probability, load_at(labels, 0));
        residuals = _mm512_add_pd(residuals, residual);
        for (at, pair) in (0..).step_by(2).zip(rows.chunks_exact(PAIR_F64S)) {
            let a = _mm512_permutexvar_pd(_mm512_set1_epi64(at), residual);
            let both = _mm512_permutexvar_pd(of_pair(at, at + 1), residual);
            let b = _mm512_permutexvar_pd(_mm512_set1_epi64(at + 1), residual);
            sums[0] = _mm512_fmadd_pd(load_at(pair, 0), a, sums[0]);
            sums[1] = _mm512_fmadd_pd(load_at(pair, 8), a, sums[1]);
            sums[2] = _mm512_fmadd_pd(load_at(pair, 16), both, sums[2]);
            sums[3] = _mm512_fmadd_pd(load_at(pair, 24), b, sums[3]);
            sums[4] = _mm512_fmadd_pd(load_at(pair, 32), b, sums[4]);
        }
    }

    for (vector, sum) in sums.into_iter().enumerate() {
        for (lane, value) in store(sum).into_iter().enumerate() {
            gradient.weights[(vector * 8 + lane) % FEATURES] += value;
        }
    }
    gradient.intercept += store(residuals).into_iter().sum::<f64>();
    y.len() / ROWS * ROWS
}

/// The sum of each vector, in order.
#[target_feature(enable = "avx512f")]
fn sum_each(v: [__m512d; 8]) -> __m512d {
    // Neighbouring lanes, then neighbouring quarters, twice: each step halves the vectors.
    let pairs = |a, b| _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
    let quarters = |a, b| {
        _mm512_add_pd(
            _mm512_shuffle_f64x2::<0b10_00_10_00>(a, b),
            _mm512_shuffle_f64x2::<0b11_01_11_01>(a, b),
        )
    };
    let low = quarters(pairs(v[0], v[1]), pairs(v[2], v[3]));
    let high = quarters(pairs(v[4], v[5]), pairs(v[6], v[7]));
    quarters(low, high)
}

/// e to the power of each lane, to an ulp or two. Overflows to infinity and underflows to zero.
#[target_feature(enable = "avx512f")]
fn exp(x: __m512d) -> __m512d {
    let log2_e = _mm512_set1_pd(std::f64::consts::LOG2_E);
    let n = _mm512_roundscale_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(
        _mm512_mul_pd(x, log2_e),
    );
    let r = _mm512_fnmadd_pd(n, _mm512_set1_pd(super::LN_2_HIGH), x);
    let r = _mm512_fnmadd_pd(n, _mm512_set1_pd(super::LN_2_LOW), r);
    let mut sum = _mm512_set1_pd(super::EXP_TERMS[0]);
    for &term in &super::EXP_TERMS[1..] {
        sum = _mm512_fmadd_pd(sum, r, _mm512_set1_pd(term));
    }
    _mm512_scalef_pd(sum, n)
}

#[target_feature(enable = "avx512f")]
fn load(values: &[f64; 8]) -> __m512d {
    // SAFETY: eight values are one vector.
    unsafe { _mm512_loadu_pd(values.as_ptr()) }
}

#[target_feature(enable = "avx512f")]
fn load_at(values: &[f64], at: usize) -> __m512d {
    load(values[at..at + 8].try_into().expect("eight values"))
}

#[target_feature(enable = "avx512f")]
fn store(vector: __m512d) -> [f64; 8] {
    let mut values = [0.0; 8];
    // SAFETY: eight values are one vector.
    unsafe { _mm512_storeu_pd(values.as_mut_ptr(), vector) };
    values
}
