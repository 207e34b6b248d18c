//! One register of 512 bits.
#![allow(unsafe_code)] // Intrinsics, called from functions that are inlined into `on_v4`.

use std::arch::x86_64::*;

use super::vector::{F32x16, F64x8, MANTISSA_BITS, OCTAVE_SHIFT_BITS, SQRT_HALF_BITS, TWO_52};

#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512d);

macro_rules! v4 {
    ($body:expr) => {
        // SAFETY: code over `Avx512` runs only inside `on_v4`, after `detect` found AVX-512. The
        // bodies that take a pointer derive it from a reference or repeat their caller's promise.
        unsafe { $body }
    };
}

impl F64x8 for Avx512 {
    type Mask = __mmask8;

    #[inline(always)]
    fn splat(x: f64) -> Self {
        Avx512(v4!(_mm512_set1_pd(x)))
    }
    #[inline(always)]
    fn load(lanes: &[f64; 8]) -> Self {
        Avx512(v4!(_mm512_loadu_pd(lanes.as_ptr())))
    }
    #[inline(always)]
    fn store(self, lanes: &mut [f64; 8]) {
        v4!(_mm512_storeu_pd(lanes.as_mut_ptr(), self.0));
    }
    #[inline(always)]
    fn load_first(from: &[f64]) -> Self {
        Avx512(v4!(_mm512_maskz_loadu_pd(
            Self::first(from.len()),
            from.as_ptr()
        )))
    }
    #[inline(always)]
    fn store_first(self, into: &mut [f64]) {
        v4!(_mm512_mask_storeu_pd(
            into.as_mut_ptr(),
            Self::first(into.len()),
            self.0
        ));
    }
    #[inline(always)]
    unsafe fn load_masked(from: *const f64, mask: Self::Mask) -> Self {
        Avx512(v4!(_mm512_maskz_loadu_pd(mask, from)))
    }
    #[inline(always)]
    fn widen(lanes: &[f32; 8]) -> Self {
        Avx512(v4!(_mm512_cvtps_pd(_mm256_loadu_ps(lanes.as_ptr()))))
    }
    #[inline(always)]
    unsafe fn widen_masked(from: *const f32, mask: Self::Mask) -> Self {
        Avx512(v4!(_mm512_cvtps_pd(_mm256_maskz_loadu_ps(mask, from))))
    }
    #[inline(always)]
    fn first(lanes: usize) -> Self::Mask {
        if lanes >= 8 { 0xff } else { (1 << lanes) - 1 }
    }

