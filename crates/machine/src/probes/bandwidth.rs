//! How fast memory can be read: several honest read-only loops, because no single one is the
//! fastest on every machine. The limit is the best of them.
#![allow(unsafe_code)] // Prefetches, and calls of functions compiled for newer CPUs.

#[cfg(target_arch = "x86_64")]
mod x86;

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::crew;
use crate::isa::IsaLevel;

/// A loop that reads every byte once and does next to nothing with it: it ORs all words into eight
/// accumulators, so that no chain of operations bounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadLoop {
    /// Plain Rust over words, as the compiler makes it for the baseline CPU.
    Scalar,
    /// The same with a software prefetch.
    ScalarPrefetch,
    /// From four places at once, which keeps more of the hardware's prefetchers busy.
    ScalarStreams,
    /// 256-bit loads.
    Avx2,
    /// The same with a software prefetch.
    Avx2Prefetch,
    /// The same from four places at once.
    Avx2Streams,
    /// 512-bit loads.
    Avx512,
    /// The same with a software prefetch.
    Avx512Prefetch,
    /// The same from four places at once.
    Avx512Streams,
}

// What one thread claims at a time. Large enough that the hardware's prefetcher hardly notices the
// seams, small enough that the threads finish together.
const CHUNK_F64S: usize = 256 << 10;

// Far enough to cover the latency of memory at the bandwidth of one core; crosses a page's end
// before the hardware's prefetcher does.
const PREFETCH_AHEAD_F64S: usize = 512;

// Places that a loop with streams reads from: its chunk in so many equal parts.
const STREAMS: usize = 4;

// What it reads from one of them before it goes to the next.
const STREAM_BLOCK_F64S: usize = 64;

impl ReadLoop {
    /// All loops.
    pub const ALL: [ReadLoop; 9] = [
        ReadLoop::Scalar,
        ReadLoop::ScalarPrefetch,
        ReadLoop::ScalarStreams,
        ReadLoop::Avx2,
        ReadLoop::Avx2Prefetch,
        ReadLoop::Avx2Streams,
        ReadLoop::Avx512,
        ReadLoop::Avx512Prefetch,
        ReadLoop::Avx512Streams,
    ];

    /// The loops this CPU can run.
    pub fn available() -> Vec<ReadLoop> {
        Self::ALL
            .into_iter()
            .filter(|read_loop| read_loop.isa().is_available())
            .collect()
    }

    /// The instruction set it needs.
    pub fn isa(self) -> IsaLevel {
        match self {
            ReadLoop::Scalar | ReadLoop::ScalarPrefetch | ReadLoop::ScalarStreams => IsaLevel::V2,
            ReadLoop::Avx2 | ReadLoop::Avx2Prefetch | ReadLoop::Avx2Streams => IsaLevel::V3,
            ReadLoop::Avx512 | ReadLoop::Avx512Prefetch | ReadLoop::Avx512Streams => IsaLevel::V4,
        }
    }

    /// A stable name, for tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            ReadLoop::Scalar => "read-scalar",
            ReadLoop::ScalarPrefetch => "read-scalar-prefetch",
            ReadLoop::ScalarStreams => "read-scalar-streams",
            ReadLoop::Avx2 => "read-avx2",
            ReadLoop::Avx2Prefetch => "read-avx2-prefetch",
            ReadLoop::Avx2Streams => "read-avx2-streams",
            ReadLoop::Avx512 => "read-avx512",
            ReadLoop::Avx512Prefetch => "read-avx512-prefetch",
            ReadLoop::Avx512Streams => "read-avx512-streams",
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
            ReadLoop::ScalarStreams => scalar_streams(data),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the loop's instruction set, asserted above.
            ReadLoop::Avx2 => unsafe { x86::avx2::<false>(data) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the loop's instruction set, asserted above.
            ReadLoop::Avx2Prefetch => unsafe { x86::avx2::<true>(data) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the loop's instruction set, asserted above.
            ReadLoop::Avx2Streams => unsafe { x86::avx2_streams(data) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the loop's instruction set, asserted above.
            ReadLoop::Avx512 => unsafe { x86::avx512::<false>(data) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the loop's instruction set, asserted above.
            ReadLoop::Avx512Prefetch => unsafe { x86::avx512::<true>(data) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the loop's instruction set, asserted above.
            ReadLoop::Avx512Streams => unsafe { x86::avx512_streams(data) },
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
    let times = crew::run(places, |member| {
        member.barrier();
        let start = Instant::now();
        // Relaxed: the data does not change, only the claims must be distinct.
        while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
            black_box(read_loop.or_of(chunk));
        }
        (start, Instant::now())
    });
    bytes as f64 / (crew::span(&times).as_secs_f64() * 1e9)
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

/// Four equal parts in whole blocks, with the blocks that each has; and what lies behind them.
fn streams(data: &[f64]) -> ([&[f64]; STREAMS], usize, &[f64]) {
    let blocks = data.len() / (STREAMS * STREAM_BLOCK_F64S);
    let part = blocks * STREAM_BLOCK_F64S;
    let (body, rest) = data.split_at(part * STREAMS);
    let stream = |at: usize| &body[at * part..(at + 1) * part];
    (std::array::from_fn(stream), blocks, rest)
}

fn scalar_streams(data: &[f64]) -> u64 {
    let mut or = [0u64; 8];
    let (streams, blocks, rest) = streams(data);
    for block in 0..blocks {
        for stream in streams {
            let words = &stream[block * STREAM_BLOCK_F64S..][..STREAM_BLOCK_F64S];
            for eight in words.chunks_exact(8) {
                for (or, word) in or.iter_mut().zip(eight) {
                    *or |= word.to_bits();
                }
            }
        }
    }
    or_words(or, rest)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::places;

    #[test]
    fn every_loop_reads_every_word() {
        let mut data = vec![0.0f64; 3_000];
        for read_loop in ReadLoop::available() {
            for at in [0, 1, 7, 8, 700, 1_000, 2_100, 2_997, 2_999] {
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
