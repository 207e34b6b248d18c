//! What a task does: nothing, or Task Bench's compute-bound kernel.
#![allow(unsafe_code)] // Calls of a function compiled for AVX2 and FMA.

use std::hint::black_box;

/// The work of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Nothing: what remains is overhead.
    Empty,
    /// Multiply-adds in registers, on 64 values.
    Compute {
        /// How often all 64 values are updated.
        iterations: u64,
    },
}

impl Kernel {
    /// Does the work.
    #[inline]
    pub fn execute(self) {
        if let Kernel::Compute { iterations } = self {
            black_box(compute(black_box(iterations)));
        }
    }

    /// Floating-point operations of one task.
    pub fn flops(self) -> u64 {
        match self {
            Kernel::Empty => 0,
            Kernel::Compute { iterations } => 2 * VALUES as u64 * iterations + VALUES as u64,
        }
    }
}

const VALUES: usize = 64;

fn compute(iterations: u64) -> f64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: just detected.
        return unsafe { compute_avx2(iterations) };
    }
    let mut values = [1.2345f64; VALUES];
    for _ in 0..iterations {
        for value in &mut values {
            *value = *value * *value + *value;
        }
    }
    values.into_iter().product()
}

// The 64 values are the sixteen 256-bit registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn compute_avx2(iterations: u64) -> f64 {
    use std::arch::x86_64::*;
    let mut values = [_mm256_set_pd(1.0, 2.0, 3.0, 4.0); VALUES / 4];
    for _ in 0..iterations {
        for value in &mut values {
            *value = _mm256_fmadd_pd(*value, *value, *value);
        }
    }
    let mut product = values[0];
    for &value in &values[1..] {
        product = _mm256_mul_pd(product, value);
    }
    let mut lanes = [0.0; 4];
    // SAFETY: four values are one vector.
    unsafe { _mm256_storeu_pd(lanes.as_mut_ptr(), product) };
    lanes.into_iter().product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_updates_all_values() {
        // 1, 2, 3 and 4 become 2, 6, 12 and 20 where there are vectors.
        let once = compute(1);
        let expected = [
            (2.0f64 * 6.0 * 12.0 * 20.0).powi(16),
            (1.2345f64 * 2.2345).powi(64),
        ];
        assert!(
            expected
                .iter()
                .any(|expected| (once / expected - 1.0).abs() < 1e-12),
            "{once}"
        );
        assert_eq!(Kernel::Compute { iterations: 3 }.flops(), 448);
        assert_eq!(Kernel::Empty.flops(), 0);
    }
}
