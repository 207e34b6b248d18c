//! Rows of a matrix as vectors.
#![allow(unsafe_code)] // Masked loads at computed addresses, and prefetches.

use std::marker::PhantomData;

use super::{F64x8, VectorLine};

/// How far ahead of the rows in use a kernel asks for memory. Found by measurement, see
/// `examples/gradient_rate.rs`; the CPU's own prefetchers stop at the end of each 4 KiB page.
const PREFETCH_BYTES: usize = 4096;
/// The same from the end of a tile of sixteen rows: 1 to 2 KiB are alike, 4 KiB is slower.
const PREFETCH_SOON_BYTES: usize = 1536;
const LINE_BYTES: usize = 64;

/// What the values of a table may be: doubles, or singles, each of which is read as the double that equals it.
/// Nothing else implements it.
pub trait TableValue:
    LoadLanes + Copy + std::fmt::Debug + Default + Into<f64> + Send + Sync + 'static
{
}
impl TableValue for f64 {}
impl TableValue for f32 {}

mod load {
    use super::F64x8;

    pub trait LoadLanes: Sized {
        /// Lanes `mask` of the eight values at `from`, the others zero.
        ///
        /// # Safety
        /// The lanes in `mask` must be readable; the others are not touched.
        unsafe fn load<V: F64x8>(from: *const Self, mask: V::Mask) -> V;
        /// All of eight values.
        fn load_eight<V: F64x8>(lanes: &[Self; 8]) -> V;
    }

    impl LoadLanes for f64 {
        #[inline(always)]
        unsafe fn load<V: F64x8>(from: *const f64, mask: V::Mask) -> V {
            // SAFETY: the caller's promise is the same.
            unsafe { V::load_masked(from, mask) }
        }
        #[inline(always)]
        fn load_eight<V: F64x8>(lanes: &[f64; 8]) -> V {
            V::load(lanes)
        }
    }

    impl LoadLanes for f32 {
        #[inline(always)]
        unsafe fn load<V: F64x8>(from: *const f32, mask: V::Mask) -> V {
            // SAFETY: the caller's promise is the same.
            unsafe { V::widen_masked(from, mask) }
        }
        #[inline(always)]
        fn load_eight<V: F64x8>(lanes: &[f32; 8]) -> V {
            V::widen(lanes)
        }
    }
}
use load::LoadLanes;

/// Eight values, or the first of them. Not with a mask where none is needed: masked loads are slower, and the compiler keeps them.
///
/// # Safety
/// The lanes of the mask must be readable; all, if there is none.
#[inline(always)]
unsafe fn load_vector<V: F64x8, E: LoadLanes>(at: *const E, mask: Option<V::Mask>) -> V {
    match mask {
        // SAFETY: the caller's promise is the same.
        Some(mask) => unsafe { E::load(at, mask) },
        // SAFETY: the caller says that eight are readable.
        None => E::load_eight(unsafe { &*at.cast() }),
    }
}

/// A row-major matrix read as rows of vectors. The last vector of a row holds its remaining columns
/// and zeros.
#[derive(Clone, Copy)]
pub(crate) struct RowMatrix<'a, V: F64x8, E = f64> {
    base: *const E,
    rows: usize,
    columns: usize,
    tail: V::Mask,
    values: PhantomData<&'a [E]>,
}

