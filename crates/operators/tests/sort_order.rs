//! Records are sorted, divided and merged as the standard library and GNU sort do it.
//!
//! The oracle is `slice::sort_by`, which is stable, over keys that are taken apart here once more.
//! It would not see an error in what the command's flags mean: `sort -s` of GNU does, for lines.

use brambling_operators::sort::{
    Arena, KeySamples, LineOrder, Merge, MergeStep, PartBuffers, RecordFormat, RecordMaker, Skew,
    Splitters,
};
use proptest::prelude::*;
use std::io::Write;
use std::process::{Command, Stdio};

const SKEWS: [Skew; 5] = [
    Skew::Uniform,
    Skew::Zipf,
    Skew::Equal,
    Skew::Sorted,
    Skew::Reversed,
];

/// Sorts chunks and takes the records out by so many bytes at once.
fn sorted(format: RecordFormat, chunks: &[&[u8]], room: usize) -> Vec<u8> {
    let mut arena = Arena::new(format);
    for chunk in chunks {
        arena.push(chunk.to_vec());
    }
    let all = arena.bytes();
    let mut sorted = arena.sort();
    let mut out = Vec::new();
    let mut piece = vec![0; room];
    loop {
        assert_eq!(sorted.bytes_left(), all - out.len() as u64);
        match sorted.fill(&mut piece) {
            0 => return out,
            filled => out.extend_from_slice(&piece[..filled]),
        }
    }
}

/// The same by the standard library, by keys that `key` takes out of records.
fn expected<'b, K: Ord>(
    format: RecordFormat,
    bytes: &'b [u8],
    key: impl Fn(&'b [u8]) -> K,
) -> Vec<u8> {
    let mut records: Vec<&[u8]> = match format.width() {
        Some(width) => bytes.chunks(width).collect(),
        None => bytes.split_inclusive(|&byte| byte == b'\n').collect(),
    };
    records.sort_by_key(|record| key(record));
    records.concat()
}

fn merged(format: RecordFormat, runs: &[Vec<u8>], block: usize, room: usize) -> Vec<u8> {
    let mut merge: Merge<Vec<u8>> = Merge::new(format, runs.len());
    let mut blocks: Vec<_> = runs.iter().map(|run| run.chunks(block)).collect();
    let mut out = Vec::new();
    let mut piece = vec![0; room];
    loop {
        let (filled, step) = merge.fill(&mut piece);
        out.extend_from_slice(&piece[..filled]);
        match step {
            MergeStep::Full => assert_eq!(filled, room),
            MergeStep::Done => return out,
            MergeStep::Needs(run) => {
                // Asked again without an answer, it says the same and gives nothing.
                assert_eq!(merge.fill(&mut piece), (0, step));
                match blocks[run].next() {
                    Some(block) => drop(merge.give(run, block.to_vec())),
                    None => merge.end(run),
                }
            }
        }
    }
}

/// Sorts, divides and merges; `sizes` cuts the records into chunks and runs.
fn check<'b, K: Ord>(
    format: RecordFormat,
    bytes: &'b [u8],
    sizes: &[usize],
    key: impl Fn(&'b [u8]) -> K + Copy,
) {
    let expected = expected(format, bytes, key);
    let mut chunks: Vec<&[u8]> = Vec::new();
    let mut rest = bytes;
    for &size in sizes.iter().cycle() {
        let cut = format.whole_bytes(&rest[..rest.len().min(size)]);
        // A chunk has a record at least.
        let cut = cut.max(format.record_bytes(rest).unwrap_or(0));
        let (chunk, behind) = rest.split_at(cut);
        chunks.push(chunk);
        rest = behind;
        if rest.is_empty() {
            break;
        }
    }
    assert!(
        sorted(format, &chunks, sizes[0]) == expected,
        "{format:?}: sorting"
    );

    let runs: Vec<Vec<u8>> = chunks
        .iter()
        .map(|chunk| sorted(format, &[chunk], 999))
        .collect();
    let out = merged(format, &runs, sizes[0], sizes[sizes.len() - 1]);
    assert!(out == expected, "{format:?}: merging");

    let mut samples = KeySamples::default();
    for record in format.records(bytes).step_by(3) {
        samples.push(format.key(record));
    }
    let parts = sizes.len() as u32;
    let mut buffers = PartBuffers::new(Splitters::of(format, &samples, parts), sizes[0]);
    let mut arenas: Vec<Arena> = (0..parts).map(|_| Arena::new(format)).collect();
    for chunk in chunks {
        buffers.cut(chunk, |part, full| {
            arenas[part as usize].push(std::mem::take(full));
        });
    }
    let mut out = Vec::new();
    for (part, mut arena) in arenas.into_iter().enumerate() {
        arena.push(std::mem::take(buffers.part_mut(part as u32)));
        let mut bytes = vec![0; arena.bytes() as usize];
        arena.sort().fill(&mut bytes);
        out.extend_from_slice(&bytes);
    }
    assert!(out == expected, "{format:?}: dividing");
}

#[test]
fn records_of_every_skew() {
    let widths = [
        (100, "0:10"),
        (100, "90:10"),
        (16, "3:8"),
        (9, "1:8"),
        (12, "0:3"),
        (7, "2:5"),
    ];
    for (width, key) in widths {
        let format = RecordFormat::fixed(width, key).unwrap();
        let (offset, length) = key.split_once(':').unwrap();
        let offset: usize = offset.parse().unwrap();
        let end = offset + length.parse::<usize>().unwrap();
        for skew in SKEWS {
            let maker = RecordMaker::new(&format, 20_000, 5, skew).unwrap();
            let mut bytes = vec![0; maker.bytes() as usize];
            maker.fill(0, &mut bytes);
            let sizes = [10_007, 400_000, 1, 70_001];
            check(format, &bytes, &sizes, |record| &record[offset..end]);
        }
    }
}

