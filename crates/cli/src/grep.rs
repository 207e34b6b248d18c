//! `brambling grep`: lines that match a pattern, in files of any size.
//!
//! This module owns the options, what they come to, and the exit code, which is GNU grep's: 0 when a line was selected, 1
//! when none was, 2 when something was wrong. [`print`] writes lines, [`json`] the same for programs. The search is the
//! engine's.

mod json;
mod options;
mod print;
mod report;

pub(crate) use options::{GrepArguments, HELP};

use crate::{Host, INTERRUPTED, Streams};
use brambling::grep::{FileStitch, GrepError, GrepLine, GrepListener, GrepSummary, ListedFile};
use brambling::machine::Ledger;
use brambling::{Error, Failure, Ledgers, RunOptions};
use report::GrepReport;
use std::io::{BufWriter, ErrorKind, Write};
use std::sync::Arc;
use std::time::Instant;

/// A line was selected.
const FOUND: u8 = 0;
/// None was.
const NOT_FOUND: u8 = 1;
/// Something was wrong.
const TROUBLE: u8 = 2;
/// Whoever read the output has closed it.
const CLOSED: u8 = 141;
const OUT_BYTES: usize = 64 << 10;

/// How what is found is written.
trait Shows {
    fn begin(&mut self, _: &mut dyn Write, _: &ListedFile) -> std::io::Result<()> {
        Ok(())
    }
    fn line(
        &mut self,
        out: &mut dyn Write,
        file: &ListedFile,
        line: &GrepLine<'_>,
    ) -> std::io::Result<()>;
    fn end(
        &mut self,
        out: &mut dyn Write,
        file: &ListedFile,
        found: &FileStitch,
        bytes: u64,
    ) -> std::io::Result<()>;
    fn finish(
        &mut self,
        _: &mut dyn Write,
        _: &GrepSummary,
        _: &GrepReport,
    ) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes what it hears, as it hears it.
struct Printing<'a> {
    shows: Box<dyn Shows>,
    out: BufWriter<&'a mut dyn Write>,
    err: &'a mut dyn Write,
    host: &'a mut dyn Host,
    tells_troubles: bool,
    /// The first selected line is enough.
    first_is_all: bool,
    /// Binary files are told in a message. Otherwise they are told with the results.
    tells_binary: bool,
    found: bool,
    was_interrupted: bool,
    broken: Option<std::io::Error>,
}

impl Printing<'_> {
    fn written(&mut self, result: std::io::Result<()>) {
        if let Err(error) = result {
            self.broken.get_or_insert(error);
        }
    }
}

impl Printing<'_> {
    fn say(&mut self, file: &ListedFile, what: &str) {
        // What came before is read before.
        let flushed = self.out.flush();
        self.written(flushed);
        let path = String::from_utf8_lossy(&file.path);
        let _ = writeln!(self.err, "brambling grep: {path}: {what}");
    }
}

impl GrepListener for Printing<'_> {
    fn begin(&mut self, file: &ListedFile) {
        let written = self.shows.begin(&mut self.out, file);
        self.written(written);
    }

    fn line(&mut self, file: &ListedFile, line: &GrepLine<'_>) {
        if self.broken.is_some() || self.first_is_all {
            return;
        }
        let written = self.shows.line(&mut self.out, file, line);
        self.written(written);
    }

    fn end(&mut self, file: &ListedFile, found: &FileStitch, bytes: u64) {
        self.found |= found.selected() > 0;
        if self.broken.is_none() && !self.first_is_all {
            let written = self.shows.end(&mut self.out, file, found, bytes);
            self.written(written);
            if found.is_binary_match() && self.tells_binary {
                self.say(file, "binary file matches");
            }
        }
    }

    fn trouble(&mut self, file: &ListedFile, why: &str) {
        if self.tells_troubles {
            self.say(file, why);
        }
    }

    fn goes_on(&mut self) -> bool {
        self.was_interrupted |= self.host.interrupted();
        let flushed = self.out.flush();
        self.written(flushed);
        !self.was_interrupted && self.broken.is_none() && !(self.first_is_all && self.found)
    }
}

pub(crate) fn grep(
    arguments: &GrepArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    match run(arguments, host, streams) {
        Ok(code) => code,
        Err(why) => {
            streams.err(format!("brambling grep: {why}"));
            TROUBLE
        }
    }
}

fn run(
    arguments: &GrepArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> Result<u8, String> {
    let what = arguments.what()?;
    if what.query.count_max == Some(0) {
        return Ok(NOT_FOUND);
    }
    let ledgers = Ledgers::default();
    let options = run_options(arguments)?.ledgers(&ledgers);
    let matcher = what.query.matcher().map_err(|error| error.to_string())?;
    let shows = arguments.shows(&what, matcher, streams.is_terminal);
    let mut printing = Printing {
        shows,
        out: BufWriter::with_capacity(OUT_BYTES, &mut *streams.out),
        err: &mut *streams.err,
        host,
        tells_troubles: !arguments.no_messages,
        first_is_all: arguments.quiet,
        tells_binary: !arguments.json,
        found: false,
        was_interrupted: false,
        broken: None,
    };
    let begun = Instant::now();
    let searched = brambling::grep::grep(&what, &options, &mut printing);
    let took = begun.elapsed();
    let summary = match searched {
        Err(GrepError::Run(Error::Failure(Failure::Interrupted))) => return Ok(INTERRUPTED),
        Err(error) => return Err(error.to_string()),
        Ok(summary) => summary,
    };
    // Nobody else is told of it.
    let report = (arguments.json || arguments.stats)
        .then(|| GrepReport::of(&what, &summary, searching(&ledgers), took));
    if !printing.first_is_all {
        let mut written = match &report {
            Some(report) => printing.shows.finish(&mut printing.out, &summary, report),
            None => Ok(()),
        };
        written = written.and_then(|()| printing.out.flush());
        printing.written(written);
    }
    if let Some(report) = report.filter(|_| arguments.stats) {
        let _ = writeln!(printing.err, "{}", report.stats(&summary));
    }
    let Printing {
        out,
        found,
        was_interrupted,
        broken,
        ..
    } = printing;
    // What could not be written is not tried again.
    drop(out.into_parts());
    match broken {
        Some(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(CLOSED),
        Some(error) => return Err(format!("the output cannot be written: {error}")),
        None if was_interrupted => return Ok(INTERRUPTED),
        None => {}
    }
    Ok(match found {
        true if summary.troubles == 0 || arguments.quiet => FOUND,
        _ if summary.troubles > 0 => TROUBLE,
        _ => NOT_FOUND,
    })
}

/// What the search did: before it, on a cluster, a job has listed the files.
fn searching(ledgers: &Ledgers) -> Option<Ledger> {
    let ledger = ledgers.take().pop()?;
    (ledger.program == "grep").then_some(ledger)
}

fn run_options(arguments: &GrepArguments) -> Result<RunOptions, String> {
    let mut options = RunOptions::new();
    if let Some(threads) = arguments.threads {
        options = options.threads(threads);
    }
    if arguments.at.is_given() {
        let at = arguments.at.find().map_err(|error| error.to_string())?;
        let cluster = brambling::cluster::Cluster::connect(&at);
        options = options.on(&Arc::new(cluster.map_err(|error| error.to_string())?));
    }
    Ok(options)
}
