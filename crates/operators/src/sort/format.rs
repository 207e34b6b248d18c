//! How records lie in bytes, and what of them is the key.
//!
//! A [`RecordFormat`] is a parameter of every kernel of a sort, so it travels with programs. The
//! command makes it from its flags, and errors name them. Whoever reads bytes in pieces cuts them
//! into whole records with a [`RecordJoiner`].

use super::layout::{RecordLayout, with_layout};
use super::line_key::LineKey;
use brambling_program::{DecodeError, Payload, payload_serde};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::cmp::Ordering;

/// Where records end, and what of them is the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordFormat {
    /// Records of one width. Keys are compared as bytes.
    Fixed {
        /// Bytes of a record.
        width: u32,
        /// Where its key begins.
        key_offset: u32,
        /// Bytes of its key.
        key_length: u32,
    },
    /// Lines of text. Each record ends with its newline; a last line that has none gets one from
    /// whoever reads it.
    Lines {
        /// What of the line is the key.
        key: LineKey,
        /// How keys are compared.
        order: LineOrder,
    },
}

impl Payload for RecordFormat {
    const FIXED: bool = true;
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("sort::RecordFormat")
    }
    fn heap_bytes(&self) -> usize {
        0
    }
    fn encode(&self, out: &mut Vec<u8>) {
        payload_serde::encode(self, out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let format: RecordFormat = payload_serde::decode(input)?;
        let checked = format.check();
        checked.map_err(|error| DecodeError::of::<Self>(error.to_string()))?;
        Ok(format)
    }
}

/// How keys of lines are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LineOrder {
    /// By bytes, as in the C locale.
    #[default]
    C,
    /// By the number at the key's begin, as `sort -n`.
    Numeric,
}

/// Flags that say no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Records without bytes.
    #[error("--width 0: a record has at least one byte")]
    NoWidth,
    /// A key that is no range of bytes.
    #[error("--key {text}: write OFFSET:LENGTH in bytes, such as 0:10")]
    Range {
        /// What was given.
        text: String,
    },
    /// A key that is no field.
    #[error(
        "--key {text}: write a field such as 2, two such as 2,3, or OFFSET:LENGTH in bytes; the first field is 1"
    )]
    Fields {
        /// What was given.
        text: String,
    },
    /// A key that ends behind the record.
    #[error(
        "--key {offset}:{length} ends after the record's {width} bytes; set --width to the bytes of a record"
    )]
    KeyOutside {
        /// Where the key begins.
        offset: u32,
        /// Bytes of the key.
        length: u32,
        /// Bytes of a record.
        width: u32,
    },
    /// A separator that is not one character.
    #[error(
        "--separator {text:?}: write one character of ASCII, or \\t; without it, blanks separate fields"
    )]
    Separator {
        /// What was given.
        text: String,
    },
    /// A separator that nothing uses.
    #[error(
        "--separator divides a line into fields; name those of the key with --key F or --key F,G"
    )]
    SeparatorWithoutFields,
}

impl Default for RecordFormat {
    /// The records of gensort: 100 bytes, of which the first 10 are the key.
    fn default() -> RecordFormat {
        RecordFormat::Fixed {
            width: 100,
            key_offset: 0,
            key_length: 10,
        }
    }
}

impl RecordFormat {
    /// Records of so many bytes, whose key is `OFFSET:LENGTH`, as `--width` and `--key` say it.
    ///
    /// # Errors
    /// When the key is no range of bytes within the record.
    pub fn fixed(width: u32, key: &str) -> Result<RecordFormat, FormatError> {
        let (key_offset, key_length) = parse_range(key)?;
        let format = RecordFormat::Fixed {
            width,
            key_offset,
            key_length,
        };
        format.check().map(|()| format)
    }

    /// Whether records of this format can be: kernels rely on it.
    fn check(&self) -> Result<(), FormatError> {
        let RecordFormat::Fixed {
            width,
            key_offset: offset,
            key_length: length,
        } = *self
        else {
            return Ok(());
        };
        if width == 0 {
            return Err(FormatError::NoWidth);
        }
        let is_inside = u64::from(offset) + u64::from(length) <= u64::from(width);
        if is_inside && length > 0 {
            return Ok(());
        }
        Err(FormatError::KeyOutside {
            offset,
            length,
            width,
        })
    }

