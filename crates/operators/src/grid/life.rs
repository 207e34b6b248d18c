//! Conway's Game of Life.

use super::{Edge, Strip};
use crate::simd::{F64x8, Isa, SimdKernel, dispatch};

/// What a step of a strip led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifeStep {
    /// Cells alive after it.
    pub alive: u64,
    /// Whether any cell changed.
    pub changed: bool,
}

/// Writes the next generation of a strip of cells, 0 dead and 1 alive, to `new`. Of other values the
/// lowest bit counts.
///
/// # Panics
/// If the strip's rows and `new` do not agree in length.
pub fn life_step(isa: Isa, strip: Strip<'_, u8>, new: &mut [u8]) -> LifeStep {
    strip.check(new);
    dispatch(isa, Life { strip, new })
}

struct Life<'a> {
    strip: Strip<'a, u8>,
    new: &'a mut [u8],
}

impl SimdKernel for Life<'_> {
    type Output = LifeStep;

    #[inline(always)]
    fn run<V: F64x8>(self) -> LifeStep {
        let columns = self.strip.columns();
        // Each column's three cells, with a column more on either side.
        let mut columns_of_three = vec![0_u8; columns + 2];
        let mut step = LifeStep {
            alive: 0,
            changed: false,
        };
        for row in 0..self.strip.rows() {
            let [above, here, below] = self.strip.around(row);
            for (three, ((&up, &old), &down)) in columns_of_three[1..]
                .iter_mut()
                .zip(above.iter().zip(here).zip(below))
            {
                *three = (up & 1) + (old & 1) + (down & 1);
            }
            let (before, after) = self.outside(&columns_of_three);
            columns_of_three[0] = before;
            columns_of_three[columns + 1] = after;

            let new = &mut self.new[row * columns..][..columns];
            let left = &columns_of_three[..columns];
            let middle = &columns_of_three[1..=columns];
            let right = &columns_of_three[2..];
            let mut changed = 0;
            for index in 0..columns {
                let old = here[index] & 1;
                // Nine cells, the old one included: it stays alive at 3 and 4, and is born at 3.
                let nine = left[index] + middle[index] + right[index];
                let born = u8::from(nine == 3);
                let stays = u8::from(nine == 4) & old;
                new[index] = born | stays;
                changed |= new[index] ^ old;
            }
            step.changed |= changed != 0;
            for cells in new.chunks(255) {
                let mut alive = 0_u8;
                for &cell in cells {
                    alive += cell;
                }
                step.alive += u64::from(alive);
            }
        }
        step
    }
}

impl Life<'_> {
    /// The sums of three left and right of the grid.
    #[inline(always)]
    fn outside(&self, columns_of_three: &[u8]) -> (u8, u8) {
        let columns = self.strip.columns();
        match self.strip.edge {
            Edge::Held(cell) => (3 * (cell & 1), 3 * (cell & 1)),
            Edge::Wrap => (columns_of_three[columns], columns_of_three[1]),
        }
    }
}
