//! Bytes that a payload has on a disk, and that are read by range.

use crate::chunks::{Chunk, ChunkError, Cursor, decode_whole};
use crate::{DecodeError, Payload};
use brambling_memory::{SpillError, Spilled};
use std::borrow::Cow;
use std::sync::Arc;

/// So much of a run is on its way into a place at once.
const PART_BYTES: usize = 1 << 20;

/// What an encoding begins with: the bytes follow; they are lost, and why follows.
const WHOLE: u8 = 0;
const LOST: u8 = 1;

/// A run of bytes in parts, each of which lies where it was spilled, or in memory: what a payload owns that is larger than memory.
/// Clones share the parts. Their room is free again when the last one is dropped.
///
/// ```
/// use brambling_program::Run;
///
/// let mut run = Run::default();
/// run.push_resident(b"to be ".to_vec());
/// run.push_resident(b"or not".to_vec());
/// let mut some = [0; 5];
/// assert_eq!(run.read(4, &mut some)?, 5);
/// assert_eq!(&some, b"e or ");
/// # Ok::<(), brambling_program::SpillError>(())
/// ```
#[derive(Clone, Default, Debug)]
pub struct Run {
    parts: Vec<Part>,
    resident_bytes: usize,
    spilled_bytes: u64,
}

#[derive(Clone, Debug)]
struct Part {
    /// Where it ends in the run.
    end: u64,
    bytes: Arc<dyn Spilled>,
}

/// A part that nobody has spilled.
#[derive(Debug)]
struct Resident(Vec<u8>);

impl Spilled for Resident {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn read(&self) -> Result<Vec<u8>, SpillError> {
        Ok(self.0.clone())
    }
    fn read_at(&self, start: u64, into: &mut [u8]) -> Result<(), SpillError> {
        into.copy_from_slice(&self.0[start as usize..][..into.len()]);
        Ok(())
    }
}

impl Run {
    /// How many bytes it has.
    pub fn len(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.end)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends what was spilled.
    pub fn push(&mut self, bytes: Arc<dyn Spilled>) {
        self.spilled_bytes += bytes.bytes();
        self.append(bytes);
    }

    /// Appends what stays in memory.
    pub fn push_resident(&mut self, bytes: Vec<u8>) {
        self.resident_bytes += bytes.capacity();
        self.append(Arc::new(Resident(bytes)));
    }

    fn append(&mut self, bytes: Arc<dyn Spilled>) {
        let end = self.len() + bytes.bytes();
        // An empty part would never be read.
        if end > self.len() {
            self.parts.push(Part { end, bytes });
        }
    }

    /// Reads from a place on, as far as both reach; how many bytes that are. It waits for the disk.
    ///
    /// # Errors
    /// When they cannot be read, or are no longer what was written.
    pub fn read(&self, start: u64, into: &mut [u8]) -> Result<usize, SpillError> {
        let mut read = 0;
        let first = self.parts.partition_point(|part| part.end <= start);
        for part in &self.parts[first..] {
            let from = start + read as u64;
            let now = ((part.end - from) as usize).min(into.len() - read);
            let begin = part.end - part.bytes.bytes();
            if now > 0 {
                let place = &mut into[read..read + now];
                part.bytes.read_at(from - begin, place)?;
                read += now;
            }
        }
        Ok(read)
    }

    /// Appends so many bytes from a place on.
    fn read_to(&self, start: u64, bytes: usize, out: &mut Vec<u8>) -> Result<(), SpillError> {
        let before = out.len();
        out.resize(before + bytes, 0);
        let read = self.read(start, &mut out[before..]);
        // Bytes that could not be read must not stay behind as zeros.
        out.truncate(before + *read.as_ref().unwrap_or(&0));
        read.map(drop)
    }

    /// What has come and is not in a part yet becomes one.
    fn put(&mut self, begun: Vec<u8>, cursor: &mut Cursor) -> Result<(), SpillError> {
        match cursor.spill(&begun)? {
            Some(spilled) => self.push(spilled),
            None => self.push_resident(begun),
        }
        Ok(())
    }
}

impl Payload for Run {
    const SPILLS: bool = true;
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("Run")
    }
    fn heap_bytes(&self) -> usize {
        self.parts.capacity() * size_of::<Part>() + self.resident_bytes
    }
    fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes
    }
    /// All of it comes to memory; what cannot be read is lost, and whoever decodes is told why.
    fn encode(&self, out: &mut Vec<u8>) {
        let before = out.len();
        out.push(WHOLE);
        self.len().encode(out);
        // `encode` cannot fail, so the error travels in place of the bytes, and fails the decoding.
        if let Err(error) = self.read_to(0, self.len() as usize, out) {
            out.truncate(before);
            out.push(LOST);
            error.to_string().encode(out);
        }
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            WHOLE => {
                let mut run = Run::default();
                run.push_resident(Vec::decode(input)?);
                Ok(run)
            }
            LOST => Err(DecodeError::of::<Run>(String::decode(input)?)),
            other => Err(DecodeError::of::<Run>(format!("form {other}"))),
        }
    }
    fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        if *cursor.step() == 0 {
            chunk.buffer().push(WHOLE);
            self.len().encode(chunk.buffer());
            *cursor.step() = 1;
        }
        let given = *cursor.step() - 1;
        let now = (self.len() - given).min(chunk.room() as u64);
        if now > 0 {
            self.read_to(given, now as usize, chunk.buffer())?;
            *cursor.step() += now;
        }
        Ok(given + now == self.len())
    }
    /// The steps: the form; the length; and from two on how many bytes have come.
    fn decode_some(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        if *cursor.step() == 0 {
            match input.first() {
                None => return Ok(false),
                Some(&WHOLE) => *input = &input[1..],
                // Any other form is a short text, which says why the bytes are lost.
                Some(_) => {
                    let lost: Option<Run> = decode_whole(cursor, input)?;
                    return Ok(lost.is_some());
                }
            }
            *self = Run::default();
            *cursor.step() = 1;
        }
        if *cursor.step() == 1 {
            let Some(len) = decode_whole::<u64>(cursor, input)? else {
                return Ok(false);
            };
            cursor.set_total(len);
            *cursor.step() = 2;
        }
        let left = cursor.total() - (*cursor.step() - 2);
        let now = left.min(input.len() as u64);
        let (mut next, rest) = input.split_at(now as usize);
        *input = rest;
        *cursor.step() += now;
        let mut begun = cursor.take_kept::<Vec<u8>>();
        while begun.len() + next.len() >= PART_BYTES {
            let (more, after) = next.split_at(PART_BYTES - begun.len());
            begun.extend_from_slice(more);
            self.put(std::mem::take(&mut begun), cursor)?;
            next = after;
        }
        begun.extend_from_slice(next);
        if now < left {
            cursor.keep(begun);
            return Ok(false);
        }
        self.put(begun, cursor)?;
        Ok(true)
    }
}