    #[inline(always)]
    fn gather(table: &[f64; 1 << 16], places: &[u16; 8]) -> Self {
        // No place of 16 bits is beyond the table.
        Avx512(v4!(_mm512_i32gather_pd::<8>(
            _mm256_cvtepu16_epi32(_mm_loadu_si128(places.as_ptr().cast())),
            table.as_ptr()
        )))
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Avx512(v4!(_mm512_add_pd(self.0, other.0)))
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Avx512(v4!(_mm512_sub_pd(self.0, other.0)))
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Avx512(v4!(_mm512_mul_pd(self.0, other.0)))
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        Avx512(v4!(_mm512_div_pd(self.0, other.0)))
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        Avx512(v4!(_mm512_fmadd_pd(self.0, factor.0, addend.0)))
    }
    #[inline(always)]
    fn neg(self) -> Self {
        Avx512(v4!(_mm512_xor_pd(self.0, _mm512_set1_pd(-0.0))))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Avx512(v4!(_mm512_abs_pd(self.0)))
    }
    #[inline(always)]
    fn clamp(self, low: Self, high: Self) -> Self {
        // With a NaN these return their second operand.
        Avx512(v4!(_mm512_max_pd(low.0, _mm512_min_pd(high.0, self.0))))
    }

    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        // With a NaN, and of equal operands, this returns the second.
        Avx512(v4!(_mm512_min_pd(self.0, other.0)))
    }

    #[inline(always)]
    fn less(self, other: Self) -> Self::Mask {
        v4!(_mm512_cmp_pd_mask::<_CMP_LT_OQ>(self.0, other.0))
    }
    #[inline(always)]
    fn is_nan(self) -> Self::Mask {
        v4!(_mm512_cmp_pd_mask::<_CMP_UNORD_Q>(self.0, self.0))
    }
    #[inline(always)]
    fn lanes(mask: Self::Mask) -> u8 {
        mask
    }
    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        Avx512(v4!(_mm512_mask_blend_pd(mask, no.0, yes.0)))
    }

    #[inline(always)]
    fn scale(self, exponent: Self) -> Self {
        Avx512(v4!(_mm512_scalef_pd(self.0, exponent.0)))
    }
    #[inline(always)]
    fn exponent_mantissa(self) -> (Self, Self) {
        v4!({
            let bits = _mm512_castpd_si512(self.0);
            let shifted = _mm512_add_epi64(bits, _mm512_set1_epi64(OCTAVE_SHIFT_BITS as i64));
            let biased = _mm512_or_si512(
                _mm512_srli_epi64::<52>(shifted),
                _mm512_set1_epi64(TWO_52.to_bits() as i64),
            );
            let exponent =
                _mm512_sub_pd(_mm512_castsi512_pd(biased), _mm512_set1_pd(TWO_52 + 1023.0));
            let mantissa = _mm512_add_epi64(
                _mm512_and_si512(shifted, _mm512_set1_epi64(MANTISSA_BITS as i64)),
                _mm512_set1_epi64(SQRT_HALF_BITS as i64),
            );
            (Avx512(exponent), Avx512(_mm512_castsi512_pd(mantissa)))
        })
    }

    #[inline(always)]
    fn broadcast_lane(self, lane: usize) -> Self {
        Avx512(v4!(_mm512_permutexvar_pd(
            _mm512_set1_epi64(lane as i64),
            self.0
        )))
    }
    #[inline(always)]
    fn reduce_add(self) -> f64 {
        v4!({
            let quarter = _mm256_add_pd(
                _mm512_castpd512_pd256(self.0),
                _mm512_extractf64x4_pd::<1>(self.0),
            );
            let pair = _mm_add_pd(
                _mm256_castpd256_pd128(quarter),
                _mm256_extractf128_pd::<1>(quarter),
            );
            _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)))
        })
    }
    #[inline(always)]
    fn turn_four(rows: [&[f64; 4]; 8]) -> [Self; 4] {
        let [a, b, c, d, e, f, g, h] = rows;
        v4!({
            // Halves come from memory without a shuffle; rows are paired so that two steps sort them.
            let (ac, bd, eg, fh) = (halves(a, c), halves(b, d), halves(e, g), halves(f, h));
            let (low, high) = (_mm512_unpacklo_pd(ac, bd), _mm512_unpacklo_pd(eg, fh));
            let (low1, high1) = (_mm512_unpackhi_pd(ac, bd), _mm512_unpackhi_pd(eg, fh));
            [
                Avx512(_mm512_shuffle_f64x2::<0b10_00_10_00>(low, high)),
                Avx512(_mm512_shuffle_f64x2::<0b10_00_10_00>(low1, high1)),
                Avx512(_mm512_shuffle_f64x2::<0b11_01_11_01>(low, high)),
                Avx512(_mm512_shuffle_f64x2::<0b11_01_11_01>(low1, high1)),
            ]
        })
    }
    #[inline(always)]
    fn reduce_rows(rows: [Self; 8]) -> Self {
        // Rows enter in the order in which the last unpacking leaves them sorted.
        v4!({
            let fours_04 = halve_rows(rows[0].0, rows[2].0);
            let fours_26 = halve_rows(rows[4].0, rows[6].0);
            let fours_15 = halve_rows(rows[1].0, rows[3].0);
            let fours_37 = halve_rows(rows[5].0, rows[7].0);
            let twos_even = halve_fours(fours_04, fours_26);
            let twos_odd = halve_fours(fours_15, fours_37);
            Avx512(_mm512_add_pd(
                _mm512_unpacklo_pd(twos_even, twos_odd),
                _mm512_unpackhi_pd(twos_even, twos_odd),
            ))
        })
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Avx512Singles(__m512);

impl F32x16 for Avx512Singles {
    type Mask = __mmask16;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Avx512Singles(v4!(_mm512_set1_ps(x)))
    }
    #[inline(always)]
    fn load(lanes: &[f32; 16]) -> Self {
        Avx512Singles(v4!(_mm512_loadu_ps(lanes.as_ptr())))
    }
    #[inline(always)]
    fn store(self, lanes: &mut [f32; 16]) {
        v4!(_mm512_storeu_ps(lanes.as_mut_ptr(), self.0));
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Avx512Singles(v4!(_mm512_sub_ps(self.0, other.0)))
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        Avx512Singles(v4!(_mm512_fmadd_ps(self.0, factor.0, addend.0)))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Avx512Singles(v4!(_mm512_sqrt_ps(self.0)))
    }
    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        // With a NaN, and of equal operands, this and the next return the second.
        Avx512Singles(v4!(_mm512_min_ps(self.0, other.0)))
    }
    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        Avx512Singles(v4!(_mm512_max_ps(self.0, other.0)))
    }
    #[inline(always)]
    fn less(self, other: Self) -> Self::Mask {
        v4!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, other.0))
    }
    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        Avx512Singles(v4!(_mm512_mask_blend_ps(mask, no.0, yes.0)))
    }
    #[inline(always)]
    fn lanes(mask: Self::Mask) -> u16 {
        mask
    }
    #[inline(always)]
    fn turn_four<const ABOUT: bool>(
        low: [&[f64; 4]; 8],
        high: [&[f64; 4]; 8],
        about: &[f64; 4],
    ) -> [Self; 4] {
        let [a, b, c, d, e, f, g, h] = low;
        let [i, j, k, l, m, n, o, p] = high;
        v4!({
            let less = halves(about, about);
            // Every fourth row, so that turning four by four within quarters sorts them.
            let rows_0 = quarters::<ABOUT>(a, e, i, m, less);
            let rows_1 = quarters::<ABOUT>(b, f, j, n, less);
            let rows_2 = quarters::<ABOUT>(c, g, k, o, less);
            let rows_3 = quarters::<ABOUT>(d, h, l, p, less);
            let low_01 = _mm512_castps_pd(_mm512_unpacklo_ps(rows_0, rows_1));
            let low_23 = _mm512_castps_pd(_mm512_unpacklo_ps(rows_2, rows_3));
            let high_01 = _mm512_castps_pd(_mm512_unpackhi_ps(rows_0, rows_1));
            let high_23 = _mm512_castps_pd(_mm512_unpackhi_ps(rows_2, rows_3));
            [
                Avx512Singles(_mm512_castpd_ps(_mm512_unpacklo_pd(low_01, low_23))),
                Avx512Singles(_mm512_castpd_ps(_mm512_unpackhi_pd(low_01, low_23))),
                Avx512Singles(_mm512_castpd_ps(_mm512_unpacklo_pd(high_01, high_23))),
                Avx512Singles(_mm512_castpd_ps(_mm512_unpackhi_pd(high_01, high_23))),
            ]
        })
    }
}

