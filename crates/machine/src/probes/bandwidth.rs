//! How fast memory can be read: several honest read-only loops, because no single one is the
//! fastest on every machine. The limit is the best of them.
#![allow(unsafe_code)] // Vector loads and prefetches.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::crew;
use crate::isa::Isa;

/// A loop that reads every byte once and does next to nothing with it: it ORs all words into eight
/// accumulators, so that no chain of operations bounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadLoop {
    /// Plain Rust over words, as the compiler makes it for the baseline CPU.
    Scalar,
    /// The same with a software prefetch.
    ScalarPrefetch,
    /// 256-bit loads.
    Avx2,
    /// The same with a software prefetch.
    Avx2Prefetch,
    /// 512-bit loads.
    Avx512,
    /// The same with a software prefetch.
    Avx512Prefetch,
}

// What one thread claims at a time. Large enough that the hardware's prefetcher hardly notices the
// seams, small enough that the threads finish together.
const CHUNK_F64S: usize = 256 << 10;

// Far enough to cover the latency of memory at the bandwidth of one core; crosses a page's end
// before the hardware's prefetcher does.
const PREFETCH_AHEAD_F64S: usize = 512;

impl ReadLoop {
    /// All loops.
    pub const ALL: [ReadLoop; 6] = [
        ReadLoop::Scalar,
        ReadLoop::ScalarPrefetch,
        ReadLoop::Avx2,
        ReadLoop::Avx2Prefetch,
        ReadLoop::Avx512,
        ReadLoop::Avx512Prefetch,
    ];

    /// The loops this CPU can run.
    pub fn available() -> Vec<ReadLoop> {
        Self::ALL
            .into_iter()
            .filter(|read_loop| read_loop.isa().is_available())
            .collect()
    }

    /// The instruction set it needs.
    pub fn isa(self) -> Isa {
        match self {
            ReadLoop::Scalar | ReadLoop::ScalarPrefetch => Isa::V2,
            ReadLoop::Avx2 | ReadLoop::Avx2Prefetch => Isa::V3,
            ReadLoop::Avx512 | ReadLoop::Avx512Prefetch => Isa::V4,
        }
    }

