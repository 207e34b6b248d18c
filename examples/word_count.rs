//! Counts words: each partition splits its lines, a shuffle brings equal words together, and each partition
//! counts the words it got.
//!
//! ```text
//! cargo run --release --example word_count [FILE]
//! ```
//!
//! A shuffle keeps the order of its source: each partition meets its words in the order of the text.
#![allow(clippy::print_stdout)] // An example talks to its reader.

use brambling::prelude::*;
use std::collections::HashMap;

const TEXT: &str = "\
    This is the farmer sowing his corn\n\
    That kept the cock that crowed in the morn\n\
    That waked the priest all shaven and shorn\n\
    That married the man all tattered and torn\n\
    That kissed the maiden all forlorn\n\
    That milked the cow with the crumpled horn\n\
    That tossed the dog that worried the cat\n\
    That killed the rat that ate the malt\n\
    That lay in the house that Jack built";
/// How often a word occurs, and the place of its first occurrence.
type Count = (u64, u64);

/// The words of a line in lower case.
fn words(line: &str) -> impl Iterator<Item = String> {
    line.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

/// Counts equal words, in order of first occurrence.
fn count(rows: &Rows<String, u64>, counts: &mut Rows<String, Count>) {
    counts.clear();
    let mut places = HashMap::new();
    for (word, place) in rows {
        let at = *places.entry(word).or_insert(counts.len());
        match counts.get_mut(at) {
            Some((_, (times, _))) => *times += 1,
            None => counts.push((word.clone(), (1, *place))),
        }
    }
}

fn word_count(text: &str, partitions: u32) -> Result<Rows<String, Count>, brambling::Error> {
    let lines: Vec<(u64, String)> = (0..).zip(text.lines().map(str::to_owned)).collect();
    let mut p = Program::new("word count");
    let lines = p.load(
        "lines",
        partitions,
        Partitioner::Opaque,
        move |index, of| {
            let edge = |index: u32| lines.len() * index as usize / of as usize;
            lines[edge(index)..edge(index + 1)].to_vec()
        },
    );
    let scattered = p.like::<Rows<String, u64>, _>("words", &lines);
    let together = p.temporary::<Rows<String, u64>>("equal words", partitions);
    let counts = p.dataset::<Rows<String, Count>>("counts", partitions);

    p.compute("split").read(&lines).write(&scattered).run(
        |lines: &Vec<(u64, String)>, rows: &mut Rows<String, u64>| {
            rows.clear();
            for (number, line) in lines {
                // Lines in the high half, words in the low one: places ascend through the text.
                rows.extend(words(line).zip(number << 32..));
            }
        },
    );
    p.shuffle(&scattered, &together);
    p.compute("count").read(&together).write(&counts).run(count);

    let mut counts: Vec<_> = brambling::run(p)?.take_all(&counts).concat();
    counts.sort_by_key(|(_, (_, first))| *first);
    Ok(counts)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = match std::env::args().nth(1) {
        Some(path) if !cfg!(test) => std::fs::read_to_string(path)?,
        _ => TEXT.to_owned(),
    };
    let counts = word_count(&text, 8)?;
    check(&text, &counts);

    println!(
        "{} words, {} of them different",
        words(&text).count(),
        counts.len()
    );
    let mut often = counts;
    // A stable sort: among equally frequent words the first in the text leads.
    often.sort_by_key(|(_, (times, _))| std::cmp::Reverse(*times));
    for (word, (times, _)) in often.iter().take(5) {
        println!("{times:6}  {word}");
    }
    Ok(())
}

/// One loop over the whole text must agree, words in the same order.
fn check(text: &str, counts: &[(String, Count)]) {
    let mut expected: Vec<(String, u64)> = Vec::new();
    let mut places = HashMap::new();
    for word in words(text) {
        let at = *places.entry(word.clone()).or_insert(expected.len());
        match expected.get_mut(at) {
            Some((_, times)) => *times += 1,
            None => expected.push((word, 1)),
        }
    }
    let found = counts.iter().map(|(word, (times, _))| (word, *times));
    assert!(found.eq(expected.iter().map(|(word, times)| (word, *times))));
}

#[test]
fn checks_its_result() {
    main().unwrap();
}
