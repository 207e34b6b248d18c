//! Rows with labels, borrowed from whoever holds them.

use crate::simd::TableValue;
use brambling_program::{
    BLOCK_ROWS, Blocked, Chunk, ChunkError, Cursor, DecodeError, Foreign, Payload, PayloadPart,
    SpillError, Work,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Range;

pub use table::SampleTable;

mod table;

/// The rows of one partition: whole blocks of [`BLOCK_ROWS`] rows (the table's last block may be shorter),
/// with labels and weights, or with none at all.
#[derive(Clone, Debug, Default)]
pub struct Samples<E: TableValue = f64> {
    table: SampleTable<E>,
    first_block: u64,
}

/// Rows of one block.
#[derive(Clone, Copy, Debug)]
pub struct SampleBlock<'a, E = f64> {
    /// The rows, one after another, `columns` values each.
    pub x: &'a [E],
    /// A label for each row, or some; empty when the table has none.
    pub y: &'a [f64],
    /// A weight for each row; empty when all count alike.
    pub weights: &'a [f64],
    /// Values in a row.
    pub columns: usize,
    /// Index of the first row in the whole table.
    pub first_row: u64,
}

impl<E> SampleBlock<'_, E> {
    /// What a pass over it reads, and so many operations for each of its values and each of its rows.
    pub(super) fn work(&self, flops_per_value: u64, flops_per_row: u64) -> Work {
        let bytes = size_of_val(self.x) + size_of_val(self.y) + size_of_val(self.weights);
        let rows = self.x.len() / self.columns.max(1);
        Work::streamed(bytes as u64)
            .and_flops(flops_per_value * self.x.len() as u64 + flops_per_row * rows as u64)
    }
}

impl Samples {
    /// How many blocks a table of so many rows has.
    pub fn blocks_in(rows: usize) -> u64 {
        rows.div_ceil(BLOCK_ROWS) as u64
    }
}

impl<E: TableValue + Payload> Samples<E> {
    /// The part of a table that belongs to partition `index` of `count`, without a copy.
    ///
    /// # Panics
    /// When [`SamplesError::check`] would refuse the table's shape.
    pub fn partition(
        x: &Foreign<E>,
        y: &Foreign<f64>,
        columns: usize,
        index: u32,
        count: u32,
    ) -> Samples<E> {
        SampleTable::of(x.clone(), y.clone(), columns).partition(index, count)
    }

    /// How many rows are held.
    pub fn rows(&self) -> usize {
        self.table.rows()
    }

    /// All rows held, as one block that may be longer than others.
    pub fn whole(&self) -> SampleBlock<'_, E> {
        self.block_of(0..self.rows())
    }

    /// How much each row held counts; none where all count alike.
    pub fn weights(&self) -> &[f64] {
        &self.table.weights
    }

    fn block_of(&self, rows: Range<usize>) -> SampleBlock<'_, E> {
        let SampleTable {
            x,
            columns,
            y,
            targets,
            weights,
        } = &self.table;
        let wide = |width: usize| rows.start * width..rows.end * width;
        SampleBlock {
            x: &x[wide(*columns)],
            y: &y[wide(if y.is_empty() { 0 } else { *targets })],
            weights: &weights[wide(usize::from(!weights.is_empty()))],
            columns: *columns,
            first_row: self.first_block * BLOCK_ROWS as u64 + rows.start as u64,
        }
    }
}

impl<E: TableValue + Payload> Blocked for Samples<E> {
    type Block<'a> = SampleBlock<'a, E>;

    fn first_block(&self) -> u64 {
        self.first_block
    }

    fn block_count(&self) -> usize {
        self.rows().div_ceil(BLOCK_ROWS)
    }

    fn block(&self, place: usize) -> Option<SampleBlock<'_, E>> {
        let start = place * BLOCK_ROWS;
        Some(self.block_of(start..(start + BLOCK_ROWS).min(self.rows())))
    }
}

impl<E: TableValue + Payload> Payload for Samples<E> {
    /// As `Foreign` has it.
    const INTERPRETED: bool = true;

    fn type_name() -> Cow<'static, str> {
        if size_of::<E>() == size_of::<f64>() {
            Cow::Borrowed("Samples")
        } else {
            Cow::Borrowed("Samples of singles")
        }
    }

    /// Of borrowed memory nothing: that is its owner's to count. Of what was handed over, or came from another worker, its part.
    fn heap_bytes(&self) -> usize {
        let SampleTable { x, y, weights, .. } = &self.table;
        x.heap_bytes() + y.heap_bytes() + weights.heap_bytes()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let table = &self.table;
        (table.columns, table.targets, self.first_block).encode(out);
        table.x.encode(out);
        table.y.encode(out);
        table.weights.encode(out);
    }

    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Samples::checked(Payload::decode(input)?)
    }

    fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        let SampleTable {
            x,
            columns,
            y,
            targets,
            weights,
        } = &self.table;
        let parts: [&dyn PayloadPart; 6] = [columns, targets, &self.first_block, x, y, weights];
        cursor.encode_parts(&parts, chunk)
    }

    fn decode_some(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        let Some(parts) = cursor.build(input)? else {
            return Ok(false);
        };
        *self = Samples::checked(parts)?;
        Ok(true)
    }
}

