//! Iterations of k-means over dense rows of 20 features, by hand.
//!
//! Rows lie one after another in `x`. An iteration finds each row's nearest centre, adds the row to that
//! centre's sums, and moves every centre to the mean of its rows; a centre without rows stays. Of equally
//! near centres the first counts. Every variant computes all of it, so that the bench can hold them
//! against each other.

use super::{Bare, CHUNK_ROWS, turns};
use brambling_machine::IsaLevel::{self, *};
use std::sync::Mutex;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod packed;
mod scalar;

use packed::Packed;

/// Features of a row.
pub const FEATURES: usize = 20;

/// A centre.
pub type Centre = [f64; FEATURES];

/// What the rows of each centre add up to, and how many they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Members {
    /// By centre.
    pub sums: Vec<Centre>,
    /// By centre.
    pub counts: Vec<u64>,
}

/// Adds whole tiles of rows, and returns how many rows that were.
type AddRows = fn(&[Centre], &Packed, &mut Part) -> usize;

/// How a loop takes centres and rows.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// How many centres a group can have.
    groups: &'static [usize],
    add_rows: AddRows,
}

/// A bare loop that searches and adds.
pub type BareLoop = Bare<Kernel>;

const fn bare(
    name: &'static str,
    isa: IsaLevel,
    groups: &'static [usize],
    add_rows: AddRows,
) -> BareLoop {
    Bare::new(name, isa, Kernel { groups, add_rows })
}

const ALL: &[BareLoop] = &[
    // Plain Rust over groups of centres, as the compiler makes it for the baseline CPU.
    bare("bare-scalar", V2, &scalar::GROUPS, scalar::add_rows),
    // Eight rows turned into columns, five centres at a time, in 256-bit vectors; with a software prefetch.
    #[cfg(target_arch = "x86_64")]
    bare("bare-avx2", V3, &avx2::GROUPS, avx2::add_rows::<false>),
    #[cfg(target_arch = "x86_64")]
    bare(
        "bare-avx2-prefetch",
        V3,
        &avx2::GROUPS,
        avx2::add_rows::<true>,
    ),
    // Sixteen rows turned into columns, a group of centres at a time, in 512-bit vectors; with a software prefetch.
    #[cfg(target_arch = "x86_64")]
    bare(
        "bare-avx512-columns",
        V4,
        &avx512::GROUPS,
        avx512::add_rows::<false>,
    ),
    #[cfg(target_arch = "x86_64")]
    bare(
        "bare-avx512-columns-prefetch",
        V4,
        &avx512::GROUPS,
        avx512::add_rows::<true>,
    ),
];

/// What a bare loop found, and how long it took.
#[derive(Clone, Debug)]
pub struct Iterated {
    /// The members by the centres at the start.
    pub first: Members,
    /// The centres after the last iteration.
    pub centres: Vec<Centre>,
    /// The wall time of each iteration, in seconds.
    pub seconds: Vec<f64>,
}

/// What one thread adds up.
#[derive(Clone, Debug, Default)]
struct Part {
    sums: Vec<Sums>,
    /// The labels too, where somebody wants to see them.
    labels: Option<Vec<u32>>,
}

/// Sums and count of one centre, on lines of their own.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Sums {
    values: Centre,
    count: u64,
}

impl Members {
    fn zero(count: usize) -> Members {
        Members {
            sums: vec![[0.0; FEATURES]; count],
            counts: vec![0; count],
        }
    }

    /// Whether all counts are the same and no sum differs by more than `relative` of the largest.
    pub fn agrees_with(&self, other: &Members, relative: f64) -> bool {
        self.counts == other.counts && agree(&self.sums, &other.sums, relative)
    }

    /// Where the centres go: to the means. A centre without rows stays.
    pub fn means(&self, centres: &[Centre]) -> Vec<Centre> {
        let mut means = centres.to_vec();
        for ((mean, sums), &count) in means.iter_mut().zip(&self.sums).zip(&self.counts) {
            if count > 0 {
                *mean = sums.map(|sum| sum / count as f64);
            }
        }
        means
    }

    fn add(&mut self, part: &Part) {
        let ours = self.sums.iter_mut().zip(&mut self.counts);
        for ((sums, count), more) in ours.zip(&part.sums) {
            for (sum, value) in sums.iter_mut().zip(more.values) {
                *sum += value;
            }
            *count += more.count;
        }
    }
}

