//! Map-reduce over the text of files: finds the files, builds and runs the program, and compares its copies.
//!
//! The stages are `operators`' own, and give the output its name. This module looks at files before the job; it never
//! reads their text.

mod links;
mod written;

use crate::run::ProgramRun;
use crate::sort::job_number;
use crate::{Caller, Error, Resolved, RunOptions, Tally};
use brambling_machine::Ledger;
pub use brambling_operators::map_reduce::fold_table::ReduceFunction;
pub use brambling_operators::map_reduce::items::MapFunction;
pub use brambling_operators::map_reduce::pairs::FoldedPairs;
use brambling_operators::map_reduce::text_files::{SPLIT_BYTES, TextFile, TextFiles};
use brambling_operators::map_reduce::{BLOCK_BYTES, MapReduceSteps, TABLE_BYTES, left_of};
use brambling_operators::parts::{CopyFault, CopyPlan};
use brambling_program::Program;
use brambling_storage::{FileError, InputFile, Staging, remove_leftovers};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
pub use written::PartsWriter;

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
    /// On how many workers of a cluster the output is: the copies of parts lie in directories of their own below the output's. 0 is 1.
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
    /// Bytes of keys and values that a split folds before it sends them, at most 16 MiB.
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
    /// Copies are of files.
    #[error(
        "replication = {replication} is not usable without output: copies are of the parts that are written; name an output, or leave \
         replication out"
    )]
    NoOutput {
        /// How often the output was to be stored.
        replication: u32,
    },
    /// More copies than workers.
    #[error(
        "replication = {replication} needs {replication} workers, and there {}: start more, or ask for fewer copies",
        if *.workers == 1 { "is 1".to_owned() } else { format!("are {workers}") }
    )]
    TooFewWorkers {
        /// How often the output was to be stored.
        replication: u32,
        /// How many workers there are.
        workers: u32,
    },
    /// Parts that cannot be dealt to workers evenly.
    #[error(
        "partitions = {partitions} is not usable with replication: parts and their copies are dealt evenly to {workers} workers; give a \
         multiple of {workers}, or leave it out"
    )]
    UnevenParts {
        /// What was asked for.
        partitions: u32,
        /// How many workers there are.
        workers: u32,
    },
    /// Copies are not what they are to be.
    #[error(transparent)]
    Copies(#[from] CopyFault),
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
/// A split's pairs are folded by key where it is read, and cross the network once, to the partition of their key's hash. Copies of parts
/// cross it once more each. On a cluster all workers see the files under the same names; each writes its parts, and copies of parts of
/// others, below the name of the output on its own disk, or on one that all see.
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
    let on = RunsOnWorkers::of(options, &settings)?;
    let parts = how.parts(&files, &settings, on.workers)?;
    let bytes = files.bytes();
    let splits = files.splits(how.grain.split_bytes);
    let run_directory = how.run_directory(&settings)?;
    // One more than threads: one waits for its disk, or for room, while others map.
    let at_once = (on.threads + 1).min(splits);
    let steps = MapReduceSteps {
        job: job_number(),
        map: how.map,
        reduce: how.reduce,
        backup: how.backup,
        run_directory: bytes_of(&run_directory),
        output: how.output.as_deref().map(|it| bytes_of(&absolute(it))),
        parts,
        at_once,
        table_bytes: how.table_bytes(at_once, &settings),
        block_bytes: how.grain.block_bytes.clamp(1, TABLE_BYTES),
    };
    let begun = match (&how.output, on.is_here) {
        (Some(output), true) => Some(begin(output, &steps.key())?),
        _ => None,
    };
    let mut p = Program::new("map-reduce").acting();
    let job = steps.build(&mut p, files, splits);
    let run = ProgramRun {
        options: &match (on.is_here, &settings.spill) {
            // With a small budget chunks on their way may find no room.
            (true, None) => options.clone().spill_to(&run_directory),
            _ => options.clone(),
        },
        caller: Some(caller),
    };
    let mut outcome = run.run(p).inspect_err(|_| abandon(begun.as_ref()))?;
    let partitions = outcome.take_all(&job.folded);
    if let Some(copied) = &job.copied {
        parts.check(&partitions, &outcome.take_all(copied))?;
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

/// Where a job runs.
struct RunsOnWorkers {
    is_here: bool,
    workers: u32,
    /// Of each of them, about.
    threads: u32,
}

impl RunsOnWorkers {
    fn of(options: &RunOptions, settings: &Resolved) -> Result<RunsOnWorkers, MapReduceError> {
        let Some(cluster) = options.cluster() else {
            return Ok(RunsOnWorkers {
                is_here: true,
                workers: 1,
                threads: settings.threads,
            });
        };
        let status = cluster.status().map_err(Error::from)?;
        let workers = status.workers.len() as u32;
        let threads: u32 = status.workers.iter().map(|worker| worker.threads).sum();
        Ok(RunsOnWorkers {
            is_here: false,
            workers,
            threads: threads.div_ceil(workers.max(1)),
        })
    }
}

impl MapReduce {
    /// Parts of the result, and where copies of them go.
    fn parts(
        &self,
        files: &TextFiles,
        settings: &Resolved,
        workers: u32,
    ) -> Result<CopyPlan, MapReduceError> {
        let replication = self.replication.max(1);
        if replication > workers.max(1) {
            return Err(MapReduceError::TooFewWorkers {
                replication,
                workers,
            });
        }
        if replication > 1 && self.output.is_none() {
            return Err(MapReduceError::NoOutput { replication });
        }
        let asked = self.partitions.or(settings.partitions);
        let found = files.bytes().div_ceil(PARTITION_BYTES);
        let found = found.clamp(1, PARTITIONS_FOUND_MAX) as u32;
        let parts = match asked {
            Some(partitions @ 1..=PARTITIONS_MAX) => partitions,
            Some(partitions) => return Err(MapReduceError::Partitions { partitions }),
            None if replication > 1 => found.next_multiple_of(workers),
            None => found,
        };
        if replication > 1 && !parts.is_multiple_of(workers) {
            return Err(MapReduceError::UnevenParts {
                partitions: parts,
                workers,
            });
        }
        Ok(CopyPlan {
            parts,
            copies: replication - 1,
            workers,
        })
    }

    /// All tables of the splits that are mapped at once, of which each needs four times its bytes as it grows, take at most
    /// three eighths of the memory.
    fn table_bytes(&self, at_once: u32, settings: &Resolved) -> u64 {
        let share = left_of(settings.memory_bytes) / (32 * u64::from(at_once)) * 3;
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

fn bytes_of(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
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

/// Begins an output of this process: what stands in its way is told before the job.
fn begin(out: &Path, key: &str) -> Result<Staging, MapReduceError> {
    let out = absolute(out);
    if let Some(beside) = out.parent() {
        // What a killed job left there. Where it cannot be looked for, the directory cannot be made either, and that is told.
        let _ = remove_leftovers(beside);
    }
    Ok(Staging::begin(&out, key)?)
}

/// The job has failed, and its error is what matters: what stays of the directory, the next start removes.
fn abandon(staging: Option<&Staging>) {
    if let Some(staging) = staging {
        let _ = staging.abandon();
    }
}
