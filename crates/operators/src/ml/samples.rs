//! Rows with labels, borrowed from whoever holds them.

use crate::simd::Value;
use brambling_program::{
    BLOCK_ROWS, Blocked, Chunk, ChunkError, Cursor, DecodeError, Foreign, Part, Payload,
    SpillError, blocks_of,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The rows of one partition: whole blocks of [`BLOCK_ROWS`] rows (the table's last block may be shorter),
/// with a label each, or with none at all.
#[derive(Clone, Debug, Default)]
pub struct Samples<E: Value = f64> {
    x: Foreign<E>,
    y: Foreign<f64>,
    columns: usize,
    first_block: u64,
}

/// Rows of one block.
#[derive(Clone, Copy, Debug)]
pub struct SampleBlock<'a, E = f64> {
    /// The rows, one after another, `columns` values each.
    pub x: &'a [E],
    /// A label for each row; empty when the table has none.
    pub y: &'a [f64],
    /// Values in a row.
    pub columns: usize,
    /// Index of the first row in the whole table.
    pub first_row: u64,
}

impl Samples {
    /// How many blocks a table of so many rows has.
    pub fn blocks_in(rows: usize) -> u64 {
        rows.div_ceil(BLOCK_ROWS) as u64
    }
}

impl<E: Value + Payload> Samples<E> {
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
        if let Err(error) = SamplesError::check(x.len(), y.len(), columns) {
            panic!("{error}");
        }
        let rows = x.len() / columns;
        let blocks = blocks_of(index, count, Samples::blocks_in(rows));
        let row = |block: u64| (block as usize * BLOCK_ROWS).min(rows);
        let held = row(blocks.start)..row(blocks.end);
        let labels = if y.is_empty() { 0..0 } else { held.clone() };
        Samples {
            x: x.slice(held.start * columns..held.end * columns),
            y: y.slice(labels),
            columns,
            first_block: blocks.start,
        }
    }

    /// How many rows are held.
    pub fn rows(&self) -> usize {
        self.x.len().checked_div(self.columns).unwrap_or(0)
    }

    /// All rows held, as one block that may be longer than others.
    pub fn whole(&self) -> SampleBlock<'_, E> {
        SampleBlock {
            x: &self.x,
            y: &self.y,
            columns: self.columns,
            first_row: self.first_block * BLOCK_ROWS as u64,
        }
    }
}

impl<E: Value + Payload> Blocked for Samples<E> {
    type Block<'a> = SampleBlock<'a, E>;

    fn first_block(&self) -> u64 {
        self.first_block
    }

    fn block_count(&self) -> usize {
        self.rows().div_ceil(BLOCK_ROWS)
    }

    fn block(&self, place: usize) -> Option<SampleBlock<'_, E>> {
        let start = place * BLOCK_ROWS;
        let end = (start + BLOCK_ROWS).min(self.rows());
        Some(SampleBlock {
            x: &self.x[start * self.columns..end * self.columns],
            y: if self.y.is_empty() {
                &[]
            } else {
                &self.y[start..end]
            },
            columns: self.columns,
            first_row: self.first_block * BLOCK_ROWS as u64 + start as u64,
        })
    }
}

impl<E: Value + Payload> Payload for Samples<E> {
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
        self.x.heap_bytes() + self.y.heap_bytes()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.columns.encode(out);
        self.first_block.encode(out);
        self.x.encode(out);
        self.y.encode(out);
    }

    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Samples::checked(Payload::decode(input)?)
    }

    fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        let parts: [&dyn Part; 4] = [&self.columns, &self.first_block, &self.x, &self.y];
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

impl<E: Value + Payload> Samples<E> {
    /// What came of one, if it can be one.
    fn checked(
        (columns, first_block, x, y): (usize, u64, Foreign<E>, Foreign<f64>),
    ) -> Result<Self, DecodeError> {
        let samples = Samples {
            columns,
            first_block,
            x,
            y,
        };
        if samples.columns == 0 && samples.x.is_empty() && samples.y.is_empty() {
            return Ok(samples);
        }
        match SamplesError::check(samples.x.len(), samples.y.len(), samples.columns) {
            Ok(()) => Ok(samples),
            Err(error) => Err(DecodeError::of::<Samples<E>>(error.to_string())),
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

impl<E: Value> SampleBlock<'_, E> {
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
