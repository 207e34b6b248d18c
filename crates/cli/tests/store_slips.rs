//! What an operator does wrong with stores and snapshots: each answer names the thing, the cause and the way out.
//!
//! Catches a restore that begins at its start, at a damaged snapshot, or with another program, in silence. The cluster and its workers are this process's. Says
//! nothing about buckets.

use brambling::cluster::{
    Cluster, ControllerOptions, ControllerProcess, JOBS_AT_ONCE, Prints, Rendezvous, SILENCE,
    SnapshotEvery, SnapshotOptions, Source, Token, WorkerOptions, WorkerProcess,
};
use brambling::prelude::*;
use brambling::{Caller, Interrupted, QuietCaller, Settings};
use brambling_cli::{FAILED, Host, HostCluster, OK, USAGE, main_to};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);
const SCRIPT: &str = "heat 9 600 slow";
const FAST: &str = "heat 9 600 fast";

/// A process goes on from one snapshot at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|it| it.into_inner())
}

struct Built {
    program: Program,
    cells: Dataset<f64>,
}

/// Reads `NAME CELLS TURNS SLOW`: cells that hear of their mean each turn. Those of slow programs sleep, which changes nothing else.
fn built(bytes: &[u8]) -> Result<Built, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let [name, cells, turns, slow] = words[..] else {
        return Err("there is no such program".into());
    };
    let number = |text: &str| text.parse::<u32>().map_err(|error| error.to_string());
    let (count, turns, slow) = (number(cells)?, number(turns)?, slow == "slow");
    let mut p = Program::new(name);
    let cells = p.load("cells", count, Partitioner::Opaque, |index, _| {
        f64::from(index % 7) * 1.37
    });
    let total = p.dataset::<f64>("total", 1);
    let mean = p.like::<f64, _>("mean", &cells);
    p.keep(&cells);
    p.repeat(u64::from(turns), |p| {
        p.reduce_to(Sum, &cells, &total);
        p.broadcast(&total, &mean);
        let step = p.compute("step").read(&mean).update(&cells);
        step.run(move |mean: &f64, cell: &mut f64| {
            if slow {
                std::thread::sleep(Duration::from_millis(1));
            }
            *cell = 0.9 * *cell + mean * 1e-2;
        });
    });
    Ok(Built { program: p, cells })
}

struct Builds;

impl Source for Builds {
    fn program(&self, bytes: &[u8], _: &Prints) -> Result<Program, String> {
        Ok(built(bytes)?.program)
    }
    fn caller(&self) -> Box<dyn Caller> {
        Box::new(QuietCaller)
    }
}

/// The bits of a run that nothing has disturbed.
fn undisturbed() -> &'static [u64] {
    static BITS: OnceLock<Vec<u64>> = OnceLock::new();
    BITS.get_or_init(|| {
        let Built { program, cells } = built(FAST.as_bytes()).unwrap();
        let mut outcome = RunOptions::new().threads(2).run(program).unwrap();
        outcome
            .take_all(&cells)
            .iter()
            .map(|it| it.to_bits())
            .collect()
    })
}

/// Notes what a caller is told, until it is interrupted.
#[derive(Default)]
struct Notes(Vec<String>, Arc<AtomicBool>);

impl Caller for Notes {
    fn told(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }
    fn check(&mut self) -> Result<(), Interrupted> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(Interrupted),
            false => Ok(()),
        }
    }
}

/// Runs scripts that consist of a program's description.
#[derive(Default)]
struct Described {
    cluster: Option<Arc<Cluster>>,
    left: Vec<u64>,
    said: Vec<String>,
}

impl Described {
    fn run(&mut self, bytes: &[u8]) -> u8 {
        let mut notes = Notes::default();
        let Built { program, cells } = built(bytes).unwrap();
        let options = match &self.cluster {
            Some(cluster) => RunOptions::new().on(cluster).described_by(bytes.to_vec()),
            None => RunOptions::new().threads(2),
        };
        let ran = options.run_with(program, &mut notes);
        self.said.append(&mut notes.0);
        match ran {
            Ok(mut outcome) => {
                let cells = outcome.take_all(&cells);
                self.left = cells.iter().map(|it| it.to_bits()).collect();
                OK
            }
            Err(error) => {
                self.said.push(error.to_string());
                FAILED
            }
        }
    }
}

