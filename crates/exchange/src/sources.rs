//! Whom a gather waits for.

use brambling_program::{ExchangeId, ShardId, Turn};
use std::ops::Range;

/// The sources of one destination at one turn of an exchange: leaves of the reduction tree, or shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sources<'a> {
    /// Every source from 0 up to this number.
    Dense(u64),
    /// These, ascending.
    Sparse(&'a [u32]),
    /// Those from the first up to the second: what is merged on its way.
    Span(u64, u64),
}

impl Sources<'_> {
    /// How many there are.
    pub fn count(&self) -> u64 {
        match self {
            Sources::Dense(count) => *count,
            Sources::Sparse(list) => list.len() as u64,
            Sources::Span(first, end) => end - first,
        }
    }

    /// The leaf of the source with a place.
    pub(crate) fn leaf(&self, place: u32) -> u64 {
        match self {
            Sources::Dense(_) => place.into(),
            Sources::Sparse(list) => list[place as usize].into(),
            Sources::Span(first, _) => first + u64::from(place),
        }
    }

    /// The places of the sources within `leaves`.
    pub(crate) fn places(&self, leaves: Range<u64>) -> Range<u64> {
        match self {
            Sources::Dense(count) => leaves.start.min(*count)..leaves.end.min(*count),
            Sources::Sparse(list) => {
                let place = |leaf| list.partition_point(|&source| u64::from(source) < leaf) as u64;
                place(leaves.start)..place(leaves.end)
            }
            Sources::Span(first, end) => {
                let place = |leaf: u64| leaf.clamp(*first, *end) - first;
                place(leaves.start)..place(leaves.end)
            }
        }
    }
}

/// Who sends to whom, as far as inboxes ask.
pub trait SourceRelation {
    /// The sources of `destination` at one turn. The same answer on every worker, every time.
    fn sources(&self, exchange: ExchangeId, turn: Turn, destination: ShardId) -> Sources<'_>;
}

/// The same sources for everybody at every turn.
impl SourceRelation for Sources<'_> {
    fn sources(&self, _: ExchangeId, _: Turn, _: ShardId) -> Sources<'_> {
        *self
    }
}
