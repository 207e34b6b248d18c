//! Sorts of files: the same bytes whatever threads, budgets, splits and parts, and what is wrong with files is told.
//!
//! The oracle is the standard library's stable sort of what was read whole.

use brambling::operators::sort::job::{self, SortInput, SortOutput, SortPlan, SortShared};
use brambling::program::Program;
use brambling::sort::{
    LineOrder, RecordFormat, Skew, Sort, SortError, SplitPlanning, check_files, make_file,
};
use brambling::{QuietCaller, RunOptions};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of a test, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("brambling-sort-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let name = |entry: std::io::Result<fs::DirEntry>| {
            entry.unwrap().file_name().into_string().unwrap()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options(threads: u32) -> RunOptions {
    RunOptions::new().threads(threads)
}

fn make(path: &Path, records: u64, skew: Skew) {
    let format = RecordFormat::default();
    make_file(path, records, format, skew, &options(2), &mut QuietCaller).unwrap();
}

/// Whole records in order, equal keys as they came.
fn expected(bytes: &[u8], format: &RecordFormat) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if format.width().is_none() && bytes.last().is_some_and(|last| *last != b'\n') {
        bytes.push(b'\n');
    }
    let mut records: Vec<&[u8]> = format.records(&bytes).collect();
    records.sort_by(|a, b| format.compare(a, b));
    records.concat()
}

const SKEWS: [Skew; 5] = [
    Skew::Uniform,
    Skew::Zipf,
    Skew::Equal,
    Skew::Sorted,
    Skew::Reversed,
];

#[test]
fn the_same_bytes_for_threads_and_budgets_and_skews() {
    let folder = Folder::new();
    let (from, to) = (folder.at("records"), folder.at("sorted"));
    for skew in SKEWS {
        make(&from, 200_000, skew);
        let expected = expected(&fs::read(&from).unwrap(), &RecordFormat::default());
        for (threads, memory) in [
            (1, "1GB"),
            (2, "1GB"),
            (3, "24MB"),
            (2, "16MB"),
            (1, "16MB"),
        ] {
            let sort = Sort::new([&from], &to).checksums(true).backup(threads == 3);
            let sorted = sort.run(&options(threads).memory(memory)).unwrap();
            assert_eq!((sorted.records, sorted.bytes), (200_000, 20_000_000));
            let is_external = memory != "1GB";
            assert_eq!(sorted.run_bytes > 0, is_external, "{skew} in {memory}");
            assert!(
                fs::read(&to).unwrap() == expected,
                "{skew}, {threads} threads, {memory}"
            );
        }
    }
    assert_eq!(
        folder.names(),
        ["records", "sorted"],
        "nothing is left behind"
    );
}

#[test]
fn an_unstable_sort_has_the_same_records_in_order() {
    let folder = Folder::new();
    let (from, to) = (folder.at("records"), folder.at("sorted"));
    for skew in [Skew::Equal, Skew::Zipf] {
        make(&from, 200_000, skew);
        let format = RecordFormat::default();
        let check = |path: &Path| {
            let checked = check_files(&[path.into()], format, &options(2), &mut QuietCaller);
            checked.unwrap().summary
        };
        for memory in ["1GB", "16MB"] {
            let sort = Sort::new([&from], &to).stable(false);
            sort.run(&options(2).memory(memory)).unwrap();
            let (read, written) = (check(&from), check(&to));
            assert!(written.fault.is_none(), "{skew} in {memory}: {written:?}");
            assert_eq!(
                (written.records, written.checksum),
                (read.records, read.checksum),
                "{skew} in {memory}"
            );
        }
    }
}

#[test]
fn static_splits_and_chunks_that_are_spilled_give_the_same_bytes() {
    let folder = Folder::new();
    let (from, to) = (folder.at("records"), folder.at("sorted"));
    make(&from, 400_000, Skew::Zipf);
    let expected = expected(&fs::read(&from).unwrap(), &RecordFormat::default());
    let sorted = |sort: Sort, threads| {
        let sorted = sort.run(&options(threads).memory("1GB")).unwrap();
        assert!(fs::read(&to).unwrap() == expected, "{sorted:?}");
        sorted
    };
    for threads in [1, 2, 3] {
        let sort = Sort::new([&from], &to);
        let dynamic = sorted(sort.clone(), threads);
        assert_eq!((dynamic.splits, dynamic.spilled_bytes), (3, 0));
        let fixed = sorted(sort.clone().splits(SplitPlanning::Static), threads);
        assert_eq!(fixed.splits, threads);
        let spilled = sorted(sort.exchange_memory(0), threads);
        // All records, and what chunks have beside.
        assert!(spilled.spilled_bytes >= spilled.bytes, "{spilled:?}");
        assert_eq!(spilled.run_bytes, 0);
    }
    assert_eq!(folder.names(), ["records", "sorted"]);
}

