//! What goes wrong with files names the file, the cause and the way out, and leaves nothing behind.

mod support;

use brambling_storage::{
    BlockWriter, FileError, InputFile, OutputFile, ReadAhead, Scan, remove_leftovers,
};
use std::fs::OpenOptions;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;
use support::{Waiting, cool, directories, is_left, noise, scanned, skip};
use tempfile::TempDir;

fn check(error: &FileError, parts: &[&str]) {
    let said = error.to_string();
    for part in parts {
        assert!(said.contains(part), "{said:?} has no {part:?}");
    }
}

fn refused<T>(result: Result<T, FileError>, parts: &[&str]) {
    match result {
        Ok(_) => panic!("nobody has refused: {parts:?}"),
        Err(error) => check(&error, parts),
    }
}

/// Puts a file of such bytes there through a writer, in blocks; what came of it.
fn write(output: &Arc<OutputFile>, bytes: &[u8], block_bytes: usize) -> Result<(), FileError> {
    let (mut writer, mut waiting) = (BlockWriter::new(output, 4), Waiting::default());
    let mut at = 0;
    for piece in bytes.chunks(block_bytes) {
        waiting.until(|waker| writer.poll_room(waker))?;
        let mut block = writer.take_block_at(at, piece.len());
        block.extend_from_slice(piece);
        writer.write(at, block);
        at += piece.len() as u64;
    }
    waiting.until(|waker| writer.poll_written(waker))
}

#[test]
fn a_file_that_became_shorter_is_told() {
    for directory in directories() {
        for (is_cold, bytes, blocks) in
            [(false, 700_001, 3), (true, 700_001, 3), (true, 999_999, 4)]
        {
            let path = directory.path().join("input");
            std::fs::write(&path, noise(7, 1_000_000)).unwrap();
            if is_cold {
                cool(&path);
            }
            let file = InputFile::open(&path).unwrap();
            let shorter = OpenOptions::new().write(true).open(&path).unwrap();
            shorter.set_len(bytes).unwrap();
            let found = format!("has {bytes} bytes where 1000000 were");
            let expected = ["/input has become shorter", &found, "begin again"];
            let ahead = ReadAhead {
                block_bytes: 200_000,
                blocks: 2,
            };
            let mut scan = Scan::new(&file, 0..1_000_000, ahead);
            let mut waiting = Waiting::default();
            for _ in 0..blocks {
                assert!(waiting.until(|waker| scan.poll(waker)).unwrap().is_some());
            }
            for _ in 0..2 {
                refused(waiting.until(|waker| scan.poll(waker)), &expected);
            }
            refused(file.read_at(999_990, &mut [0; 10]), &expected);
        }
    }
}

#[test]
fn what_is_no_file_is_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let pipe = at("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    std::fs::write(at("file"), "bytes").unwrap();
    std::os::unix::fs::symlink("nothing", at("loose")).unwrap();

    refused(
        InputFile::open(directory.path()),
        &["opening", "a directory", "name a file in it"],
    );
    refused(
        InputFile::open(&pipe),
        &["/pipe is not a plain file", "name a file"],
    );
    refused(
        InputFile::open(Path::new("/dev/null")),
        &["/dev/null is not a plain file"],
    );
    refused(
        InputFile::open(&at("none")),
        &["opening", "/none failed: No such file", "is the name right"],
    );

    let create = |path: &Path| OutputFile::create(path, None);
    refused(
        create(directory.path()),
        &["creating", "a directory", "name a file in it"],
    );
    refused(create(&at("..")), &["creating", "a directory"]);
    refused(create(&pipe), &["/pipe is not a plain file"]);
    refused(
        create(&at("none/out")),
        &["/none/out failed: No such file", "each directory in it"],
    );
    refused(
        create(&at("file/out")),
        &["/file/out failed: Not a directory", "is each part"],
    );
    refused(create(&at("loose")), &["/loose failed: No such file"]);
    refused(
        OutputFile::unnamed(&at("none")),
        &["creating a file in", "/none failed"],
    );
    refused(
        remove_leftovers(&at("none")),
        &["looking for leftovers in", "/none failed"],
    );
    assert_eq!(is_left(directory.path()), ["file", "loose", "pipe"]);
}

