//! The command as a user calls it, with a host that only notes what it is asked.

use brambling_cli::{FAILED, Host, INTERRUPTED, OK, USAGE, main_to};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;

#[derive(Default)]
struct FakeHost {
    ran: Vec<String>,
    exit: u8,
    is_interrupted: bool,
}

impl Host for FakeHost {
    fn run_script(&mut self, path: &Path, args: &[String]) -> u8 {
        self.ran.push(format!("{} {args:?}", path.display()));
        self.exit
    }
    fn examples(&self) -> Vec<(String, String)> {
        let examples = [("flights", "will it be late?"), ("heat", "a warm plate")];
        examples.map(|(a, b)| (a.into(), b.into())).into()
    }
    fn run_example(&mut self, name: &str, args: &[String]) -> u8 {
        self.ran.push(format!("example {name} {args:?}"));
        self.exit
    }
    fn versions(&self) -> Vec<(String, String)> {
        vec![("python".into(), "3.11.2".into())]
    }
    fn interrupted(&mut self) -> bool {
        self.is_interrupted
    }
}

/// Exit code, output, errors.
fn call(host: &mut FakeHost, line: &str) -> (u8, String, String) {
    let args = std::iter::once("brambling").chain(line.split_whitespace());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = main_to(args.map(OsString::from), host, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(out), text(err))
}

#[test]
fn help_teaches() {
    for line in ["", "--help", "help"] {
        let (code, out, err) = call(&mut FakeHost::default(), line);
        assert_eq!((code, err.as_str()), (OK, ""), "{line}");
        for word in ["run flights", "BRAMBLING_THREADS", "Exit codes", "doctor"] {
            assert!(out.contains(word), "{word} in {out}");
        }
    }
    let (_, out, _) = call(&mut FakeHost::default(), "bench --help");
    assert!(out.contains("brambling bench barrier --threads 2"));
    assert!(out.contains("--k <N>"), "{out}");
}

#[test]
fn every_setting_says_where_its_value_comes_from() {
    let (code, out, err) = call(&mut FakeHost::default(), "config --json");
    assert_eq!((code, err.as_str()), (OK, ""));
    let lines: Vec<Value> = serde_json::from_str(&out).unwrap();
    let keys: Vec<_> = lines
        .iter()
        .map(|line| line["setting"].as_str().unwrap())
        .collect();
    assert_eq!(keys, brambling::SETTINGS.map(|setting| setting.key));
    let stall = lines
        .iter()
        .find(|line| line["setting"] == "stall_seconds")
        .unwrap();
    assert_eq!(
        (stall["value"].as_str(), stall["source"].as_str()),
        (Some("60"), Some("default"))
    );

    let (code, out, _) = call(&mut FakeHost::default(), "config");
    assert_eq!((code, out.lines().count()), (OK, keys.len()));
    assert!(out.contains("stall_seconds   60"), "{out}");
}

#[test]
fn shells_can_complete_the_command() {
    for (shell, says) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef brambling"),
        ("fish", "complete -c brambling"),
    ] {
        let (code, out, err) = call(&mut FakeHost::default(), &format!("completions {shell}"));
        assert_eq!((code, err.as_str()), (OK, ""), "{shell}");
        for word in [says, "doctor", "config", "smoke"] {
            assert!(out.contains(word), "{shell}: {word}");
        }
    }
    let (code, _, err) = call(&mut FakeHost::default(), "completions tcsh");
    assert_eq!(code, USAGE);
    assert!(err.contains("bash, zsh, fish"), "{err}");
}

