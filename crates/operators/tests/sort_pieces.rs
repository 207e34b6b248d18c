//! Formats, cuts between parts, made records, and checks of outputs.

use brambling_operators::sort::{
    FormatError, KeySamples, LineKey, LineOrder, OrderCheck, RecordFormat, RecordJoiner,
    RecordMaker, RecordSummary, Skew, Splitters, TextMaker,
};
use brambling_program::Payload;
use proptest::prelude::*;
use std::collections::HashSet;

fn made(format: RecordFormat, records: u64, seed: u64, skew: Skew) -> Vec<u8> {
    let maker = RecordMaker::new(&format, records, seed, skew).unwrap();
    let mut bytes = vec![0; maker.bytes() as usize];
    maker.fill(0, &mut bytes);
    bytes
}

fn samples<'k>(keys: impl IntoIterator<Item = &'k [u8]>) -> KeySamples {
    let mut samples = KeySamples::default();
    keys.into_iter().for_each(|key| samples.push(key));
    samples
}

/// How many of the samples go to each part.
fn counts(splitters: &Splitters, samples: &KeySamples) -> Vec<usize> {
    let format = splitters.format();
    let mut counts = vec![0; splitters.parts() as usize];
    for key in samples.keys() {
        let part = splitters.find(format.prefix(key), key);
        // By hand: the splitters that are not above the key.
        let below = splitters
            .keys()
            .filter(|it| format.compare_keys(it, key).is_le());
        assert_eq!(part as usize, below.count());
        counts[part as usize] += 1;
    }
    counts
}

#[test]
fn flags_that_say_no_format_are_named() {
    let check = |found: Result<RecordFormat, FormatError>, expected: &str| {
        let message = found.unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    };
    let lines = |key, separator| RecordFormat::lines(key, separator, LineOrder::C);
    check(RecordFormat::fixed(0, "0:1"), "--width 0:");
    for text in ["", "3", "0:0", "a:1", "0:-1", "1:2:3", "0:99999999999"] {
        check(
            RecordFormat::fixed(100, text),
            &format!("--key {text}: write OFFSET"),
        );
    }
    check(
        RecordFormat::fixed(100, "95:10"),
        "--key 95:10 ends after the record's 100 bytes",
    );
    check(
        RecordFormat::fixed(100, "4294967295:4294967295"),
        "--key 4294967295:",
    );
    for text in ["", "0", "1,0", "x", "1,2,3", "2-3"] {
        check(
            lines(Some(text), None),
            &format!("--key {text}: write a field"),
        );
    }
    for text in ["", "ab", "\n", "é"] {
        check(lines(Some("1"), Some(text)), "--separator ");
    }
    check(lines(None, Some(",")), "--separator divides");
    check(lines(Some("0:3"), Some(",")), "--separator divides");
    let tabs = lines(Some("2,3"), Some("\\t")).unwrap();
    let key = LineKey::Fields {
        first: 2,
        last: Some(3),
        separator: Some(b'\t'),
    };
    assert_eq!(
        tabs,
        RecordFormat::Lines {
            key,
            order: LineOrder::C
        }
    );
    assert_eq!(
        RecordFormat::fixed(100, "0:10"),
        Ok(RecordFormat::default())
    );
}

#[test]
fn formats_and_cuts_travel() {
    let format = RecordFormat::lines(Some("2"), Some(","), LineOrder::Numeric).unwrap();
    let keys: Vec<String> = (0..100).map(|it| format!("{}", it % 7)).collect();
    let samples = samples(keys.iter().map(|key| key.as_bytes()));
    let splitters = Splitters::of(format, &samples, 5);
    let mut bytes = Vec::new();
    splitters.encode(&mut bytes);
    samples.encode(&mut bytes);
    let mut input = &bytes[..];
    assert_eq!(Splitters::decode(&mut input), Ok(splitters));
    assert_eq!(KeySamples::decode(&mut input), Ok(samples));
    assert!(input.is_empty());

    let mut bytes = Vec::new();
    let outside = RecordFormat::Fixed {
        width: 10,
        key_offset: 5,
        key_length: 6,
    };
    outside.encode(&mut bytes);
    let error = RecordFormat::decode(&mut &bytes[..]).unwrap_err();
    assert!(error.reason.contains("--key 5:6"), "{error}");
}

