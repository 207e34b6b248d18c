//! Two registers of 256 bits: lanes 0 to 3 and 4 to 7.
#![allow(unsafe_code)] // Intrinsics, called from functions that are inlined into `on_v3`.

use std::arch::x86_64::*;

use super::vector::{
    F32x16, F64x8, MANTISSA_BITS, OCTAVE_SHIFT_BITS, ROUNDER, SQRT_HALF_BITS, TWO_52,
};

#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256d, __m256d);

macro_rules! v3 {
    ($body:expr) => {
        // SAFETY: code over `Avx2` runs only inside `on_v3`, after `detect` found AVX2 and FMA. The
        // bodies that take a pointer derive it from a reference or repeat their caller's promise.
        unsafe { $body }
    };
}

macro_rules! both {
    ($operation:ident($($argument:expr),*)) => {
        v3!(Avx2($operation($($argument.0),*), $operation($($argument.1),*)))
    };
}

impl F64x8 for Avx2 {
    /// All bits of a lane set, or none.
    type Mask = Avx2;

    #[inline(always)]
    fn splat(x: f64) -> Self {
        v3!(Avx2(_mm256_set1_pd(x), _mm256_set1_pd(x)))
    }
    #[inline(always)]
    fn load(lanes: &[f64; 8]) -> Self {
        v3!(Avx2(
            _mm256_loadu_pd(lanes.as_ptr()),
            _mm256_loadu_pd(lanes.as_ptr().add(4))
        ))
    }
    #[inline(always)]
    fn store(self, lanes: &mut [f64; 8]) {
        v3!({
            _mm256_storeu_pd(lanes.as_mut_ptr(), self.0);
            _mm256_storeu_pd(lanes.as_mut_ptr().add(4), self.1);
        });
    }
    #[inline(always)]
    fn load_first(from: &[f64]) -> Self {
        v3!(Self::load_masked(from.as_ptr(), Self::first(from.len())))
    }
    #[inline(always)]
    fn store_first(self, into: &mut [f64]) {
        let mask = Self::first(into.len());
        v3!({
            _mm256_maskstore_pd(into.as_mut_ptr(), _mm256_castpd_si256(mask.0), self.0);
            let high = into.as_mut_ptr().wrapping_add(4);
            _mm256_maskstore_pd(high, _mm256_castpd_si256(mask.1), self.1);
        });
    }
    #[inline(always)]
    unsafe fn load_masked(from: *const f64, mask: Self::Mask) -> Self {
        v3!(Avx2(
            _mm256_maskload_pd(from, _mm256_castpd_si256(mask.0)),
            _mm256_maskload_pd(from.wrapping_add(4), _mm256_castpd_si256(mask.1)),
        ))
    }
    #[inline(always)]
    unsafe fn add_first(into: &mut [f64; 8], from: *const f64, mask: Self::Mask, lanes: usize) {
        // Half a vector, as the last of rows of twenty columns: without a mask, and without the other half.
        if lanes == 4 {
            v3!({
                let sum = _mm256_add_pd(_mm256_loadu_pd(into.as_ptr()), _mm256_loadu_pd(from));
                _mm256_storeu_pd(into.as_mut_ptr(), sum);
            });
        } else {
            let more = v3!(Self::load_masked(from, mask));
            Self::load(into).add(more).store(into);
        }
    }
    #[inline(always)]
    fn widen(lanes: &[f32; 8]) -> Self {
        v3!(Avx2(
            _mm256_cvtps_pd(_mm_loadu_ps(lanes.as_ptr())),
            _mm256_cvtps_pd(_mm_loadu_ps(lanes.as_ptr().add(4)))
        ))
    }
    #[inline(always)]
    unsafe fn widen_masked(from: *const f32, mask: Self::Mask) -> Self {
        v3!(Avx2(
            _mm256_cvtps_pd(_mm_maskload_ps(from, halves(mask.0))),
            _mm256_cvtps_pd(_mm_maskload_ps(from.wrapping_add(4), halves(mask.1))),
        ))
    }
    #[inline(always)]
    fn first(lanes: usize) -> Self::Mask {
        let iota = v3!(Avx2(
            _mm256_setr_pd(0.0, 1.0, 2.0, 3.0),
            _mm256_setr_pd(4.0, 5.0, 6.0, 7.0)
        ));
        iota.less(Self::splat(lanes as f64))
    }

