//! Text whose words are as frequent as those of a language: by Zipf's law.
//!
//! Generators of text files and benches that count words write it. A line is a function of the seed
//! and its number alone, so parts of a file can be made anywhere.

use super::generate::GENERATOR;
use super::zipf::ZipfTable;
use brambling_program::Rng;
use std::sync::Arc;

/// Words that there are.
const WORDS: u32 = 1 << 16;

/// Words of a line, at least.
const WORDS_MIN: u64 = 6;

/// So many different numbers of words a line may have.
const WORDS_SPREAD: u64 = 12;

/// Makes lines of text. Clones share their tables.
#[derive(Clone, Debug)]
pub struct TextMaker {
    seed: u64,
    tables: Arc<TextTables>,
}

#[derive(Debug)]
struct TextTables {
    ranks: ZipfTable,
    /// All words, each behind the other, a blank at the end of each.
    letters: Vec<u8>,
    /// Where each word begins, and where the last one ends.
    begins: Vec<u32>,
}

impl TextMaker {
    /// The text of a seed.
    pub fn new(seed: u64) -> TextMaker {
        let mut letters = Vec::new();
        let mut begins = vec![0];
        for rank in 0..WORDS {
            push_word(rank, &mut letters);
            letters.push(b' ');
            begins.push(letters.len() as u32);
        }
        let tables = TextTables {
            ranks: ZipfTable::new(WORDS),
            letters,
            begins,
        };
        TextMaker {
            seed,
            tables: Arc::new(tables),
        }
    }

    /// Appends a line, its newline included: 6 to 17 words.
    pub fn line(&self, number: u64, out: &mut Vec<u8>) {
        let TextTables {
            ranks,
            letters,
            begins,
        } = &*self.tables;
        let mut rng = Rng::new(self.seed, GENERATOR, 1, number);
        let words = WORDS_MIN + rng.below(WORDS_SPREAD);
        for _ in 0..words {
            let rank = ranks.rank(rng.next_u64()) as usize;
            out.extend_from_slice(&letters[begins[rank] as usize..begins[rank + 1] as usize]);
        }
        // The blank behind the last word.
        if let Some(last) = out.last_mut() {
            *last = b'\n';
        }
    }

    /// The word of a rank; 0 is the most frequent one. None from 65,536 on.
    pub fn word(&self, rank: u32) -> Option<&[u8]> {
        let begins = &self.tables.begins;
        let begin = *begins.get(rank as usize)? as usize;
        let end = *begins.get(rank as usize + 1)? as usize;
        Some(&self.tables.letters[begin..end - 1])
    }
}

/// A word of its own for each rank: syllables that count in base 100, the frequent words being short.
fn push_word(rank: u32, out: &mut Vec<u8>) {
    const CONSONANTS: &[u8; 20] = b"tnshrdlcmwfgypbvkjxz";
    const VOWELS: &[u8; 5] = b"eaoiu";
    let mut left = rank;
    loop {
        let syllable = left as usize % 100;
        out.push(CONSONANTS[syllable / 5]);
        out.push(VOWELS[syllable % 5]);
        // Every number of syllables begins anew, so that no word is another with zeros in front.
        match (left / 100).checked_sub(1) {
            Some(rest) => left = rest,
            None => break,
        }
    }
}
