//! Sixteen rows at a time, turned into columns, against a group of centres at a time: twenty vectors of
//! scores for ten centres, two of rows and one of a centre's value.
#![allow(unsafe_code)] // Vector loads and stores, and calls of functions compiled for AVX-512.
#![allow(clippy::needless_range_loop)] // An index runs over registers, in several arrays at once.

use std::arch::x86_64::*;

use super::packed::Packed;
use super::{Centre, FEATURES, Part, Sums};

const ROWS: usize = 16;
// Twelve centres are as many as the 32 registers hold.
pub(super) const GROUPS: [usize; 3] = [12, 10, 8];
const PREFETCH_AHEAD_ROWS: usize = 64;

/// Columns of a tile: the values of sixteen rows, feature by feature.
type Tile = [[__m512d; 2]; FEATURES];

/// Adds whole tiles of sixteen rows to `part`, and returns how many rows that were. The CPU must have
/// AVX-512 F, DQ and VL.
pub(super) fn add_rows<const PREFETCH: bool>(
    rows: &[Centre],
    centres: &Packed,
    part: &mut Part,
) -> usize {
    debug_assert!(is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq"));
    // SAFETY: `Bare::kernel` asserted that the CPU has them.
    unsafe {
        match centres.group {
            8 => add_tiles::<PREFETCH, 8>(rows, centres, part),
            10 => add_tiles::<PREFETCH, 10>(rows, centres, part),
            12 => add_tiles::<PREFETCH, 12>(rows, centres, part),
            group => unreachable!("no loop for groups of {group}"),
        }
    }
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn add_tiles<const PREFETCH: bool, const GROUP: usize>(
    rows: &[Centre],
    centres: &Packed,
    part: &mut Part,
) -> usize {
    let (tiles, _) = rows.as_chunks::<ROWS>();
    let mut columns: Tile = [[_mm512_setzero_pd(); 2]; FEATURES];
    for tile in tiles {
        turn(tile, &mut columns);
        let labels = nearest::<PREFETCH, GROUP>(tile, &columns, centres);
        for (row, &label) in tile.iter().zip(&labels) {
            add(row, &mut part.sums[label as usize]);
        }
        part.note(&labels);
    }
    tiles.len() * ROWS
}

/// Sixteen rows as columns, four features of eight rows at a time.
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn turn(tile: &[Centre; ROWS], columns: &mut Tile) {
    for half in 0..2 {
        let rows = &tile[half * 8..half * 8 + 8];
        for feature in (0..FEATURES).step_by(4) {
            // Halves from memory need no shuffle: rows 0 and 2, 1 and 3, 4 and 6, 5 and 7.
            let (a, b) = (
                fours(&rows[0], &rows[2], feature),
                fours(&rows[1], &rows[3], feature),
            );
            let (c, d) = (
                fours(&rows[4], &rows[6], feature),
                fours(&rows[5], &rows[7], feature),
            );
            // Features 0 and 2 of rows 0 to 3 and of rows 4 to 7; then features 1 and 3.
            let even = (_mm512_unpacklo_pd(a, b), _mm512_unpacklo_pd(c, d));
            let odd = (_mm512_unpackhi_pd(a, b), _mm512_unpackhi_pd(c, d));
            columns[feature][half] = _mm512_shuffle_f64x2::<0b10_00_10_00>(even.0, even.1);
            columns[feature + 1][half] = _mm512_shuffle_f64x2::<0b10_00_10_00>(odd.0, odd.1);
            columns[feature + 2][half] = _mm512_shuffle_f64x2::<0b11_01_11_01>(even.0, even.1);
            columns[feature + 3][half] = _mm512_shuffle_f64x2::<0b11_01_11_01>(odd.0, odd.1);
        }
    }
}

/// The labels of sixteen rows.
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn nearest<const PREFETCH: bool, const GROUP: usize>(
    tile: &[Centre; ROWS],
    columns: &Tile,
    centres: &Packed,
) -> [u32; ROWS] {
    let mut least = [_mm512_set1_pd(f64::INFINITY); 2];
    let mut label = [_mm512_setzero_si512(); 2];
    let mut index = 0;
    for (group, halves) in centres.groups::<GROUP>() {
        let mut scores = [[_mm512_setzero_pd(); 2]; GROUP];
        for place in 0..GROUP {
            scores[place] = [_mm512_set1_pd(halves[place]); 2];
        }
        for feature in 0..FEATURES {
            // A tile has forty lines: two for each feature, asked for with the first group.
            if PREFETCH && index == 0 {
                prefetch(tile, feature * 2);
                prefetch(tile, feature * 2 + 1);
            }
            let x = columns[feature];
            for place in 0..GROUP {
                let value = _mm512_set1_pd(group[feature][place]);
                scores[place][0] = _mm512_fmadd_pd(x[0], value, scores[place][0]);
                scores[place][1] = _mm512_fmadd_pd(x[1], value, scores[place][1]);
            }
        }
        for score in scores {
            let here = _mm512_set1_epi64(index);
            for half in 0..2 {
                let closer = _mm512_cmp_pd_mask::<_CMP_LT_OQ>(score[half], least[half]);
                least[half] = _mm512_min_pd(score[half], least[half]);
                label[half] = _mm512_mask_mov_epi64(label[half], closer, here);
            }
            index += 1;
        }
    }
    let mut labels = [0; ROWS];
    for half in 0..2 {
        labels[half * 8..half * 8 + 8].copy_from_slice(&store(label[half]));
    }
    labels
}

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

/// Four values of each of two rows.
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn fours(low: &Centre, high: &Centre, at: usize) -> __m512d {
    // SAFETY: four values are half a vector.
    let (low, high) = unsafe {
        (
            _mm256_loadu_pd(low[at..at + 4].as_ptr()),
            _mm256_loadu_pd(high[at..at + 4].as_ptr()),
        )
    };
    _mm512_insertf64x4::<1>(_mm512_castpd256_pd512(low), high)
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn store(labels: __m512i) -> [u32; 8] {
    let mut values = [0; 8];
    // SAFETY: eight values of 32 bits are one vector of 256.
    unsafe { _mm256_storeu_si256(values.as_mut_ptr().cast(), _mm512_cvtepi64_epi32(labels)) };
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
