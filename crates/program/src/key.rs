//! Keys of a shuffle: hashed the same everywhere, in Rust and in Python.
//!
//! The hashes are part of the promise and never change. Keys that compare equal hash equally, whatever
//! their types: 1, 1.0 and `true` are one key, −0.0 is 0.0, and all NaNs are one.

use crate::Payload;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// What rows can be brought together by. Equal keys hash equally on every machine.
pub trait Key: Payload {
    /// A hash that does not depend on machine, version of Rust, or run.
    fn key_hash(&self) -> u64;
}

/// The hash of an integer of up to 64 bits, signed or not.
#[inline]
pub fn integer(number: i128) -> u64 {
    xxh3_64(&number.to_le_bytes())
}

/// The hash of an integer beyond 64 bits, by its decimal digits with their sign.
pub fn digits(number: &str) -> u64 {
    join(integer(2), text(number))
}

/// The hash of a float: a whole number hashes as the integer that it equals.
#[inline]
pub fn float(number: f64) -> u64 {
    // From −2⁶³ to below 2⁶⁴, where integers have 64 bits. Beyond, whatever is finite is whole.
    if number >= i64::MIN as f64 && number < u64::MAX as f64 {
        let whole = number as i128;
        // A whole float is the key that the integer is.
        if whole as f64 == number {
            return integer(whole);
        }
    } else if number.is_finite() {
        return digits(&format!("{number:.0}"));
    }
    // All NaNs are one key.
    let canonical = if number.is_nan() { f64::NAN } else { number };
    xxh3_64(&canonical.to_bits().to_le_bytes())
}

/// The hash of bytes.
#[inline]
pub fn bytes(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// The hash of text: that of its UTF-8.
#[inline]
pub fn text(text: &str) -> u64 {
    bytes(text.as_bytes())
}

/// The hash of several keys in order, from theirs.
pub fn tuple(hashes: impl IntoIterator<Item = u64>) -> u64 {
    hashes.into_iter().reduce(join).unwrap_or_else(nothing)
}

/// The hash of a key that is missing, such as Python's None.
pub fn nothing() -> u64 {
    integer(5)
}

#[inline]
fn join(left: u64, right: u64) -> u64 {
    xxh3_64_with_seed(&right.to_le_bytes(), left)
}

/// The partition of a hash among `partitions`: its high bits spread over them without a division's bias.
#[inline]
pub fn partition(hash: u64, partitions: u32) -> u32 {
    ((u128::from(hash) * u128::from(partitions)) >> 64) as u32
}

/// The partition of a key.
#[inline]
pub fn partition_of<K: Key>(key: &K, partitions: u32) -> u32 {
    partition(key.key_hash(), partitions)
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Key for $t {
            fn key_hash(&self) -> u64 {
                integer(i128::from(*self))
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, i8, i16, i32, i64, bool);

impl Key for f64 {
    fn key_hash(&self) -> u64 {
        float(*self)
    }
}

impl Key for String {
    fn key_hash(&self) -> u64 {
        text(self)
    }
}

impl Key for Vec<u8> {
    fn key_hash(&self) -> u64 {
        bytes(self)
    }
}

impl<A: Key, B: Key> Key for (A, B) {
    fn key_hash(&self) -> u64 {
        join(self.0.key_hash(), self.1.key_hash())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_go_together() {
        assert_eq!((-0.0f64).key_hash(), 0.0f64.key_hash());
        assert_eq!(f64::NAN.key_hash(), (-f64::NAN).key_hash());
        assert_eq!(7u8.key_hash(), 7i64.key_hash());
        assert_eq!(7.0f64.key_hash(), 7i64.key_hash());
        assert_eq!(((1u64 << 63) as f64).key_hash(), (1u64 << 63).key_hash());
        assert_ne!((1u8, 2u8).key_hash(), (2u8, 1u8).key_hash());
    }

    #[test]
    fn keys_are_spread() {
        for partitions in [1, 2, 7, 64, 1_000] {
            let mut counts = vec![0u32; partitions as usize];
            (0..100_000u64).for_each(|key| counts[partition_of(&key, partitions) as usize] += 1);
            let mean = 100_000 / partitions;
            let slack = 6 * mean.isqrt() + 1;
            let even = counts.iter().all(|count| count.abs_diff(mean) <= slack);
            assert!(even, "{partitions}: {counts:?}");
        }
        assert_eq!(partition(u64::MAX, 7), 6);
    }
}
