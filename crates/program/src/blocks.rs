//! Blocked datasets: rows on a global grid of blocks, whatever the number of partitions.

use crate::Payload;
use std::borrow::Cow;
use std::ops::Range;

/// Rows of a block of a table.
pub const BLOCK_ROWS: usize = 4_096;

/// The part of a blocked dataset that one partition holds: whole blocks, consecutive, possibly none.
pub trait Blocked: Payload {
    /// What a kernel gets of one block.
    type Block<'a>;
    /// Global index of the first block held.
    fn first_block(&self) -> u64;
    /// How many blocks are held.
    fn block_count(&self) -> usize;
    /// A block by its place in this partition; none when a filter left it empty.
    fn block(&self, place: usize) -> Option<Self::Block<'_>>;
}

/// One value per block: what a map makes. A block may have none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blocks<R> {
    first: u64,
    values: Vec<(bool, R)>,
}

impl<R: Default> Blocks<R> {
    /// Values of consecutive blocks.
    pub fn new(first: u64, values: impl IntoIterator<Item = Option<R>>) -> Self {
        let values = values
            .into_iter()
            .map(|value| (value.is_some(), value.unwrap_or_default()))
            .collect();
        Blocks { first, values }
    }

    /// Takes the shape of other blocks, keeping buffers.
    pub(crate) fn prepare(&mut self, first: u64, count: usize) {
        self.first = first;
        // Values keep their buffers of the turn before: the map overwrites each, or marks its block
        // empty.
        self.values.resize_with(count, Default::default);
    }

    pub(crate) fn fill(&mut self, place: usize) -> &mut R {
        let (present, value) = &mut self.values[place];
        *present = true;
        value
    }

    pub(crate) fn set_empty(&mut self, place: usize) {
        self.values[place].0 = false;
    }

    /// The values with their global block indexes, empty blocks left out.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &R)> {
        let first = self.first;
        self.values
            .iter()
            .enumerate()
            .filter(|(_, (present, _))| *present)
            .map(move |(i, (_, v))| (first + i as u64, v))
    }

    /// As [`Blocks::iter`], for writing.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut R)> {
        let first = self.first;
        let values = self
            .values
            .iter_mut()
            .enumerate()
            .filter(|(_, (present, _))| *present);
        values.map(move |(i, (_, v))| (first + i as u64, v))
    }

    /// The global indexes of the blocks held.
    pub fn range(&self) -> Range<u64> {
        self.first..self.first + self.values.len() as u64
    }

    /// A present value by its place.
    pub(crate) fn at(&self, place: usize) -> Option<&R> {
        let (present, value) = &self.values[place];
        present.then_some(value)
    }
}

impl<R: Payload> Payload for Blocks<R> {
    const INTERPRETED: bool = R::INTERPRETED;
    const SPILLS: bool = R::SPILLS;
    fn type_name() -> Cow<'static, str> {
        Cow::Owned(format!("Blocks<{}>", R::type_name()))
    }
    fn heap_bytes(&self) -> usize {
        self.values.heap_bytes()
    }
    fn spilled_bytes(&self) -> u64 {
        self.values.spilled_bytes()
    }
    crate::payload_fields!(first, values);
}

impl<R: Payload> Blocked for Blocks<R> {
    type Block<'a> = &'a R;
    fn first_block(&self) -> u64 {
        self.first
    }
    fn block_count(&self) -> usize {
        self.values.len()
    }
    fn block(&self, place: usize) -> Option<&R> {
        self.at(place)
    }
}

/// The blocks of one partition: contiguous, as even as whole blocks allow.
pub fn blocks_of(partition: u32, partitions: u32, blocks: u64) -> Range<u64> {
    // Both ends come from one formula, so that partitions tile the blocks. In 128 bits, since the
    // product may exceed 64.
    let edge =
        |index: u32| (u128::from(blocks) * u128::from(index) / u128::from(partitions)) as u64;
    edge(partition)..edge(partition + 1)
}

/// How many partitions a blocked dataset has when nobody says: a function of the data, never of the machine.
pub fn default_partitions(blocks: u64, bytes: u64) -> u32 {
    const MIB: u64 = 1 << 20;
    // At most one partition for each block, since others would hold nothing; and one where there is
    // no block.
    blocks.min((bytes / (16 * MIB)).clamp(64, 16_384)).max(1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_tile_the_blocks() {
        for (partitions, blocks) in [(1, 0), (1, 7), (7, 3), (64, 2_442), (3, 3)] {
            let ranges: Vec<_> = (0..partitions)
                .map(|p| blocks_of(p, partitions, blocks))
                .collect();
            assert_eq!(ranges[0].start, 0);
            assert_eq!(ranges.last().unwrap().end, blocks);
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }

    #[test]
    fn defaults_follow_the_data() {
        assert_eq!(default_partitions(0, 0), 1);
        assert_eq!(default_partitions(83, 50 << 20), 64);
        assert_eq!(default_partitions(40, 50 << 20), 40);
        assert_eq!(default_partitions(2_442, 1_680_000_000), 100);
        assert_eq!(default_partitions(u64::MAX, u64::MAX), 16_384);
    }
}
