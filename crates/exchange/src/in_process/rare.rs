//! A box that most of its owners do not have: what it takes to drop it is kept out of their code.
#![allow(unsafe_code)] // One value dropped by hand.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// A box whose end is a call. An owner of an `Option` of it pays for a comparison with null.
pub(super) struct Rare<T>(ManuallyDrop<Box<T>>);

impl<T> Rare<T> {
    #[cold]
    #[inline(never)]
    pub(super) fn new(value: T) -> Rare<T> {
        Rare(ManuallyDrop::new(Box::new(value)))
    }
}

impl<T> Drop for Rare<T> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: nobody uses the value after this.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

impl<T> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Rare<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
