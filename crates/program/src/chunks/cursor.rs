//! Where an encoding or a decoding stands: in which part of a value, in which part of that, and so on.

use super::{Chunk, ChunkError, LENT_BYTES_MIN};
use crate::{DecodeError, Payload};
use brambling_memory::{SpillError, Spilled};
use smallvec::SmallVec;
use std::any::Any;
use std::sync::Arc;

/// So few bytes are written to a chunk at once whatever room it has; the next one takes the rest.
const SMALL_BYTES: usize = 256;

/// More rows that take no bytes do not come: whoever sends a length would keep this process busy with them.
const NOTHINGS_MAX: u64 = 1 << 24;

type SpillTo = Box<dyn FnMut(&[u8]) -> Result<Arc<dyn Spilled>, SpillError> + Send>;

/// Which part of a value comes next. A type that is made of parts has a number for where it stands, the *step*, 0 at first, and goes into
/// its parts by [`Cursor::inside`].
#[derive(Default)]
pub struct Cursor {
    levels: SmallVec<[Level; 4]>,
    depth: usize,
    /// Nothing is lent.
    pub(super) copies: bool,
    /// No further bytes will come.
    pub(super) is_last: bool,
    /// So many will come, where that is known.
    pub(super) expected_bytes: Option<u64>,
    pub(super) spill: Option<SpillTo>,
}

#[derive(Default)]
struct Level {
    step: u64,
    /// How many parts there will be, of a decoding.
    total: u64,
    /// What a type keeps until it is whole.
    kept: Option<Box<dyn Any + Send>>,
}

/// A payload as a part of another one.
pub trait PayloadPart {
    /// As [`Payload::encode_some`].
    ///
    /// # Errors
    /// As there.
    fn encode_part<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError>;
    /// As [`Payload::decode_some`].
    ///
    /// # Errors
    /// As there.
    fn decode_part(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError>;
}

impl<T: Payload> PayloadPart for T {
    fn encode_part<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        self.encode_some(cursor, chunk)
    }
    fn decode_part(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        self.decode_some(cursor, input)
    }
}

impl Cursor {
    fn level(&mut self) -> &mut Level {
        if self.levels.len() <= self.depth {
            self.levels.resize_with(self.depth + 1, Level::default);
        }
        &mut self.levels[self.depth]
    }

    /// Where this part stands.
    pub fn step(&mut self) -> &mut u64 {
        &mut self.level().step
    }

    /// How many parts there will be.
    pub(crate) fn total(&mut self) -> u64 {
        self.level().total
    }

    pub(crate) fn set_total(&mut self, total: u64) {
        self.level().total = total;
    }

    /// Gives bytes to whoever spills; none where nobody does.
    pub(crate) fn spill(&mut self, bytes: &[u8]) -> Result<Option<Arc<dyn Spilled>>, SpillError> {
        match &mut self.spill {
            Some(to) if !bytes.is_empty() => to(bytes).map(Some),
            _ => Ok(None),
        }
    }

    /// Goes into a part; whether that is whole.
    ///
    /// # Errors
    /// What it returns.
    pub fn inside<E>(
        &mut self,
        part: impl FnOnce(&mut Cursor) -> Result<bool, E>,
    ) -> Result<bool, E> {
        self.level();
        self.depth += 1;
        let is_whole = part(self);
        if let Ok(true) = is_whole {
            // A part that is whole leaves nothing behind: the next one at this depth begins anew.
            self.levels.truncate(self.depth);
        }
        self.depth -= 1;
        is_whole
    }

    /// Whether no further bytes will come: what cannot be read then never can.
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// Whether so many bytes are known to come.
    pub fn expects(&self, bytes: u64) -> bool {
        self.expected_bytes
            .is_some_and(|expected| bytes <= expected)
    }

