//! Plain Rust, for any CPU.
#![allow(unsafe_code)] // No check of places: they were checked when the edges were sorted.

use super::{AHEAD, Real};

/// `LANES` sums side by side for a row: one would wait for each of its additions.
pub(super) fn sum_rows<R: Real, const LANES: usize, const PREFETCH: bool>(
    table: &[R],
    places: &[u32],
    bounds: &[usize],
    sums: &mut [R],
) {
    for (row, sum) in bounds.windows(2).zip(sums) {
        let own = &places[row[0]..row[1]];
        let ahead = &places[row[0] + AHEAD..row[1] + AHEAD];
        let mut lanes = [R::default(); LANES];
        let ((groups, rest), (ahead, _)) = (own.as_chunks::<LANES>(), ahead.as_chunks::<LANES>());
        for (group, ahead) in groups.iter().zip(ahead) {
            for lane in 0..LANES {
                if PREFETCH {
                    prefetch(table, ahead[lane]);
                }
                lanes[lane] += value(table, group[lane]);
            }
        }
        for (lane, &place) in lanes.iter_mut().zip(rest) {
            *lane += value(table, place);
        }
        *sum = lanes.into_iter().fold(R::default(), |a, b| a + b);
    }
}

#[inline(always)]
fn value<R: Real>(table: &[R], place: u32) -> R {
    debug_assert!((place as usize) < table.len());
    // SAFETY: the caller promises that places lie in the table.
    unsafe { *table.get_unchecked(place as usize) }
}

#[inline(always)]
pub(super) fn prefetch<R>(table: &[R], place: u32) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = table.as_ptr().wrapping_add(place as usize);
        // SAFETY: a prefetch of any address is a hint that never faults, and SSE is the baseline.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (table, place);
}
