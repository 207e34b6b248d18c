//! The partition map: which worker holds which shard.
//!
//! Every entry has a version of its own, and an update counts for an entry only when it is newer.
//! So the map that results from a set of updates does not depend on their order, nor on how often
//! each arrives: entry by entry it is the newest. Placement is by contiguous ranges of indexes,
//! so entries are kept, sent and looked up as runs.

use crate::ids::{Version, WorkerId};
use brambling_memory::mutants;
use brambling_program::{GroupId, ShardId};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The first version that a controller of this term gives. All of earlier terms are smaller, and there are fewer moves in a term than it leaves room for.
pub fn first_version(term: u32) -> Version {
    u64::from(term) << 32
}

/// Who holds a shard, as of a version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The worker.
    pub owner: WorkerId,
    /// Grows whenever the owner changes.
    pub version: Version,
}

/// The same entry for the shards `first..end` of a group: what updates are made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct EntryRange {
    /// The group.
    pub group: GroupId,
    /// The first index.
    pub first: u32,
    /// One past the last index.
    pub end: u32,
    /// The entry of each.
    pub entry: Entry,
}

/// Whether an update changed anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Applied {
    /// At least one entry is newer now.
    Newer,
    /// Repeated or overtaken: the network may do both.
    Ignored,
}

/// An update or a question that this map cannot take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The program has no such shards.
    #[error("no shards {first}..{end} in group {group}")]
    UnknownShards {
        /// The group named.
        group: GroupId,
        /// The first index named.
        first: u32,
        /// One past the last index named.
        end: u32,
    },
    /// Two owners for one version: whoever numbers versions made a mistake, and taking either one
    /// would make the result depend on the order of arrival.
    #[error("shard {shard} has two owners at version {}: {} and {}", held.version, held.owner, claimed.owner)]
    TwoOwners {
        /// The shard.
        shard: ShardId,
        /// What the map has.
        held: Entry,
        /// What the update says.
        claimed: Entry,
    },
}

/// Shards up to `end` (from the end of the run before) with the same entry, or none yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    end: u32,
    entry: Option<Entry>,
}

/// Which worker holds which shard of one job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionMap {
    /// By group; neighbours differ, so that equal maps have equal runs.
    groups: Vec<Vec<Run>>,
}

impl PartitionMap {
    /// A map of groups with these numbers of shards, nothing placed yet.
    pub fn new(shards_by_group: impl IntoIterator<Item = u32>) -> PartitionMap {
        let run = |end| Vec::from_iter((end > 0).then_some(Run { end, entry: None }));
        PartitionMap {
            groups: shards_by_group.into_iter().map(run).collect(),
        }
    }

    /// How many shards a group has: none when the program has no such group.
    pub fn shards(&self, group: GroupId) -> u32 {
        self.groups
            .get(group.index())
            .and_then(|runs| runs.last())
            .map_or(0, |run| run.end)
    }

    /// How many shards each group has.
    pub fn counts(&self) -> Vec<u32> {
        let count = |runs: &Vec<Run>| runs.last().map_or(0, |run| run.end);
        self.groups.iter().map(count).collect()
    }

    /// The entry of a shard; none when it has not been placed yet.
    pub fn entry(&self, shard: ShardId) -> Result<Option<Entry>, MapError> {
        let end = shard.index.saturating_add(1);
        let runs = self.known(shard.group, shard.index, end)?;
        Ok(runs[run_of(runs, shard.index)].entry)
    }

    /// The entries of `range`, as maximal runs.
    pub fn runs(
        &self,
        group: GroupId,
        range: Range<u32>,
    ) -> Result<impl Iterator<Item = (Range<u32>, Option<Entry>)> + '_, MapError> {
        let runs = self.known(group, range.start, range.end)?;
        let mut at = range.start;
        let overlapping = runs[run_of(runs, range.start)..].iter();
        Ok(overlapping.map_while(move |run| {
            let start = at;
            at = run.end.min(range.end);
            (start < at).then_some((start..at, run.entry))
        }))
    }

    /// Every entry: what a newcomer is told.
    pub fn entries(&self) -> impl Iterator<Item = EntryRange> + '_ {
        self.groups.iter().zip(0..).flat_map(|(runs, group)| {
            let mut first = 0;
            runs.iter().filter_map(move |run| {
                let start = std::mem::replace(&mut first, run.end);
                let entry = run.entry?;
                Some(EntryRange {
                    group: GroupId(group),
                    first: start,
                    end: run.end,
                    entry,
                })
            })
        })
    }

    /// Takes an update: each entry of its range becomes the update's if that is newer.
    ///
    /// Insensitive to order and repetition. An update that is refused changes nothing.
    pub fn apply(&mut self, update: &EntryRange) -> Result<Applied, MapError> {
        let claimed = update.entry;
        let mut newer = false;
        for (range, entry) in self.runs(update.group, update.first..update.end)? {
            if let Some(held) = entry
                && held.version == claimed.version
                && held.owner != claimed.owner
            {
                let shard = ShardId {
                    group: update.group,
                    index: range.start,
                };
                return Err(MapError::TwoOwners {
                    shard,
                    held,
                    claimed,
                });
            }
            newer |= is_newer(claimed, entry);
        }
        if !newer {
            return Ok(Applied::Ignored);
        }
        let runs = &mut self.groups[update.group.index()];
        let old = std::mem::take(runs);
        let mut start = 0;
        for run in old {
            let inside = update.first.clamp(start, run.end)..update.end.clamp(start, run.end);
            let entry = if is_newer(claimed, run.entry) {
                Some(claimed)
            } else {
                run.entry
            };
            push(
                runs,
                Run {
                    end: inside.start,
                    entry: run.entry,
                },
            );
            if !inside.is_empty() {
                push(
                    runs,
                    Run {
                        end: inside.end,
                        entry,
                    },
                );
            }
            push(
                runs,
                Run {
                    end: run.end,
                    entry: run.entry,
                },
            );
            start = run.end;
        }
        Ok(Applied::Newer)
    }

    fn known(&self, group: GroupId, first: u32, end: u32) -> Result<&[Run], MapError> {
        let runs = self
            .groups
            .get(group.index())
            .map_or(&[][..], Vec::as_slice);
        match runs.last() {
            Some(last) if first < end && end <= last.end => Ok(runs),
            _ => Err(MapError::UnknownShards { group, first, end }),
        }
    }
}

fn is_newer(claimed: Entry, held: Option<Entry>) -> bool {
    held.is_none_or(|held| claimed.version > held.version || mutants::is_on("map-takes-older"))
}

fn run_of(runs: &[Run], index: u32) -> usize {
    runs.partition_point(|run| run.end <= index)
}

/// Appends a run, merged with the one before if that has the same entry; an empty one is left out.
fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.end >= run.end => {}
        Some(last) if last.entry == run.entry => last.end = run.end,
        None if run.end == 0 => {}
        _ => runs.push(run),
    }
}
