//! Keys of a shuffle: hashed the same everywhere.

use crate::Payload;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// What rows can be brought together by. Equal keys hash equally on every machine.
pub trait Key: Payload {
    /// A hash that does not depend on machine, version of Rust, or run.
    fn key_hash(&self) -> u64;
}

macro_rules! integer {
    ($($t:ty),*) => {$(
        impl Key for $t {
            fn key_hash(&self) -> u64 {
                xxh3_64(&i128::from(*self).to_le_bytes())
            }
        }
    )*};
}
integer!(u8, u16, u32, u64, i8, i16, i32, i64, bool);

impl Key for String {
    fn key_hash(&self) -> u64 {
        xxh3_64(self.as_bytes())
    }
}

impl Key for f64 {
    /// −0.0 hashes as 0.0 and every NaN alike.
    fn key_hash(&self) -> u64 {
        let canonical = if self.is_nan() {
            f64::NAN.to_bits()
        } else {
            (self + 0.0).to_bits()
        };
        xxh3_64(&canonical.to_le_bytes())
    }
}

impl<A: Key, B: Key> Key for (A, B) {
    fn key_hash(&self) -> u64 {
        xxh3_64_with_seed(&self.1.key_hash().to_le_bytes(), self.0.key_hash())
    }
}

/// The partition of a key.
pub fn partition_of<K: Key>(key: &K, partitions: u32) -> u32 {
    // The high bits of a product spread over the partitions without a division's bias.
    ((u128::from(key.key_hash()) * u128::from(partitions)) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_go_together() {
        assert_eq!((-0.0f64).key_hash(), 0.0f64.key_hash());
        assert_eq!(f64::NAN.key_hash(), (-f64::NAN).key_hash());
        assert_eq!(7u8.key_hash(), 7i64.key_hash());
        assert_ne!((1u8, 2u8).key_hash(), (2u8, 1u8).key_hash());
    }

    #[test]
    fn keys_are_spread() {
        let mut counts = [0u32; 7];
        (0..7_000u64).for_each(|key| counts[partition_of(&key, 7) as usize] += 1);
        assert!(
            counts.iter().all(|count| (850..1_150).contains(count)),
            "{counts:?}"
        );
    }
}
