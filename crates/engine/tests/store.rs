//! A process that keeps its jobs in a store, is killed, and is started again with the same command goes on from its last snapshot, and ends with
//! the bits of one that was left alone.
//!
//! The processes are this test's own binary. Says nothing about the loss of power: files are flushed before they get their names, which
//! `storage`'s tests do not see either.

#![allow(clippy::print_stdout)] // What a process has to say to the test that started it.

use brambling::prelude::*;
use brambling::{Caller, Interrupted};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TURNS: u64 = 900;
/// The first turn that ran in this process.
static FIRST: AtomicU64 = AtomicU64::new(u64::MAX);
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Says what it is told.
struct Says;

impl Caller for Says {
    fn told(&mut self, line: &str) {
        println!("told: {line}");
    }
    fn check(&mut self) -> Result<(), Interrupted> {
        Ok(())
    }
}

/// Every turn changes all of it, and takes a while.
fn program(plan: &Asked) -> (Program, Dataset<u64>, Dataset<Vec<u64>>) {
    let (pause, first) = (plan.pause, plan.first);
    let mut p = Program::new(if plan.is_while {
        "while it lasts"
    } else {
        "counted"
    });
    let total = p.value("total", 1, 1u64);
    let mixed = p.value("mixed", 4, 0u64);
    let rows = p.load("rows", 4, Partitioner::Opaque, move |index, _| {
        (0..1_000)
            .map(|row| row * first + u64::from(index))
            .collect::<Vec<u64>>()
    });
    let local = p.dataset::<u64>("local", 4);
    let turns = p.value("turns", 1, 0u64);
    let (seen, is_while) = (p.dataset::<u64>("seen", 1), plan.is_while);
    let body = |p: &mut Program| {
        p.broadcast(&total, &local);
        p.compute("mix")
            .read(&local)
            .update(&mixed)
            .update(&rows)
            .run_with_context(
                move |context: &mut Context<'_>,
                      local: &u64,
                      mixed: &mut u64,
                      rows: &mut Vec<u64>| {
                    FIRST.fetch_min(context.turn(), Ordering::Relaxed);
                    CALLS.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(pause);
                    *mixed = (*mixed ^ *local)
                        .rotate_left(7)
                        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    rows.iter_mut()
                        .for_each(|row| *row = row.wrapping_mul(31).wrapping_add(*mixed));
                },
            );
        p.reduce(Sum, &mixed, &total, |total: &mut u64, sum: &u64| {
            *total = total.wrapping_mul(3).wrapping_add(*sum);
        });
        if is_while {
            // It follows what the others send, so who decides does not run ahead.
            p.broadcast(&total, &seen);
            let count = p.compute("count").read(&seen).update(&turns);
            count.run(|_: &u64, turns: &mut u64| *turns += 1);
        } else {
            // It waits for nobody, and runs ahead of the others.
            let count = p.compute("count").update(&turns);
            count.run(|turns: &mut u64| *turns += 1);
        }
    };
    if plan.is_while {
        p.repeat_while("goes on", &turns, |turns: &u64| *turns < TURNS, body);
    } else {
        p.repeat(TURNS, body);
    }
    p.keep(&total);
    p.keep(&rows);
    (p, total, rows)
}

/// What a process is asked to do.
#[derive(Clone)]
struct Asked {
    store: Option<PathBuf>,
    is_while: bool,
    every: &'static str,
    pause: Duration,
    first: u64,
    /// A second job, of the same program.
    twice: bool,
}

impl Asked {
    fn new(store: &Path, is_while: bool) -> Asked {
        Asked {
            store: Some(store.to_owned()),
            is_while,
            every: "50ms",
            pause: Duration::from_millis(2),
            first: 7,
            twice: false,
        }
    }

    fn spawn(&self) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_process", "--nocapture", "--test-threads", "1"]);
        let form = format!(
            "{}|{}|{}|{}|{}",
            self.is_while,
            self.every,
            self.pause.as_millis(),
            self.first,
            self.twice
        );
        command.env("STORE_TEST", form);
        command.env(
            "STORE_TEST_AT",
            self.store.as_deref().unwrap_or(Path::new("")),
        );
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn run(&self) -> Ended {
        Ended::of(self.spawn().wait_with_output().unwrap())
    }
}

