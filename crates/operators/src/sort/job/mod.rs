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
mod copies;
mod emit;
mod flight;
pub mod making;
mod merging;
mod plan;
mod read;
mod records;
mod room;
mod sample;
mod shared;
mod sizes;
mod so_far;

pub use plan::{SortInput, SortOutput, SortPlan, SortSplit};
pub use shared::{SortShared, create_output};
pub use so_far::SortedSoFar;

use crate::parts::{self, CopyCount, PartCount};
use crate::sort::{OrderCheck, RecordSummary, Splitters};
use brambling_program::{Dataset, Exchange, KernelError, Partitioner, Program, Relation, Sum};
use brambling_storage::{FileError, InputFile, peak_rss_bytes, process_name};
use serde::{Deserialize, Serialize};
use shared::SharedSort;

/// Records on their way to their part, an [`extent`](crate::sort::extent): whole ones, in order.
#[derive(Clone, Debug, Default)]
struct SortChunk {
    /// The fingerprint of the records' schema.
    schema: u64,
    bytes: Vec<u8>,
    /// In a source's last chunk: what it has sent to lower parts.
    before: u64,
}
brambling_program::payload!(SortChunk {
    schema,
    bytes,
    before
});

/// What an extent has beside its records when it is encoded: its fields, and its length.
const EXTENT_BYTES: u64 = 3 * size_of::<u64>() as u64;

/// The pieces of a split: a split may begin in one file and end in another.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SortPieces {
    pieces: Vec<SortSplit>,
    /// The worker's own file, where each has its own.
    own: Option<SortInput>,
}
brambling_program::payload!(SortPieces);

impl SortPieces {
    /// The files of which these are pieces.
    fn inputs<'a>(&'a self, plan: &'a SortPlan) -> &'a [SortInput] {
        match &self.own {
            Some(own) => std::slice::from_ref(own),
            None => &plan.inputs,
        }
    }
}

/// What was read or written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortCount {
    /// Records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that went to runs and came back.
    pub run_bytes: u64,
    /// Bytes that were written as a backup, of splits.
    pub backup_bytes: u64,
    /// Bytes that extents had beside their records on their way to parts, of splits.
    pub extent_bytes: u64,
    /// The sum of the records' hashes, modulo 2¹²⁸, where it was asked for.
    pub checksum: u128,
    /// The process in which the task ran, of parts and copies.
    pub process: String,
    /// The most memory that the process has had.
    pub peak_rss_bytes: u64,
}
brambling_program::payload!(SortCount);

/// What building leaves in the program.
#[derive(Clone, Copy, Debug)]
pub struct SortJob {
    /// What each split has given; kept.
    pub read: Dataset<SortCount>,
    /// What each part has; kept.
    pub written: Dataset<SortCount>,
    /// What each shard of copies has; kept. None where there are no copies.
    pub copied: Option<Dataset<CopyCount>>,
}

/// Builds the sort of a plan.
pub fn build(p: &mut Program, plan: &SortPlan) -> SortJob {
    let (pieces, shared) = sources(p, plan);
    let splitters = sample::splitters(p, plan, &pieces);
    let here = p.like::<Splitters, _>("splitters of sources", &pieces);
    p.broadcast(&splitters, &here);
    let read = p.like::<SortCount, _>("read", &pieces);
    p.keep(&read);
    let outputs = p.scan(
        "outputs",
        plan.parts,
        Partitioner::Opaque,
        plan.clone(),
        |plan: &SortPlan, part: u32, _: u32| SharedSort::of_part(plan, part),
    );
    let written = p.like::<SortCount, _>("written", &outputs);
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
    let copied = match plan.copies {
        0 => {
            p.stream("sort")
                .take(&records)
                .write(&written)
                .with(plan.clone())
                .run(collect::open, collect::sort);
            None
        }
        _ => Some(sort_and_copy(p, plan, &records, &written)),
    };
    if let SortOutput::Parts(_) = plan.output {
        parts::publish(p, &outputs, &written, copied.as_ref());
    }
    SortJob {
        read,
        written,
        copied,
    }
}

