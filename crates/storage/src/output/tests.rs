use super::*;
use crate::remove_leftovers;
use crate::writer::BlockWriter;
use std::process::{Command, Stdio};
use std::task::{Poll, Waker};
use tempfile::TempDir;

type NewFile = fn(&Path) -> io::Result<(File, Naming)>;

/// Files without names, and those under hidden ones: both keep the same promises.
const KINDS: [NewFile; 2] = [new_file, hidden_file];

fn create(kind: NewFile, path: &Path) -> Result<Arc<OutputFile>, FileError> {
    OutputFile::create_by(kind, path, None)
}

/// Writes bytes at the file's beginning.
fn write(output: &Arc<OutputFile>, bytes: &[u8]) -> Result<(), FileError> {
    let mut block = Block::with_capacity(bytes.len());
    block.extend_from_slice(bytes);
    output.write_block(0, &block, &FileCounters::default())
}

/// Waits until all has been written.
fn finish(writer: &mut BlockWriter) {
    loop {
        match writer.poll_written(Waker::noop()) {
            Poll::Ready(written) => return written.unwrap(),
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

/// The names in a directory.
fn names(directory: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(directory.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn an_old_file_stands_until_the_new_one_is_whole() {
    for kind in KINDS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let output = create(kind, &path).unwrap();
        write(&output, b"new one").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        output.publish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new one");
        let mode = std::fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o640, "its rights are those of the old one");
        drop(output);
        assert_eq!(names(&directory), ["out"]);
    }
}

#[test]
fn what_is_not_published_is_gone() {
    for kind in KINDS {
        let directory = tempfile::tempdir().unwrap();
        let output = create(kind, &directory.path().join("out")).unwrap();
        write(&output, b"bytes").unwrap();
        drop(output);
        assert_eq!(names(&directory), [""; 0]);
    }
}

#[test]
fn a_link_leads_to_the_new_file() {
    for kind in KINDS {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("out"), directory.path().join("link"));
        std::fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink("out", &link).unwrap();
        let output = create(kind, &link).unwrap();
        write(&output, b"new").unwrap();
        output.publish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}

/// Somebody else makes a file of that name meanwhile: the last one wins, whole.
#[test]
fn two_of_one_name_replace_each_other() {
    for kind in KINDS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out");
        let outputs = [b"first", b"other"].map(|bytes| {
            let output = create(kind, &path).unwrap();
            write(&output, bytes).unwrap();
            output
        });
        outputs[1].publish().unwrap();
        outputs[0].publish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        drop(outputs);
        assert_eq!(names(&directory), ["out"]);
    }
}

/// A directory may have come under the name meanwhile: it stays, and nothing else does.
#[test]
fn a_name_that_cannot_be_had_leaves_nothing() {
    for kind in KINDS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out");
        let output = create(kind, &path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let error = output.publish().unwrap_err().to_string();
        assert!(
            error.contains("publishing") && error.contains("/out"),
            "{error}"
        );
        drop(output);
        assert_eq!(names(&directory), ["out"]);
    }
}

/// A block that did not come makes a hole, which nobody may take for the file.
#[test]
fn what_lacks_a_block_is_not_published() {
    check_holes();
}

#[cfg(feature = "mutants")]
#[test]
fn a_mutant_that_forgets_holes_is_caught() {
    brambling_memory::mutants::assert_caught("output-forgets-its-holes", check_holes);
}

fn check_holes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out");
    let output = OutputFile::create(&path, Some(100)).unwrap();
    output.spoil(FileError::Cancelled { what: "it".into() });
    assert!(output.publish().is_err() && output.publish().is_err());

    // Depth one: of many blocks at once, some wait when the writer goes.
    let output = OutputFile::create(&path, Some(100)).unwrap();
    let mut writer = BlockWriter::new(&output, 1);
    for number in 0..100 {
        let mut block = writer.take_block(1);
        block.extend_from_slice(&[1]);
        writer.write(number, block);
    }
    drop(writer);
    let error = output.publish().unwrap_err().to_string();
    assert!(error.contains("was cancelled"), "{error}");
    assert_eq!(names(&directory), [""; 0]);

    // A writer that has written all that it was given may go.
    let output = OutputFile::create(&path, None).unwrap();
    let mut writer = BlockWriter::new(&output, 1);
    let mut block = writer.take_block(1);
    block.extend_from_slice(&[1]);
    writer.write(0, block);
    finish(&mut writer);
    drop(writer);
    output.publish().unwrap();
}

/// By a thread that waits for files, once, whoever asks how often.
#[test]
fn who_must_not_wait_publishes_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out");
    let output = OutputFile::create(&path, Some(1_000)).unwrap();
    write(&output, b"bytes").unwrap();
    output.set_bytes(5).unwrap();
    let mut publishing = Publishing::new(&output);
    assert!(!path.exists());
    for _ in 0..2 {
        while publishing.poll(Waker::noop()).is_pending() {
            std::thread::yield_now();
        }
        assert_eq!(publishing.poll(Waker::noop()), Poll::Ready(Ok(())));
        assert_eq!(std::fs::read(&path).unwrap(), b"bytes");
    }
    let output = OutputFile::create(&path, None).unwrap();
    let lost = FileError::Cancelled { what: "it".into() };
    output.spoil(lost.clone());
    let mut publishing = Publishing::new(&output);
    let ended = loop {
        if let Poll::Ready(ended) = publishing.poll(Waker::noop()) {
            break ended;
        }
    };
    assert_eq!(ended, Err(lost));
    assert_eq!(std::fs::read(&path).unwrap(), b"bytes");
}

