//! Values that are functions of their place.

/// A number in [0, 1) of a counter.
pub(crate) fn uniform(counter: u64) -> f64 {
    word(counter) as f64 / 2f64.powi(64)
}

/// A number below `count` of a counter.
pub(crate) fn below(counter: u64, count: u64) -> u64 {
    ((u128::from(word(counter)) * u128::from(count)) >> 64) as u64
}

/// 64 random bits of a counter: the mixer of SplitMix64.
pub(crate) fn word(counter: u64) -> u64 {
    let mut word = counter.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
