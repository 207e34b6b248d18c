//! What travels of a shard, as bytes in parts, each of which goes in a frame: while they are made, and when they have come.
//!
//! # Rules
//! * What is large and lies in memory as it is encoded is lent to its parts, with the room that it has ([`Packing::value`]). All else is copied into
//!   one part at a time, and what it was made of is dropped as soon as all of it is there.
//! * So a shard that leaves lies in memory once, and beside it the parts of the one value that is being encoded, if that cannot be lent.
//! * A part counts until it has been acknowledged: by the room of what it is lent, or as a transfer. What finds no room as a transfer does not count:
//!   it was counted as the value that it was made of, and a shard leaves because there is too little room.
//! * What has come counts as a transfer until it was taken. A part is dropped when all of it was taken, so a shard that arrives lies in memory once, and
//!   beside it one part.

use brambling_memory::{Budget, Class, Reservation, SpillError, held};
use brambling_program::{Decoder, PayloadType, Value};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::sync::Arc;

/// Less than this is copied: its own part costs as much.
const LENT_BYTES_MIN: usize = 4 << 10;

/// Parts while they are made.
#[derive(Debug)]
pub struct Packing {
    budget: Budget,
    part_bytes: usize,
    parts: Vec<Bytes>,
    /// What was copied and is no part yet.
    begun: Vec<u8>,
}

/// Bytes, and what is kept with them. It goes where nobody holds a lock: a value may be dropped with it.
struct Kept<B: AsRef<[u8]> + Send + 'static, R: Send + 'static>(Option<(B, R)>);

impl<B: AsRef<[u8]> + Send + 'static, R: Send + 'static> AsRef<[u8]> for Kept<B, R> {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |(bytes, _)| bytes.as_ref())
    }
}

impl<B: AsRef<[u8]> + Send + 'static, R: Send + 'static> Drop for Kept<B, R> {
    fn drop(&mut self) {
        if let Some(kept) = self.0.take() {
            held::drop_later(kept);
        }
    }
}

impl Packing {
    /// Nothing yet. Parts have about so many bytes, and count in `budget`.
    pub fn new(budget: &Budget, part_bytes: usize) -> Packing {
        Packing {
            budget: budget.clone(),
            part_bytes,
            parts: Vec::new(),
            begun: Vec::new(),
        }
    }

    /// How long parts are.
    pub fn part_bytes(&self) -> usize {
        self.part_bytes
    }

    /// What parts count in.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Appends bytes, which are copied.
    pub fn copy(&mut self, bytes: &[u8]) {
        self.begun.extend_from_slice(bytes);
        self.end_if_full();
    }

    /// Appends bytes that stay where they lie, with their room, if they are large.
    pub fn lend<B, R>(&mut self, bytes: B, room: R)
    where
        B: AsRef<[u8]> + Send + 'static,
        R: Send + 'static,
    {
        if bytes.as_ref().len() < LENT_BYTES_MIN {
            return self.copy(bytes.as_ref());
        }
        self.end();
        let kept = Kept(Some((bytes, room)));
        self.parts.push(Bytes::from_owner(kept));
    }

    /// Appends a value's encoding, and gives how long that is. The value goes, with its room, as soon as nothing of it is lent any more.
    ///
    /// # Errors
    /// When what it has on a disk cannot be read.
    pub fn value<R>(&mut self, value: Value, room: R) -> Result<u64, SpillError>
    where
        R: Send + Sync + 'static,
    {
        held::forbid("a value is packed");
        let room = Arc::new(room);
        let mut chunks = value.into_chunks(self.part_bytes);
        let mut bytes = 0;
        while let Some((copied, lent)) = chunks.next()? {
            bytes += (copied.len() + lent.as_ref().len()) as u64;
            match self.begun.is_empty() {
                true => {
                    self.begun = copied;
                    self.end_if_full();
                }
                false => self.copy(&copied),
            }
            if !lent.as_ref().is_empty() {
                self.lend(lent, room.clone());
            }
        }
        Ok(bytes)
    }

