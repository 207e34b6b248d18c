//! Sorting files: drives the program of `operators::sort::job` in this process or on a cluster, and
//! has its output appear when it is whole.

mod checked;
mod choices;
mod error;
mod links;
mod made;
mod progress;

pub use checked::{Checked, OrderFault, RecordSummary, check_files};
pub use choices::SplitPlanning;
pub use error::SortError;
pub use made::{MadeFile, make_file};
pub use progress::{SortAdvance, SortProgress, SortedBytes};

use crate::cluster::Cluster;
use crate::run::ProgramRun;
use crate::{Caller, Error, RunOptions};
use brambling_operators::parts::PartCount;
use brambling_operators::sort::job::{
    self, SortCount, SortInput, SortOutput, SortPlan, SortShared,
};
pub use brambling_operators::sort::{LineOrder, RecordFormat, Skew};
use brambling_program::Program;
use brambling_storage::{InputFile, OutputFile, remove_leftovers};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A sort of files.
///
/// ```
/// use brambling::RunOptions;
/// use brambling::sort::{LineOrder, RecordFormat, Sort};
///
/// let directory = std::env::temp_dir().join(format!("brambling-sort-{}", std::process::id()));
/// std::fs::create_dir_all(&directory)?;
/// let (from, to) = (directory.join("names"), directory.join("sorted"));
/// std::fs::write(&from, "linnet\nbrambling\nsiskin\n")?;
/// let sort = Sort::new([&from], &to).format(RecordFormat::lines(None, None, LineOrder::C)?);
/// let sorted = sort.run(&RunOptions::new().threads(2))?;
/// assert_eq!(std::fs::read_to_string(&to)?, "brambling\nlinnet\nsiskin\n");
/// assert_eq!(sorted.records, 3);
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sort {
    inputs: Vec<PathBuf>,
    output: PathBuf,
    format: RecordFormat,
    tmp: Option<PathBuf>,
    backup: bool,
    checksums: bool,
    replication: u32,
    is_local: bool,
    is_unstable: bool,
    splits: SplitPlanning,
    exchange_bytes_max: Option<u64>,
    progress: SortProgress,
}

/// What a sort did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sorted {
    /// Records.
    pub records: u64,
    /// Bytes of the input.
    pub input_bytes: u64,
    /// Bytes of the output: the last line of a file may have got its end.
    pub bytes: u64,
    /// Bytes that went to runs, since memory was too small, and came back.
    pub run_bytes: u64,
    /// Bytes that were written as a backup.
    pub backup_bytes: u64,
    /// Bytes of the output's copies.
    pub copied_bytes: u64,
    /// Bytes of chunks on their way that found no room in memory, and went to the disk and back.
    pub spilled_bytes: u64,
    /// Bytes that extents, records on their way to their parts, had beside their records: the
    /// schema's fingerprint, their lengths and places ÷ the records' bytes. What frames of the
    /// network add is not in it. (Krevat et al., §7: 4 %, of a file's extents.)
    pub extent_overhead: f64,
    /// From the call to the name of the output, which is on the disk then.
    pub seconds: f64,
    /// Of them, those from the job's end until the one file of a process was on the disk.
    pub output_seconds: f64,
    /// Parts of the output.
    pub parts: u32,
    /// Splits of the input.
    pub splits: u32,
    /// How many processes sorted.
    pub workers: u32,
    /// On how many of them the output is.
    pub replication: u32,
    /// The most memory that one of them has had, in bytes.
    pub peak_rss_bytes: u64,
}

impl Sort {
    /// Sorts the records of these files, one after another, into a file that appears when it is
    /// whole. Records are those of gensort unless [`Sort::format`] says otherwise.
    pub fn new<P: AsRef<Path>>(
        inputs: impl IntoIterator<Item = P>,
        output: impl AsRef<Path>,
    ) -> Sort {
        Sort {
            inputs: inputs.into_iter().map(|it| it.as_ref().into()).collect(),
            output: output.as_ref().into(),
            format: RecordFormat::default(),
            tmp: None,
            backup: false,
            checksums: false,
            replication: 1,
            is_local: false,
            is_unstable: false,
            splits: SplitPlanning::default(),
            exchange_bytes_max: None,
            progress: SortProgress::default(),
        }
    }

    /// What records are, and what of them is the key.
    #[must_use]
    pub fn format(mut self, format: RecordFormat) -> Sort {
        self.format = format;
        self
    }

    /// The directory for runs, where memory is too small. Otherwise the output's.
    #[must_use]
    pub fn tmp(mut self, directory: impl Into<PathBuf>) -> Sort {
        self.tmp = Some(directory.into());
        self
    }

    /// What is read is also written to the directory for runs, once partitioned, before it counts
    /// as sent: the backup write of Krevat et al., Table 3.
    #[must_use]
    pub fn backup(mut self, backup: bool) -> Sort {
        self.backup = backup;
        self
    }

