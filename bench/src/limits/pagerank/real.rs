//! The two widths of a rank.

use std::ops::{Add, AddAssign, Mul, Sub};

/// `f32` or `f64`.
pub trait Real:
    Copy
    + std::fmt::Debug
    + Default
    + Send
    + Sync
    + PartialEq
    + Into<f64>
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + 'static
{
    /// The nearest value.
    fn of(value: f64) -> Self;

    /// The sums of rows by gathers of 512 bits. The CPU has AVX-512 F, places lie in the table, and
    /// so many more as a prefetch looks ahead follow the last row.
    fn sum_rows_avx512<const PREFETCH: bool>(
        table: &[Self],
        places: &[u32],
        bounds: &[usize],
        sums: &mut [Self],
    );
}

macro_rules! real {
    ($real:ty, $of:expr, $gather:ident) => {
        impl Real for $real {
            fn of(value: f64) -> $real {
                let of: fn(f64) -> $real = $of;
                of(value)
            }

            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)] // A call of a function compiled for AVX-512.
            fn sum_rows_avx512<const PREFETCH: bool>(
                table: &[$real],
                places: &[u32],
                bounds: &[usize],
                sums: &mut [$real],
            ) {
                debug_assert!(is_x86_feature_detected!("avx512f"));
                // SAFETY: `Bare::kernel` asserted that the CPU has it.
                unsafe { super::avx512::$gather::<PREFETCH>(table, places, bounds, sums) }
            }

            #[cfg(not(target_arch = "x86_64"))]
            fn sum_rows_avx512<const PREFETCH: bool>(
                _: &[$real],
                _: &[u32],
                _: &[usize],
                _: &mut [$real],
            ) {
                unreachable!("asserted to be available")
            }
        }
    };
}
real!(f64, |value| value, sum_rows_f64);
real!(f32, |value| value as f32, sum_rows_f32);
