//! Eight doubles in an array, for any CPU.
#![allow(unsafe_code)] // Two masked loads through pointers, as the trait demands.

use super::vector::{F64x8, MANTISSA_BITS, OCTAVE_SHIFT_BITS, SQRT_HALF_BITS};

#[derive(Clone, Copy)]
pub(crate) struct Portable([f64; 8]);

macro_rules! lanes {
    ($lane:ident => $value:expr) => {{
        let mut lanes = [0.0; 8];
        let mut $lane = 0;
        while $lane < 8 {
            lanes[$lane] = $value;
            $lane += 1;
        }
        Portable(lanes)
    }};
}

impl F64x8 for Portable {
    type Mask = [bool; 8];

    #[inline(always)]
    fn splat(x: f64) -> Self {
        Portable([x; 8])
    }
    #[inline(always)]
    fn load(lanes: &[f64; 8]) -> Self {
        Portable(*lanes)
    }
    #[inline(always)]
    fn store(self, lanes: &mut [f64; 8]) {
        *lanes = self.0;
    }
    #[inline(always)]
    fn load_first(from: &[f64]) -> Self {
        lanes!(i => if i < from.len() { from[i] } else { 0.0 })
    }
    #[inline(always)]
    fn store_first(self, into: &mut [f64]) {
        let count = into.len().min(8);
        into[..count].copy_from_slice(&self.0[..count]);
    }
    #[inline(always)]
    unsafe fn load_masked(from: *const f64, mask: Self::Mask) -> Self {
        // SAFETY: the caller says that the lanes in `mask` are readable.
        lanes!(i => if mask[i] { unsafe { *from.add(i) } } else { 0.0 })
    }
    #[inline(always)]
    fn widen(lanes: &[f32; 8]) -> Self {
        lanes!(i => f64::from(lanes[i]))
    }
    #[inline(always)]
    unsafe fn widen_masked(from: *const f32, mask: Self::Mask) -> Self {
        // SAFETY: the caller says that the lanes in `mask` are readable.
        lanes!(i => if mask[i] { f64::from(unsafe { *from.add(i) }) } else { 0.0 })
    }
    #[inline(always)]
    fn first(lanes: usize) -> Self::Mask {
        let mut mask = [false; 8];
        let mut i = 0;
        while i < 8 {
            mask[i] = i < lanes;
            i += 1;
        }
        mask
    }

    #[inline(always)]
    fn gather(table: &[f64; 1 << 16], places: &[u16; 8]) -> Self {
        lanes!(i => table[places[i] as usize])
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        lanes!(i => self.0[i] + other.0[i])
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        lanes!(i => self.0[i] - other.0[i])
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        lanes!(i => self.0[i] * other.0[i])
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        lanes!(i => self.0[i] / other.0[i])
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        lanes!(i => self.0[i].mul_add(factor.0[i], addend.0[i]))
    }
    #[inline(always)]
    fn neg(self) -> Self {
        lanes!(i => -self.0[i])
    }
    #[inline(always)]
    fn abs(self) -> Self {
        lanes!(i => self.0[i].abs())
    }
    #[inline(always)]
    fn clamp(self, low: Self, high: Self) -> Self {
        let below = lanes!(i => if high.0[i] < self.0[i] { high.0[i] } else { self.0[i] });
        lanes!(i => if low.0[i] > below.0[i] { low.0[i] } else { below.0[i] })
    }

    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        lanes!(i => if self.0[i] < other.0[i] { self.0[i] } else { other.0[i] })
    }

    #[inline(always)]
    fn less(self, other: Self) -> Self::Mask {
        let mut mask = [false; 8];
        let mut i = 0;
        while i < 8 {
            mask[i] = self.0[i] < other.0[i];
            i += 1;
        }
        mask
    }
    #[inline(always)]
    fn is_nan(self) -> Self::Mask {
        let mut mask = [false; 8];
        let mut i = 0;
        while i < 8 {
            mask[i] = self.0[i].is_nan();
            i += 1;
        }
        mask
    }
    #[inline(always)]
    fn lanes(mask: Self::Mask) -> u8 {
        let (mut bits, mut i) = (0, 0);
        while i < 8 {
            bits |= u8::from(mask[i]) << i;
            i += 1;
        }
        bits
    }
    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        lanes!(i => if mask[i] { yes.0[i] } else { no.0[i] })
    }

    #[inline(always)]
    fn scale(self, exponent: Self) -> Self {
        // In two steps, each a normal power: only the second can round.
        lanes!(i => {
            let exponent = exponent.0[i] as i64;
            let half = exponent >> 1;
            self.0[i] * power_of_two(half) * power_of_two(exponent - half)
        })
    }
    #[inline(always)]
    fn exponent_mantissa(self) -> (Self, Self) {
        let exponent = lanes!(i => {
            let shifted = self.0[i].to_bits().wrapping_add(OCTAVE_SHIFT_BITS);
            (shifted >> 52) as f64 - 1023.0
        });
        let mantissa = lanes!(i => {
            let shifted = self.0[i].to_bits().wrapping_add(OCTAVE_SHIFT_BITS);
            f64::from_bits((shifted & MANTISSA_BITS) + SQRT_HALF_BITS)
        });
        (exponent, mantissa)
    }

    #[inline(always)]
    fn broadcast_lane(self, lane: usize) -> Self {
        Portable([self.0[lane]; 8])
    }
    #[inline(always)]
    fn reduce_add(self) -> f64 {
        let [a, b, c, d, e, f, g, h] = self.0;
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }
    #[inline(always)]
    fn turn_four(rows: [&[f64; 4]; 8]) -> [Self; 4] {
        let mut turned = [Portable([0.0; 8]); 4];
        let mut column = 0;
        while column < 4 {
            turned[column] = lanes!(i => rows[i][column]);
            column += 1;
        }
        turned
    }
    #[inline(always)]
    fn reduce_rows(rows: [Self; 8]) -> Self {
        lanes!(i => rows[i].reduce_add())
    }
}

#[inline(always)]
fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
