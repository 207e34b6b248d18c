//! Owns how text is cut into words and lines: across blocks, and across the ranges that files are split into.
//!
//! The map stage calls it with one block after the other. It copies nothing but what straddles two blocks, and
//! never reads a file.

use serde::{Deserialize, Serialize};

/// The most bytes that a word or a line may have as a key.
pub const KEY_BYTES_MAX: usize = 16 << 20;

/// What a map gives for the text of its range: each item as a key, with the value 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MapFunction {
    /// What lies between ASCII whitespace: as `bytes.split()` of Python.
    #[default]
    Words,
    /// Lines without their ends, which are `\n` or `\r\n`.
    Lines,
}

/// A word or line that has more than [`KEY_BYTES_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Cuts the blocks of a range. It is asked for each range anew.
#[derive(Debug)]
pub struct ItemCutter {
    cuts: MapFunction,
    /// What has come of an item that the last block did not end.
    open: Vec<u8>,
    /// The range begins within an item, which is another range's.
    skips: bool,
}

impl ItemCutter {
    /// At the beginning of a file; or, with `inside`, at the byte before a range that begins within one: what begins
    /// before the range is left out.
    pub fn new(cuts: MapFunction, inside: bool) -> ItemCutter {
        ItemCutter {
            cuts,
            open: Vec::new(),
            skips: inside,
        }
    }

    /// Gives each item that ends in a block: the text in which it lies, where it begins and where it ends.
    ///
    /// # Errors
    /// When an item is too long.
    pub fn feed(
        &mut self,
        mut block: &[u8],
        mut each: impl FnMut(&[u8], usize, usize),
    ) -> Result<(), TooLong> {
        if self.skips {
            let Some(end) = self.first_end(block) else {
                return Ok(());
            };
            self.skips = false;
            block = &block[end + 1..];
        } else if !self.open.is_empty() {
            let end = self.first_end(block);
            self.open
                .extend_from_slice(&block[..end.unwrap_or(block.len())]);
            if self.open.len() > KEY_BYTES_MAX {
                return Err(TooLong);
            }
            let Some(end) = end else { return Ok(()) };
            self.give_open(&mut each);
            block = &block[end + 1..];
        }
        let rest = match self.cuts {
            MapFunction::Words => words(block, each),
            MapFunction::Lines => lines(block, each),
        };
        self.open.extend_from_slice(&block[rest..]);
        match self.open.len() > KEY_BYTES_MAX {
            true => Err(TooLong),
            false => Ok(()),
        }
    }

    /// Whether an item of this range has begun and not ended: then the text goes on behind the range.
    pub fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Gives what is open at the end of the file.
    pub fn finish(&mut self, mut each: impl FnMut(&[u8], usize, usize)) {
        if self.is_open() {
            self.give_open(&mut each);
        }
    }

    /// Takes what follows the range up to the end of the item that is open, and gives that. False when it has not ended.
    ///
    /// # Errors
    /// When the item is too long.
    pub fn close(
        &mut self,
        behind: &[u8],
        each: impl FnMut(&[u8], usize, usize),
    ) -> Result<bool, TooLong> {
        let end = self.first_end(behind);
        let own = end.map_or(behind, |end| &behind[..=end]);
        self.feed(own, each)?;
        Ok(end.is_some())
    }

    fn first_end(&self, text: &[u8]) -> Option<usize> {
        match self.cuts {
            MapFunction::Words => text.iter().position(|byte| is_space(*byte)),
            MapFunction::Lines => memchr::memchr(b'\n', text),
        }
    }

    fn give_open(&mut self, each: &mut impl FnMut(&[u8], usize, usize)) {
        let end = match self.cuts {
            MapFunction::Words => self.open.len(),
            MapFunction::Lines => without_return(&self.open, 0, self.open.len()),
        };
        each(&self.open, 0, end);
        self.open.clear();
    }
}

/// ASCII whitespace as Python's bytes have it: tab, line feed, vertical tab, form feed, return, space.
#[inline(always)]
fn is_space(byte: u8) -> bool {
    (byte == b' ') | (byte.wrapping_sub(9) < 5)
}

/// So many bytes are looked at together.
const STRIDE: usize = 64;

/// A bit for each byte that is whitespace. Without branches: it compiles to vector instructions.
#[inline(always)]
fn spaces(text: &[u8; STRIDE]) -> u64 {
    // Multiplied by this, a bit in each of eight bytes is in the highest byte, in order.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let flags = text.map(|byte| u8::from(is_space(byte)));
    let mut mask = 0;
    for (place, eight) in flags.chunks_exact(8).enumerate() {
        let eight = u64::from_le_bytes(eight.try_into().expect("eight bytes"));
        mask |= (eight.wrapping_mul(GATHER) >> 56) << (8 * place);
    }
    mask
}

