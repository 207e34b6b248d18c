//! Map-reduce over the text of files: finds the files, builds and runs the program, and publishes the output.
//!
//! The stages are `operators`' own. This module looks at files before the job and gives the output its name after it; it never
//! reads their text.

mod links;
mod written;

use crate::run::ProgramRun;
use crate::{Caller, Error, Resolved, RunOptions, Tally};
use brambling_machine::Ledger;
pub use brambling_operators::map_reduce::fold_table::ReduceFunction;
pub use brambling_operators::map_reduce::items::MapFunction;
pub use brambling_operators::map_reduce::pairs::FoldedPairs;
use brambling_operators::map_reduce::text_files::{SPLIT_BYTES, TextFile, TextFiles};
use brambling_operators::map_reduce::{BLOCK_BYTES, MapReduceSteps, TABLE_BYTES};
use brambling_program::Program;
use brambling_storage::{FileError, InputFile, Staging, remove_leftovers};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
pub use written::write_parts;

/// The most partitions of a result.
pub const PARTITIONS_MAX: u32 = 4_096;
/// A partition's share of the text where nobody says how many there are.
const PARTITION_BYTES: u64 = 64 << 20;
const PARTITIONS_FOUND_MAX: u64 = 64;
/// A map's table is worth its work from here on.
const TABLE_BYTES_MIN: u64 = 64 << 10;

/// What is done to the text of files, and where the result goes.
#[derive(Clone, Debug, Default)]
pub struct MapReduce {
    /// What each file is cut into: an item is a key, with the value 1.
    pub map: MapFunction,
    /// What becomes of the values of a key. It is its own combiner.
    pub reduce: ReduceFunction,
    /// A directory that appears when all is written, of a file `part-NNNNN` for each partition, with a line `key<TAB>value` for each
    /// key. None: the result stays in memory.
    pub output: Option<PathBuf>,
    /// Partitions of the result, 1 to 4,096. None: one for each 64 MiB of text, at most 64.
    pub partitions: Option<u32>,
    /// Whether what maps give is written to a file of `run_directory` before it is sent.
    pub backup: bool,
    /// How many copies of the output there are, each written by another worker; 0 is 1.
    pub replication: u32,
    /// Where files without names are made: backups, and what finds no room in memory. None: the directory of the setting `spill`,
    /// else that of the system.
    pub run_directory: Option<PathBuf>,
    /// How finely the work is cut. No result depends on it.
    pub grain: Grain,
}

/// How finely the work of map-reduce is cut.
#[derive(Clone, Copy, Debug)]
pub struct Grain {
    /// Bytes of a split, unless there would be more than 256.
    pub split_bytes: u64,
    /// Bytes of keys and values that a split folds before it sends them, at most 2 MiB.
    pub table_bytes: u64,
    /// Bytes that are read at once.
    pub block_bytes: u64,
}

