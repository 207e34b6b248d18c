//! Centres in lanes: a vector holds a feature of eight centres, and a row's value is spread over all its
//! lanes. No row is turned, but the least score lies in some lane and has to be looked for.
#![allow(unsafe_code)] // Calls of functions compiled for AVX-512.
#![allow(clippy::needless_range_loop)] // An index runs over registers, in several arrays at once.

use std::arch::x86_64::*;

use super::{add, load};
use crate::limits::kmeans::packed::Packed;
use crate::limits::kmeans::{Centre, FEATURES, Part};

// Two vectors of centres with eight rows, four with six, thirteen with two: each fills the registers.
pub(in crate::limits::kmeans) const SHAPES: [usize; 3] = [16, 32, 104];

/// Adds whole tiles of rows to `part`, and returns how many rows that were. The CPU must have AVX-512 F.
pub(in crate::limits::kmeans) fn add_rows(
    rows: &[Centre],
    centres: &Packed,
    part: &mut Part,
) -> usize {
    debug_assert!(is_x86_feature_detected!("avx512f"));
    // SAFETY: `BareLoop` asserted that the CPU has it.
    unsafe {
        match centres.group {
            16 => add_tiles::<8, 2, 16>(rows, centres, part),
            32 => add_tiles::<6, 4, 32>(rows, centres, part),
            104 => add_tiles::<2, 13, 104>(rows, centres, part),
            group => unreachable!("no loop for groups of {group}"),
        }
    }
}

#[target_feature(enable = "avx512f")]
fn add_tiles<const ROWS: usize, const VECTORS: usize, const GROUP: usize>(
    rows: &[Centre],
    centres: &Packed,
    part: &mut Part,
) -> usize {
    const { assert!(GROUP == VECTORS * 8) };
    let (tiles, _) = rows.as_chunks::<ROWS>();
    for tile in tiles {
        let labels = nearest::<ROWS, VECTORS, GROUP>(tile, centres);
        for (row, &label) in tile.iter().zip(&labels) {
            add(row, &mut part.sums[label as usize]);
        }
        part.note(&labels);
    }
    tiles.len() * ROWS
}

/// The labels of a tile's rows.
#[target_feature(enable = "avx512f")]
fn nearest<const ROWS: usize, const VECTORS: usize, const GROUP: usize>(
    tile: &[Centre; ROWS],
    centres: &Packed,
) -> [u32; ROWS] {
    let mut least = [_mm512_set1_pd(f64::INFINITY); ROWS];
    let mut label = [_mm512_setzero_si512(); ROWS];
    let mut here = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    for (group, halves) in centres.groups::<GROUP>() {
        let mut scores = [[_mm512_setzero_pd(); VECTORS]; ROWS];
        let (halves, _) = halves.as_chunks::<8>();
        for row in 0..ROWS {
            for vector in 0..VECTORS {
                scores[row][vector] = load(&halves[vector]);
            }
        }
        for feature in 0..FEATURES {
            let (negated, _) = group[feature].as_chunks::<8>();
            let mut x = [_mm512_setzero_pd(); ROWS];
            for row in 0..ROWS {
                x[row] = _mm512_set1_pd(tile[row][feature]);
            }
            for vector in 0..VECTORS {
                let values = load(&negated[vector]);
                for row in 0..ROWS {
                    scores[row][vector] = _mm512_fmadd_pd(x[row], values, scores[row][vector]);
                }
            }
        }
        for vector in 0..VECTORS {
            for row in 0..ROWS {
                let score = scores[row][vector];
                let closer = _mm512_cmp_pd_mask::<_CMP_LT_OQ>(score, least[row]);
                least[row] = _mm512_min_pd(score, least[row]);
                label[row] = _mm512_mask_mov_epi64(label[row], closer, here);
            }
            here = _mm512_add_epi64(here, _mm512_set1_epi64(8));
        }
    }
    let mut labels = [0; ROWS];
    for row in 0..ROWS {
        labels[row] = first_of_least(least[row], label[row]);
    }
    labels
}

/// The label of the lane with the least score; of equal ones the smallest.
#[target_feature(enable = "avx512f")]
fn first_of_least(least: __m512d, labels: __m512i) -> u32 {
    let all = _mm512_set1_pd(_mm512_reduce_min_pd(least));
    let is_least = _mm512_cmp_pd_mask::<_CMP_EQ_OQ>(least, all);
    _mm512_mask_reduce_min_epu64(is_least, labels) as u32
}
