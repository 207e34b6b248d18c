//! What of a line is its key.
//!
//! The keys are those of `sort -k` and `-t`, without positions inside of a field, and ranges of
//! bytes. The command parses them; [`super::layout`] asks for them record by record.

use super::decimal::is_blank;
use super::format::FormatError;
use serde::{Deserialize, Serialize};

/// The part of a line by which it is sorted. A line without that part has an empty key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LineKey {
    /// The whole line.
    #[default]
    WholeLine,
    /// From one field to another, or to the end of the line, with what separates them.
    Fields {
        /// The first field; 1 is the first of the line.
        first: u32,
        /// The last field, or the end of the line.
        last: Option<u32>,
        /// What lies between fields. Without one a field begins with the blanks before it.
        separator: Option<u8>,
    },
    /// A range of bytes, cut at the end of the line.
    Bytes {
        /// Where it begins.
        offset: u32,
        /// How long it is.
        length: u32,
    },
}

impl LineKey {
    /// The key that `--key` and `--separator` name: `F`, `F,G` or `OFFSET:LENGTH`, and one
    /// character; the whole line without `--key`.
    ///
    /// # Errors
    /// When they name none.
    pub fn parse(key: Option<&str>, separator: Option<&str>) -> Result<LineKey, FormatError> {
        let separator = separator.map(parse_separator).transpose()?;
        let key = match key {
            Some(key) if key.contains(':') => {
                let (offset, length) = super::format::parse_range(key)?;
                LineKey::Bytes { offset, length }
            }
            Some(key) => {
                let (first, last) = parse_fields(key)?;
                return Ok(LineKey::Fields {
                    first,
                    last,
                    separator,
                });
            }
            None => LineKey::WholeLine,
        };
        match separator {
            Some(_) => Err(FormatError::SeparatorWithoutFields),
            None => Ok(key),
        }
    }

    /// The key of a line, which may end with its newline.
    #[inline]
    pub fn of(self, line: &[u8]) -> &[u8] {
        let line = match line {
            [line @ .., b'\n'] => line,
            line => line,
        };
        match self {
            LineKey::WholeLine => line,
            LineKey::Bytes { offset, length } => {
                let line = line.get(offset as usize..).unwrap_or_default();
                &line[..line.len().min(length as usize)]
            }
            LineKey::Fields {
                first,
                last,
                separator,
            } => fields(line, first, last, separator),
        }
    }
}

fn fields(line: &[u8], first: u32, last: Option<u32>, separator: Option<u8>) -> &[u8] {
    let begin = match separator {
        Some(separator) => (1..first).fold(0, |at, _| {
            let end = find(line, at, separator);
            line.len().min(end + 1)
        }),
        None => (1..first).fold(0, |at, _| field_end(line, at)),
    };
    let Some(last) = last else {
        return &line[begin..];
    };
    // What is left to skip: a range that ends before it begins is empty.
    let count = (last + 1).saturating_sub(first);
    let end = match separator {
        _ if count == 0 => begin,
        Some(separator) => (1..count).fold(find(line, begin, separator), |end, _| {
            find(line, line.len().min(end + 1), separator)
        }),
        None => (0..count).fold(begin, |at, _| field_end(line, at)),
    };
    &line[begin..end]
}

fn find(line: &[u8], from: usize, byte: u8) -> usize {
    memchr::memchr(byte, &line[from..]).map_or(line.len(), |at| from + at)
}

/// Where the field ends that begins here, with its blanks.
fn field_end(line: &[u8], from: usize) -> usize {
    let rest = &line[from..];
    let blanks = rest.iter().take_while(|&&byte| is_blank(byte)).count();
    let rest = &rest[blanks..];
    from + blanks + rest.iter().take_while(|&&byte| !is_blank(byte)).count()
}

fn parse_fields(text: &str) -> Result<(u32, Option<u32>), FormatError> {
    let number = |part: &str| part.parse().ok().filter(|&field: &u32| field > 0);
    let parsed = match text.split_once(',') {
        None => number(text).map(|first| (first, None)),
        Some((first, last)) => number(first).zip(number(last).map(Some)),
    };
    parsed.ok_or_else(|| FormatError::Fields { text: text.into() })
}

fn parse_separator(text: &str) -> Result<u8, FormatError> {
    match text.as_bytes() {
        [byte] if *byte != b'\n' => Ok(*byte),
        b"\\t" => Ok(b'\t'),
        _ => Err(FormatError::Separator { text: text.into() }),
    }
}
