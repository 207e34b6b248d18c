//! Hashes never change: these values were kept when the function was
//! chosen, and agree with the authors' C implementation.

use brambling_operators::hash::{
    canonical_key, hash_bytes, hash_f64, hash_i64, hash_str, hash_u64, partition,
};

#[test]
fn golden_values() {
    // XXH3's own test vector for the empty input.
    assert_eq!(hash_bytes(b""), 0x2d06_8005_38d3_94c2);
    let long: Vec<u8> = (0..1000_u32).map(|i| (i * 7 % 251) as u8).collect();
    let hashes = [
        hash_str("brambling"),
        hash_str("Fringilla montifringilla"),
        hash_bytes(&long),
        hash_u64(0),
        hash_u64(1),
        hash_u64(u64::MAX),
        hash_f64(0.0),
        hash_f64(1.5),
        hash_f64(f64::NAN),
    ];
    let kept = [
        0x17d9_c67f_4313_b119,
        0xd02e_12cf_06ec_7eb0,
        0xd1eb_8367_bf32_94e7,
        0xc77b_3abb_6f87_acd9,
        0x2fbc_5935_64db_792e,
        0x5111_c7e4_7d78_4413,
        0xc77b_3abb_6f87_acd9,
        0x2561_a488_9ff6_3458,
        0x0aa6_1dcf_a381_c167,
    ];
    assert_eq!(hashes, kept);
}

#[test]
fn equal_keys_hash_equal() {
    assert_eq!(hash_f64(-0.0), hash_f64(0.0));
    assert_eq!(
        hash_f64(-f64::NAN),
        hash_f64(f64::from_bits(0x7ff0_0000_0000_0001))
    );
    assert_eq!(canonical_key(-0.0).to_bits(), 0);
    assert_eq!(hash_i64(-1), hash_u64(u64::MAX));
    assert_eq!(hash_str("key"), hash_bytes(b"key"));
}

#[test]
fn partitions_are_even() {
    for partitions in [1, 2, 7, 64, 1000] {
        let mut sizes = vec![0_u32; partitions as usize];
        for key in 0..100_000 {
            sizes[partition(hash_u64(key), partitions) as usize] += 1;
        }
        let mean = 100_000 / partitions;
        let slack = 6 * mean.isqrt() + 1;
        assert!(
            sizes.iter().all(|size| size.abs_diff(mean) <= slack),
            "{partitions}: {sizes:?}"
        );
    }
    assert_eq!(partition(u64::MAX, 7), 6);
}
