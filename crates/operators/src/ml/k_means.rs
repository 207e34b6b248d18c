//! k-means by Lloyd's iterations, as a program: one pass over the data for each.

use super::columns::{ColumnStats, column_stats_block};
use super::model::refused;
use super::moments::MOMENT_FLOPS;
use super::nearest::{CentreSums, Centres, farthest_block, members_block, weighted_members_block};
use super::samples::{SampleBlock, SampleTable, Samples, SamplesError};
use crate::simd;
use brambling_program::{Blocks, Combine, Dataset, KernelError, Program, Sum, Work};
use serde::{Deserialize, Serialize};

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KMeans {
    /// Stop when the squares of the centres' moves add up to at most this share of the columns' mean variance.
    pub tol: f64,
    /// The most iterations.
    pub max_iter: u64,
}

/// The centres, and how their search stands.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clustering {
    /// Row by row.
    pub centres: Vec<f64>,
    /// Values in a row.
    pub columns: usize,
    /// Iterations done.
    pub iterations: u64,
    /// Sum of the squares of the centres' moves in the last iteration.
    pub moved: f64,
    /// Whether that was little enough.
    pub converged: bool,
    searching: bool,
    /// `tol`, in the unit of the squares.
    threshold: f64,
    /// Whether a centre is moved by the mean of its rows' differences from it, and not to the mean of its rows.
    by_differences: bool,
    /// What the squares of the rows' differences from `means` add up to.
    spread: f64,
    /// Of the columns.
    means: Vec<f64>,
    /// The pattern of the labels that the last iteration found.
    pattern: Option<u64>,
    /// Centres that the last iteration left without a row.
    empty: Vec<u32>,
}
brambling_program::payload!(Clustering, |model| (model.centres.capacity()
    + model.means.capacity())
    * size_of::<f64>()
    + model.empty.capacity() * size_of::<u32>());
brambling_program::payload!(Centres, |centres| centres.heap_bytes());
brambling_program::payload!(CentreSums, |members| members.heap_bytes());

impl Clone for Clustering {
    fn clone(&self) -> Clustering {
        let mut model = Clustering::default();
        model.clone_from(self);
        model
    }

    /// Keeps the buffers: a broadcast calls this for each partition and turn.
    fn clone_from(&mut self, from: &Clustering) {
        let (mut centres, mut means, mut empty) = (
            std::mem::take(&mut self.centres),
            std::mem::take(&mut self.means),
            std::mem::take(&mut self.empty),
        );
        centres.clone_from(&from.centres);
        means.clone_from(&from.means);
        empty.clone_from(&from.empty);
        *self = Clustering {
            centres,
            means,
            empty,
            ..*from
        };
    }
}

impl KMeans {
    /// Adds the program's stages to `p`: from `centres` (row by row), each iteration finds every row's nearest
    /// centre and moves each centre to the mean of its rows. A centre without rows moves to the row that is
    /// farthest from its own (of those that have a weight), unless every row is its centre. The search ends when no row has changed its centre, or
    /// centres moved little. The dataset that it gives has one partition and is kept.
    ///
    /// How far rows are from the origin, or clusters from one another, does not matter: labels come from differences,
    /// and so do means where sums of rows would lose digits (`Clustering::loses_digits`).
    ///
    /// `observe` may add stages before the first iteration and where one ends. NaN and infinities fail the job; the error's
    /// source is a [`SamplesError`].
    ///
    /// # Movement
    /// The samples never move. An iteration broadcasts the centres and reduces sums and counts.
    ///
    /// # Panics
    /// When [`SampleTable::check_shape`] would refuse the table, or [`SamplesError::check`] the centres.
    pub fn build(
        &self,
        p: &mut Program,
        table: SampleTable,
        centres: Vec<f64>,
        partitions: u32,
        observe: &dyn Fn(&mut Program, &Dataset<Clustering>),
    ) -> Dataset<Clustering> {
        let (columns, weighted) = (table.columns, !table.weights.is_empty());
        if let Err(error) = SamplesError::check(centres.len(), 0, columns) {
            panic!("{error}");
        }
        let samples = table.load(p, partitions);
        let start = Clustering {
            centres,
            columns,
            searching: self.max_iter > 0,
            ..Clustering::default()
        };
        let model = p.value("model", 1, start);
        let local = p.like::<Clustering, _>("local model", &samples);
        let prepared = p.like::<Centres, _>("prepared centres", &samples);
        let block_members = p.like::<Blocks<CentreSums>, _>("block members", &samples);
        let members = p.temporary::<CentreSums>("members", 1);
        let Self { tol, max_iter } = *self;
        statistics(p, &samples, &model, tol, weighted);
        observe(p, &model);
        p.repeat_while(
            "searching",
            &model,
            |model: &Clustering| model.searching,
            |p| {
                p.broadcast(&model, &local);
                p.compute("prepare")
                    .read(&local)
                    .write(&prepared)
                    .named("ml.k_means.prepare", Vec::new())
                    .run(prepare);
                p.map("members", &samples)
                    .read(&prepared)
                    .named("ml.k_means.members", Vec::new())
                    .into(&block_members, members_of_block);
                p.reduce_blocks(Sum, &block_members, &members, CentreSums::clone_from);
                p.compute("move")
                    .read(&members)
                    .update(&model)
                    .named("ml.k_means.move", Vec::new())
                    .with(max_iter)
                    .run(advance);
                relocate(p, &samples, &prepared, &model);
                observe(p, &model);
            },
        );
        model
    }
}