/// What a process has said.
#[derive(Debug)]
struct Ended {
    bits: String,
    first: u64,
    calls: u64,
    told: Vec<String>,
}

impl Ended {
    fn of(output: Output) -> Ended {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}\n{errors}");
        let line = |name: &str| {
            let of = |line: &str| {
                line.split_once(&format!("{name}: "))
                    .map(|it| it.1.to_owned())
            };
            text.lines().filter_map(of).collect::<Vec<_>>()
        };
        Ended {
            bits: line("bits").join(","),
            first: line("first")[0].parse().unwrap(),
            calls: line("calls")[0].parse().unwrap(),
            told: line("told"),
        }
    }
}

/// The process: does what it is asked by its environment. Nothing, where nobody asks.
#[test]
fn a_process() {
    let Ok(form) = std::env::var("STORE_TEST") else {
        return;
    };
    let form: Vec<&str> = form.split('|').collect();
    let asked = Asked {
        store: std::env::var_os("STORE_TEST_AT")
            .filter(|it| !it.is_empty())
            .map(PathBuf::from),
        is_while: form[0] == "true",
        every: "",
        pause: Duration::from_millis(form[2].parse().unwrap()),
        first: form[3].parse().unwrap(),
        twice: form[4] == "true",
    };
    brambling::set_command("store-test");
    for _ in 0..=u32::from(asked.twice) {
        let mut options = RunOptions::new().threads(2).snapshot_every(form[1]);
        if let Some(store) = &asked.store {
            options = options.store(store.display().to_string());
        }
        let (program, total, rows) = program(&asked);
        let mut outcome = options.run_with(program, &mut Says).unwrap();
        let rows = outcome.take_all(&rows);
        let sum = rows
            .iter()
            .flatten()
            .fold(0u64, |sum, row| sum.rotate_left(1) ^ row);
        println!("bits: {:x}-{sum:x}", outcome.take(&total));
    }
    println!("first: {}", FIRST.load(Ordering::Relaxed));
    println!("calls: {}", CALLS.load(Ordering::Relaxed));
}

