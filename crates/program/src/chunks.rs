//! A value's encoding in chunks, and a value from chunks: neither way do all bytes lie in memory a second time.
//!
//! # Rules
//! * The chunks of a value, in a row, are what [`Payload::encode`] gives. Each is as long as was asked for, but for the last one and those
//!   that end where memory that is lent begins or ends.
//! * What is large and lies in memory as it is encoded is lent, not copied. All else is copied into one chunk at a time.
//! * A value is decoded from its bytes whatever way they are cut. What has come lies in the value already; beside it there is only what of
//!   one part is not whole.
//! * Whoever sends a length gets no memory for it: vectors grow as their elements come, to at most twice as many, or to as many as were
//!   said to come ([`Decoder::expecting`]).
//! * A type that does neither ([`Payload::encode_some`], [`Payload::decode_some`]) lies in memory a second time while it travels.

mod cursor;
mod kept;

pub use cursor::{Cursor, PayloadPart};
pub(crate) use cursor::{decode_whole, possible_len};
pub use kept::{Chunks, Lent};

use crate::{DecodeError, Payload, Value};
use brambling_memory::{SpillError, Spilled, mutants};
use std::borrow::Cow;
use std::sync::Arc;

/// Less than this is copied into a chunk and not lent: its own part of a message costs as much.
const LENT_BYTES_MIN: usize = 4 << 10;

/// More than any number takes: a part that lacks bytes is looked at again with so many more at least.
const STEP_BYTES: usize = 16;

/// Why chunks are no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// They are no encoding of it.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// What of it belongs on a disk cannot be written there.
    #[error(transparent)]
    Spill(#[from] SpillError),
}

/// A part of a value's encoding: what was copied, and then what lies where it lay.
#[derive(Debug, Default)]
pub struct Chunk<'a> {
    copied: Vec<u8>,
    lent: &'a [u8],
    /// What was written although there was no room: it belongs to the next chunk.
    beyond: Vec<u8>,
    bytes_max: usize,
}

impl<'a> Chunk<'a> {
    fn new(bytes_max: usize) -> Chunk<'a> {
        Chunk {
            bytes_max: bytes_max.max(1),
            ..Chunk::default()
        }
    }

    /// How many bytes it still takes.
    pub fn room(&self) -> usize {
        match self.lent {
            [] => self.bytes_max.saturating_sub(self.copied.len()),
            _ => 0,
        }
    }

    /// Whether it takes none: what follows is for the next one.
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Where bytes are appended. Those for which there is no room are the next chunk's, and lie in memory until then.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        match self.lent {
            [] => &mut self.copied,
            // After what is lent nothing can stand in this chunk: later bytes go to the front of
            // the next one.
            _ => &mut self.beyond,
        }
    }

    /// Ends it with bytes that stay where they lie.
    fn lend(&mut self, bytes: &'a [u8]) {
        assert!(
            bytes.len() <= self.room(),
            "a chunk lends what it has room for"
        );
        self.lent = bytes;
    }

    /// Its bytes, in this order.
    pub fn parts(&self) -> [&[u8]; 2] {
        [&self.copied, self.lent]
    }

    /// The same: what was copied, and what is lent.
    pub fn into_parts(self) -> (Vec<u8>, &'a [u8]) {
        (self.copied, self.lent)
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.copied.len() + self.lent.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How far a value has been encoded. It is no loan of the value, which must stay as it is between two chunks.
///
/// ```
/// use brambling_program::{Decoder, Encoder, PayloadType, Value};
///
/// let value = Value::new((7u8, vec![0.5f64; 1_000]));
/// let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(Value::default_of(value.payload_type())));
/// while let Some(chunk) = encoder.next(&value, 1_024)? {
///     assert!(chunk.len() <= 1_024);
///     chunk.parts().iter().try_for_each(|part| decoder.feed(part))?;
/// }
/// let came = decoder.finish()?.take::<(u8, Vec<f64>)>().unwrap();
/// assert_eq!(came, (7, vec![0.5; 1_000]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Encoder {
    cursor: Cursor,
    /// What had no room in the chunk before.
    beyond: Vec<u8>,
    given_bytes: usize,
    is_done: bool,
}

impl Encoder {
    /// One that copies all, since what it lends would have to be given back where an interpreter must not be waited for.
    pub fn copying(mut self) -> Encoder {
        self.cursor.copies = true;
        self
    }