    /// Compares a sum of all records as they are read with that of all records as they are written.
    #[must_use]
    pub fn checksums(mut self, checksums: bool) -> Sort {
        self.checksums = checksums;
        self
    }

    /// On how many workers of a cluster the output is stored: the copies of parts lie in directories of their own below the
    /// output's.
    #[must_use]
    pub fn replication(mut self, replication: u32) -> Sort {
        self.replication = replication;
        self
    }

    /// The input is a file of each worker of a cluster, under the same name everywhere. Otherwise all workers read the same files.
    #[must_use]
    pub fn local(mut self, is_local: bool) -> Sort {
        self.is_local = is_local;
        self
    }

    /// Where the sort tells how far it is, while it runs.
    #[must_use]
    pub fn progress(mut self, progress: &SortProgress) -> Sort {
        self.progress = progress.clone();
        self
    }

    /// Sorts. Ctrl-C ends it early, and leaves nothing behind.
    ///
    /// # Errors
    /// What is wrong with a file, or how the job failed. The inputs are as they were, and nothing
    /// appears under the output's name.
    pub fn run(&self, options: &RunOptions) -> Result<Sorted, SortError> {
        self.run_by(ProgramRun {
            options,
            caller: None,
        })
    }

    /// As [`Sort::run`]; `caller` is asked for interruptions.
    ///
    /// # Errors
    /// As [`Sort::run`].
    pub fn run_with(
        &self,
        options: &RunOptions,
        caller: &mut dyn Caller,
    ) -> Result<Sorted, SortError> {
        self.run_by(ProgramRun {
            options,
            caller: Some(caller),
        })
    }

    fn run_by(&self, run: ProgramRun<'_, '_>) -> Result<Sorted, SortError> {
        match run.options.cluster().cloned() {
            Some(cluster) => self.run_on(&cluster, run),
            None => self.run_here(run),
        }
    }

    fn run_here(&self, run: ProgramRun<'_, '_>) -> Result<Sorted, SortError> {
        let began = Instant::now();
        if self.is_local {
            return Err(SortError::LocalHere);
        }
        if self.replication > 1 {
            return Err(SortError::TooFewWorkers {
                replication: self.replication,
                workers: 1,
            });
        }
        let plan = self.plan(run.options)?;
        // The gates and the output live as long as this: the job's tasks find them by its number.
        let shared = SortShared::of(&plan);
        let output = OutputFile::create(&self.output, Some(plan.input_bytes()))?;
        // What a sort left that was killed where files cannot be without a name.
        remove_leftovers(self.beside())?;
        remove_leftovers(&plan.tmp)?;
        shared.write_to(output.clone());
        // With a small budget chunks on their way may find no room.
        let options = &run.options.clone().spill_to(&plan.tmp);
        let options = &options.clone().exchange_bytes_max(self.exchange_bytes_max);
        let caller = run.caller;
        let _runs = self.progress.begin(&plan, Arc::downgrade(&shared));
        let mut sorted = sort_by(&plan, ProgramRun { options, caller })?;
        let written = Instant::now();
        output.set_bytes(sorted.bytes)?;
        output.publish()?;
        sorted.output_seconds = written.elapsed().as_secs_f64();
        sorted.seconds = began.elapsed().as_secs_f64();
        Ok(sorted)
    }

    /// Sorts on a cluster: each worker reads splits, and writes parts into a directory that appears
    /// when all are whole.
    fn run_on(&self, cluster: &Cluster, run: ProgramRun<'_, '_>) -> Result<Sorted, SortError> {
        let began = Instant::now();
        if self.exchange_bytes_max.is_some() {
            return Err(SortError::ExchangeMemoryThere);
        }
        let status = cluster.status().map_err(Error::from)?;
        let workers = status.workers.len() as u32;
        let threads: u32 = status.workers.iter().map(|worker| worker.threads).sum();
        if workers == 0 || self.replication > workers {
            return Err(SortError::TooFewWorkers {
                replication: self.replication,
                workers,
            });
        }
        let absolute = |path: &Path| {
            std::path::absolute(path).map_err(|source| SortError::Path {
                path: path.to_owned(),
                source,
            })
        };
        let output = absolute(&self.output)?;
        let beside = output.parent().unwrap_or(Path::new("/")).to_owned();
        let mut plan = SortPlan {
            job: job_number(),
            format: self.format,
            inputs: match self.is_local {
                true => self.own_inputs()?,
                false => self.look()?,
            },
            is_local: self.is_local,
            output: SortOutput::Parts(output),
            tmp: self.tmp.clone().unwrap_or(beside),
            at_once: threads.div_ceil(workers) + 2,
            backup: self.backup,
            copies: self.replication.max(1) - 1,
            workers,
            checksums: self.checksums,
            is_unstable: self.is_unstable,
            ..SortPlan::default()
        };
        for input in &mut plan.inputs {
            input.path = absolute(&input.path)?;
        }
        match self.is_local {
            true => plan.cut_for_unknown(threads),
            false => plan.cut_for(threads),
        }
        self.splits.cut(&mut plan, threads);
        let _runs = self.progress.begin(&plan, Weak::new());
        let mut sorted = sort_by(&plan, run)?;
        sorted.seconds = began.elapsed().as_secs_f64();
        Ok(sorted)
    }