    #[inline(always)]
    fn gather(table: &[f64; 1 << 16], places: &[u16; 8]) -> Self {
        // Eight loads: gathers of 256 bits are slower on many CPUs.
        let mut lanes = [0.0; 8];
        let mut i = 0;
        while i < 8 {
            lanes[i] = table[places[i] as usize];
            i += 1;
        }
        Self::load(&lanes)
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        both!(_mm256_add_pd(self, other))
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        both!(_mm256_sub_pd(self, other))
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        both!(_mm256_mul_pd(self, other))
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        both!(_mm256_div_pd(self, other))
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        both!(_mm256_fmadd_pd(self, factor, addend))
    }
    #[inline(always)]
    fn neg(self) -> Self {
        let sign = Self::splat(-0.0);
        both!(_mm256_xor_pd(self, sign))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        let sign = Self::splat(-0.0);
        both!(_mm256_andnot_pd(sign, self))
    }
    #[inline(always)]
    fn clamp(self, low: Self, high: Self) -> Self {
        // With a NaN these return their second operand.
        let below = both!(_mm256_min_pd(high, self));
        both!(_mm256_max_pd(low, below))
    }

    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        // With a NaN, and of equal operands, this returns the second.
        both!(_mm256_min_pd(self, other))
    }

    #[inline(always)]
    fn less(self, other: Self) -> Self::Mask {
        v3!(Avx2(
            _mm256_cmp_pd::<_CMP_LT_OQ>(self.0, other.0),
            _mm256_cmp_pd::<_CMP_LT_OQ>(self.1, other.1),
        ))
    }
    #[inline(always)]
    fn is_nan(self) -> Self::Mask {
        v3!(Avx2(
            _mm256_cmp_pd::<_CMP_UNORD_Q>(self.0, self.0),
            _mm256_cmp_pd::<_CMP_UNORD_Q>(self.1, self.1),
        ))
    }
    #[inline(always)]
    fn lanes(mask: Self::Mask) -> u8 {
        v3!({
            let (low, high) = (_mm256_movemask_pd(mask.0), _mm256_movemask_pd(mask.1));
            (low | high << 4) as u8
        })
    }
    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        both!(_mm256_blendv_pd(no, yes, mask))
    }

    #[inline(always)]
    fn scale(self, exponent: Self) -> Self {
        // In two steps, each a normal power: only the second can round.
        let rounder = Self::splat(ROUNDER);
        let half = exponent.mul_add(Self::splat(0.5), rounder).sub(rounder);
        self.mul(half.power_of_two())
            .mul(exponent.sub(half).power_of_two())
    }
    #[inline(always)]
    fn exponent_mantissa(self) -> (Self, Self) {
        v3!({
            let (low_exponent, low_mantissa) = exponent_mantissa(self.0);
            let (high_exponent, high_mantissa) = exponent_mantissa(self.1);
            (
                Avx2(low_exponent, high_exponent),
                Avx2(low_mantissa, high_mantissa),
            )
        })
    }

    #[inline(always)]
    fn broadcast_lane(self, lane: usize) -> Self {
        v3!({
            let half = if lane < 4 { self.0 } else { self.1 };
            let index = _mm256_set1_epi64x(
                0x0000_0001_0000_0000 + 0x0000_0002_0000_0002 * (lane as i64 % 4),
            );
            let lane = _mm256_castps_pd(_mm256_permutevar8x32_ps(_mm256_castpd_ps(half), index));
            Avx2(lane, lane)
        })
    }
    #[inline(always)]
    fn reduce_add(self) -> f64 {
        v3!({
            let quarter = _mm256_add_pd(self.0, self.1);
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
        let [a0, a1, a2, a3] = four_by_four([a, b, c, d]);
        let [b0, b1, b2, b3] = four_by_four([e, f, g, h]);
        [Avx2(a0, b0), Avx2(a1, b1), Avx2(a2, b2), Avx2(a3, b3)]
    }
    #[inline(always)]
    fn reduce_rows(rows: [Self; 8]) -> Self {
        v3!(Avx2(
            reduce_four(rows[0], rows[1], rows[2], rows[3]),
            reduce_four(rows[4], rows[5], rows[6], rows[7]),
        ))
    }
}

impl Avx2 {
    /// 2^self for integers within the range of normal exponents.
    #[inline(always)]
    fn power_of_two(self) -> Self {
        let biased = self.add(Self::splat(TWO_52 + 1023.0));
        v3!(Avx2(
            _mm256_castsi256_pd(_mm256_slli_epi64::<52>(_mm256_castpd_si256(biased.0))),
            _mm256_castsi256_pd(_mm256_slli_epi64::<52>(_mm256_castpd_si256(biased.1))),
        ))
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn exponent_mantissa(x: __m256d) -> (__m256d, __m256d) {
    let bits = _mm256_castpd_si256(x);
    let shifted = _mm256_add_epi64(bits, _mm256_set1_epi64x(OCTAVE_SHIFT_BITS as i64));
    let biased = _mm256_or_si256(
        _mm256_srli_epi64::<52>(shifted),
        _mm256_set1_epi64x(TWO_52.to_bits() as i64),
    );
    let exponent = _mm256_sub_pd(_mm256_castsi256_pd(biased), _mm256_set1_pd(TWO_52 + 1023.0));
    let mantissa = _mm256_add_epi64(
        _mm256_and_si256(shifted, _mm256_set1_epi64x(MANTISSA_BITS as i64)),
        _mm256_set1_epi64x(SQRT_HALF_BITS as i64),
    );
    (exponent, _mm256_castsi256_pd(mantissa))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn reduce_four(a: Avx2, b: Avx2, c: Avx2, d: Avx2) -> __m256d {
    let (a, b) = (_mm256_add_pd(a.0, a.1), _mm256_add_pd(b.0, b.1));
    let (c, d) = (_mm256_add_pd(c.0, c.1), _mm256_add_pd(d.0, d.1));
    // Rows are paired so that the last unpacking leaves them sorted.
    let ac = halve_fours(a, c);
    let bd = halve_fours(b, d);
    _mm256_add_pd(_mm256_unpacklo_pd(ac, bd), _mm256_unpackhi_pd(ac, bd))
}

/// `[a₀+a₂, a₁+a₃, b₀+b₂, b₁+b₃]`
#[inline]
#[target_feature(enable = "avx2,fma")]
fn halve_fours(a: __m256d, b: __m256d) -> __m256d {
    _mm256_add_pd(
        _mm256_permute2f128_pd::<0x20>(a, b),
        _mm256_permute2f128_pd::<0x31>(a, b),
    )
}

#[inline(always)]
fn four_by_four([a, b, c, d]: [&[f64; 4]; 4]) -> [__m256d; 4] {
    v3!({
        let (a, b) = (_mm256_loadu_pd(a.as_ptr()), _mm256_loadu_pd(b.as_ptr()));
        let (c, d) = (_mm256_loadu_pd(c.as_ptr()), _mm256_loadu_pd(d.as_ptr()));
        let (ab0, ab1) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
        let (cd0, cd1) = (_mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d));
        [
            _mm256_permute2f128_pd::<0x20>(ab0, cd0),
            _mm256_permute2f128_pd::<0x20>(ab1, cd1),
            _mm256_permute2f128_pd::<0x31>(ab0, cd0),
            _mm256_permute2f128_pd::<0x31>(ab1, cd1),
        ]
    })
}

/// The upper half of each lane: a mask of four singles from one of four doubles.
#[inline(always)]
fn halves(mask: __m256d) -> __m128i {
    v3!({
        let (low, high) = (
            _mm256_castpd256_pd128(mask),
            _mm256_extractf128_pd::<1>(mask),
        );
        let odd = _mm_shuffle_ps::<0b11_01_11_01>(_mm_castpd_ps(low), _mm_castpd_ps(high));
        _mm_castps_si128(odd)
    })
}

/// Two registers of 256 bits: lanes 0 to 7 and 8 to 15.
#[derive(Clone, Copy)]
pub(crate) struct Avx2Singles(__m256, __m256);

macro_rules! both_singles {
    ($operation:ident($($argument:expr),*)) => {
        v3!(Avx2Singles($operation($($argument.0),*), $operation($($argument.1),*)))
    };
}

impl F32x16 for Avx2Singles {
    /// All bits of a lane set, or none.
    type Mask = Avx2Singles;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        v3!(Avx2Singles(_mm256_set1_ps(x), _mm256_set1_ps(x)))
    }
    #[inline(always)]
    fn load(lanes: &[f32; 16]) -> Self {
        v3!(Avx2Singles(
            _mm256_loadu_ps(lanes.as_ptr()),
            _mm256_loadu_ps(lanes.as_ptr().add(8))
        ))
    }
    #[inline(always)]
    fn store(self, lanes: &mut [f32; 16]) {
        v3!({
            _mm256_storeu_ps(lanes.as_mut_ptr(), self.0);
            _mm256_storeu_ps(lanes.as_mut_ptr().add(8), self.1);
        });
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        both_singles!(_mm256_sub_ps(self, other))
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        both_singles!(_mm256_fmadd_ps(self, factor, addend))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        both_singles!(_mm256_sqrt_ps(self))
    }
    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        // With a NaN, and of equal operands, this and the next return the second.
        both_singles!(_mm256_min_ps(self, other))
    }
    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        both_singles!(_mm256_max_ps(self, other))
    }
    #[inline(always)]
    fn less(self, other: Self) -> Self::Mask {
        v3!(Avx2Singles(
            _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, other.0),
            _mm256_cmp_ps::<_CMP_LT_OQ>(self.1, other.1),
        ))
    }
    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        both_singles!(_mm256_blendv_ps(no, yes, mask))
    }
    #[inline(always)]
    fn lanes(mask: Self::Mask) -> u16 {
        v3!({
            let (low, high) = (_mm256_movemask_ps(mask.0), _mm256_movemask_ps(mask.1));
            (low | high << 8) as u16
        })
    }
    #[inline(always)]
    fn turn_four<const ABOUT: bool>(
        low: [&[f64; 4]; 8],
        high: [&[f64; 4]; 8],
        about: &[f64; 4],
    ) -> [Self; 4] {
        let [a0, a1, a2, a3] = four_columns::<ABOUT>(low, about);
        let [b0, b1, b2, b3] = four_columns::<ABOUT>(high, about);
        [
            Avx2Singles(a0, b0),
            Avx2Singles(a1, b1),
            Avx2Singles(a2, b2),
            Avx2Singles(a3, b3),
        ]
    }
}