impl Host for Described {
    fn run_script(&mut self, path: &Path, _: &[String]) -> u8 {
        self.run(&fs::read(path).unwrap())
    }
    fn examples(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn run_example(&mut self, _: &str, _: &[String]) -> u8 {
        FAILED
    }
    fn connect(&mut self, to: HostCluster<'_>) -> Result<(), String> {
        let at = Rendezvous::find(Some(to.address), to.token_file, to.tls).unwrap();
        self.cluster = Some(Arc::new(Cluster::connect(&at).unwrap()));
        Ok(())
    }
    fn run_kept(&mut self, program: &[u8], folder: &Path) -> u8 {
        let code = self.run(program);
        fs::write(folder.join("cells"), format!("{:?}", self.left)).unwrap();
        code
    }
    fn versions(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn interrupted(&mut self) -> bool {
        false
    }
}

/// What a call came to.
struct Called {
    code: u8,
    out: String,
    err: String,
    host: Described,
}

impl Called {
    #[track_caller]
    fn says(&self, code: u8, all: &[&str]) {
        let text = format!("{}{}{}", self.err, self.out, self.host.said.join("\n"));
        assert_eq!(self.code, code, "{text}");
        for part in all {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }

    #[track_caller]
    fn has_gone_on(&self) {
        self.says(OK, &["goes on from snapshot"]);
        assert_eq!(self.host.left, undisturbed());
    }
}

fn call(words: &[&str]) -> Called {
    let args = std::iter::once("brambling").chain(words.iter().copied());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut host = Described::default();
    let code = main_to(args.map(OsString::from), &mut host, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(out), text(err));
    Called {
        code,
        out,
        err,
        host,
    }
}

/// A cluster of this process.
struct Running {
    controller: Option<ControllerProcess>,
    at: Rendezvous,
    _workers: Vec<WorkerProcess>,
}

fn running(workers: usize, state: Option<&Path>, store: Option<&Path>) -> Running {
    let token = Token::new([9; 32]);
    let controller = ControllerProcess::start(ControllerOptions {
        bind: "127.0.0.1:0".parse().unwrap(),
        token: token.clone(),
        tls: None,
        balance_each: None,
        jobs_at_once: JOBS_AT_ONCE,
        snapshots: store.map(|store| SnapshotOptions {
            store: store.display().to_string(),
            every: SnapshotEvery::Turns(20),
        }),
        state: state.map(|state| state.display().to_string()),
        silence: SILENCE,
    })
    .unwrap();
    let at = Rendezvous {
        address: controller.address(),
        token,
        tls: None,
    };
    let worker = |_| {
        let mut settings = Settings::default();
        settings.threads = Some(1);
        let options = WorkerOptions {
            cluster: at.clone(),
            settings,
            bind: None,
        };
        let worker = WorkerProcess::start(options, Box::new(Builds)).unwrap();
        await_that("a worker", || worker.name().is_some());
        worker
    };
    let workers = (0..workers).map(worker).collect();
    Running {
        controller: Some(controller),
        at,
        _workers: workers,
    }
}

fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn files(folder: &Path, of: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            match entry.path().is_dir() {
                true => left.push(entry.path()),
                false if next.ends_with(of) => found.push(entry.path()),
                false => {}
            }
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let into = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &into),
            false => drop(fs::copy(entry.path(), into).unwrap()),
        }
    }
}

/// A store whose cluster of three workers is gone, with two snapshots of a job that had not ended; each test has a copy. With it a file with the token of all
/// clusters here.
struct Left {
    folder: tempfile::TempDir,
}