/// Four rows of four, rounded to singles, one after another. `LESS`: two rows of `less` are subtracted before.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn quarters<const LESS: bool>(
    a: &[f64; 4],
    b: &[f64; 4],
    c: &[f64; 4],
    d: &[f64; 4],
    less: __m512d,
) -> __m512 {
    let (mut low, mut high) = (halves(a, b), halves(c, d));
    if LESS {
        (low, high) = (_mm512_sub_pd(low, less), _mm512_sub_pd(high, less));
    }
    let (low, high) = (_mm512_cvtpd_ps(low), _mm512_cvtpd_ps(high));
    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
}

/// `low` in lanes 0 to 3, `high` in lanes 4 to 7.
#[inline]
#[target_feature(enable = "avx512f")]
fn halves(low: &[f64; 4], high: &[f64; 4]) -> __m512d {
    // SAFETY: both are four doubles.
    let (low, high) = unsafe {
        (
            _mm256_loadu_pd(low.as_ptr()),
            _mm256_loadu_pd(high.as_ptr()),
        )
    };
    _mm512_insertf64x4::<1>(_mm512_castpd256_pd512(low), high)
}

/// `[a₀+a₄ … a₃+a₇, b₀+b₄ … b₃+b₇]`
#[inline]
#[target_feature(enable = "avx512f")]
fn halve_rows(a: __m512d, b: __m512d) -> __m512d {
    _mm512_add_pd(
        _mm512_shuffle_f64x2::<0x44>(a, b),
        _mm512_shuffle_f64x2::<0xee>(a, b),
    )
}

/// For four rows of four lanes, lanes 0 and 2 added, and 1 and 3.
#[inline]
#[target_feature(enable = "avx512f")]
fn halve_fours(ab: __m512d, cd: __m512d) -> __m512d {
    _mm512_add_pd(
        _mm512_shuffle_f64x2::<0x88>(ab, cd),
        _mm512_shuffle_f64x2::<0xdd>(ab, cd),
    )
}
