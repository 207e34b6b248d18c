//! Map-reduce of far more keys than its memory holds: the bytes are those of a roomy job, and the process stays within the budget.
//!
//! Alone in its binary, since what is looked at is the whole process. Says nothing about speed.

use brambling::map_reduce::{MapReduce, map_reduce};
use brambling::{QuietCaller, RunOptions};
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Enough keys that the tables of all would have twice the budget at least: a slot of 32 bytes for each, half of them taken.
const KEYS_OF_WORDS: u64 = 3_000_000;
const KEYS_OF_LINES: u64 = 1_000_000;

/// A line of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}

/// Each key twice, far from each other.
fn write_text(path: &Path, keys: u64, behind: &str) {
    let mut text = std::io::BufWriter::new(fs::File::create(path).unwrap());
    for number in (0..keys).chain(0..keys) {
        // Odd multiples modulo 2⁶⁴ differ.
        let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        writeln!(text, "{word:016x}{behind}").unwrap();
    }
    text.flush().unwrap();
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Counts the words; gives the files that are written.
fn count(text: &Path, keys: u64, output: PathBuf, memory: u64) -> Vec<PathBuf> {
    let how = MapReduce {
        output: Some(output),
        partitions: Some(3),
        ..MapReduce::default()
    };
    let options = RunOptions::new().threads(2).memory(format!("{memory}"));
    let found = map_reduce(&[text], &how, &options, &mut QuietCaller).unwrap();
    assert_eq!(found.keys, keys);
    found.files
}

#[test]
fn many_keys_take_no_more_than_the_budget() {
    let directory = tempfile::tempdir().unwrap();
    // Threads, and what they have anyhow, are there after a first job.
    let few = directory.path().join("few.txt");
    fs::write(&few, "few words").unwrap();
    let none = MapReduce::default();
    let options = RunOptions::new().threads(2);
    map_reduce(&[&few], &none, &options, &mut QuietCaller).unwrap();
    // Keys that lie in their slots, and long ones.
    let long = "x".repeat(84);
    for (keys, behind) in [(KEYS_OF_WORDS, ""), (KEYS_OF_LINES, &long)] {
        let text = directory.path().join(format!("{keys}.txt"));
        write_text(&text, keys, behind);
        let mut first = None;
        for budget in [64 << 20, 96 << 20, 2 << 30] {
            let before = status("VmRSS:");
            // The peak begins anew at what is there.
            fs::write("/proc/self/clear_refs", "5").unwrap();
            let output = directory.path().join(format!("{keys}-{budget}"));
            let files = count(&text, keys, output, budget);
            let taken = status("VmHWM:") - before;
            assert!(
                taken <= budget + budget / 10,
                "{taken} bytes were taken of {budget}"
            );
            let bytes = files.iter().flat_map(|it| fs::read(it).unwrap());
            let bytes: Vec<u8> = bytes.collect();
            let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
            assert!(lines.all(|line| line.ends_with(b"\t2\n")));
            let digest = digest(&bytes);
            assert_eq!(digest, *first.get_or_insert(digest), "the same bytes");
        }
    }
}