impl<'a, V: F64x8, E: TableValue> RowMatrix<'a, V, E> {
    #[inline(always)]
    pub(crate) fn new(values: &'a [E], columns: usize) -> Self {
        assert!(columns > 0 && values.len().is_multiple_of(columns));
        let tail = V::first(columns - (columns.div_ceil(8) - 1) * 8);
        let rows = values.len() / columns;
        RowMatrix {
            base: values.as_ptr(),
            rows,
            columns,
            tail,
            values: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// How many vectors a row takes.
    #[inline(always)]
    pub(crate) fn vectors(&self) -> usize {
        self.columns.div_ceil(8)
    }

    #[inline(always)]
    pub(crate) fn load(&self, row: usize, vector: usize) -> V {
        assert!(row < self.rows && vector < self.vectors());
        // SAFETY: the row exists, and has so many vectors.
        let at = unsafe { self.base.add(row * self.columns + vector * 8) };
        let is_last = vector + 1 == self.vectors();
        // SAFETY: all vectors but the last are whole; the tail ends with the row.
        unsafe { load_vector(at, is_last.then_some(self.tail)) }
    }

    /// Turns up to eight rows from `first` on into columns, whole vectors of them; what lies beyond the last
    /// row or column is zero.
    #[inline(always)]
    pub(crate) fn turn(&self, first: usize, columns: &mut [[f64; 8]]) {
        for vector in 0..self.vectors() {
            let mut low = [[0.0; 4]; 8];
            let mut high = [[0.0; 4]; 8];
            let mut at = 0;
            while at < 8 {
                if first + at < self.rows {
                    let mut row = [0.0; 8];
                    self.load(first + at, vector).store(&mut row);
                    low[at] = [row[0], row[1], row[2], row[3]];
                    high[at] = [row[4], row[5], row[6], row[7]];
                }
                at += 1;
            }
            let (low, high) = (V::turn_four(fours(&low)), V::turn_four(fours(&high)));
            at = 0;
            while at < 4 {
                low[at].store(&mut columns[vector * 8 + at]);
                high[at].store(&mut columns[vector * 8 + 4 + at]);
                at += 1;
            }
        }
    }

    /// How many rows ahead [`Octet::prefetch`] asks for.
    #[inline(always)]
    pub(crate) fn prefetched_rows(&self) -> usize {
        PREFETCH_BYTES / (self.columns * size_of::<E>())
    }

    /// Asks for the first rows from row `first` on, which [`Octet::prefetch`] does not when a loop begins there.
    #[inline(always)]
    pub(crate) fn prefetch_from(&self, first: usize) {
        let start = self.base.wrapping_add(first * self.columns);
        let bytes = (self.rows - first) * self.columns * size_of::<E>();
        let mut byte = 0;
        while byte < bytes.min(PREFETCH_BYTES) {
            prefetch(start.wrapping_byte_add(byte));
            byte += LINE_BYTES;
        }
    }

    /// Eight rows from `first`, for rows of exactly `VECTORS` vectors.
    #[inline(always)]
    pub(crate) fn octet<const VECTORS: usize>(&self, first: usize) -> Octet<'a, V, VECTORS, E> {
        assert!(self.vectors() == VECTORS && first < self.rows && self.rows - first >= 8);
        // SAFETY: `first` is a row.
        let base = unsafe { self.base.add(first * self.columns) };
        Octet {
            base,
            columns: self.columns,
            tail: self.tail,
            values: PhantomData,
        }
    }
}

#[inline(always)]
fn fours(rows: &[[f64; 4]; 8]) -> [&[f64; 4]; 8] {
    let [a, b, c, d, e, f, g, h] = rows;
    [a, b, c, d, e, f, g, h]
}

/// Eight rows of `VECTORS` vectors each.
#[derive(Clone, Copy)]
pub(crate) struct Octet<'a, V: F64x8, const VECTORS: usize, E = f64> {
    base: *const E,
    columns: usize,
    tail: V::Mask,
    values: PhantomData<&'a [E]>,
}

impl<V: F64x8, const VECTORS: usize, E: TableValue> Octet<'_, V, VECTORS, E> {
    /// Both indices are constants once loops are unrolled, so the check costs nothing.
    #[inline(always)]
    pub(crate) fn load(&self, row: usize, vector: usize) -> V {
        assert!(row < 8 && vector < VECTORS);
        // SAFETY: the row exists, and has so many vectors.
        let at = unsafe { self.base.add(row * self.columns + vector * 8) };
        // SAFETY: all vectors but the last are whole; the tail ends with the row.
        unsafe { load_vector(at, (vector + 1 == VECTORS).then_some(self.tail)) }
    }

    /// The same rows, such that the compiler does not know it and reads them again: a second read of
    /// the nearest cache costs less than keeping them in registers that the arithmetic between needs.
    #[inline(always)]
    pub(crate) fn again(&self) -> Self {
        Octet {
            base: std::hint::black_box(self.base),
            ..*self
        }
    }

    /// Asks for the line some rows ahead of `row`'s vector `vector`.
    #[inline(always)]
    pub(crate) fn prefetch(&self, row: usize) {
        let ahead = self
            .base
            .wrapping_add(row * self.columns)
            .wrapping_byte_add(PREFETCH_BYTES);
        for vector in 0..VECTORS {
            prefetch(ahead.wrapping_byte_add(vector * LINE_BYTES));
        }
    }
}

/// Rows one after another, each of `VECTORS` vectors; the last vector of a row ends in zeros. To be walked
/// through where unrolling would need more addresses than there are registers.
pub(crate) struct Walk<'a, V: F64x8, const VECTORS: usize> {
    next: *const f64,
    left: usize,
    columns: usize,
    tail: V::Mask,
    values: PhantomData<&'a [f64]>,
}

/// A row of a [`Walk`].
pub(crate) struct Row<'a, V: F64x8, const VECTORS: usize> {
    base: *const f64,
    tail: V::Mask,
    tail_lanes: usize,
    values: PhantomData<&'a [f64]>,
}