/// The pieces of each split, and what its tasks share with others of their process.
fn sources(p: &mut Program, plan: &SortPlan) -> (Dataset<SortPieces>, Dataset<SharedSort>) {
    let shared = p.scan(
        "sorts",
        plan.splits,
        Partitioner::Opaque,
        plan.clone(),
        |plan: &SortPlan, number: u32, _: u32| SharedSort::of(plan, number),
    );
    let pieces = p.like::<SortPieces, _>("splits", &shared);
    if plan.is_local {
        // Once all have said that they are there, each process knows how many splits it has.
        let here = p.scan(
            "here",
            plan.splits,
            Partitioner::Opaque,
            (),
            |_: &(), _: u32, _: u32| 1u64,
        );
        let all = p.like::<u64, _>("all here", &here);
        p.all_reduce(Sum, &here, &all);
        p.compute("split own file")
            .read(&shared)
            .read(&all)
            .write(&pieces)
            .with(plan.clone())
            .run(split_own);
    } else {
        p.compute("split")
            .read(&shared)
            .write(&pieces)
            .with(plan.clone())
            .run(split);
    }
    (pieces, shared)
}

fn split(plan: &SortPlan, shared: &SharedSort, pieces: &mut SortPieces) {
    *pieces = SortPieces {
        pieces: plan.split(shared.number()),
        own: None,
    };
}

/// The splits that lie in a process divide its own file.
fn split_own(
    plan: &SortPlan,
    shared: &SharedSort,
    _all: &u64,
    pieces: &mut SortPieces,
) -> Result<(), KernelError> {
    let Some(input) = plan.inputs.first() else {
        return Err("a sort of the workers' own files has a file".into());
    };
    let fault = |error: FileError| KernelError::new(error.to_string()).with_source(error);
    let file = InputFile::open(&input.path).map_err(fault)?;
    let own = SortInput {
        path: input.path.clone(),
        bytes: file.bytes(),
    };
    let unit = plan.unit();
    if !own.bytes.is_multiple_of(unit) {
        let (path, bytes) = (own.path.display(), own.bytes);
        return Err(format!(
            "{path} has {bytes} bytes here, which is no multiple of the {unit} bytes of a record: its last record is cut, or records are not so wide (--width), or it has lines (--lines)"
        )
        .into());
    }
    let (number, of) = shared.place();
    *pieces = SortPieces {
        pieces: plan::split_of(std::slice::from_ref(&own), unit, number, of),
        own: Some(own),
    };
    Ok(())
}

/// The stage `sort` of a sort whose parts are copied, and the stage that writes the copies.
fn sort_and_copy(
    p: &mut Program,
    plan: &SortPlan,
    records: &Exchange<SortChunk>,
    written: &Dataset<SortCount>,
) -> Dataset<CopyCount> {
    let copied = p.dataset::<CopyCount>("copied", plan.parts);
    p.keep(&copied);
    let blocks = p.streamed::<Vec<u8>>("copies", plan.copy_plan().relation());
    p.stream("sort")
        .take(records)
        .send(&blocks)
        .write(written)
        .with(plan.clone())
        .run(collect::open, collect::sort_and_copy);
    p.stream("copy")
        .take(&blocks)
        .write(&copied)
        .with(plan.clone())
        .run(copies::open, copies::copy);
    copied
}

impl PartCount for SortCount {
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn process(&self) -> &str {
        &self.process
    }
}

impl SortCount {
    /// What two have together.
    #[must_use]
    pub fn and(mut self, other: &SortCount) -> SortCount {
        self.records += other.records;
        self.bytes += other.bytes;
        self.run_bytes += other.run_bytes;
        self.backup_bytes += other.backup_bytes;
        self.extent_bytes += other.extent_bytes;
        self.checksum = self.checksum.wrapping_add(other.checksum);
        self.peak_rss_bytes = self.peak_rss_bytes.max(other.peak_rss_bytes);
        self
    }

    fn note_process(&mut self) {
        self.process = process_name().into();
        self.peak_rss_bytes = peak_rss_bytes();
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

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::Payload;

    #[test]
    fn an_extent_has_its_records_and_what_is_counted_beside_them() {
        for bytes in [vec![], vec![7; 100], vec![7; 300_000]] {
            let records = bytes.len() as u64;
            let (schema, before) = (u64::MAX, u64::MAX);
            let chunk = SortChunk {
                schema,
                bytes,
                before,
            };
            let mut encoding = Vec::new();
            chunk.encode(&mut encoding);
            assert_eq!(encoding.len() as u64, records + EXTENT_BYTES);
        }
    }
}
