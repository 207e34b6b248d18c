//! Cells on a grid, in strips of whole rows.
//!
//! A strip reads one row above it and one below, its halo. A cell's new value depends on its
//! neighbours alone, so strips of any height give the same field.

mod heat;
mod life;

pub use heat::heat_step;
pub use life::{LifeStep, life_step};

/// What lies left and right of the grid. The halo rows say the same of above and below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Edge<T> {
    /// A constant.
    Held(T),
    /// The opposite side: a torus.
    Wrap,
}

/// A strip and its halo, each row of `columns` cells.
#[derive(Clone, Copy, Debug)]
pub struct Strip<'a, T> {
    /// The row above the first.
    pub above: &'a [T],
    /// Whole rows, one or more.
    pub cells: &'a [T],
    /// The row below the last.
    pub below: &'a [T],
    /// Left and right.
    pub edge: Edge<T>,
}

impl<'a, T: Copy> Strip<'a, T> {
    fn check(&self, new: &[T]) {
        let columns = self.columns();
        assert!(columns > 0 && self.below.len() == columns);
        assert!(self.cells.len().is_multiple_of(columns) && new.len() == self.cells.len());
    }

    #[inline(always)]
    fn columns(&self) -> usize {
        self.above.len()
    }

    #[inline(always)]
    fn rows(&self) -> usize {
        self.cells.len() / self.columns()
    }

    /// The rows above, at and below `row`.
    #[inline(always)]
    fn around(&self, row: usize) -> [&'a [T]; 3] {
        let columns = self.columns();
        let here = &self.cells[row * columns..][..columns];
        let above = if row == 0 {
            self.above
        } else {
            &self.cells[(row - 1) * columns..][..columns]
        };
        let below = if row + 1 == self.rows() {
            self.below
        } else {
            &self.cells[(row + 1) * columns..][..columns]
        };
        [above, here, below]
    }

    /// Left and right of `row`.
    #[inline(always)]
    fn beside(&self, row: &[T]) -> (T, T) {
        match self.edge {
            Edge::Held(value) => (value, value),
            Edge::Wrap => (row[row.len() - 1], row[0]),
        }
    }
}
