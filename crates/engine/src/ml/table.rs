//! Tables of either precision.

use brambling_program::Foreign;

/// A table's values, row after row.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Table {
    /// Doubles.
    Doubles(Foreign<f64>),
    /// Singles. Each is read as the double that equals it, so that a result has the bits that it has for doubles.
    Singles(Foreign<f32>),
}

impl From<Foreign<f64>> for Table {
    fn from(values: Foreign<f64>) -> Table {
        Table::Doubles(values)
    }
}

impl From<Foreign<f32>> for Table {
    fn from(values: Foreign<f32>) -> Table {
        Table::Singles(values)
    }
}

impl From<Vec<f64>> for Table {
    fn from(values: Vec<f64>) -> Table {
        Foreign::handed_over(values).into()
    }
}

impl From<Vec<f32>> for Table {
    fn from(values: Vec<f32>) -> Table {
        Foreign::handed_over(values).into()
    }
}

impl Table {
    /// The values as doubles; singles are copied.
    pub(super) fn doubles(self) -> Foreign<f64> {
        match self {
            Table::Doubles(values) => values,
            Table::Singles(values) => {
                Foreign::handed_over(values.iter().map(|&value| f64::from(value)).collect())
            }
        }
    }
}
