//! A whole table, before it is cut into partitions.

use super::{Samples, SamplesError};
use crate::numerics::sum;
use crate::simd::{self, TableValue};
use brambling_program::{BLOCK_ROWS, Dataset, Foreign, Partitioner, Payload, Program, blocks_of};
use std::ops::Range;

/// A whole table, from which partitions are cut without a copy.
#[derive(Clone, Debug, Default)]
pub struct SampleTable<E: TableValue = f64> {
    /// The rows, one after another, `columns` values each.
    pub x: Foreign<E>,
    /// Values in a row.
    pub columns: usize,
    /// Labels or targets, `targets` for each row; none where nothing is taught.
    pub y: Foreign<f64>,
    /// Values of `y` for each row.
    pub targets: usize,
    /// How much each row counts; none where all rows count alike.
    pub weights: Foreign<f64>,
}

impl<E: TableValue + Payload> SampleTable<E> {
    /// Rows with a label each, or with none at all, that count alike.
    pub fn of(x: Foreign<E>, y: Foreign<f64>, columns: usize) -> SampleTable<E> {
        let targets = usize::from(!y.is_empty());
        let weights = Foreign::default();
        SampleTable {
            x,
            columns,
            y,
            targets,
            weights,
        }
    }

    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.x.len().checked_div(self.columns).unwrap_or(0)
    }

    /// The part of partition `index` of `count`.
    ///
    /// # Panics
    /// When [`SampleTable::check_shape`] would refuse it.
    pub fn partition(&self, index: u32, count: u32) -> Samples<E> {
        if let Err(error) = self.check_shape() {
            panic!("{error}");
        }
        let rows = self.rows();
        let blocks = blocks_of(index, count, Samples::blocks_in(rows));
        let row = |block: u64| (block as usize * BLOCK_ROWS).min(rows);
        Samples {
            table: self.slice(row(blocks.start)..row(blocks.end)),
            first_block: blocks.start,
        }
    }

    fn slice(&self, rows: Range<usize>) -> SampleTable<E> {
        let wide = |width: usize| rows.start * width..rows.end * width;
        let weighted = usize::from(!self.weights.is_empty());
        SampleTable {
            x: self.x.slice(wide(self.columns)),
            y: self.y.slice(wide(self.targets)),
            weights: self.weights.slice(wide(weighted)),
            ..*self
        }
    }

    /// What the rows count together: as many as there are where no weights are given.
    pub fn weight(&self) -> f64 {
        if self.weights.is_empty() {
            return self.rows() as f64;
        }
        // Not the active one: a program is built before its job chooses that.
        sum(simd::detect(), &self.weights)
    }

    /// Checks the shape, and gives the rows.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check_shape(&self) -> Result<usize, SamplesError> {
        let (values, columns) = (self.y.len(), self.targets);
        if self.targets == 0 && values > 0 || self.targets > 1 && !values.is_multiple_of(columns) {
            return Err(SamplesError::BrokenRow { values, columns });
        }
        let labels = values / columns.max(1);
        SamplesError::check(self.x.len(), labels, self.columns)?;
        let (rows, weights) = (self.rows(), self.weights.len());
        if weights != 0 && weights != rows {
            return Err(SamplesError::Weights { rows, weights });
        }
        Ok(rows)
    }

    /// Checks the shape and the weights, and that there are rows; gives their number.
    ///
    /// # Errors
    /// What cannot be learnt from.
    pub fn check(&self) -> Result<usize, SamplesError> {
        let rows = self.check_shape()?;
        if rows == 0 {
            return Err(SamplesError::NoRows);
        }
        let is_weight = |&weight: &f64| weight >= 0.0 && weight.is_finite();
        if let Some(row) = self.weights.iter().position(|weight| !is_weight(weight)) {
            let value = self.weights[row];
            let row = row as u64;
            return Err(SamplesError::Weight { row, value });
        }
        match self.weight() {
            0.0 => Err(SamplesError::NoWeight),
            all if all.is_finite() => Ok(rows),
            _ => Err(SamplesError::TooHeavy),
        }
    }

    /// Adds what loads it, cut into partitions.
    pub fn load(self, p: &mut Program, partitions: u32) -> Dataset<Samples<E>> {
        let bytes = size_of_val(&self.x[..]) + size_of_val(&self.y[..]);
        let bytes = bytes + size_of_val(&self.weights[..]);
        let cut = move |index, count| self.partition(index, count);
        let samples = p.load("samples", partitions, Partitioner::Blocks, cut);
        p.expect_bytes(&samples, bytes as u64);
        samples
    }
}
