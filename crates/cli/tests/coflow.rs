//! `brambling coflow` as a user calls it.

use brambling_cli::{FAILED, Host, INTERRUPTED, OK, USAGE, main_to};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A host whose user waits, or does not.
struct User {
    waits: bool,
}

impl Host for User {
    fn run_script(&mut self, _: &Path, _: &[String]) -> u8 {
        unreachable!("a simulation runs nothing")
    }
    fn examples(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn run_example(&mut self, _: &str, _: &[String]) -> u8 {
        unreachable!("a simulation runs nothing")
    }
    fn versions(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn interrupted(&mut self) -> bool {
        !self.waits
    }
}

/// Exit code, output, errors.
fn call_as(user: &mut User, words: &[&str]) -> (u8, String, String) {
    let args = ["brambling", "coflow"].iter().chain(words);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = main_to(args.map(OsString::from), user, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(out), text(err))
}

fn call(words: &[&str]) -> (u8, String, String) {
    call_as(&mut User { waits: true }, words)
}

/// A folder of its own for each test.
fn folder(name: &str) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("brambling-coflow-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn trace(name: &str, text: &str) -> PathBuf {
    let path = folder(name).join("trace");
    std::fs::write(&path, text).unwrap();
    path
}

/// 250 MB and 125 MB into one port.
const TWO: &str = "3 2\n1 0 1 0 1 2:250\n2 0 1 1 1 2:125\n";

#[test]
fn json_and_csv_have_their_keys() {
    let path = trace("keys", TWO);
    let csv = path.with_extension("csv");
    let (code, out, err) = call(&[
        "simulate",
        "--trace",
        path.to_str().unwrap(),
        "--policy",
        "fair,varys",
        "--json",
        "--csv",
        csv.to_str().unwrap(),
    ]);
    assert_eq!((code, err.as_str()), (OK, ""));
    let found: Value = serde_json::from_str(&out).unwrap();
    let policies: Vec<_> = found.as_object().unwrap().keys().collect();
    assert_eq!(policies, ["fair", "varys"]);
    let keys: Vec<_> = found["fair"].as_object().unwrap().keys().collect();
    let expected = [
        "average_s",
        "bin",
        "category",
        "messages",
        "p50_s",
        "p95_s",
        "slowdown",
    ];
    assert_eq!(keys, expected);
    assert_eq!(
        (
            found["fair"]["average_s"].as_f64(),
            found["varys"]["average_s"].as_f64()
        ),
        (Some(2.5), Some(2.0))
    );
    let text = std::fs::read_to_string(&csv).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "policy,coflow,arrival_s,cct_s,isolated_s,bytes");
    assert_eq!(
        lines[1..],
        [
            "fair,1,0,3,2,250000000",
            "fair,2,0,2,1,125000000",
            "varys,1,0,3,2,250000000",
            "varys,2,0,1,1,125000000"
        ]
    );
}

#[test]
fn defaults_are_those_of_the_policies() {
    let path = trace("defaults", TWO);
    let path = path.to_str().unwrap();
    let of = |options: &[&str]| call(&[&["simulate", "--trace", path, "--json"], options].concat());
    assert_eq!(of(&[]), of(&["--policy", "all"]));
    assert_eq!(
        of(&["--policy", "ours"]),
        of(&["--policy", "receiver-driven"])
    );
    assert_eq!(
        of(&["--policy", "stream"]),
        of(&[
            "--policy",
            "stream",
            "--queues",
            "8",
            "--threshold",
            "10MB",
            "--factor",
            "10",
            "--relay",
            "perfect"
        ])
    );
    assert_eq!(
        of(&["--policy", "aalo"]),
        of(&["--policy", "aalo", "--queues", "10"])
    );
}

/// A small coflow comes while a larger one, half of whose flows are done, has had 125 MB: each setting of stream changes
/// what comes of it.
#[test]
fn settings_of_stream_are_heard() {
    let many: String = (1..11)
        .map(|it| format!(" {it}:{}", if it > 5 { 36 } else { 2 }))
        .collect();
    let text = format!("12 2\n1 0 1 0 10{many}\n2 1000 1 0 1 11:30\n");
    let path = trace("settings", &text);
    let path = path.to_str().unwrap();
    let of = |options: &[&str]| {
        let words = [
            &["simulate", "--trace", path, "--policy", "stream", "--json"],
            options,
        ]
        .concat();
        let (code, out, err) = call(&words);
        assert_eq!((code, err.as_str()), (OK, ""), "{options:?}");
        out
    };
    let plain = of(&[]);
    let settings: [&[&str]; 8] = [
        &["--wfq"],
        &["--alpha", "1"],
        &["--beta", "0", "--relay", "rtt"],
        &["--starvation", "1ms"],
        &["--rule", "fixed"],
        &["--threshold", "25MB"],
        &["--factor", "2"],
        &["--queues", "1"],
    ];
    for options in settings {
        assert_ne!(of(options), plain, "{options:?}");
    }
    assert_eq!(
        of(&["--relay", "perfect", "--alpha", "0", "--beta", "1"]),
        plain
    );
}

#[test]
fn coflow_slips_of_traces_name_the_line_and_the_way_out() {
    let told = |name: &str, text: &str| {
        let path = trace(name, text);
        let (code, out, err) = call(&["simulate", "--trace", path.to_str().unwrap()]);
        assert_eq!((code, out.as_str()), (USAGE, ""), "{name}");
        assert!(
            err.starts_with(&format!("error: {}: ", path.display())),
            "{err}"
        );
        err
    };
    let has = |text: &str, parts: &[&str]| {
        parts
            .iter()
            .for_each(|part| assert!(text.contains(part), "{part}: {text}"))
    };
    has(
        &told("empty", ""),
        &["the trace is empty", "as in `150 526`"],
    );
    has(
        &told("bad", "3 1\n1 0 one 0 1 2:250\n"),
        &["line 2", "one", "a coflow is written as"],
    );
    has(
        &told("beyond", "3 1\n1 0 1 0 1 7:250\n"),
        &["line 2", "port 7", "from 0 to 2", "a coflow is written as"],
    );
    has(
        &told("cut", "3 2\n1 0 1 0 1 2:250\n"),
        &["has 1 coflows", "says 2", "is the file whole?"],
    );
    let (code, _, err) = call(&["simulate", "--trace", "/nowhere/trace"]);
    assert_eq!(code, USAGE);
    has(
        &err,
        &[
            "/nowhere/trace",
            "No such file",
            "give a file that is a trace",
        ],
    );
    has(
        &told("nothing", "0 0\n"),
        &["0 ports and 0 coflows", "as in `150 526`"],
    );
    has(
        &told("huge", "3 1\n1 0 1 0 1 2:1e300\n"),
        &["line 2", "1e300", "no size"],
    );
}

#[test]
fn coflow_slips_of_options_name_what_there_is() {
    let told = |options: &[&str]| {
        let (code, out, err) = call(&[&["simulate", "--generate", "3"], options].concat());
        assert_eq!((code, out.as_str()), (USAGE, ""), "{options:?}");
        err
    };
    let has = |text: &str, parts: &[&str]| {
        parts
            .iter()
            .for_each(|part| assert!(text.contains(part), "{part}: {text}"))
    };
    has(
        &told(&["--policy", "srtf"]),
        &["there is no policy \"srtf\"", "receiver-driven", "or all"],
    );
    has(
        &told(&["--fabric", "fattree:7"]),
        &["fattree:7", "fattree:K with an even number"],
    );
    has(&told(&["--gbps", "0"]), &["--gbps", "above 0"]);
    has(&told(&["--queues", "0"]), &["--queues", "1..=64"]);
    has(&told(&["--threshold", "10"]), &["--threshold", "10"]);
    has(&told(&["--factor", "1"]), &["above 1"]);
    has(&told(&["--waves", "5"]), &["--waves", "1..=4"]);
    has(&told(&["--dag", "web"]), &["tpcds42 or tao"]);
    has(
        &told(&["--dag", "tao", "--waves", "2"]),
        &["leave out --waves or --dag"],
    );
    has(&told(&["--gbps", "-1"]), &["--gbps", "above 0"]);
    has(&told(&["--load", "1e-308"]), &["--load", "from 0.000001"]);
    has(&told(&["--threshold", "0B"]), &["above 0"]);
    has(&told(&["--resolution", "100ns"]), &["at least 10us"]);
    has(&told(&["--silent", "2"]), &["from 0 to 1"]);
    has(&told(&["--beta", "-1"]), &["--beta", "at least 0"]);
    let (code, _, err) = call(&["simulate"]);
    assert_eq!(code, USAGE);
    has(&err, &["--trace <FILE>"]);
}

#[test]
fn coflow_slips_of_outputs_name_the_file() {
    let path = trace("outputs", TWO);
    let path = path.to_str().unwrap();
    let (code, _, err) = call(&["simulate", "--trace", path, "--csv", "/nowhere/times.csv"]);
    assert_eq!(code, FAILED);
    assert!(err.contains("/nowhere/times.csv: No such file"), "{err}");
    let (code, _, err) = call(&["reproduce", "--quick", "--trace", path, "--output", path]);
    assert_eq!(code, FAILED);
    assert!(err.contains(path), "{err}");
}

#[test]
fn whoever_does_not_want_to_wait_is_not_kept() {
    let (code, out, _) = call_as(
        &mut User { waits: false },
        &["simulate", "--generate", "2000", "--policy", "fair"],
    );
    assert_eq!((code, out.as_str()), (INTERRUPTED, ""));
}

/// A trace of 64 coflows, of which four are taken: the figures have few points, and all of them are drawn.
#[test]
fn figures_are_drawn_and_what_has_been_run_is_not_run_again() {
    let coflows = (1..=64).map(|it| {
        format!(
            "{it} {} 1 {} 1 {}:{}\n",
            it * 100,
            it % 9,
            9 + it % 7,
            it * it
        )
    });
    let text = "16 64\n".to_owned() + &coflows.collect::<String>();
    let path = trace("figures", &text);
    let output = folder("figures").join("out");
    let words = [
        "reproduce",
        "--quick",
        "--trace",
        path.to_str().unwrap(),
        "--output",
        output.to_str().unwrap(),
    ];
    let (code, out, err) = call(&words);
    assert_eq!((code, err.as_str()), (OK, ""));
    assert!(out.contains("index.html"), "{out}");
    let page = std::fs::read_to_string(output.join("index.html")).unwrap();
    for figure in 6..=14 {
        assert!(page.contains(&format!("Figure {figure}: ")), "{figure}");
    }
    assert!(page.contains("Equation 6"));
    let drawn = page.matches("<img src=\"").count();
    let files = std::fs::read_dir(&output).unwrap().filter(|it| {
        it.as_ref()
            .unwrap()
            .path()
            .extension()
            .is_some_and(|it| it == "svg")
    });
    assert_eq!(drawn, files.count());
    // Again: a run that is kept is believed, one that is cut off is not.
    let mut runs = std::fs::read_dir(output.join("runs")).unwrap();
    let runs = runs.next().unwrap().unwrap().path();
    let run = runs.join("fair-fattree-8-1g.json");
    let kept = std::fs::read(&run).unwrap();
    let other = runs.join("baraat-fattree-8-1g.json");
    let before = std::fs::metadata(&other).unwrap().modified().unwrap();
    std::fs::write(&run, &kept[..kept.len() / 2]).unwrap();
    assert_eq!(call(&words).0, OK);
    assert_eq!(std::fs::read(&run).unwrap(), kept);
    assert_eq!(
        std::fs::metadata(&other).unwrap().modified().unwrap(),
        before
    );
    let (code, _, err) = call_as(
        &mut User { waits: false },
        &["reproduce", "--output", folder("stopped").to_str().unwrap()],
    );
    assert_eq!(code, INTERRUPTED);
    assert!(err.contains("goes on where it was"), "{err}");
}
