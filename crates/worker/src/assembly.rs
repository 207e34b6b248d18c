//! Owns the memory of a large piece whose chunks are read to where they will lie, so that its
//! gather copies nothing. `executor/remote/assemblies.rs` begins it when a frame has begun, readers
//! of links fill its parts, and the gather finishes it (`piece_data/taken.rs`). It never decodes:
//! parts that do not fit are given back as bytes.
//!
//! # Rules
//! * A part of the piece's memory is given to one reader, once. What comes again is read elsewhere.
//! * Whoever has a part writes it before it is shared, and not after.
//! * Nobody touches the piece itself while anybody has a part of it, but for reading once all parts are written.
//! * The piece is taken as it lies if exactly its parts have come, with the head that it was begun with. Else whoever gathers
//!   decodes what came: chunks are bytes like any other, wherever they lie.
#![allow(unsafe_code)] // Several readers write into one value, each its own part.

use crate::pieces::Spares;
use brambling_exchange::read_target::ReadBuffer;
use brambling_memory::held;
use brambling_program::Value;
use bytes::Bytes;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The most that a piece may take which is begun before its bytes are there.
const BYTES_MAX: usize = 64 << 20;

/// So often a piece looks whether the reader of its last part has let go, which takes some microseconds, before it is copied.
const LOOKS_MAX: u32 = 4_000;

/// A piece of which some parts have come.
pub struct Assembly {
    /// None once it was taken.
    value: Option<Value>,
    head: Box<[u8]>,
    place: *mut u8,
    bytes: usize,
    /// What readers were given.
    given: Mutex<Vec<Range<usize>>>,
    spares: Arc<Spares>,
}

// SAFETY: the place is written through disjoint parts, each of which one reader has, and read when they are shared.
unsafe impl Send for Assembly {}
// SAFETY: as above.
unsafe impl Sync for Assembly {}

/// A part of a piece: its reader's alone, and then shared.
pub struct Region {
    assembly: Arc<Assembly>,
    range: Range<usize>,
}

impl std::fmt::Debug for Assembly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Assembly({} bytes)", self.bytes)
    }
}

impl Assembly {
    /// A piece whose encoding begins with `head`; none where its type cannot be read to where it lies, or it is too large.
    pub fn begin(spares: &Arc<Spares>, head: &[u8]) -> Option<Arc<Assembly>> {
        // A reader may drop the last reference under any lock, and a value of an interpreter must
        // not be dropped under one.
        if spares.are_interpreted() {
            return None;
        }
        let mut value = spares.take();
        let Some(place) = value.receive(head, BYTES_MAX) else {
            spares.put(value);
            return None;
        };
        let (place, bytes) = (place.as_mut_ptr(), place.len());
        Some(Arc::new(Assembly {
            value: Some(value),
            head: head.into(),
            place,
            bytes,
            given: Mutex::default(),
            spares: spares.clone(),
        }))
    }

    /// How long it is without its head.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A part of it, if nobody has had any of that.
    pub fn region(self: &Arc<Self>, range: Range<usize>) -> Option<Region> {
        if range.start >= range.end || range.end > self.bytes {
            return None;
        }
        let mut given = held::lock(&self.given);
        let is_apart = |other: &Range<usize>| other.end <= range.start || range.end <= other.start;
        if !given.iter().all(is_apart) {
            return None;
        }
        given.push(range.clone());
        drop(given);
        let assembly = self.clone();
        Some(Region { assembly, range })
    }

    /// Whether these parts, in a row, are the head that it was begun with and all of its own parts: then they are written, and nobody
    /// has others.
    fn is_made_of(&self, parts: &[Bytes]) -> bool {
        let Some((head, parts)) = parts.split_first() else {
            return false;
        };
        let mut next = self.place.cast_const();
        let follows = |part: &Bytes| {
            let is_next = part.as_ptr() == next;
            next = part.as_ptr_range().end;
            is_next
        };
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        head[..] == self.head[..] && bytes == self.bytes && parts.iter().all(follows)
    }

