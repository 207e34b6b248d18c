//! How fast floating-point arithmetic can be: independent multiply-adds in registers.
#![allow(unsafe_code)] // Calls of functions compiled for more than the baseline CPU.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::crew;
use crate::isa::IsaLevel;

// Ten vectors of chains are more than two units with four cycles of latency need, and leave the
// constants their registers.
const CHAINS: usize = 10;

/// The peak of f64 arithmetic of one thread per entry of `places`, pinned, in flops per nanosecond
/// (GFLOP/s). A multiply-add counts as two, fused or not.
///
/// # Panics
/// When this CPU lacks `isa`.
pub fn flops_per_ns(isa: IsaLevel, places: &[usize]) -> f64 {
    assert!(isa.is_available(), "the CPU lacks {isa}");
    let rates = crew::run(places, |member| {
        let mut turns = 10_000;
        while time(isa, turns).0 < Duration::from_millis(2) {
            turns *= 2;
        }
        member.barrier();
        // The best of a few: a slice in which the thread was not running says nothing.
        (0..5)
            .map(|_| {
                let (elapsed, flops) = time(isa, turns);
                flops / (elapsed.as_secs_f64() * 1e9)
            })
            .fold(0.0, f64::max)
    });
    rates.iter().sum()
}

fn time(isa: IsaLevel, turns: u64) -> (Duration, f64) {
    let start = Instant::now();
    let lanes = match isa {
        #[cfg(target_arch = "x86_64")]
        IsaLevel::V4 => {
            // SAFETY: `flops_per_ns` asserted that the CPU has it.
            unsafe { v4(turns) };
            8
        }
        #[cfg(target_arch = "x86_64")]
        IsaLevel::V3 => {
            // SAFETY: `flops_per_ns` asserted that the CPU has it.
            unsafe { v3(turns) };
            4
        }
        _ => {
            v2(turns);
            2
        }
    };
    (
        start.elapsed(),
        (turns * 2 * (CHAINS * lanes) as u64) as f64,
    )
}

fn v2(turns: u64) {
    let (factor, term) = (black_box(0.999), black_box(0.001));
    let mut chains = black_box([[1.0f64; 2]; CHAINS]);
    for _ in 0..turns {
        for chain in &mut chains {
            for value in chain {
                *value = *value * factor + term;
            }
        }
    }
    black_box(chains);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn v3(turns: u64) {
    use std::arch::x86_64::*;
    let (factor, term) = (
        _mm256_set1_pd(black_box(0.999)),
        _mm256_set1_pd(black_box(0.001)),
    );
    let mut chains = [_mm256_set1_pd(black_box(1.0)); CHAINS];
    for _ in 0..turns {
        for chain in &mut chains {
            *chain = _mm256_fmadd_pd(*chain, factor, term);
        }
    }
    black_box(chains);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn v4(turns: u64) {
    use std::arch::x86_64::*;
    let (factor, term) = (
        _mm512_set1_pd(black_box(0.999)),
        _mm512_set1_pd(black_box(0.001)),
    );
    let mut chains = [_mm512_set1_pd(black_box(1.0)); CHAINS];
    for _ in 0..turns {
        for chain in &mut chains {
            *chain = _mm512_fmadd_pd(*chain, factor, term);
        }
    }
    black_box(chains);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::places;

    #[test]
    fn every_available_level_has_a_peak() {
        let places = places(1).unwrap();
        for isa in IsaLevel::ALL.into_iter().filter(|isa| isa.is_available()) {
            assert!(flops_per_ns(isa, &places) > 0.0);
        }
    }
}
