//! The loops with vector loads.
#![allow(unsafe_code)] // Vector loads.

use std::arch::x86_64::*;

use super::{STREAM_BLOCK_F64S, or_words, prefetch, streams};

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
    or_words([0; 8], head) | or_words(avx2_words(or), tail)
}

#[target_feature(enable = "avx2")]
pub(super) fn avx2_streams(data: &[f64]) -> u64 {
    let (head, data) = data.split_at(data.as_ptr().align_offset(64).min(data.len()));
    let (streams, blocks, rest) = streams(data);
    let mut or = [_mm256_setzero_si256(); 8];
    for block in 0..blocks {
        for stream in streams {
            let words = &stream[block * STREAM_BLOCK_F64S..][..STREAM_BLOCK_F64S];
            for (lane, words) in words.chunks_exact(4).enumerate() {
                // SAFETY: as many words as a vector has.
                let words = unsafe { _mm256_loadu_si256(words.as_ptr().cast()) };
                or[lane % 8] = _mm256_or_si256(or[lane % 8], words);
            }
        }
    }
    or_words([0; 8], head) | or_words(avx2_words(or), rest)
}

#[target_feature(enable = "avx2")]
fn avx2_words(or: [__m256i; 8]) -> [u64; 8] {
    let or = or
        .into_iter()
        .reduce(|a, b| _mm256_or_si256(a, b))
        .expect("eight");
    let mut words = [0u64; 8];
    // SAFETY: the first half of `words` is as large as one vector.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), or) };
    words
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
    or_words([0; 8], head) | or_words(avx512_words(or), tail)
}

#[target_feature(enable = "avx512f")]
pub(super) fn avx512_streams(data: &[f64]) -> u64 {
    let (head, data) = data.split_at(data.as_ptr().align_offset(64).min(data.len()));
    let (streams, blocks, rest) = streams(data);
    let mut or = [_mm512_setzero_si512(); 8];
    for block in 0..blocks {
        for stream in streams {
            let words = &stream[block * STREAM_BLOCK_F64S..][..STREAM_BLOCK_F64S];
            for (lane, words) in words.chunks_exact(8).enumerate() {
                // SAFETY: as many words as a vector has.
                let words = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
                or[lane % 8] = _mm512_or_si512(or[lane % 8], words);
            }
        }
    }
    or_words([0; 8], head) | or_words(avx512_words(or), rest)
}

#[target_feature(enable = "avx512f")]
fn avx512_words(or: [__m512i; 8]) -> [u64; 8] {
    let or = or
        .into_iter()
        .reduce(|a, b| _mm512_or_si512(a, b))
        .expect("eight");
    let mut words = [0u64; 8];
    // SAFETY: `words` is as large as one vector.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), or) };
    words
}
