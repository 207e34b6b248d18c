//! How files are cut into the units that are searched apart.
//!
//! This module owns the cutting, and who searches what: unit `u` is searched by lane `u` modulo their number. The driver
//! calls it. It reads nothing.
//!
//! A unit is a part of a large file, or several small files. Its size follows from the sizes of files alone.

use crate::grep::decode::Coding;
use crate::grep::lines::HEAD_BYTES;
use crate::grep::listing::ListedFile;
use crate::grep::reading::BLOCK_BYTES;
use brambling_program::payload;
use serde::{Deserialize, Serialize};

/// A large file is cut into parts of so many bytes: long enough that a part's beginning and end cost nothing, short enough
/// that what waits for its turn to be told is little. With the byte before it, which tells whether a line begins with the
/// part, it is read in whole blocks.
pub const UNIT_BYTES: u64 = 8 * BLOCK_BYTES as u64 - 1;
/// Files of a unit. Opening one costs about as much as searching 100 KB.
const FILES_MAX: usize = 64;

/// A part of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepPart {
    /// Its place in the listing.
    pub file: u32,
    /// Its path.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Where the part begins.
    pub begin: u64,
    /// Where it ends.
    pub end: u64,
    /// How long the file is.
    pub file_bytes: u64,
    /// How it is compressed: then it is whole.
    pub coding: Coding,
}

/// What is searched at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepUnit {
    /// In order. None: the driver reads the file of this unit itself.
    pub parts: Vec<GrepPart>,
    /// The file that the driver reads, or of which it tells what is wrong.
    pub own: Option<u32>,
}

/// The units of a lane, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneUnits {
    /// Each with its number.
    pub units: Vec<(u64, GrepUnit)>,
}
payload!(LaneUnits);

/// Cuts files into units of about so many bytes. With `raw` none counts as compressed.
pub fn cut(files: &[ListedFile], unit_bytes: u64, raw: bool) -> Vec<GrepUnit> {
    let mut units = Vec::new();
    let mut small = GrepUnit::default();
    let mut small_bytes = 0;
    for (file, listed) in (0..).zip(files) {
        let part = |begin, end, coding| GrepPart {
            file,
            path: listed.path.clone(),
            begin,
            end,
            file_bytes: listed.bytes.unwrap_or(0),
            coding,
        };
        let bytes = listed.bytes.filter(|_| listed.trouble.is_none());
        let coding = match raw {
            true => Coding::Plain,
            false => Coding::of_name(&listed.path),
        };
        let is_small = |bytes| bytes < unit_bytes / 2;
        if bytes.is_none_or(|bytes| !is_small(bytes)) && !small.parts.is_empty() {
            units.push(std::mem::take(&mut small));
            small_bytes = 0;
        }
        let Some(bytes) = bytes else {
            units.push(GrepUnit {
                parts: Vec::new(),
                own: Some(file),
            });
            continue;
        };
        if is_small(bytes) {
            small.parts.push(part(0, bytes, coding));
            small_bytes += bytes;
            if small_bytes >= unit_bytes || small.parts.len() >= FILES_MAX {
                units.push(std::mem::take(&mut small));
                small_bytes = 0;
            }
            continue;
        }
        if coding != Coding::Plain {
            let parts = vec![part(0, bytes, coding)];
            units.push(GrepUnit { parts, own: None });
            continue;
        }
        let mut begin = 0;
        while begin < bytes {
            // A rest is part of the last; the first is long enough to say whether the file is binary.
            let end = begin + unit_bytes;
            let end = match bytes.saturating_sub(end) < unit_bytes / 2 {
                true => bytes,
                false => end,
            };
            let parts = vec![part(begin, end, coding)];
            units.push(GrepUnit { parts, own: None });
            begin = end;
        }
    }
    if !small.parts.is_empty() {
        units.push(small);
    }
    units
}

/// The units of one lane of several.
pub fn of_lane(units: &[GrepUnit], lane: u32, lanes: u32) -> LaneUnits {
    let units = (0..).zip(units).skip(lane as usize);
    let units = units.step_by(lanes as usize);
    LaneUnits {
        units: units.map(|(number, unit)| (number, unit.clone())).collect(),
    }
}

const _: () = assert!(UNIT_BYTES >= HEAD_BYTES as u64);