    /// The one file that each worker has of its own, under the same path.
    fn own_inputs(&self) -> Result<Vec<SortInput>, SortError> {
        let [path] = self.inputs.as_slice() else {
            return Err(SortError::OneLocal);
        };
        Ok(vec![SortInput {
            path: path.clone(),
            bytes: 0,
        }])
    }

    /// The output's directory.
    fn beside(&self) -> &Path {
        let parent = self.output.parent();
        let named = parent.filter(|it| !it.as_os_str().is_empty());
        named.unwrap_or(Path::new("."))
    }

    /// Looks at the files, and cuts the work.
    fn plan(&self, options: &RunOptions) -> Result<SortPlan, SortError> {
        let inputs = self.look()?;
        let resolved = options.resolve()?;
        let tmp = self.tmp.as_deref().unwrap_or_else(|| self.beside());
        let mut plan = SortPlan {
            job: job_number(),
            format: self.format,
            inputs,
            output: SortOutput::File,
            tmp: tmp.into(),
            at_once: resolved.threads + 2,
            backup: self.backup,
            workers: 1,
            checksums: self.checksums,
            is_unstable: self.is_unstable,
            ..SortPlan::default()
        };
        plan.cut_for(resolved.threads);
        self.splits.cut(&mut plan, resolved.threads);
        Ok(plan)
    }

    fn look(&self) -> Result<Vec<SortInput>, SortError> {
        let look = |path: &PathBuf| {
            let file = InputFile::open(path)?;
            if file.is_same_as(&self.output)? {
                return Err(SortError::OverInput(self.output.clone()));
            }
            looked_at(&file, &self.format)
        };
        self.inputs.iter().map(look).collect()
    }
}

/// Runs a plan, and looks whether what was written is what was read.
fn sort_by(plan: &SortPlan, run: ProgramRun<'_, '_>) -> Result<Sorted, SortError> {
    let mut program = Program::new("sort").acting();
    let job = job::build(&mut program, plan);
    let mut outcome = run.run(program).map_err(SortError::of)?;
    let sum = |counts: &[SortCount]| {
        let counts = counts.iter();
        counts.fold(SortCount::default(), |sum, count| sum.and(count))
    };
    let read = sum(&outcome.take_all(&job.read));
    let parts = outcome.take_all(&job.written);
    let written = sum(&parts);
    if !written.has_records_of(&read) {
        return Err(SortError::Differs {
            read_records: read.records,
            read_bytes: read.bytes,
            records: written.records,
            bytes: written.bytes,
        });
    }
    let copies = job.copied.map(|copied| outcome.take_all(&copied));
    let copies = copies.unwrap_or_default();
    plan.copy_plan().check(&parts, &copies)?;
    let workers = outcome.ledger().workers;
    Ok(Sorted {
        records: written.records,
        input_bytes: match plan.is_local {
            true => read.bytes,
            false => plan.input_bytes(),
        },
        bytes: written.bytes,
        run_bytes: written.run_bytes,
        backup_bytes: read.backup_bytes,
        extent_overhead: read.extent_bytes as f64 / read.bytes.max(1) as f64,
        copied_bytes: copies.iter().map(PartCount::bytes).sum(),
        spilled_bytes: workers.iter().map(|worker| worker.spilled_bytes).sum(),
        peak_rss_bytes: written.peak_rss_bytes,
        seconds: 0.0,
        output_seconds: 0.0,
        parts: plan.parts,
        splits: plan.splits,
        workers: plan.workers,
        replication: plan.copies + 1,
    })
}

/// A file as the input of a job: it has whole records.
fn looked_at(file: &InputFile, format: &RecordFormat) -> Result<SortInput, SortError> {
    let (path, bytes) = (file.path().to_owned(), file.bytes());
    if let Some(width) = format.width().map(|width| width as u64)
        && !bytes.is_multiple_of(width)
    {
        return Err(SortError::CutRecord { path, bytes, width });
    }
    Ok(SortInput { path, bytes })
}

/// A number that no other job of these machines has: the clock's nanoseconds and the process.
pub(crate) fn job_number() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = now.unwrap_or(Duration::ZERO).as_nanos() as u64;
    nanoseconds.rotate_left(20) ^ u64::from(std::process::id()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