#[test]
fn parts_are_fair_for_any_number_of_them() {
    let format = RecordFormat::default();
    let bytes = made(format, 20_000, 3, Skew::Uniform);
    let samples = samples(format.records(&bytes).map(|record| format.key(record)));
    for parts in [1, 2, 3, 5, 7, 13, 64, 100] {
        let splitters = Splitters::of(format, &samples, parts);
        let counts = counts(&splitters, &samples);
        let fair = 20_000 / parts as usize;
        assert!(splitters.heavy().is_empty());
        for count in counts {
            assert!(
                (fair - 1..=fair + 2).contains(&count),
                "{count} of {fair}, {parts} parts"
            );
        }
    }
}

#[test]
fn a_heavy_key_has_a_part_and_the_others_share_the_rest() {
    let format = RecordFormat::fixed(8, "0:8").unwrap();
    let key = |it: u64| it.to_be_bytes();
    for heavy in [0, 499, 750, 1_000] {
        let light = (0..1_000).map(key);
        let keys: Vec<_> = light.chain((0..3_000).map(|_| key(heavy))).collect();
        let samples = samples(keys.iter().map(|key| &key[..]));
        let splitters = Splitters::of(format, &samples, 6);
        let counts = counts(&splitters, &samples);
        let told = splitters.heavy();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].key, key(heavy));
        assert!((told[0].share - 0.75).abs() < 0.001);
        for (part, &count) in counts.iter().enumerate() {
            if part as u32 == told[0].part {
                assert!((3_000..3_110).contains(&count), "{counts:?}");
            } else {
                // A fair share of 1,000 over five parts, and what the heavy key's place shifts.
                assert!((140..=260).contains(&count), "heavy {heavy}: {counts:?}");
            }
        }
    }
}

#[test]
fn a_key_is_heavy_beside_what_heavier_ones_leave() {
    let format = RecordFormat::fixed(8, "0:8").unwrap();
    let light = 0..150u64;
    // 15 in 100 are less than a part of four, and more than a third of what 70 leave.
    let heavy = [(200, 700), (300, 150)];
    let heavy = heavy
        .iter()
        .flat_map(|&(key, count)| (0..count).map(move |_| key));
    let keys: Vec<_> = light.chain(heavy).map(u64::to_be_bytes).collect();
    let samples = samples(keys.iter().map(|key| &key[..]));
    let splitters = Splitters::of(format, &samples, 4);
    assert_eq!(splitters.heavy().len(), 2);
    assert_eq!(counts(&splitters, &samples), [75, 75, 700, 150]);
}

#[test]
fn keys_that_count_as_equal_give_the_same_cuts_in_any_order() {
    let format = RecordFormat::lines(None, None, LineOrder::Numeric).unwrap();
    let keys = ["0", "1", "1.0", "01", "2", "2.00", "3"].map(str::as_bytes);
    let forward = Splitters::of(format, &samples(keys), 4);
    let backward = Splitters::of(format, &samples(keys.iter().rev().copied()), 4);
    assert_eq!(forward, backward);
}

#[test]
fn few_keys_leave_parts_empty() {
    let format = RecordFormat::fixed(4, "0:4").unwrap();
    let one = samples((0..50).map(|_| &b"same"[..]));
    let splitters = Splitters::of(format, &one, 4);
    let found = counts(&splitters, &one);
    assert_eq!(found.iter().filter(|&&count| count > 0).count(), 1);
    assert_eq!(splitters.heavy().len(), 1);
    let none = Splitters::of(format, &KeySamples::default(), 4);
    assert_eq!(none.find(format.prefix(b"some"), b"some"), 0);
}

