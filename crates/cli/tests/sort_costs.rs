//! `brambling bench sort-costs` in its smallest form: every feature is there, and adds what it should.
//!
//! The bench starts workers by the command that its host names. That is this test's own binary, so it has no harness.

use brambling::cluster::{Prints, Source};
use brambling::program::Program;
use brambling::{Caller, QuietCaller};
use brambling_cli::{FAILED, Host, OK, main_to};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use std::process::exit;

/// Workers link the sort's program: clients describe none.
struct Linked;

impl Source for Linked {
    fn program(&self, _: &[u8], _: &Prints) -> Result<Program, String> {
        Err("no program is described".into())
    }
    fn caller(&self) -> Box<dyn Caller> {
        Box::new(QuietCaller)
    }
}

struct Own;

impl Host for Own {
    fn run_script(&mut self, _: &Path, _: &[String]) -> u8 {
        FAILED
    }
    fn examples(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn run_example(&mut self, _: &str, _: &[String]) -> u8 {
        FAILED
    }
    fn versions(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn source(&self) -> Option<Box<dyn Source>> {
        Some(Box::new(Linked))
    }
    fn interrupted(&mut self) -> bool {
        false
    }
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("worker") {
        exit(brambling_cli::main(std::env::args_os(), &mut Own).into());
    }
    every_feature_is_there_and_adds_what_it_should();
    what_only_this_bench_has_is_refused_elsewhere();
}

fn call(line: &str) -> (u8, String, String) {
    let args = line.split_whitespace().map(OsString::from);
    // The first word is the command's name: workers are started by this process's.
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = main_to(args, &mut Own, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(out), text(err))
}

fn is_figure(value: &Value) {
    let number = |key: &str| value[key].as_f64().unwrap_or_else(|| panic!("{value}"));
    let (min, median, max) = (number("min"), number("median"), number("max"));
    assert!(0.0 < min && min <= median && median <= max, "{value}");
}

fn every_feature_is_there_and_adds_what_it_should() {
    let (code, out, err) = call("brambling bench sort-costs --smoke --threads 2 --json");
    assert_eq!((code, &*err), (OK, ""));
    let report: Value = serde_json::from_str(&out).unwrap();
    let bytes = report["bytes"].as_u64().unwrap();
    assert_eq!(Some(bytes), report["records"].as_u64().map(|it| 100 * it));
    ["/plain_seconds", "/copy_seconds"]
        .iter()
        .for_each(|it| is_figure(report.pointer(it).unwrap()));
    let costs = report["costs"].as_array().unwrap();
    assert_eq!(report["features"].as_u64(), Some(costs.len() as u64));
    let found = costs.iter().map(|cost| {
        ["seconds", "without_seconds", "over_plain"]
            .iter()
            .for_each(|key| is_figure(&cost[key]));
        let adds = |key: &str| cost[key].as_u64().unwrap() / bytes;
        let name = cost["name"].as_str().unwrap();
        let times = (adds("adds_written_bytes"), adds("adds_read_bytes"));
        (name, times)
    });
    // How often the input's bytes are written and read once more. An external sort keeps some in memory.
    let expected = [
        ("backup", (1, 0)),
        ("replication", (1, 0)),
        ("checksums", (0, 0)),
        ("external", (0, 0)),
        ("stability", (0, 0)),
        ("spilling", (1, 1)),
        ("dynamic splits", (0, 0)),
    ];
    assert_eq!(found.collect::<Vec<_>>(), expected);
    let external = &costs[3];
    for key in ["adds_written_bytes", "adds_read_bytes"] {
        assert!(external[key].as_u64() > Some(bytes / 4), "{external}");
    }
}

fn what_only_this_bench_has_is_refused_elsewhere() {
    for (line, words) in [
        (
            "barrier --rounds 3",
            "no option --rounds; sort-costs has it",
        ),
        ("sort-costs --bytes 1KB", "--bytes is 1000"),
        ("sort-costs --bytes 1", "the unit is missing"),
    ] {
        let (code, _, err) = call(&format!("brambling bench {line}"));
        assert!(code != OK && err.contains(words), "{line}: {err}");
    }
}
