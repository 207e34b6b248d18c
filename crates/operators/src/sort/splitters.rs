//! Where the key space is cut into parts.
//!
//! Each source samples the keys of what it reads ([`KeySamples`]); from all samples together one
//! place makes the [`Splitters`], and every source cuts by them. Which part a key goes to depends
//! on its key alone, so equal keys meet in one part and each part is one range.

use super::format::RecordFormat;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::hint::select_unpredictable;

/// Keys of some records, as many from each source as its share of all records asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySamples {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}
brambling_program::payload!(KeySamples { bytes, ends });

impl KeySamples {
    /// Adds a key.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u64);
    }

    /// Adds the keys of another source.
    pub fn append(&mut self, other: &KeySamples) {
        other.keys().for_each(|key| self.push(key));
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The key at a place; nothing where the bytes that came are no samples.
    fn get(&self, at: usize) -> &[u8] {
        let end = |at: usize| self.ends.get(at).map_or(0, |&end| end as usize);
        let begin = at.checked_sub(1).map_or(0, end);
        self.bytes.get(begin..end(at)).unwrap_or_default()
    }

    /// The keys, in the order in which they were added.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|at| self.get(at))
    }
}

/// A key that is in so many records that it would fill more than a part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeavyKey {
    /// The key.
    pub key: Vec<u8>,
    /// The part that has all its records.
    pub part: u32,
    /// Its samples over all samples.
    pub share: f64,
}
brambling_program::payload!(HeavyKey);

/// The cuts between parts. A part begins with its splitter and ends before the next one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Splitters {
    format: RecordFormat,
    parts: u32,
    prefixes: Vec<u64>,
    keys: KeySamples,
    heavy: Vec<HeavyKey>,
}
brambling_program::payload!(Splitters {
    format,
    parts,
    prefixes,
    keys,
    heavy,
});

impl Splitters {
    /// Cuts the key space into parts that have about as many samples each. A key with more samples
    /// than a fair part gets a part of its own, and the others share what is left. The same samples
    /// in another order give the same cuts. With fewer distinct keys than parts, the last parts are
    /// empty.
    ///
    /// # Panics
    /// When `parts` is 0.
    pub fn of(format: RecordFormat, samples: &KeySamples, parts: u32) -> Splitters {
        assert!(parts > 0, "records have to go somewhere");
        let mut keys: Vec<&[u8]> = samples.keys().collect();
        // Keys that the format counts as equal may differ as bytes, as 1 and 1.0 do: the order
        // among them decides which of them is the splitter.
        keys.sort_unstable_by(|a, b| format.compare_keys(a, b).then_with(|| a.cmp(b)));
        let groups = keys.chunk_by(|a, b| format.compare_keys(a, b) == Ordering::Equal);
        let groups: Vec<SampledKey> = groups
            .map(|group| SampledKey {
                key: group[0],
                count: group.len(),
            })
            .collect();
        let heavy_above = heavy_above(&groups, parts as usize);
        let mut splitters = Splitters {
            format,
            parts,
            ..Splitters::default()
        };
        let firsts = cut(&groups, parts as usize, heavy_above);
        for &first in &firsts {
            splitters.push(groups[first].key);
        }
        for (at, group) in groups.iter().enumerate() {
            if group.count > heavy_above {
                splitters.heavy.push(HeavyKey {
                    key: group.key.to_vec(),
                    part: firsts.partition_point(|&first| first <= at) as u32,
                    share: group.count as f64 / keys.len() as f64,
                });
            }
        }
        splitters
    }

    /// How many parts there are, empty ones included.
    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// The format whose keys they divide.
    pub fn format(&self) -> &RecordFormat {
        &self.format
    }