proptest! {
    /// No part has more than twice a fair one or twice the heaviest key, and the order of samples
    /// does not matter.
    #[test]
    fn any_samples_are_cut_fairly(keys in proptest::collection::vec("[ab]{0,12}", 1..400),
                                  parts in 1u32..9) {
        let format = RecordFormat::lines(None, None, LineOrder::C).unwrap();
        let forward = samples(keys.iter().map(|key| key.as_bytes()));
        let backward = samples(keys.iter().rev().map(|key| key.as_bytes()));
        let splitters = Splitters::of(format, &forward, parts);
        prop_assert_eq!(&splitters, &Splitters::of(format, &backward, parts));
        let count = |key| keys.iter().filter(|it| *it == key).count();
        let heaviest = keys.iter().map(count).max().unwrap();
        let fair = keys.len().div_ceil(parts as usize);
        for count in counts(&splitters, &forward) {
            prop_assert!(count <= fair.max(heaviest) + heaviest.max(fair), "{} of {}", count, fair);
        }
    }

    #[test]
    fn pieces_are_joined_to_whole_records(text in "([a-z]{0,6}\n){0,50}[a-z]{0,3}",
                                          width in 1u32..9,
                                          sizes in proptest::collection::vec(1usize..12, 1..9)) {
        let formats = [
            RecordFormat::lines(None, None, LineOrder::C).unwrap(),
            RecordFormat::fixed(width, "0:1").unwrap(),
        ];
        for format in formats {
            let mut joiner = RecordJoiner::default();
            let (mut found, mut rest) = (Vec::new(), text.as_bytes());
            for &size in sizes.iter().cycle() {
                let (piece, behind) = rest.split_at(size.min(rest.len()));
                for records in joiner.feed(&format, piece) {
                    prop_assert_eq!(format.whole_bytes(records), records.len());
                    found.extend(format.records(records).map(<[u8]>::to_vec));
                }
                rest = behind;
                if rest.is_empty() {
                    break;
                }
            }
            let expected: Vec<&[u8]> = format.records(text.as_bytes()).collect();
            prop_assert_eq!(&found, &expected);
            let whole: usize = expected.iter().map(|record| record.len()).sum();
            prop_assert_eq!(joiner.rest(), &text.as_bytes()[whole..]);
        }
    }
}

#[test]
fn records_depend_on_seed_and_number_alone() {
    let format = RecordFormat::default();
    for skew in [
        Skew::Uniform,
        Skew::Zipf,
        Skew::Equal,
        Skew::Sorted,
        Skew::Reversed,
    ] {
        let maker = RecordMaker::new(&format, 1_000, 9, skew).unwrap();
        let whole = made(format, 1_000, 9, skew);
        let mut part = vec![0; 100 * 100];
        maker.fill(300, &mut part);
        assert!(part == whole[300 * 100..400 * 100], "{skew}");
        assert_ne!(whole, made(format, 1_000, 10, skew));
        assert_eq!(skew.to_string().parse(), Ok(skew));
        let keys: Vec<&[u8]> = whole.chunks(100).map(|record| &record[..10]).collect();
        let distinct = keys.iter().collect::<HashSet<_>>().len();
        match skew {
            Skew::Uniform => assert_eq!(distinct, 1_000),
            Skew::Zipf => assert!((200..700).contains(&distinct), "{distinct}"),
            Skew::Equal => assert_eq!(distinct, 1),
            Skew::Sorted => assert!(keys.is_sorted_by(|a, b| a < b)),
            Skew::Reversed => assert!(keys.is_sorted_by(|a, b| a > b)),
        }
    }
    let record = &made(format, 300, 9, Skew::Uniform)[100 * 255..][..100];
    assert_eq!(&record[10..12], [0x00, 0x11]);
    assert_eq!(&record[12..44], format!("{:032X}", 255).as_bytes());
    assert_eq!(&record[44..48], [0x88, 0x99, 0xaa, 0xbb]);
    assert!(
        record[48..96]
            .chunks(4)
            .all(|group| group == [group[0]; 4] && group[0].is_ascii_hexdigit())
    );
    assert_eq!(&record[96..], [0xcc, 0xdd, 0xee, 0xff]);
}

#[test]
fn text_has_words_of_its_own_that_are_frequent_by_rank() {
    let maker = TextMaker::new(4);
    let words: HashSet<&[u8]> = (0..65_536).map(|rank| maker.word(rank).unwrap()).collect();
    assert_eq!(words.len(), 65_536);
    assert_eq!(maker.word(65_536), None);
    let mut text = Vec::new();
    (0..20_000).for_each(|line| maker.line(line, &mut text));
    let mut again = Vec::new();
    maker.line(19_999, &mut again);
    assert!(text.ends_with(&again));
    let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
    assert_eq!(lines.len(), 20_000);
    let mut all = 0;
    let (mut first, mut tenth) = (0, 0);
    for line in lines {
        let line: Vec<&[u8]> = line[..line.len() - 1].split(|&byte| byte == b' ').collect();
        assert!((6..18).contains(&line.len()));
        all += line.len();
        for word in line {
            assert!(words.contains(word));
            first += usize::from(word == maker.word(0).unwrap());
            tenth += usize::from(word == maker.word(9).unwrap());
        }
    }
    // The sum of 1 / r up to 65,536 is 11.67.
    let expected = all as f64 / 11.67;
    assert!(
        (first as f64 / expected - 1.0).abs() < 0.05,
        "{first} of {expected}"
    );
    assert!(
        (tenth as f64 / expected * 10.0 - 1.0).abs() < 0.1,
        "{tenth} of {expected} / 10"
    );
}