#[test]
fn what_a_sort_adds_is_counted() {
    let folder = Folder::new();
    let (from, to) = (folder.at("records"), folder.at("sorted"));
    make(&from, 200_000, Skew::Uniform);
    let sort = Sort::new([&from], &to);
    let sorted = sort.clone().run(&options(2).memory("1GB")).unwrap();
    assert_eq!((sorted.backup_bytes, sorted.copied_bytes), (0, 0));
    // Each split sends each part some chunks, each with three words beside its records.
    let chunks = f64::from(sorted.splits * sorted.parts);
    let least = 24.0 * chunks / sorted.bytes as f64;
    let overhead = sorted.extent_overhead;
    assert!(
        (least..0.01).contains(&overhead),
        "{overhead}, at least {least}"
    );
    let sorted = sort.backup(true).run(&options(2).memory("1GB")).unwrap();
    assert_eq!(sorted.backup_bytes, sorted.bytes);
}

/// Sorts by a plan of small splits, parts and blocks, which large files alone would have.
fn sort_by(plan: SortPlan, to: &Path, threads: u32) -> Vec<u8> {
    static JOBS: AtomicU32 = AtomicU32::new(1 << 20);
    let plan = SortPlan {
        job: JOBS.fetch_add(1, Ordering::Relaxed).into(),
        output: SortOutput::File,
        at_once: threads + 2,
        workers: 1,
        ..plan
    };
    let shared = SortShared::of(&plan);
    let output = brambling::operators::sort::job::create_output(to, plan.input_bytes()).unwrap();
    shared.write_to(output.clone());
    let mut program = Program::new("sort");
    let job = job::build(&mut program, &plan);
    let ran = options(threads).run(program);
    let mut outcome = ran.unwrap_or_else(|error| panic!("{error}: {shared:?}"));
    let written = outcome.take_all(&job.written);
    output
        .set_bytes(written.iter().map(|part| part.bytes).sum())
        .unwrap();
    output.publish().unwrap();
    fs::read(to).unwrap()
}

#[test]
fn lines_of_several_files_over_small_splits() {
    let folder = Folder::new();
    // Short and empty lines, one that is longer than a block, a file without a last newline, an empty one.
    let mut texts = vec![String::new(); 3];
    let mut state = 7u64;
    let mut next = |below: u64| {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % below
    };
    for _ in 0..40_000 {
        let file = next(2) as usize * 2;
        let (number, letter) = (
            next(3_000) as i64 - 1_500,
            char::from(b'a' + next(26) as u8),
        );
        texts[file] += &format!(
            "{letter} {number}.{} {}\n",
            next(100),
            "x".repeat(next(60) as usize)
        );
        if next(50) == 0 {
            texts[file].push('\n');
        }
    }
    texts[2] += &"long ".repeat(60_000);
    let mut inputs = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let path = folder.at(&format!("text{number}"));
        fs::write(&path, text).unwrap();
        inputs.push(SortInput {
            bytes: text.len() as u64,
            path,
        });
    }
    for (key, order) in [
        (None, LineOrder::C),
        (Some("2"), LineOrder::Numeric),
        (Some("3,3"), LineOrder::C),
    ] {
        let format = RecordFormat::lines(key, None, order).unwrap();
        let expected = expected(texts.concat().as_bytes(), &format);
        for (splits, parts, record_bytes_max, threads) in [
            (1, 1, 1 << 30, 1),
            (37, 5, 1 << 30, 2),
            (16, 9, 2 << 20, 3),
            (200, 3, 1 << 20, 1),
        ] {
            let plan = SortPlan {
                format,
                inputs: inputs.clone(),
                tmp: folder.0.clone(),
                splits,
                parts,
                record_bytes_max: Some(record_bytes_max),
                ..SortPlan::default()
            };
            let got = sort_by(plan, &folder.at("sorted"), threads);
            assert!(
                got == expected,
                "{key:?} by {splits} splits and {parts} parts in {record_bytes_max}"
            );
        }
    }
}

