//! k-means by Lloyd's iterations, as a program: one pass over the data for each.

use super::columns::{ColumnStats, column_stats_block};
use super::nearest::{Centres, Members, farthest_block, members_block};
use super::samples::{SampleBlock, Samples, SamplesError};
use crate::simd;
use brambling_program::{
    Blocks, Combine, Dataset, Foreign, KernelError, Partitioner, Payload, Program, Sum,
};
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
    /// Centres that the last iteration left without a row.
    empty: Vec<u32>,
}
brambling_program::payload!(Clustering, |model| model.centres.capacity()
    * size_of::<f64>()
    + model.empty.capacity() * size_of::<u32>());
brambling_program::payload!(Centres, |centres| centres.heap_bytes());
brambling_program::payload!(Members, |members| members.heap_bytes());

impl Clone for Clustering {
    fn clone(&self) -> Clustering {
        let mut model = Clustering::default();
        model.clone_from(self);
        model
    }

    /// Keeps the buffers: a broadcast calls this for each partition and turn.
    fn clone_from(&mut self, from: &Clustering) {
        let (mut centres, mut empty) = (
            std::mem::take(&mut self.centres),
            std::mem::take(&mut self.empty),
        );
        centres.clone_from(&from.centres);
        empty.clone_from(&from.empty);
        *self = Clustering {
            centres,
            empty,
            ..*from
        };
    }
}

impl KMeans {
    /// Adds the program's stages to `p`: from `centres` (row by row), each iteration finds every row's nearest
    /// centre and moves each centre to the mean of its rows. A centre without rows moves to the row that is
    /// farthest from its own. The dataset that it gives has one partition and is kept.
    ///
    /// `observe` may add stages before the first iteration and where one ends. NaN and infinities fail the job; the error's
    /// source is a [`SamplesError`].
    ///
    /// # Movement
    /// The samples never move. An iteration broadcasts the centres and reduces sums and counts.
    ///
    /// # Panics
    /// When [`SamplesError::check`] would refuse the table's shape, or that of the centres.
    pub fn build(
        &self,
        p: &mut Program,
        x: Foreign<f64>,
        columns: usize,
        centres: Vec<f64>,
        partitions: u32,
        observe: impl Fn(&mut Program, &Dataset<Clustering>),
    ) -> Dataset<Clustering> {
        if let Err(error) = SamplesError::check(centres.len(), 0, columns) {
            panic!("{error}");
        }
        let samples = p.load(
            "samples",
            partitions,
            Partitioner::Blocks,
            move |index, count| Samples::partition(&x, &Foreign::default(), columns, index, count),
        );
        let start = Clustering {
            centres,
            columns,
            searching: self.max_iter > 0,
            ..Clustering::default()
        };
        let model = p.value("model", 1, start);
        let local = p.like::<Clustering, _>("local model", &samples);
        let prepared = p.like::<Centres, _>("prepared centres", &samples);
        let block_members = p.like::<Blocks<Members>, _>("block members", &samples);
        let members = p.temporary::<Members>("members", 1);
        let Self { tol, max_iter } = *self;
        statistics(p, &samples, &model, columns, tol);
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
                    .run(|model: &Clustering, centres: &mut Centres| {
                        centres.prepare(simd::active(), &model.centres, model.columns);
                    });
                p.map("members", &samples)
                    .read(&prepared)
                    .named("ml.k_means.members", Vec::new())
                    .into(&block_members, members_of_block);
                p.reduce_blocks(Sum, &block_members, &members, Members::clone_from);
                p.compute("move")
                    .read(&members)
                    .update(&model)
                    .named("ml.k_means.move", encoded(&max_iter))
                    .run(move |members: &Members, model: &mut Clustering| {
                        model.advance(members, max_iter)
                    });
                relocate(p, &samples, &prepared, &model);
                observe(p, &model);
            },
        );
        model
    }
}

fn encoded(parameters: &impl Payload) -> Vec<u8> {
    let mut bytes = Vec::new();
    parameters.encode(&mut bytes);
    bytes
}

fn refused(error: SamplesError) -> KernelError {
    KernelError::new(error.to_string()).with_source(error)
}

