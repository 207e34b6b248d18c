//! `brambling grep` beside GNU grep: the same output, the same messages but for the command's name, the same exit codes.
//!
//! The oracle is the GNU grep of this machine; without one these tests say so and check nothing against it. It cannot
//! catch what both do wrong. Patterns here mean the same to both.

use brambling_cli::{Host, main_to};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

struct NoHost {
    is_interrupted: bool,
}

impl Host for NoHost {
    fn run_script(&mut self, _: &Path, _: &[String]) -> u8 {
        unreachable!("grep runs no script")
    }
    fn examples(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn run_example(&mut self, _: &str, _: &[String]) -> u8 {
        unreachable!("nor an example")
    }
    fn versions(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn interrupted(&mut self) -> bool {
        self.is_interrupted
    }
}

/// Exit code, output, errors.
type Said = (u8, String, String);

fn ours(args: &[String]) -> Said {
    let command = ["brambling", "grep"].map(String::from);
    let args = command.iter().chain(args);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let host = &mut NoHost {
        is_interrupted: false,
    };
    let code = main_to(args.map(OsString::from), host, &mut out, &mut err);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (code, text(out), text(err))
}

/// What GNU grep says; nothing where there is none.
fn theirs(args: &[String]) -> Option<Said> {
    // Options that only ours has change nothing of what is found.
    let args = args.iter().filter(|arg| {
        let own = ["--part-bytes", "--block-bytes", "--threads"];
        !own.iter().any(|own| arg.starts_with(own))
    });
    let said = Command::new("grep")
        .args((!args.clone().any(|it| it.starts_with("-F"))).then_some("-E"))
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let err = text(&said.stderr).replace("grep: ", "brambling grep: ");
    Some((said.status.code()? as u8, text(&said.stdout), err))
}

fn has_gnu_grep() -> bool {
    let version = Command::new("grep").arg("--version").output();
    let is_gnu = version.is_ok_and(|said| said.stdout.starts_with(b"grep (GNU grep)"));
    if !is_gnu {
        #[allow(clippy::print_stderr)] // Whoever runs the tests reads why.
        {
            eprintln!("nothing is compared: there is no GNU grep on the PATH");
        }
    }
    is_gnu
}

/// A folder of this test's own, gone when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("brambling-grep-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn path(&self) -> String {
        self.0.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn words(options: &str, files: &[&str]) -> Vec<String> {
    let words = options.split(' ').filter(|it| !it.is_empty());
    words
        .map(str::to_owned)
        .chain(files.iter().map(|it| (*it).to_owned()))
        .collect()
}

fn check(options: &str, files: &[&str]) {
    let args = words(options, files);
    if let Some(theirs) = theirs(&args) {
        let ours = ours(&args);
        // Whole outputs would fill the screen.
        let differs = ours.1.lines().zip(theirs.1.lines()).find(|(a, b)| a != b);
        let lines = (ours.1.lines().count(), theirs.1.lines().count());
        assert!(
            ours == theirs,
            "{options} {files:?}: exit codes {} and {}, lines {lines:?}, first that differ {differs:?}, errors {:?} and {:?}",
            ours.0,
            theirs.0,
            ours.2,
            theirs.2
        );
    }
}

/// A text with long and short lines, some of which match: the same for the same seed.
fn text(seed: u64, lines: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut text = Vec::new();
    for _ in 0..lines {
        for _ in 0..next(12) {
            let word = ["alpha", "Beta", "gamma", "err", "error", "x", "(a.b)"][next(7) as usize];
            text.extend_from_slice(word.as_bytes());
            text.push(b" _-"[next(3) as usize]);
        }
        text.push(b'\n');
    }
    if next(2) == 0 {
        text.pop();
    }
    text
}

const FLAGS: [&str; 40] = [
    "error",
    "-n error",
    "-c error",
    "-l error",
    "-L error",
    "-i beta",
    "-v error",
    "-vn a",
    "-vc error",
    "-w err",
    "-x x.",
    "-wi BETA",
    "-q error",
    "-q nothing",
    "nothing",
    "-c nothing",
    "-A2 (a.b)",
    "-B3 -n Beta.x",
    "-C1 x-x",
    "-A1 -B2 -n ^x",
    "-C2 -v a",
    "-A0 x.x",
    "-m3 error",
    "-m1 -A3 x-x",
    "-m2 -C2 -n gamma_err",
    "-m2 -c error",
    "-m0 error",
    "-h error",
    "-H error",
    "-hn error",
    "-b -n gamma_x",
    "-o err.?",
    "-on -b err.?",
    "-e error -e ^$",
    "-F (a.b)",
    "-Fi (A.B)",
    "-c ^$",
    "--color=always -n err",
    "--color=always -A1 -H ^x.*",
    "-s error",
];

#[test]
fn flags_do_what_they_do_in_gnu_grep() {
    if !has_gnu_grep() {
        return;
    }
    let folder = Folder::new();
    let one = folder.file("one", &text(1, 300));
    let two = folder.file("two", &text(2, 20));
    let empty = folder.file("empty", b"");
    let missing = format!("{}/missing", folder.path());
    for flags in FLAGS {
        check(flags, &[&one]);
        check(flags, &[&two, &one, &empty]);
        check(flags, &[&two, &missing, &one]);
    }
}

/// Context, numbers and counts across parts of files and blocks of parts.
#[test]
fn lines_around_are_right_across_parts_and_blocks() {
    if !has_gnu_grep() {
        return;
    }
    let folder = Folder::new();
    // The first part of a file is never shorter than 96 KiB, so what is cut lies behind that.
    let one = folder.file("one", &text(3, 4_000));
    let two = folder.file("two", &text(4, 3_000));
    for (part, block) in [(1_000, 100), (5_001, 64), (20_000, 7_000), (1 << 20, 4_096)] {
        for flags in FLAGS {
            // Rare, so that little is printed of much.
            let flags = flags.replace("error", "error.err_x");
            let sizes = format!("--part-bytes={part} --block-bytes={block} --threads=2");
            check(&format!("{sizes} {flags}"), &[&one, &two]);
        }
    }
}

#[test]
fn directories_are_searched_with_r_alone() {
    if !has_gnu_grep() {
        return;
    }
    let folder = Folder::new();
    folder.file("a/x.c", b"match\n");
    folder.file("a/.hidden.h", b"match\n");
    folder.file("b/deep/x.h", b"match 1\nno\nmatch 2\n");
    folder.file(".git/config", b"match\n");
    symlink(folder.0.join("a/x.c"), folder.0.join("link.c")).unwrap();
    let root = folder.path();
    let sorted = |(code, out, err): Said| {
        let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
        lines.sort();
        (code, lines, err)
    };
    for flags in [
        "match",
        "-r match",
        "-rl match",
        "-rc match",
        "-R match",
        "-rh match",
        "-r --include=*.h match",
        "-r --include=*.h --include=*.c match",
        "-r --exclude=*.h match",
        "-r --exclude-dir=deep match",
        "-r --exclude-dir=.git -n match",
        "-r nothing",
    ] {
        let args = words(flags, &[&root]);
        let theirs = theirs(&args).unwrap();
        assert_eq!(sorted(ours(&args)), sorted(theirs), "{flags}");
    }
    let file = folder.file("a/x.c", b"match\n");
    check("--include=*.h match", &[&file]);
    check("-r --include=*.h match", &[&file]);
}

#[test]
fn files_that_cannot_be_read_are_told_and_the_others_searched() {
    if !has_gnu_grep() {
        return;
    }
    let folder = Folder::new();
    let file = folder.file("file", b"match\n");
    let other = folder.file("other", b"nothing\n");
    let missing = format!("{}/missing", folder.path());
    for flags in [
        "match", "-c match", "-q match", "-l match", "-s match", "-L match", "none", "-q none",
    ] {
        check(flags, &[&missing, &file]);
        check(flags, &[&other, &missing]);
    }
    check("-s match", &[&missing]);
}

/// As a user who is not root sees it: run in a process of its own, since root may read everything.
#[test]
fn a_file_without_rights_is_told() {
    let folder = Folder::new();
    let file = folder.file("secret", b"match\n");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o0)).unwrap();
    if fs::File::open(&file).is_ok() {
        #[allow(clippy::print_stderr)] // Whoever runs the tests reads why.
        {
            eprintln!("nothing is checked: this account may read everything");
        }
        return;
    }
    let (code, out, err) = ours(&words("match", &[&file]));
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.ends_with("Permission denied\n"), "{err}");
}

