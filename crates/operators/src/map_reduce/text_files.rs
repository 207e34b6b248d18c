//! Owns which files a job reads, and how they are split: into ranges of equal bytes, whatever lines lie in them.
//!
//! Drivers name the files; each partition of the map stage finds its own ranges. How many splits there are follows the
//! bytes, never the machine.

use brambling_program::payload;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A partition of the map stage reads about so many bytes, where there are not too many of these.
pub const SPLIT_BYTES: u64 = 32 << 20;
/// The most splits of a job, whose tables are all in memory at once.
const SPLITS_MAX: u64 = 256;

/// A file that is read, as the driver found it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextFile {
    /// Its name, of whatever bytes.
    name: Vec<u8>,
    /// How many bytes it has.
    pub bytes: u64,
    /// When it was changed, in nanoseconds since 1970.
    pub changed_ns: i128,
}

impl TextFile {
    /// A file by what the driver found.
    pub fn new(path: &Path, bytes: u64, changed_ns: i128) -> TextFile {
        let name = path.as_os_str().as_bytes().to_vec();
        TextFile {
            name,
            bytes,
            changed_ns,
        }
    }

    /// Its name.
    pub fn path(&self) -> PathBuf {
        path_of(&self.name)
    }
}

pub(super) fn path_of(name: &[u8]) -> PathBuf {
    OsStr::from_bytes(name).into()
}

/// A range of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextRange {
    /// The file.
    pub file: TextFile,
    /// What begins from here on is the range's.
    pub begin: u64,
    /// What begins from here on is not.
    pub end: u64,
}
payload!(TextRange);

/// Files, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextFiles(pub Vec<TextFile>);
payload!(TextFiles);

impl TextFiles {
    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|file| file.bytes).sum()
    }

    /// Into how many splits they are cut, each of about `split_bytes` or, where these would be too many, more.
    pub fn splits(&self, split_bytes: u64) -> u32 {
        let splits = self.bytes().div_ceil(split_bytes.max(1));
        splits.clamp(1, SPLITS_MAX) as u32
    }

    /// The ranges of a split.
    pub fn split(&self, index: u32, count: u32) -> Vec<TextRange> {
        let at = |index: u32| {
            let place = u128::from(self.bytes()) * u128::from(index) / u128::from(count);
            place as u64
        };
        let (begin, end) = (at(index), at(index + 1));
        let mut before = 0;
        let mut ranges = Vec::new();
        for file in &self.0 {
            let own = begin.max(before)..end.min(before + file.bytes);
            if !own.is_empty() {
                ranges.push(TextRange {
                    file: file.clone(),
                    begin: own.start - before,
                    end: own.end - before,
                });
            }
            before += file.bytes;
        }
        ranges
    }
}

/// Where the map stage's partitions begin: the source of its dataset.
pub(super) fn ranges_of(files: &TextFiles, index: u32, count: u32) -> Vec<TextRange> {
    files.split(index, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Each byte of each file lies in one range.
        #[test]
        fn splits_tile_the_files(sizes in prop::collection::vec(0..50u64, 0..6), count in 1..12u32) {
            let files = sizes.iter().enumerate().map(|(at, bytes)| TextFile::new(Path::new(&at.to_string()), *bytes, 0));
            let files = TextFiles(files.collect());
            let ranges: Vec<TextRange> = (0..count).flat_map(|index| files.split(index, count)).collect();
            let mut expected = 0;
            for file in &files.0 {
                let own = ranges.iter().filter(|range| range.file == *file);
                let mut at = 0;
                for range in own {
                    prop_assert_eq!(range.begin, at);
                    prop_assert!(range.end > at);
                    at = range.end;
                }
                prop_assert_eq!(at, file.bytes);
                expected += at;
            }
            prop_assert_eq!(files.bytes(), expected);
        }
    }

    #[test]
    fn splits_follow_the_bytes() {
        let of = |bytes| TextFiles(vec![TextFile::new(Path::new("a"), bytes, 0)]).splits(100);
        assert_eq!(
            [of(0), of(1), of(100), of(101), of(1 << 40)],
            [1, 1, 1, 2, 256]
        );
    }
}
