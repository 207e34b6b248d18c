//! Bytes that are kept as long as nobody else wants their room.
//!
//! # Rules
//! * A spare takes only what is free, and never what another spare has. What it has counts in no job's use.
//! * Whoever wants room and finds none gets that of spares, the oldest first, before it is refused. A spare that has given its room has no bytes any
//!   more, and takes none.
//! * While somebody reads bytes that were given up they are there, and count nowhere.

use crate::budget::Free;
use crate::held;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// What is counted for a chunk beside its bytes.
const CHUNK_BYTES: u64 = 128;

/// The spares of a process.
#[derive(Debug, Default)]
pub(crate) struct SpareRoom {
    kept: Mutex<KeptSpares>,
    /// What all of them have of the free bytes.
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct KeptSpares {
    next: u64,
    by_age: BTreeMap<u64, SpareContent>,
}

#[derive(Debug, Default)]
struct SpareContent {
    chunks: Vec<Arc<Vec<u8>>>,
    counted: u64,
}

impl SpareRoom {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Gives so many bytes back, or as many as there are. Whether that was any.
    #[cold]
    pub(crate) fn give_up(&self, free: &Free, bytes: u64) -> bool {
        let mut dropped = Vec::new();
        let mut given = 0;
        while given < bytes && self.bytes() > 0 {
            let Some((_, content)) = held::lock(&self.kept).by_age.pop_first() else {
                break;
            };
            given += content.counted;
            self.end(free, content.counted);
            dropped.push(content);
        }
        given > 0
    }

    fn end(&self, free: &Free, counted: u64) {
        self.bytes.fetch_sub(counted, Relaxed);
        free.give_back(counted);
    }
}

/// Bytes that are kept as long as nobody else wants their room: in chunks, as they came. Dropping it gives the room back.
#[derive(Debug)]
pub struct Spare {
    free: Arc<Free>,
    number: u64,
}

impl Spare {
    pub(crate) fn new(free: &Arc<Free>) -> Spare {
        let mut kept = held::lock(&free.spares.kept);
        kept.next += 1;
        let number = kept.next;
        kept.by_age.insert(number, SpareContent::default());
        Spare {
            free: free.clone(),
            number,
        }
    }

    /// Adds a chunk. Without room for it all of the bytes go.
    pub fn push(&self, chunk: Vec<u8>) {
        let spares = &self.free.spares;
        let bytes = chunk.len() as u64 + CHUNK_BYTES;
        let has_room = self.free.take_unclaimed(bytes);
        let mut kept = held::lock(&spares.kept);
        match kept.by_age.get_mut(&self.number).filter(|_| has_room) {
            Some(content) => {
                content.chunks.push(Arc::new(chunk));
                content.counted += bytes;
                // Under the lock: whoever takes the bytes away finds them counted.
                spares.bytes.fetch_add(bytes, Relaxed);
            }
            None => {
                drop(kept);
                self.free.give_back(if has_room { bytes } else { 0 });
                self.give_up();
            }
        }
    }

    /// The chunks, in order; none once their room was wanted.
    pub fn chunks(&self) -> Option<Vec<Arc<Vec<u8>>>> {
        let kept = held::lock(&self.free.spares.kept);
        let content = kept.by_age.get(&self.number)?;
        Some(content.chunks.clone())
    }

    fn give_up(&self) {
        let content = held::lock(&self.free.spares.kept)
            .by_age
            .remove(&self.number);
        if let Some(content) = content {
            self.free.spares.end(&self.free, content.counted);
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::CHUNK_BYTES;
    use crate::{Class, Memory};

    const MEBIBYTE: u64 = 1 << 20;

    fn chunk() -> Vec<u8> {
        vec![7; (MEBIBYTE - CHUNK_BYTES) as usize]
    }

    #[test]
    fn who_wants_room_gets_that_of_spares_the_oldest_first() {
        let memory = Memory::new(4 * MEBIBYTE);
        let spares: Vec<_> = (0..5).map(|_| memory.spare()).collect();
        spares.iter().for_each(|it| it.push(chunk()));
        // The last found no room, and has taken none from the others.
        let there = || -> Vec<bool> { spares.iter().map(|it| it.chunks().is_some()).collect() };
        assert_eq!(there(), [true, true, true, true, false]);
        assert_eq!(memory.spare_bytes(), 4 * MEBIBYTE);
        assert_eq!(memory.in_use_bytes(), 0, "they count in nobody's use");
        let own = memory.own();
        let room = own.reserve(Class::Resident, MEBIBYTE + 1).unwrap();
        assert_eq!(there(), [false, false, true, true, false]);
        assert_eq!(memory.spare_bytes(), 2 * MEBIBYTE);
        assert!(own.reserve(Class::Resident, 4 * MEBIBYTE).is_err());
        drop((room, spares));
        assert!(own.reserve(Class::Resident, 4 * MEBIBYTE).is_ok());
    }

    #[test]
    fn chunks_are_read_in_order_and_what_was_given_up_takes_no_more() {
        let memory = Memory::new(2 * MEBIBYTE);
        let spare = memory.spare();
        assert_eq!(spare.chunks().map(|it| it.len()), Some(0));
        spare.push(vec![1, 2]);
        spare.push(vec![3]);
        let chunks = spare.chunks().unwrap();
        let bytes: Vec<u8> = chunks.iter().flat_map(|it| it.iter().copied()).collect();
        assert_eq!(bytes, [1, 2, 3]);
        let room = memory.own().reserve(Class::Resident, 2 * MEBIBYTE).unwrap();
        drop(room);
        spare.push(vec![4]);
        assert_eq!(spare.chunks(), None);
        assert_eq!(memory.spare_bytes(), 0);
        assert!(memory.own().reserve(Class::Resident, 2 * MEBIBYTE).is_ok());
    }

    #[test]
    fn a_job_that_begins_has_its_floors_beside_spares() {
        let memory = Memory::new(64 * MEBIBYTE);
        let spares: Vec<_> = (0..64).map(|_| memory.spare()).collect();
        spares.iter().for_each(|it| it.push(chunk()));
        let alone = Memory::new(64 * MEBIBYTE).admit(1);
        let share = memory.admit(1);
        let room = |share: &crate::BudgetShare| {
            let mut bytes = 64 * MEBIBYTE;
            while share.budget().reserve(Class::Resident, bytes).is_err() {
                bytes -= MEBIBYTE / 4;
            }
            bytes
        };
        assert_eq!(room(&share), room(&alone));
    }
}
