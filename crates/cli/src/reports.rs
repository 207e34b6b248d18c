//! `brambling run --report`: tells, when a script has ended, how near its jobs came to what the machine can do. It writes what
//! was asked for and judges nothing itself.

use crate::args::REPORT_ENDS;
use crate::{FAILED, OK, Streams, USAGE};
use brambling::machine::report::Report;
use std::path::{Path, PathBuf};

/// Jobs that the terminal tells of in a line each.
const TOLD_JOBS_MAX: usize = 20;

/// What is to be told of a script's jobs.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Nothing: no report. Without a name: on the terminal.
    pub(crate) report: Option<Option<PathBuf>>,
    pub(crate) trace: Option<PathBuf>,
}

impl Wanted {
    pub(crate) fn is_any(&self) -> bool {
        self.report.is_some() || self.trace.is_some()
    }

    /// What is wrong with it, before the script runs.
    pub(crate) fn refusal(&self) -> Option<String> {
        let report = self.report.as_ref().and_then(Option::as_deref);
        if let Some(report) = report
            && !ends_with(report, &REPORT_ENDS)
        {
            return Some(format!(
                "error: {} is no name for a report: give one that ends with .html, .json or .txt",
                report.display()
            ));
        }
        let files = report.into_iter().chain(self.trace.as_deref());
        files.filter_map(cannot_be_written).next()
    }

    /// Tells of the jobs that have ended since the script began. The exit code is the script's, unless a file cannot be written.
    pub(crate) fn tell(&self, code: u8, streams: &mut Streams<'_>) -> u8 {
        let reports = crate::run::recorded();
        if reports.is_empty() {
            let why = match code {
                OK => "the script has run no job",
                _ => "no job of the script ended well, and a report is of such",
            };
            streams.err(format!("no report: {why}"));
            return if code == OK { USAGE } else { code };
        }
        let mut failed = false;
        if let Some(report) = &self.report {
            failed |= self
                .tell_report(report.as_deref(), &reports, streams)
                .is_none();
        }
        if let Some(trace) = &self.trace {
            let bytes = match ends_with(trace, &["json"]) {
                true => Report::trace_json_of(&reports).into_bytes(),
                false => Report::trace_of(&reports),
            };
            failed |= write(trace, &bytes, streams).is_none();
        }
        match failed {
            true if code == OK => FAILED,
            _ => code,
        }
    }

    fn tell_report(
        &self,
        to: Option<&Path>,
        reports: &[Report],
        streams: &mut Streams<'_>,
    ) -> Option<()> {
        let text = text(reports);
        let Some(to) = to else {
            streams.out(format!("\n{text}"));
            return Some(());
        };
        let bytes = match to {
            to if ends_with(to, &["json"]) => json(reports),
            to if ends_with(to, &["txt"]) => text,
            _ => Report::html_of(reports),
        };
        write(to, bytes.as_bytes(), streams)?;
        streams.out(format!(
            "\n{}\nreport: {}\n",
            headlines(reports),
            to.display()
        ));
        Some(())
    }
}

/// A line for each job; all of them are told when there are few.
fn headlines(reports: &[Report]) -> String {
    let mut longest: Vec<&Report> = reports.iter().collect();
    longest.sort_by(|one, other| other.actual_seconds.total_cmp(&one.actual_seconds));
    let lines = longest.iter().take(TOLD_JOBS_MAX);
    let mut lines: Vec<String> = lines
        .map(|report| format!("{}: {}", report.program, report.headline()))
        .collect();
    if longest.len() > TOLD_JOBS_MAX {
        let rest = &longest[TOLD_JOBS_MAX..];
        let seconds: f64 = rest.iter().map(|report| report.actual_seconds).sum();
        lines.push(format!(
            "and {} shorter jobs, {seconds:.3} s together",
            rest.len()
        ));
    }
    lines.join("\n")
}

fn text(reports: &[Report]) -> String {
    let longest = reports
        .iter()
        .max_by(|one, other| one.actual_seconds.total_cmp(&other.actual_seconds));
    let longest = longest.map(Report::to_text).unwrap_or_default();
    match reports.len() {
        1 => longest,
        jobs => format!(
            "{jobs} jobs, the longest first\n{}\n\n{longest}",
            headlines(reports)
        ),
    }
}

fn json(reports: &[Report]) -> String {
    let jobs: Vec<String> = reports.iter().map(Report::to_json).collect();
    format!("{{\"version\": 1, \"jobs\": [{}]}}\n", jobs.join(", "))
}

/// Whether a file's name ends with one of these, whatever the case.
pub(crate) fn ends_with(name: &Path, ends: &[&str]) -> bool {
    let end = name.extension().and_then(|end| end.to_str());
    end.is_some_and(|end| ends.iter().any(|it| end.eq_ignore_ascii_case(it)))
}

/// Why a file cannot be written, as far as that can be seen before.
fn cannot_be_written(file: &Path) -> Option<String> {
    let parent = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if file.is_dir() {
        return Some(format!(
            "error: {} is a directory; give the name of a file",
            file.display()
        ));
    }
    (!parent.is_dir()).then(|| {
        format!(
            "error: {} cannot be written: there is no directory {}; make it first",
            file.display(),
            parent.display()
        )
    })
}

fn write(file: &Path, bytes: &[u8], streams: &mut Streams<'_>) -> Option<()> {
    match std::fs::write(file, bytes) {
        Ok(()) => Some(()),
        Err(error) => {
            streams.err(format!(
                "error: {} cannot be written: {error}; give the name of a file in a directory where there is room and you may write",
                file.display()
            ));
            None
        }
    }
}
