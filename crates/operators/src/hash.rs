//! Hashes of keys, for partitioners. Part of the promise: they never change, on any platform.
//!
//! A key's hash is XXH3 (64 bits, seed 0) of its bytes: eight in little-endian order for a number,
//! UTF-8 for text. Keys that compare equal hash equal: −0.0 is +0.0, and all NaNs are one.

use crate::numerics;
use xxhash_rust::xxh3::xxh3_64;

/// The hash of bytes.
pub fn hash_bytes(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// The hash of text, which is that of its bytes.
pub fn hash_str(key: &str) -> u64 {
    xxh3_64(key.as_bytes())
}

/// The hash of an unsigned integer.
#[inline]
pub fn hash_u64(key: u64) -> u64 {
    xxh3_64(&key.to_le_bytes())
}

/// The hash of a signed integer: that of the unsigned one with the same bits.
#[inline]
pub fn hash_i64(key: i64) -> u64 {
    hash_u64(key.cast_unsigned())
}

/// The hash of a float's [`canonical_key`].
#[inline]
pub fn hash_f64(key: f64) -> u64 {
    hash_u64(canonical_key(key).to_bits())
}

/// `key` as groups and joins see it: −0.0 is +0.0, and any NaN is the canonical one.
#[inline]
pub fn canonical_key(key: f64) -> f64 {
    numerics::canonical(key) + 0.0
}

/// The partition of a hash among `partitions`: its upper bits decide, so neighbouring counts share
/// little.
///
/// # Panics
/// If there are no partitions.
#[inline]
pub fn partition(hash: u64, partitions: u32) -> u32 {
    assert!(partitions > 0);
    ((u128::from(hash) * u128::from(partitions)) >> 64) as u32
}
