//! Scans and writers against files that std reads and writes, on a disk and in memory.
//!
//! Catches lost, doubled, misplaced and damaged bytes, at every position within a page. Says nothing
//! about speed, nor about bytes that a disk loses with its power.

mod support;

use brambling_storage::{
    Block, BlockWriter, InputFile, OutputFile, ReadAhead, Scan, file_counts, read_splits,
};
use proptest::prelude::*;
use std::sync::Arc;
use support::{Waiting, cool, directories, is_left, noise, scanned, skip};

/// Reads a range in blocks and compares them with the bytes of the file.
fn check_scan(file: &Arc<InputFile>, all: &[u8], range: std::ops::Range<u64>, ahead: ReadAhead) {
    let blocks = scanned(file, range.clone(), ahead).unwrap();
    let expected = &all[range.start as usize..range.end as usize];
    let lengths: Vec<usize> = blocks.iter().map(Vec::len).collect();
    let expected_lengths: Vec<usize> = expected
        .chunks(ahead.block_bytes)
        .map(<[u8]>::len)
        .collect();
    assert_eq!(lengths, expected_lengths, "{range:?} {ahead:?}");
    assert!(blocks.concat() == expected, "{range:?} {ahead:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_scan_gives_the_files_bytes(
        seed: u64, bytes in 1_usize..1_500_000, from in 0.0..1.0_f64, to in 0.0..1.0_f64,
        block_bytes in prop_oneof![1_000_usize..5_000, 60_000_usize..400_000, Just(131_072)],
        blocks in 1_usize..6, is_cold: bool,
    ) {
        let all = noise(seed, bytes);
        for directory in directories() {
            let path = directory.path().join("input");
            std::fs::write(&path, &all).unwrap();
            if is_cold { cool(&path); }
            let file = InputFile::open(&path).unwrap();
            let at = |part: f64| (part * bytes as f64) as u64;
            let range = at(from.min(to))..at(from.max(to));
            check_scan(&file, &all, range, ReadAhead { block_bytes, blocks });
            check_scan(&file, &all, 0..bytes as u64, ReadAhead { block_bytes, blocks });
        }
    }

    /// Several writers on several threads fill one file, each the ranges that fall to it, so that they share pages.
    #[test]
    fn writers_put_bytes_where_they_belong(
        seed: u64, bytes in 1_usize..1_500_000, cut in 3_000_usize..300_000, depth in 1_usize..5,
        writers in 1_usize..4, in_phase: bool, takes_room: bool,
    ) {
        let all = noise(seed, bytes);
        for directory in directories() {
            let path = directory.path().join("output");
            let output = OutputFile::create(&path, takes_room.then_some(bytes as u64)).unwrap();
            std::thread::scope(|scope| for own in 0..writers {
                let (output, all) = (&output, &all);
                scope.spawn(move || {
                    let mut writer = BlockWriter::new(output, depth);
                    let mut waiting = Waiting::default();
                    for (number, piece) in all.chunks(cut).enumerate() {
                        if number % writers != own { continue; }
                        let at = (number * cut) as u64;
                        waiting.until(|waker| writer.poll_room(waker)).unwrap();
                        let mut block = if in_phase {
                            writer.take_block_at(at, piece.len())
                        } else {
                            writer.take_block(piece.len())
                        };
                        block.extend_from_slice(piece);
                        writer.write(at, block);
                    }
                    waiting.until(|waker| writer.poll_written(waker)).unwrap();
                });
            });
            assert!(!path.exists(), "it has a name before it is whole");
            let whole = output.as_input().unwrap();
            check_scan(&whole, &all, 0..bytes as u64, ReadAhead { block_bytes: 100_000, blocks: 2 });
            output.publish().unwrap();
            output.publish().unwrap();
            assert!(std::fs::read(&path).unwrap() == all);
            assert_eq!(is_left(directory.path()), ["output"]);
        }
    }

    #[test]
    fn splits_cover_a_file_once(bytes in 0_u64..100_000, unit in 1_u64..300, split_bytes in 0_u64..9_000) {
        let splits = read_splits(bytes, unit, split_bytes);
        let mut end = 0;
        for split in &splits {
            prop_assert!(split.start == end && split.start % unit == 0 && split.end > split.start);
            prop_assert!(split.end - split.start <= split_bytes.max(unit));
            end = split.end;
        }
        prop_assert_eq!(end, bytes);
    }
}

