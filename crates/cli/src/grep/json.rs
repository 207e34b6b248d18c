//! What is found as lines of JSON, with the keys of ripgrep's.
//!
//! This module owns the five kinds of messages: `begin`, `match`, `context` and `end` of a file with a match, and one
//! `summary`. [`super::Printing`] calls it. Text that is UTF-8 is `{"text": …}`, other bytes are `{"bytes": …}` in base64.

use super::Shows;
use super::report::GrepReport;
use base64::prelude::{BASE64_STANDARD, Engine};
use brambling::grep::{FileStitch, GrepLine, GrepSummary, LineMatcher, ListedFile};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{Result, Write};
use std::time::Duration;

pub(super) struct JsonLines {
    /// None: what is selected has no match.
    matcher: Option<LineMatcher>,
    /// Whether the file has been begun.
    has_begun: bool,
}

#[derive(Serialize)]
struct Message {
    #[serde(rename = "type")]
    kind: &'static str,
    data: Value,
}

impl JsonLines {
    pub(super) fn new(matcher: Option<LineMatcher>) -> JsonLines {
        JsonLines {
            matcher,
            has_begun: false,
        }
    }
}

fn write(out: &mut dyn Write, kind: &'static str, data: Value) -> Result<()> {
    serde_json::to_writer(&mut *out, &Message { kind, data })?;
    out.write_all(b"\n")
}

fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "bytes": BASE64_STANDARD.encode(bytes) }),
    }
}

impl Shows for JsonLines {
    fn begin(&mut self, _: &mut dyn Write, _: &ListedFile) -> Result<()> {
        self.has_begun = false;
        Ok(())
    }

    fn line(&mut self, out: &mut dyn Write, file: &ListedFile, line: &GrepLine<'_>) -> Result<()> {
        let path = text(&file.path);
        if !std::mem::replace(&mut self.has_begun, true) {
            write(out, "begin", json!({ "path": path }))?;
        }
        let matcher = self.matcher.as_ref().filter(|_| line.selected);
        let matches = matcher.map(|matcher| matcher.matches_in(line.bytes));
        let submatches = matches.into_iter().flatten().map(|found| {
            let (start, end) = (found.start, found.end);
            json!({ "match": text(&line.bytes[found]), "start": start, "end": end })
        });
        let submatches: Vec<Value> = submatches.collect();
        let data = json!({
            "path": path,
            "lines": text(line.bytes),
            "line_number": line.number,
            "absolute_offset": line.offset,
            "submatches": submatches,
        });
        write(out, if line.selected { "match" } else { "context" }, data)
    }

    fn end(
        &mut self,
        out: &mut dyn Write,
        file: &ListedFile,
        found: &FileStitch,
        bytes: u64,
    ) -> Result<()> {
        if found.selected() == 0 {
            return Ok(());
        }
        let path = text(&file.path);
        if !self.has_begun {
            write(out, "begin", json!({ "path": path }))?;
        }
        let stats = json!({ "bytes_searched": bytes, "matched_lines": found.selected() });
        let data = json!({ "path": path, "binary_offset": found.binary_from(), "stats": stats });
        write(out, "end", data)
    }

    fn finish(
        &mut self,
        out: &mut dyn Write,
        found: &GrepSummary,
        report: &GrepReport,
    ) -> Result<()> {
        let took = Duration::from_secs_f64(report.seconds);
        let mut data = json!(report);
        let stats = json!({
            "searches": found.files,
            "searches_with_match": found.matched_files,
            "matched_lines": found.selected,
            "bytes_searched": found.searched_bytes,
        });
        data["elapsed_total"] = json!({ "secs": took.as_secs(), "nanos": took.subsec_nanos() });
        data["stats"] = stats;
        write(out, "summary", data)
    }
}