    /// The piece, if these are its parts; else they are given back.
    ///
    /// # Errors
    /// When they are not.
    pub fn finish(self: Arc<Self>, parts: Vec<Bytes>) -> Result<Value, Vec<Bytes>> {
        if !self.is_made_of(&parts) {
            return Err(parts);
        }
        drop(parts);
        // The reader of the last part drops its reference a moment after it has reported that part:
        // waiting for it saves a copy. A shared piece is not waited for, since other destinations
        // may gather it for long.
        let mut looks = if self.spares.are_shared() {
            LOOKS_MAX
        } else {
            0
        };
        while Arc::strong_count(&self) > 1 && looks < LOOKS_MAX {
            looks += 1;
            std::hint::spin_loop();
        }
        let value = match Arc::try_unwrap(self) {
            Ok(mut alone) => alone.value.take(),
            // Others still hold the piece, and nobody writes it any more.
            Err(shared) => shared.value.clone(),
        };
        Ok(value.expect("taken by the last one"))
    }
}

impl Drop for Assembly {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.spares.put(value);
        }
    }
}

impl ReadBuffer for Region {
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: inside the value's memory, which is not moved while the assembly is there; nobody else was given it, and it is
        // shared only from `self`.
        unsafe { std::slice::from_raw_parts_mut(self.at(), self.range.len()) }
    }
    fn bytes(&self) -> &[u8] {
        // SAFETY: as above; whoever reads it borrows `self`, so nobody writes.
        unsafe { std::slice::from_raw_parts(self.at(), self.range.len()) }
    }
}

