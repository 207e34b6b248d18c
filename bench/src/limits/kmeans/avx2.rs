//! Eight rows at a time, turned into columns of 256-bit vectors, against five centres at a time: ten
//! vectors of scores, two of rows and one of a centre's value leave three of the sixteen registers.
#![allow(unsafe_code)] // Vector loads, and calls of functions compiled for AVX2 and FMA.
#![allow(clippy::needless_range_loop)] // An index runs over registers, in several arrays at once.

use std::arch::x86_64::*;

use super::packed::Packed;
use super::{Centre, FEATURES, Part, Sums};

const ROWS: usize = 8;
const GROUP: usize = 5;
pub(super) const GROUPS: [usize; 1] = [GROUP];
const PREFETCH_AHEAD_ROWS: usize = 64;

/// Columns of a tile: the values of eight rows, feature by feature.
type Tile = [[__m256d; 2]; FEATURES];

/// Adds whole tiles of eight rows to `part`, and returns how many rows that were. The CPU must have
/// AVX2 and FMA.
pub(super) fn add_rows<const PREFETCH: bool>(
    rows: &[Centre],
    centres: &Packed,
    part: &mut Part,
) -> usize {
    debug_assert!(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"));
    // SAFETY: `Bare::kernel` asserted that the CPU has them.
    unsafe { add_rows_avx2::<PREFETCH>(rows, centres, part) }
}

#[target_feature(enable = "avx2,fma")]
fn add_rows_avx2<const PREFETCH: bool>(
    rows: &[Centre],
    centres: &Packed,
    part: &mut Part,
) -> usize {
    let (tiles, _) = rows.as_chunks::<ROWS>();
    let mut columns: Tile = [[_mm256_setzero_pd(); 2]; FEATURES];
    for tile in tiles {
        turn(tile, &mut columns);
        let labels = nearest::<PREFETCH>(tile, &columns, centres);
        for (row, &label) in tile.iter().zip(&labels) {
            add(row, &mut part.sums[label as usize]);
        }
        part.note(&labels);
    }
    tiles.len() * ROWS
}

/// Eight rows as columns.
#[target_feature(enable = "avx2,fma")]
fn turn(tile: &[Centre; ROWS], columns: &mut Tile) {
    for feature in (0..FEATURES).step_by(2) {
        for half in 0..2 {
            // Two features of rows 0 and 2, and of rows 1 and 3.
            let even = pairs(&tile[half * 4], &tile[half * 4 + 2], feature);
            let odd = pairs(&tile[half * 4 + 1], &tile[half * 4 + 3], feature);
            columns[feature][half] = _mm256_unpacklo_pd(even, odd);
            columns[feature + 1][half] = _mm256_unpackhi_pd(even, odd);
        }
    }
}

/// The labels of eight rows.
#[target_feature(enable = "avx2,fma")]
fn nearest<const PREFETCH: bool>(
    tile: &[Centre; ROWS],
    columns: &Tile,
    centres: &Packed,
) -> [u32; ROWS] {
    let mut least = [_mm256_set1_pd(f64::INFINITY); 2];
    let mut label = [_mm256_setzero_pd(); 2];
    let mut index = 0.0;
    for (number, (group, halves)) in centres.groups::<GROUP>().enumerate() {
        let mut scores = [[_mm256_setzero_pd(); 2]; GROUP];
        for place in 0..GROUP {
            scores[place] = [_mm256_set1_pd(halves[place]); 2];
        }
        for feature in 0..FEATURES {
            // A tile has twenty lines: one for each feature.
            if PREFETCH && number == 0 {
                prefetch(tile, feature);
            }
            let x = columns[feature];
            for place in 0..GROUP {
                let value = _mm256_set1_pd(group[feature][place]);
                scores[place][0] = _mm256_fmadd_pd(x[0], value, scores[place][0]);
                scores[place][1] = _mm256_fmadd_pd(x[1], value, scores[place][1]);
            }
        }
        for score in scores {
            let here = _mm256_set1_pd(index);
            for half in 0..2 {
                let closer = _mm256_cmp_pd::<_CMP_LT_OQ>(score[half], least[half]);
                least[half] = _mm256_min_pd(score[half], least[half]);
                label[half] = _mm256_blendv_pd(label[half], here, closer);
            }
            index += 1.0;
        }
    }
    let mut labels = [0; ROWS];
    for half in 0..2 {
        let whole = store(_mm256_cvtpd_epi32(label[half]));
        labels[half * 4..half * 4 + 4].copy_from_slice(&whole);
    }
    labels
}

/// Adds a row to sums.
#[target_feature(enable = "avx2,fma")]
fn add(row: &Centre, sums: &mut Sums) {
    sums.count += 1;
    for vector in 0..FEATURES / 4 {
        let sum = &mut sums.values[vector * 4..vector * 4 + 4];
        // SAFETY: four values of the sums and four of the row are one vector each.
        unsafe {
            let x = _mm256_loadu_pd(row[vector * 4..vector * 4 + 4].as_ptr());
            let added = _mm256_add_pd(_mm256_loadu_pd(sum.as_ptr()), x);
            _mm256_storeu_pd(sum.as_mut_ptr(), added);
        }
    }
}

/// Two values of each of two rows.
#[target_feature(enable = "avx2,fma")]
fn pairs(low: &Centre, high: &Centre, at: usize) -> __m256d {
    // SAFETY: two values are half a vector.
    let (low, high) = unsafe {
        (
            _mm_loadu_pd(low[at..at + 2].as_ptr()),
            _mm_loadu_pd(high[at..at + 2].as_ptr()),
        )
    };
    _mm256_insertf128_pd::<1>(_mm256_castpd128_pd256(low), high)
}

#[target_feature(enable = "avx2,fma")]
fn store(vector: __m128i) -> [u32; 4] {
    let mut values = [0; 4];
    // SAFETY: four values are one vector.
    unsafe { _mm_storeu_si128(values.as_mut_ptr().cast(), vector) };
    values
}

/// Asks for a line of a tile further on.
#[inline(always)]
fn prefetch(tile: &[Centre; ROWS], line: usize) {
    let ahead = PREFETCH_AHEAD_ROWS * FEATURES + line * 8;
    let at = tile.as_ptr().cast::<f64>().wrapping_add(ahead);
    // SAFETY: a prefetch of any address is a hint that never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}