    /// The next chunk, of at most so many bytes; none when there is nothing more. What a value has on a disk is read here, so whoever must not
    /// wait for disks asks elsewhere.
    ///
    /// # Errors
    /// When what it has on a disk cannot be read.
    pub fn next<'a>(
        &mut self,
        value: &'a Value,
        bytes_max: usize,
    ) -> Result<Option<Chunk<'a>>, SpillError> {
        self.next_of(bytes_max, |cursor, chunk| value.encode_some(cursor, chunk))
    }

    pub(crate) fn next_of<'a>(
        &mut self,
        bytes_max: usize,
        go_on: impl FnOnce(&mut Cursor, &mut Chunk<'a>) -> Result<bool, SpillError>,
    ) -> Result<Option<Chunk<'a>>, SpillError> {
        let mut chunk = Chunk::new(bytes_max);
        // Bytes that had no room in the chunk before come first.
        let waiting = &self.beyond[self.given_bytes..];
        let now = waiting.len().min(chunk.room());
        chunk.copied.extend_from_slice(&waiting[..now]);
        self.given_bytes += now;
        if !chunk.is_full() && !self.is_done {
            self.is_done = go_on(&mut self.cursor, &mut chunk)?;
        }
        // All of `beyond` is given, so its memory is free for what has no room now.
        if self.given_bytes == self.beyond.len() {
            self.beyond = std::mem::take(&mut chunk.beyond);
            self.given_bytes = 0;
        }
        if mutants::is_on("chunks-forget-what-had-no-room") {
            chunk.copied.truncate(chunk.bytes_max);
        }
        if chunk.copied.len() > chunk.bytes_max {
            // Only the smaller part is copied: the larger one stays where it is.
            if chunk.copied.len() <= 2 * chunk.bytes_max {
                self.beyond = chunk.copied.split_off(chunk.bytes_max);
            } else {
                let first = chunk.copied[..chunk.bytes_max].to_vec();
                self.beyond = std::mem::replace(&mut chunk.copied, first);
                self.given_bytes = chunk.bytes_max;
            }
        }
        Ok((!chunk.is_empty()).then_some(chunk))
    }
}

/// Makes a value of chunks that come one after another.
pub struct Decoder {
    value: Value,
    pending: Pending,
}

impl Decoder {
    /// Into this value, which becomes another one; memory that it owns is used again.
    pub fn new(mut value: Value) -> Decoder {
        // Others may see the payload, and decoding writes over it.
        value.forget_shared();
        let pending = Pending::new(value.payload_type().name_of());
        Decoder { value, pending }
    }

    /// As many bytes will come, and there is room for them: what is no longer than that gets its memory at once, and what is longer is refused.
    pub fn expecting(mut self, bytes: u64) -> Decoder {
        self.pending.expected_bytes = Some(bytes);
        self
    }

    /// What of the value belongs on a disk goes there. Without this it stays in memory.
    pub fn spilling(
        mut self,
        to: impl FnMut(&[u8]) -> Result<Arc<dyn Spilled>, SpillError> + Send + 'static,
    ) -> Decoder {
        self.pending.cursor.spill = Some(Box::new(to));
        self
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// When no encoding of the type goes on like this. Nothing more is to be fed then.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), ChunkError> {
        let Decoder { value, pending } = self;
        pending.feed(bytes, &mut |cursor, input| value.decode_some(cursor, input))
    }

    /// The value, of which all bytes have come.
    ///
    /// # Errors
    /// When they have not, or are no encoding of the type.
    pub fn finish(self) -> Result<Value, ChunkError> {
        let Decoder {
            mut value,
            mut pending,
        } = self;
        pending.finish(&mut |cursor, input| value.decode_some(cursor, input))?;
        Ok(value)
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Decoder({}, {:?})",
            self.value.payload_type().name(),
            self.pending
        )
    }
}

/// Goes on with a value, which it knows: whether that is whole.
pub(crate) type GoOn<'g> = &'g mut dyn FnMut(&mut Cursor, &mut &[u8]) -> Result<bool, ChunkError>;

/// How far a value has come, and what cannot be read yet.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The type's name.
    name: fn() -> Cow<'static, str>,
    cursor: Cursor,
    /// The beginning of a part that is not whole.
    begun: Vec<u8>,
    /// With so many bytes it is looked at again.
    wanted_bytes: usize,
    expected_bytes: Option<u64>,
    read_bytes: u64,
    is_done: bool,
}

impl Pending {
    fn new(name: fn() -> Cow<'static, str>) -> Pending {
        Pending {
            name,
            cursor: Cursor::default(),
            begun: Vec::new(),
            wanted_bytes: 0,
            expected_bytes: None,
            read_bytes: 0,
            is_done: false,
        }
    }

