//! The formats as types, so that hot loops are compiled for each of them.
//!
//! [`with_layout`] chooses once per block. Every kernel of this folder runs inside of it; nobody
//! outside sees a layout.

use super::decimal;
use super::format::LineOrder;
use super::line_key::LineKey;
use std::cmp::Ordering;

/// How records lie in bytes: a [`super::RecordFormat`] whose kind is known when compiled.
pub(super) trait RecordLayout: Copy {
    /// Whether keys whose words are equal up to this one are equal: a word is eight bytes, filled
    /// up with zeros, and the first one, 0, is the prefix.
    fn word_decides(self, word: usize) -> bool;

    /// Whether the words behind the prefix go on with the order.
    fn has_words(self) -> bool;

    /// Whether keys with the same prefix are equal.
    #[inline(always)]
    fn prefix_decides(self) -> bool {
        self.word_decides(0)
    }

    /// Where the record ends that begins at `at`; none when it is not whole.
    fn end(self, bytes: &[u8], at: usize) -> Option<usize>;

    /// Where the next record begins at or after `at`, or the end of the bytes, which begin with a
    /// record.
    fn next_begin(self, bytes: &[u8], at: usize) -> usize;

    /// How many bytes of a piece end the record that has begun before it; none when it does not end
    /// there.
    fn missing(self, begun: &[u8], piece: &[u8]) -> Option<usize>;

    /// The key of a record.
    fn key(self, record: &[u8]) -> &[u8];

    /// See [`super::RecordFormat::prefix`].
    fn prefix_of_key(self, key: &[u8]) -> u64;

    /// The prefix of a record's key. What lies behind the record may be given too.
    fn prefix(self, record: &[u8]) -> u64;

    /// The `word`-th eight bytes of the key of the record at `at`, as [`RecordLayout::prefix`] is
    /// the first. Its key has all the bytes before them.
    #[inline(always)]
    fn word(self, bytes: &[u8], at: usize, word: usize) -> u64 {
        let end = self.end(bytes, at).expect("a whole record");
        let key = self.key(&bytes[at..end]);
        bytes_prefix(&key[8 * word..])
    }

    /// Where in a record a word of its key lies, as far as that is known without a look.
    fn word_offset(self, word: usize) -> usize;

    /// The order of two keys.
    fn compare_keys(self, a: &[u8], b: &[u8]) -> Ordering;

    /// The order of two records' keys.
    #[inline(always)]
    fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        self.compare_keys(self.key(a), self.key(b))
    }

    /// Appends a record to others.
    #[inline(always)]
    fn append(self, record: &[u8], to: &mut Vec<u8>) {
        to.extend_from_slice(record);
    }

    /// Copies a record to where there is just room for it.
    #[inline(always)]
    fn copy(self, record: &[u8], to: &mut [u8]) {
        to.copy_from_slice(record);
    }
}

/// Records of one width: `WIDTH`, or what `width` says where that is 0.
#[derive(Clone, Copy)]
pub(super) struct FixedLayout<const WIDTH: usize> {
    width: usize,
    key_offset: usize,
    key_length: usize,
    /// The bytes of a word that belong to the key.
    mask: u64,
    /// Whether eight bytes of the record lie behind the key's begin.
    has_word: bool,
}

/// Lines.
#[derive(Clone, Copy)]
pub(super) struct LineLayout<const NUMERIC: bool> {
    pub(super) key: LineKey,
}

impl<const WIDTH: usize> FixedLayout<WIDTH> {
    pub(super) fn new(width: u32, key_offset: u32, key_length: u32) -> Self {
        let [width, key_offset, key_length] =
            [width, key_offset, key_length].map(|bytes| bytes as usize);
        assert!(WIDTH == 0 || WIDTH == width);
        FixedLayout {
            width,
            key_offset,
            key_length,
            mask: u64::MAX
                .checked_shl(64 - 8 * key_length.min(8) as u32)
                .unwrap_or(0),
            has_word: key_offset + 8 <= width,
        }
    }

    #[inline(always)]
    pub(super) fn width(self) -> usize {
        if WIDTH == 0 { self.width } else { WIDTH }
    }
}

impl<const WIDTH: usize> RecordLayout for FixedLayout<WIDTH> {
    #[inline(always)]
    fn word_decides(self, word: usize) -> bool {
        self.key_length <= 8 * (word + 1)
    }

    #[inline(always)]
    fn has_words(self) -> bool {
        true
    }

    #[inline(always)]
    fn end(self, bytes: &[u8], at: usize) -> Option<usize> {
        let end = at + self.width();
        (end <= bytes.len()).then_some(end)
    }

    #[inline(always)]
    fn next_begin(self, bytes: &[u8], at: usize) -> usize {
        bytes.len().min(at.next_multiple_of(self.width()))
    }

    #[inline(always)]
    fn missing(self, begun: &[u8], piece: &[u8]) -> Option<usize> {
        let missing = self.width() - begun.len();
        (missing <= piece.len()).then_some(missing)
    }

    #[inline(always)]
    fn key(self, record: &[u8]) -> &[u8] {
        &record[self.key_offset..self.key_offset + self.key_length]
    }

    #[inline(always)]
    fn prefix_of_key(self, key: &[u8]) -> u64 {
        bytes_prefix(key)
    }

