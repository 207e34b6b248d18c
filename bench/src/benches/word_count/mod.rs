//! Claim: the words of a gigabyte of Zipf's text are counted at a rate that is a known share of a bare loop that reads the same file
//! and adds to a table. Not claimed: a text that the disk has to be asked for; it has been written just before, so it is in memory.
//!
//! The bare loop compares no words and counts into a fixed table, so words that share a place in it are counted together: what it
//! leaves out is what counting costs.

mod text;

use crate::BenchError;
use crate::report::{Figures, Line, Report, limit_lines, limits, ratio};
use crate::session::{Counts, How, Session};
use brambling::map_reduce::{MapReduce, MapReduced, map_reduce};
use brambling_machine::{Figure, crew};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;
use text::ZipfText;

const TEXT_BYTES: u64 = 1 << 30;
const SMOKE_BYTES: u64 = 1 << 20;
/// Of a read.
const BLOCK_BYTES: usize = 1 << 20;
/// Counters of the bare loop: 4 MB a thread.
const PLACES: usize = 1 << 20;

/// What the bench found.
#[derive(Clone, Debug, Serialize)]
pub struct WordCountFigures {
    /// Of the text.
    pub text_bytes: u64,
    /// Of the text.
    pub words: u64,
    /// From the call to having the counts.
    pub seconds: Figure,
    /// Of the text, in that time.
    pub bytes_per_s: Figure,
    /// The limit: the file is read.
    pub read_seconds: Figure,
    /// The limit: the file is read, and a counter of a table is raised for each word.
    pub look_up_seconds: Figure,
    /// Ours ÷ that, within each round.
    pub over_look_ups: Figure,
}

pub(crate) fn run(session: &mut Session<'_>) -> Result<Report, BenchError> {
    let bytes = if session.options.smoke {
        SMOKE_BYTES
    } else {
        TEXT_BYTES
    };
    let text = &ZipfText::write(bytes).map_err(|error| session.system(error))?;
    check(session, text)?;
    let places = &session.places.clone();
    let rounds = session
        .rounds()
        .limit("read", "reading", move |session| {
            let seconds = bare(text, places, |block, sum| *sum += u64::from(block[0]));
            seconds.map_err(|error| session.system(error))
        })
        .limit("count", "bare look-ups", move |session| {
            let seconds = bare_count(text, places);
            seconds.map_err(|error| session.system(error))
        })
        .ours("engine", move |session| {
            let start = Instant::now();
            let found = count(session, text)?;
            let seconds = start.elapsed().as_secs_f64();
            check_total(session, text, &found)?;
            Ok(seconds)
        });
    let measured = session.measure(rounds)?;
    let ours = measured.figure("engine");
    let [read, look_ups] = ["reading", "bare look-ups"].map(|name| measured.figure(name));
    let limits = limits(&measured, ["reading", "bare look-ups"], 1.0, "s");
    let mut lines = vec![
        Line::new("words of Zipf's text counted", ours, "s").note(ratio(
            ours,
            look_ups,
            "the bare look-ups",
        )),
        Line::new("the same", ours.rate(bytes as f64).scaled(1e-9), "GB/s"),
    ];
    lines.extend(limit_lines(&limits, |_| None));
    let figures = Figures::WordCount(WordCountFigures {
        text_bytes: text.bytes,
        words: text.words,
        seconds: ours,
        bytes_per_s: ours.rate(text.bytes as f64),
        read_seconds: read,
        look_up_seconds: look_ups,
        over_look_ups: crate::report::over(&measured, "engine", "bare look-ups"),
    });
    Ok(session.report(Counts::of([&measured]), figures, limits, lines))
}

fn count(session: &mut Session<'_>, text: &ZipfText) -> Result<MapReduced, BenchError> {
    session.reduce(&How::default(), |options, caller| {
        map_reduce(&[&text.path], &MapReduce::default(), options, caller)
    })
}

/// The counts are those of a map of the standard library, where the text is small; else their sum is the number of words.
fn check(session: &mut Session<'_>, text: &ZipfText) -> Result<(), BenchError> {
    let found = count(session, text)?;
    check_total(session, text, &found)?;
    if !session.options.smoke {
        return Ok(());
    }
    let bytes = std::fs::read(&text.path).map_err(|error| session.system(error))?;
    let mut naive: BTreeMap<&[u8], u64> = BTreeMap::new();
    let words = bytes.split(u8::is_ascii_whitespace);
    for word in words.filter(|word| !word.is_empty()) {
        *naive.entry(word).or_default() += 1;
    }
    let naive: Vec<_> = naive.into_iter().collect();
    session.check(found.sorted() == naive, || {
        let (ours, theirs) = (found.keys, naive.len());
        format!("{ours} words were counted that differ from the {theirs} of a naive count")
    })
}

fn check_total(
    session: &Session<'_>,
    text: &ZipfText,
    found: &MapReduced,
) -> Result<(), BenchError> {
    let pairs = found.partitions.iter().flat_map(|pairs| pairs.iter());
    let total: u64 = pairs.map(|(_, count)| count).sum();
    session.check(total == text.words, || {
        format!(
            "{total} words were counted, and {} were written",
            text.words
        )
    })
}

/// Reads the text with a thread at each place, and calls `look` with what was read and a sum of the thread's.
fn bare(
    text: &ZipfText,
    places: &[usize],
    look: impl Fn(&[u8], &mut u64) + Sync,
) -> io::Result<f64> {
    let file = &File::open(&text.path)?;
    let start = Instant::now();
    let read = |member: usize| -> io::Result<u64> {
        let at = |part: usize| text.bytes * part as u64 / places.len() as u64;
        let (mut from, end) = (at(member), at(member + 1));
        let mut block = vec![0; BLOCK_BYTES];
        let mut sum = 0;
        while from < end {
            let bytes = block.len().min((end - from) as usize);
            file.read_exact_at(&mut block[..bytes], from)?;
            look(&block[..bytes], &mut sum);
            from += bytes as u64;
        }
        Ok(sum)
    };
    let sums = crew::run(places, |member| read(member.index()));
    for sum in sums {
        // Looked at, so that nothing is left out.
        std::hint::black_box(sum?);
    }
    Ok(start.elapsed().as_secs_f64())
}

/// As [`bare`]: adds each word to the place of its hash in a table.
fn bare_count(text: &ZipfText, places: &[usize]) -> io::Result<f64> {
    bare(text, places, |block, sum| {
        thread_local! {
            static TABLE: std::cell::RefCell<Vec<u32>> = std::cell::RefCell::new(vec![0; PLACES]);
        }
        TABLE.with_borrow_mut(|table| {
            let mut hash = 0u64;
            for byte in block {
                if byte.is_ascii_whitespace() {
                    table[(hash >> 44) as usize] += 1;
                    hash = 0;
                } else {
                    hash = (hash ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                }
            }
            *sum += u64::from(table[0]);
        });
    })
}
