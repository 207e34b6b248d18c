//! Rows turned into columns, so that a vector holds one column of eight rows.

use crate::simd::{Eight, F32x16, F64x8, SingleLine, VectorLine, prefetch_soon};

/// Columns that a tile on the stack has room for; wider rows take one from the heap.
const COLUMNS_ON_STACK: usize = 64;

/// One column of `8 * PARTS` rows.
pub(super) type Column<const PARTS: usize> = [VectorLine; PARTS];

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
            vec![[VectorLine::default(); PARTS]; columns]
        } else {
            Vec::new()
        };
        Tile {
            on_stack: [[VectorLine([0.0; 8]); PARTS]; COLUMNS_ON_STACK],
            on_heap,
            columns,
            rest: Vec::new(),
        }
    }

    /// Turns up to [`Tile::ROWS`] rows, given one after another. Columns of fewer rows end in zeros.
    #[inline(always)]
    pub(super) fn turn<V: F64x8>(&mut self, rows: &[f64]) -> &[Column<PARTS>] {
        self.turned::<V>(rows)
    }

    /// The same, each row less the row `about`.
    #[inline(always)]
    pub(super) fn turn_about<V: F64x8>(&mut self, rows: &[f64], about: &[f64]) -> &[Column<PARTS>] {
        let tile = self.turned::<V>(rows);
        for (column, &value) in tile.iter_mut().zip(about) {
            let mut part = 0;
            while part < PARTS {
                let less = V::load(&column[part].0).sub(V::splat(value));
                less.store(&mut column[part].0);
                part += 1;
            }
        }
        tile
    }

    #[inline(always)]
    fn turned<V: F64x8>(&mut self, rows: &[f64]) -> &mut [Column<PARTS>] {
        let tile = if self.columns > COLUMNS_ON_STACK {
            &mut self.on_heap[..]
        } else {
            &mut self.on_stack[..self.columns]
        };
        let whole = Self::ROWS * self.columns;
        let rows = if rows.len() == whole {
            rows
        } else {
            filled(&mut self.rest, rows, whole)
        };
        if self.columns < 4 {
            turn_few(rows, tile);
        } else {
            turn::<V, PARTS>(rows, tile);
        }
        tile
    }
}

/// `rows`, and zeros after them up to a `whole` tile.
#[cold]
#[inline(never)]
fn filled<'r>(into: &'r mut Vec<f64>, rows: &[f64], whole: usize) -> &'r [f64] {
    into.clear();
    into.extend_from_slice(rows);
    into.resize(whole, 0.0);
    into
}

#[inline(always)]
fn turn<V: F64x8, const PARTS: usize>(rows: &[f64], tile: &mut [Column<PARTS>]) {
    let columns = tile.len();
    let mut part = 0;
    while part < PARTS {
        let eight = Eight::of(&rows[part * 8 * columns..], columns);
        let (fours, rest) = tile.as_chunks_mut::<4>();
        for (at, into) in fours.iter_mut().enumerate() {
            turn_four::<V, PARTS>(eight, part, at * 4, into);
        }
        if !rest.is_empty() {
            // The last four, some of them once more.
            let into = tile.last_chunk_mut().expect("four columns");
            turn_four::<V, PARTS>(eight, part, columns - 4, into);
        }
        part += 1;
    }
}

#[inline(always)]
fn turn_four<V: F64x8, const PARTS: usize>(
    eight: Eight<'_>,
    part: usize,
    at: usize,
    into: &mut [Column<PARTS>; 4],
) {
    let turned = V::turn_four(eight.fours(at));
    let mut column = 0;
    while column < 4 {
        turned[column].store(&mut into[column][part].0);
        column += 1;
    }
}

/// Fewer than four columns. Out of line: in the loop over tiles its addresses would take the registers.
#[inline(never)]
fn turn_few<const PARTS: usize>(rows: &[f64], tile: &mut [Column<PARTS>]) {
    for (row, values) in rows.chunks_exact(tile.len()).enumerate() {
        for (column, &value) in tile.iter_mut().zip(values) {
            column[row / 8].0[row % 8] = value;
        }
    }
}

/// One column of `16 * PARTS` rows, in singles.
pub(super) type SingleColumn<const PARTS: usize> = [SingleLine; PARTS];

/// Room for the columns of some rows, in singles.
pub(super) struct SingleTile<const PARTS: usize> {
    on_stack: [SingleColumn<PARTS>; COLUMNS_ON_STACK],
    on_heap: Vec<SingleColumn<PARTS>>,
    columns: usize,
}

impl<const PARTS: usize> SingleTile<PARTS> {
    /// For rows of at least four columns.
    #[inline(always)]
    pub(super) fn new(columns: usize) -> Self {
        let on_heap = if columns > COLUMNS_ON_STACK {
            vec![[SingleLine::default(); PARTS]; columns]
        } else {
            Vec::new()
        };
        SingleTile {
            on_stack: [[SingleLine([0.0; 16]); PARTS]; COLUMNS_ON_STACK],
            on_heap,
            columns,
        }
    }

    /// Turns and rounds as many rows as there is room for, given one after another, each less the row `about` if `ABOUT`. Meanwhile
    /// it asks for so many lines beyond `start` with each four columns of sixteen rows.
    #[inline(always)]
    pub(super) fn turn<S: F32x16, const ASKED: usize, const ABOUT: bool>(
        &mut self,
        rows: &[f64],
        about: &[f64],
        start: &f64,
    ) -> &[SingleColumn<PARTS>] {
        let columns = self.columns;
        let mut line = 0;
        let tile = if columns > COLUMNS_ON_STACK {
            &mut self.on_heap[..]
        } else {
            &mut self.on_stack[..columns]
        };
        let mut part = 0;
        while part < PARTS {
            let low = Eight::of(&rows[part * 16 * columns..], columns);
            let high = Eight::of(&rows[(part * 16 + 8) * columns..], columns);
            let (fours, rest) = tile.as_chunks_mut::<4>();
            for (at, into) in fours.iter_mut().enumerate() {
                let mut asked = 0;
                while asked < ASKED {
                    prefetch_soon(start, line);
                    (line, asked) = (line + 1, asked + 1);
                }
                let about = four::<ABOUT>(about, at * 4);
                turn_four_singles::<S, PARTS, ABOUT>([low, high], part, at * 4, about, into);
            }
            if !rest.is_empty() {
                // The last four, some of them once more.
                let into = tile.last_chunk_mut().expect("four columns");
                let about = four::<ABOUT>(about, columns - 4);
                turn_four_singles::<S, PARTS, ABOUT>([low, high], part, columns - 4, about, into);
            }
            part += 1;
        }
        tile
    }
}

/// Four values of `about` from `at` on; zeros where they are not used.
#[inline(always)]
fn four<const ABOUT: bool>(about: &[f64], at: usize) -> &[f64; 4] {
    if ABOUT {
        about[at..].first_chunk().expect("as many as columns")
    } else {
        &[0.0; 4]
    }
}

#[inline(always)]
fn turn_four_singles<S: F32x16, const PARTS: usize, const ABOUT: bool>(
    [low, high]: [Eight<'_>; 2],
    part: usize,
    at: usize,
    about: &[f64; 4],
    into: &mut [SingleColumn<PARTS>; 4],
) {
    let turned = S::turn_four::<ABOUT>(low.fours(at), high.fours(at), about);
    let mut column = 0;
    while column < 4 {
        turned[column].store(&mut into[column][part].0);
        column += 1;
    }
}
