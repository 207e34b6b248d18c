//! Map-reduce over the text of files (Dean and Ghemawat, OSDI 2004; Krevat et al., the parallel DataSeries of §5 to §8).
//!
//! Files are split into ranges ([`text_files`]). The map stage cuts a split into items, folds their pairs in a table as they
//! come (the combiner), and streams the tables' pairs to the partitions of their keys. The reduce stage folds what reaches
//! its partition, spills sorted runs where that has no room, and gives the pairs in the order of their keys; where they are
//! written, the copy stage writes them on other workers too. Keys are compared by bytes, values are 64-bit integers, and folds give the same for any order and grouping: so the result is the
//! same for any splits, threads and workers.

mod copy_stage;
pub mod file_sink;
pub mod fold_table;
pub mod items;
mod map_stage;
mod mapping;
mod merge;
pub mod pairs;
mod part_sink;
mod reduce_stage;
mod run_reader;
mod shared;
pub mod text_files;

pub use shared::left_of;

use crate::parts::{self, CopyCount, CopyPlan};
use brambling_program::{Dataset, Exchange, KernelError, Partitioner, Program, Relation, payload};
use brambling_storage::FileError;
use fold_table::ReduceFunction;
use items::MapFunction;
use pairs::FoldedPairs;
use serde::{Deserialize, Serialize};
use shared::OutputPart;
use text_files::{TextFiles, TextRange, ranges_of};

/// What the map stage's table holds before its pairs are sent, unless there is less memory. Frequent keys stay in a core's caches
/// however large it is, and a smaller one sends rare ones again and again.
pub const TABLE_BYTES: u64 = 16 << 20;
/// Bytes that are read at once.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// Chunks of pairs have so many bytes at least, and at most.
const CHUNK_BYTES_MIN: u64 = 64 << 10;
const CHUNK_BYTES_MAX: u64 = 1 << 20;

/// How the stages work: what their kernels are given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapReduceSteps {
    /// Names the job: no other one of these processes has the number.
    pub job: u64,
    /// What each split is cut into.
    pub map: MapFunction,
    /// What becomes of the values of a key.
    pub reduce: ReduceFunction,
    /// Whether pairs are written to a file of the run directory before they are sent.
    pub backup: bool,
    /// Where files without names are made, of whatever bytes.
    pub run_directory: Vec<u8>,
    /// The directory that parts are written to, of whatever bytes; none: the pairs stay in memory.
    pub output: Option<Vec<u8>>,
    /// How many parts there are, how many copies of each, and on how many workers.
    pub parts: CopyPlan,
    /// How many splits are mapped at once in a process.
    pub at_once: u32,
    /// So many bytes of keys and values are folded before they are sent.
    pub table_bytes: u64,
    /// Bytes that are read at once.
    pub block_bytes: u64,
}
payload!(MapReduceSteps);

/// What building leaves in the program.
#[derive(Clone, Copy, Debug)]
pub struct MapReduceJob {
    /// The pairs of each partition, or their number alone where they are written; kept.
    pub folded: Dataset<FoldedPairs>,
    /// What each shard of copies has; kept. None where there are no copies.
    pub copied: Option<Dataset<CopyCount>>,
}

impl MapReduceSteps {
    /// Adds the stages to a program: over files that are cut into so many splits.
    pub fn build(&self, p: &mut Program, files: TextFiles, splits: u32) -> MapReduceJob {
        let ranges: Dataset<Vec<TextRange>> =
            p.scan("splits", splits, Partitioner::Opaque, files, ranges_of);
        let dealt = p.streamed::<Vec<u8>>("dealt pairs", Relation::AllToAll);
        p.stream("map")
            .send(&dealt)
            .read(&ranges)
            .with(self.clone())
            .run(map_stage::open, map_stage::run);
        let partitions = self.parts.parts;
        if self.output.is_none() {
            let folded = p.dataset::<FoldedPairs>("pairs", partitions);
            p.keep(&folded);
            self.reduce(p, &dealt, &folded);
            return MapReduceJob {
                folded,
                copied: None,
            };
        }
        let outputs = p.scan(
            "outputs",
            partitions,
            Partitioner::Opaque,
            self.clone(),
            OutputPart::of,
        );
        let folded = p.like::<FoldedPairs, _>("pairs", &outputs);
        p.keep(&folded);
        let copied = match self.parts.copies {
            0 => {
                self.reduce(p, &dealt, &folded);
                None
            }
            _ => Some(self.reduce_and_copy(p, &dealt, &folded)),
        };
        parts::publish(p, &outputs, &folded, copied.as_ref());
        MapReduceJob { folded, copied }
    }

    fn reduce(&self, p: &mut Program, dealt: &Exchange<Vec<u8>>, folded: &Dataset<FoldedPairs>) {
        p.stream("reduce")
            .take(dealt)
            .write(folded)
            .with(self.clone())
            .run(reduce_stage::open, reduce_stage::run);
    }

    /// The stage `reduce` of a job whose parts are copied, and the stage that writes the copies.
    fn reduce_and_copy(
        &self,
        p: &mut Program,
        dealt: &Exchange<Vec<u8>>,
        folded: &Dataset<FoldedPairs>,
    ) -> Dataset<CopyCount> {
        let copied = p.dataset::<CopyCount>("copied", self.parts.parts);
        p.keep(&copied);
        let blocks = p.streamed::<Vec<u8>>("copies", self.parts.relation());
        p.stream("reduce")
            .take(dealt)
            .send(&blocks)
            .write(folded)
            .with(self.clone())
            .run(reduce_stage::open, reduce_stage::run_and_copy);
        p.stream("copy")
            .take(&blocks)
            .write(&copied)
            .with(self.clone())
            .run(copy_stage::open, copy_stage::run);
        copied
    }

    /// How long the chunks are that pairs are dealt in: a table gives each part some.
    fn chunk_bytes(&self) -> usize {
        let share = self.table_bytes / u64::from(self.parts.parts.max(1));
        let chunk = share.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        1 << chunk.ilog2()
    }

    /// How many bytes of chunks are kept for those that come next.
    fn free_chunks_bytes(&self) -> u64 {
        4 * u64::from(self.at_once) * self.table_bytes
    }

    /// Names the directory of parts while it is written: all workers name the same.
    pub fn key(&self) -> String {
        format!("map-reduce-{:016x}", self.job)
    }
}

/// A file's trouble as a kernel's.
fn failed(error: FileError) -> KernelError {
    KernelError::new(error.to_string()).with_source(error)
}