    /// Lines with the key that `--key` and `--separator` name ([`LineKey::parse`]).
    ///
    /// # Errors
    /// When they name none.
    pub fn lines(
        key: Option<&str>,
        separator: Option<&str>,
        order: LineOrder,
    ) -> Result<RecordFormat, FormatError> {
        let key = LineKey::parse(key, separator)?;
        Ok(RecordFormat::Lines { key, order })
    }

    /// Bytes of each record, where all have as many.
    pub fn width(&self) -> Option<usize> {
        match *self {
            RecordFormat::Fixed { width, .. } => Some(width as usize),
            RecordFormat::Lines { .. } => None,
        }
    }

    /// The key of a record.
    pub fn key<'r>(&self, record: &'r [u8]) -> &'r [u8] {
        with_layout!(*self, layout => layout.key(record))
    }

    /// A number whose order is that of the keys; keys that differ may have the same.
    pub fn prefix(&self, key: &[u8]) -> u64 {
        with_layout!(*self, layout => layout.prefix_of_key(key))
    }

    /// The order of two keys.
    pub fn compare_keys(&self, a: &[u8], b: &[u8]) -> Ordering {
        with_layout!(*self, layout => layout.compare_keys(a, b))
    }

    /// The order of two records: that of their keys.
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        with_layout!(*self, layout => layout.compare(a, b))
    }

    /// How many of the bytes are whole records.
    pub fn whole_bytes(&self, bytes: &[u8]) -> usize {
        match *self {
            RecordFormat::Fixed { width, .. } => bytes.len() - bytes.len() % width as usize,
            RecordFormat::Lines { .. } => memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1),
        }
    }

    /// Where the record ends that begins the bytes; none if it is not whole.
    pub fn record_bytes(&self, bytes: &[u8]) -> Option<usize> {
        with_layout!(*self, layout => layout.end(bytes, 0))
    }

    /// The records that lie in a row; a last one that is not whole is left out.
    pub fn records<'b>(&self, bytes: &'b [u8]) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        let format = *self;
        let mut rest = bytes;
        std::iter::from_fn(move || {
            let (record, behind) = rest.split_at(format.record_bytes(rest)?);
            rest = behind;
            Some(record)
        })
    }
}

/// `OFFSET:LENGTH`, with a length of at least 1.
pub(super) fn parse_range(text: &str) -> Result<(u32, u32), FormatError> {
    let parsed = text.split_once(':').and_then(|(offset, length)| {
        let length = length.parse().ok().filter(|&length: &u32| length > 0)?;
        Some((offset.parse().ok()?, length))
    });
    parsed.ok_or_else(|| FormatError::Range { text: text.into() })
}

/// Cuts bytes that come in pieces into whole records.
#[derive(Clone, Debug, Default)]
pub struct RecordJoiner {
    /// The begin of a record whose end has not come.
    cut: Vec<u8>,
    /// The record that was joined last.
    joined: Vec<u8>,
}

impl RecordJoiner {
    /// Takes the next piece. Gives a record that began in an earlier one and ends here, or nothing,
    /// and then the whole records that lie in this piece alone.
    pub fn feed<'a>(&'a mut self, format: &RecordFormat, piece: &'a [u8]) -> [&'a [u8]; 2] {
        self.joined.clear();
        let mut piece = piece;
        if !self.cut.is_empty() {
            let missing = with_layout!(*format, layout => layout.missing(&self.cut, piece));
            let (end, rest) = piece.split_at(missing.unwrap_or(piece.len()));
            self.cut.extend_from_slice(end);
            piece = rest;
            if missing.is_some() {
                std::mem::swap(&mut self.cut, &mut self.joined);
            }
        }
        let (whole, begun) = piece.split_at(format.whole_bytes(piece));
        self.cut.extend_from_slice(begun);
        [&self.joined, whole]
    }

    /// The begin of a record whose end has not come: what a file holds behind its last whole one.
    pub fn rest(&self) -> &[u8] {
        &self.cut
    }

    /// Takes the rest away. A last line without a newline is a record once it has one.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.cut)
    }
}
