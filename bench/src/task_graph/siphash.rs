//! SipHash-2-4 of whole words: the hash by which Task Bench decides random dependencies. The
//! standard library's hasher of that name is deprecated and leaves its function open.

/// The 64-bit SipHash-2-4, under a 128-bit key, of `words` as little-endian bytes.
pub fn siphash_2_4(key: [u64; 2], words: &[u64]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    // The last block holds the length in bytes, modulo 256, in its highest byte.
    let last = (words.len() as u64 * 8) << 56;
    for &word in words.iter().chain([&last]) {
        v[3] ^= word;
        round(&mut v);
        round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    // The key 00 01 … 0f of the authors' reference vectors.
    const KEY: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];

    #[test]
    fn the_authors_vectors() {
        assert_eq!(siphash_2_4(KEY, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(
            siphash_2_4(KEY, &[0x0706_0504_0302_0100]),
            0x93f5_f579_9a93_2462
        );
    }

    #[test]
    #[allow(deprecated)]
    fn agrees_with_the_standard_library() {
        use std::hash::{Hasher, SipHasher};
        for length in 0..12u64 {
            let words: Vec<u64> = (0..length)
                .map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15))
                .collect();
            let mut hasher = SipHasher::new_with_keys(KEY[0], KEY[1]);
            for word in &words {
                hasher.write(&word.to_le_bytes());
            }
            assert_eq!(siphash_2_4(KEY, &words), hasher.finish());
        }
    }
}