    /// The first key of each part but the first; fewer where parts are empty.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.keys()
    }

    /// The keys that would fill more than a part each, ascending. Whoever waits for the slowest
    /// part should say their names.
    pub fn heavy(&self) -> &[HeavyKey] {
        &self.heavy
    }

    /// The part of a key, whose prefix is given too.
    #[inline]
    pub fn find(&self, prefix: u64, key: &[u8]) -> u32 {
        let compare = |a: &[u8], b: &[u8]| self.format.compare_keys(a, b);
        self.find_with(prefix, || key, compare)
    }

    /// The same, with a comparison that was chosen before, and a key that is asked for where
    /// prefixes tie.
    #[inline(always)]
    pub(super) fn find_with<'k>(
        &self,
        prefix: u64,
        key: impl FnOnce() -> &'k [u8],
        compare: impl Fn(&[u8], &[u8]) -> Ordering,
    ) -> u32 {
        let mut part = count_below(&self.prefixes, prefix);
        if self.prefixes.get(part) == Some(&prefix) {
            let key = key();
            // Splitters with one prefix are few: the keys of samples that began alike.
            while self.prefixes.get(part) == Some(&prefix)
                && compare(self.keys.get(part), key) != Ordering::Greater
            {
                part += 1;
            }
        }
        part as u32
    }

    fn push(&mut self, key: &[u8]) {
        self.prefixes.push(self.format.prefix(key));
        self.keys.push(key);
    }
}

/// How many of the ascending numbers are below one, without a branch that depends on them.
#[inline(always)]
fn count_below(ascending: &[u64], value: u64) -> usize {
    let mut base = 0;
    let mut count = ascending.len();
    while count > 1 {
        let half = count / 2;
        // A branch would be mispredicted at every other record.
        base = select_unpredictable(ascending[base + half - 1] < value, base + half, base);
        count -= half;
    }
    base + usize::from(count == 1 && ascending[base] < value)
}

/// A key, and how often it was sampled.
struct SampledKey<'a> {
    key: &'a [u8],
    count: usize,
}

/// The samples above which a key fills a part alone: those of a fair part, once all such keys have
/// parts of their own.
fn heavy_above(groups: &[SampledKey<'_>], parts: usize) -> usize {
    let mut counts: Vec<usize> = groups.iter().map(|group| group.count).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let mut left: usize = counts.iter().sum();
    let mut parts_left = parts;
    for &count in &counts {
        // Whether it is more than a fair part of what is left, itself included.
        if parts_left <= 1 || count * parts_left <= left {
            break;
        }
        left -= count;
        parts_left -= 1;
    }
    // With one part left, the last keys share it.
    left.div_ceil(parts_left)
}

/// The first group of each part but the first.
fn cut(groups: &[SampledKey<'_>], parts: usize, heavy_above: usize) -> Vec<usize> {
    let is_heavy = |group: &SampledKey<'_>| group.count > heavy_above;
    let heavy = groups.iter().filter(|group| is_heavy(group)).count();
    let all: usize = groups.iter().map(|group| group.count).sum();
    let all_heavy = groups.iter().filter(|group| is_heavy(group));
    let mut light_left = all - all_heavy.map(|group| group.count).sum::<usize>();
    let mut light_parts_left = (parts - heavy.min(parts)) as f64;
    let mut firsts = Vec::new();
    // Samples of the part that is being filled, and whether a heavy key is among them.
    let (mut filled, mut has_heavy) = (0usize, false);
    for (at, group) in groups.iter().enumerate() {
        let fair = light_left as f64 / light_parts_left.max(f64::MIN_POSITIVE);
        // Closing takes a part; what is less than half a part stays with its neighbour.
        let ends = if is_heavy(group) {
            has_heavy || filled as f64 * 2.0 >= fair
        } else if has_heavy {
            light_parts_left >= 1.0
        } else {
            // Whichever is nearer to a fair part: with this group or without it.
            light_parts_left > 1.0 && (2 * filled + group.count) as f64 > 2.0 * fair
        };
        if ends && at > 0 && firsts.len() + 1 < parts {
            light_left -= filled;
            if !has_heavy {
                light_parts_left -= 1.0;
            }
            firsts.push(at);
            (filled, has_heavy) = (0, false);
        }
        filled += if is_heavy(group) { 0 } else { group.count };
        has_heavy |= is_heavy(group);
    }
    firsts
}