    fn end_if_full(&mut self) {
        if self.begun.len() >= self.part_bytes {
            self.end();
        }
    }

    fn end(&mut self) {
        if self.begun.is_empty() {
            return;
        }
        let mut part = std::mem::take(&mut self.begun);
        part.shrink_to_fit();
        let room = self.budget.reserve(Class::Transfer, part.len() as u64);
        let kept = Kept(Some((part, room.ok())));
        self.parts.push(Bytes::from_owner(kept));
    }

    /// All parts, with what is to be known before them ([`Unpacking::header`]).
    pub fn finish(mut self, header: &impl Serialize) -> Vec<Bytes> {
        let header = postcard::to_stdvec(header).expect("plain values written to memory");
        let mut first = (header.len() as u64).to_le_bytes().to_vec();
        first.extend_from_slice(&header);
        if self.parts.is_empty() {
            first.append(&mut self.begun);
        }
        self.end();
        self.begun = first;
        self.end();
        self.parts.rotate_right(1);
        self.parts
    }
}

/// Parts that have come.
#[derive(Debug)]
pub struct Unpacking {
    parts: VecDeque<Bytes>,
    bytes: u64,
    room: Reservation,
}

impl Unpacking {
    /// These parts, in a row, in the room that was made for them; what is left of that is given back.
    pub fn new(parts: impl IntoIterator<Item = Bytes>, mut room: Reservation) -> Unpacking {
        let parts: VecDeque<Bytes> = parts.into_iter().filter(|it| !it.is_empty()).collect();
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        room.shrink(room.bytes().saturating_sub(bytes));
        Unpacking { parts, bytes, room }
    }

    /// How many bytes were not taken.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// So many bytes are counted elsewhere from now on, or are no more.
    pub fn give_back(&mut self, bytes: u64) {
        self.room.shrink(bytes.min(self.room.bytes()));
    }

    /// The next bytes of one part, at most so many.
    fn next(&mut self, bytes_max: u64) -> Option<Bytes> {
        let first = self.parts.front_mut()?;
        let next = match first.len() as u64 <= bytes_max {
            true => self.parts.pop_front()?,
            false => first.split_to(bytes_max as usize),
        };
        self.bytes -= next.len() as u64;
        Some(next)
    }

    /// The next bytes, in a row, which keep nothing else; none when there are not so many.
    pub fn take(&mut self, bytes: u64) -> Option<Bytes> {
        let is_whole = |part: &Bytes| part.len() as u64 == bytes;
        if self.parts.front().is_some_and(is_whole) {
            return self.next(bytes);
        }
        if bytes > self.bytes {
            return None;
        }
        let mut row = Vec::with_capacity(bytes as usize);
        while (row.len() as u64) < bytes {
            row.extend_from_slice(&self.next(bytes - row.len() as u64)?);
        }
        Some(row.into())
    }

    /// What [`Packing::finish`] was given; none when this is something else.
    pub fn header<T: DeserializeOwned>(&mut self) -> Option<T> {
        let bytes = u64::from_le_bytes(*self.take(size_of::<u64>() as u64)?.first_chunk()?);
        postcard::from_bytes(&self.take(bytes)?).ok()
    }

    /// The next value, of so many bytes; none when they are no encoding of the type. Parts go as they are read.
    pub fn value(&mut self, table: &'static PayloadType, bytes: u64) -> Option<Value> {
        if bytes > self.bytes {
            return None;
        }
        let mut decoder = Decoder::new(Value::default_of(table)).expecting(bytes);
        let mut left = bytes;
        while left > 0 {
            let next = self.next(left)?;
            left -= next.len() as u64;
            decoder.feed(&next).ok()?;
        }
        decoder.finish().ok()
    }
}

#[cfg(test)]
mod tests;