#[test]
fn versions_are_those_of_all_parts() {
    let (code, out, _) = call(&mut FakeHost::default(), "--version");
    let expected = format!("brambling {}\npython 3.11.2\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((code, out), (OK, expected));
}

#[test]
fn wrong_use_is_exit_code_2() {
    for (line, says) in [
        ("fly", "fly"),
        ("run", "FILE.py|EXAMPLE"),
        (
            "bench --threads 2 barier",
            "did you mean: brambling bench barrier",
        ),
        ("bench barrier --threads 0", "--threads"),
        ("bench barrier --threads two", "--threads"),
        ("bench kmeans --k 0", "--k"),
        (
            "bench barrier --k 10",
            "the bench \"barrier\" has no option --k; kmeans has it",
        ),
        ("bench pagerank --graph kron22", "kron21"),
        ("bench pagerank --dtype f64", "float64"),
        (
            "bench pagerank --partitions-per-core 65",
            "--partitions-per-core",
        ),
        (
            "bench kmeans --graph kron21",
            "the bench \"kmeans\" has no option --graph; pagerank has it",
        ),
        (
            "bench task-rate --task-times",
            "the bench \"task-rate\" has no option --task-times; logistic, kmeans and pagerank have it",
        ),
        (
            "bench barrier --partitions-per-core 2",
            "the bench \"barrier\" has no option --partitions-per-core; logistic, kmeans and pagerank have it",
        ),
        (
            "bench kmeans --partitions-per-core 1,0",
            "--partitions-per-core",
        ),
        ("doctor --jsn", "--json"),
        ("run fligths", "did you mean: brambling run flights"),
        ("run no/such/file.py", "heat     a warm plate"),
        ("run .", "is a directory"),
    ] {
        let (code, out, err) = call(&mut FakeHost::default(), line);
        assert_eq!((code, out.as_str()), (USAGE, ""), "{line}: {err}");
        assert!(err.contains(says), "{line}: {err}");
    }
}

#[test]
fn a_script_without_its_ending_is_understood() {
    let stem = std::env::temp_dir().join(format!("brambling-cli-stem-{}", std::process::id()));
    let script = stem.with_extension("py");
    std::fs::write(&script, "").unwrap();
    let (code, _, err) = call(&mut FakeHost::default(), &format!("run {}", stem.display()));
    std::fs::remove_file(&script).unwrap();
    let meant = format!("did you mean: brambling run {}\n", script.display());
    assert_eq!(code, USAGE);
    assert!(err.contains(&meant), "{err}");
}

#[test]
fn scripts_and_examples_get_their_arguments_and_give_the_exit_code() {
    let script = std::env::temp_dir().join(format!("brambling-cli-{}.py", std::process::id()));
    std::fs::write(&script, "").unwrap();
    let script = script.display();
    let mut host = FakeHost {
        exit: 7,
        ..FakeHost::default()
    };
    assert_eq!(call(&mut host, "run flights --rows 5 -v").0, 7);
    assert_eq!(call(&mut host, &format!("run {script} --help a")).0, 7);
    std::fs::remove_file(script.to_string()).unwrap();
    let expected = [
        r#"example flights ["--rows", "5", "-v"]"#.to_owned(),
        format!(r#"{script} ["--help", "a"]"#),
    ];
    assert_eq!(host.ran, expected);
}

#[test]
fn benches_are_listed() {
    let (code, out, _) = call(&mut FakeHost::default(), "bench");
    assert_eq!(code, OK);
    for name in [
        "task-rate",
        "barrier",
        "task-graph",
        "logistic",
        "kmeans",
        "--k N",
        "pagerank",
        "--graph kron21|lognormal",
    ] {
        assert!(out.contains(name), "{out}");
    }
}

#[test]
fn an_interrupted_bench_says_so() {
    let mut host = FakeHost {
        is_interrupted: true,
        ..FakeHost::default()
    };
    let (code, out, err) = call(&mut host, "bench barrier --smoke --threads 2");
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (INTERRUPTED, "", "interrupted\n")
    );
}

#[test]
fn the_doctor_says_what_there_is() {
    let (code, out, _) = call(&mut FakeHost::default(), "doctor");
    assert!([OK, FAILED].contains(&code));
    for word in [
        "instruction sets",
        "in the mask",
        "memory",
        "python",
        "3.11.2",
    ] {
        assert!(out.contains(word), "{word} in {out}");
    }
    let (json_code, out, _) = call(&mut FakeHost::default(), "doctor --json");
    let found: Value = serde_json::from_str(&out).unwrap();
    let problems = found["problems"].as_array().unwrap();
    assert_eq!((json_code, code == FAILED), (code, !problems.is_empty()));
    for key in [
        "version",
        "versions",
        "cpu",
        "cpus_allowed",
        "cpu_quota",
        "isa",
        "has_fma",
        "memory_bytes",
        "memory_limit_bytes",
        "settings",
        "environment",
        "has_settings_file",
    ] {
        assert!(found.get(key).is_some(), "{key} in {out}");
    }
    assert!(found["settings"]["threads"].as_u64().unwrap() >= 1);
}

#[test]
fn workers_shards_and_jobs_are_named_as_status_names_them() {
    let mut host = FakeHost::default();
    let wrong = [
        ("move x2 --shard 0.3", "such as w2"),
        ("move w2 --shard 3", "such as 0.3"),
        ("move w2 --shard 0.3 --job 1.2", "such as j1"),
        ("move w2", "--shard"),
        ("drain", "WORKER"),
        ("cancel 1.2", "such as j1"),
        ("cancel", "JOB"),
        ("cancel j1 --patience soon", "--patience"),
        ("logs train.py", "such as j1"),
        ("submit", "FILE.py"),
        (
            "submit --controller 127.0.0.1:1 haet --rows 5",
            "did you mean: brambling submit heat",
        ),
        ("top --twice", "--twice"),
    ];
    for (line, why) in wrong {
        let (code, _, err) = call(&mut host, line);
        assert_eq!(code, USAGE, "{line}");
        assert!(err.contains(why), "{err}");
    }
    assert!(host.ran.is_empty(), "{:?}", host.ran);
    // Understood, and nobody is there.
    for line in [
        "move w2 --shard 0.3 --job j1",
        "move 2 --shard g0.3",
        "drain w2",
        "cancel j1",
        "cancel 1 --patience 3",
        "logs j1 --follow",
        "jobs --json",
        "top --once",
    ] {
        let (code, _, err) = call(&mut host, &format!("{line} --controller 127.0.0.1:1"));
        assert_eq!(code, FAILED, "{line}: {err}");
        assert!(err.contains("127.0.0.1:1"), "{err}");
    }
}

#[test]
fn what_follows_a_script_that_is_submitted_is_the_scripts() {
    // Its `--help` and `--controller` are no options of submit: what is wrong is that nobody is there.
    let line = "submit --controller 127.0.0.1:1 heat --help --controller 127.0.0.1:2";
    let (code, out, err) = call(&mut FakeHost::default(), line);
    assert_eq!((code, out.as_str()), (FAILED, ""), "{err}");
    assert!(err.contains("127.0.0.1:1;"), "{err}");
    let (code, out, _) = call(&mut FakeHost::default(), "submit --help");
    assert_eq!(code, OK);
    assert!(
        out.contains("id=$(brambling submit train.py)") && out.contains("[ARGS]..."),
        "{out}"
    );
}

#[test]
fn certificates_are_made_and_not_overwritten() {
    let folder = std::env::temp_dir().join(format!("brambling-certs-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let line = format!("certs --dir {} --host 10.0.0.7", folder.display());
    let mut host = FakeHost::default();
    let (code, out, err) = call(&mut host, &line);
    assert_eq!((code, err.as_str()), (OK, ""));
    assert!(out.contains("--tls") && out.contains("365 days"), "{out}");
    assert!(!out.contains("PRIVATE"), "{out}");
    let (code, out, err) = call(&mut host, &line);
    assert_eq!((code, out.as_str()), (FAILED, ""));
    assert!(err.contains("give a new folder"), "{err}");
    // What cannot be used is said before anybody is asked.
    std::fs::write(folder.join("key.pem"), "nothing").unwrap();
    std::fs::write(folder.join("token"), "ab".repeat(32)).unwrap();
    let dir = folder.display();
    let at = format!("--controller 127.0.0.1:1 --token-file {dir}/token --tls {dir}");
    for command in [
        "status",
        "jobs",
        "top",
        "logs j1",
        "cancel j1",
        "drain w1",
        "move w1 --shard 0.1",
    ] {
        let (code, _, err) = call(&mut host, &format!("{command} {at}"));
        assert_eq!(code, FAILED);
        assert!(err.contains("key.pem cannot be used"), "{command}: {err}");
    }
    let (_, _, err) = call(&mut host, &format!("submit {at} heat"));
    assert!(err.contains("key.pem cannot be used"), "{err}");
    for command in ["controller", "cluster --workers 1 --threads 1"] {
        let line = format!("{command} --bind 127.0.0.1:0 --tls {}", folder.display());
        let (code, _, err) = call(&mut host, &line);
        assert_eq!(code, FAILED);
        assert!(err.contains("key.pem cannot be used"), "{command}: {err}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    let (code, _, err) = call(&mut host, "certs");
    assert_eq!(code, USAGE);
    assert!(err.contains("--dir"), "{err}");
}
