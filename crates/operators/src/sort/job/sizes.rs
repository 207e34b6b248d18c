//! Owns how a job's budget is divided in one process: records, chunks on their way, and blocks of
//! files. The tasks of a sort ask it when they begin. It reads no file and holds no memory.
//!
//! All parts together stay below the budget, with what the process had before the sort began:
//!
//! | what | part of what the budget leaves |
//! |---|---|
//! | records and their entries | 3/5 |
//! | chunks that sources fill | 3/40 |
//! | chunks between sources and parts | 3/50 |
//! | blocks that are read, and as many that are written | 1/10 each |
//! | blocks of runs that are merged, when no more is read | 1/10 |

use super::plan::{SortOutput, SortPlan};
use super::records::BLOCKS_AHEAD;
use brambling_storage::rss_bytes;

/// A chunk of the exchange has about so many bytes.
const CHUNK_BYTES: u64 = 256 << 10;

/// Shorter chunks would cost more in messages than in bytes.
const CHUNK_BYTES_MIN: u64 = 4 << 10;

/// An entry of a record that is sorted: its key's prefix, and where it lies.
const ENTRY_BYTES: u64 = 16;

/// A block of a file that is read or written, about.
const BLOCK_BYTES: u64 = 4 << 20;

/// A range that begins and ends within pages has so much less.
const PAGES_BYTES: u64 = 8 << 10;

/// Shorter blocks than this would cost more in requests than they save in memory.
const BLOCK_BYTES_MIN: u64 = 64 << 10;

/// A block of a run may be shorter: there are many at once.
const MERGE_BLOCK_BYTES_MIN: u64 = 8 << 10;

/// What a process has before it has any records, its code and its stacks, is taken off the budget.
/// What it has beyond this belongs to somebody else, whom the budget does not bound.
const PROCESS_BYTES_MAX: u64 = 96 << 20;

/// And so much for what it comes to have besides: threads that wait for files, tables, what lies
/// between allocations.
const PROCESS_GROWS_BYTES: u64 = 16 << 20;

/// Such a part of the budget is left in any case.
const LEFT_AT_LEAST: u64 = 4;

/// Records have three parts of five.
const RECORDS: (u64, u64) = (3, 5);

/// The blocks of all that read at once take such a part of the memory for records, and a fifth more.
const BLOCKS_OF_RECORDS: u64 = 32;

/// The chunks that sources fill take such a part of the memory for records.
const FILLING_PART: u64 = 8;

/// What lies between sources and parts is such a part of the memory for records at most.
const FLIGHT_PART: u64 = 10;

/// How the memory of a sort is divided in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SortSizes {
    /// The most for records and entries.
    pub(super) record_bytes: u64,
    /// Chunks are sent when they have so many bytes.
    pub(super) chunk_bytes: usize,
    /// The most bytes of chunks that sources fill.
    pub(super) filling_bytes: u64,
    /// The most bytes between sources and parts, where all of them are in one process.
    pub(super) flight_bytes: Option<u64>,
    /// A block that is read: whole records, where they have a width.
    pub(super) read_block_bytes: usize,
    /// A block that is written.
    pub(super) write_block_bytes: usize,
    unit: u64,
}

impl SortSizes {
    /// Of a job with so large a budget in this process.
    pub(super) fn of(plan: &SortPlan, budget_bytes: u64) -> SortSizes {
        SortSizes::beside(plan, budget_bytes, rss_bytes())
    }