/// A full device refuses a block; the file is never published after that.
#[test]
fn a_block_that_is_refused_spoils_its_file() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let path = Path::new("/nowhere/out");
    let output = Arc::new(OutputFile {
        handle: Arc::new(FileHandle::new(path, full, true)),
        target: Some(Target {
            path: path.to_owned(),
            state: Mutex::new(Naming::Nameless),
        }),
        spoiled: OnceLock::new(),
    });
    let error = write(&output, b"bytes").unwrap_err();
    let said = error.to_string();
    for part in [
        "writing 5 bytes of /nowhere/out",
        "No space left",
        "make room",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(output.publish(), Err(error));
}

const CHILD: &str = "BRAMBLING_TEST_WRITES_TO";

/// Not a test of its own: what [`a_killed_writer_leaves_no_output`] kills. It writes and publishes without end.
#[test]
fn child_of_the_killing() {
    let Ok(told) = std::env::var(CHILD) else {
        return;
    };
    let (kind, directory) = told.split_once(':').unwrap();
    let kind = KINDS[kind.parse::<usize>().unwrap()];
    for round in 0_u64.. {
        let name = format!("out-{}", round % 3);
        let output = create(kind, &Path::new(directory).join(name)).unwrap();
        let mut writer = BlockWriter::new(&output, 2);
        for number in 0..4 {
            let mut block = writer.take_block_at(number * 100_000, 100_000);
            block.set_len(100_000);
            block.fill((round % 200) as u8 + 1);
            writer.write(number * 100_000, block);
        }
        finish(&mut writer);
        output.publish().unwrap();
    }
}

/// After a `kill -9` at any moment, each name has a whole file of one round, and nothing else is left
/// but hidden names, which the next start removes; those of a process that lives stay.
#[test]
fn a_killed_writer_leaves_no_output() {
    for index in 0..KINDS.len() {
        let directory = tempfile::tempdir().unwrap();
        let living = OutputFile::create_by(hidden_file, &directory.path().join("living"), None);
        let living = living.unwrap();
        for round in 0..10_u64 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "output::tests::child_of_the_killing"])
                .env(CHILD, format!("{index}:{}", directory.path().display()))
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(std::time::Duration::from_millis(30 + round * 17 % 40));
            child.kill().unwrap();
            child.wait().unwrap();
            remove_leftovers(directory.path()).unwrap();
            for name in names(&directory) {
                if name.starts_with(".living") {
                    continue;
                }
                assert!(name.starts_with("out-"), "{name} is left");
                let bytes = std::fs::read(directory.path().join(&name)).unwrap();
                assert_eq!(bytes.len(), 400_000, "{name}");
                assert!(
                    bytes[0] > 0 && bytes.iter().all(|it| *it == bytes[0]),
                    "{name}"
                );
            }
        }
        assert!(names(&directory).len() > 1, "nobody has published");
        living.publish().unwrap();
    }
}