fn prepare(model: &Clustering, centres: &mut Centres) {
    centres.prepare(simd::active(), &model.centres, model.columns);
    centres.sum_differences(model.by_differences);
}

fn advance(
    max_iter: &u64,
    members: &CentreSums,
    model: &mut Clustering,
) -> Result<(), KernelError> {
    model.advance(members, *max_iter)
}

/// Adds the first pass: refuses values that are no numbers, and puts `tol` into the unit of the columns.
fn statistics(
    p: &mut Program,
    samples: &Dataset<Samples>,
    model: &Dataset<Clustering>,
    tol: f64,
    weighted: bool,
) {
    let block_statistics = p.like::<Blocks<Statistics>, _>("block statistics", samples);
    let statistics = p.temporary::<Statistics>("statistics", 1);
    p.map("statistics", samples)
        .named("ml.k_means.statistics", Vec::new())
        .into(&block_statistics, Statistics::of_block);
    p.reduce_blocks(Sum, &block_statistics, &statistics, Statistics::clone_from);
    p.compute("tolerance")
        .read(&statistics)
        .update(model)
        .named("ml.k_means.tolerance", Vec::new())
        .with((tol, weighted))
        .run(set_tolerance);
}

fn set_tolerance(
    &(tol, weighted): &(f64, bool),
    statistics: &Statistics,
    model: &mut Clustering,
) -> Result<(), KernelError> {
    if let Some(refusal) = &statistics.refusal {
        return Err(refused(refusal.clone()));
    }
    let variances = statistics
        .squares
        .iter()
        .map(|sum| sum / statistics.rows as f64);
    let mean = variances.sum::<f64>() / model.columns as f64;
    if !mean.is_finite() {
        return Err(refused(SamplesError::TooLarge));
    }
    if mean < VARIANCE_MIN && statistics.differ {
        return Err(refused(SamplesError::TooSmall));
    }
    model.threshold = tol * mean;
    model.spread = statistics.squares.iter().sum();
    model.means.clone_from(&statistics.means);
    // One cluster of all: nothing that is found later can be further from the origin for its size.
    model.by_differences = weighted || model.loses_digits(0.0, statistics.rows);
    Ok(())
}

/// 2⁻⁹⁰⁰: from this mean variance on, the squares of rows' differences have all their digits.
const VARIANCE_MIN: f64 = f64::from_bits((1023 - 900) << 52);

/// [`ColumnStats`] of some blocks, and the first value in them that cannot be used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Statistics {
    rows: u64,
    means: Vec<f64>,
    squares: Vec<f64>,
    refusal: Option<SamplesError>,
    /// The first row.
    first: Vec<f64>,
    /// Whether rows are different; looked for only where their squares do not tell.
    differ: bool,
}
brambling_program::payload!(Statistics, |statistics| (statistics.means.capacity()
    + statistics.squares.capacity()
    + statistics.first.capacity())
    * size_of::<f64>());