    /// What was kept here, or a default.
    pub fn take_kept<S: Default + Send + 'static>(&mut self) -> S {
        let kept = self.level().kept.take();
        let kept = kept.map(|kept| *kept.downcast::<S>().expect("a part keeps one type"));
        kept.unwrap_or_default()
    }

    /// Keeps something until this part is gone on with.
    pub fn keep<S: Send + 'static>(&mut self, state: S) {
        self.level().kept = Some(Box::new(state));
    }

    /// Encodes parts one after another.
    ///
    /// # Errors
    /// Theirs.
    pub fn encode_parts<'a>(
        &mut self,
        parts: &[&'a dyn PayloadPart],
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        while let Some(part) = parts.get(*self.step() as usize) {
            if chunk.is_full() || !self.inside(|cursor| part.encode_part(cursor, chunk))? {
                return Ok(false);
            }
            *self.step() += 1;
        }
        Ok(true)
    }

    /// Decodes parts one after another.
    ///
    /// # Errors
    /// Theirs.
    pub fn decode_parts(
        &mut self,
        parts: &mut [&mut dyn PayloadPart],
        input: &mut &[u8],
    ) -> Result<bool, ChunkError> {
        while let Some(part) = parts.get_mut(*self.step() as usize) {
            if !self.inside(|cursor| part.decode_part(cursor, input))? {
                return Ok(false);
            }
            *self.step() += 1;
        }
        Ok(true)
    }

    /// Decodes a value of another type, of which this one is then made.
    ///
    /// # Errors
    /// Its own.
    pub fn build<V: Payload>(&mut self, input: &mut &[u8]) -> Result<Option<V>, ChunkError> {
        let mut value = self.take_kept::<V>();
        if self.inside(|cursor| value.decode_some(cursor, input))? {
            return Ok(Some(value));
        }
        self.keep(value);
        Ok(None)
    }

    /// Encodes bytes as they lie, after what one step was for.
    pub fn encode_plain<'a>(&mut self, bytes: &'a [u8], chunk: &mut Chunk<'a>) -> bool {
        loop {
            let given = (*self.step() - 1) as usize;
            let now = chunk.room().min(bytes.len() - given);
            let next = &bytes[given..given + now];
            match next.len() {
                0 => return given == bytes.len(),
                // Small pieces are copied: lending one costs more than that.
                LENT_BYTES_MIN.. if !self.copies => chunk.lend(next),
                _ => chunk.buffer().extend_from_slice(next),
            }
            *self.step() += now as u64;
        }
    }

    /// Encodes rows as a vector of them is.
    ///
    /// # Errors
    /// Theirs.
    pub fn encode_rows<'a, T: Payload>(
        &mut self,
        rows: &'a [T],
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        if *self.step() == 0 {
            rows.len().encode(chunk.buffer());
            *self.step() = 1;
        }
        if let Some(bytes) = T::plain(rows) {
            return Ok(self.encode_plain(bytes, chunk));
        }
        loop {
            let given = (*self.step() - 1) as usize;
            let rest = &rows[given..];
            if rest.is_empty() || chunk.is_full() {
                return Ok(rest.is_empty());
            }
            let mut now = 1;
            if T::ENCODED_BYTES_MAX <= SMALL_BYTES {
                // At least one row, or a chunk with too little room would never end.
                now = (chunk.room() / T::ENCODED_BYTES_MAX.max(1)).clamp(1, rest.len());
                T::encode_all(&rest[..now], chunk.buffer());
            } else if !self.inside(|cursor| rest[0].encode_some(cursor, chunk))? {
                return Ok(false);
            }
            *self.step() += now as u64;
        }
    }

    /// Decodes what [`Cursor::encode_rows`] gave.
    ///
    /// # Errors
    /// Theirs.
    pub fn decode_rows<T: Payload>(
        &mut self,
        rows: &mut Vec<T>,
        input: &mut &[u8],
    ) -> Result<bool, ChunkError> {
        if *self.step() == 0 {
            let Some((len, rest)) = input.split_first_chunk() else {
                return Ok(false);
            };
            *input = rest;
            let len = possible_len::<T>(u64::from_le_bytes(*len))?;
            // Every row but one of nothing takes at least a byte.
            let each = if is_plain::<T>() {
                size_of::<T>()
            } else {
                size_of::<T>().min(1)
            };
            // Refused before memory is taken: a length is what anybody can write.
            if self.expected_bytes.is_some() && !self.expects((len * each) as u64) {
                let reason = format!("a length of {len}, for which not enough bytes come");
                return Err(DecodeError::of::<Vec<T>>(reason).into());
            }
            // Rows of numbers are overwritten where they lie; others are decoded anew.
            rows.truncate(if is_plain::<T>() { len } else { 0 });
            self.level().total = len as u64;
            *self.step() = 1;
        }
        if is_plain::<T>() {
            return Ok(self.decode_plain(rows, input));
        }
        self.decode_each(rows, input)
    }

    fn decode_plain<T: Payload>(&mut self, rows: &mut Vec<T>, input: &mut &[u8]) -> bool {
        let (given, total) = ((*self.step() - 1) as usize, self.total() as usize);
        let (now, rest) = input.split_at(input.len().min(total * size_of::<T>() - given));
        let come = given + now.len();
        // A chunk may end in the middle of a number.
        let begun = come.div_ceil(size_of::<T>());
        if rows.len() < begun {
            let is_expected = self.expects((total * size_of::<T>() - given) as u64);
            make_room(rows, begun, total, is_expected);
            rows.resize(begun, T::default());
        }
        let place = T::plain_mut(rows).expect("asked by whoever calls");
        place[given..come].copy_from_slice(now);
        *input = rest;
        *self.step() += now.len() as u64;
        come == total * size_of::<T>()
    }

    /// The step is 2 while the last row is not whole.
    fn decode_each<T: Payload>(
        &mut self,
        rows: &mut Vec<T>,
        input: &mut &[u8],
    ) -> Result<bool, ChunkError> {
        let total = self.total() as usize;
        while *self.step() == 2 || rows.len() < total {
            if *self.step() == 1 {
                // A row of no bytes is there even when nothing comes.
                if input.is_empty() && T::ENCODED_BYTES_MAX > 0 {
                    return Ok(false);
                }
                make_room(rows, rows.len() + 1, total, false);
                if T::ENCODED_BYTES_MAX <= SMALL_BYTES {
                    match decode_whole(self, input)? {
                        Some(row) => rows.push(row),
                        None => return Ok(false),
                    }
                    continue;
                }
                rows.push(T::default());
                *self.step() = 2;
            }
            let row = rows.last_mut().expect("begun above");
            if !self.inside(|cursor| row.decode_some(cursor, input))? {
                return Ok(false);
            }
            *self.step() = 1;
        }
        Ok(true)
    }
}

