//! Text in which the n-th frequent word is as frequent as 1 ÷ n (Zipf), written to a file that goes with its owner.

use crate::uniform::{below, word};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Different words: as many as a gigabyte of prose has.
const WORDS: usize = 500_000;
/// Of a line.
const WORDS_A_LINE: u64 = 12;
/// Chances are cut into so many equal parts.
const PARTS: usize = 1 << 18;

/// A file of text.
pub(crate) struct ZipfText {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) words: u64,
}

impl ZipfText {
    /// Writes about so many bytes to a file of its own.
    pub(crate) fn write(bytes: u64) -> io::Result<ZipfText> {
        let name = format!("brambling-word-count-{}.txt", std::process::id());
        let mut text = ZipfText {
            path: std::env::temp_dir().join(name),
            bytes: 0,
            words: 0,
        };
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&text.path)?);
        let (all, firsts) = (vocabulary(), firsts());
        while text.bytes < bytes {
            let rank = rank(&firsts, text.words);
            let next = &all[rank];
            text.words += 1;
            let end = if text.words.is_multiple_of(WORDS_A_LINE) {
                b"\n"
            } else {
                b" "
            };
            file.write_all(next)?;
            file.write_all(end)?;
            text.bytes += next.len() as u64 + 1;
        }
        file.flush()?;
        Ok(text)
    }
}

impl Drop for ZipfText {
    fn drop(&mut self) {
        // In the system's own directory, which it empties by itself.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Words of letters, the frequent ones short: their numbers in base 26, and some letters more.
fn vocabulary() -> Vec<Vec<u8>> {
    let of = |number: usize| {
        let mut letters = Vec::new();
        let mut rest = number + 1;
        while rest > 0 {
            letters.push(b'a' + (rest % 26) as u8);
            rest /= 26;
        }
        let more = word(number as u64) % 6;
        letters.extend((0..more).map(|place| b'a' + (place * 7 % 26) as u8));
        letters
    };
    (0..WORDS).map(of).collect()
}

/// For each part of the chances the first word in it.
fn firsts() -> Vec<u32> {
    let total: f64 = (1..=WORDS).map(|rank| 1.0 / rank as f64).sum();
    let mut firsts = Vec::with_capacity(PARTS + 1);
    let mut sum = 0.0;
    for rank in 0..WORDS {
        while firsts.len() as f64 * total <= sum * PARTS as f64 && firsts.len() < PARTS {
            firsts.push(rank as u32);
        }
        sum += 1.0 / (rank + 1) as f64;
    }
    firsts.resize(PARTS + 1, WORDS as u32 - 1);
    firsts
}

/// The word at a place of the text. Within a part all words are as likely.
fn rank(firsts: &[u32], place: u64) -> usize {
    let part = below(2 * place, PARTS as u64) as usize;
    let (first, last) = (firsts[part], firsts[part + 1]);
    let among = u64::from(last.saturating_sub(first)) + 1;
    first as usize + below(2 * place + 1, among) as usize
}
