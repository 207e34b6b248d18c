//! Text whose words are as frequent as those of a language: by Zipf's law.
//!
//! Generators of text files and benches that count words write it. A line is a function of the seed
//! and its number alone, so parts of a file can be made anywhere.

use super::generate::{GENERATOR, mix};
use super::zipf::ZipfTable;
use brambling_program::Rng;
use std::sync::Arc;

/// Words that there are.
const WORDS: u32 = 1 << 16;

/// Words of a line, at least.
const WORDS_MIN: u64 = 6;

/// So many different numbers of words a line may have.
const WORDS_SPREAD: u64 = 12;

/// Bytes of a line, at most, and room for the last word's padding.
const LINE_BYTES: usize = 8 * (WORDS_MIN + WORDS_SPREAD) as usize;

/// Makes lines of text. Clones share their tables.
#[derive(Clone, Debug)]
pub struct TextMaker {
    seed: u64,
    tables: Arc<TextTables>,
}

#[derive(Debug)]
struct TextTables {
    ranks: ZipfTable,
    words: Vec<PaddedWord>,
}

/// A word, the blank behind it, and zeros: copied as a whole, the zeros overwritten by what
/// follows.
type PaddedWord = [u8; 8];

impl TextMaker {
    /// The text of a seed.
    pub fn new(seed: u64) -> TextMaker {
        let tables = TextTables {
            ranks: ZipfTable::new(WORDS),
            words: (0..WORDS).map(word).collect(),
        };
        TextMaker {
            seed,
            tables: Arc::new(tables),
        }
    }

    /// Appends a line, its newline included: 6 to 17 words.
    pub fn line(&self, number: u64, out: &mut Vec<u8>) {
        let TextTables { ranks, words } = &*self.tables;
        let mut rng = Rng::new(self.seed, GENERATOR, 1, number);
        let count = WORDS_MIN + rng.below(WORDS_SPREAD);
        let base = rng.next_u64();
        let mut line = [0; LINE_BYTES];
        let mut length = 0;
        for place in 0..count {
            // One block of random numbers for a line: the words' are derived from it.
            let word = words[ranks.rank(mix(base.wrapping_add(place))) as usize];
            line[length..length + 8].copy_from_slice(&word);
            length += 8 - (u64::from_le_bytes(word).leading_zeros() / 8) as usize;
        }
        // Over the blank behind the last word.
        line[length - 1] = b'\n';
        out.extend_from_slice(&line[..length]);
    }

    /// The word of a rank; 0 is the most frequent one. None from 65,536 on.
    pub fn word(&self, rank: u32) -> Option<&[u8]> {
        let word = self.tables.words.get(rank as usize)?;
        word.split(|&byte| byte == b' ').next()
    }
}

/// A word of its own for each rank: syllables that count in base 100, the frequent words being
/// short.
fn word(rank: u32) -> PaddedWord {
    const CONSONANTS: &[u8; 20] = b"tnshrdlcmwfgypbvkjxz";
    const VOWELS: &[u8; 5] = b"eaoiu";
    let mut word = [0; 8];
    let mut left = Some(rank as usize);
    let mut at = 0;
    while let Some(number) = left {
        let syllable = number % 100;
        word[at] = CONSONANTS[syllable / 5];
        word[at + 1] = VOWELS[syllable % 5];
        at += 2;
        // Each number of syllables begins anew, so that no word is another with zeros in front.
        left = (number / 100).checked_sub(1);
    }
    word[at] = b' ';
    word
}
