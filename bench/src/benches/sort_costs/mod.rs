//! Claim: what each feature of a sort of files costs is known, each switched on alone beside the same sort without it, in the same
//! rounds. (Krevat et al., §8: "quantify the incremental cost of that feature".) Not claimed: a cold cache, since the input has been
//! written just before.
//!
//! This module owns the files, the rounds and what is told of them; [`variants`] knows how each is sorted. The limit is a bare copy:
//! the input is read and written by one thread, and is on its disk when it ends.

mod variants;

use crate::BenchError;
use crate::report::{Figures, Line, Report, limit_lines, limits, over};
use crate::session::{Counts, Session};
use brambling::RunOptions;
use brambling::sort::{RecordFormat, Skew, make_file};
use brambling_machine::Figure;
use brambling_machine::measure::Measured;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use variants::{Moved, Sorting, Variant};

const BYTES: u64 = 1_000_000_000;
/// Enough that a quarter of it, or the least that a sort needs, is too little for it.
const SMOKE_BYTES: u64 = 24_000_000;
const RECORD_BYTES: u64 = 100;
/// Of a read of the bare copy.
const BLOCK_BYTES: usize = 4 << 20;

/// What the bench found.
#[derive(Clone, Debug, Serialize)]
pub struct SortCostsFigures {
    /// Of the input.
    pub bytes: u64,
    /// Of the input.
    pub records: u64,
    /// How many features were measured.
    pub features: usize,
    /// The sort with none of them but those that every sort has, in memory and one process, in seconds.
    pub plain_seconds: Figure,
    /// The limit: the input is read and written to a disk, in seconds.
    pub copy_seconds: Figure,
    /// One for each feature.
    pub costs: Vec<FeatureCost>,
}

/// What a feature costs.
#[derive(Clone, Debug, Serialize)]
pub struct FeatureCost {
    /// The feature.
    pub name: &'static str,
    /// What the sort without it was.
    pub against: &'static str,
    /// With it, in seconds.
    pub seconds: Figure,
    /// Without it, in seconds.
    pub without_seconds: Figure,
    /// The one ÷ the other, within each round.
    pub over_plain: Figure,
    /// Bytes that it writes, which the sort without it does not.
    pub adds_written_bytes: u64,
    /// Bytes that it reads, which the sort without it does not.
    pub adds_read_bytes: u64,
}

/// A feature: the sort with it, and the one without.
struct Feature {
    name: &'static str,
    with: Variant,
    without: Variant,
}

const FEATURES: [Feature; 7] = [
    Feature {
        name: "backup",
        with: Variant::Backup,
        without: Variant::Plain,
    },
    Feature {
        name: "replication",
        with: Variant::Replicated,
        without: Variant::TwoWorkers,
    },
    Feature {
        name: "checksums",
        with: Variant::Checksums,
        without: Variant::Plain,
    },
    Feature {
        name: "external",
        with: Variant::External,
        without: Variant::Plain,
    },
    Feature {
        name: "stability",
        with: Variant::Plain,
        without: Variant::Unstable,
    },
    Feature {
        name: "spilling",
        with: Variant::Spilling,
        without: Variant::Plain,
    },
    Feature {
        name: "dynamic splits",
        with: Variant::Plain,
        without: Variant::StaticSplits,
    },
];

/// A directory of the bench's files, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Folder> {
        let name = format!("brambling-sort-costs-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // In the system's own directory, which it empties by itself.
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn run(session: &mut Session<'_>) -> Result<Report, BenchError> {
    let bytes = match session.options.smoke {
        true => SMOKE_BYTES,
        false => session.options.bytes.unwrap_or(BYTES),
    };
    let records = bytes / RECORD_BYTES;
    let folder = Folder::new().map_err(|error| session.system(error))?;
    let input = folder.0.join("records");
    let options = RunOptions::new().threads(session.threads);
    session.sort(|caller| {
        let format = RecordFormat::default();
        make_file(&input, records, format, Skew::Uniform, &options, caller)
    })?;
    let sorting = &Sorting::new(session, &folder.0, &input, records)?;
    // What each variant has read and written.
    let moved = &RefCell::new(BTreeMap::<Variant, Moved>::new());
    let copy = folder.0.join("copy");
    let mut rounds = session
        .rounds()
        .no_repeats()
        .limit("disk", "a bare copy", |session| {
            copied(&input, &copy).map_err(|error| session.system(error))
        });
    for variant in Variant::ALL {
        rounds = rounds.ours(variant.name(), move |session| {
            let (seconds, bytes) = sorting.sample(session, variant)?;
            moved.borrow_mut().insert(variant, bytes);
            Ok(seconds)
        });
    }
    let measured = session.measure(rounds)?;
    let moved = moved.borrow();
    let costs: Vec<FeatureCost> = FEATURES
        .iter()
        .map(|feature| feature.cost(&measured, &moved))
        .collect();
    let limits = limits(&measured, ["a bare copy"], 1.0, "s");
    let plain = measured.figure(Variant::Plain.name());
    let mut lines = vec![Line::new("plain sort, in memory", plain, "s")];
    lines.extend(costs.iter().map(line_of));
    lines.extend(limit_lines(&limits, |_| None));
    let figures = Figures::SortCosts(SortCostsFigures {
        bytes: records * RECORD_BYTES,
        records,
        features: costs.len(),
        plain_seconds: plain,
        copy_seconds: measured.figure("a bare copy"),
        costs,
    });
    Ok(session.report(Counts::of([&measured]), figures, limits, lines))
}

impl Feature {
    fn cost(&self, measured: &Measured, moved: &BTreeMap<Variant, Moved>) -> FeatureCost {
        let (with, without) = (self.with.name(), self.without.name());
        let more = |bytes: fn(&Moved) -> u64| {
            let of = |variant| moved.get(variant).map_or(0, bytes);
            of(&self.with).saturating_sub(of(&self.without))
        };
        FeatureCost {
            name: self.name,
            against: without,
            seconds: measured.figure(with),
            without_seconds: measured.figure(without),
            over_plain: over(measured, with, without),
            adds_written_bytes: more(|it| it.written_bytes),
            adds_read_bytes: more(|it| it.read_bytes),
        }
    }
}

fn line_of(cost: &FeatureCost) -> Line {
    let Figure { median, min, max } = cost.over_plain;
    let mut note = format!(
        "{median:.2} ({min:.2}–{max:.2}) × the same {}",
        cost.against
    );
    let gb = |bytes: u64| bytes as f64 / 1e9;
    if cost.adds_written_bytes > 0 {
        note.push_str(&format!("; writes {:.2} GB", gb(cost.adds_written_bytes)));
    }
    if cost.adds_read_bytes > 0 {
        note.push_str(&format!("; reads {:.2} GB", gb(cost.adds_read_bytes)));
    }
    Line::new(format!("with {}", cost.name), cost.seconds, "s").note(note)
}

/// Copies a file without any engine; the copy is on its disk when this ends. Gives the seconds.
fn copied(from: &Path, to: &Path) -> io::Result<f64> {
    let mut block = vec![0; BLOCK_BYTES];
    let start = Instant::now();
    let (mut from, mut written) = (File::open(from)?, File::create(to)?);
    loop {
        let bytes = from.read(&mut block)?;
        if bytes == 0 {
            break;
        }
        written.write_all(&block[..bytes])?;
    }
    written.sync_all()?;
    let seconds = start.elapsed().as_secs_f64();
    fs::remove_file(to)?;
    Ok(seconds)
}