#[test]
fn no_records_and_runs_without_any() {
    let format = RecordFormat::default();
    assert!(sorted(format, &[], 10).is_empty());
    assert!(merged(format, &[], 10, 10).is_empty());
    let run = vec![7; 200];
    // A run that is empty, and keys that are as high as keys can be.
    assert_eq!(merged(format, &[vec![], run.clone(), vec![]], 64, 33), run);
    let high = vec![0xff; 300];
    assert_eq!(
        merged(format, &[vec![], high.clone(), vec![]], 64, 33),
        high
    );
}

/// Sizes of chunks, blocks and rooms.
fn sizes() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(1usize..900, 1..6)
}

/// Few different bytes, so that keys tie in their prefixes and altogether.
fn alike() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(255)];
    proptest::collection::vec(byte, 0..6_000)
}

proptest! {
    #[test]
    fn records_whose_keys_tie(bytes in alike(), key in 1u32..24, sizes in sizes()) {
        let format = RecordFormat::fixed(24, &format!("0:{key}")).unwrap();
        // Most keys begin alike, and each record tells where it was.
        let mut bytes = bytes;
        bytes.truncate(bytes.len() / 24 * 24);
        for (number, record) in bytes.chunks_mut(24).enumerate() {
            record[..7.min(key as usize)].fill(3);
            if key < 20 {
                record[20..].copy_from_slice(&(number as u32).to_le_bytes());
            }
        }
        check(format, &bytes, &sizes, |record| &record[..key as usize]);
    }

    #[test]
    fn lines_of_few_letters(text in "([ab\0]{0,20}\n){0,300}", sizes in sizes()) {
        let format = RecordFormat::lines(None, None, LineOrder::C).unwrap();
        check(format, text.as_bytes(), &sizes, |line| &line[..line.len() - 1]);
    }

    #[test]
    fn lines_that_begin_alike(tails in proptest::collection::vec("[a-c]{0,2}", 0..400),
                              sizes in sizes()) {
        let format = RecordFormat::lines(None, None, LineOrder::C).unwrap();
        let line = |tail| format!("https://www.example.org/{tail}\n");
        let text: String = tails.iter().map(line).collect();
        check(format, text.as_bytes(), &sizes, |line| &line[..line.len() - 1]);
    }

    #[test]
    fn ranges_of_lines(text in "([a-c]{0,9}\n){0,300}") {
        let format = RecordFormat::lines(Some("2:3"), None, LineOrder::C).unwrap();
        check(format, text.as_bytes(), &[40, 333], |line| {
            let line = &line[..line.len() - 1];
            &line[2.min(line.len())..5.min(line.len())]
        });
    }
}

/// What GNU sort makes of lines; none without it.
#[allow(clippy::print_stderr)] // Whoever runs the tests is told what was left out.
fn gnu(flags: &[&str], text: &[u8]) -> Option<Vec<u8>> {
    let mut sort = Command::new("sort");
    sort.arg("-s").args(flags).env("LC_ALL", "C");
    let sort = sort
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let Ok(mut sort) = sort.spawn() else {
        eprintln!("skipped: there is no sort command to compare with");
        return None;
    };
    sort.stdin.take().unwrap().write_all(text).unwrap();
    let out = sort.wait_with_output().unwrap();
    assert!(out.status.success(), "sort {flags:?}");
    Some(out.stdout)
}

fn check_gnu(text: &str, flags: &[&str], format: RecordFormat) {
    let Some(expected) = gnu(flags, text.as_bytes()) else {
        return;
    };
    let found = sorted(format, &[text.as_bytes()], 1_000);
    let [found, expected] = [&found, &expected].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(
        found == expected,
        "sort {flags:?} of\n{text}\nours:\n{found}\nGNU's:\n{expected}"
    );
}

/// Texts, one behind another, by which every way to name a key is compared.
fn check_all_keys(text: &str) {
    check_gnu(
        text,
        &[],
        RecordFormat::lines(None, None, LineOrder::C).unwrap(),
    );
    check_gnu(
        text,
        &["-n"],
        RecordFormat::lines(None, None, LineOrder::Numeric).unwrap(),
    );
    for key in ["1", "2", "3", "1,1", "2,2", "2,3", "3,2", "1,4"] {
        for separator in [None, Some(","), Some(" ")] {
            for order in [LineOrder::C, LineOrder::Numeric] {
                let format = RecordFormat::lines(Some(key), separator, order).unwrap();
                let mut flags = vec!["-k", key];
                flags.extend(separator.iter().flat_map(|separator| ["-t", *separator]));
                flags.extend((order == LineOrder::Numeric).then_some("-n"));
                check_gnu(text, &flags, format);
            }
        }
    }
}

#[test]
fn lines_are_sorted_as_gnu_sorts_them() {
    check_all_keys(
        "b,2 x\na,10,y\n a 1\n\n,,\n,\na\tb  c d\na 2,1\n\
         -1 -2\n-1.5,3\n007 7\n7.0 7\n+3\n- 4\n.5\n-.5\nz z z z z\n",
    );
    let mut text = Vec::new();
    let maker = brambling_operators::sort::TextMaker::new(1);
    (0..300).for_each(|line| maker.line(line, &mut text));
    check_all_keys(std::str::from_utf8(&text).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn any_lines_are_sorted_as_gnu_sorts_them(text in "([-0-9a., \t]{0,9}\n){0,40}") {
        check_all_keys(&text);
    }
}