impl Region {
    fn at(&self) -> *mut u8 {
        // SAFETY: the range lies inside the place.
        unsafe { self.assembly.place.add(self.range.start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::{Payload, PayloadType};

    const BYTES: usize = 800;

    fn head_of(len: u64) -> Bytes {
        Bytes::copy_from_slice(&len.to_le_bytes())
    }

    /// Hundred numbers that come in three parts, and the parts.
    fn come<T: Payload>() -> (Arc<Spares>, Arc<Assembly>, Vec<Bytes>) {
        let spares = Arc::new(Spares::new(PayloadType::of::<T>()));
        let assembly = Assembly::begin(&spares, &head_of(100)).unwrap();
        let numbers: Vec<u8> = (0..100).map(f64::from).flat_map(f64::to_le_bytes).collect();
        // As they come: in any order.
        let mut parts: Vec<(usize, Bytes)> = [300..600, 0..300, 600..BYTES]
            .into_iter()
            .map(|range: Range<usize>| {
                let mut region = assembly.region(range.clone()).unwrap();
                region.bytes_mut().copy_from_slice(&numbers[range.clone()]);
                (range.start, Bytes::copy_from_slice(region.bytes()), region)
            })
            .map(|(start, copy, region)| {
                let part = Bytes::from_owner(Shared(region));
                assert_eq!(part, copy);
                (start, part)
            })
            .collect();
        parts.sort_by_key(|(start, _)| *start);
        let parts = parts.into_iter().map(|(_, part)| part);
        let parts = std::iter::once(head_of(100)).chain(parts).collect();
        (spares, assembly, parts)
    }

    struct Shared(Region);

    impl AsRef<[u8]> for Shared {
        fn as_ref(&self) -> &[u8] {
            self.0.bytes()
        }
    }

    fn numbers() -> Vec<f64> {
        (0..100).map(f64::from).collect()
    }

    #[test]
    fn a_piece_lies_where_its_parts_came() {
        let (spares, assembly, parts) = come::<Vec<f64>>();
        let at = parts[1].as_ptr();
        assert_eq!(assembly.bytes(), BYTES);
        let value = assembly.finish(parts).unwrap();
        let came = value.get::<Vec<f64>>().unwrap();
        assert_eq!((came.as_ptr().cast(), came), (at, &numbers()));
        let address = value.as_ptr();
        spares.put(value);
        assert_eq!(spares.take().as_ptr(), address);
    }

    #[test]
    fn a_part_is_given_once() {
        let spares = Arc::new(Spares::new(PayloadType::of::<Vec<f64>>()));
        let assembly = Assembly::begin(&spares, &head_of(100)).unwrap();
        let part = assembly.region(100..300).unwrap();
        for again in [100..300, 0..101, 299..BYTES, 150..200, 0..BYTES] {
            assert!(assembly.region(again.clone()).is_none(), "{again:?}");
        }
        drop(part);
        assert!(
            assembly.region(100..300).is_none(),
            "it was lost: others hold what was to come"
        );
        for outside in [0..0, 790..BYTES + 1, BYTES..BYTES + 8] {
            assert!(assembly.region(outside.clone()).is_none(), "{outside:?}");
        }
        assert!(assembly.region(300..BYTES).is_some());
    }

    /// With anything else than its own parts a piece is not taken, and its parts are bytes like any others.
    #[test]
    fn other_parts_are_given_back() {
        let elsewhere = |parts: &mut Vec<Bytes>| parts[2] = Bytes::copy_from_slice(&parts[2]);
        let another_head = |parts: &mut Vec<Bytes>| parts[0] = head_of(99);
        let one_less = |parts: &mut Vec<Bytes>| drop(parts.pop());
        let one_more = |parts: &mut Vec<Bytes>| parts.push(Bytes::from_static(b"more"));
        let swapped = |parts: &mut Vec<Bytes>| parts.swap(1, 2);
        let none = |parts: &mut Vec<Bytes>| parts.clear();
        type Change = fn(&mut Vec<Bytes>);
        let changes: [Change; 6] = [elsewhere, another_head, one_less, one_more, swapped, none];
        for (at, change) in changes.into_iter().enumerate() {
            let (_, assembly, mut parts) = come::<Vec<f64>>();
            change(&mut parts);
            let back = assembly.finish(parts.clone()).map(drop);
            assert_eq!(back.unwrap_err(), parts, "change {at}");
        }
    }

    /// A reader that does not let go keeps what it has read; what is gathered is a copy then.
    #[test]
    fn what_is_held_is_not_taken_away() {
        let (_, assembly, parts) = come::<Vec<f64>>();
        let held = parts[2].clone();
        let value = assembly.finish(parts).unwrap();
        let before = held.to_vec();
        let mut other = value.clone();
        other.get_mut::<Vec<f64>>().unwrap().fill(0.0);
        drop((value, other));
        assert_eq!(held, before);
    }

    /// Where clones share their memory, all who gather a piece have it as it came.
    #[test]
    fn what_several_gather_is_shared() {
        let (_, assembly, parts) = come::<Arc<Vec<f64>>>();
        let at = parts[1].as_ptr();
        let first = assembly.clone().finish(parts.clone()).unwrap();
        let last = assembly.finish(parts).unwrap();
        for value in [first, last] {
            let came = value.get::<Arc<Vec<f64>>>().unwrap();
            assert_eq!((came.as_ptr().cast(), &**came), (at, &numbers()));
        }
    }

    /// A piece that nobody gathers, since its link was lost or its shard has gone, leaves its memory to others.
    #[test]
    fn what_is_not_gathered_is_a_spare_one() {
        let (spares, assembly, parts) = come::<Vec<f64>>();
        drop(assembly);
        assert!(spares.take().bytes() < BYTES, "somebody has parts of it");
        drop(parts);
        assert!(spares.take().bytes() >= BYTES);
    }

    #[test]
    fn what_cannot_lie_where_it_comes_is_not_begun() {
        let text = Arc::new(Spares::new(PayloadType::of::<Vec<String>>()));
        assert!(Assembly::begin(&text, &head_of(3)).is_none());
        let spares = Arc::new(Spares::new(PayloadType::of::<Vec<f64>>()));
        for len in [BYTES_MAX as u64 / 8 + 1, u64::MAX / 8 + 1, u64::MAX] {
            assert!(Assembly::begin(&spares, &head_of(len)).is_none(), "{len}");
        }
        assert!(Assembly::begin(&spares, b"short").is_none());
        assert!(Assembly::begin(&spares, b"nine byte").is_none());
    }
}