impl Default for Grain {
    fn default() -> Grain {
        Grain {
            split_bytes: SPLIT_BYTES,
            table_bytes: TABLE_BYTES,
            block_bytes: BLOCK_BYTES,
        }
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapReduceError {
    /// Nothing was named.
    #[error("no file is given; name at least one")]
    NoFiles,
    /// So many partitions there cannot be.
    #[error("partitions = {partitions} is not usable: give 1 to {PARTITIONS_MAX}, or leave it out")]
    Partitions {
        /// What was asked for.
        partitions: u32,
    },
    /// Copies of the output have to be written by others.
    #[error(
        "replication = {replication} is not usable: each copy of the output is written by another worker, and map-reduce writes its \
         parts on one; leave it out, and copy the directory when it is there"
    )]
    Replication {
        /// What was asked for.
        replication: u32,
    },
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The job did not give its result.
    #[error(transparent)]
    Run(#[from] Error),
}

impl MapReduceError {
    /// As an error of files, where it is one.
    pub fn as_io(&self) -> Option<io::Error> {
        let MapReduceError::File(error) = self else {
            return None;
        };
        let kind = match error {
            FileError::Failed { kind, .. } => *kind,
            _ => io::ErrorKind::Other,
        };
        Some(io::Error::new(kind, error.to_string()))
    }
}

/// What came out.
#[derive(Debug)]
#[non_exhaustive]
pub struct MapReduced {
    /// The pairs of each partition, in the order of their keys' bytes; none where they were written.
    pub partitions: Vec<FoldedPairs>,
    /// The files that were written, one for each partition.
    pub files: Vec<PathBuf>,
    /// How many keys there are.
    pub keys: u64,
    /// Bytes of the text.
    pub bytes: u64,
    /// What the job did.
    pub tally: Tally,
    /// What it did and where its time went: a report's input.
    pub ledger: Ledger,
}

impl MapReduced {
    /// All pairs, in the order of their keys' bytes.
    pub fn sorted(&self) -> Vec<(&[u8], u64)> {
        let mut pairs: Vec<_> = self.partitions.iter().flat_map(FoldedPairs::iter).collect();
        // A stable sort finds the partitions' order and merges them.
        pairs.sort();
        pairs
    }
}

/// Runs a map over the text of files, and reduces what it gives by key. Ctrl-C ends it early.
///
/// ```
/// use brambling::map_reduce::{MapReduce, map_reduce};
/// use brambling::{QuietCaller, RunOptions};
///
/// let path = std::env::temp_dir().join("brambling-map-reduce-example.txt");
/// std::fs::write(&path, "to be or\nnot to be\n")?;
/// let counted = map_reduce(&[&path], &MapReduce::default(), &RunOptions::new(), &mut QuietCaller)?;
/// assert_eq!(counted.sorted(), [(&b"be"[..], 2), (b"not", 1), (b"or", 1), (b"to", 2)]);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Movement
/// A split's pairs are folded by key where it is read, and cross the network once, to the partition of their key's hash. On a cluster
/// all workers see the files, and the output's directory, under the same names.
///
/// # Errors
/// A file that cannot be read, an output that is there already, or how the job failed.
pub fn map_reduce(
    files: &[impl AsRef<Path>],
    how: &MapReduce,
    options: &RunOptions,
    caller: &mut dyn Caller,
) -> Result<MapReduced, MapReduceError> {
    let settings = options.resolve()?;
    let files = look_at(files)?;
    let partitions = how.checked_partitions(&files, &settings)?;
    let splits = files.splits(how.grain.split_bytes);
    let staging = how.output.as_deref().map(begin).transpose()?;
    let run_directory = how.run_directory(&settings)?;
    let steps = MapReduceSteps {
        map: how.map,
        reduce: how.reduce,
        backup: how.backup,
        run_directory: run_directory.as_os_str().as_bytes().to_vec(),
        output: staging.as_ref().map(|it| (it.out.clone(), it.key.clone())),
        table_bytes: how.table_bytes(splits, &settings),
        block_bytes: how.grain.block_bytes.clamp(1, TABLE_BYTES),
    };
    let bytes = files.bytes();
    let mut p = Program::new("map-reduce");
    let pairs = steps.build(&mut p, files, splits, partitions);
    p.keep(&pairs);
    let run = ProgramRun {
        options,
        caller: Some(caller),
    };
    let mut outcome = run.run(p).inspect_err(|_| abandon(staging.as_ref()))?;
    let partitions = outcome.take_all(&pairs);
    if let Some(staging) = &staging {
        staging.staging.commit()?;
    }
    let part = |index| {
        let output = how.output.as_ref()?;
        Some(output.join(format!("part-{index:05}")))
    };
    Ok(MapReduced {
        files: (0..partitions.len()).filter_map(part).collect(),
        keys: partitions
            .iter()
            .map(|it| it.len() as u64 + it.written())
            .sum(),
        partitions,
        bytes,
        tally: outcome.tally(),
        ledger: outcome.ledger(),
    })
}

impl MapReduce {
    fn checked_partitions(
        &self,
        files: &TextFiles,
        settings: &Resolved,
    ) -> Result<u32, MapReduceError> {
        if self.replication > 1 {
            let replication = self.replication;
            return Err(MapReduceError::Replication { replication });
        }
        let found = files.bytes().div_ceil(PARTITION_BYTES);
        let found = found.clamp(1, PARTITIONS_FOUND_MAX) as u32;
        let partitions = self.partitions.or(settings.partitions).unwrap_or(found);
        match partitions {
            1..=PARTITIONS_MAX => Ok(partitions),
            _ => Err(MapReduceError::Partitions { partitions }),
        }
    }

    /// All splits' tables together take at most half of the memory.
    fn table_bytes(&self, splits: u32, settings: &Resolved) -> u64 {
        let share = settings.memory_bytes / (8 * u64::from(splits));
        let table = self.grain.table_bytes.min(TABLE_BYTES);
        table.min(share.max(TABLE_BYTES_MIN)).max(1)
    }

    fn run_directory(&self, settings: &Resolved) -> Result<PathBuf, MapReduceError> {
        let spill = settings.spill.as_ref().map(|it| it.directory.clone());
        let directory = self.run_directory.clone().or(spill);
        let directory = absolute(&directory.unwrap_or_else(std::env::temp_dir));
        if self.backup {
            // Told before the job begins.
            brambling_storage::OutputFile::unnamed(&directory)?;
        }
        Ok(directory)
    }
}

/// What stands there before the job.
fn look_at(files: &[impl AsRef<Path>]) -> Result<TextFiles, MapReduceError> {
    if files.is_empty() {
        return Err(MapReduceError::NoFiles);
    }
    let look = |file: &dyn AsRef<Path>| {
        let found = InputFile::open(file.as_ref())?.fingerprint();
        let path = absolute(file.as_ref());
        Ok(TextFile::new(&path, found.bytes, found.changed_ns))
    };
    let files: Result<_, FileError> = files.iter().map(|file| look(file)).collect();
    Ok(TextFiles(files?))
}

/// Workers of a cluster may have another working directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// An output that is being written.
struct OutputBegun {
    staging: Staging,
    out: Vec<u8>,
    key: String,
}

fn begin(out: &Path) -> Result<OutputBegun, MapReduceError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let out = absolute(out);
    if let Some(beside) = out.parent() {
        // What a killed job left there. Where it cannot be looked for, the directory cannot be made either, and that is told.
        let _ = remove_leftovers(beside);
    }
    // Relaxed: only that no two are equal matters.
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let key = format!("map-reduce-{}-{count}", std::process::id());
    Ok(OutputBegun {
        staging: Staging::begin(&out, &key)?,
        out: out.as_os_str().as_bytes().to_vec(),
        key,
    })
}

/// The job has failed, and its error is what matters: what stays of the directory, the next start removes.
fn abandon(output: Option<&OutputBegun>) {
    if let Some(output) = output {
        let _ = output.staging.abandon();
    }
}
