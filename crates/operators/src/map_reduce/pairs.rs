//! Owns how pairs are written in chunks and runs, and the pairs that a partition ends with.
//!
//! A pair is the length of its key and its value as variable-length integers (LEB128), and the key's bytes. Chunks come from
//! other processes, so whoever reads them checks every length. It never looks into a table.

use crate::parts::PartCount;
use brambling_program::payload;
use brambling_storage::process_name;

/// The most bytes of a pair beside its key.
pub const HEAD_BYTES_MAX: usize = 20;

/// Bytes that are no pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pairs that were sent or spilled are damaged: a key or a value goes on behind their end")]
pub struct DamagedPairs;

fn push_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Appends a pair.
pub fn push(out: &mut Vec<u8>, key: &[u8], value: u64) {
    push_number(out, key.len() as u64);
    push_number(out, value);
    out.extend_from_slice(key);
}

/// The first pair of some bytes, and how many bytes it takes; nothing where it goes on behind them.
pub fn first(bytes: &[u8]) -> Option<(&[u8], u64, usize)> {
    let mut rest = bytes;
    let len = usize::try_from(take_number(&mut rest)?).ok()?;
    let value = take_number(&mut rest)?;
    let key = rest.get(..len)?;
    Some((key, value, bytes.len() - rest.len() + len))
}

/// The pairs of a chunk.
pub fn iter(mut bytes: &[u8]) -> impl Iterator<Item = Result<(&[u8], u64), DamagedPairs>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let Some((key, value, len)) = first(bytes) else {
            bytes = &[];
            return Some(Err(DamagedPairs));
        };
        bytes = &bytes[len..];
        Some(Ok((key, value)))
    })
}

/// The pairs of a partition, in the order of their keys' bytes; each key once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoldedPairs {
    keys: Vec<u8>,
    ends: Vec<u64>,
    values: Vec<u64>,
    written: u64,
    written_bytes: u64,
    process: String,
}
payload!(FoldedPairs {
    keys,
    ends,
    values,
    written,
    written_bytes,
    process
});

impl PartCount for FoldedPairs {
    fn bytes(&self) -> u64 {
        self.written_bytes
    }
    fn process(&self) -> &str {
        &self.process
    }
}

impl FoldedPairs {
    /// Appends a pair, whose key is greater than all that are there.
    pub fn push(&mut self, key: &[u8], value: u64) {
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len() as u64);
        self.values.push(value);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// How many were written to a file instead.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Says that another one was written to a file, in so many bytes.
    pub fn count_written(&mut self, bytes: usize) {
        self.written += 1;
        self.written_bytes += bytes as u64;
    }

    /// Says which process has written them.
    pub fn note_process(&mut self) {
        self.process = process_name().into();
    }

    /// The pair at a place.
    pub fn get(&self, place: usize) -> Option<(&[u8], u64)> {
        let end = *self.ends.get(place)? as usize;
        let begin = place.checked_sub(1).map_or(0, |it| self.ends[it] as usize);
        Some((self.keys.get(begin..end)?, self.values[place]))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        (0..self.len()).filter_map(|place| self.get(place))
    }

    /// Bytes that one more pair may take, with what a vector that grows takes beside it.
    pub fn bytes(&self) -> usize {
        self.keys.capacity() + 8 * (self.ends.capacity() + self.values.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pairs_come_back(pairs in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), any::<u64>()), 0..20)) {
            let mut bytes = Vec::new();
            for (key, value) in &pairs {
                let before = bytes.len();
                push(&mut bytes, key, *value);
                prop_assert!(bytes.len() - before <= key.len() + HEAD_BYTES_MAX);
            }
            let found: Vec<_> = iter(&bytes).map(|pair| pair.map(|(key, value)| (key.to_vec(), value)).unwrap()).collect();
            prop_assert_eq!(found, pairs);
        }

        /// Whatever somebody sends, it is pairs or an error, and ends.
        #[test]
        fn other_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(iter(&bytes).count() <= bytes.len());
        }
    }

    #[test]
    fn what_is_cut_off_is_damaged() {
        let mut bytes = Vec::new();
        push(&mut bytes, b"finch", 300);
        for len in 1..bytes.len() {
            assert_eq!(iter(&bytes[..len]).collect::<Vec<_>>(), [Err(DamagedPairs)]);
        }
        assert_eq!(iter(&[0xff; 11]).next(), Some(Err(DamagedPairs)));
    }
}