    /// A stable name, for tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            ReadLoop::Scalar => "read-scalar",
            ReadLoop::ScalarPrefetch => "read-scalar-prefetch",
            ReadLoop::Avx2 => "read-avx2",
            ReadLoop::Avx2Prefetch => "read-avx2-prefetch",
            ReadLoop::Avx512 => "read-avx512",
            ReadLoop::Avx512Prefetch => "read-avx512-prefetch",
        }
    }

    /// The bitwise OR of all words of `data`.
    ///
    /// # Panics
    /// When this CPU lacks the loop's instruction set.
    pub fn or_of(self, data: &[f64]) -> u64 {
        assert!(
            self.isa().is_available(),
            "{} needs {}",
            self.name(),
            self.isa()
        );
        match self {
            ReadLoop::Scalar => scalar::<false>(data),
            ReadLoop::ScalarPrefetch => scalar::<true>(data),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the loop's instruction set, asserted above.
            ReadLoop::Avx2 => unsafe { x86::avx2::<false>(data) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the loop's instruction set, asserted above.
            ReadLoop::Avx2Prefetch => unsafe { x86::avx2::<true>(data) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the loop's instruction set, asserted above.
            ReadLoop::Avx512 => unsafe { x86::avx512::<false>(data) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the loop's instruction set, asserted above.
            ReadLoop::Avx512Prefetch => unsafe { x86::avx512::<true>(data) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("asserted to be available"),
        }
    }
}

/// Reads all of `slices` once with one thread per entry of `places` (see [`crate::cpu::places`]),
/// pinned, taking turns in chunks of 2 MiB. Returns bytes per nanosecond, which is GB/s.
///
/// It measures memory only where `slices` are much larger than the caches and have been written
/// before: untouched pages are all one page of zeros.
pub fn read_bandwidth(read_loop: ReadLoop, slices: &[&[f64]], places: &[usize]) -> f64 {
    let chunks: Vec<&[f64]> = slices
        .iter()
        .flat_map(|slice| slice.chunks(CHUNK_F64S))
        .collect();
    let bytes: usize = slices.iter().map(|slice| size_of_val(*slice)).sum();
    let next = AtomicUsize::new(0);
    let elapsed_ns = crew::run(places, |member| {
        member.barrier();
        let start = Instant::now();
        // Relaxed: the data does not change, only the claims must be distinct.
        while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
            black_box(read_loop.or_of(chunk));
        }
        member.barrier();
        start.elapsed().as_secs_f64() * 1e9
    });
    bytes as f64 / elapsed_ns[0]
}

fn scalar<const PREFETCH: bool>(data: &[f64]) -> u64 {
    let mut or = [0u64; 8];
    let mut blocks = data.chunks_exact(8);
    for block in &mut blocks {
        if PREFETCH {
            prefetch(block.as_ptr());
        }
        for (or, word) in or.iter_mut().zip(block) {
            *or |= word.to_bits();
        }
    }
    or_words(or, blocks.remainder())
}

fn or_words(accumulators: [u64; 8], rest: &[f64]) -> u64 {
    rest.iter()
        .map(|word| word.to_bits())
        .chain(accumulators)
        .fold(0, |or, word| or | word)
}

#[inline(always)]
fn prefetch(at: *const f64) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is a hint that never faults, and SSE is the baseline.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(PREFETCH_AHEAD_F64S).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{or_words, prefetch};

    // Whole cache lines from the first line boundary on, and what lies before and behind them.
    fn split_at_lines<const F64S: usize>(data: &[f64]) -> (&[f64], &[f64], &[f64]) {
        let head = data.as_ptr().align_offset(64).min(data.len());
        let (head, data) = data.split_at(head);
        let (body, tail) = data.split_at(data.len() / F64S * F64S);
        (head, body, tail)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn avx2<const PREFETCH: bool>(data: &[f64]) -> u64 {
        let (head, body, tail) = split_at_lines::<32>(data);
        let mut or = [_mm256_setzero_si256(); 8];
        for block in body.chunks_exact(32) {
            let at = block.as_ptr();
            for line in 0..4 {
                if PREFETCH {
                    prefetch(at.wrapping_add(line * 8));
                }
            }
            for (lane, or) in or.iter_mut().enumerate() {
                // SAFETY: the block has 32 words, eight vectors of four.
                let words = unsafe { _mm256_loadu_si256(at.add(lane * 4).cast()) };
                *or = _mm256_or_si256(*or, words);
            }
        }
        let or = or
            .into_iter()
            .reduce(|a, b| _mm256_or_si256(a, b))
            .expect("eight");
        let mut words = [0u64; 8];
        // SAFETY: the first half of `words` is as large as one vector.
        unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), or) };
        or_words([0; 8], head) | or_words(words, tail)
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn avx512<const PREFETCH: bool>(data: &[f64]) -> u64 {
        let (head, body, tail) = split_at_lines::<64>(data);
        let mut or = [_mm512_setzero_si512(); 8];
        for block in body.chunks_exact(64) {
            let at = block.as_ptr();
            for (lane, or) in or.iter_mut().enumerate() {
                if PREFETCH {
                    prefetch(at.wrapping_add(lane * 8));
                }
                // SAFETY: the block has 64 words, eight vectors of eight.
                let words = unsafe { _mm512_loadu_si512(at.add(lane * 8).cast()) };
                *or = _mm512_or_si512(*or, words);
            }
        }
        let or = or
            .into_iter()
            .reduce(|a, b| _mm512_or_si512(a, b))
            .expect("eight");
        let mut words = [0u64; 8];
        // SAFETY: `words` is as large as one vector.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), or) };
        or_words([0; 8], head) | or_words(words, tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::places;

    #[test]
    fn every_loop_reads_every_word() {
        let mut data = vec![0.0f64; 3_000];
        for read_loop in ReadLoop::available() {
            for at in [0, 1, 7, 8, 1_000, 2_997, 2_999] {
                data[at] = f64::from_bits(1 << (at % 64));
                for from in [0, at.min(3)] {
                    assert_eq!(
                        read_loop.or_of(&data[from..]),
                        1 << (at % 64),
                        "{read_loop:?} {at}"
                    );
                }
                data[at] = 0.0;
            }
            assert_eq!(read_loop.or_of(&[]), 0);
        }
    }

    #[test]
    fn a_bandwidth_is_positive() {
        let data = vec![1.0f64; CHUNK_F64S + 17];
        let places = places(2).unwrap();
        assert!(read_bandwidth(ReadLoop::Scalar, &[&data, &data[..3]], &places) > 0.0);
    }
}