/// What the cache has comes from there, what it has not comes past it and leaves it as it was.
#[test]
fn only_what_is_not_cached_is_read_past_the_cache() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("input");
    std::fs::write(&path, noise(9, 3_000_000)).unwrap();
    const IN_MEMORY: i64 = 0x0102_1994;
    if rustix::fs::statfs(&path).unwrap().f_type == IN_MEMORY {
        return skip("the directory for temporary files is in memory");
    }
    let direct_bytes = |file: &Arc<InputFile>| {
        let ahead = ReadAhead {
            block_bytes: 600_000,
            blocks: 3,
        };
        let mut scan = Scan::new(file, 0..3_000_000, ahead);
        let mut waiting = Waiting::default();
        while let Some(block) = waiting.until(|waker| scan.poll(waker)).unwrap() {
            scan.give_back(block);
        }
        assert_eq!(scan.counts().read_bytes, 3_000_000);
        scan.counts().direct_read_bytes
    };
    cool(&path);
    let file = InputFile::open(&path).unwrap();
    assert_eq!(direct_bytes(&file), 3_000_000);
    assert_eq!(direct_bytes(&file), 3_000_000);
    let before = file_counts().read_bytes;
    std::fs::read(&path).unwrap();
    assert_eq!(direct_bytes(&file), 0);
    assert!(file_counts().read_bytes >= before + 3_000_000);
}

/// What is given back may be any block: one that is too small is not read into.
#[test]
fn what_is_cached_is_read_at_once_and_nothing_else() {
    for directory in directories() {
        let path = directory.path().join("input");
        let all = noise(7, 300_000);
        std::fs::write(&path, &all).unwrap();
        let file = InputFile::open(&path).unwrap();
        let mut into = vec![0; 100_000];
        // File systems in memory do not know the condition.
        if rustix::fs::statfs(&path).unwrap().f_type == 0x0102_1994 {
            continue;
        }
        let mut at = 0;
        while let Some(bytes) = file.read_cached(at as u64, &mut into) {
            assert!(into[..bytes] == all[at..at + bytes]);
            at += bytes;
        }
        assert_eq!(at, all.len());
        cool(&path);
        assert_eq!(file.read_cached(200_000, &mut into), None);
    }
}

#[test]
fn blocks_of_one_scan_serve_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("input");
    let all = noise(9, 250_000);
    std::fs::write(&path, &all).unwrap();
    let file = InputFile::open(&path).unwrap();
    let ahead = ReadAhead {
        block_bytes: 100_000,
        blocks: 2,
    };
    let mut scan = Scan::new(&file, 0..all.len() as u64, ahead);
    for _ in 0..3 {
        let mut read = Vec::new();
        while let Some(block) = Waiting::default().until(|waker| scan.poll(waker)).unwrap() {
            read.extend_from_slice(&block);
            scan.give_back(block);
        }
        assert!(read == all);
        let blocks = scan.into_blocks();
        assert_eq!(blocks.len(), 3);
        scan = Scan::new(&file, 0..all.len() as u64, ahead).reusing(blocks);
    }
    assert_eq!(scan.into_blocks().len(), 3);
}

#[test]
fn a_small_block_that_is_given_back_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("input");
    let bytes = noise(2, 400_000);
    std::fs::write(&path, &bytes).unwrap();
    let ahead = ReadAhead {
        block_bytes: 100_000,
        blocks: 1,
    };
    let input = InputFile::open(&path).unwrap();
    let mut scan = Scan::new(&input, 0..400_000, ahead);
    let (mut waiting, mut got) = (Waiting::default(), Vec::new());
    while let Some(block) = waiting.until(|waker| scan.poll(waker)).unwrap() {
        got.extend_from_slice(&block);
        scan.give_back(Block::with_capacity(10));
    }
    assert!(got == bytes);
}
