//! A directory of parts appears at once, whoever of its workers commits it.

mod support;

use brambling_storage::{BlockWriter, FileError, Staging, remove_leftovers};
use std::path::Path;
use support::{Waiting, is_left};

fn put(staging: &Staging, number: u32, bytes: &[u8]) -> Result<(), FileError> {
    let part = staging.part(number, Some(bytes.len() as u64))?;
    let mut writer = BlockWriter::new(&part, 1);
    let mut block = writer.take_block(bytes.len());
    block.extend_from_slice(bytes);
    writer.write(0, block);
    Waiting::default().until(|waker| writer.poll_written(waker))?;
    part.publish()
}

fn refused<T: std::fmt::Debug>(result: Result<T, FileError>, parts: &[&str]) {
    let said = result.unwrap_err().to_string();
    for part in parts {
        assert!(said.contains(part), "{said:?} has no {part:?}");
    }
}

fn read(out: &Path, number: u32) -> Vec<u8> {
    std::fs::read(out.join(format!("part-{number:05}"))).unwrap()
}

#[test]
fn parts_of_several_workers_appear_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let workers = [0, 1, 2].map(|_| Staging::begin(&out, "job-7").unwrap());
    for (number, worker) in workers.iter().enumerate() {
        put(worker, number as u32, &[number as u8; 5]).unwrap();
        // A worker that came again after a failure writes the same part once more.
        put(worker, number as u32, &[number as u8 + 1; 6]).unwrap();
        assert!(!out.exists());
    }
    for worker in &workers {
        worker.commit().unwrap();
        worker.commit().unwrap();
    }
    assert_eq!(is_left(directory.path()), ["out"]);
    assert_eq!(is_left(&out), ["part-00000", "part-00001", "part-00002"]);
    assert_eq!(read(&out, 2), [3; 6]);
    workers[0].abandon().unwrap();
    assert_eq!(read(&out, 1), [2; 6]);
}

#[test]
fn whoever_gives_up_last_takes_it_away() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let [first, last] = [0, 1].map(|_| Staging::begin(&out, "job-8").unwrap());
    put(&last, 0, b"bytes").unwrap();
    assert!(first.has_part(0) && !first.has_part(1));
    first.abandon_if_last().unwrap();
    drop(first);
    assert!(last.has_part(0), "another one has it still");
    last.abandon_if_last().unwrap();
    assert!(is_left(directory.path()).is_empty());
}

#[test]
fn what_stands_under_the_name_stays() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("file"), "bytes").unwrap();
    std::fs::create_dir(at("full")).unwrap();
    std::fs::write(at("full/theirs"), "bytes").unwrap();
    std::os::unix::fs::symlink("nothing", at("loose")).unwrap();
    for name in ["file", "full", "loose"] {
        let expected = [
            "creating",
            name,
            "File exists",
            "delete it, or name another one",
        ];
        refused(Staging::begin(&at(name), "1"), &expected);
    }
    refused(
        Staging::begin(&at("none/out"), "1"),
        &["/none/out failed: No such file"],
    );
    refused(
        Staging::begin(&at("file/out"), "1"),
        &["/file/out failed: Not a directory"],
    );
    refused(Staging::begin(Path::new("/"), "1"), &["creating / failed"]);

    // It came while the job ran.
    let staging = Staging::begin(&at("out"), "1").unwrap();
    put(&staging, 0, b"ours").unwrap();
    std::fs::create_dir(at("out")).unwrap();
    std::fs::write(at("out/theirs"), "bytes").unwrap();
    refused(staging.commit(), &["publishing", "/out failed"]);
    assert_eq!(is_left(&at("out")), ["theirs"]);
    staging.abandon().unwrap();
    staging.abandon().unwrap();
    refused(staging.commit(), &["publishing", "/out failed"]);
    assert_eq!(is_left(directory.path()), ["file", "full", "loose", "out"]);

    // An empty directory is as good as none.
    std::fs::create_dir(at("empty")).unwrap();
    let staging = Staging::begin(&at("empty"), "1").unwrap();
    put(&staging, 0, b"ours").unwrap();
    staging.commit().unwrap();
    assert_eq!(read(&at("empty"), 0), b"ours");
}

/// Leftovers are what has a hidden name and nobody who holds it: the job that runs keeps its parts.
#[test]
fn leftovers_are_removed_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in [
        ".brambling-spill-1-2",
        "brambling-1",
        ".x",
        ".x.brambling",
        "x.brambling-1-1",
    ] {
        std::fs::write(at(name), "theirs").unwrap();
    }
    let theirs = is_left(directory.path());
    let running = Staging::begin(&at("out"), "running").unwrap();
    put(&running, 0, b"ours").unwrap();
    let dead = Staging::begin(&at("out"), "dead").unwrap();
    put(&dead, 0, b"ours").unwrap();
    drop(dead);
    std::fs::write(at(".out.brambling-99-0"), "a part").unwrap();
    assert_eq!(remove_leftovers(directory.path()).unwrap(), 2);
    assert_eq!(remove_leftovers(directory.path()).unwrap(), 0);
    running.commit().unwrap();
    let mut expected = [theirs, vec!["out".to_owned()]].concat();
    expected.sort();
    assert_eq!(is_left(directory.path()), expected);
    assert_eq!(read(&at("out"), 0), b"ours");
}
