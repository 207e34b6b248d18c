//! How the sort of each variant is run, and that its result is right. The rounds of [`super`] drive it.

use crate::BenchError;
use crate::cluster::Running;
use crate::session::Session;
use brambling::RunOptions;
use brambling::sort::{RecordFormat, RecordSummary, Sort, Sorted, SplitPlanning, check_files};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Workers of the sorts that have any.
const WORKERS: u32 = 2;
/// A sort has at least so much memory.
const MEMORY_BYTES_MIN: u64 = 16 << 20;

/// A sort with one feature more or less than the plain one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Variant {
    /// In memory, in this process; stable, with dynamic splits.
    Plain,
    Backup,
    Checksums,
    /// With a quarter of the input's bytes as memory.
    External,
    /// Every chunk on its way goes by the disk.
    Spilling,
    Unstable,
    StaticSplits,
    /// On workers, which have the threads of this process together.
    TwoWorkers,
    /// The same, each part stored on both.
    Replicated,
}

impl Variant {
    pub(super) const ALL: [Variant; 9] = [
        Variant::Plain,
        Variant::Backup,
        Variant::Checksums,
        Variant::External,
        Variant::Spilling,
        Variant::Unstable,
        Variant::StaticSplits,
        Variant::TwoWorkers,
        Variant::Replicated,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Variant::Plain => "plain",
            Variant::Backup => "with a backup",
            Variant::Checksums => "with checksums",
            Variant::External => "with a quarter of the memory",
            Variant::Spilling => "with chunks spilled",
            Variant::Unstable => "unstable",
            Variant::StaticSplits => "with static splits",
            Variant::TwoWorkers => "on two workers",
            Variant::Replicated => "on two workers, each part on both",
        }
    }

    fn is_on_workers(self) -> bool {
        matches!(self, Variant::TwoWorkers | Variant::Replicated)
    }
}

/// Bytes of files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    pub(super) written_bytes: u64,
    pub(super) read_bytes: u64,
}

impl Moved {
    fn of(sorted: &Sorted) -> Moved {
        let there_and_back = sorted.run_bytes + sorted.spilled_bytes;
        let written = sorted.bytes + sorted.backup_bytes + sorted.copied_bytes;
        Moved {
            written_bytes: written + there_and_back,
            read_bytes: sorted.input_bytes + there_and_back,
        }
    }
}

/// The input, and where it is sorted.
pub(super) struct Sorting {
    folder: PathBuf,
    input: PathBuf,
    records: u64,
    bytes: u64,
    /// What a check of the input finds.
    expected: RecordSummary,
    threads: u32,
    running: Running,
    /// Whose output was checked byte by byte.
    checked: RefCell<BTreeSet<Variant>>,
}

impl Sorting {
    pub(super) fn new(
        session: &mut Session<'_>,
        folder: &Path,
        input: &Path,
        records: u64,
    ) -> Result<Sorting, BenchError> {
        let threads = session.threads;
        let expected = summary(session, threads, &[input.into()])?;
        let bytes = fs::metadata(input).map_err(|error| session.system(error))?;
        Ok(Sorting {
            folder: folder.into(),
            input: input.into(),
            records,
            bytes: bytes.len(),
            expected,
            threads,
            running: session.start_fixed_workers(WORKERS, (threads / WORKERS).max(1))?,
            checked: RefCell::default(),
        })
    }

    /// Sorts once; the output is checked and removed after that. Gives the seconds, and what was read and written.
    pub(super) fn sample(
        &self,
        session: &mut Session<'_>,
        variant: Variant,
    ) -> Result<(f64, Moved), BenchError> {
        let output = self.folder.join("sorted");
        let (sort, options) = self.sort(variant, &output);
        let sorted = session.sort(|caller| sort.run_with(&options, caller))?;
        self.look_at(session, variant, &sorted)?;
        if self.checked.borrow_mut().insert(variant) {
            self.check(session, variant, &output)?;
        }
        remove(&output).map_err(|error| session.system(error))?;
        Ok((sorted.seconds, Moved::of(&sorted)))
    }

