//! Owns what every task of a sort knows: the files and their splits, the format, the number of
//! parts, and where all of it goes. Whoever drives a sort makes it; it travels with the program as
//! the kernels' parameter. It reads and writes nothing.

use crate::sort::RecordFormat;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A split is at least so long: less would cost more in tasks and in chunks that are not full than
/// an even end of all threads wins.
const SPLIT_BYTES_MIN: u64 = 16 << 20;

/// And at most: the records of later splits wait in memory until those of an earlier one have
/// all come, so that equal keys keep the order of the input.
const SPLIT_BYTES_MAX: u64 = 64 << 20;

/// A part of the output should be so long: it is sorted within a core's caches, or nearly so.
const PART_BYTES: u64 = 16 << 20;

/// No more parts than this, so that chunks are not short: a part of a large sort is longer.
const PARTS_MAX: u64 = 256;

/// Splits and parts for each thread where the input's length is not known: a gigabyte a thread is cut
/// about as it would be otherwise.
const UNKNOWN_SPLITS: u32 = 16;
const UNKNOWN_PARTS: u32 = 32;

/// A file that is sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortInput {
    /// Its path, as workers see it.
    pub path: PathBuf,
    /// How many bytes it has.
    pub bytes: u64,
}

/// Where the sorted records go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SortOutput {
    /// One file, which this process has open.
    File,
    /// A directory with a file for each part.
    Parts(PathBuf),
}

impl Default for SortOutput {
    fn default() -> SortOutput {
        SortOutput::Parts(PathBuf::new())
    }
}

/// What every task of a sort knows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SortPlan {
    /// Names the job: no other one of these processes has the number.
    pub job: u64,
    /// What records are, and how they compare.
    pub format: RecordFormat,
    /// The input, in order.
    pub inputs: Vec<SortInput>,
    /// The input is a file of each worker's own, under the first input's path.
    pub is_local: bool,
    /// Where it goes.
    pub output: SortOutput,
    /// A directory for runs.
    pub tmp: PathBuf,
    /// Splits of the input.
    pub splits: u32,
    /// Parts of the output.
    pub parts: u32,
    /// How many read at once in a process, and how many write.
    pub at_once: u32,
    /// The most memory for records in a process, whatever its budget has.
    pub record_bytes_max: Option<u64>,
    /// What the sources send is written to disk as well.
    pub backup: bool,
    /// Copies of the output on other workers.
    pub copies: u32,
    /// How many workers there are: copies go to the next ones.
    pub workers: u32,
    /// Records are summed where they are read and where they are written.
    pub checksums: bool,
    /// Records with equal keys come in any order.
    pub is_unstable: bool,
}
brambling_program::payload!(SortPlan);

/// A piece of the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortSplit {
    /// Which file.
    pub file: u32,
    /// Its first byte.
    pub begin: u64,
    /// The byte after its last one. Of lines: those that begin before it belong to the split.
    pub end: u64,
}
brambling_program::payload!(SortSplit);

impl SortPlan {
    /// Bytes of the whole input.
    pub fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|input| input.bytes).sum()
    }

    /// As [`SortPlan::cut_for`], where nobody knows yet how long the workers' own files are.
    pub fn cut_for_unknown(&mut self, threads: u32) {
        let workers = self.workers.max(1);
        self.splits = (UNKNOWN_SPLITS * threads.max(1)).next_multiple_of(workers);
        self.parts = (UNKNOWN_PARTS * threads.max(1))
            .min(PARTS_MAX as u32)
            .next_multiple_of(workers);
    }

    /// How many splits, and how many parts, suit so many bytes on so many workers with so many
    /// threads together. The result of a sort does not depend on either.
    pub fn cut_for(&mut self, threads: u32) {
        let bytes = self.input_bytes();
        let threads = u64::from(threads.max(1));
        let fair = bytes.div_ceil(16 * threads);
        let split = fair.clamp(SPLIT_BYTES_MIN, SPLIT_BYTES_MAX);
        self.splits = bytes.div_ceil(split).clamp(1, u64::from(u32::MAX)) as u32;
        let least = (4 * threads).next_multiple_of(u64::from(self.workers.max(1)));
        let parts = bytes.div_ceil(PART_BYTES).min(PARTS_MAX).max(least);
        self.parts = parts.next_multiple_of(u64::from(self.workers.max(1))) as u32;
    }

    /// Cuts the input into as many splits as there are threads together, one for each, instead of
    /// many that are taken by whoever is free. Called after [`SortPlan::cut_for`] or
    /// [`SortPlan::cut_for_unknown`].
    pub fn split_statically(&mut self, threads: u32) {
        self.splits = threads.max(1).next_multiple_of(self.workers.max(1));
    }

    /// What splits begin and end at multiples of.
    pub fn unit(&self) -> u64 {
        self.format.width().unwrap_or(1) as u64
    }

    /// The split of a number: files follow one another, and a split may end early where a file
    /// does.
    pub fn split(&self, number: u32) -> Vec<SortSplit> {
        split_of(&self.inputs, self.unit(), number, self.splits)
    }

    /// What a job's files are called while they are not whole.
    pub(super) fn key(&self) -> String {
        format!("{:016x}", self.job)
    }

    /// How many whole records these are.
    pub(super) fn count(&self, records: &[u8]) -> u64 {
        match self.format.width() {
            Some(width) => (records.len() / width) as u64,
            None => memchr::memchr_iter(b'\n', records).count() as u64,
        }
    }
}

/// The ranges of a split: the inputs are taken as one file, cut into equal pieces at whole units.
pub(super) fn split_of(inputs: &[SortInput], unit: u64, number: u32, of: u32) -> Vec<SortSplit> {
    let units: u64 = inputs.iter().map(|input| input.bytes.div_ceil(unit)).sum();
    let cut = |number: u32| (u128::from(units) * u128::from(number) / u128::from(of)) as u64;
    let (begin, end) = (cut(number), cut(number + 1));
    let mut pieces = Vec::new();
    let mut before = 0;
    for (file, input) in (0..).zip(inputs) {
        let own = input.bytes.div_ceil(unit);
        let (first, last) = (begin.max(before), end.min(before + own));
        if first < last {
            pieces.push(SortSplit {
                file,
                begin: (first - before) * unit,
                end: ((last - before) * unit).min(input.bytes),
            });
        }
        before += own;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(bytes: &[u64]) -> Vec<SortInput> {
        let input = |bytes: &u64| SortInput {
            path: PathBuf::new(),
            bytes: *bytes,
        };
        bytes.iter().map(input).collect()
    }

    #[test]
    fn splits_tile_the_input_in_order() {
        for (bytes, unit) in [
            (vec![1_000, 0, 300, 2_500], 100),
            (vec![7, 1, 0, 13], 1),
            (vec![], 1),
        ] {
            let inputs = inputs(&bytes);
            for of in [1, 2, 3, 7, 50] {
                let mut at = (0, 0);
                for piece in (0..of).flat_map(|number| split_of(&inputs, unit, number, of)) {
                    while at.1 == bytes[at.0] {
                        at = (at.0 + 1, 0);
                    }
                    assert_eq!((piece.file as usize, piece.begin), at);
                    assert!(piece.begin < piece.end && piece.begin % unit == 0);
                    at.1 = piece.end;
                }
                while at.0 < bytes.len() && at.1 == bytes[at.0] {
                    at = (at.0 + 1, 0);
                }
                assert_eq!(at.0, bytes.len(), "{of} splits of {bytes:?}");
            }
        }
    }
}