/// On a thread whose user is nobody, if it can be: the system asks that one.
#[test]
fn missing_rights_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let own = std::os::unix::fs::PermissionsExt::from_mode;
    for (name, mode) in [("secret", 0o600), ("kept", 0o444)] {
        std::fs::write(at(name), "bytes").unwrap();
        std::fs::set_permissions(at(name), own(mode)).unwrap();
    }
    std::fs::create_dir(at("open")).unwrap();
    std::fs::write(at("open/kept"), "bytes").unwrap();
    std::fs::set_permissions(at("open/kept"), own(0o444)).unwrap();
    std::fs::set_permissions(at("open"), own(0o777)).unwrap();
    std::fs::set_permissions(directory.path(), own(0o755)).unwrap();
    let as_nobody = || {
        let nobody = rustix::process::Uid::from_raw(65_534);
        if rustix::thread::set_thread_res_uid(nobody, nobody, nobody).is_err() {
            return skip("who is not root cannot become nobody");
        }
        let expected = [
            "Permission denied",
            "ask for the right, or name another place",
        ];
        refused(InputFile::open(&at("secret")), &expected);
        refused(OutputFile::create(&at("out"), None), &expected);
        refused(OutputFile::unnamed(directory.path()), &expected);
        // Its directory would let it be replaced.
        refused(OutputFile::create(&at("open/kept"), None), &expected);
        // What it may only read it reads.
        let ahead = ReadAhead {
            block_bytes: 2,
            blocks: 2,
        };
        let file = InputFile::open(&at("kept")).unwrap();
        assert_eq!(scanned(&file, 0..5, ahead).unwrap().concat(), b"bytes");
    };
    std::thread::scope(|scope| scope.spawn(as_nobody).join().unwrap());
}

/// A small file system of its own, which is gone with it.
struct Small(TempDir);

impl Small {
    /// None when it cannot be had here.
    fn mounted(image: Option<&[&str]>) -> Option<Small> {
        let directory = tempfile::tempdir().unwrap();
        let on = directory.path().join("disk");
        std::fs::create_dir(&on).unwrap();
        let mut mount = Command::new("mount");
        match image {
            None => mount.args(["-t", "tmpfs", "-o", "size=8m", "none"]),
            Some(options) => {
                let image = directory.path().join("image");
                std::fs::File::create(&image)
                    .unwrap()
                    .set_len(24 << 20)
                    .unwrap();
                let mut make = Command::new("mkfs.ext4");
                let made = make
                    .args(["-q", "-F", "-m", "0"])
                    .args(options)
                    .arg(&image)
                    .status();
                if !made.is_ok_and(|it| it.success()) {
                    return None;
                }
                mount.args(["-o", "loop"]).arg(&image)
            }
        };
        let mounted = mount.arg(&on).stderr(std::process::Stdio::null()).status();
        mounted
            .is_ok_and(|it| it.success())
            .then_some(Small(directory))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg(self.0.path().join("disk"))
            .status();
    }
}

