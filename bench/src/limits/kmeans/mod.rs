//! Iterations of k-means over dense rows of 20 features, by hand.
//!
//! Rows lie one after another in `x`. An iteration finds each row's nearest centre, adds the row to that
//! centre's sums, and moves every centre to the mean of its rows; a centre without rows stays. Of equally
//! near centres the first counts. Every variant computes all of it, so that the bench can hold them
//! against each other.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use brambling_machine::IsaLevel;
use brambling_machine::crew::{self, CacheAligned};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod packed;
mod scalar;

use packed::{Packed, Shape};

/// Features of a row.
pub const FEATURES: usize = 20;

// What a thread claims at a time: 1.3 MB. Large for the hardware's prefetcher, small enough that the
// threads finish together when one of them is disturbed.
const CHUNK_ROWS: usize = 8 << 10;

/// A centre.
pub type Centre = [f64; FEATURES];

/// Rows, in one piece or in several (the blocks of a dataset).
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    chunks: Vec<&'a [f64]>,
}

/// What the rows of each centre add up to, and how many they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members {
    /// By centre.
    pub sums: Vec<Centre>,
    /// By centre.
    pub counts: Vec<u64>,
}

/// A bare loop: what pinned threads can do with nothing in their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BareLoop {
    /// Plain Rust over groups of centres, as the compiler makes it for the baseline CPU.
    Scalar,
    /// Eight rows turned into columns, five centres at a time, in 256-bit vectors.
    Avx2,
    /// The same with a software prefetch.
    Avx2Prefetch,
    /// Sixteen rows turned into columns, a group of centres at a time, in 512-bit vectors.
    Avx512Columns,
    /// The same with a software prefetch.
    Avx512ColumnsPrefetch,
    /// Centres in the lanes of 512-bit vectors; the values of a few rows are spread over all lanes.
    Avx512Lanes,
}

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

