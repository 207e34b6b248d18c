//! How fast memory can be copied.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::crew;

/// Copies `source` into `target` once, with one thread per entry of `places` (see [`crate::cpu::places`]), pinned, taking turns in chunks
/// of `chunk_f64s`. Returns bytes per nanosecond, which is GB/s; a byte counts when it is read and when it is written, as in STREAM.
///
/// The system's copy goes around the caches where a chunk is far larger than they are, and through them otherwise. Which is faster differs
/// by machine: callers try both.
///
/// It measures memory only where both are much larger than the caches and have been written before.
///
/// # Panics
/// When the two have different lengths, or a chunk has none.
pub fn copy_bandwidth(
    source: &[f64],
    target: &mut [f64],
    chunk_f64s: usize,
    places: &[usize],
) -> f64 {
    assert_eq!(source.len(), target.len());
    let bytes = 2 * size_of_val(source);
    let into = target
        .chunks_mut(chunk_f64s)
        .map(|into| Mutex::new(Some(into)));
    let chunks: Vec<_> = source.chunks(chunk_f64s).zip(into).collect();
    let next = AtomicUsize::new(0);
    let times = crew::run(places, |member| {
        member.barrier();
        let start = Instant::now();
        // Relaxed: only the claims must be distinct.
        while let Some((from, into)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let into = into.lock().expect("no panic").take();
            let into = into.expect("each chunk has one claim");
            into.copy_from_slice(black_box(from));
            black_box(into);
        }
        (start, Instant::now())
    });
    bytes as f64 / (crew::span(&times).as_secs_f64() * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::places;

    #[test]
    fn every_word_is_copied() {
        let source: Vec<f64> = (0..10_007).map(f64::from).collect();
        for chunk in [1, 1_000, 20_000] {
            let mut target = vec![0.0; source.len()];
            assert!(copy_bandwidth(&source, &mut target, chunk, &places(2).unwrap()) > 0.0);
            assert_eq!(target, source);
        }
    }
}