/// Whether there are as many rows, and no value differs by more than `relative` of the largest.
pub fn agree(ours: &[Centre], others: &[Centre], relative: f64) -> bool {
    let pairs = || {
        let (ours, others) = (ours.as_flattened(), others.as_flattened());
        ours.iter().zip(others)
    };
    let largest = pairs()
        .map(|(a, b)| a.abs().max(b.abs()))
        .fold(0.0, f64::max);
    ours.len() == others.len() && pairs().all(|(a, b)| (a - b).abs() <= relative * largest)
}

/// The loop that anyone would write first: one thread, row after row, centre after centre.
pub fn plain_loop(rows: &[Centre], centres: &[Centre]) -> Members {
    let mut members = Members::zero(centres.len());
    for row in rows {
        let nearest = plain_nearest(row, centres);
        for (sum, x) in members.sums[nearest].iter_mut().zip(row) {
            *sum += x;
        }
        members.counts[nearest] += 1;
    }
    members
}

/// Each row's nearest centre, by the plain loop.
pub fn plain_labels(rows: &[Centre], centres: &[Centre]) -> Vec<u32> {
    let label = |row| plain_nearest(row, centres) as u32;
    rows.iter().map(label).collect()
}

fn plain_nearest(row: &Centre, centres: &[Centre]) -> usize {
    let (mut nearest, mut least) = (0, f64::INFINITY);
    for (index, centre) in centres.iter().enumerate() {
        let distance: f64 = row.iter().zip(centre).map(|(x, c)| (x - c) * (x - c)).sum();
        if distance < least {
            (nearest, least) = (index, distance);
        }
    }
    nearest
}

impl Part {
    fn zero(count: usize) -> Part {
        Part {
            sums: vec![Sums::default(); count],
            labels: None,
        }
    }

    /// Notes some labels where that is wanted: one test for a whole tile of rows.
    #[inline(always)]
    fn note(&mut self, tile: &[u32]) {
        if let Some(labels) = &mut self.labels {
            labels.extend(tile);
        }
    }
}

impl Kernel {
    fn pack(self, centres: &[Centre]) -> Packed {
        Packed::new(self.groups, centres)
    }

    fn add_chunk(self, rows: &[Centre], centres: &Packed, part: &mut Part) {
        let done = (self.add_rows)(rows, centres, part);
        scalar::add_few_rows(&rows[done..], centres, part);
    }
}

impl BareLoop {
    /// The loops this CPU can run.
    pub fn available() -> Vec<BareLoop> {
        super::available(ALL)
    }

    /// A loop for the best instruction set.
    pub fn widest() -> BareLoop {
        super::widest(ALL)
    }

    /// Each row's nearest centre, found on this thread.
    ///
    /// # Panics
    /// When this CPU lacks the loop's instruction set, or there is no centre.
    pub fn labels(self, rows: &[Centre], centres: &[Centre]) -> Vec<u32> {
        let kernel = self.kernel();
        let packed = kernel.pack(centres);
        let mut part = Part::zero(centres.len());
        part.labels = Some(Vec::new());
        for chunk in rows.chunks(CHUNK_ROWS) {
            kernel.add_chunk(chunk, &packed, &mut part);
        }
        part.labels.unwrap_or_default()
    }

    /// Does `iterations` iterations from `start`, as [`turns`] says: the first thread moves the centres.
    ///
    /// # Panics
    /// When this CPU lacks the loop's instruction set, there is no centre, or `iterations` is 0.
    pub fn iterate(
        self,
        rows: &[Centre],
        start: &[Centre],
        places: &[usize],
        iterations: usize,
    ) -> Iterated {
        let kernel = self.kernel();
        let chunks: Vec<&[Centre]> = rows.chunks(CHUNK_ROWS).collect();
        let packed = Mutex::new(kernel.pack(start));
        let (mut first, mut centres) = (None, start.to_vec());
        let seconds = turns(
            places,
            iterations,
            chunks.len(),
            |_| {
                let packed = packed.lock().expect("no panic holds it").clone();
                (packed, Part::zero(start.len()))
            },
            |chunk, (packed, part)| kernel.add_chunk(chunks[chunk], packed, part),
            |parts| {
                let mut members = Members::zero(start.len());
                parts.iter().for_each(|(_, part)| members.add(part));
                centres = members.means(&centres);
                *packed.lock().expect("no panic holds it") = kernel.pack(&centres);
                first.get_or_insert(members);
            },
        );
        Iterated {
            first: first.expect("there was an iteration"),
            centres,
            seconds,
        }
    }
}

#[cfg(test)]
mod tests;