/// Manifests that lie in a store.
fn manifests(store: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![store.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else if directory.ends_with("manifests") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Starts a process and kills it when the store has a snapshot of at least this number.
fn killed_after(asked: &Asked, number: u64) {
    let mut child = asked.spawn();
    let store = asked.store.as_deref().unwrap();
    let begun = Instant::now();
    loop {
        let newest = manifests(store)
            .last()
            .and_then(|path| path.file_name()?.to_str()?.parse::<u64>().ok());
        if newest.is_some_and(|newest| newest >= number) {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "no snapshot {number}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    // As `kill -9`.
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success(), "it was to be killed");
}

fn undisturbed(asked: &Asked) -> Ended {
    let pause = Duration::ZERO;
    let store = None;
    Asked {
        store,
        pause,
        ..asked.clone()
    }
    .run()
}

#[test]
fn who_was_killed_goes_on_from_a_snapshot() {
    for is_while in [false, true] {
        let store = tempfile::tempdir().unwrap();
        let asked = Asked::new(store.path(), is_while);
        let expected = undisturbed(&asked);
        assert_eq!((expected.first, expected.calls), (0, 4 * TURNS));
        killed_after(&asked, 2);
        // Killed again, after it has gone on.
        killed_after(&asked, 4);
        let ended = asked.run();
        assert_eq!(ended.bits, expected.bits);
        assert!(ended.first > 0 && ended.calls < 4 * TURNS, "{ended:?}");
        assert!(
            ended.told[0].contains("goes on from its snapshot"),
            "{ended:?}"
        );
        // Its results are there: nothing runs again.
        let again = asked.run();
        assert_eq!((again.bits, again.calls), (expected.bits, 0));
        assert_eq!(manifests(store.path()).len(), 2);
    }
}

#[test]
fn a_job_is_known_by_its_place_in_the_command() {
    let store = tempfile::tempdir().unwrap();
    let mut asked = Asked::new(store.path(), false);
    asked.pause = Duration::ZERO;
    asked.every = "off";
    let once = asked.run();
    assert_eq!(once.calls, 4 * TURNS);
    // The first is read, the second is run.
    asked.twice = true;
    let twice = asked.run();
    assert_eq!((twice.calls, twice.first), (4 * TURNS, 0));
    assert_eq!(twice.bits, format!("{0},{0}", once.bits));
}

#[test]
fn other_input_is_another_job() {
    let store = tempfile::tempdir().unwrap();
    let mut asked = Asked::new(store.path(), false);
    killed_after(&asked, 1);
    asked.first = 8;
    let other = asked.run();
    assert_eq!(other.first, 0);
    assert_eq!(other.bits, undisturbed(&asked).bits);
    assert!(
        other.told[0].contains("the input `rows` has changed since"),
        "{other:?}"
    );
}

#[test]
fn of_a_damaged_snapshot_the_one_before_is_used() {
    for part in [false, true] {
        let store = tempfile::tempdir().unwrap();
        let asked = Asked::new(store.path(), false);
        killed_after(&asked, 3);
        let all = manifests(store.path());
        let newest = all.last().unwrap();
        let damaged = match part {
            false => newest.clone(),
            true => {
                // The part of the newest cut.
                let number = newest
                    .file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .parse::<u64>()
                    .unwrap();
                let parts = newest.parent().unwrap().parent().unwrap().join("parts");
                let its = format!("{number}-");
                let mut parts = std::fs::read_dir(parts)
                    .unwrap()
                    .map(|it| it.unwrap().path());
                let is_its = |path: &PathBuf| {
                    path.file_name()
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .starts_with(&its)
                };
                parts.find(is_its).unwrap()
            }
        };
        let mut bytes = std::fs::read(&damaged).unwrap();
        let at = bytes.len() / 3;
        bytes[at] ^= 0x10;
        std::fs::remove_file(&damaged).unwrap();
        std::fs::write(&damaged, bytes).unwrap();
        let ended = asked.run();
        assert_eq!(ended.bits, undisturbed(&asked).bits);
        assert!(ended.first > 0, "{ended:?}");
        assert!(ended.told[0].contains("is not used"), "{ended:?}");
        let told = ended.told.join("\n");
        assert!(
            told.contains(if part { "is damaged" } else { "checksum" }),
            "{told}"
        );
    }
}

#[test]
fn what_is_missing_or_short_is_passed_over() {
    let store = tempfile::tempdir().unwrap();
    let asked = Asked::new(store.path(), false);
    killed_after(&asked, 3);
    let all = manifests(store.path());
    let newest = all.last().unwrap();
    let number = newest.file_name().unwrap().to_str().unwrap();
    let number = format!("{}-", number.parse::<u64>().unwrap());
    let parts = newest.parent().unwrap().parent().unwrap().join("parts");
    for entry in std::fs::read_dir(parts).unwrap() {
        let path = entry.unwrap().path();
        if path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with(&number)
        {
            std::fs::remove_file(path).unwrap();
        }
    }
    let ended = asked.run();
    assert_eq!(ended.bits, undisturbed(&asked).bits);
    assert!(ended.first > 0, "{ended:?}");
    assert!(ended.told[0].contains("it is not there"), "{ended:?}");
}

#[test]
fn a_second_live_process_has_a_place_of_its_own() {
    let store = tempfile::tempdir().unwrap();
    let asked = Asked::new(store.path(), false);
    let expected = undisturbed(&asked).bits;
    let both = [asked.spawn(), asked.spawn()];
    let both = both.map(|child| Ended::of(child.wait_with_output().unwrap()));
    assert!(both.iter().all(|it| it.bits == expected));
    let told: Vec<&String> = both.iter().flat_map(|it| &it.told).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("another process runs `counted`"),
        "{told:?}"
    );
}
