//! Sums, extremes and element-wise addition.
//!
//! Plain loops over arrays of accumulators, which the compiler turns into vectors: the order of a sum
//! is the order written here, because nothing may reassociate floating-point addition.

use super::CANONICAL_NAN;
use crate::simd::{F64x8, Isa, SimdKernel, dispatch};

/// Accumulators of a reduction: four logical vectors of doubles, so that one addition need not wait
/// for the last. Fixed, because it decides a sum's order.
const LANES: usize = 32;

mod sealed {
    pub trait Sealed {}
}

/// A number that kernels reduce: `f64`, `f32`, `i64` or `u64`.
pub trait Element: Copy + PartialEq + sealed::Sealed {
    /// What a sum starts from: zero, and +0.0 for floats.
    #[doc(hidden)]
    const ZERO: Self;
    /// An integer whose order is the order of extremes.
    #[doc(hidden)]
    type Key: Copy + Ord;
    #[doc(hidden)]
    const LEAST: Self::Key;
    #[doc(hidden)]
    const GREATEST: Self::Key;
    #[doc(hidden)]
    fn plus(self, other: Self) -> Self;
    #[doc(hidden)]
    fn key(self) -> Self::Key;
    #[doc(hidden)]
    fn from_key(key: Self::Key) -> Self;
    #[doc(hidden)]
    fn is_nan(self) -> bool;
    #[doc(hidden)]
    const NAN: Self;
}

macro_rules! float {
    ($float:ty, $bits:ty, $key:ty, $nan:expr) => {
        impl sealed::Sealed for $float {}
        impl Element for $float {
            const ZERO: Self = 0.0;
            type Key = $key;
            const LEAST: $key = <$key>::MIN;
            const GREATEST: $key = <$key>::MAX;
            const NAN: Self = $nan;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn key(self) -> $key {
                // Negative numbers grow towards zero: all bits but the sign's are inverted.
                let bits = self.to_bits() as $key;
                bits ^ (((bits >> (<$key>::BITS - 1)) as $bits) >> 1) as $key
            }
            #[inline(always)]
            fn from_key(key: $key) -> Self {
                let bits = key ^ (((key >> (<$key>::BITS - 1)) as $bits) >> 1) as $key;
                <$float>::from_bits(bits as $bits)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self != self
            }
        }
    };
}
float!(f64, u64, i64, CANONICAL_NAN);
float!(f32, u32, i32, f32::from_bits(0x7fc0_0000));

macro_rules! integer {
    ($integer:ty) => {
        impl sealed::Sealed for $integer {}
        impl Element for $integer {
            const ZERO: Self = 0;
            type Key = $integer;
            const LEAST: Self = <$integer>::MIN;
            const GREATEST: Self = <$integer>::MAX;
            const NAN: Self = 0;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn key(self) -> Self {
                self
            }
            #[inline(always)]
            fn from_key(key: Self) -> Self {
                key
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
        }
    };
}
integer!(i64);
integer!(u64);

#[inline(always)]
fn canonical<T: Element>(x: T) -> T {
    if x.is_nan() { T::NAN } else { x }
}

struct Sum<'a, T>(&'a [T]);

impl<T: Element> SimdKernel for Sum<'_, T> {
    type Output = T;

    #[inline(always)]
    fn run<V: F64x8>(self) -> T {
        let mut sums = [T::ZERO; LANES];
        let (chunks, rest) = self.0.as_chunks::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                sums[lane] = sums[lane].plus(chunk[lane]);
            }
        }
        for (sum, &x) in sums.iter_mut().zip(rest) {
            *sum = sum.plus(x);
        }
        let mut half = LANES / 2;
        while half > 0 {
            for lane in 0..half {
                sums[lane] = sums[lane].plus(sums[lane + half]);
            }
            half /= 2;
        }
        canonical(sums[0])
    }
}

/// The sum, starting from zero (+0.0). Integers wrap.
///
/// Element `i` is added to accumulator `i mod 32` in order of `i`; then accumulator `j` takes
/// `j + 16`, then `j + 8`, and so on.
pub fn sum<T: Element>(isa: Isa, x: &[T]) -> T {
    dispatch(isa, Sum(x))
}

struct Extreme<'a, T, const MAX: bool>(&'a [T]);

impl<T: Element, const MAX: bool> SimdKernel for Extreme<'_, T, MAX> {
    type Output = T;

    #[inline(always)]
    fn run<V: F64x8>(self) -> T {
        let mut keys = [if MAX { T::LEAST } else { T::GREATEST }; LANES];
        let mut nans = [false; LANES];
        let (chunks, rest) = self.0.as_chunks::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                let key = chunk[lane].key();
                keys[lane] = if MAX {
                    keys[lane].max(key)
                } else {
                    keys[lane].min(key)
                };
                nans[lane] |= chunk[lane].is_nan();
            }
        }
        let mut extreme = if MAX { T::LEAST } else { T::GREATEST };
        let mut nan = false;
        for &x in rest {
            extreme = if MAX {
                extreme.max(x.key())
            } else {
                extreme.min(x.key())
            };
            nan |= x.is_nan();
        }
        for lane in 0..LANES {
            extreme = if MAX {
                extreme.max(keys[lane])
            } else {
                extreme.min(keys[lane])
            };
            nan |= nans[lane];
        }
        if nan { T::NAN } else { T::from_key(extreme) }
    }
}

/// The smallest element, or `None` of none. A NaN anywhere gives NaN; −0.0 is less than +0.0.
pub fn min<T: Element>(isa: Isa, x: &[T]) -> Option<T> {
    (!x.is_empty()).then(|| dispatch(isa, Extreme::<T, false>(x)))
}

/// The largest element, or `None` of none. A NaN anywhere gives NaN; −0.0 is less than +0.0.
pub fn max<T: Element>(isa: Isa, x: &[T]) -> Option<T> {
    (!x.is_empty()).then(|| dispatch(isa, Extreme::<T, true>(x)))
}

struct AddInto<'a, T> {
    into: &'a mut [T],
    x: &'a [T],
}

impl<T: Element> SimdKernel for AddInto<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(self) {
        for (into, &x) in self.into.iter_mut().zip(self.x) {
            *into = canonical(into.plus(x));
        }
    }
}

/// Adds `x` to `into`, element by element. Integers wrap.
///
/// # Panics
/// If the lengths differ.
pub fn add_into<T: Element>(isa: Isa, into: &mut [T], x: &[T]) {
    assert_eq!(into.len(), x.len());
    dispatch(isa, AddInto { into, x });
}