impl<'a, V: F64x8, const VECTORS: usize> Walk<'a, V, VECTORS> {
    /// Through `rows` rows of `columns` values.
    #[inline(always)]
    pub(crate) fn new(values: &'a [f64], columns: usize, rows: usize) -> Self {
        assert!(values.len() == rows * columns && columns.div_ceil(8) == VECTORS);
        Walk {
            next: values.as_ptr(),
            left: rows,
            columns,
            tail: V::first(columns - (VECTORS - 1) * 8),
            values: PhantomData,
        }
    }
}

impl<'a, V: F64x8, const VECTORS: usize> Iterator for Walk<'a, V, VECTORS> {
    type Item = Row<'a, V, VECTORS>;

    #[inline(always)]
    fn next(&mut self) -> Option<Row<'a, V, VECTORS>> {
        self.left = self.left.checked_sub(1)?;
        let row = Row {
            base: self.next,
            tail: self.tail,
            tail_lanes: self.columns - (VECTORS - 1) * 8,
            values: PhantomData,
        };
        self.next = self.next.wrapping_add(self.columns);
        Some(row)
    }
}

impl<V: F64x8, const VECTORS: usize> Row<'_, V, VECTORS> {
    /// Adds the row to sums.
    #[inline(always)]
    pub(crate) fn add_to(&self, sums: &mut [VectorLine; VECTORS]) {
        let mut vector = 0;
        while vector + 1 < VECTORS {
            // SAFETY: the row is one of the walk's, and all vectors but the last are whole.
            let more = unsafe { load_vector::<V, f64>(self.base.add(vector * 8), None) };
            V::load(&sums[vector].0)
                .add(more)
                .store(&mut sums[vector].0);
            vector += 1;
        }
        // SAFETY: the tail ends with the row.
        unsafe {
            let at = self.base.add(vector * 8);
            V::add_first(&mut sums[vector].0, at, self.tail, self.tail_lanes);
        }
    }

    /// Adds the row's differences from another one, which ends in zeros, to sums.
    #[inline(always)]
    pub(crate) fn add_less(&self, other: &[VectorLine; VECTORS], sums: &mut [VectorLine; VECTORS]) {
        let mut vector = 0;
        while vector < VECTORS {
            let mask = (vector + 1 == VECTORS).then_some(self.tail);
            // SAFETY: the row is one of the walk's; all vectors but the last are whole, and the tail ends with the row.
            let row = unsafe { load_vector::<V, f64>(self.base.add(vector * 8), mask) };
            let more = row.sub(V::load(&other[vector].0));
            V::load(&sums[vector].0)
                .add(more)
                .store(&mut sums[vector].0);
            vector += 1;
        }
    }
}

/// Eight rows of any length, to be read column by column.
#[derive(Clone, Copy)]
pub(crate) struct Eight<'a> {
    base: *const f64,
    columns: usize,
    values: PhantomData<&'a [f64]>,
}

impl<'a> Eight<'a> {
    /// The first eight rows of `columns` values.
    #[inline(always)]
    pub(crate) fn of(values: &'a [f64], columns: usize) -> Self {
        assert!(values.len() >= 8 * columns);
        Eight {
            base: values.as_ptr(),
            columns,
            values: PhantomData,
        }
    }

    /// Four values of each row, from column `at` on.
    #[inline(always)]
    pub(crate) fn fours(&self, at: usize) -> [&'a [f64; 4]; 8] {
        assert!(at + 4 <= self.columns);
        let mut fours = [&[0.0; 4]; 8];
        let mut row = 0;
        while row < 8 {
            // SAFETY: the row is one of the eight, and four of its values are left at `at`.
            fours[row] = unsafe { &*self.base.add(row * self.columns + at).cast() };
            row += 1;
        }
        fours
    }
}

/// Asks for a line some way ahead of `at`: the `line`-th from there.
#[inline(always)]
pub(crate) fn prefetch_line(at: &f64, line: usize) {
    let ahead = std::ptr::from_ref(at).wrapping_byte_add(PREFETCH_BYTES);
    prefetch(ahead.wrapping_byte_add(line * LINE_BYTES));
}

/// The same, not as far ahead: where `at` is the end of a tile that is scored against a single group of centres.
#[inline(always)]
pub(crate) fn prefetch_soon(at: &f64, line: usize) {
    let ahead = std::ptr::from_ref(at).wrapping_byte_add(PREFETCH_SOON_BYTES);
    prefetch(ahead.wrapping_byte_add(line * LINE_BYTES));
}

/// Asks for the line at `address`.
#[inline(always)]
pub(crate) fn prefetch<E>(address: *const E) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 CPU has it, and a prefetch of any address is without effect on the
        // program, unmapped ones included.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
