//! Map-reduce of far more keys than its memory holds: the bytes are those of a roomy job, and the process stays within the budget.
//!
//! Alone in its binary, since what is looked at is the whole process. Says nothing about speed.

use brambling::map_reduce::{MapReduce, map_reduce};
use brambling::{QuietCaller, RunOptions};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const KEYS: u64 = 3_000_000;
const BUDGET_BYTES: u64 = 64 << 20;
/// Tables of all keys would have this at least: a slot of 32 bytes for each, half of them taken.
const TABLES_BYTES: u64 = 64 * KEYS;

/// A line of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}

/// Each key twice, far from each other.
fn write_text(path: &Path) {
    let mut text = std::io::BufWriter::new(fs::File::create(path).unwrap());
    for number in (0..KEYS).chain(0..KEYS) {
        // Odd multiples modulo 2⁶⁴ differ.
        let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        writeln!(text, "{word:016x}").unwrap();
    }
    text.flush().unwrap();
}

/// Counts the words; gives the files that are written.
fn count(text: &Path, output: PathBuf, memory: &str) -> Vec<PathBuf> {
    let how = MapReduce {
        output: Some(output),
        partitions: Some(3),
        ..MapReduce::default()
    };
    let options = RunOptions::new().threads(2).memory(memory);
    let found = map_reduce(&[text], &how, &options, &mut QuietCaller).unwrap();
    assert_eq!(found.keys, KEYS);
    found.files
}

#[test]
fn many_keys_take_no_more_than_the_budget() {
    const { assert!(TABLES_BYTES > 2 * BUDGET_BYTES, "it has to spill") };
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("words.txt");
    write_text(&text);
    // Threads, and what they have anyhow, are there after a first job.
    let few = directory.path().join("few.txt");
    fs::write(&few, "few words").unwrap();
    let none = MapReduce::default();
    let options = RunOptions::new().threads(2);
    map_reduce(&[&few], &none, &options, &mut QuietCaller).unwrap();
    let before = status("VmRSS:");
    // The peak begins anew at what is there.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let tight = count(&text, directory.path().join("tight"), "64MiB");
    let taken = status("VmHWM:") - before;
    // What the allocator keeps of buffers that come and go is in no budget.
    assert!(
        taken <= BUDGET_BYTES + BUDGET_BYTES / 4,
        "{taken} bytes were taken of {BUDGET_BYTES}"
    );
    let roomy = count(&text, directory.path().join("roomy"), "2GiB");
    let bytes = |files: &[PathBuf]| -> Vec<Vec<u8>> {
        files.iter().map(|it| fs::read(it).unwrap()).collect()
    };
    let (tight, roomy) = (bytes(&tight), bytes(&roomy));
    assert!(roomy == tight, "the same bytes");
    let lines = roomy.concat();
    let mut lines = lines.split_inclusive(|byte| *byte == b'\n');
    assert!(lines.all(|line| line.ends_with(b"\t2\n")));
}
