//! Parts of files, pushed in blocks, against a search line by line.
//!
//! The oracle splits the whole text at newlines and asks the crate `regex` of each line. It shares the meaning of patterns
//! with what it checks, and nothing else. Says nothing about reading.

use brambling_operators::grep::lines::{HEAD_BYTES, LineSearch, PartFound, PartSearch};
use brambling_operators::grep::query::{GrepQuery, WantedOfLines};
use brambling_operators::grep::stitch::{FileStitch, GrepLine};
use proptest::prelude::*;
use regex::bytes::RegexBuilder;

/// A line as it is told: number, offset, bytes, whether it is selected.
type Told = (u64, u64, Vec<u8>, bool);

fn query(pattern: &str) -> GrepQuery {
    GrepQuery {
        patterns: vec![pattern.to_owned()],
        numbers: true,
        ..GrepQuery::default()
    }
}

/// Searches a text cut into parts, each pushed in blocks.
fn search(
    query: &GrepQuery,
    text: &[u8],
    part_bytes: usize,
    block_bytes: usize,
) -> (Vec<Told>, FileStitch) {
    let mut with = LineSearch::new(query).unwrap();
    let mut stitch = FileStitch::default();
    let mut told = Vec::new();
    let mut tell = |line: &GrepLine<'_>| {
        told.push((line.number, line.offset, line.bytes.to_vec(), line.selected));
    };
    // The first part of a long file is long.
    let first = HEAD_BYTES.min(text.len()).max(part_bytes);
    let ends = (first..text.len()).step_by(part_bytes).chain([text.len()]);
    let mut begin = 0;
    for end in ends {
        let range = begin as u64..end as u64;
        begin = end;
        let from = PartSearch::reads_from(&range) as usize;
        let mut part = PartSearch::new(0, range);
        for block in text[from..].chunks(block_bytes) {
            if part.is_done() {
                break;
            }
            part.push(&mut with, block);
            if block.len() % 2 == 0 {
                // A piece may leave at any time.
                stitch.push(query, &part.take(), &mut tell);
            }
        }
        part.finish(&mut with);
        stitch.push(query, &part.take(), &mut tell);
    }
    (told, stitch)
}

/// The same, line by line.
fn oracle(query: &GrepQuery, text: &[u8]) -> (Vec<Told>, u64) {
    let pattern = &query.patterns[0];
    let regex = RegexBuilder::new(pattern)
        .case_insensitive(query.ignore_case)
        .build()
        .unwrap();
    let mut offset = 0;
    let mut lines: Vec<Told> = Vec::new();
    for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
        let content = line.strip_suffix(b"\n").unwrap_or(line);
        let selected = regex.is_match(content) != query.invert;
        lines.push((number, offset, line.to_vec(), selected));
        offset += line.len() as u64;
    }
    let max = query.count_max.unwrap_or(u64::MAX) as usize;
    let all: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].3).collect();
    let selected = &all[..all.len().min(max)];
    let near = |at: usize| {
        selected.iter().any(|of| {
            (at <= *of && of - at <= query.before) || (at >= *of && at - of <= query.after)
        })
    };
    // Behind the last one that is wanted, those that match are context like others.
    let told = (0..lines.len()).filter(|at| near(*at)).map(|at| {
        let (number, offset, bytes, _) = lines[at].clone();
        (number, offset, bytes, selected.contains(&at))
    });
    (told.collect(), selected.len() as u64)
}

fn check(query: &GrepQuery, text: &[u8], part_bytes: usize, block_bytes: usize) {
    let (told, stitch) = search(query, text, part_bytes, block_bytes);
    let (expected, selected) = oracle(query, text);
    assert_eq!(
        told, expected,
        "{query:?} in parts of {part_bytes}, blocks of {block_bytes}"
    );
    assert_eq!(stitch.selected(), selected);
    for want in [WantedOfLines::Count, WantedOfLines::Any] {
        let counts = GrepQuery {
            want,
            ..query.clone()
        };
        let (none, stitch) = search(&counts, text, part_bytes, block_bytes);
        assert!(none.is_empty());
        match want {
            WantedOfLines::Any => assert_eq!(stitch.selected() > 0, selected > 0),
            _ => assert_eq!(stitch.selected(), selected),
        }
    }
}

