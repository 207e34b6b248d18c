//! Rows turned into columns, so that a vector holds one column of eight rows.

use crate::simd::F64x8;

/// Columns that a tile on the stack has room for; wider rows take one from the heap.
const COLUMNS_ON_STACK: usize = 64;

/// One column of `8 * PARTS` rows.
pub(super) type Column<const PARTS: usize> = [[f64; 8]; PARTS];

/// Room for the columns of some rows.
pub(super) struct Tile<const PARTS: usize> {
    on_stack: [Column<PARTS>; COLUMNS_ON_STACK],
    on_heap: Vec<Column<PARTS>>,
    columns: usize,
    /// The last rows of a table, where they fill no tile, and zeros.
    rest: Vec<f64>,
}

impl<const PARTS: usize> Tile<PARTS> {
    /// Rows of a tile.
    pub(super) const ROWS: usize = 8 * PARTS;

    #[inline(always)]
    pub(super) fn new(columns: usize) -> Self {
        let on_heap = if columns > COLUMNS_ON_STACK {
            vec![[[0.0; 8]; PARTS]; columns]
        } else {
            Vec::new()
        };
        Tile {
            on_stack: [[[0.0; 8]; PARTS]; COLUMNS_ON_STACK],
            on_heap,
            columns,
            rest: Vec::new(),
        }
    }

    /// Turns up to [`Tile::ROWS`] rows, given one after another. Columns of fewer rows end in zeros.
    #[inline(always)]
    pub(super) fn turn<V: F64x8>(&mut self, rows: &[f64]) -> &[Column<PARTS>] {
        let tile = if self.columns > COLUMNS_ON_STACK {
            &mut self.on_heap[..]
        } else {
            &mut self.on_stack[..self.columns]
        };
        if rows.len() == Self::ROWS * self.columns {
            turn::<V, PARTS>(rows, tile);
        } else {
            self.rest.clear();
            self.rest.extend_from_slice(rows);
            self.rest.resize(Self::ROWS * self.columns, 0.0);
            turn::<V, PARTS>(&self.rest, tile);
        }
        tile
    }
}

#[inline(always)]
fn turn<V: F64x8, const PARTS: usize>(rows: &[f64], tile: &mut [Column<PARTS>]) {
    let columns = tile.len();
    let mut part = 0;
    while part < PARTS {
        let mut eight = [&rows[..0]; 8];
        let mut row = 0;
        while row < 8 {
            eight[row] = &rows[(part * 8 + row) * columns..][..columns];
            row += 1;
        }
        if columns < 4 {
            turn_few(&eight, part, tile);
        } else {
            let mut at = 0;
            while at + 4 <= columns {
                turn_four::<V, PARTS>(&eight, part, at, tile);
                at += 4;
            }
            if at < columns {
                // The last four, some of them once more.
                turn_four::<V, PARTS>(&eight, part, columns - 4, tile);
            }
        }
        part += 1;
    }
}

#[inline(always)]
fn turn_four<V: F64x8, const PARTS: usize>(
    eight: &[&[f64]; 8],
    part: usize,
    at: usize,
    tile: &mut [Column<PARTS>],
) {
    let mut fours = [&[0.0; 4]; 8];
    let mut row = 0;
    while row < 8 {
        fours[row] = eight[row][at..].first_chunk().expect("four columns");
        row += 1;
    }
    let turned = V::turn_four(fours);
    let (into, _) = tile[at..]
        .split_first_chunk_mut::<4>()
        .expect("four columns");
    let mut column = 0;
    while column < 4 {
        turned[column].store(&mut into[column][part]);
        column += 1;
    }
}

#[inline(always)]
fn turn_few<const PARTS: usize>(eight: &[&[f64]; 8], part: usize, tile: &mut [Column<PARTS>]) {
    let mut row = 0;
    while row < 8 {
        for (column, &value) in tile.iter_mut().zip(eight[row]) {
            column[part][row] = value;
        }
        row += 1;
    }
}