/// Calls `each` with the text, the beginning and the end of each word that ends in it; gives where the rest begins.
fn words(text: &[u8], mut each: impl FnMut(&[u8], usize, usize)) -> usize {
    let mut begin = 0;
    let (strides, rest) = text.as_chunks::<STRIDE>();
    for (place, stride) in strides.iter().enumerate() {
        let mut mask = spaces(stride);
        while mask != 0 {
            let end = place * STRIDE + mask.trailing_zeros() as usize;
            if end > begin {
                each(text, begin, end);
            }
            begin = end + 1;
            mask &= mask - 1;
        }
    }
    for (end, byte) in (text.len() - rest.len()..).zip(rest) {
        if is_space(*byte) {
            if end > begin {
                each(text, begin, end);
            }
            begin = end + 1;
        }
    }
    begin
}

/// As [`words`], of lines.
fn lines(text: &[u8], mut each: impl FnMut(&[u8], usize, usize)) -> usize {
    let mut begin = 0;
    for end in memchr::memchr_iter(b'\n', text) {
        each(text, begin, without_return(text, begin, end));
        begin = end + 1;
    }
    begin
}

/// Where a line ends that may have a return before its line feed.
fn without_return(text: &[u8], begin: usize, end: usize) -> usize {
    match text[begin..end] {
        [.., b'\r'] => end - 1,
        _ => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOTH: [MapFunction; 2] = [MapFunction::Words, MapFunction::Lines];

    /// By the standard library, which shares no code with what is checked.
    fn expected(cuts: MapFunction, text: &[u8]) -> Vec<Vec<u8>> {
        let owned = |items: &mut dyn Iterator<Item = &[u8]>| items.map(<[u8]>::to_vec).collect();
        match cuts {
            MapFunction::Words => owned(
                &mut text
                    .split(|byte| b" \t\n\r\x0b\x0c".contains(byte))
                    .filter(|word| !word.is_empty()),
            ),
            MapFunction::Lines => owned(
                &mut text
                    .split_inclusive(|byte| *byte == b'\n')
                    .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
                    .map(|line| line.strip_suffix(b"\r").unwrap_or(line)),
            ),
        }
    }

    /// What a file gives that is split into ranges, each of which is read in blocks.
    fn cut(cuts: MapFunction, text: &[u8], ranges: usize, block: usize) -> Vec<Vec<u8>> {
        let mut items = Vec::new();
        for range in 0..ranges {
            let (begin, end) = (
                text.len() * range / ranges,
                text.len() * (range + 1) / ranges,
            );
            if begin == end {
                continue;
            }
            let mut cutter = ItemCutter::new(cuts, begin > 0);
            let mut each =
                |text: &[u8], begin: usize, end: usize| items.push(text[begin..end].to_vec());
            for part in text[begin.saturating_sub(1)..end].chunks(block) {
                cutter.feed(part, &mut each).unwrap();
            }
            for behind in text[end..].chunks(block) {
                if !cutter.is_open() || cutter.close(behind, &mut each).unwrap() {
                    break;
                }
            }
            cutter.finish(&mut each);
        }
        items
    }

    proptest! {
        #[test]
        fn items_are_those_of_the_standard_library(
            text in prop::collection::vec(prop::sample::select(&b"ab \n\r\t\x0b\x0c\0\xff"[..]), 0..400),
            ranges in 1..9usize,
            block in 1..200usize,
        ) {
            for cuts in BOTH {
                prop_assert_eq!(cut(cuts, &text, ranges, block), expected(cuts, &text));
            }
        }
    }

    #[test]
    fn edges_of_files() {
        for text in [
            &b""[..],
            b"\n",
            b"\r\n",
            b"\r",
            b"a",
            b"a\n",
            b"a\r\nb",
            b"\n\na",
            b" a",
            b"a ",
            b"a\0b\n\0\n",
        ] {
            for cuts in BOTH {
                for ranges in 1..5 {
                    for block in 1..4 {
                        let found = cut(cuts, text, ranges, block);
                        assert_eq!(
                            found,
                            expected(cuts, text),
                            "{cuts:?} {text:?} {ranges} {block}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_key_without_end_is_refused() {
        for cuts in BOTH {
            let mut cutter = ItemCutter::new(cuts, false);
            let text = vec![b'x'; KEY_BYTES_MAX];
            assert_eq!(cutter.feed(&text, |_, _, _| ()), Ok(()));
            assert_eq!(cutter.feed(b"x", |_, _, _| ()), Err(TooLong));
        }
    }
}
