//! Searches by threads of this process and by a cluster's workers: the same lines, in the same order.
//!
//! The oracle is a plain loop over lines. Options of the command are compared with GNU grep where the command is.

mod support;

use brambling::RunOptions;
use brambling::cluster::Cluster;
use brambling::grep::{
    FileStitch, Grep, GrepLine, GrepListener, GrepPaths, GrepQuery, ListedFile, WantedOfLines, grep,
};
use brambling::operators::grep::lane::{self, LaneParameters};
use brambling::operators::grep::units;
use brambling::program::Program;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use support::cluster::{Builds, controller, options, threads, worker};
use support::folder::Folder;

/// What is told, a line each.
#[derive(Default)]
struct Told {
    lines: Vec<String>,
    troubles: Vec<String>,
    lines_max: Option<usize>,
}

impl GrepListener for Told {
    fn begin(&mut self, file: &ListedFile) {
        self.lines.push(format!("begin {}", name(file)));
    }

    fn line(&mut self, _: &ListedFile, line: &GrepLine<'_>) {
        let text = String::from_utf8_lossy(line.bytes);
        self.lines
            .push(format!("{} {text:?} {}", line.number, line.selected));
    }

    fn end(&mut self, file: &ListedFile, found: &FileStitch, _: u64) {
        self.lines
            .push(format!("end {} {}", name(file), found.selected()));
    }

    fn trouble(&mut self, file: &ListedFile, why: &str) {
        self.troubles.push(format!("{}: {why}", name(file)));
    }

    fn goes_on(&mut self) -> bool {
        self.lines_max.is_none_or(|max| self.lines.len() < max)
    }
}

fn name(file: &ListedFile) -> String {
    let name = file.as_path().file_name().expect("a file");
    name.to_string_lossy().into_owned()
}

fn paths(folder: &Path) -> GrepPaths {
    GrepPaths {
        paths: vec![
            folder.as_os_str().as_bytes().to_vec(),
            folder.join("missing").as_os_str().as_bytes().to_vec(),
        ],
        recursive: true,
        ..GrepPaths::default()
    }
}

fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    for file in 0..30 {
        // One is large enough for many parts, and some are empty.
        let lines = if file == 7 {
            60_000
        } else {
            file * 17 % 5 * 30
        };
        let text: String = (0..lines)
            .map(|line| format!("{file} line {line}\n"))
            .collect();
        std::fs::write(folder.at(&format!("f{file:02}")), text).unwrap();
    }
    folder
}

fn search(want: WantedOfLines) -> Grep {
    let mut query = GrepQuery {
        want,
        numbers: true,
        after: 1,
        ..GrepQuery::default()
    };
    query.add_patterns("line [0-9]*77$");
    Grep::new(query, GrepPaths::default())
}

/// The lines of all files, by a plain loop.
fn expected(folder: &Path) -> Vec<String> {
    let mut told = Vec::new();
    for file in 0..30 {
        let name = format!("f{file:02}");
        let text = std::fs::read_to_string(folder.join(&name)).unwrap();
        told.push(format!("begin {name}"));
        let (mut selected, mut follows) = (0, false);
        for (number, line) in (1..).zip(text.split_inclusive('\n')) {
            let is_selected = line.trim_end().ends_with("77");
            selected += u64::from(is_selected);
            if is_selected || follows {
                told.push(format!("{number} {line:?} {is_selected}"));
            }
            follows = is_selected;
        }
        told.push(format!("end {name} {selected}"));
    }
    told
}

#[test]
fn threads_and_sizes_of_parts_do_not_change_what_is_told() {
    let folder = folder("grep-threads");
    let expected = expected(folder.path());
    for (threads, unit_bytes, block_bytes) in [
        (1, 8 << 20, 1 << 20),
        (2, 1_000, 100),
        (3, 33_333, 4_096),
        (4, 500_000, 70_000),
    ] {
        let mut what = search(WantedOfLines::Lines);
        what.paths = paths(folder.path());
        (what.unit_bytes, what.block_bytes) = (unit_bytes, block_bytes);
        let mut told = Told::default();
        let options = RunOptions::new().threads(threads);
        let summary = grep(&what, &options, &mut told).unwrap();
        assert_eq!(told.lines, expected, "{threads} threads");
        assert_eq!(told.troubles, ["missing: No such file or directory"]);
        assert_eq!((summary.files, summary.troubles), (30, 1));
    }
}