impl<'a> Problem<'a> {
    /// All rows in one slice.
    ///
    /// # Panics
    /// When `x` does not hold whole rows.
    pub fn new(x: &'a [f64]) -> Problem<'a> {
        Problem::of_pieces([x])
    }

    /// Rows in several slices.
    ///
    /// # Panics
    /// When some piece does not hold whole rows.
    pub fn of_pieces(pieces: impl IntoIterator<Item = &'a [f64]>) -> Problem<'a> {
        let mut chunks = Vec::new();
        for x in pieces {
            assert!(x.len().is_multiple_of(FEATURES), "whole rows");
            chunks.extend(x.chunks(CHUNK_ROWS * FEATURES));
        }
        Problem { chunks }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.chunks.iter().map(|x| x.len() / FEATURES).sum()
    }

    /// The slices that hold the input, for measuring how fast they can be read at all.
    pub fn slices(&self) -> Vec<&'a [f64]> {
        self.chunks.clone()
    }
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
pub fn plain_loop(problem: &Problem<'_>, centres: &[Centre]) -> Members {
    let mut members = Members::zero(centres.len());
    for row in rows_of(problem) {
        let nearest = plain_nearest(row, centres);
        for (sum, x) in members.sums[nearest].iter_mut().zip(row) {
            *sum += x;
        }
        members.counts[nearest] += 1;
    }
    members
}

/// Each row's nearest centre, by the plain loop.
pub fn plain_labels(problem: &Problem<'_>, centres: &[Centre]) -> Vec<u32> {
    rows_of(problem)
        .map(|row| plain_nearest(row, centres) as u32)
        .collect()
}

fn rows_of<'p>(problem: &'p Problem<'_>) -> impl Iterator<Item = &'p Centre> {
    let rows = |x: &'p &[f64]| x.as_chunks::<FEATURES>().0;
    problem.chunks.iter().flat_map(rows)
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

impl BareLoop {
    /// All loops.
    pub const ALL: [BareLoop; 6] = [
        BareLoop::Scalar,
        BareLoop::Avx2,
        BareLoop::Avx2Prefetch,
        BareLoop::Avx512Columns,
        BareLoop::Avx512ColumnsPrefetch,
        BareLoop::Avx512Lanes,
    ];

    /// The loops this CPU can run.
    pub fn available() -> Vec<BareLoop> {
        super::available(&Self::ALL, Self::isa)
    }

    /// The instruction set it needs.
    pub fn isa(self) -> IsaLevel {
        match self {
            BareLoop::Scalar => IsaLevel::V2,
            BareLoop::Avx2 | BareLoop::Avx2Prefetch => IsaLevel::V3,
            BareLoop::Avx512Columns | BareLoop::Avx512ColumnsPrefetch | BareLoop::Avx512Lanes => {
                IsaLevel::V4
            }
        }
    }

    /// A stable name, for tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            BareLoop::Scalar => "bare-scalar",
            BareLoop::Avx2 => "bare-avx2",
            BareLoop::Avx2Prefetch => "bare-avx2-prefetch",
            BareLoop::Avx512Columns => "bare-avx512-columns",
            BareLoop::Avx512ColumnsPrefetch => "bare-avx512-columns-prefetch",
            BareLoop::Avx512Lanes => "bare-avx512-lanes",
        }
    }

    /// How the centres lie for this loop: groups that leave the fewest places empty.
    fn shape(self, count: usize) -> Shape {
        match self {
            BareLoop::Scalar => Shape::least_waste(count, &scalar::SHAPES),
            #[cfg(target_arch = "x86_64")]
            BareLoop::Avx2 | BareLoop::Avx2Prefetch => Shape::least_waste(count, &avx2::SHAPES),
            #[cfg(target_arch = "x86_64")]
            BareLoop::Avx512Columns | BareLoop::Avx512ColumnsPrefetch => {
                Shape::least_waste(count, &avx512::columns::SHAPES)
            }
            #[cfg(target_arch = "x86_64")]
            BareLoop::Avx512Lanes => Shape::least_waste(count, &avx512::lanes::SHAPES),
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("asserted to be available"),
        }
    }

    // The CPU has the instruction set: `iterate` and `labels` asserted it.
    fn add_chunk(self, x: &[f64], centres: &Packed, part: &mut Part) {
        let (rows, _) = x.as_chunks::<FEATURES>();
        let done = match self {
            BareLoop::Scalar => 0,
            #[cfg(target_arch = "x86_64")]
            BareLoop::Avx2 => avx2::add_rows::<false>(rows, centres, part),
            #[cfg(target_arch = "x86_64")]
            BareLoop::Avx2Prefetch => avx2::add_rows::<true>(rows, centres, part),
            #[cfg(target_arch = "x86_64")]
            BareLoop::Avx512Columns => avx512::columns::add_rows::<false>(rows, centres, part),
            #[cfg(target_arch = "x86_64")]
            BareLoop::Avx512ColumnsPrefetch => {
                avx512::columns::add_rows::<true>(rows, centres, part)
            }
            #[cfg(target_arch = "x86_64")]
            BareLoop::Avx512Lanes => avx512::lanes::add_rows(rows, centres, part),
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("asserted to be available"),
        };
        if self == BareLoop::Scalar {
            scalar::add_rows(rows, centres, part);
        } else {
            scalar::add_few_rows(&rows[done..], centres, part);
        }
    }

    fn assert_available(self) {
        assert!(
            self.isa().is_available(),
            "{} needs {}",
            self.name(),
            self.isa()
        );
    }

    /// Each row's nearest centre, found on this thread.
    ///
    /// # Panics
    /// When this CPU lacks the loop's instruction set, or there is no centre.
    pub fn labels(self, problem: &Problem<'_>, centres: &[Centre]) -> Vec<u32> {
        self.assert_available();
        let packed = Packed::new(self.shape(centres.len()), centres);
        let mut part = Part::zero(centres.len());
        part.labels = Some(Vec::new());
        for chunk in &problem.chunks {
            self.add_chunk(chunk, &packed, &mut part);
        }
        part.labels.unwrap_or_default()
    }

    /// Does `iterations` iterations from `start` with one thread per entry of `places` (see
    /// [`brambling_machine::cpu::places`]). The threads are pinned, stay for all iterations and meet at
    /// a spinning barrier after each, where the first adds up their parts and moves the centres.
    ///
    /// # Panics
    /// When this CPU lacks the loop's instruction set, there is no centre, or `iterations` is 0.
    pub fn iterate(
        self,
        problem: &Problem<'_>,
        start: &[Centre],
        places: &[usize],
        iterations: usize,
    ) -> Iterated {
        self.assert_available();
        assert!(iterations > 0);
        let shape = self.shape(start.len());
        let claims: Vec<CacheAligned<AtomicUsize>> =
            (0..iterations).map(|_| CacheAligned::default()).collect();
        let parts: Vec<CacheAligned<Mutex<Part>>> =
            places.iter().map(|_| CacheAligned::default()).collect();
        let centres = Mutex::new(Packed::new(shape, start));
        let mut results = crew::run(places, |member| {
            let mut iterated = Iterated {
                first: Members::default(),
                centres: start.to_vec(),
                seconds: Vec::new(),
            };
            for claim in &claims {
                member.barrier();
                let begin = Instant::now();
                let packed = centres.lock().expect("no panic holds it").clone();
                let mut part = Part::zero(start.len());
                // Relaxed: only the claims must be distinct.
                while let Some(chunk) = problem.chunks.get(claim.0.fetch_add(1, Ordering::Relaxed))
                {
                    self.add_chunk(chunk, &packed, &mut part);
                }
                *parts[member.index()].0.lock().expect("no panic holds it") = part;
                member.barrier();
                if member.index() == 0 {
                    let members = combined(start.len(), &parts);
                    iterated.centres = members.means(&iterated.centres);
                    *centres.lock().expect("no panic holds it") =
                        Packed::new(shape, &iterated.centres);
                    iterated.seconds.push(begin.elapsed().as_secs_f64());
                    if iterated.seconds.len() == 1 {
                        iterated.first = members;
                    }
                }
            }
            iterated
        });
        results.swap_remove(0)
    }
}

fn combined(count: usize, parts: &[CacheAligned<Mutex<Part>>]) -> Members {
    let mut members = Members::zero(count);
    for part in parts {
        members.add(&part.0.lock().expect("no panic holds it"));
    }
    members
}

#[cfg(test)]
mod tests;