/// In front of texts, so that what is tried lies beyond the first bytes, which are searched at once.
fn behind_the_head(text: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < HEAD_BYTES {
        all.extend_from_slice(b"a line of no interest\n");
    }
    all.extend_from_slice(text);
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn parts_and_blocks_do_not_change_what_is_found(
        text in "[ab\n]{0,200}",
        pattern in prop::sample::select(&["", "a", "ba", "abb", "^a", "b$", "^$", "a+b", "(a|bb)", "^(ab)*$", "A"][..]),
        (part, block) in (1usize..60, 1usize..40),
        (before, after) in (0usize..4, 0usize..4),
        (invert, ignore_case) in any::<(bool, bool)>(),
        count_max in prop::option::of(1u64..4),
        far in any::<bool>(),
    ) {
        let mut query = query(pattern);
        (query.before, query.after) = (before, after);
        (query.invert, query.ignore_case) = (invert, ignore_case);
        query.count_max = count_max;
        let text = text.into_bytes();
        match far {
            false => check(&query, &text, part, block),
            true => {
                query.patterns = vec![format!("^[ab]*({pattern})[ab]*$")];
                query.invert = false;
                check(&query, &behind_the_head(&text), part, block);
            }
        }
    }
}

#[test]
fn parts_of_a_byte_behind_the_head() {
    let text = behind_the_head(b"x1\n\nmiddle\nx22\nx\nx333");
    let mut query = query("x[0-9]");
    (query.before, query.after) = (1, 2);
    let expected = oracle(&query, &text).0;
    assert_eq!(expected.len(), 7);
    for block in [1, 2, 3, 7] {
        check(&query, &text, 1, block);
    }
}

#[test]
fn a_nul_byte_at_the_beginning_makes_all_of_a_file_binary() {
    let text = b"match\n\0\nmatch\n";
    for block in 1..text.len() {
        let (told, stitch) = search(&query("match"), text, 100, block);
        assert_eq!((told.len(), stitch.is_binary_match()), (0, true), "{block}");
        let (_, stitch) = search(&query("absent"), text, 100, block);
        assert!(!stitch.is_binary_match());
    }
    let as_text = GrepQuery {
        text: true,
        ..query("match")
    };
    assert_eq!(search(&as_text, text, 100, 3).0.len(), 2);
}

#[test]
fn lines_before_a_late_nul_byte_are_told() {
    let text = behind_the_head(b"match 1\nmatch 2\nmatch\0 3\nmatch 4\n");
    for block in [1, 5, 1_000, 1 << 20] {
        let (told, stitch) = search(&query("match"), &text, 50_000, block);
        let told: Vec<_> = told.iter().map(|line| &line.2[..]).collect();
        assert_eq!(told, [b"match 1\n", b"match 2\n"], "{block}");
        assert!(stitch.is_binary_match());
    }
}

#[test]
fn no_patterns_select_nothing_and_an_empty_one_selects_all() {
    let mut none = query("a");
    none.patterns.clear();
    assert_eq!(search(&none, b"a\nb\n", 10, 10).0.len(), 0);
    none.invert = true;
    assert_eq!(search(&none, b"a\nb\n", 10, 10).0.len(), 2);
    assert_eq!(search(&query(""), b"a\nb\n", 10, 10).0.len(), 2);
}

#[test]
fn a_pattern_that_is_none_is_refused() {
    let error = LineSearch::new(&query("a(b")).err().unwrap();
    assert!(error.to_string().contains("unclosed group"), "{error}");
}

#[test]
fn what_was_found_tells_its_memory() {
    let found = PartFound {
        text: Vec::with_capacity(100),
        ..PartFound::default()
    };
    assert!(found.held_bytes() >= 100 && found.is_empty());
}