#[test]
fn what_is_wrong_with_files_is_told_and_nothing_is_left() {
    let folder = Folder::new();
    let (from, to) = (folder.at("records"), folder.at("sorted"));
    let told = |sort: Sort| sort.run(&options(2)).unwrap_err().to_string();
    let missing = told(Sort::new([&from], &to));
    assert!(
        missing.contains("records") && missing.contains("No such file"),
        "{missing}"
    );
    fs::write(&from, [7u8; 1_234]).unwrap();
    let cut = told(Sort::new([&from], &to));
    assert!(
        cut.contains("1234 bytes") && cut.contains("--width") && cut.contains("--lines"),
        "{cut}"
    );
    make(&from, 1_000, Skew::Uniform);
    let before = fs::read(&from).unwrap();
    let link = folder.at("link");
    std::os::unix::fs::symlink(&from, &link).unwrap();
    for output in [&from, &link] {
        let over = told(Sort::new([&from], output));
        assert!(over.contains("an input and the output"), "{over}");
    }
    assert!(fs::read(&from).unwrap() == before, "the input is as it was");
    let nowhere = told(Sort::new([&from], folder.at("no/where")));
    assert!(nowhere.contains("no/where"), "{nowhere}");
    let no_tmp = told(Sort::new([&from], &to).tmp(folder.at("none")));
    assert!(no_tmp.contains("none"), "{no_tmp}");
    assert_eq!(folder.names(), ["link", "records"]);
    // An old output is replaced only by a whole new one.
    fs::write(&to, "old").unwrap();
    fs::write(folder.at("cut"), [7u8; 1_234]).unwrap();
    told(Sort::new([folder.at("cut")], &to));
    assert_eq!(fs::read(&to).unwrap(), b"old");
    Sort::new([&from], &to).run(&options(1)).unwrap();
    assert_eq!(fs::read(&to).unwrap().len(), 100_000);
}

#[test]
fn an_empty_input_gives_an_empty_output() {
    let folder = Folder::new();
    fs::write(folder.at("none"), "").unwrap();
    let sorted = Sort::new([folder.at("none")], folder.at("sorted"))
        .run(&options(2))
        .unwrap();
    assert_eq!((sorted.records, sorted.bytes), (0, 0));
    assert_eq!(fs::read(folder.at("sorted")).unwrap(), b"");
}

#[test]
fn an_input_that_is_written_meanwhile_is_told() {
    let folder = Folder::new();
    make(&folder.at("records"), 1_000, Skew::Uniform);
    let plan = SortPlan {
        inputs: vec![SortInput {
            path: folder.at("records"),
            bytes: 50_000,
        }],
        tmp: folder.0.clone(),
        splits: 2,
        parts: 2,
        output: SortOutput::File,
        record_bytes_max: Some(1 << 30),
        at_once: 2,
        workers: 1,
        job: 1,
        ..SortPlan::default()
    };
    let mut program = Program::new("sort");
    job::build(&mut program, &plan);
    let error = options(1).run(program).map(drop).unwrap_err().to_string();
    assert!(error.contains("100000 bytes now, and had 50000"), "{error}");
}

#[test]
fn a_check_finds_what_is_out_of_order() {
    let folder = Folder::new();
    let (from, to) = (folder.at("records"), folder.at("sorted"));
    make(&from, 300_000, Skew::Zipf);
    Sort::new([&from], &to).run(&options(2)).unwrap();
    let check = |paths: &[PathBuf]| {
        check_files(
            paths,
            RecordFormat::default(),
            &options(2),
            &mut QuietCaller,
        )
        .unwrap()
        .summary
    };
    let (before, after) = (
        check(std::slice::from_ref(&from)),
        check(std::slice::from_ref(&to)),
    );
    assert!(before.fault.is_some() && after.fault.is_none());
    assert!(after.has_records_of(&before) && after.duplicates > 0);
    // Two halves, one after another, are like the whole.
    let bytes = fs::read(&to).unwrap();
    let halves = [folder.at("half1"), folder.at("half2")];
    fs::write(&halves[0], &bytes[..15_000_000]).unwrap();
    fs::write(&halves[1], &bytes[15_000_000..]).unwrap();
    assert_eq!(check(&halves), after);
    let wrong = check(&[halves[1].clone(), halves[0].clone()]);
    assert_eq!(wrong.fault.unwrap().record, 150_000);
    assert!(matches!(
        check_files(
            &[folder.at("gone")],
            RecordFormat::default(),
            &options(1),
            &mut QuietCaller
        ),
        Err(SortError::File(_))
    ));
}
