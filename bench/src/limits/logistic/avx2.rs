//! Four rows at a time in 256-bit vectors.
#![allow(unsafe_code)] // Vector loads, and calls of functions compiled for AVX2 and FMA.

use std::arch::x86_64::*;

use super::{FEATURES, Gradient, Model, ahead, order};

const ROWS: usize = 4;
const VECTORS: usize = FEATURES / 4;

/// Adds the gradient of whole groups of four rows to `gradient`, and returns how many rows that
/// were. The CPU must have AVX2 and FMA.
pub(super) fn add_rows<const PREFETCH: bool, const STREAMS: usize>(
    x: &[f64],
    y: &[f64],
    model: &Model,
    gradient: &mut Gradient,
) -> usize {
    debug_assert!(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"));
    // SAFETY: `Bare::kernel` asserted that the CPU has them.
    unsafe { add_rows_avx2::<PREFETCH, STREAMS>(x, y, model, gradient) }
}

#[target_feature(enable = "avx2,fma")]
fn add_rows_avx2<const PREFETCH: bool, const STREAMS: usize>(
    x: &[f64],
    y: &[f64],
    model: &Model,
    gradient: &mut Gradient,
) -> usize {
    let weights: [__m256d; VECTORS] =
        std::array::from_fn(|vector| load_at(&model.weights, vector * 4));
    let intercept = _mm256_set1_pd(model.intercept);
    let mut sums = [_mm256_setzero_pd(); VECTORS];
    let mut residuals = _mm256_setzero_pd();
    for group in order::<STREAMS>(y.len() / ROWS) {
        let rows = &x[group * ROWS * FEATURES..][..ROWS * FEATURES];
        let labels = &y[group * ROWS..][..ROWS];
        if PREFETCH {
            ahead::prefetch_labels(labels);
        }
        let mut products = [_mm256_setzero_pd(); ROWS];
        for (row, product) in rows.chunks_exact(FEATURES).zip(&mut products) {
            if PREFETCH {
                ahead::prefetch_row(row);
            }
            *product = _mm256_mul_pd(load_at(row, 0), weights[0]);
            for (vector, weights) in weights.iter().enumerate().skip(1) {
                *product = _mm256_fmadd_pd(load_at(row, vector * 4), *weights, *product);
            }
        }
        let product = _mm256_add_pd(sum_each(products), intercept);
        let one = _mm256_set1_pd(1.0);
        let odds = exp(_mm256_sub_pd(_mm256_setzero_pd(), product));
        let probability = _mm256_div_pd(one, _mm256_add_pd(one, odds));
        let residual = _mm256_sub_pd(probability, load_at(labels, 0));
        residuals = _mm256_add_pd(residuals, residual);
        let of_row = [
            _mm256_permute4x64_pd::<0b00_00_00_00>(residual),
            _mm256_permute4x64_pd::<0b01_01_01_01>(residual),
            _mm256_permute4x64_pd::<0b10_10_10_10>(residual),
            _mm256_permute4x64_pd::<0b11_11_11_11>(residual),
        ];
        for (row, residual) in rows.chunks_exact(FEATURES).zip(of_row) {
            for (vector, sum) in sums.iter_mut().enumerate() {
                *sum = _mm256_fmadd_pd(load_at(row, vector * 4), residual, *sum);
            }
        }
    }

    for (sums, sum) in gradient.weights.chunks_exact_mut(4).zip(sums) {
        for (sum, value) in sums.iter_mut().zip(store(sum)) {
            *sum += value;
        }
    }
    gradient.intercept += store(residuals).into_iter().sum::<f64>();
    y.len() / ROWS * ROWS
}

/// The sum of each vector, in order.
#[target_feature(enable = "avx2,fma")]
fn sum_each(v: [__m256d; 4]) -> __m256d {
    let (low, high) = (_mm256_hadd_pd(v[0], v[1]), _mm256_hadd_pd(v[2], v[3]));
    _mm256_add_pd(
        _mm256_permute2f128_pd::<0x20>(low, high),
        _mm256_permute2f128_pd::<0x31>(low, high),
    )
}

/// e to the power of each lane, to an ulp or two, between e⁻⁷⁰⁰ and e⁷⁰⁰.
#[target_feature(enable = "avx2,fma")]
fn exp(x: __m256d) -> __m256d {
    let x = _mm256_max_pd(
        _mm256_min_pd(x, _mm256_set1_pd(700.0)),
        _mm256_set1_pd(-700.0),
    );
    // Adding 1.5 · 2⁵² rounds to a whole number and leaves it in the lowest bits, whence it goes
    // into the exponent.
    let round = _mm256_set1_pd(6_755_399_441_055_744.0);
    let rounded = _mm256_fmadd_pd(x, _mm256_set1_pd(std::f64::consts::LOG2_E), round);
    let n = _mm256_sub_pd(rounded, round);
    let r = _mm256_fnmadd_pd(n, _mm256_set1_pd(super::LN_2_HIGH), x);
    let r = _mm256_fnmadd_pd(n, _mm256_set1_pd(super::LN_2_LOW), r);
    let mut sum = _mm256_set1_pd(super::EXP_TERMS[0]);
    for &term in &super::EXP_TERMS[1..] {
        sum = _mm256_fmadd_pd(sum, r, _mm256_set1_pd(term));
    }
    let exponent = _mm256_slli_epi64::<52>(_mm256_castpd_si256(rounded));
    _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(sum), exponent))
}

#[target_feature(enable = "avx2,fma")]
fn load_at(values: &[f64], at: usize) -> __m256d {
    let values: &[f64; 4] = values[at..at + 4].try_into().expect("four values");
    // SAFETY: four values are one vector.
    unsafe { _mm256_loadu_pd(values.as_ptr()) }
}

#[target_feature(enable = "avx2,fma")]
fn store(vector: __m256d) -> [f64; 4] {
    let mut values = [0.0; 4];
    // SAFETY: four values are one vector.
    unsafe { _mm256_storeu_pd(values.as_mut_ptr(), vector) };
    values
}