    /// As [`SortSizes::of`], where the process has so many bytes already.
    fn beside(plan: &SortPlan, budget_bytes: u64, has_bytes: u64) -> SortSizes {
        let least = budget_bytes / LEFT_AT_LEAST;
        let own = has_bytes.min(PROCESS_BYTES_MAX) + PROCESS_GROWS_BYTES;
        let left = budget_bytes.saturating_sub(own).max(least);
        let most = plan.record_bytes_max.unwrap_or(u64::MAX);
        let record_bytes = (left / RECORDS.1 * RECORDS.0).min(most);
        let unit = plan.unit();
        let at_once = u64::from(plan.at_once.max(1));
        let filling_bytes = record_bytes / FILLING_PART;
        let fair = filling_bytes / u64::from(plan.parts.max(1)) / at_once;
        let chunk_bytes = CHUNK_BYTES.min(fair).max(CHUNK_BYTES_MIN).max(unit);
        let is_alone = matches!(plan.output, SortOutput::File);
        let fair = record_bytes / BLOCKS_OF_RECORDS / at_once;
        let block_bytes = power_of_two(BLOCK_BYTES.min(fair).max(BLOCK_BYTES_MIN));
        // A block that begins within a page still fits the huge pages of its memory.
        let read = block_bytes - PAGES_BYTES;
        SortSizes {
            record_bytes,
            chunk_bytes: chunk_bytes as usize,
            filling_bytes,
            flight_bytes: is_alone.then(|| (record_bytes / FLIGHT_PART).max(chunk_bytes)),
            read_block_bytes: (read / unit * unit).max(unit) as usize,
            write_block_bytes: block_bytes as usize,
            unit,
        }
    }

    /// A block of one of so many runs that are merged, each with so many read ahead.
    pub(super) fn merge_block_bytes(&self, runs: usize, ahead: usize) -> usize {
        let all = self.write_block_bytes as u64 * BLOCKS_AHEAD as u64;
        let fair = all / (runs.max(1) * (ahead + 1)) as u64;
        let most = self.write_block_bytes as u64;
        power_of_two(fair.clamp(MERGE_BLOCK_BYTES_MIN, most)) as usize
    }

    /// The most room that a chunk takes where it is sorted.
    pub(super) fn chunk_room_bytes(&self) -> u64 {
        let bytes = self.chunk_bytes as u64;
        bytes + bytes / self.unit.max(16) * ENTRY_BYTES
    }

    /// The room of a chunk where it is sorted: it lies as it came, beside an entry for each record.
    pub(super) fn room_bytes_of(&self, chunk: &Vec<u8>, records: u64) -> u64 {
        chunk.capacity() as u64 + records * ENTRY_BYTES
    }
}

/// The largest power of two that is no more.
fn power_of_two(bytes: u64) -> u64 {
    1 << bytes.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_stay_within_the_budget() {
        for (budget_mb, has_mb, parts, at_once) in [
            (4_000, 50, 256, 4),
            (300, 50, 12, 4),
            (1_000, 48, 179, 4),
            (64_000, 60, 256, 18),
        ] {
            let plan = SortPlan {
                parts,
                at_once,
                output: SortOutput::File,
                ..SortPlan::default()
            };
            let (budget, has) = (budget_mb << 20, has_mb << 20);
            let sizes = SortSizes::beside(&plan, budget, has);
            let at_once = u64::from(at_once);
            let chunks = sizes.chunk_bytes as u64 * u64::from(parts) * at_once;
            assert!(chunks <= sizes.filling_bytes);
            let block = sizes.write_block_bytes as u64 * at_once * (BLOCKS_AHEAD as u64 + 1);
            let flight = sizes.flight_bytes.unwrap();
            let all = has + sizes.record_bytes + chunks + flight + 2 * block;
            assert!(all <= budget, "{all} of {budget}");
            assert!(all > budget / 2, "{all} of {budget}");
            for runs in [1, 3, 20, 100] {
                let merged = (sizes.merge_block_bytes(runs, 2) * runs * 3) as u64 * at_once;
                let least = MERGE_BLOCK_BYTES_MIN * (runs * 3) as u64 * at_once;
                assert!(merged <= block.max(least));
            }
        }
    }

    #[test]
    fn a_process_that_is_larger_than_the_budget_still_sorts() {
        let plan = SortPlan {
            parts: 8,
            at_once: 4,
            ..SortPlan::default()
        };
        let sizes = SortSizes::beside(&plan, 64 << 20, 80 << 20);
        assert!(sizes.record_bytes >= 9 << 20, "{sizes:?}");
        let beside_much = SortSizes::beside(&plan, 1 << 30, 8 << 30);
        assert!(beside_much.record_bytes > 500 << 20, "{beside_much:?}");
    }
}
