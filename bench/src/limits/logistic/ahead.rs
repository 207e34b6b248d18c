//! Asks for memory before it is needed.
#![allow(unsafe_code)] // Prefetches.

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

use super::FEATURES;

/// How far ahead: 4 KB. With 10 KB the 512-bit loops are slower, on an EPYC.
const AHEAD_ROWS: usize = 25;
const LINE_F64S: usize = 8;

/// The lines of a row some way behind `row`. For each row by itself: in a burst for all rows of a group they help less.
#[inline(always)]
pub(super) fn prefetch_row(row: &[f64]) {
    let ahead = row.as_ptr().wrapping_add(AHEAD_ROWS * FEATURES);
    for line in 0..FEATURES.div_ceil(LINE_F64S) {
        prefetch(ahead.wrapping_add(line * LINE_F64S));
    }
}

/// The labels of those rows.
#[inline(always)]
pub(super) fn prefetch_labels(labels: &[f64]) {
    prefetch(labels.as_ptr().wrapping_add(AHEAD_ROWS));
}

#[inline(always)]
fn prefetch(at: *const f64) {
    // SAFETY: a prefetch of any address is a hint that never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}
