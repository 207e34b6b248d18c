//! Rows of a matrix as vectors.
#![allow(unsafe_code)] // Masked loads at computed addresses, and prefetches.

use std::marker::PhantomData;

use super::F64x8;

/// How far ahead of the rows in use a kernel asks for memory. Found by measurement, see
/// `examples/gradient_rate.rs`; the CPU's own prefetchers stop at the end of each 4 KiB page.
const PREFETCH_BYTES: usize = 4096;
const LINE_BYTES: usize = 64;

/// A row-major matrix read as rows of vectors. The last vector of a row holds its remaining columns
/// and zeros.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a, V: F64x8> {
    base: *const f64,
    rows: usize,
    columns: usize,
    tail: V::Mask,
    values: PhantomData<&'a [f64]>,
}

impl<'a, V: F64x8> Rows<'a, V> {
    #[inline(always)]
    pub(crate) fn new(values: &'a [f64], columns: usize) -> Self {
        assert!(columns > 0 && values.len().is_multiple_of(columns));
        let tail = V::first(columns - (columns.div_ceil(8) - 1) * 8);
        let rows = values.len() / columns;
        Rows {
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
        let mask = if vector + 1 == self.vectors() {
            self.tail
        } else {
            V::first(8)
        };
        // SAFETY: the row exists, and the mask ends with it.
        unsafe { V::load_masked(self.base.add(row * self.columns + vector * 8), mask) }
    }

    /// Eight rows from `first`, for rows of exactly `VECTORS` vectors.
    #[inline(always)]
    pub(crate) fn octet<const VECTORS: usize>(&self, first: usize) -> Octet<'a, V, VECTORS> {
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

/// Eight rows of `VECTORS` vectors each.
#[derive(Clone, Copy)]
pub(crate) struct Octet<'a, V: F64x8, const VECTORS: usize> {
    base: *const f64,
    columns: usize,
    tail: V::Mask,
    values: PhantomData<&'a [f64]>,
}

impl<V: F64x8, const VECTORS: usize> Octet<'_, V, VECTORS> {
    /// Both indices are constants once loops are unrolled, so the check costs nothing.
    #[inline(always)]
    pub(crate) fn load(&self, row: usize, vector: usize) -> V {
        assert!(row < 8 && vector < VECTORS);
        let mask = if vector + 1 == VECTORS {
            self.tail
        } else {
            V::first(8)
        };
        // SAFETY: the row exists, and the mask ends with it.
        unsafe { V::load_masked(self.base.add(row * self.columns + vector * 8), mask) }
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

/// Asks for a line some way ahead of `at`: the `line`-th from there.
#[inline(always)]
pub(crate) fn prefetch_line(at: &f64, line: usize) {
    let ahead = std::ptr::from_ref(at).wrapping_byte_add(PREFETCH_BYTES);
    prefetch(ahead.wrapping_byte_add(line * LINE_BYTES));
}

/// Asks for the line some way ahead of `at`.
#[inline(always)]
pub(crate) fn prefetch_ahead(at: &f64) {
    prefetch(std::ptr::from_ref(at).wrapping_byte_add(PREFETCH_BYTES));
}

#[inline(always)]
fn prefetch(address: *const f64) {
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