/// Eight rows of four, rounded to singles and turned. `ABOUT`: less the four of `about` before.
#[inline(always)]
fn four_columns<const ABOUT: bool>(
    [a, b, c, d, e, f, g, h]: [&[f64; 4]; 8],
    about: &[f64; 4],
) -> [__m256; 4] {
    v3!({
        let less = _mm256_loadu_pd(about.as_ptr());
        let (ae, bf) = (rounded::<ABOUT>(a, e, less), rounded::<ABOUT>(b, f, less));
        let (cg, dh) = (rounded::<ABOUT>(c, g, less), rounded::<ABOUT>(d, h, less));
        let low_ab = _mm256_castps_pd(_mm256_unpacklo_ps(ae, bf));
        let low_cd = _mm256_castps_pd(_mm256_unpacklo_ps(cg, dh));
        let high_ab = _mm256_castps_pd(_mm256_unpackhi_ps(ae, bf));
        let high_cd = _mm256_castps_pd(_mm256_unpackhi_ps(cg, dh));
        [
            _mm256_castpd_ps(_mm256_unpacklo_pd(low_ab, low_cd)),
            _mm256_castpd_ps(_mm256_unpackhi_pd(low_ab, low_cd)),
            _mm256_castpd_ps(_mm256_unpacklo_pd(high_ab, high_cd)),
            _mm256_castpd_ps(_mm256_unpackhi_pd(high_ab, high_cd)),
        ]
    })
}

/// `low` in lanes 0 to 3, `high` in lanes 4 to 7, rounded to singles. `LESS`: without `less` each.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn rounded<const LESS: bool>(low: &[f64; 4], high: &[f64; 4], less: __m256d) -> __m256 {
    // SAFETY: both are four doubles.
    let (mut low, mut high) = unsafe {
        (
            _mm256_loadu_pd(low.as_ptr()),
            _mm256_loadu_pd(high.as_ptr()),
        )
    };
    if LESS {
        (low, high) = (_mm256_sub_pd(low, less), _mm256_sub_pd(high, less));
    }
    let (low, high) = (_mm256_cvtpd_ps(low), _mm256_cvtpd_ps(high));
    _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low), high)
}