impl Statistics {
    fn of_block(block: SampleBlock<'_>, statistics: &mut Statistics) -> Work {
        let found = column_stats_block(simd::active(), block.x, block.columns);
        let first = &block.x[..block.columns];
        let small = found.squares.iter().sum::<f64>() < VARIANCE_MIN * found.weight;
        *statistics = Statistics {
            rows: found.weight as u64,
            means: found.means,
            squares: found.squares,
            refusal: if found.finite {
                None
            } else {
                block.not_finite()
            },
            first: first.to_vec(),
            differ: small && block.x.chunks(block.columns).any(|row| row != first),
        };
        block.work(MOMENT_FLOPS, 0)
    }

    fn stats(&self) -> ColumnStats {
        ColumnStats {
            weight: self.rows as f64,
            means: self.means.clone(),
            squares: self.squares.clone(),
            finite: self.refusal.is_none(),
        }
    }
}

impl Combine<Statistics> for Sum {
    fn combine(&self, left: &mut Statistics, right: &Statistics) {
        let mut both = left.stats();
        both.merge(&right.stats());
        (left.rows, left.means, left.squares) = (both.weight as u64, both.means, both.squares);
        left.differ |= right.differ || left.first != right.first;
        if left.refusal.is_none() {
            left.refusal.clone_from(&right.refusal);
        }
    }
}

/// Adds what is done only when a centre was left without rows: another pass, for the rows that are farthest.
fn relocate(
    p: &mut Program,
    samples: &Dataset<Samples>,
    prepared: &Dataset<Centres>,
    model: &Dataset<Clustering>,
) {
    let has_empty = p
        .signal("has empty")
        .read(model)
        .named("ml.k_means.has_empty", Vec::new())
        .run(|model: &Clustering| !model.empty.is_empty());
    let block_farthest = p.like::<Blocks<Farthest>, _>("block farthest", samples);
    let farthest = p.temporary::<Farthest>("farthest", 1);
    p.branch(
        has_empty,
        |p| {
            p.map("farthest", samples)
                .read(prepared)
                .named("ml.k_means.farthest", Vec::new())
                .into(&block_farthest, farthest_of_block);
            p.reduce_blocks(Sum, &block_farthest, &farthest, Farthest::clone_from);
            p.compute("relocate")
                .read(&farthest)
                .update(model)
                .named("ml.k_means.relocate", Vec::new())
                .run(|farthest: &Farthest, model: &mut Clustering| model.relocate(farthest));
        },
        |_| {},
    );
}

/// Below this share of all squares, those of the rows' differences from their centres lose too many digits if centres
/// are found as sums of rows: 2⁻³⁰. At this share a centre is off by about 2⁻³² of its rows' deviation.
const LOST: f64 = 1.0 / (1_u64 << 30) as f64;

impl Clustering {
    /// Whether sums of rows would lose digits of the means of clusters whose centres' differences from the mean of all
    /// have squares, by row, that add up to `between`. What is left of all rows' squares is within clusters.
    fn loses_digits(&self, between: f64, rows: u64) -> bool {
        let of_mean = self.means.iter().fold(0.0, |sum, mean| sum + mean * mean);
        // Not a number where squares overflow.
        let keeps = self.spread - between > LOST * (self.spread + rows as f64 * of_mean);
        !keeps
    }