#[test]
fn binary_files_match_without_their_lines() {
    if !has_gnu_grep() {
        return;
    }
    let folder = Folder::new();
    let binary = folder.file("binary", b"\0 match\nmatch\n");
    let text = folder.file("text", b"match\n");
    for flags in [
        "match", "-n match", "nothing", "-l match", "-a match", "-q match", "-o match",
    ] {
        check(flags, &[&binary, &text]);
    }
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new("gzip")
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&bytes).unwrap());
    let out = child.wait_with_output().unwrap().stdout;
    writer.join().unwrap();
    out
}

#[test]
fn compressed_files_are_searched_as_what_they_decompress_to() {
    let folder = Folder::new();
    let plain = text(5, 5_000);
    let two = [gz(&plain), gz(b"a last error line\n")].concat();
    let whole = folder.file("whole.gz", &two);
    let mut expected = plain.clone();
    expected.extend_from_slice(b"a last error line\n");
    let expected = folder.file("expected", &expected);
    for flags in ["-n error", "-c error", "-C2 gamma_err", "-m1 error"] {
        let of_plain = ours(&words(&format!("-h {flags}"), &[&expected]));
        assert_eq!(
            ours(&words(&format!("-h {flags}"), &[&whole])),
            of_plain,
            "{flags}"
        );
    }
    let zst = zstd::encode_all(&plain[..], 3).unwrap();
    let zst = [
        zst,
        zstd::encode_all(&b"a last error line\n"[..], 3).unwrap(),
    ]
    .concat();
    let zst = folder.file("whole.zst", &zst);
    let of_plain = ours(&words("-hn error", &[&expected]));
    assert_eq!(ours(&words("-hn error", &[&zst])), of_plain);
    for (name, bytes) in [
        ("cut.gz", &two[..two.len() - 5]),
        ("not.gz", &b"no gzip at all"[..]),
        ("cut.zst", &fs::read(&zst).unwrap()[..100]),
        ("not.zst", &b"no zstd at all"[..]),
    ] {
        let file = folder.file(name, bytes);
        let (code, _, err) = ours(&words("-c zip|std", &[&file]));
        assert_eq!(code, 2, "{name}");
        assert!(
            err.contains(name) && err.contains("--no-decompress"),
            "{err}"
        );
    }
    let raw = format!("{}/not.gz", folder.path());
    let (code, out, _) = ours(&words("--no-decompress -c gzip", &[&raw]));
    assert_eq!((code, out.as_str()), (0, "1\n"));
}

