//! Replays the corpus of every target, and a few thousand mutations of it that are the same each time.

use brambling_fuzz::TARGETS;
use brambling_program::Program;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MUTATIONS: usize = 4_000;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target)
}

/// The inputs of a target, in the order of their names.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = fs::read_dir(corpus(target))
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "the target {target} has no corpus");
    files
        .into_iter()
        .map(|file| fs::read(file).unwrap())
        .collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

/// Flips, overwrites, cuts, repeats and splices.
fn mutate(random: &mut Random, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = inputs[random.below(inputs.len())].clone();
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len());
        let to = at + random.below(bytes.len() - at.min(bytes.len()));
        match random.below(6) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            2 => bytes.truncate(at),
            3 => bytes.extend_from_within(at.min(bytes.len())..to.min(bytes.len())),
            4 => {
                let other = &inputs[random.below(inputs.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.below(other.len())..]);
            }
            _ => {
                let end = (at + 8).min(bytes.len());
                for byte in &mut bytes[at.min(end)..end] {
                    *byte = random.below(256) as u8;
                }
            }
        }
    }
    bytes
}

#[test]
fn the_corpus_and_its_mutations_are_decoded_or_refused() {
    for (number, (name, target)) in TARGETS.iter().enumerate() {
        let inputs = inputs(name);
        inputs.iter().for_each(|input| target(input));
        let mut random = Random(0x9e37_79b9_7f4a_7c15 + number as u64);
        for _ in 0..MUTATIONS {
            target(&mutate(&mut random, &inputs));
        }
    }
}

/// The corpora are what is encoded today, and what earlier builds wrote: new inputs lie beside these.
#[test]
fn what_links_is_in_its_corpus() {
    let mut p = Program::new("sample").with_seed(3);
    brambling_fuzz::sample(&mut p);
    let path = corpus("linked").join("sample");
    if std::env::var_os("BRAMBLING_WRITE_GOLDEN").is_some() {
        fs::create_dir_all(corpus("linked")).unwrap();
        fs::write(&path, p.encode().unwrap()).unwrap();
    }
    assert!(Program::link(&fs::read(path).unwrap()).is_ok());
}

/// Mutations of one corpus for as long as somebody asks for: `BRAMBLING_FUZZ=linked:10` is ten minutes. None by default.
#[test]
fn mutations_for_some_minutes() {
    let Ok(asked) = std::env::var("BRAMBLING_FUZZ") else {
        return;
    };
    let (name, minutes) = asked.split_once(':').expect("TARGET:MINUTES");
    let target = TARGETS.iter().find(|it| it.0 == name).expect("a target").1;
    let inputs = inputs(name);
    let until = Instant::now() + Duration::from_secs(60 * minutes.parse::<u64>().unwrap());
    let (mut random, mut count) = (Random(0x2545_f491_4f6c_dd1d), 0u64);
    while Instant::now() < until {
        (0..1_000).for_each(|_| target(&mutate(&mut random, &inputs)));
        count += 1_000;
    }
    let told = format!("{{\"faults\": 0, \"inputs\": {count}}}\n");
    std::io::stdout().write_all(told.as_bytes()).unwrap();
}

#[test]
fn every_corpus_and_every_wrapper_belongs_to_a_target() {
    let names = |folder: &str| -> BTreeSet<String> {
        fs::read_dir(
            corpus("any")
                .parent()
                .unwrap()
                .parent()
                .unwrap()
                .join(folder),
        )
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect()
    };
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names("corpus"), targets);
    assert_eq!(names("fuzz_targets"), targets);
}
