//! Records to be sorted, made from a seed.
//!
//! A record is a function of the seed and its number alone, so each part of a file can be made
//! anywhere. The layout is gensort's; the values are not its. The command that generates files and
//! the benches call it.

use super::format::RecordFormat;
use super::zipf::ZipfTable;
use brambling_program::{Rng, StageId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The stream of random numbers that generators draw from.
pub(super) const GENERATOR: StageId = StageId(u32::MAX);

/// Keys that there are where some are frequent.
const ZIPF_KEYS: u32 = 1 << 16;

/// How keys are distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Skew {
    /// Every key is as likely as any other.
    #[default]
    Uniform,
    /// 65,536 keys, of which the r-th is as frequent as 1 / r.
    Zipf,
    /// One key.
    Equal,
    /// Ascending.
    Sorted,
    /// Descending.
    Reversed,
}

const SKEWS: [(Skew, &str); 5] = [
    (Skew::Uniform, "uniform"),
    (Skew::Zipf, "zipf"),
    (Skew::Equal, "equal"),
    (Skew::Sorted, "sorted"),
    (Skew::Reversed, "reversed"),
];

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = SKEWS.iter().find(|(skew, _)| skew == self).map(|it| it.1);
        f.write_str(name.expect("every skew has a name"))
    }
}

impl FromStr for Skew {
    type Err = RecordMakerError;

    fn from_str(text: &str) -> Result<Skew, RecordMakerError> {
        let found = SKEWS.iter().find(|(_, name)| *name == text);
        found
            .map(|it| it.0)
            .ok_or_else(|| RecordMakerError::Skew { text: text.into() })
    }
}

/// Records that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordMakerError {
    /// No skew has this name.
    #[error("--skew {text}: there are uniform, zipf, equal, sorted and reversed")]
    Skew {
        /// What was given.
        text: String,
    },
    /// Lines were asked for.
    #[error("records of one width are generated from their format; text is made by TextMaker")]
    Lines,
}

/// Makes records of one width. Clones share their table.
#[derive(Clone, Debug)]
pub struct RecordMaker {
    seed: u64,
    records: u64,
    skew: Skew,
    width: usize,
    key_offset: usize,
    key_length: usize,
    zipf: Option<Arc<ZipfTable>>,
}

impl RecordMaker {
    /// So many records of a format.
    ///
    /// # Errors
    /// When the format is one of lines.
    pub fn new(
        format: &RecordFormat,
        records: u64,
        seed: u64,
        skew: Skew,
    ) -> Result<RecordMaker, RecordMakerError> {
        let RecordFormat::Fixed {
            width,
            key_offset,
            key_length,
        } = *format
        else {
            return Err(RecordMakerError::Lines);
        };
        Ok(RecordMaker {
            seed,
            records,
            skew,
            width: width as usize,
            key_offset: key_offset as usize,
            key_length: key_length as usize,
            zipf: (skew == Skew::Zipf).then(|| Arc::new(ZipfTable::new(ZIPF_KEYS))),
        })
    }

    /// Bytes of all records.
    pub fn bytes(&self) -> u64 {
        self.records * self.width as u64
    }

    /// Writes the records from a number on: as many as `out` has room for.
    ///
    /// # Panics
    /// When `out` is not a whole number of records, or there are not so many.
    pub fn fill(&self, first: u64, out: &mut [u8]) {
        assert!(
            out.len().is_multiple_of(self.width),
            "whole records are made"
        );
        let count = (out.len() / self.width) as u64;
        assert!(
            first + count <= self.records,
            "there are not so many records"
        );
        for (number, record) in (first..).zip(out.chunks_exact_mut(self.width)) {
            self.record(number, record);
        }
    }

    #[inline(always)]
    fn record(&self, number: u64, out: &mut [u8]) {
        let mut rng = Rng::new(self.seed, GENERATOR, 0, number);
        let (first, second) = (rng.next_u64(), rng.next_u64());
        let mut body = [0; BODY_BYTES];
        fill_body(number, second, &mut body);
        let key_end = self.key_offset + self.key_length;
        if self.key_offset == 0 && self.width - key_end == BODY_BYTES {
            out[key_end..].copy_from_slice(&body);
        } else {
            // Whatever is not the key, from its front on; a wide record repeats the body.
            let mut body = body.iter().cycle();
            let (before, after) = out.split_at_mut(self.key_offset);
            let others = before.iter_mut().chain(&mut after[self.key_length..]);
            others.for_each(|byte| *byte = *body.next().expect("it goes round"));
        }
        let key = &mut out[self.key_offset..key_end];
        let word = self.leading_word(number, first);
        if let Some((head, tail)) = key.split_first_chunk_mut() {
            *head = word.to_be_bytes();
            // The rest of the key is random where its begin is, and follows from it where keys come
            // again.
            let mut rest = match self.skew {
                Skew::Zipf | Skew::Equal => mix(word),
                _ => second,
            };
            for piece in tail.chunks_mut(8) {
                rest = mix(rest);
                piece.copy_from_slice(&rest.to_be_bytes()[..piece.len()]);
            }
        } else {
            key.copy_from_slice(&word.to_be_bytes()[..key.len()]);
        }
    }

    /// The first eight bytes of a key.
    #[inline(always)]
    fn leading_word(&self, number: u64, random: u64) -> u64 {
        // The numbers, spread over all words: strictly ascending.
        let spread =
            |number: u64| ((u128::from(number) << 64) / u128::from(self.records.max(1))) as u64;
        match (self.skew, &self.zipf) {
            (Skew::Zipf, Some(table)) => mix(u64::from(table.rank(random)) + 1),
            (Skew::Uniform | Skew::Zipf, _) => random,
            (Skew::Equal, _) => mix(0),
            (Skew::Sorted, _) => spread(number),
            (Skew::Reversed, _) => spread(self.records - 1 - number),
        }
    }
}

/// What of a record of gensort is not the key.
const BODY_BYTES: usize = 90;

/// Two bytes, the number in 32 hexadecimal digits, four bytes, 48 digits in groups of four that are
/// alike, and four bytes.
#[inline(always)]
fn fill_body(number: u64, random: u64, body: &mut [u8; BODY_BYTES]) {
    body[..2].copy_from_slice(&[0x00, 0x11]);
    body[2..18].fill(b'0');
    body[18..26].copy_from_slice(&hex_digits((number >> 32) as u32));
    body[26..34].copy_from_slice(&hex_digits(number as u32));
    body[34..38].copy_from_slice(&[0x88, 0x99, 0xaa, 0xbb]);
    for (group, bytes) in body[38..86].chunks_exact_mut(4).enumerate() {
        let digit = HEX[(random >> (4 * group)) as usize & 15];
        bytes.copy_from_slice(&[digit; 4]);
    }
    body[86..].copy_from_slice(&[0xcc, 0xdd, 0xee, 0xff]);
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

#[inline(always)]
fn hex_digits(number: u32) -> [u8; 8] {
    std::array::from_fn(|at| HEX[(number >> (28 - 4 * at)) as usize & 15])
}

/// Turns numbers into others, each into one of its own (splitmix64's finisher).
#[inline(always)]
pub(super) fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