/// Lets go of a file, and waits for the requests that run yet.
fn closed(output: Arc<OutputFile>) {
    let file = Arc::downgrade(&output);
    drop(output);
    for _ in 0..1_000 {
        if file.strong_count() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("somebody still holds a file");
}

/// In memory, on a disk, and on one that cannot take room before it is written.
#[test]
fn a_full_disk_is_told_and_left_as_it_was() {
    let without_extents: &[&str] = &["-O", "^extents,^64bit,^metadata_csum"];
    for image in [None, Some(&[][..]), Some(without_extents)] {
        let Some(small) = Small::mounted(image) else {
            skip("no file system can be mounted here");
            continue;
        };
        let disk = small.0.path().join("disk");
        let before = is_left(&disk);
        let path = disk.join("out");
        let told = ["/out", "failed: No space left", "make room on that disk"];
        let takes_room = OutputFile::create(&path, Some(60 << 20));
        if image != Some(without_extents) {
            refused(takes_room, &["taking room for 62914560 bytes of"]);
        }
        let bytes = noise(3, 40 << 20);
        for block_bytes in [1 << 20, 300_000] {
            let output = OutputFile::create(&path, None).unwrap();
            let written = write(&output, &bytes, block_bytes);
            // What went into the cache may be refused when it leaves it.
            refused(written.and_then(|()| output.publish()), &told);
            assert!(output.publish().is_err());
            let run = OutputFile::unnamed(&disk).unwrap();
            refused(write(&run, &bytes, block_bytes), &told[1..]);
            closed(output);
            closed(run);
        }
        assert_eq!(is_left(&disk), before);
        // What did not fit has given its room back.
        let output = OutputFile::create(&path, Some(5 << 20)).unwrap();
        write(&output, &bytes[..5 << 20], 1 << 20).unwrap();
        output.publish().unwrap();
        assert!(std::fs::read(&path).unwrap() == bytes[..5 << 20]);
    }
}

#[test]
fn a_file_is_itself_by_any_link() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("file"), "bytes").unwrap();
    std::fs::write(at("other"), "bytes").unwrap();
    std::fs::hard_link(at("file"), at("hard")).unwrap();
    std::os::unix::fs::symlink("hard", at("soft")).unwrap();
    std::os::unix::fs::symlink(directory.path(), at("around")).unwrap();
    let file = InputFile::open(&at("soft")).unwrap();
    for name in [
        "file",
        "hard",
        "soft",
        "around/file",
        "./around/around/soft",
    ] {
        assert!(file.is_same_as(&at(name)).unwrap(), "{name}");
    }
    for name in ["other", "none", "none/file", "."] {
        assert!(!file.is_same_as(&at(name)).unwrap(), "{name}");
    }
}

/// Whoever drops a scan or a writer leaves no request behind that holds its file.
#[test]
fn what_is_dropped_lets_go_of_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, noise(1, 1 << 20)).unwrap();
    let input = InputFile::open(&path).unwrap();
    let ahead = ReadAhead {
        block_bytes: 4_000,
        blocks: 100,
    };
    let mut scans: Vec<_> = (0..10)
        .map(|_| Scan::new(&input, 0..1 << 20, ahead))
        .collect();
    for scan in &mut scans {
        let _ = scan.poll(Waker::noop());
    }
    drop(scans);
    let output = OutputFile::unnamed(directory.path()).unwrap();
    let mut writer = BlockWriter::new(&output, 50);
    for number in 0..100 {
        let mut block = writer.take_block(4_000);
        block.set_len(4_000);
        writer.write(number * 4_000, block);
    }
    drop(writer);
    for _ in 0..1_000 {
        if Arc::strong_count(&input) + Arc::strong_count(&output) == 2 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("somebody still holds the files");
}

/// More requests than the queue has room for, of many scans on one thread: each comes to its end.
#[test]
fn many_scans_share_the_threads() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let bytes = noise(5, 200_000);
    std::fs::write(&path, &bytes).unwrap();
    let input = InputFile::open(&path).unwrap();
    let ahead = ReadAhead {
        block_bytes: 1_000,
        blocks: 20,
    };
    let mut scans: Vec<_> = (0..60)
        .map(|_| (Scan::new(&input, 0..200_000, ahead), Vec::new()))
        .collect();
    let mut waiting = Waiting::default();
    waiting.until(|waker| {
        let mut open = 0;
        for (scan, got) in &mut scans {
            loop {
                match scan.poll(waker) {
                    Poll::Pending => {
                        open += 1;
                        break;
                    }
                    Poll::Ready(block) => match block.unwrap() {
                        Some(block) => {
                            got.extend_from_slice(&block);
                            scan.give_back(block);
                        }
                        None => break,
                    },
                }
            }
        }
        if open == 0 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    });
    assert!(scans.iter().all(|(_, got)| *got == bytes));
}
