//! A sort as a program: splits are read and partitioned, parts are sorted and written. (Krevat et
//! al., "Applying performance models to understand data-intensive computing efficiency", §7.)
//!
//! ```text
//! sample ──► splitters ──► read ══ records ══► sort ──► written
//!  per split    one        per split   streamed   per part
//! ```
//!
//! * `sample` reads some keys of each split, `splitters` cuts them into fair parts.
//! * `read` reads a split ahead and sends each record to its part ([`read`]).
//! * `sort` takes the records of a part, in runs where memory ends, and writes them where they
//!   belong ([`collect`]).
//!
//! Equal keys keep the order of the input: an exchange hands chunks out by source, and sources are
//! splits in order. So the output has the same bytes for any number of splits, parts and workers.

mod backup;
pub mod checking;
mod collect;
mod emit;
mod flight;
mod gate;
pub mod making;
mod merging;
mod plan;
mod read;
mod records;
mod room;
mod sample;
mod shared;

pub use plan::{SortInput, SortOutput, SortPlan, SortSplit};
pub use shared::{SortShared, create_output};

use crate::sort::{OrderCheck, RecordSummary, Splitters};
use brambling_program::{Dataset, KernelError, Partitioner, Program, Relation};
use serde::{Deserialize, Serialize};
use shared::SharedSort;

/// Records on their way to their part: whole ones, in order.
#[derive(Clone, Debug, Default)]
struct SortChunk {
    bytes: Vec<u8>,
    /// In a source's last chunk: what it has sent to lower parts.
    before: u64,
}
brambling_program::payload!(SortChunk { bytes, before });

/// The pieces of a split: a split may begin in one file and end in another.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SortPieces(Vec<SortSplit>);
brambling_program::payload!(SortPieces);

/// What was read or written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortCount {
    /// Records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that went to runs and came back.
    pub run_bytes: u64,
    /// The sum of the records' hashes, modulo 2¹²⁸, where it was asked for.
    pub checksum: u128,
}
brambling_program::payload!(SortCount);

/// What building leaves in the program.
#[derive(Clone, Copy, Debug)]
pub struct SortJob {
    /// What each split has given; kept.
    pub read: Dataset<SortCount>,
    /// What each part has; kept.
    pub written: Dataset<SortCount>,
}

/// Builds the sort of a plan.
pub fn build(p: &mut Program, plan: &SortPlan) -> SortJob {
    let pieces = p.scan(
        "splits",
        plan.splits,
        Partitioner::Opaque,
        plan.clone(),
        |plan: &SortPlan, number: u32, _: u32| SortPieces(plan.split(number)),
    );
    let shared = p.scan(
        "sorts",
        plan.splits,
        Partitioner::Opaque,
        plan.clone(),
        |plan: &SortPlan, number: u32, _: u32| SharedSort::of(plan, number),
    );
    let splitters = sample::splitters(p, plan, &pieces);
    let here = p.like::<Splitters, _>("splitters of sources", &pieces);
    p.broadcast(&splitters, &here);
    let read = p.like::<SortCount, _>("read", &pieces);
    p.keep(&read);
    let written = p.dataset::<SortCount>("written", plan.parts);
    p.keep(&written);
    let records = p.streamed::<SortChunk>("records", Relation::AllToAll);
    p.stream("read")
        .send(&records)
        .read(&shared)
        .read(&pieces)
        .read(&here)
        .write(&read)
        .with(plan.clone())
        .run(read::open, read::read);
    p.stream("sort")
        .take(&records)
        .write(&written)
        .with(plan.clone())
        .run(collect::open, collect::sort);
    SortJob { read, written }
}

impl SortCount {
    /// What two have together.
    #[must_use]
    pub fn and(mut self, other: &SortCount) -> SortCount {
        self.records += other.records;
        self.bytes += other.bytes;
        self.run_bytes += other.run_bytes;
        self.checksum = self.checksum.wrapping_add(other.checksum);
        self
    }

    /// Whether these are the records of the other.
    pub fn has_records_of(&self, other: &SortCount) -> bool {
        (self.records, self.bytes, self.checksum) == (other.records, other.bytes, other.checksum)
    }
}

/// What is known of all records of a task once they have been seen.
fn summed(check: Option<OrderCheck>) -> Result<RecordSummary, KernelError> {
    let summary = check.map(OrderCheck::finish).transpose();
    let summary = summary.map_err(|cut| KernelError::new(cut.to_string()).with_source(cut))?;
    Ok(summary.unwrap_or_default())
}