impl Left {
    fn new() -> Left {
        static MADE: OnceLock<tempfile::TempDir> = OnceLock::new();
        let made = MADE.get_or_init(made);
        let folder = tempfile::tempdir().unwrap();
        copy(made.path(), folder.path());
        fs::write(folder.path().join("token"), "09".repeat(32)).unwrap();
        fs::write(folder.path().join("script"), FAST).unwrap();
        Left { folder }
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("snapshots")
    }

    fn text(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Cuts of which there are snapshots, the newest last.
    fn cuts(&self) -> Vec<u64> {
        let cut = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        files(&self.store(), "manifests").iter().map(cut).collect()
    }

    fn newest(&self) -> String {
        format!("j1/{}", self.cuts().last().unwrap())
    }

    fn restore(&self, more: &[&str]) -> Called {
        let (store, name) = (self.text("snapshots"), self.newest());
        let words = ["restore", &name, "--store", &store];
        call(&[&words[..], more].concat())
    }

    fn restore_on(&self, cluster: &Running, script: &str) -> Called {
        let (address, token) = (cluster.at.address.to_string(), self.text("token"));
        self.restore(&["--on", &address, "--token-file", &token, script])
    }

    /// Objects that the snapshot of a cut has written itself.
    fn parts(&self, cut: u64) -> Vec<PathBuf> {
        let own = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with(&format!("{cut}-"))
        };
        files(&self.store(), "parts")
            .into_iter()
            .filter(own)
            .collect()
    }
}

fn made() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("snapshots");
    let mut cluster = running(3, Some(&folder.path().join("state")), Some(&store));
    let ends = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let to = Arc::new(Cluster::connect(&cluster.at).unwrap());
            let options = RunOptions::new().on(&to).described_by(SCRIPT.as_bytes());
            let mut notes = Notes(Vec::new(), ends.clone());
            options.run_with(built(SCRIPT.as_bytes()).unwrap().program, &mut notes)
        });
        await_that("two snapshots", || files(&store, "manifests").len() > 1);
        // As if all of them were killed: nobody takes anything away.
        cluster.controller = None;
        ends.store(true, Ordering::Relaxed);
        assert!(client.join().unwrap().is_err());
    });
    drop(cluster);
    folder
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 4;
    bytes[middle] ^= 1;
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn store_slips_of_who_restores_nothing() {
    let _alone = alone();
    let left = Left::new();
    let store = left.text("snapshots");
    call(&["restore", "j1/1"]).says(
        USAGE,
        &["no store is given", "--store DIR", "BRAMBLING_STORE"],
    );
    let typo = left.text("snapshotz");
    call(&["restore", "j1/1", "--store", &typo]).says(
        FAILED,
        &[
            &typo,
            "there is no such directory",
            "give the store in which the job was saved",
        ],
    );
    assert!(!Path::new(&typo).exists(), "a slip makes nothing");
    call(&["restore", "j1/1", "--store", &left.text("token")])
        .says(FAILED, &["it is a file; give a directory"]);
    let whole = format!("/1/{}", left.cuts()[0]);
    call(&["restore", "j9/1", "--store", &store]).says(
        FAILED,
        &["there is no snapshot j9/1 in", "there are cluster-", &whole],
    );
    let empty = tempfile::tempdir().unwrap();
    let empty = empty.path().display().to_string();
    call(&["restore", "j1/1", "--store", &empty]).says(
        FAILED,
        &["there is none at all: give the store in which the job was saved"],
    );
    call(&["snapshots", "--store", &empty]).says(OK, &["no snapshots in this store"]);
    let script = left.text("script");
    left.restore(&[
        "--on",
        "127.0.0.1:1",
        "--token-file",
        &left.text("token"),
        &script,
    ])
    .says(
        FAILED,
        &["no controller at 127.0.0.1:1", "brambling controller"],
    );
    left.restore(&[&left.text("scriptt")])
        .says(USAGE, &["is neither a file nor an example"]);
    // Where the results are to go is looked at before the job runs.
    left.restore(&["--output", &left.text("token")])
        .says(FAILED, &["the results cannot be written to", "--output"]);
    left.restore(&["--output", &store])
        .says(FAILED, &["there is something in it already"]);
}