    /// Moves each centre to the mean of its rows.
    fn advance(&mut self, members: &CentreSums, max_iter: u64) -> Result<(), KernelError> {
        let (mut moved, mut between) = (0.0f64, 0.0);
        let rows = members.counts().iter().sum();
        self.empty.clear();
        let mut centres = std::mem::take(&mut self.centres);
        let before = if self.by_differences {
            Vec::new()
        } else {
            centres.clone()
        };
        for (index, centre) in centres.chunks_exact_mut(self.columns).enumerate() {
            let count = members.weight(index);
            if count == 0.0 {
                self.empty.push(index as u32);
                continue;
            }
            let mut apart = 0.0;
            for (at, (value, sum)) in centre.iter_mut().zip(members.sums(index)).enumerate() {
                let mean = sum / count;
                let mean = if self.by_differences {
                    *value + mean
                } else {
                    mean
                };
                moved = (mean - *value).mul_add(mean - *value, moved);
                apart += (mean - self.means[at]) * (mean - self.means[at]);
                *value = mean;
            }
            between += count * apart;
        }
        self.centres = centres;
        if !self.by_differences && self.loses_digits(between, rows) {
            // The iteration is done again.
            (self.centres, self.by_differences) = (before, true);
            self.empty.clear();
            return Ok(());
        }
        if !moved.is_finite() {
            return Err(refused(SamplesError::TooLarge));
        }
        self.iterations += 1;
        self.moved = moved;
        // The means of the same rows move by what was rounded, and may do so for ever.
        let same = self.pattern.replace(members.pattern()) == Some(members.pattern());
        self.converged = same || moved <= self.threshold;
        // A centre without rows may be relocated: whether it is decides.
        self.searching = self.iterations < max_iter && !(self.converged && self.empty.is_empty());
        Ok(())
    }

    /// Moves centres that have no rows to the rows farthest from theirs.
    fn relocate(&mut self, farthest: &Farthest) {
        for (&index, row) in self.empty.iter().zip(&farthest.rows) {
            let start = index as usize * self.columns;
            self.centres[start..start + self.columns].copy_from_slice(&row.values);
        }
        self.empty.clear();
        // Where every row is its own centre there is nothing to be won.
        self.converged &= farthest.rows.is_empty();
        self.searching &= !self.converged;
    }
}

/// The most rows that are remembered as far away: more centres than that are relocated in later iterations.
const FARTHEST_MAX: usize = 16;

/// Different rows that are farthest from their nearest centres, the farthest first; none that is its centre.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Farthest {
    rows: Vec<FarRow>,
}
brambling_program::payload!(Farthest, |farthest| farthest.rows.capacity()
    * size_of::<FarRow>());

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FarRow {
    /// The square of its distance.
    distance: f64,
    values: Vec<f64>,
}

impl Farthest {
    /// Of rows as far the earlier one stays before the later.
    fn insert(&mut self, distance: f64, values: &[f64]) {
        let place = self.rows.partition_point(|row| row.distance >= distance);
        let is_known = || {
            let before = self.rows[..place].iter().rev();
            let mut as_far = before.take_while(|row| row.distance == distance);
            as_far.any(|row| row.values == values)
        };
        if distance > 0.0 && place < FARTHEST_MAX && !is_known() {
            self.rows.truncate(FARTHEST_MAX - 1);
            let values = values.to_vec();
            self.rows.insert(place, FarRow { distance, values });
        }
    }
}

impl Combine<Farthest> for Sum {
    fn combine(&self, left: &mut Farthest, right: &Farthest) {
        for row in &right.rows {
            left.insert(row.distance, &row.values);
        }
    }
}

impl Combine<CentreSums> for Sum {
    fn combine(&self, left: &mut CentreSums, right: &CentreSums) {
        left.add(simd::active(), right);
    }
}

fn members_of_block(block: SampleBlock<'_>, centres: &Centres, members: &mut CentreSums) -> Work {
    let (isa, x) = (simd::active(), block.x);
    match block.weights {
        [] => members_block(isa, x, centres, members),
        weights => weighted_members_block(isa, x, weights, centres, members),
    }
    // A multiply-add for each value and centre, and the value is added to its centre's sum.
    block.work(2 * centres.count() as u64 + 1, 0)
}

fn farthest_of_block(block: SampleBlock<'_>, centres: &Centres, farthest: &mut Farthest) -> Work {
    farthest.rows.clear();
    let (isa, x) = (simd::active(), block.x);
    let mut insert = |distance, row: &[f64]| farthest.insert(distance, row);
    match block.weights {
        [] => farthest_block(isa, x, centres, insert),
        weights => {
            let mut weights = weights.iter();
            farthest_block(isa, x, centres, |distance, row| {
                // A row that counts for nothing draws no centre.
                if weights.next().is_some_and(|&weight| weight > 0.0) {
                    insert(distance, row);
                }
            });
        }
    }
    block.work(2 * centres.count() as u64, 0)
}
