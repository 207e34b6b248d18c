//! 512-bit vectors, in two ways: rows turned into columns, and centres in lanes.
#![allow(unsafe_code)] // Vector loads and stores.

use std::arch::x86_64::*;

use super::{Centre, FEATURES, Sums};

pub(super) mod columns;
pub(super) mod lanes;

/// Adds a row to sums: two vectors and a half.
#[target_feature(enable = "avx512f")]
fn add(row: &Centre, sums: &mut Sums) {
    const { assert!(FEATURES == 20) };
    sums.count += 1;
    let (x, sums) = (row.as_ptr(), sums.values.as_mut_ptr());
    // SAFETY: both have twenty values, and these reach to the twentieth; the sums begin a line.
    unsafe {
        let low = _mm512_add_pd(_mm512_load_pd(sums), _mm512_loadu_pd(x));
        let middle = _mm512_add_pd(_mm512_load_pd(sums.add(8)), _mm512_loadu_pd(x.add(8)));
        let high = _mm256_add_pd(_mm256_load_pd(sums.add(16)), _mm256_loadu_pd(x.add(16)));
        _mm512_store_pd(sums, low);
        _mm512_store_pd(sums.add(8), middle);
        _mm256_store_pd(sums.add(16), high);
    }
}

#[target_feature(enable = "avx512f")]
fn load(values: &[f64; 8]) -> __m512d {
    // SAFETY: eight values are one vector.
    unsafe { _mm512_loadu_pd(values.as_ptr()) }
}
