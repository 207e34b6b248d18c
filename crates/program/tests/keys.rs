//! Where keys go never changes, and is the same in Rust and in Python: `keys.txt` says where, and the
//! Python package's tests read it too.

use brambling_program::{Key, partition_of};

const PARTITIONS: u32 = 1 << 24;

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// The hash of a key as each type that holds it gives it.
fn hashes(kind: &str, text: &str) -> Vec<u64> {
    match kind {
        "int" => {
            let signed = text.parse::<i64>().map(|key| key.key_hash());
            let unsigned = text.parse::<u64>().map(|key| key.key_hash());
            signed.into_iter().chain(unsigned).collect()
        }
        "float" => vec![text.parse::<f64>().unwrap().key_hash()],
        "str" => vec![text.to_owned().key_hash()],
        "bytes" => vec![unhex(text).key_hash()],
        "pair" => {
            let (left, right) = text.split_once(' ').unwrap();
            vec![(left.parse::<i64>().unwrap(), right.to_owned()).key_hash()]
        }
        _ => panic!("{kind} is no kind of key"),
    }
}

#[test]
fn keys_go_where_they_always_went() {
    let mut count = 0;
    for line in include_str!("keys.txt").lines() {
        if line.starts_with('#') {
            continue;
        }
        let [kind, text, partition] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line:?} has not three columns");
        };
        let hashes = hashes(kind, text);
        assert!(!hashes.is_empty(), "{line:?}");
        for hash in hashes {
            let found = brambling_program::key::partition(hash, PARTITIONS);
            assert_eq!(found.to_string(), partition, "{kind} {text:?}");
        }
        count += 1;
    }
    assert!(count > 20, "{count} keys only");
    assert_eq!(partition_of(&0u8, 1_000), 815);
}