    #[inline(always)]
    fn prefix(self, record: &[u8]) -> u64 {
        if self.has_word {
            let word = record[self.key_offset..].first_chunk();
            u64::from_be_bytes(*word.expect("a word of the record")) & self.mask
        } else {
            bytes_prefix(self.key(record))
        }
    }

    #[inline(always)]
    fn word_offset(self, word: usize) -> usize {
        self.key_offset + 8 * word
    }

    #[inline(always)]
    fn compare_keys(self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }

    #[inline(always)]
    fn append(self, record: &[u8], to: &mut Vec<u8>) {
        match record.first_chunk::<WIDTH>() {
            // A copy of known length is a few moves.
            Some(record) if WIDTH > 0 => to.extend_from_slice(record),
            _ => to.extend_from_slice(record),
        }
    }

    #[inline(always)]
    fn copy(self, record: &[u8], to: &mut [u8]) {
        match (record.first_chunk::<WIDTH>(), to.first_chunk_mut::<WIDTH>()) {
            (Some(record), Some(to)) if WIDTH > 0 => *to = *record,
            _ => to.copy_from_slice(record),
        }
    }
}

impl<const NUMERIC: bool> RecordLayout for LineLayout<NUMERIC> {
    #[inline(always)]
    fn word_decides(self, _word: usize) -> bool {
        // A key may end where another goes on with zeros.
        false
    }

    #[inline(always)]
    fn has_words(self) -> bool {
        !NUMERIC
    }

    #[inline(always)]
    fn end(self, bytes: &[u8], at: usize) -> Option<usize> {
        memchr::memchr(b'\n', &bytes[at..]).map(|length| at + length + 1)
    }

    #[inline(always)]
    fn next_begin(self, bytes: &[u8], at: usize) -> usize {
        match at.checked_sub(1) {
            Some(before) => self.end(bytes, before).unwrap_or(bytes.len()),
            None => 0,
        }
    }

    #[inline(always)]
    fn word(self, bytes: &[u8], at: usize, word: usize) -> u64 {
        if let LineKey::WholeLine = self.key
            && let Some(begun) = bytes.get(at + 8 * word..)
            && let Some(eight) = begun.first_chunk::<8>()
        {
            // What lies behind the newline is another record's.
            let length = eight.iter().position(|&byte| byte == b'\n');
            return bytes_prefix(&eight[..length.unwrap_or(8)]);
        }
        let end = self.end(bytes, at).expect("a whole record");
        bytes_prefix(&self.key(&bytes[at..end])[8 * word..])
    }

    #[inline(always)]
    fn missing(self, _begun: &[u8], piece: &[u8]) -> Option<usize> {
        memchr::memchr(b'\n', piece).map(|at| at + 1)
    }

    #[inline(always)]
    fn key(self, record: &[u8]) -> &[u8] {
        self.key.of(record)
    }

    #[inline(always)]
    fn prefix_of_key(self, key: &[u8]) -> u64 {
        if NUMERIC {
            decimal::prefix(key)
        } else {
            bytes_prefix(key)
        }
    }

    #[inline(always)]
    fn prefix(self, record: &[u8]) -> u64 {
        self.prefix_of_key(self.key(record))
    }

    #[inline(always)]
    fn word_offset(self, word: usize) -> usize {
        match self.key {
            LineKey::WholeLine => 8 * word,
            LineKey::Bytes { offset, .. } => offset as usize + 8 * word,
            LineKey::Fields { .. } => 0,
        }
    }

    #[inline(always)]
    fn compare_keys(self, a: &[u8], b: &[u8]) -> Ordering {
        if NUMERIC {
            decimal::compare(a, b)
        } else {
            a.cmp(b)
        }
    }
}

/// The layout of numeric or other lines, for [`with_layout`].
pub(super) const fn is_numeric(order: LineOrder) -> bool {
    matches!(order, LineOrder::Numeric)
}

/// The first eight bytes, the first one the highest, filled up with zeros.
#[inline(always)]
fn bytes_prefix(key: &[u8]) -> u64 {
    if let Some(word) = key.first_chunk() {
        return u64::from_be_bytes(*word);
    }
    let mut word = [0; 8];
    word[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(word)
}

/// Evaluates an expression with the layout of a format.
macro_rules! with_layout {
    ($format:expr, $layout:ident => $body:expr) => {{
        use $crate::sort::format::RecordFormat;
        use $crate::sort::layout::{FixedLayout, LineLayout, is_numeric};
        match $format {
            RecordFormat::Fixed {
                width: 100,
                key_offset,
                key_length,
            } => {
                let $layout = FixedLayout::<100>::new(100, key_offset, key_length);
                $body
            }
            RecordFormat::Fixed {
                width,
                key_offset,
                key_length,
            } => {
                let $layout = FixedLayout::<0>::new(width, key_offset, key_length);
                $body
            }
            RecordFormat::Lines { key, order } if is_numeric(order) => {
                let $layout = LineLayout::<true> { key };
                $body
            }
            RecordFormat::Lines { key, .. } => {
                let $layout = LineLayout::<false> { key };
                $body
            }
        }
    }};
}
pub(super) use with_layout;