/// What samples are encoded as: columns, targets and the first block; then rows, labels and weights.
type Parts<E> = (
    (usize, usize, u64),
    (Foreign<E>, Foreign<f64>, Foreign<f64>),
);

impl<E: TableValue + Payload> Samples<E> {
    /// What came of one, if it can be one.
    fn checked(
        ((columns, targets, first_block), (x, y, weights)): Parts<E>,
    ) -> Result<Self, DecodeError> {
        let table = SampleTable {
            x,
            columns,
            y,
            targets,
            weights,
        };
        let is_empty = table.x.is_empty() && table.y.is_empty() && table.weights.is_empty();
        match table.check_shape() {
            Err(error) if columns > 0 || !is_empty => {
                Err(DecodeError::of::<Samples<E>>(error.to_string()))
            }
            _ => Ok(Samples { table, first_block }),
        }
    }
}

/// Why nothing can be learnt from samples.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SamplesError {
    /// A table of no columns.
    #[error("X has no columns; give at least one")]
    NoColumns,
    /// A table of no rows.
    #[error("X has no rows; there is nothing to learn from")]
    NoRows,
    /// Values that do not make whole rows.
    #[error(
        "X has {}, which do not make whole rows of {}",
        count(.values, "value"),
        count(.columns, "column")
    )]
    BrokenRow {
        /// How many values there are.
        values: usize,
        /// Values in a row.
        columns: usize,
    },
    /// More or fewer labels than rows.
    #[error(
        "X has {} and y has {}; give one label for each row",
        count(.rows, "row"),
        count(.labels, "label")
    )]
    Labels {
        /// How many rows there are.
        rows: usize,
        /// How many labels there are.
        labels: usize,
    },
    /// A value that is no number.
    #[error(
        "X has {value} at row {row}, column {column} (counted from 0); replace such values or drop their rows first"
    )]
    NotFinite {
        /// The first such row.
        row: u64,
        /// The first such column of the row.
        column: usize,
        /// What stands there.
        value: f64,
    },
    /// A label that is neither 0 nor 1.
    #[error("y has {value} at row {row} (counted from 0); labels must be 0 or 1")]
    Label {
        /// The first such row.
        row: u64,
        /// What stands there.
        value: f64,
    },
    /// A label that is no index of a class.
    #[error(
        "y has {value} at row {row} (counted from 0); labels must be whole numbers from 0 to {}",
        .classes - 1
    )]
    Class {
        /// The first such row.
        row: u64,
        /// What stands there.
        value: f64,
        /// How many classes there are.
        classes: usize,
    },
    /// A target that is no number.
    #[error(
        "y has {value} at row {row} (counted from 0); replace such values or drop their rows first"
    )]
    Target {
        /// The first such row.
        row: u64,
        /// What stands there.
        value: f64,
    },
    /// More or fewer weights than rows.
    #[error(
        "X has {} and sample_weight has {}; give one weight for each row",
        count(.rows, "row"),
        count(.weights, "weight")
    )]
    Weights {
        /// How many rows there are.
        rows: usize,
        /// How many weights there are.
        weights: usize,
    },
    /// A weight that is negative, or no number.
    #[error(
        "sample_weight has {value} at row {row} (counted from 0); weights must be 0 or positive numbers"
    )]
    Weight {
        /// The first such row.
        row: u64,
        /// What stands there.
        value: f64,
    },
    /// No row that counts.
    #[error("every weight in sample_weight is zero; give a positive one to at least one row")]
    NoWeight,
    /// Weights whose sum overflows.
    #[error("the sum of sample_weight overflows; divide the weights by their largest")]
    TooHeavy,
    /// Values whose squares overflow.
    #[error(
        "the squares of X's values overflow; scale its columns first, for example to deviation 1"
    )]
    TooLarge,
    /// Values that differ by so little that the squares of the differences are no normal numbers.
    #[error(
        "the squares of the differences between X's rows underflow; scale its columns first, for example to deviation 1"
    )]
    TooSmall,
}

/// A number of things: 1 row, 2 rows.
fn count(number: &usize, what: &str) -> String {
    format!("{number} {what}{}", if *number == 1 { "" } else { "s" })
}