#[test]
fn store_slips_are_none_of_a_snapshot_that_is_whole() {
    let _alone = alone();
    let left = Left::new();
    let listed = call(&["snapshots", "--store", &left.text("snapshots")]);
    listed.says(OK, &["SNAPSHOT", "heat", &format!("/1/{}", left.cuts()[0])]);
    assert_eq!(listed.out.lines().count(), 3, "{}", listed.out);
    // Without its script, here.
    let output = left.text("results");
    let called = left.restore(&["--output", &output]);
    called.has_gone_on();
    called.says(
        OK,
        &[
            "restoring `heat` from snapshot cluster-",
            &format!("its results are in {output}"),
        ],
    );
    let written = fs::read_to_string(Path::new(&output).join("cells")).unwrap();
    assert_eq!(written, format!("{:?}", undisturbed()));
    // With it, here and on two workers where there were three.
    left.restore(&[&left.text("script")]).has_gone_on();
    let store = left.folder.path().join("other");
    let cluster = running(2, None, Some(&store));
    left.restore_on(&cluster, &left.text("script"))
        .has_gone_on();
    // Its own snapshots went with the job, and nobody touched those that it came from.
    await_that("they go", || files(&store, "manifests").is_empty());
    assert_eq!(left.cuts().len(), 2);
}

#[test]
fn store_slips_with_a_flipped_bit_are_named_and_the_one_before_is_used() {
    let _alone = alone();
    let left = Left::new();
    let cuts = left.cuts();
    let (before, newest) = (cuts[0], cuts[1]);
    let object = &left.parts(newest)[0];
    flip(object);
    let called = left.restore(&[&left.text("script")]);
    called.has_gone_on();
    called.says(
        OK,
        &[
            &format!("/1/{newest} is not used"),
            object.file_name().unwrap().to_str().unwrap(),
            "is damaged: the checksum of",
            "the one before it, cluster-",
            &format!("/1/{before}, is"),
        ],
    );
    // In a manifest.
    let left = Left::new();
    flip(&files(&left.store(), "manifests")[1]);
    left.restore(&[&left.text("script")]).has_gone_on();
    call(&["snapshots", "--store", &left.text("snapshots")]).says(OK, &["no: its checksum is not"]);
    // In all there are.
    flip(&files(&left.store(), "manifests")[0]);
    left.restore(&[&left.text("script")]).says(
        FAILED,
        &[
            "cannot be used, and there is none before it that can",
            "its manifest is damaged",
            "run the program again",
        ],
    );
    // An object that is not there at all.
    let left = Left::new();
    left.parts(newest)
        .iter()
        .for_each(|it| fs::remove_file(it).unwrap());
    let called = left.restore(&[&left.text("script")]);
    called.has_gone_on();
    called.says(OK, &["is not there"]);
}

#[test]
fn store_slips_of_another_version() {
    let _alone = alone();
    let left = Left::new();
    let newest = &files(&left.store(), "manifests")[1];
    let mut bytes = fs::read(newest).unwrap();
    bytes[4] = 9;
    fs::write(newest, bytes).unwrap();
    left.restore(&[&left.text("script")]).says(
        FAILED,
        &["it has version 9, and this Brambling reads versions up to 1; use the one that wrote it, or a newer one"],
    );
    // The program that is kept is of a newer form, is damaged, or is not there: with its script it goes on.
    let left = Left::new();
    let mut program = files(&left.store(), "1");
    program.retain(|it| it.ends_with("program"));
    let program = &program[0];
    let mut bytes = fs::read(program).unwrap();
    bytes[4] = 9;
    fs::write(program, &bytes).unwrap();
    left.restore(&[]).says(
        FAILED,
        &[
            "cannot be used: it has version 9",
            "give the script that made it",
        ],
    );
    bytes[4] = 1;
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(program, &bytes).unwrap();
    left.restore(&[])
        .says(FAILED, &["its checksum is not that of its bytes"]);
    fs::remove_file(program).unwrap();
    left.restore(&[])
        .says(FAILED, &["it was not kept", "FILE.py"]);
    left.restore(&[&left.text("script")]).has_gone_on();
}