    fn feed(&mut self, mut bytes: &[u8], go_on: GoOn<'_>) -> Result<(), ChunkError> {
        while !bytes.is_empty() && !self.is_done {
            let before = self.begun.len();
            // Nothing is left of the part before: bytes are read where they lie, without a copy.
            if before == 0 {
                let read = self.read(bytes, go_on)?;
                bytes = &bytes[read..];
                if !self.is_done {
                    self.begun.extend_from_slice(bytes);
                    self.want_more();
                    return Ok(());
                }
                break;
            }
            // As much as doubles what has begun: a value that needs many parts is tried a few
            // times, not once a part.
            let more = bytes.len().min(self.wanted_bytes - before);
            self.begun.extend_from_slice(&bytes[..more]);
            if self.begun.len() < self.wanted_bytes {
                return Ok(());
            }
            let begun = std::mem::take(&mut self.begun);
            let read = self.read(&begun, go_on)?;
            if read >= before {
                // The rest is read where it lies.
                bytes = &bytes[read - before..];
            } else {
                bytes = &bytes[more..];
                self.begun = begun;
                self.begun.drain(..read);
                self.want_more();
            }
        }
        self.refuse_left(bytes)
    }

    fn finish(&mut self, go_on: GoOn<'_>) -> Result<(), ChunkError> {
        if self.is_done {
            return self.refuse_left(&self.begun);
        }
        // From now on what is missing is an error and no reason to wait.
        self.cursor.is_last = true;
        let begun = std::mem::take(&mut self.begun);
        let read = self.read(&begun, go_on)?;
        match self.is_done {
            true => self.refuse_left(&begun[read..]),
            false => Err(ChunkError::Decode(
                self.error("they end before it does".into()),
            )),
        }
    }

    /// How many of these bytes are read.
    fn read(&mut self, bytes: &[u8], go_on: GoOn<'_>) -> Result<usize, ChunkError> {
        let left = |all: u64| all.saturating_sub(self.read_bytes);
        // Counted down, so that a length in the bytes is compared with what can still come.
        self.cursor.expected_bytes = self.expected_bytes.map(left);
        let mut input = bytes;
        self.is_done = go_on(&mut self.cursor, &mut input)?;
        let read = bytes.len() - input.len();
        self.read_bytes += read as u64;
        Ok(read)
    }

    /// A part is looked at again with twice as many bytes, so that a long one is not looked at often.
    fn want_more(&mut self) {
        let begun = self.begun.len();
        self.wanted_bytes = (2 * begun).max(begun + STEP_BYTES);
    }

    fn refuse_left(&self, left: &[u8]) -> Result<(), ChunkError> {
        match left.len() {
            0 => Ok(()),
            left => Err(ChunkError::Decode(
                self.error(format!("{left} bytes are left over")),
            )),
        }
    }

    fn error(&self, reason: String) -> DecodeError {
        DecodeError {
            expected: (self.name)(),
            reason,
        }
    }

    /// A whole encoding, in parts.
    pub(crate) fn whole(
        name: fn() -> Cow<'static, str>,
        parts: &[&[u8]],
        go_on: GoOn<'_>,
    ) -> Result<(), DecodeError> {
        let mut pending = Pending::new(name);
        pending.expected_bytes = Some(parts.iter().map(|part| part.len() as u64).sum());
        let fed = parts.iter().try_for_each(|part| pending.feed(part, go_on));
        match fed.and_then(|()| pending.finish(go_on)) {
            Ok(()) => Ok(()),
            Err(ChunkError::Decode(error)) => Err(error),
            // No place to spill to was given, so everything stays in memory and this error does not
            // come up.
            Err(ChunkError::Spill(error)) => Err(pending.error(error.to_string())),
        }
    }
}

/// Becomes the value whose encoding `input` begins with, and advances that: what [`Payload::decode`] does, of a type that has
/// [`Payload::decode_some`].
///
/// # Errors
/// As [`Payload::decode`]. What the value is then is not said.
pub fn decode_front<T: Payload>(value: &mut T, input: &mut &[u8]) -> Result<(), DecodeError> {
    let mut cursor = Cursor::default();
    cursor.is_last = true;
    cursor.expected_bytes = Some(input.len() as u64);
    match value.decode_some(&mut cursor, input) {
        Ok(true) => Ok(()),
        Ok(false) => Err(DecodeError::of::<T>("they end before it does")),
        Err(ChunkError::Decode(error)) => Err(error),
        // No place to spill to was given, as above.
        Err(ChunkError::Spill(error)) => Err(DecodeError::of::<T>(error.to_string())),
    }
}

/// Becomes what the bytes are the whole encoding of. They come in parts, which may be cut anywhere; memory that the value owns is used again.
///
/// # Errors
/// As [`Payload::decode`], and when bytes are left over. What the value is then is not said.
pub fn decode_parts<T: Payload>(value: &mut T, parts: &[&[u8]]) -> Result<(), DecodeError> {
    Pending::whole(T::type_name, parts, &mut |cursor, input| {
        value.decode_some(cursor, input)
    })
}
