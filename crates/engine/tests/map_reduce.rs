//! Map-reduce over files: the result is that of the standard library's maps, however the work is cut.
//!
//! The oracle shares no code with the engine. Says nothing about speed.

mod support;

use brambling::cluster::Cluster;
use brambling::map_reduce::{
    Grain, MapFunction, MapReduce, MapReduceError, MapReduced, ReduceFunction, map_reduce,
};
use brambling::{QuietCaller, RunOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use support::cluster::{Builds, controller, options, threads, worker};
use tempfile::TempDir;

type Pairs = Vec<(Vec<u8>, u64)>;

fn items(map: MapFunction, text: &[u8]) -> Vec<Vec<u8>> {
    let owned = |items: &mut dyn Iterator<Item = &[u8]>| items.map(<[u8]>::to_vec).collect();
    match map {
        MapFunction::Words => owned(
            &mut text
                .split(|byte| b" \t\n\r\x0b\x0c".contains(byte))
                .filter(|word| !word.is_empty()),
        ),
        _ => owned(
            &mut text
                .split_inclusive(|byte| *byte == b'\n')
                .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
                .map(|line| line.strip_suffix(b"\r").unwrap_or(line)),
        ),
    }
}

fn expected(map: MapFunction, texts: &[Vec<u8>]) -> Pairs {
    let mut counts = BTreeMap::new();
    for item in texts.iter().flat_map(|text| items(map, text)) {
        *counts.entry(item).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

/// Files with texts, in a directory of their own.
fn files(texts: &[Vec<u8>]) -> (TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().unwrap();
    let write = |(at, text): (usize, &Vec<u8>)| {
        let path = directory.path().join(format!("{at}.txt"));
        std::fs::write(&path, text).unwrap();
        path
    };
    let paths = texts.iter().enumerate().map(write).collect();
    (directory, paths)
}

fn run(
    paths: &[PathBuf],
    how: &MapReduce,
    options: &RunOptions,
) -> Result<MapReduced, MapReduceError> {
    map_reduce(paths, how, options, &mut QuietCaller)
}

fn sorted(found: &MapReduced) -> Pairs {
    let pairs = found.sorted().into_iter();
    pairs.map(|(key, value)| (key.to_vec(), value)).collect()
}

/// Numbers that look random, always the same.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    }
}

/// Text of few and of many words, some of them long, with all that may stand between them.
fn text(seed: u64, words: usize, distinct: u64) -> Vec<u8> {
    let mut next = numbers(seed);
    let mut text = Vec::new();
    for _ in 0..words {
        let word = next(distinct);
        text.extend_from_slice(format!("w{word}").as_bytes());
        if word.is_multiple_of(7) {
            text.extend_from_slice(&[b'x'; 30][..next(30) as usize]);
        }
        let between = [&b" "[..], b"\n", b"\r\n", b"  ", b"\t", b"\0", b"\n\n"];
        text.extend_from_slice(between[next(between.len() as u64) as usize]);
    }
    text
}

const SMALL: Grain = Grain {
    split_bytes: 300,
    table_bytes: 200,
    block_bytes: 17,
};

#[test]
fn words_and_lines_are_those_of_the_standard_library() {
    let texts = [
        text(1, 3_000, 100),
        Vec::new(),
        text(2, 1_000, 1_000_000),
        b"last without end".to_vec(),
    ];
    let (_directory, paths) = files(&texts);
    for map in [MapFunction::Words, MapFunction::Lines] {
        let expected = expected(map, &texts);
        for (grain, partitions) in [(Grain::default(), None), (SMALL, Some(5)), (SMALL, Some(1))] {
            for threads in [1, 2, 3] {
                for backup in [false, true] {
                    let how = MapReduce {
                        map,
                        grain,
                        partitions,
                        backup,
                        ..MapReduce::default()
                    };
                    let found = run(&paths, &how, &RunOptions::new().threads(threads)).unwrap();
                    assert_eq!(sorted(&found), expected, "{how:?}, {threads} threads");
                    assert_eq!(found.keys, expected.len() as u64);
                    let ordered = found
                        .partitions
                        .iter()
                        .all(|pairs| pairs.iter().is_sorted());
                    assert!(ordered, "each partition is sorted");
                }
            }
        }
    }
}

#[test]
fn each_fold_is_that_of_ones() {
    let texts = [text(3, 500, 20)];
    let (_directory, paths) = files(&texts);
    let counts = expected(MapFunction::Words, &texts);
    for (reduce, counted) in [
        (ReduceFunction::Sum, true),
        (ReduceFunction::Count, true),
        (ReduceFunction::Min, false),
        (ReduceFunction::Max, false),
    ] {
        let how = MapReduce {
            reduce,
            grain: SMALL,
            ..MapReduce::default()
        };
        let found = sorted(&run(&paths, &how, &RunOptions::new()).unwrap());
        let wanted = counts
            .iter()
            .map(|(key, count)| (key.clone(), if counted { *count } else { 1 }));
        assert_eq!(found, wanted.collect::<Pairs>(), "{reduce:?}");
    }
}

/// What finds no room goes to runs, and comes back: in memory, and in files, whose bytes are the same.
#[test]
fn a_small_budget_spills_and_gives_the_same() {
    let texts = [text(4, 400_000, 1 << 40)];
    let (directory, paths) = files(&texts);
    let expected = expected(MapFunction::Words, &texts);
    let written = |name: &str, memory: &str| {
        let output = directory.path().join(name);
        let how = MapReduce {
            output: Some(output.clone()),
            partitions: Some(2),
            grain: Grain {
                split_bytes: 1 << 20,
                table_bytes: 64 << 10,
                block_bytes: 64 << 10,
            },
            ..MapReduce::default()
        };
        let found = run(&paths, &how, &RunOptions::new().threads(2).memory(memory)).unwrap();
        assert_eq!(found.keys, expected.len() as u64);
        assert_eq!(
            found.files,
            [output.join("part-00000"), output.join("part-00001")]
        );
        let parts: Vec<Vec<u8>> = found
            .files
            .iter()
            .map(|it| std::fs::read(it).unwrap())
            .collect();
        (parts, found.tally.peak_bytes)
    };
    let (roomy, _) = written("roomy", "2GB");
    let (tight, peak) = written("tight", "48MB");
    assert!(roomy == tight, "the same bytes");
    assert!(peak <= 48 << 20, "{peak} bytes were taken");
    let mut lines: Pairs = roomy
        .iter()
        .flat_map(|part| part.split_inclusive(|byte| *byte == b'\n'))
        .map(|line| {
            let line = std::str::from_utf8(line).unwrap().trim_end_matches('\n');
            let (key, value) = line.rsplit_once('\t').unwrap();
            (key.as_bytes().to_vec(), value.parse().unwrap())
        })
        .collect();
    lines.sort();
    assert!(lines == expected);
}

#[test]
fn an_output_appears_when_it_is_whole() {
    let texts = [b"b a\nb\n".to_vec()];
    let (directory, paths) = files(&texts);
    let output = directory.path().join("counts");
    let how = MapReduce {
        output: Some(output.clone()),
        partitions: Some(1),
        ..MapReduce::default()
    };
    run(&paths, &how, &RunOptions::new()).unwrap();
    assert_eq!(
        std::fs::read(output.join("part-00000")).unwrap(),
        b"a\t1\nb\t2\n"
    );
    // A second time it is there, and stays as it is.
    let error = run(&paths, &how, &RunOptions::new())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("counts") && error.contains("delete it, or name another one"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(&output).unwrap().count(), 1);
    // A job that fails leaves nothing, of no name.
    let entries = || std::fs::read_dir(directory.path()).unwrap().count();
    let before = entries();
    let other = MapReduce {
        output: Some(directory.path().join("more")),
        ..how
    };
    let failed = run(&paths, &other, &RunOptions::new().memory("100KB")).unwrap_err();
    assert!(failed.to_string().contains("stage `"), "{failed}");
    assert_eq!(entries(), before);
}

#[test]
fn what_cannot_be_used_is_told() {
    let (directory, paths) = files(&[b"a".to_vec()]);
    let refused = |paths: &[PathBuf], how: MapReduce| {
        run(paths, &how, &RunOptions::new())
            .unwrap_err()
            .to_string()
    };
    let missing = directory.path().join("missing.txt");
    for (paths, how, parts) in [
        (
            vec![],
            MapReduce::default(),
            ["no file is given", "name at least one"],
        ),
        (
            vec![missing],
            MapReduce::default(),
            ["missing.txt", "is the name right"],
        ),
        (
            vec![directory.path().to_owned()],
            MapReduce::default(),
            ["irectory", "name a file in it"],
        ),
        (
            paths.clone(),
            MapReduce {
                partitions: Some(0),
                ..MapReduce::default()
            },
            ["partitions = 0", "1 to 4096"],
        ),
        (
            paths.clone(),
            MapReduce {
                replication: 2,
                ..MapReduce::default()
            },
            ["replication = 2 needs 2 workers", "there is 1"],
        ),
        (
            paths,
            MapReduce {
                backup: true,
                run_directory: Some("/nowhere".into()),
                ..MapReduce::default()
            },
            ["/nowhere", "is the name right"],
        ),
    ] {
        let told = refused(&paths, how);
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
    }
}

#[test]
fn a_word_without_end_is_no_key() {
    let (_directory, paths) = files(&[vec![b'x'; (16 << 20) + 1]]);
    let error = run(&paths, &MapReduce::default(), &RunOptions::new())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("0.txt") && error.contains("is it a text file?"),
        "{error}"
    );
}

/// Workers link the program, and give what one process gives: in memory, and in files, whose bytes are the same.
#[test]
fn workers_give_the_same() {
    let texts = [text(5, 20_000, 3_000), text(6, 100, 1 << 40)];
    let (directory, paths) = files(&texts);
    let (_controller, at) = controller(options());
    let never = |_: &[u8]| Err("it links".into());
    let _workers = [(); 2].map(|()| worker(&at, threads(1), Builds(never)));
    let cluster = Arc::new(Cluster::connect(&at).unwrap());
    let on = |options: &RunOptions, output: Option<PathBuf>| {
        let how = MapReduce {
            output,
            partitions: Some(5),
            grain: SMALL,
            backup: true,
            ..MapReduce::default()
        };
        run(&paths, &how, options).unwrap()
    };
    let (here, there) = (RunOptions::new().threads(2), RunOptions::new().on(&cluster));
    let found = on(&there, None);
    assert_eq!(sorted(&found), expected(MapFunction::Words, &texts));
    assert_eq!(found.partitions, on(&here, None).partitions);
    let parts = |options, name: &str| {
        let files = on(options, Some(directory.path().join(name))).files;
        files
            .iter()
            .map(|it| std::fs::read(it).unwrap())
            .collect::<Vec<_>>()
    };
    assert!(parts(&there, "there") == parts(&here, "here"));
    let refused = |output: Option<&str>, replication, partitions| {
        let how = MapReduce {
            output: output.map(|it| directory.path().join(it)),
            replication,
            partitions: Some(partitions),
            ..MapReduce::default()
        };
        run(&paths, &how, &there).unwrap_err().to_string()
    };
    for (told, part) in [
        (refused(None, 2, 4), "without output"),
        (
            refused(Some("copied"), 3, 3),
            "needs 3 workers, and there are 2",
        ),
        (refused(Some("copied"), 2, 5), "give a multiple of 2"),
    ] {
        assert!(told.contains(part), "{told}");
    }
}

/// Workers of one process cannot keep a part and its copy apart: that is told, once all copies are whole.
#[test]
fn copies_are_whole_and_a_copy_beside_its_part_is_told() {
    // Parts of several blocks, and more parts than words: the copy of an empty part is a file too.
    let texts = [text(7, 200_000, 1 << 40), b"few words".to_vec()];
    let (directory, paths) = files(&texts);
    let (_controller, at) = controller(options());
    let never = |_: &[u8]| Err("it links".into());
    let _workers = [(); 2].map(|()| worker(&at, threads(1), Builds(never)));
    let cluster = Arc::new(Cluster::connect(&at).unwrap());
    for (path, partitions) in paths.iter().zip([2, 40]) {
        let output = directory.path().join(format!("counts-{partitions}"));
        let how = MapReduce {
            output: Some(output.clone()),
            replication: 2,
            partitions: Some(partitions),
            ..MapReduce::default()
        };
        let options = RunOptions::new().on(&cluster);
        let told = run(std::slice::from_ref(path), &how, &options).unwrap_err();
        let told = told.to_string();
        assert!(told.contains("a copy of it lie on one worker"), "{told}");
        for number in 0..partitions {
            let name = format!("part-{number:05}");
            let part = std::fs::read(output.join(&name)).unwrap();
            let copy = std::fs::read(output.join("copies-1").join(&name)).unwrap();
            assert!(part == copy, "part {number} of {partitions}");
        }
    }
}
