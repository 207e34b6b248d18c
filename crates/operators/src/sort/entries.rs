//! Makes and sorts the entries of an arena.
//!
//! Chunks are gone through twice: entries are counted by the first digit of their prefixes, and
//! then written to where their buckets lie. So only one bucket at a time needs room to be sorted
//! in.

use super::arena::AHEAD;
use super::layout::RecordLayout;
use super::radix::{self, RecordEntry};
use crate::simd::prefetch;

/// Bits of the first digit: its buckets are written into at once, and each is sorted in the cache.
const FIRST_DIGIT_BITS: u32 = 9;

/// Buckets of the first digit.
const BUCKETS: usize = 1 << FIRST_DIGIT_BITS;

/// So many records tell where the prefixes lie.
const SAMPLES: u64 = 1_024;

/// Up to so many records with one prefix are compared. More are sorted by the next bytes of their
/// keys, which are then read once for each record and not at each comparison.
const COMPARED: usize = 2;

/// So many words of keys are looked at before whole keys are compared.
const WORDS_MAX: usize = 32;

/// In which order records with equal keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ties {
    /// As they came.
    InOrder,
    /// Any.
    Any,
}

/// The entries of all records in chunks, sorted.
pub(super) fn sorted<L: RecordLayout>(
    layout: L,
    chunks: &[Vec<u8>],
    ties: Ties,
) -> Vec<RecordEntry> {
    let digit = FirstDigit::of(layout, chunks);
    let mut ends = vec![0usize; BUCKETS];
    for chunk in chunks {
        for_each(layout, chunk, |_, prefix| {
            ends[digit.of_prefix(prefix)] += 1
        });
    }
    let mut begin = 0;
    for end in &mut ends {
        begin += std::mem::replace(end, begin);
    }
    let mut entries = vec![RecordEntry::default(); begin];
    for (index, chunk) in chunks.iter().enumerate() {
        for_each(layout, chunk, |at, prefix| {
            let end = &mut ends[digit.of_prefix(prefix)];
            entries[*end] = RecordEntry {
                prefix,
                chunk: index as u32,
                offset: at as u32,
            };
            *end += 1;
        });
    }
    let mut room = Vec::new();
    let mut begin = 0;
    for end in ends {
        let bucket = &mut entries[begin..end];
        sort_bucket(layout, (chunks, ties), 0, bucket, &mut room);
        begin = end;
    }
    entries
}

/// The record of an entry.
#[inline(always)]
pub(super) fn record<L: RecordLayout>(layout: L, chunks: &[Vec<u8>], entry: RecordEntry) -> &[u8] {
    let chunk = &chunks[entry.chunk as usize];
    let at = entry.offset as usize;
    let end = layout
        .end(chunk, at)
        .expect("an entry is of a whole record");
    &chunk[at..end]
}

/// Calls with where each record begins, and the prefix of its key.
#[inline(always)]
fn for_each<L: RecordLayout>(layout: L, chunk: &[u8], mut each: impl FnMut(usize, u64)) {
    let mut at = 0;
    while at < chunk.len() {
        let Some(end) = layout.end(chunk, at) else {
            panic!("a chunk ends within a record; cut it with RecordJoiner");
        };
        each(at, layout.prefix(&chunk[at..end]));
        at = end;
    }
}

/// Which bucket a prefix is in. Where the prefixes lie was guessed from some of them: others are in
/// the first bucket or the last.
#[derive(Clone, Copy)]
struct FirstDigit {
    low: u64,
    shift: u32,
}

impl FirstDigit {
    fn of<L: RecordLayout>(layout: L, chunks: &[Vec<u8>]) -> FirstDigit {
        let bytes: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let step = (bytes / SAMPLES).max(1) as usize;
        let (mut low, mut high) = (u64::MAX, 0);
        for chunk in chunks {
            for at in (0..chunk.len()).step_by(step) {
                let begin = layout.next_begin(chunk, at);
                if let Some(end) = layout.end(chunk, begin) {
                    let prefix = layout.prefix(&chunk[begin..end]);
                    (low, high) = (low.min(prefix), high.max(prefix));
                }
            }
        }
        let width = 64 - high.saturating_sub(low).leading_zeros();
        FirstDigit {
            low,
            shift: width.saturating_sub(FIRST_DIGIT_BITS),
        }
    }

    #[inline(always)]
    fn of_prefix(self, prefix: u64) -> usize {
        let digit = prefix.saturating_sub(self.low) >> self.shift;
        digit.min(BUCKETS as u64 - 1) as usize
    }
}

/// Sorts entries whose numbers are a word of their keys: the `word`-th, those before being equal.
fn sort_bucket<L: RecordLayout>(
    layout: L,
    (chunks, ties): (&[Vec<u8>], Ties),
    word: usize,
    entries: &mut [RecordEntry],
    room: &mut Vec<RecordEntry>,
) {
    radix::sort(entries, room);
    if layout.word_decides(word) {
        return;
    }
    for tied in entries.chunk_by_mut(|a, b| a.prefix == b.prefix) {
        if tied.len() == 1 {
            continue;
        }
        // A word that ends with a zero may be the end of a key, or not.
        let goes_on = layout.has_words() && tied[0].prefix & 0xff != 0;
        let next = word + 1;
        if tied.len() > COMPARED && goes_on && next < WORDS_MAX {
            for at in 0..tied.len() {
                if let Some(later) = tied.get(at + AHEAD) {
                    let begin = chunks[later.chunk as usize].as_ptr();
                    prefetch(begin.wrapping_add(later.offset as usize + layout.word_offset(next)));
                }
                let entry = &mut tied[at];
                let chunk = &chunks[entry.chunk as usize];
                entry.prefix = layout.word(chunk, entry.offset as usize, next);
            }
            sort_bucket(layout, (chunks, ties), next, tied, room);
            continue;
        }
        let compare = |a: &RecordEntry, b: &RecordEntry| {
            layout.compare(record(layout, chunks, *a), record(layout, chunks, *b))
        };
        match ties {
            // They lie in the order in which they came.
            Ties::InOrder => tied.sort_by(compare),
            Ties::Any => tied.sort_unstable_by(compare),
        }
    }
}
