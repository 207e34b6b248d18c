//! `brambling model` as a user calls it.

use brambling_cli::{Host, OK, USAGE, main_to};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::Path;

struct NoHost;

impl Host for NoHost {
    fn run_script(&mut self, _: &Path, _: &[String]) -> u8 {
        unreachable!("the model runs nothing")
    }
    fn examples(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn run_example(&mut self, _: &str, _: &[String]) -> u8 {
        unreachable!("the model runs nothing")
    }
    fn versions(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn interrupted(&mut self) -> bool {
        false
    }
}

/// Exit code, output, errors.
fn call(line: &str) -> (u8, String, String) {
    let args = std::iter::once("brambling").chain(line.split_whitespace());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = main_to(args.map(OsString::from), &mut NoHost, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(out), text(err))
}

const TERASORT: &str =
    "model --nodes 1460 --input 1TB --disk-read 260MB/s --disk-write 260MB/s --network 110MB/s";

fn json_of(line: &str) -> Value {
    let (code, out, err) = call(&format!("{line} --json"));
    assert_eq!((code, err.as_str()), (OK, ""), "{line}");
    assert_eq!(out.matches('\n').count(), 1);
    serde_json::from_str(&out).unwrap()
}

#[test]
fn json_has_its_keys() {
    let answer = json_of(&format!("{TERASORT} --replication 1 --took 62s"));
    let keys: Vec<_> = answer.as_object().unwrap().keys().collect();
    let sorted = [
        "bound_by",
        "ideal_seconds",
        "nodes_for",
        "over_provisioned",
        "phases",
    ];
    assert_eq!(keys, sorted);
    let near = |value: &Value, expected: f64| {
        let value = value.as_f64().unwrap();
        assert!((value - expected).abs() < 0.005, "{value} {expected}");
    };
    near(&answer["ideal_seconds"], 8.86);
    assert_eq!(answer["nodes_for"], json!(208));
    assert_eq!(answer["bound_by"], json!("network"));
    near(&answer["over_provisioned"]["network"], 0.0);
    near(&answer["over_provisioned"]["disk"], 0.0);
    let [map, reduce] = answer["phases"].as_array().unwrap().as_slice() else {
        panic!("two phases: {answer}")
    };
    let keys: Vec<_> = map.as_object().unwrap().keys().collect();
    let sorted = [
        "bound_by",
        "disk_seconds",
        "name",
        "network_seconds",
        "operations",
        "seconds",
    ];
    assert_eq!(keys, sorted);
    assert_eq!(
        (&map["name"], &reduce["name"]),
        (&json!("map"), &json!("reduce"))
    );
    assert_eq!(
        (&map["bound_by"], &reduce["bound_by"]),
        (&json!("network"), &json!("disk"))
    );
    near(&map["network_seconds"], 6.22);
    near(&map["disk_seconds"], 2.63);
    assert_eq!(map["seconds"], map["network_seconds"]);
    let read = &map["operations"][0];
    assert_eq!(read["name"], json!("disk read (input)"));
    assert_eq!(read["bytes"].as_f64(), Some(1e12 / 1460.0));
}

#[test]
fn every_option_reaches_the_model() {
    let answer = json_of(
        "model --nodes 4 --input 800GB --disk-read 100MB/s --disk-write 50MB/s --network 1Gbit/s \
         --replication 2 --map-ratio 0.5 --reduce-ratio 0.25 --external --backup",
    );
    assert_eq!(answer["nodes_for"], Value::Null);
    let mut moved = Vec::new();
    for phase in answer["phases"].as_array().unwrap() {
        for it in phase["operations"].as_array().unwrap() {
            let (name, bytes) = (it["name"].as_str().unwrap(), it["bytes"].as_f64().unwrap());
            let seconds = it["seconds"].as_f64().unwrap();
            moved.push((name, bytes / 1e9, seconds));
        }
    }
    let expected = [
        ("disk read (input)", 200.0, 2000.0),
        ("disk write (backup)", 100.0, 2000.0),
        ("network (exchange)", 75.0, 600.0),
        ("disk write (sort)", 100.0, 2000.0),
        ("disk read (sort)", 100.0, 1000.0),
        ("network (replicas)", 25.0, 200.0),
        ("disk write (output)", 50.0, 1000.0),
    ];
    assert_eq!(moved, expected);
}

#[test]
fn people_read_it() {
    let (code, out, err) = call(&format!("{TERASORT} --took 62s"));
    assert_eq!((code, err.as_str()), (OK, ""));
    let expected = "\
ideal        8.86 s on 1460 nodes
took         62 s: 7.0 × the ideal, 14.3 % of its speed
enough       208 nodes, used to the full; n × ideal ÷ took: 209
bound by     network, in the map phase

map          6.22 s, bound by network; a node moves
  disk read (input)      685 MB    2.63 s
  network (exchange)     684 MB    6.22 s

reduce       2.63 s, bound by disk; a node moves
  disk write (output)    685 MB    2.63 s
";
    assert_eq!(out, expected);

    let (_, out, _) = call(
        "model --nodes 4000 --input 1PB --disk-read 780MB/s --disk-write 780MB/s --network 110MB/s \
         --replication 3 --external --backup",
    );
    let spare = "to spare     58 % of the disks' speed: 330 MB/s of 780 MB/s would give the same\n";
    assert!(out.contains(spare), "{out}");

    // One node sends nothing, and a reduce that makes nothing waits for nothing.
    let (_, out, _) = call(
        "model --nodes 1 --input 1GB --disk-read 1GB/s --disk-write 2GB/s --network 1GB/s --map-ratio 0",
    );
    assert!(out.starts_with("ideal        1 s on 1 node\n"), "{out}");
    assert!(
        out.contains("to spare     100 % of the network's speed"),
        "{out}"
    );
    assert!(
        out.ends_with("\nreduce       0 s; a node moves nothing\n"),
        "{out}"
    );
}

#[test]
fn wrong_use_says_what_is_right() {
    let with = |option: &str, value: &str| {
        let mut words: Vec<&str> = TERASORT.split(' ').collect();
        match words.iter().position(|word| *word == option) {
            Some(at) => words[at + 1] = value,
            None => words.extend([option, value]),
        }
        words.join(" ")
    };
    for (option, value, says) in [
        ("--nodes", "0", "a whole number of at least 1, such as 3"),
        ("--nodes", "-3", "a whole number of at least 1, such as 3"),
        ("--nodes", "1.5", "a whole number of at least 1, such as 3"),
        (
            "--input",
            "1",
            "the unit is missing; a size is written as 1TB",
        ),
        (
            "--input",
            "-1TB",
            "it is negative; a size is written as 1TB",
        ),
        ("--input", "1XB", "`XB` is not one of the units B, kB"),
        ("--input", "TB", "there is no number"),
        (
            "--input",
            "0TB",
            "--input is 0; it has to be above 0, such as 1TB",
        ),
        (
            "--disk-read",
            "260",
            "the unit is missing; a rate is written as 260MB/s",
        ),
        (
            "--disk-read",
            "-260MB/s",
            "it is negative; a rate is written as 260MB/s",
        ),
        ("--disk-write", "260MB", "`MB` is not one of the units B/s"),
        (
            "--disk-write",
            "0B/s",
            "--disk-write is 0; it has to be above 0, such as 110MB/s",
        ),
        ("--network", "1Gb/s", "`Gb/s` is not one of the units"),
        (
            "--replication",
            "0",
            "a whole number of at least 1, such as 3",
        ),
        (
            "--replication",
            "1461",
            "--replication is 1461 on 1460 nodes; each replica",
        ),
        ("--map-ratio", "-1", "a number of at least 0, such as 0.25"),
        (
            "--reduce-ratio",
            "nan",
            "a number of at least 0, such as 0.25",
        ),
        (
            "--took",
            "62",
            "the unit is missing; a time is written as 62s",
        ),
        (
            "--took",
            "0s",
            "--took is 0; it has to be above 0, such as 62s",
        ),
        (
            "--took",
            "1e-30s",
            "--took is 1e-30 s, which no number of nodes",
        ),
    ] {
        let line = with(option, value);
        let (code, out, err) = call(&line);
        assert_eq!((code, out.as_str()), (USAGE, ""), "{line}: {err}");
        assert!(err.contains(option) && err.contains(says), "{line}: {err}");
    }
    let (code, _, err) = call("model --nodes 3");
    assert_eq!(code, USAGE);
    assert!(err.contains("--disk-read <RATE>"), "{err}");
}