/// The summary of records that come in pieces of so many bytes.
fn summary(format: RecordFormat, bytes: &[u8], size: usize) -> RecordSummary {
    let mut check = OrderCheck::new(format);
    bytes.chunks(size).for_each(|piece| check.feed(piece));
    check.finish().unwrap()
}

#[test]
fn a_checker_sees_what_can_go_wrong() {
    let format = RecordFormat::default();
    let input = summary(format, &made(format, 500, 2, Skew::Uniform), 1_000);
    assert!(input.fault.is_some());
    let mut bytes: Vec<Vec<u8>> = made(format, 500, 2, Skew::Uniform)
        .chunks(100)
        .map(<[u8]>::to_vec)
        .collect();
    bytes.sort();
    let good = summary(format, &bytes.concat(), 333);
    assert_eq!((good.fault.is_none(), good.duplicates), (true, 0));
    assert!(good.has_records_of(&input));

    let mut swapped = bytes.clone();
    swapped.swap(100, 101);
    let found = summary(format, &swapped.concat(), 333);
    let fault = found.fault.clone().unwrap();
    assert_eq!(fault.record, 101);
    assert_eq!(
        (&fault.before[..], &fault.key[..]),
        (&bytes[101][..10], &bytes[100][..10])
    );
    assert!(found.has_records_of(&input));

    let mut lost = bytes.clone();
    lost.remove(77);
    let mut doubled = bytes.clone();
    doubled.insert(77, bytes[77].clone());
    let mut replaced = bytes.clone();
    replaced[77] = bytes[78].clone();
    let mut flipped = bytes.clone();
    flipped[77][99] ^= 1;
    for (wrong, duplicates) in [(lost, 0), (doubled, 1), (replaced, 1), (flipped, 0)] {
        let found = summary(format, &wrong.concat(), 333);
        assert!(found.fault.is_none());
        assert_eq!(found.duplicates, duplicates);
        assert!(!found.has_records_of(&input));
    }

    let mut check = OrderCheck::new(format);
    check.feed(&[0; 250]);
    let message = check.finish().unwrap_err().to_string();
    assert!(
        message.starts_with("the last record has 50 bytes of 100"),
        "{message}"
    );
}

proptest! {
    /// The summary of a whole is that of its segments, wherever it is cut.
    #[test]
    fn segments_are_joined(letters in "[a-d]{0,40}",
                           cuts in proptest::collection::vec(0usize..40, 0..4)) {
        let format = RecordFormat::lines(None, None, LineOrder::C).unwrap();
        let text: String = letters.chars().map(|letter| format!("{letter}\n")).collect();
        let whole = summary(format, text.as_bytes(), 7);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| 2 * cut.min(&letters.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort();
        let segment = |cut: &[usize]| summary(format, &text.as_bytes()[cut[0]..cut[1]], 3);
        let segments = cuts.windows(2).map(segment);
        let joined = segments.fold(RecordSummary::default(), |all, next| all.then(next, &format));
        prop_assert_eq!(&joined, &whole);
        prop_assert_eq!(whole.fault.is_none(), text.lines().is_sorted());
        let mut distinct: Vec<char> = letters.chars().collect();
        distinct.dedup();
        prop_assert_eq!(whole.duplicates as usize, letters.len() - distinct.len());
    }
}

#[test]
fn a_last_line_without_a_newline_counts_as_one_with_it() {
    let format = RecordFormat::lines(None, None, LineOrder::C).unwrap();
    assert_eq!(summary(format, b"a\nb", 1), summary(format, b"a\nb\n", 2));
    assert_eq!(summary(format, b"", 1), RecordSummary::default());
}