/// A value that is read at once; none when more bytes may make it one.
///
/// # Errors
/// When none can.
pub(crate) fn decode_whole<T: Payload>(
    cursor: &Cursor,
    input: &mut &[u8],
) -> Result<Option<T>, DecodeError> {
    let mut rest = *input;
    match T::decode(&mut rest) {
        Ok(value) => {
            *input = rest;
            Ok(Some(value))
        }
        // With enough bytes, or none to come, the value is wrong. Otherwise the rest of it is in
        // the next chunk.
        Err(error) if cursor.is_last || input.len() >= T::ENCODED_BYTES_MAX => Err(error),
        Err(_) => Ok(None),
    }
}

/// Whether rows lie in memory as they are encoded.
fn is_plain<T: Payload>() -> bool {
    size_of::<T>() > 0 && T::plain(&[]).is_some()
}

/// A length that vectors of such rows may have.
pub(crate) fn possible_len<T: Payload>(len: u64) -> Result<usize, DecodeError> {
    let bytes = usize::try_from(len)
        .ok()
        .and_then(|len| len.checked_mul(size_of::<T>()));
    let is_possible = match size_of::<T>() {
        0 => len <= NOTHINGS_MAX,
        _ => bytes.is_some_and(|bytes| bytes <= isize::MAX as usize),
    };
    match is_possible {
        true => Ok(len as usize),
        false => Err(DecodeError::of::<Vec<T>>(format!("a length of {len}"))),
    }
}

/// Makes room for so many rows of a total: for all where they are expected, else for at most twice as many as have come.
fn make_room<T>(rows: &mut Vec<T>, len: usize, total: usize, is_expected: bool) {
    if rows.capacity() < len {
        let room = if is_expected {
            total
        } else {
            total.min(len.max(2 * rows.capacity()).max(4))
        };
        rows.reserve_exact(room - rows.len());
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let steps = self.levels.iter().map(|level| level.step);
        f.debug_list().entries(steps).finish()
    }
}
