//! Memory that somebody else owns, read without a copy.
#![allow(unsafe_code)] // A pointer and whoever keeps its memory alive travel together.

use crate::chunks::{Chunk, ChunkError, Cursor};
use crate::{DecodeError, Payload};
use brambling_memory::SpillError;
use std::any::Any;
use std::borrow::Cow;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A slice kept alive by its owner: a vector of our own, or another language's array. Read-only; cloning
/// and narrowing share the memory.
pub struct Foreign<T> {
    pointer: *const T,
    len: usize,
    owner: Arc<dyn Any + Send + Sync>,
    /// Whether whoever has it answers for its memory.
    counts: bool,
}

// SAFETY: the memory is only read, and its owner may be dropped on any thread.
unsafe impl<T: Send + Sync> Send for Foreign<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Foreign<T> {}

impl<T: Send + Sync + 'static> Foreign<T> {
    /// Takes a vector, which whoever has a clone of this may hold as well, and counts.
    pub fn owned(values: Vec<T>) -> Foreign<T> {
        let owner = Arc::new(values);
        Foreign {
            pointer: owner.as_ptr(),
            len: owner.len(),
            owner,
            counts: false,
        }
    }

    /// Takes a vector that nobody else holds: its memory counts with whatever has it, each part with what has that part.
    pub fn handed_over(values: Vec<T>) -> Foreign<T> {
        let counts = true;
        Foreign {
            counts,
            ..Foreign::owned(values)
        }
    }

    /// Borrows memory that `owner` keeps alive.
    ///
    /// # Safety
    /// `pointer` is aligned and points to `len` values that stay where they are, and unchanged, as long as
    /// `owner` lives.
    pub unsafe fn borrowed(
        pointer: *const T,
        len: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Foreign<T> {
        Foreign {
            pointer,
            len,
            owner,
            counts: false,
        }
    }

    /// A part of the same memory.
    ///
    /// # Panics
    /// When the range exceeds the slice.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Foreign<T> {
        let part: &[T] = &self[range];
        Foreign {
            pointer: part.as_ptr(),
            len: part.len(),
            owner: self.owner.clone(),
            counts: self.counts,
        }
    }
}

impl<T> Deref for Foreign<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the promise of `borrowed`; the owner lives as long as self.
        unsafe { std::slice::from_raw_parts(self.pointer, self.len) }
    }
}

impl<T> Clone for Foreign<T> {
    fn clone(&self) -> Self {
        Foreign {
            pointer: self.pointer,
            len: self.len,
            owner: self.owner.clone(),
            counts: self.counts,
        }
    }
}

impl<T: Send + Sync + 'static> Default for Foreign<T> {
    fn default() -> Self {
        Foreign::owned(Vec::new())
    }
}

impl<T: Payload> Payload for Foreign<T> {
    /// Whoever lends the memory may be an interpreter.
    const INTERPRETED: bool = true;
    fn type_name() -> Cow<'static, str> {
        Cow::Owned(format!("Foreign<{}>", T::type_name()))
    }
    /// Borrowed memory is its owner's to count.
    fn heap_bytes(&self) -> usize {
        if self.counts {
            size_of_val(&self[..])
        } else {
            0
        }
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.len.encode(out);
        T::encode_all(self, out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Vec::decode(input).map(Foreign::handed_over)
    }
    fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        cursor.encode_rows(self, chunk)
    }
    fn decode_some(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        let Some(values) = cursor.build(input)? else {
            return Ok(false);
        };
        *self = Foreign::handed_over(values);
        Ok(true)
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Foreign<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Foreign({} values)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_over_counts_by_its_part_and_what_others_hold_does_not() {
        let whole = Foreign::handed_over(vec![1.0, 2.0, 3.0]);
        assert_eq!(
            (whole.heap_bytes(), whole.slice(1..3).heap_bytes()),
            (24, 16)
        );
        let held = Foreign::owned(vec![1.0, 2.0, 3.0]);
        assert_eq!((held.heap_bytes(), held.slice(0..2).heap_bytes()), (0, 0));
        let mut bytes = Vec::new();
        held.encode(&mut bytes);
        let came = Foreign::<f64>::decode(&mut &bytes[..]).unwrap();
        assert_eq!(came.heap_bytes(), 24);
    }

    #[test]
    fn parts_keep_the_owner_alive() {
        let whole = Foreign::owned(vec![1.0, 2.0, 3.0]);
        let part = whole.slice(1..3);
        drop(whole);
        assert_eq!(&part[..], &[2.0, 3.0]);
    }
}