#[test]
fn store_slips_of_another_cluster() {
    let _alone = alone();
    let left = Left::new();
    let store = left.store();
    let of = fs::read_dir(&store)
        .unwrap()
        .flatten()
        .next()
        .unwrap()
        .path();
    copy(&of, &store.join("cluster-00000000000000ff"));
    let own = of.file_name().unwrap().to_str().unwrap().to_owned();
    let name = format!("j1/{}", left.cuts().last().unwrap());
    let called = call(&["restore", &name, "--store", &store.display().to_string()]);
    called.says(
        FAILED,
        &[
            "of several clusters; say which one",
            "cluster-00000000000000ff/1/",
            &own,
        ],
    );
    let whole = format!("{own}/1/{}", left.cuts().last().unwrap());
    let words = ["restore", &whole, "--store", &store.display().to_string()];
    call(&[&words[..], &[&left.text("script")]].concat()).has_gone_on();
    // The cluster that is to go on has no store of its own.
    let left = Left::new();
    let cluster = running(1, None, None);
    left.restore_on(&cluster, &left.text("script")).says(
        FAILED,
        &[
            "keeps no snapshots of the job",
            "start its controller with --store or --state",
        ],
    );
}

#[test]
fn store_slips_of_a_program_that_has_changed_since() {
    let _alone = alone();
    let left = Left::new();
    let script = left.text("script");
    fs::write(&script, "heat 9 601 fast").unwrap();
    let hash = |text: &str| built(text.as_bytes()).unwrap().program.spec().hash();
    let (then, now) = (hash(FAST), hash("heat 9 601 fast"));
    let cluster = running(2, None, Some(&left.folder.path().join("other")));
    for called in [left.restore(&[&script]), left.restore_on(&cluster, &script)] {
        called.says(
            FAILED,
            &[
                "`heat` has changed since snapshot cluster-",
                &format!("its hash was {then:032x}, and is {now:032x} now"),
                "give the script as it was then, or run this one from its start",
            ],
        );
        assert!(called.host.left.is_empty(), "it has not run");
    }
    // Another program altogether.
    fs::write(&script, "cold 9 3 fast").unwrap();
    let now = hash("cold 9 3 fast");
    left.restore(&[&script]).says(
        FAILED,
        &[
            "the script has run no program `heat`",
            &format!("`cold` ({now:032x})"),
        ],
    );
    // What the process runs next begins at its start.
    fs::write(&script, FAST).unwrap();
    let called = call(&["run", &script]);
    assert_eq!((called.code, called.host.said), (OK, vec![]));
}

/// A small file system, for as long as this lives.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path, options: &str) -> Option<Mounted> {
        fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(at)
            .status();
        match mounted {
            Ok(status) if status.success() => Some(Mounted(at.to_owned())),
            _ => {
                // A test that is skipped says so.
                use std::io::Write;
                let _ = writeln!(std::io::stderr(), "skipped: nothing can be mounted here");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn store_slips_without_rights_and_full() {
    let _alone = alone();
    let left = Left::new();
    let at = left.folder.path().join("mounted");
    if let Some(_mounted) = Mounted::new(&at, "ro,size=64k") {
        let at = at.display().to_string();
        let answer = [
            "opening it: permission denied",
            "let this user write there",
            &at,
        ];
        call(&["snapshots", "--store", &at]).says(FAILED, &answer);
        call(&["restore", "j1/1", "--store", &at]).says(FAILED, &answer);
    }
    if let Some(_mounted) = Mounted::new(&at, "size=64k") {
        let cluster = running(2, None, Some(&at));
        fs::write(at.join("others"), vec![7; 1 << 20]).unwrap_err();
        left.restore_on(&cluster, &left.text("script")).says(
            FAILED,
            &[
                "the snapshot cannot be copied into this cluster's store",
                "no space is left; free some",
            ],
        );
    }
}