#[test]
fn a_listener_ends_a_search_whenever_it_likes() {
    let folder = folder("grep-ends");
    for lines_max in [0, 1, 5, 40] {
        let mut what = search(WantedOfLines::Lines);
        what.paths = paths(folder.path());
        what.unit_bytes = 5_000;
        let mut told = Told {
            lines_max: Some(lines_max),
            ..Told::default()
        };
        grep(&what, &RunOptions::new().threads(2), &mut told).unwrap();
        let expected = expected(folder.path());
        assert_eq!(told.lines[..lines_max], expected[..lines_max]);
        assert!(told.lines.len() < expected.len());
    }
}

/// Results of a gigabyte in a budget that has no room for them: they leave while the search goes on.
#[test]
fn results_do_not_pile_up() {
    let folder = Folder::new("grep-budget");
    let line = "a line that matches, of which there are many\n";
    std::fs::write(folder.at("all"), line.repeat(2_000_000)).unwrap();
    struct Slow(u64);
    impl GrepListener for Slow {
        fn line(&mut self, _: &ListedFile, _: &GrepLine<'_>) {
            self.0 += 1;
        }
        fn trouble(&mut self, file: &ListedFile, why: &str) {
            panic!("{file:?}: {why}");
        }
        fn goes_on(&mut self) -> bool {
            true
        }
    }
    let mut what = search(WantedOfLines::Lines);
    what.query.patterns = vec!["matches".into()];
    what.paths = GrepPaths {
        paths: vec![folder.at("all").as_os_str().as_bytes().to_vec()],
        ..GrepPaths::default()
    };
    let mut slow = Slow(0);
    let options = RunOptions::new().threads(2).memory("64MB");
    let summary = grep(&what, &options, &mut slow).unwrap();
    assert_eq!((slow.0, summary.selected), (2_000_000, 2_000_000));
}

#[test]
fn a_cluster_finds_the_same() {
    let folder = folder("grep-cluster");
    let (_controller, at) = controller(options());
    let never = |_: &[u8]| Err("never".into());
    let _workers = [(); 2].map(|()| worker(&at, threads(1), Builds(never)));
    let cluster = Arc::new(Cluster::connect(&at).unwrap());
    let on = RunOptions::new().on(&cluster);
    let mut what = search(WantedOfLines::Lines);
    what.paths = paths(folder.path());
    what.unit_bytes = 50_000;
    let mut told = Told::default();
    grep(&what, &on, &mut told).unwrap();
    assert_eq!(told.lines, expected(folder.path()));
    assert_eq!(told.troubles, ["missing: No such file or directory"]);
}

/// What a cluster's lanes keep is bounded, and the error says what needs less.
#[test]
fn more_than_lanes_keep_ends_the_job() {
    let folder = folder("grep-kept");
    let mut query = GrepQuery::default();
    query.add_patterns("line");
    let files = GrepPaths {
        paths: vec![folder.at("f07").as_os_str().as_bytes().to_vec()],
        ..GrepPaths::default()
    };
    let units = units::cut(&files.list().unwrap().files, 100_000, false);
    for (kept_bytes_max, is_enough) in [(10_000, false), (10_000_000, true)] {
        let parameters = LaneParameters {
            query: query.clone(),
            block_bytes: 10_000,
            kept_bytes_max,
        };
        let mut p = Program::new("kept");
        let lanes = (0..2).map(|lane| units::of_lane(&units, lane, 2)).collect();
        let found = lane::search_kept(&mut p, parameters, lanes);
        match RunOptions::new().threads(2).run(p) {
            Ok(mut outcome) => {
                let found: usize = outcome
                    .take_all(&found)
                    .iter()
                    .map(|it| it.found.len())
                    .sum();
                assert!(is_enough && found >= units.len());
            }
            Err(error) => {
                assert!(!is_enough);
                assert!(error.to_string().contains("count them with -c"), "{error}");
            }
        }
    }
}