    fn sort(&self, variant: Variant, output: &Path) -> (Sort, RunOptions) {
        let sort = Sort::new([&self.input], output);
        let here = RunOptions::new().threads(self.threads);
        let there = || RunOptions::new().on(&self.running.cluster);
        match variant {
            Variant::Plain => (sort, here),
            Variant::Backup => (sort.backup(true), here),
            Variant::Checksums => (sort.checksums(true), here),
            Variant::External => {
                let memory = (self.bytes / 4).max(MEMORY_BYTES_MIN);
                (sort, here.memory(memory.to_string()))
            }
            Variant::Spilling => (sort.exchange_memory(0), here),
            Variant::Unstable => (sort.stable(false), here),
            Variant::StaticSplits => (sort.splits(SplitPlanning::Static), here),
            Variant::TwoWorkers => (sort, there()),
            Variant::Replicated => (sort.replication(WORKERS), there()),
        }
    }

    /// The sort did what its variant says, and nothing else that would take its time.
    fn look_at(
        &self,
        session: &Session<'_>,
        variant: Variant,
        sorted: &Sorted,
    ) -> Result<(), BenchError> {
        let (records, bytes) = (sorted.records, sorted.bytes);
        session.check((records, bytes) == (self.records, self.bytes), || {
            let (all, length) = (self.records, self.bytes);
            format!("{records} records of {bytes} bytes were sorted, not {all} of {length}")
        })?;
        let name = variant.name();
        let is_external = variant == Variant::External;
        session.check((sorted.run_bytes > 0) == is_external, || match is_external {
            true => format!("the sort {name} wrote no runs: give more --bytes"),
            false => format!(
                "the sort {name} wrote runs, as its memory is too small: set BRAMBLING_MEMORY to more, or give fewer --bytes"
            ),
        })?;
        let spills = variant == Variant::Spilling;
        session.check((sorted.spilled_bytes > 0) == spills || is_external, || {
            let spilled = sorted.spilled_bytes;
            format!("chunks of {spilled} bytes were spilled by the sort {name}")
        })?;
        let of = |is: bool| match is {
            true => self.bytes,
            false => 0,
        };
        let expected = (
            of(variant == Variant::Backup),
            of(variant == Variant::Replicated),
        );
        let found = (sorted.backup_bytes, sorted.copied_bytes);
        session.check(found == expected, || {
            format!("the sort {name} wrote backups and copies of {found:?} bytes, not {expected:?}")
        })
    }

    /// The output has the input's records, in order.
    fn check(
        &self,
        session: &mut Session<'_>,
        variant: Variant,
        output: &Path,
    ) -> Result<(), BenchError> {
        let parts = match variant.is_on_workers() {
            false => Ok(vec![output.to_owned()]),
            true => parts(output),
        };
        let parts = parts.map_err(|error| session.system(error))?;
        let found = summary(session, self.threads, &parts)?;
        let is_right = found.fault.is_none()
            && (found.records, found.checksum) == (self.expected.records, self.expected.checksum);
        session.check(is_right, || {
            let expected = &self.expected;
            format!(
                "the output of the sort {} is not the sorted input: {found:?}, and the input is {expected:?}",
                variant.name()
            )
        })
    }
}

fn summary(
    session: &mut Session<'_>,
    threads: u32,
    files: &[PathBuf],
) -> Result<RecordSummary, BenchError> {
    let options = RunOptions::new().threads(threads);
    let format = RecordFormat::default();
    let checked = session.sort(|caller| check_files(files, format, &options, caller))?;
    Ok(checked.summary)
}

/// The files of an output's directory, in order; copies are in directories of their own.
fn parts(output: &Path) -> io::Result<Vec<PathBuf>> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(output)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            parts.push(entry.path());
        }
    }
    parts.sort();
    Ok(parts)
}

fn remove(output: &Path) -> io::Result<()> {
    match fs::metadata(output)?.is_dir() {
        true => fs::remove_dir_all(output),
        false => fs::remove_file(output),
    }
}
