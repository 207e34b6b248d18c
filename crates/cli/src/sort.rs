//! `brambling sort`: sorts files, makes files to sort, and looks whether files are sorted.
//!
//! This module owns the command's options and what it says. The engine does the work; nothing here
//! opens a file of records.

mod bar;
mod told;

use crate::cluster::Where;
use crate::shards::{Looks, connect};
use crate::{FAILED, Host, INTERRUPTED, OK, Streams, USAGE};
use bar::SortBar;
use brambling::RunOptions;
use brambling::sort::{LineOrder, RecordFormat, Skew, Sort, SortError, check_files, make_file};
use std::path::PathBuf;
use std::sync::Arc;
use told::SortReport;

pub(crate) const HELP: &str = "\
Examples:
  brambling sort --generate 10000000 records          1 GB of records of 100 bytes, the first 10 their key
  brambling sort records sorted                       sorts them
  brambling sort --check sorted                       order, equal keys and checksum: compare it with that of records
  brambling sort --width 16 --key 8:8 a b both        other records, of two files
  brambling sort --lines names.txt sorted.txt         lines of text, by their bytes
  brambling sort --lines --key 2 --numeric --separator , in.csv out.csv
  brambling sort --memory 4GB --tmp /nvme records sorted

Equal keys keep the order of the input. The output appears under its name when it is whole and on the disk; an old file of that
name is replaced then. Where memory is too small, sorted runs are written to --tmp (else beside the output) and merged.

JSON has `seconds`, `ideal_seconds` and `share_of_ideal` (null where no probe has measured the disk), `bound_by`, `phases`,
`stragglers_seconds`, `stages`, `peak_rss_bytes`, and `records`, `bytes`, `run_bytes`, `extent_overhead`.";

#[derive(clap::Args)]
pub(crate) struct SortArguments {
    /// Files to sort, one after another, and then the output
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Bytes of a record
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 100,
        conflicts_with = "lines"
    )]
    width: u32,
    /// The key: OFFSET:LENGTH in bytes; of lines also a field such as 2, or two such as 2,3
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Records are lines of text
    #[arg(long)]
    lines: bool,
    /// Keys of lines are numbers
    #[arg(long, requires = "lines")]
    numeric: bool,
    /// What separates the fields of a line; otherwise blanks do
    #[arg(long, value_name = "CHARACTER", requires = "lines")]
    separator: Option<String>,
    /// Threads; otherwise as for any job
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Memory budget, such as 4GB; otherwise as for any job
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// A directory for what does not fit in memory; otherwise the output's
    #[arg(long, value_name = "DIR")]
    tmp: Option<PathBuf>,
    /// Also write what the first phase has made to --tmp, against failures
    #[arg(long)]
    backup: bool,
    /// Store the output on so many workers of a cluster
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    replication: u32,
    /// Sort a file of each worker, under the same name everywhere
    #[arg(long)]
    local: bool,
    /// Compare a sum of what was read with that of what was written
    #[arg(long)]
    checksums: bool,
    /// Make a file of so many records
    #[arg(long, value_name = "N", conflicts_with_all = ["check", "lines"])]
    generate: Option<u64>,
    /// How the keys of a file that is made are spread: uniform, zipf, equal, sorted, reversed
    #[arg(long, value_name = "SKEW", requires = "generate")]
    skew: Option<String>,
    /// Look whether these files, one after another, are sorted
    #[arg(long)]
    check: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: Where,
}

impl SortArguments {
    fn format(&self) -> Result<RecordFormat, String> {
        let order = match self.numeric {
            true => LineOrder::Numeric,
            false => LineOrder::C,
        };
        let format = match self.lines {
            true => RecordFormat::lines(self.key.as_deref(), self.separator.as_deref(), order),
            false => match &self.key {
                Some(key) => RecordFormat::fixed(self.width, key),
                // A record that is shorter than gensort's key is all key.
                None => RecordFormat::fixed(self.width, &format!("0:{}", self.width.clamp(1, 10))),
            },
        };
        format.map_err(|error| error.to_string())
    }

    fn options(&self) -> RunOptions {
        let mut options = RunOptions::new();
        if let Some(threads) = self.threads {
            options = options.threads(threads);
        }
        if let Some(memory) = &self.memory {
            options = options.memory(memory);
        }
        options
    }
}

pub(crate) fn sort(
    arguments: &SortArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let format = match arguments.format() {
        Ok(format) => format,
        Err(why) => {
            streams.err(format!("error: {why}"));
            return USAGE;
        }
    };
    if arguments.check {
        return check(arguments, format, host, streams);
    }
    if let Some(records) = arguments.generate {
        return generate(arguments, records, format, host, streams);
    }
    let [inputs @ .., output] = arguments.files.as_slice() else {
        streams.err("error: give the files to sort, and then the output");
        return USAGE;
    };
    if inputs.is_empty() {
        streams.err(format!(
            "error: there is one file, {}: give the files to sort, and then the output",
            output.display()
        ));
        return USAGE;
    }
    let mut sort = Sort::new(inputs, output)
        .format(format)
        .backup(arguments.backup)
        .checksums(arguments.checksums)
        .replication(arguments.replication)
        .local(arguments.local);
    if let Some(tmp) = &arguments.tmp {
        sort = sort.tmp(tmp);
    }
    let ledgers = brambling::Ledgers::default();
    let mut options = arguments.options().ledgers(&ledgers);
    if arguments.at.is_given() {
        match connect(&arguments.at) {
            Ok(cluster) => options = options.on(&Arc::new(cluster)),
            Err(error) => return fail(&error.into(), streams),
        }
    }
    let mut bar = SortBar::new(host, output, !arguments.json);
    let done = sort.progress(bar.progress()).run_with(&options, &mut bar);
    bar.end();
    match done {
        Ok(sorted) => {
            let ledger = ledgers.take().pop();
            let report = SortReport::of(&sorted, ledger, output, arguments.backup);
            streams.out(match arguments.json {
                true => report.json(),
                false => report.text(output),
            });
            OK
        }
        Err(error) => fail(&error, streams),
    }
}

fn fail(error: &SortError, streams: &mut Streams<'_>) -> u8 {
    if error.is_interruption() {
        return INTERRUPTED;
    }
    streams.err(format!("error: {error}"));
    FAILED
}

fn generate(
    arguments: &SortArguments,
    records: u64,
    format: RecordFormat,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let [path] = arguments.files.as_slice() else {
        streams.err("error: --generate makes one file: give one name");
        return USAGE;
    };
    let skew = match arguments.skew.as_deref().map(str::parse::<Skew>) {
        None => Skew::default(),
        Some(Ok(skew)) => skew,
        Some(Err(error)) => {
            streams.err(format!("error: {error}"));
            return USAGE;
        }
    };
    let options = arguments.options();
    match make_file(path, records, format, skew, &options, &mut Looks(host)) {
        Ok(made) => {
            streams.out(told::made(&made, path, arguments.json));
            OK
        }
        Err(error) => fail(&error, streams),
    }
}

fn check(
    arguments: &SortArguments,
    format: RecordFormat,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let options = arguments.options();
    match check_files(&arguments.files, format, &options, &mut Looks(host)) {
        Ok(checked) => {
            streams.out(told::checked(&checked, arguments.json));
            match checked.summary.fault {
                None => OK,
                Some(_) => FAILED,
            }
        }
        Err(error) => fail(&error, streams),
    }
}