#[test]
fn json_has_a_message_for_each_line() {
    let folder = Folder::new();
    let file = folder.file("file", b"one\ntwo match match\nthree\n");
    let (code, out, _) = ours(&words("--json -A1 match", &[&file]));
    assert_eq!(code, 0);
    let messages: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<_> = messages
        .iter()
        .map(|it| it["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["begin", "match", "context", "end", "summary"]);
    let found = &messages[1]["data"];
    assert_eq!(found["path"]["text"], file.as_str());
    assert_eq!(found["lines"]["text"], "two match match\n");
    assert_eq!(
        (&found["line_number"], &found["absolute_offset"]),
        (&2.into(), &4.into())
    );
    assert_eq!(found["submatches"][1]["match"]["text"], "match");
    assert_eq!(
        (
            &found["submatches"][1]["start"],
            &found["submatches"][1]["end"]
        ),
        (&10.into(), &15.into())
    );
    assert_eq!(messages[4]["data"]["stats"]["bytes_searched"], 26);
}

#[test]
fn wrong_words_are_refused_with_exit_code_2() {
    let folder = Folder::new();
    let file = folder.file("file", b"x\n");
    for (options, part) in [
        ("a(b", "unclosed group"),
        ("", "no pattern is given"),
        ("-r --include=[ x", "cannot be used"),
        ("-f /nowhere/at/all", "/nowhere/at/all"),
        ("--no-such-option x", "--no-such-option"),
    ] {
        let files = if options.is_empty() {
            &[][..]
        } else {
            &[&file[..]]
        };
        let (code, out, err) = ours(&words(options, files));
        assert_eq!((code, out.as_str()), (2, ""), "{options}");
        assert!(err.contains(part), "{options}: {err}");
    }
}

/// A reader that takes little ends the search, and so does whoever interrupts it.
#[test]
fn a_search_ends_early_when_nobody_reads_or_wants_it() {
    let folder = Folder::new();
    let file = folder.file("file", &text(6, 200_000));
    struct Closed(usize);
    impl Write for Closed {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            match self.0 > 100_000 {
                true => Err(std::io::ErrorKind::BrokenPipe.into()),
                false => Ok(bytes.len()),
            }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let args = || ["brambling", "grep", "--part-bytes=100000", "", &file].map(OsString::from);
    let mut host = NoHost {
        is_interrupted: false,
    };
    assert_eq!(
        main_to(args(), &mut host, &mut Closed(0), &mut Vec::new()),
        141
    );
    host.is_interrupted = true;
    assert_eq!(
        main_to(args(), &mut host, &mut Vec::new(), &mut Vec::new()),
        130
    );
}