impl<E: TableValue> SampleBlock<'_, E> {
    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.x.len() / self.columns
    }

    /// The block's first value that is no number.
    pub(super) fn not_finite(&self) -> Option<SamplesError> {
        let at = self.x.iter().position(|&value| !value.into().is_finite())?;
        Some(SamplesError::NotFinite {
            row: self.first_row + (at / self.columns) as u64,
            column: at % self.columns,
            value: self.x[at].into(),
        })
    }

    /// The block's first value that is no number, or label that is no index of a class. Values are looked at only
    /// when `finite` does not say that they are numbers all.
    pub(super) fn refusal(&self, classes: usize, finite: bool) -> Option<SamplesError> {
        let is_class = |y: f64| y >= 0.0 && y < classes as f64 && y.trunc() == y;
        let label = self.y.iter().position(|&y| !is_class(y));
        let value = if finite {
            None
        } else {
            self.x.iter().position(|&value| !value.into().is_finite())
        };
        match (value, label) {
            (Some(at), label) if label.is_none_or(|row| at / self.columns <= row) => {
                Some(SamplesError::NotFinite {
                    row: self.first_row + (at / self.columns) as u64,
                    column: at % self.columns,
                    value: self.x[at].into(),
                })
            }
            (_, Some(row)) => {
                let (value, row) = (self.y[row], self.first_row + row as u64);
                Some(if classes == 2 {
                    SamplesError::Label { row, value }
                } else {
                    SamplesError::Class {
                        row,
                        value,
                        classes,
                    }
                })
            }
            _ => None,
        }
    }
}

impl SamplesError {
    /// Checks the shape of a table of `values` values and `labels` labels (or none).
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(values: usize, labels: usize, columns: usize) -> Result<(), SamplesError> {
        if columns == 0 {
            return Err(SamplesError::NoColumns);
        }
        if !values.is_multiple_of(columns) {
            return Err(SamplesError::BrokenRow { values, columns });
        }
        let rows = values / columns;
        if labels != 0 && labels != rows {
            return Err(SamplesError::Labels { rows, labels });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: usize) -> (Foreign<f64>, Foreign<f64>) {
        let x = (0..rows * 3).map(|value| value as f64).collect();
        let y = (0..rows).map(|row| (row % 2) as f64).collect();
        (Foreign::owned(x), Foreign::owned(y))
    }

    #[test]
    fn partitions_tile_the_table_in_whole_blocks() {
        for (rows, count) in [(0, 1), (1, 3), (4_096, 2), (20_000, 7), (8_193, 64)] {
            let (x, y) = table(rows);
            let mut next = 0;
            for index in 0..count {
                let part = Samples::partition(&x, &y, 3, index, count);
                for place in 0..part.block_count() {
                    let block = part.block(place).unwrap();
                    assert_eq!(block.first_row, next as u64);
                    assert_eq!(block.first_row % BLOCK_ROWS as u64, 0);
                    assert_eq!(block.x[0], (next * 3) as f64);
                    assert_eq!(block.x.len(), block.y.len() * 3);
                    next += block.y.len();
                }
            }
            assert_eq!(next, rows);
        }
    }

    #[test]
    fn nothing_is_copied() {
        let (x, y) = table(9_000);
        let part = Samples::partition(&x, &y, 3, 1, 2);
        assert_eq!(part.whole().x.as_ptr(), x[4_096 * 3..].as_ptr());
        assert_eq!(part.whole().y.as_ptr(), y[4_096..].as_ptr());
    }

    #[test]
    fn a_table_may_have_no_labels() {
        let (x, _) = table(5_000);
        let part = Samples::partition(&x, &Foreign::default(), 3, 0, 1);
        assert_eq!(part.block_count(), 2);
        assert!(part.block(1).unwrap().y.is_empty());
    }

    #[test]
    fn samples_survive_encoding() {
        let (x, y) = table(5_000);
        let part = Samples::partition(&x, &y, 3, 1, 2);
        let mut bytes = Vec::new();
        part.encode(&mut bytes);
        let back = <Samples>::decode(&mut &bytes[..]).unwrap();
        assert_eq!(back.first_block(), 1);
        assert_eq!(back.whole().x, part.whole().x);
        assert_eq!(back.whole().y, part.whole().y);
        assert!(<Samples>::decode(&mut &bytes[..bytes.len() - 1]).is_err());
        // The number of columns comes first: rows of 2 do not fit 904 rows of 3 and their labels.
        bytes[0] = 2;
        assert!(<Samples>::decode(&mut &bytes[..]).is_err());
        bytes[0] = 0;
        assert!(<Samples>::decode(&mut &bytes[..]).is_err());
    }
}
