//! The logical vector.

use serde::{Deserialize, Serialize};

/// 2^52 + 2^51. Adding it rounds a double of magnitude below 2^51 to an integer, ties to even, and
/// leaves that integer in the low bits.
pub(super) const ROUNDER: f64 = 6_755_399_441_055_744.0;
/// 2^52. A double in [2^52, 2^53) holds its integer part in the low bits.
pub(super) const TWO_52: f64 = 4_503_599_627_370_496.0;
/// The bits of the double just below √½: where `exponent_mantissa` cuts an octave.
pub(super) const SQRT_HALF_BITS: u64 = 0x3fe6_a09e_0000_0000;
/// Added to a double's bits, carries into the exponent exactly when the mantissa is at least √2.
pub(super) const OCTAVE_SHIFT_BITS: u64 = 0x3ff0_0000_0000_0000 - SQRT_HALF_BITS;
pub(super) const MANTISSA_BITS: u64 = (1 << 52) - 1;

/// Eight doubles in memory, on a cache line of their own: a vector that crosses lines is read at half the speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[repr(C, align(64))]
pub(crate) struct VectorLine(pub(crate) [f64; 8]);

/// Sixteen singles in memory, on a cache line of their own.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct SingleLine(pub(crate) [f32; 16]);

/// Sixteen singles, each operation lane by lane as of [`F64x8`]. The portable kernels have none.
pub(crate) trait F32x16: Copy {
    type Mask: Copy;

    fn splat(x: f32) -> Self;
    fn load(lanes: &[f32; 16]) -> Self;
    fn store(self, lanes: &mut [f32; 16]);
    fn sub(self, other: Self) -> Self;
    /// `self · factor + addend`, rounded once.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    fn sqrt(self) -> Self;
    /// `self` where it is less, else `other`.
    fn lesser(self, other: Self) -> Self;
    /// `self` where it is greater, else `other`.
    fn greater(self, other: Self) -> Self;
    /// False where either is NaN.
    fn less(self, other: Self) -> Self::Mask;
    /// `yes` where `mask`, else `no`.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;
    /// Bit `i` is lane `i`.
    fn lanes(mask: Self::Mask) -> u16;
    /// Four columns of sixteen rows, rounded: lane `i` of vector `j` is value `j` of row `i`, less value `j` of
    /// `about` where `ABOUT` says so.
    fn turn_four<const ABOUT: bool>(
        low: [&[f64; 4]; 8],
        high: [&[f64; 4]; 8],
        about: &[f64; 4],
    ) -> [Self; 4];
}

/// Eight doubles. Every operation is defined lane by lane by IEEE 754, so all implementations give
/// the same bits, NaN payloads excepted; `canonical` removes that exception.
///
/// Sums across lanes add lane `i` to lane `i + half`, halving until one lane is left.
#[allow(missing_docs)] // Nobody outside can name it: it is public only as what a sealed trait mentions.
pub trait F64x8: Copy {
    type Mask: Copy;

    fn splat(x: f64) -> Self;
    fn load(lanes: &[f64; 8]) -> Self;
    fn store(self, lanes: &mut [f64; 8]);
    /// Lane `i` is `from[i]`, or zero beyond the end; at most eight are read.
    fn load_first(from: &[f64]) -> Self;
    /// Stores the first `into.len()` lanes, at most eight.
    fn store_first(self, into: &mut [f64]);
    /// Lanes `mask` of the eight doubles at `from`, the others zero.
    ///
    /// # Safety
    /// The lanes in `mask` must be readable; the others are not touched.
    #[allow(unsafe_code)] // Implemented in this module's siblings, called by `Rows` alone.
    unsafe fn load_masked(from: *const f64, mask: Self::Mask) -> Self;
    /// Adds the `lanes` doubles at `from` to the first of `into`, 1 to 8.
    ///
    /// # Safety
    /// So many must be readable; `mask` is their [`F64x8::first`].
    #[inline(always)]
    #[allow(unsafe_code)] // As above.
    unsafe fn add_first(into: &mut [f64; 8], from: *const f64, mask: Self::Mask, _lanes: usize) {
        // SAFETY: the caller's promise is the same.
        let more = unsafe { Self::load_masked(from, mask) };
        Self::load(into).add(more).store(into);
    }
    /// Each single as the double that equals it.
    fn widen(lanes: &[f32; 8]) -> Self;
    /// Lanes `mask` of the eight singles at `from`, each as the double that equals it, the others zero.
    ///
    /// # Safety
    /// As [`F64x8::load_masked`].
    #[allow(unsafe_code)] // As above.
    unsafe fn widen_masked(from: *const f32, mask: Self::Mask) -> Self;
    /// The first `lanes` lanes.
    fn first(lanes: usize) -> Self::Mask;

    /// Lane `i` is `table[places[i]]`.
    fn gather(table: &[f64; 1 << 16], places: &[u16; 8]) -> Self;

    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    /// `self · factor + addend`, rounded once.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    /// A NaN stays.
    fn clamp(self, low: Self, high: Self) -> Self;

    /// `self` where it is less, else `other`: NaNs of `self` are passed over.
    fn lesser(self, other: Self) -> Self;
    /// False where either is NaN.
    fn less(self, other: Self) -> Self::Mask;
    fn is_nan(self) -> Self::Mask;
    /// Bit `i` is lane `i`.
    fn lanes(mask: Self::Mask) -> u8;
    /// `yes` where `mask`, else `no`.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// `self · 2^exponent`, rounded once. Exponents are integers within ±1,100, and `self` is in
    /// [½, 2] or NaN.
    fn scale(self, exponent: Self) -> Self;
    /// `(k, m)` with `self = m · 2^k` and `m` in [√½, √2). For other than positive normal numbers
    /// both are unspecified.
    fn exponent_mantissa(self) -> (Self, Self);

    fn broadcast_lane(self, lane: usize) -> Self;
    fn reduce_add(self) -> f64;
    /// Four columns of eight rows: lane `i` of vector `j` is `rows[i][j]`.
    fn turn_four(rows: [&[f64; 4]; 8]) -> [Self; 4];
    /// Lane `i` is `rows[i].reduce_add()`.
    fn reduce_rows(rows: [Self; 8]) -> Self;

    /// NaNs of any sign and payload become the canonical one.
    #[inline(always)]
    fn canonical(self) -> Self {
        Self::select(
            self.is_nan(),
            Self::splat(crate::numerics::CANONICAL_NAN),
            self,
        )
    }
}