/// Adds the first pass: refuses values that are no numbers, and puts `tol` into the unit of the columns.
fn statistics(
    p: &mut Program,
    samples: &Dataset<Samples>,
    model: &Dataset<Clustering>,
    columns: usize,
    tol: f64,
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
        .named("ml.k_means.tolerance", encoded(&tol))
        .run(move |statistics: &Statistics, model: &mut Clustering| {
            if let Some(refusal) = &statistics.refusal {
                return Err(refused(refusal.clone()));
            }
            let variances = statistics
                .squares
                .iter()
                .map(|sum| sum / statistics.rows as f64);
            let mean = variances.sum::<f64>() / columns as f64;
            if !mean.is_finite() {
                return Err(refused(SamplesError::TooLarge));
            }
            model.threshold = tol * mean;
            Ok(())
        });
}

/// [`ColumnStats`] of some blocks, and the first value in them that cannot be used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Statistics {
    rows: u64,
    means: Vec<f64>,
    squares: Vec<f64>,
    refusal: Option<SamplesError>,
}
brambling_program::payload!(Statistics, |statistics| (statistics.means.capacity()
    + statistics.squares.capacity())
    * size_of::<f64>());

impl Statistics {
    fn of_block(block: SampleBlock<'_>, statistics: &mut Statistics) {
        let found = column_stats_block(simd::active(), block.x, block.columns);
        let refusal = || {
            let at = block.x.iter().position(|value| !value.is_finite())?;
            Some(SamplesError::NotFinite {
                row: block.first_row + (at / block.columns) as u64,
                column: at % block.columns,
                value: block.x[at],
            })
        };
        *statistics = Statistics {
            rows: found.rows,
            means: found.means,
            squares: found.squares,
            refusal: if found.finite { None } else { refusal() },
        };
    }

    fn stats(&self) -> ColumnStats {
        ColumnStats {
            rows: self.rows,
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
        (left.rows, left.means, left.squares) = (both.rows, both.means, both.squares);
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

impl Clustering {
    /// Moves each centre to the mean of its rows.
    fn advance(&mut self, members: &Members, max_iter: u64) -> Result<(), KernelError> {
        let mut moved = 0.0f64;
        self.empty.clear();
        for (index, centre) in self.centres.chunks_exact_mut(self.columns).enumerate() {
            let count = members.counts()[index];
            if count == 0 {
                self.empty.push(index as u32);
                continue;
            }
            for (value, sum) in centre.iter_mut().zip(members.sums(index)) {
                let mean = sum / count as f64;
                moved = (mean - *value).mul_add(mean - *value, moved);
                *value = mean;
            }
        }
        if !moved.is_finite() {
            return Err(refused(SamplesError::TooLarge));
        }
        self.iterations += 1;
        self.moved = moved;
        self.converged = moved <= self.threshold && self.empty.is_empty();
        self.searching = !self.converged && self.iterations < max_iter;
        Ok(())
    }

    /// Moves each centre that has no rows to one of the rows farthest from theirs.
    fn relocate(&mut self, farthest: &Farthest) {
        for (&index, row) in self.empty.iter().zip(&farthest.rows) {
            let start = index as usize * self.columns;
            self.centres[start..start + self.columns].copy_from_slice(&row.values);
        }
        self.empty.clear();
    }
}

/// The most rows that are remembered as far away: more centres than that are relocated in later iterations.
const FARTHEST_MAX: usize = 16;

/// The rows farthest from their nearest centres, the farthest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Farthest {
    rows: Vec<FarRow>,
}
brambling_program::payload!(Farthest, |farthest| farthest.rows.capacity()
    * size_of::<FarRow>());

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FarRow {
    /// Half the square of its distance.
    distance: f64,
    values: Vec<f64>,
}

impl Farthest {
    /// Of rows as far the earlier one stays before the later.
    fn insert(&mut self, distance: f64, values: &[f64]) {
        let place = self.rows.partition_point(|row| row.distance >= distance);
        if place < FARTHEST_MAX {
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

impl Combine<Members> for Sum {
    fn combine(&self, left: &mut Members, right: &Members) {
        left.add(simd::active(), right);
    }
}

fn members_of_block(block: SampleBlock<'_>, centres: &Centres, members: &mut Members) {
    members_block(simd::active(), block.x, centres, members);
}

fn farthest_of_block(block: SampleBlock<'_>, centres: &Centres, farthest: &mut Farthest) {
    farthest.rows.clear();
    farthest_block(simd::active(), block.x, centres, |distance, row| {
        farthest.insert(distance, row);
    });
}
