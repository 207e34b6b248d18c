//! Owns memory in pages of its own: zeros at first, huge pages where they are many, and back with the
//! system when it is dropped. For what is large, comes and goes: an allocator may keep such memory.
//!
//! It never grows. Whoever wants more makes another and copies.

use memmap2::{Advice, MmapMut, MmapOptions};
use std::ops::{Deref, DerefMut};
use zerocopy::FromZeros;

/// What a huge page takes. From here on the first item lies at a multiple of it.
const HUGE: usize = 2 << 20;

/// Items that begin as zeros, in pages of their own.
///
/// # Examples
/// ```
/// use brambling_memory::Pages;
///
/// let mut numbers = Pages::<u64>::zeros(1000);
/// numbers[7] = 1;
/// assert_eq!(numbers.iter().sum::<u64>(), 1);
/// ```
pub struct Pages<T> {
    map: MmapMut,
    /// Where in the map the first item lies.
    first: usize,
    items: usize,
    of: std::marker::PhantomData<T>,
}

impl<T: FromZeros + Copy> Pages<T> {
    /// So many items, all zero.
    ///
    /// # Panics
    /// When the system has no memory, as every container does.
    pub fn zeros(items: usize) -> Pages<T> {
        const { assert!(align_of::<T>() <= 4096, "a page begins at a multiple of it") };
        let bytes = items.checked_mul(size_of::<T>()).expect("it fits memory");
        let is_large = bytes >= HUGE;
        let mapped = if is_large { bytes + HUGE } else { bytes.max(1) };
        // What is mapped and not touched takes no memory.
        let made = MmapOptions::new().len(mapped).no_reserve_swap().map_anon();
        let map = made.unwrap_or_else(|error| panic!("no memory for {bytes} bytes: {error}"));
        let mut first = 0;
        if is_large {
            let address = map.as_ptr() as usize;
            first = address.next_multiple_of(HUGE) - address;
            // Where there are no huge pages, there are small ones. What is no multiple of one ends in small ones.
            let _ = map.advise_range(Advice::HugePage, first, bytes / HUGE * HUGE);
        }
        Pages {
            map,
            first,
            items,
            of: std::marker::PhantomData,
        }
    }
}

#[allow(unsafe_code)] // The one place where pages are seen as items.
impl<T> Deref for Pages<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the map has `items` behind `first`, which is a multiple of a page; the system made them zeros, which are
        // items, and only items were written since.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(self.first).cast(), self.items) }
    }
}

#[allow(unsafe_code)] // As in `deref`.
impl<T> DerefMut for Pages<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the map is borrowed as the slice is.
        unsafe {
            std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(self.first).cast(), self.items)
        }
    }
}

impl<T> std::fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pages({} items)", self.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, FromZeros)]
    #[repr(align(32))]
    struct Wide(u64);

    #[test]
    fn items_begin_as_zeros_where_they_are_aligned() {
        for items in [0, 1, 100, HUGE / 32 - 1, HUGE / 32, 3 * HUGE / 32 + 5] {
            let mut pages = Pages::<Wide>::zeros(items);
            assert_eq!(pages.len(), items);
            assert!(pages.iter().all(|it| it.0 == 0));
            assert!(pages.as_ptr().is_aligned());
            if items * 32 >= HUGE {
                assert_eq!(pages.as_ptr() as usize % HUGE, 0);
            }
            for (place, item) in pages.iter_mut().enumerate() {
                item.0 = place as u64;
            }
            assert!((0..).zip(pages.iter()).all(|(place, it)| it.0 == place));
        }
    }
}
