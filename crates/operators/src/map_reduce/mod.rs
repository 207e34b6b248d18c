//! Map-reduce over the text of files (Dean and Ghemawat, OSDI 2004; Krevat et al., the parallel DataSeries of §5 to §8).
//!
//! Files are split into ranges ([`text_files`]). The map stage cuts a split into items, folds their pairs in a table as they
//! come (the combiner), and streams the tables' pairs to the partitions of their keys. The reduce stage folds what reaches
//! its partition, spills sorted runs where that has no room, and gives the pairs in the order of their keys. Keys are
//! compared by bytes, values are 64-bit integers, and folds give the same for any order and grouping: so the result is the
//! same for any splits, threads and workers.

pub mod file_sink;
pub mod fold_table;
pub mod items;
mod map_stage;
mod merge;
pub mod pairs;
mod reduce_stage;
mod run_reader;
pub mod text_files;

use brambling_program::{Dataset, KernelError, Partitioner, Program, Relation, payload};
use brambling_storage::FileError;
use fold_table::ReduceFunction;
use items::MapFunction;
use pairs::FoldedPairs;
use serde::{Deserialize, Serialize};
use text_files::{TextFiles, TextRange, ranges_of};

/// What the map stage's table holds before its pairs are sent, unless there is less memory: about what a core's second cache has. A
/// larger one sends less, and takes longer for each item.
pub const TABLE_BYTES: u64 = 2 << 20;
/// Bytes that are read at once.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// How the stages work: what their kernels are given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapReduceSteps {
    /// What each split is cut into.
    pub map: MapFunction,
    /// What becomes of the values of a key.
    pub reduce: ReduceFunction,
    /// Whether pairs are written to a file of the run directory before they are sent.
    pub backup: bool,
    /// Where files without names are made, of whatever bytes.
    pub run_directory: Vec<u8>,
    /// The directory that parts are written to and the key of its staging; none: the pairs stay in memory.
    pub output: Option<(Vec<u8>, String)>,
    /// So many bytes of keys and values are folded before they are sent.
    pub table_bytes: u64,
    /// Bytes that are read at once.
    pub block_bytes: u64,
}
payload!(MapReduceSteps);

impl MapReduceSteps {
    /// Adds the stages to a program: over files that are cut into so many splits, to so many partitions. Gives where the
    /// pairs will be: in memory by partition, or with their number alone where they are written.
    pub fn build(
        &self,
        p: &mut Program,
        files: TextFiles,
        splits: u32,
        partitions: u32,
    ) -> Dataset<FoldedPairs> {
        let ranges: Dataset<Vec<TextRange>> =
            p.scan("splits", splits, Partitioner::Opaque, files, ranges_of);
        let folded = p.dataset::<FoldedPairs>("pairs", partitions);
        let dealt = p.streamed::<Vec<u8>>("dealt pairs", Relation::AllToAll);
        p.stream("map")
            .send(&dealt)
            .read(&ranges)
            .with(self.clone())
            .run(map_stage::open, map_stage::run);
        p.stream("reduce")
            .take(&dealt)
            .write(&folded)
            .with(self.clone())
            .run(reduce_stage::open, reduce_stage::run);
        folded
    }
}

/// A file's trouble as a kernel's.
fn failed(error: FileError) -> KernelError {
    KernelError::new(error.to_string()).with_source(error)
}
