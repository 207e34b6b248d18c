//! Every bench in its smallest form, and the keys that claims and users read.

use brambling_cli::{Host, OK, main_to};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;

struct Quiet;

impl Host for Quiet {
    fn run_script(&mut self, _: &Path, _: &[String]) -> u8 {
        unreachable!()
    }
    fn examples(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn run_example(&mut self, _: &str, _: &[String]) -> u8 {
        unreachable!()
    }
    fn versions(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn interrupted(&mut self) -> bool {
        false
    }
}

fn call(line: &str) -> String {
    let args = line.split_whitespace().map(OsString::from);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = main_to(args, &mut Quiet, &mut out, &mut err);
    assert_eq!((code, err), (OK, Vec::new()));
    String::from_utf8(out).unwrap()
}

/// Runs a bench, with its own options, and looks up figures, by their paths; every one has the three keys.
fn check(bench: &str, figures: &[&str]) -> Value {
    let report: Value = serde_json::from_str(&call(&format!(
        "brambling bench {bench} --smoke --threads 2 --json"
    )))
    .unwrap();
    for key in ["cpu", "isa", "version", "repeated", "unsettled"] {
        assert!(report.get(key).is_some(), "{key}");
    }
    assert_eq!(report["bench"].as_str(), bench.split_whitespace().next());
    assert_eq!(report["threads"], 2);
    assert_eq!(report["rounds"], 1);
    assert_eq!(report["smoke"], true);
    for figure in figures {
        let found = report.pointer(figure).unwrap_or_else(|| panic!("{figure}"));
        is_figure(found);
    }
    let limits = report["limits"].as_array().unwrap();
    assert!(!limits.is_empty());
    for limit in limits {
        is_figure(limit);
        assert!(limit["name"].is_string() && limit["unit"].is_string());
    }
    report
}

fn is_figure(value: &Value) {
    let number = |key: &str| value[key].as_f64().unwrap_or_else(|| panic!("{value}"));
    let (min, median, max) = (number("min"), number("median"), number("max"));
    assert!(0.0 < min && min <= median && median <= max, "{value}");
}

#[test]
fn task_rate() {
    check(
        "task-rate",
        &[
            "/ns_per_task",
            "/tasks_per_s_per_core_at_10pct",
            "/indirect_call_ns",
        ],
    );
}

#[test]
fn barrier() {
    check(
        "barrier",
        &[
            "/us_per_iteration/2",
            "/us_per_iteration/20",
            "/spin_round_trip_us",
        ],
    );
}

#[test]
fn job_start() {
    check("job-start", &["/alone_ms", "/spin_round_trip_ms"]);
}

#[test]
fn word_count() {
    let report = check(
        "word-count",
        &[
            "/seconds",
            "/bytes_per_s",
            "/read_seconds",
            "/look_up_seconds",
            "/over_look_ups",
        ],
    );
    assert!(report["words"].as_u64() > Some(100_000));
}

#[test]
fn task_graph() {
    let report = check("task-graph", &[]);
    let patterns = report["patterns"].as_array().unwrap();
    let names = [
        "trivial",
        "no_comm",
        "stencil_1d",
        "nearest",
        "spread",
        "fft",
        "tree",
        "all_to_all",
        "random_nearest",
    ];
    for width in [2, 16] {
        let of_width: Vec<_> = patterns
            .iter()
            .filter(|pattern| pattern["width"] == width)
            .map(|pattern| pattern["pattern"].as_str().unwrap())
            .collect();
        assert_eq!(of_width, names);
    }
    for pattern in patterns {
        let keys = ["overhead_us", "bare_overhead_us", "plain_loop_us"];
        for key in keys.into_iter().chain(["metg50_us", "metg75_us"]) {
            is_figure(&pattern[key]);
        }
        match pattern.get("mpi_us").expect("told, with MPI and without") {
            Value::Null => {}
            figure => {
                assert_eq!(pattern["pattern"], "stencil_1d");
                is_figure(figure);
            }
        }
    }
}

#[test]
fn logistic() {
    let report = check(
        "logistic",
        &[
            "/ms_per_iteration",
            "/plain_loop_ms",
            "/bare_loop_ms",
            "/ideal_ms",
            "/share_of_ideal",
            "/tasks_per_s",
        ],
    );
    is_bound(&report);
}

fn is_bound(report: &Value) {
    let limits = ["memory bandwidth", "compute", "gathers from the cache"];
    assert!(limits.contains(&report["bound_by"].as_str().unwrap()));
    assert!(report["peak_rss_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn kmeans() {
    for (bench, k) in [
        ("kmeans", 10),
        ("kmeans --k 100", 100),
        ("kmeans --k 13", 13),
    ] {
        let report = check(
            bench,
            &[
                "/ms_per_iteration",
                "/plain_loop_ms",
                "/bare_loop_ms",
                "/ideal_ms",
                "/share_of_ideal",
                "/tasks_per_s",
            ],
        );
        assert_eq!(report["k"], k);
        assert!(report["gflops"].as_f64().unwrap() > 0.0);
        is_bound(&report);
    }
}

#[test]
fn pagerank() {
    for (bench, graph, dtype) in [
        ("pagerank", "kron21", "float64"),
        (
            "pagerank --graph lognormal --dtype float32 --partitions-per-core 3",
            "lognormal",
            "float32",
        ),
    ] {
        let report = check(
            bench,
            &[
                "/ms_per_iteration",
                "/plain_loop_ms",
                "/bare_loop_ms",
                "/ideal_ms",
                "/share_of_ideal",
                "/edges_per_s",
                "/gathers_per_s",
                "/tasks_per_s",
                "/dealing_ms",
            ],
        );
        assert_eq!(
            (&report["graph"], &report["dtype"]),
            (&graph.into(), &dtype.into())
        );
        assert!(report["edges"].as_u64().unwrap() > 10_000);
        assert!(report["added_bytes_per_edge"].as_f64().unwrap() > 0.0);
        let partitions = report["partitions"].as_u64().unwrap();
        // A grid of at most 2 · 3.
        assert_eq!(partitions, if graph == "kron21" { 1 } else { 6 });
        is_bound(&report);
    }
}

/// The times of stages, and of no stage that runs once; gives the stages' names and tasks.
fn times_of(report: &Value) -> Vec<(&str, u64)> {
    assert_eq!(report["task_times_left_out"], 0);
    let stages = report["task_times"].as_array().unwrap();
    let stages = stages.iter().map(|stage| {
        let us = &stage["us"];
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{stage}"));
        let mut spread = vec![number(&us["min"]), number(&us["p1"])];
        spread.extend(us["deciles"].as_array().unwrap().iter().map(number));
        spread.extend([number(&us["p99"]), number(&us["max"])]);
        assert!(spread.len() == 13 && spread.is_sorted(), "{stage}");
        let (median, max) = (number(&us["median"]), number(&us["max"]));
        assert!(spread[0] <= median && median <= max, "{stage}");
        let ratio = number(&stage["max_over_median"]);
        assert!((ratio * median - max).abs() <= 1e-9 * max, "{stage}");
        let kinds = ["compute", "scatter", "gather", "signal"];
        assert!(kinds.contains(&stage["kind"].as_str().unwrap()), "{stage}");
        let tasks = stage["tasks"].as_u64().unwrap();
        (stage["stage"].as_str().unwrap(), tasks)
    });
    stages.collect()
}

/// Three iterations with so many partitions: the tasks of the stage that does the work.
#[test]
fn the_tasks_of_an_iteration_are_timed() {
    for (bench, stage, partitions, runs_once) in [
        (
            "logistic --partitions-per-core 3",
            "gradient",
            6,
            "step size",
        ),
        (
            "kmeans --k 7 --partitions-per-core 2",
            "members",
            4,
            "tolerance",
        ),
        ("pagerank --partitions-per-core 2", "apply", 4, "weigh"),
    ] {
        let report = check(&format!("{bench} --task-times"), &["/ms_per_iteration"]);
        assert_eq!(report["partitions"], partitions);
        let times = times_of(&report);
        let found = times.iter().find(|(name, _)| *name == stage);
        assert_eq!(found, Some(&(stage, 3 * partitions)), "{times:?}");
        assert!(
            times.iter().all(|(name, _)| *name != runs_once),
            "{times:?}"
        );
    }
    let report = check("logistic", &[]);
    assert!(report.get("task_times").is_none() && report.get("task_times_left_out").is_none());
}

#[test]
fn several_numbers_of_partitions_are_a_sweep() {
    for bench in ["logistic", "kmeans --k 7", "pagerank --dtype float32"] {
        let line = format!("{bench} --partitions-per-core 4,1,2,1 --task-times");
        let report = check(&line, &["/ideal_ms"]);
        let sweep = report["sweep"].as_array().unwrap();
        let counts = |key: &str| -> Vec<u64> {
            let counts = sweep.iter().map(|point| point[key].as_u64().unwrap());
            counts.collect()
        };
        assert_eq!(counts("partitions_per_core"), [1, 2, 4]);
        assert_eq!(counts("partitions"), [2, 4, 8]);
        for point in sweep {
            is_figure(&point["ms_per_iteration"]);
            is_figure(&point["tasks_per_s"]);
            let most = times_of(point).iter().map(|(_, tasks)| *tasks).max();
            assert!(most >= Some(3 * point["partitions"].as_u64().unwrap()));
        }
        assert!(report.get("bare_loop_ms").is_none());
        let (k, graph) = (report.get("k"), report.get("graph"));
        assert_eq!(
            (k.is_some(), graph.is_some()),
            (bench.contains("--k"), bench.contains("--dtype"))
        );
    }
}

#[test]
fn the_table_has_the_times_of_tasks() {
    let table =
        call("brambling bench kmeans --smoke --threads 2 --partitions-per-core 1,2 --task-times");
    for words in [
        "an iteration, 2 a core",
        "the tasks of the iterations, 1 a core, in µs",
        "max ÷ median",
        "compute members",
        "gather reduce block members",
    ] {
        assert!(table.contains(words), "{words} in {table}");
    }
}

#[test]
fn the_table_names_the_limit_and_the_plain_loop() {
    let table = call("brambling bench barrier --smoke --threads 2");
    for words in [
        "limit:",
        "one thread, plain loop",
        "× a spin round trip",
        "rounds",
    ] {
        assert!(table.contains(words), "{words} in {table}");
    }
}
