//! `brambling sort` as a user calls it: what it prints, its exit codes, its JSON, and that its check finds every kind of fault.

use brambling_cli::{FAILED, Host, OK, USAGE, main_to};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

struct NoHost;

impl Host for NoHost {
    fn run_script(&mut self, _: &Path, _: &[String]) -> u8 {
        FAILED
    }
    fn examples(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn run_example(&mut self, _: &str, _: &[String]) -> u8 {
        FAILED
    }
    fn versions(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn interrupted(&mut self) -> bool {
        false
    }
}

/// A directory of a test, in which the command's files lie.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("brambling-cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Exit code, output, errors. Words that begin with @ are files of the folder.
    fn call(&self, line: &str) -> (u8, String, String) {
        let word = |word: &str| match word.strip_prefix('@') {
            Some(name) => self.at(name).into_os_string(),
            None => OsString::from(word),
        };
        let args = ["brambling", "sort"]
            .into_iter()
            .chain(line.split_whitespace())
            .map(word);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = main_to(args, &mut NoHost, &mut out, &mut err);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (code, text(out), text(err))
    }

    fn json(&self, line: &str) -> (u8, Value) {
        let (code, out, err) = self.call(line);
        let last = out
            .lines()
            .last()
            .unwrap_or_else(|| panic!("{line}: {err}"));
        (code, serde_json::from_str(last).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_is_made_sorted_and_checked() {
    let folder = Folder::new("whole");
    let (code, out, _) = folder.call("--generate 20000 @records");
    assert_eq!(code, OK);
    assert!(out.contains("20000 records, 2 MB"), "{out}");
    let (code, before) = folder.json("--check @records --json");
    assert_eq!((code, &before["sorted"]), (FAILED, &Value::Bool(false)));
    let (code, told) = folder.json("@records @sorted --threads 2 --memory 1GB --json");
    assert_eq!(code, OK);
    for key in [
        "seconds",
        "ideal_seconds",
        "share_of_ideal",
        "bound_by",
        "stages",
        "peak_rss_bytes",
    ] {
        assert!(told.get(key).is_some(), "{key} in {told}");
    }
    assert!(
        told["seconds"].as_f64().unwrap() > 0.0 && told["peak_rss_bytes"].as_u64().unwrap() > 0
    );
    let names: Vec<_> = told["stages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"read") && names.contains(&"sort"),
        "{names:?}"
    );
    let (code, after) = folder.json("--check @sorted --json");
    assert_eq!((code, &after["sorted"]), (OK, &Value::Bool(true)));
    assert_eq!(after["checksum"], before["checksum"]);
    let (_, out, _) = folder.call("@records @again");
    assert!(
        out.contains("20000 records") && out.contains("ideal"),
        "{out}"
    );
    assert_eq!(
        fs::read(folder.at("again")).unwrap(),
        fs::read(folder.at("sorted")).unwrap()
    );
}

/// What a check says of the file at `@broken`.
fn found(folder: &Folder, bytes: &[u8]) -> Value {
    fs::write(folder.at("broken"), bytes).unwrap();
    folder.json("--check @broken --json").1
}

#[test]
fn checker_fails_on_each_kind_of_fault() {
    let folder = Folder::new("faults");
    folder.call("--generate 5000 @records");
    folder.call("@records @sorted");
    let whole = fs::read(folder.at("sorted")).unwrap();
    let right = found(&folder, &whole);
    assert_eq!(right["sorted"], true);
    let differs = |what: &str, bytes: &[u8]| {
        let wrong = found(&folder, bytes);
        let is_like = wrong["sorted"] == true
            && wrong["records"] == right["records"]
            && wrong["checksum"] == right["checksum"];
        assert!(!is_like, "{what} is not found: {wrong}");
        wrong
    };
    let at = 100 * 2_500;
    let mut swapped = whole.clone();
    let (one, other) = swapped[at..at + 200].split_at_mut(100);
    one.swap_with_slice(other);
    let told = differs("a swapped pair", &swapped);
    assert_eq!(
        (&told["sorted"], &told["fault"]["record"]),
        (&Value::Bool(false), &Value::from(2_501))
    );
    assert_eq!(told["checksum"], right["checksum"], "all records are there");
    let mut lost = whole.clone();
    lost.drain(at..at + 100);
    assert_eq!(differs("a lost record", &lost)["records"], 4_999);
    let mut doubled = whole.clone();
    let again = doubled[at..at + 100].to_vec();
    doubled.splice(at..at, again);
    assert_eq!(differs("a doubled record", &doubled)["records"], 5_001);
    // Lost and doubled: the count is right.
    let mut both = whole.clone();
    both.copy_within(at..at + 100, at + 100);
    assert_eq!(
        differs("a record in place of another", &both)["records"],
        5_000
    );
    for bit in [8 * at as u64 + 3, 8 * (at as u64 + 60)] {
        let mut flipped = whole.clone();
        flipped[(bit / 8) as usize] ^= 1 << (bit % 8);
        differs("a flipped bit", &flipped);
    }
    let (code, _, err) = {
        fs::write(folder.at("broken"), &whole[..whole.len() - 1]).unwrap();
        folder.call("--check @broken")
    };
    assert!(
        code == FAILED && err.contains("no multiple of the 100 bytes"),
        "{err}"
    );
}

#[test]
fn lines_are_sorted_as_gnu_sort_does() {
    if Command::new("sort").arg("--version").output().is_err() {
        #[allow(clippy::print_stderr)] // Whoever runs the tests reads why.
        {
            eprintln!("skipped: there is no GNU sort here");
        }
        return;
    }
    let folder = Folder::new("lines");
    let mut text = String::new();
    for number in 0..3_000u64 {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        text += &format!(
            "{},{}.{},name{}\n",
            key % 97,
            key as i64 % 50 - 25,
            key % 10,
            key % 13
        );
    }
    fs::write(folder.at("text"), text.trim_end()).unwrap();
    for (ours, theirs) in [
        ("", vec![]),
        ("--separator , --key 2", vec!["-t,", "-k2"]),
        ("--separator , --key 2,2 --numeric", vec!["-t,", "-k2,2n"]),
        ("--separator , --key 3,3", vec!["-t,", "-k3,3"]),
    ] {
        let (code, _, err) = folder.call(&format!("--lines {ours} @text @sorted"));
        assert_eq!((code, err.as_str()), (OK, ""), "{ours}");
        let mut sort = Command::new("sort");
        let theirs = sort
            .env("LC_ALL", "C")
            .arg("-s")
            .args(theirs)
            .arg(folder.at("text"));
        let expected = theirs.output().unwrap().stdout;
        assert!(fs::read(folder.at("sorted")).unwrap() == expected, "{ours}");
    }
}

#[test]
fn slips_are_told_with_their_cure() {
    let folder = Folder::new("slips");
    folder.call("--generate 10 @records");
    for (line, code, says) in [
        ("@records", USAGE, "and then the output"),
        ("@records @records", FAILED, "an input and the output"),
        ("@gone @sorted", FAILED, "gone"),
        ("--width 0 @records @sorted", USAGE, "--width 0"),
        (
            "--width 30 @records @sorted",
            FAILED,
            "no multiple of the 30 bytes",
        ),
        ("--key 95:10 @records @sorted", USAGE, "--key 95:10"),
        ("--key 2 @records @sorted", USAGE, "OFFSET:LENGTH"),
        (
            "--lines --separator xx @records @sorted",
            USAGE,
            "--separator",
        ),
        ("--generate 5 --skew odd @records", USAGE, "zipf"),
        ("--generate 5 @a @b", USAGE, "one name"),
        ("--numeric @records @sorted", USAGE, "--lines"),
        ("--memory plenty @records @sorted", FAILED, "plenty"),
    ] {
        let (got, _, err) = folder.call(line);
        assert!(got == code && err.contains(says), "{line}: {got}, {err}");
    }
    assert!(!folder.at("sorted").exists());
}
