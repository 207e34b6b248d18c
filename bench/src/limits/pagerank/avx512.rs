//! Gathers of 512 bits.
#![allow(unsafe_code)] // Intrinsics.

use super::AHEAD;
use super::scalar::prefetch;
use std::arch::x86_64::*;

macro_rules! sum_rows {
    ($name:ident, $real:ty, $lanes:literal, $zero:ident, $add:ident, $reduce:ident, $load:expr, $gather:ident,
     $some:expr) => {
        /// The sums of rows. Places lie in the table, and [`AHEAD`] more follow the last row.
        #[target_feature(enable = "avx512f")]
        pub(super) fn $name<const PREFETCH: bool>(
            table: &[$real],
            places: &[u32],
            bounds: &[usize],
            sums: &mut [$real],
        ) {
            for (row, sum) in bounds.windows(2).zip(sums) {
                let (mut at, end) = (row[0], row[1]);
                assert!(at <= end && end + AHEAD <= places.len());
                let mut lanes = [$zero(); 4];
                while at + 4 * $lanes <= end {
                    for (part, lanes) in lanes.iter_mut().enumerate() {
                        let first = at + part * $lanes;
                        // SAFETY: so many places follow, which lie in the table.
                        let values = unsafe {
                            $gather::<{ size_of::<$real>() as i32 }>(
                                $load(places.as_ptr().add(first)),
                                table.as_ptr(),
                            )
                        };
                        *lanes = $add(*lanes, values);
                    }
                    if PREFETCH {
                        for &place in &places[at + AHEAD..at + AHEAD + 4 * $lanes] {
                            prefetch(table, place);
                        }
                    }
                    at += 4 * $lanes;
                }
                let mut part = 0;
                while at < end {
                    let count = (end - at).min($lanes);
                    let (of, first) = (table.as_ptr(), &places[at..]);
                    // SAFETY: places beyond the row's are loaded, of which there are enough, but not gathered.
                    let values = unsafe { $some(of, first.as_ptr(), count as u32) };
                    lanes[part] = $add(lanes[part], values);
                    part = (part + 1) % 4;
                    at += count;
                }
                *sum = $reduce($add($add(lanes[0], lanes[1]), $add(lanes[2], lanes[3])));
            }
        }
    };
}

sum_rows!(
    sum_rows_f64,
    f64,
    8,
    _mm512_setzero_pd,
    _mm512_add_pd,
    _mm512_reduce_add_pd,
    |at: *const u32| _mm256_loadu_si256(at.cast()),
    gather_f64,
    some_f64
);
sum_rows!(
    sum_rows_f32,
    f32,
    16,
    _mm512_setzero_ps,
    _mm512_add_ps,
    _mm512_reduce_add_ps,
    |at: *const u32| _mm512_loadu_si512(at.cast()),
    gather_f32,
    some_f32
);

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn gather_f64<const SCALE: i32>(places: __m256i, table: *const f64) -> __m512d {
    // SAFETY: the caller's promise.
    unsafe { _mm512_i32gather_pd::<SCALE>(places, table) }
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn gather_f32<const SCALE: i32>(places: __m512i, table: *const f32) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_i32gather_ps::<SCALE>(places, table) }
}

/// The values at the first `count` of eight places, and zeros.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn some_f64(table: *const f64, places: *const u32, count: u32) -> __m512d {
    let (zeros, mask) = (_mm512_setzero_pd(), ((1u32 << count) - 1) as __mmask8);
    // SAFETY: the caller's promise: eight places can be read, and those of the mask lie in the table.
    unsafe {
        let places = _mm256_loadu_si256(places.cast());
        _mm512_mask_i32gather_pd::<8>(zeros, mask, places, table)
    }
}

/// The values at the first `count` of sixteen places, and zeros.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn some_f32(table: *const f32, places: *const u32, count: u32) -> __m512 {
    let (zeros, mask) = (_mm512_setzero_ps(), ((1u32 << count) - 1) as __mmask16);
    // SAFETY: the caller's promise: sixteen places can be read, and those of the mask lie in the table.
    unsafe {
        let places = _mm512_loadu_si512(places.cast());
        _mm512_mask_i32gather_ps::<4>(zeros, mask, places, table)
    }
}
