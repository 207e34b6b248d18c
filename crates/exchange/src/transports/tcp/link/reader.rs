//! Owns what comes on a link until it is handed up: small frames side by side, each large one in a
//! place of its own. The link calls it, one thread at a time. It never takes memory for a frame
//! before the checksum of its header is right.

use super::greeting::Greeting;
use crate::transports::tcp::buffers::{Buffers, PooledBuffer};
use crate::transports::tcp::carried::DirectionCount;
use crate::transports::tcp::{Lost, ReadBuffer, ReadTarget};
use brambling_protocol::frame::{HEADER_BYTES, Header, Incoming};
use brambling_protocol::greeting::Challenge;
use bytes::Bytes;
use std::sync::Arc;

/// Room for what comes with one call, where no large frame has begun.
const READ_BYTES: usize = 1 << 16;
/// A frame of so many bytes is read into a buffer of its own.
pub(super) const LARGE_BYTES: usize = 1 << 15;
/// The room after a large frame: another one is likely, and what is read of it here is copied.
const BETWEEN_BYTES: usize = 1 << 10;
/// After a large frame, so many others come before the next one is not expected any more.
const OTHERS_BETWEEN: u32 = 8;

/// What has come and was not handed up.
pub(super) struct FrameReader {
    pub(super) greeting: Greeting,
    /// What has come and was not handed up: `bytes[from..to]`.
    pub(super) bytes: Vec<u8>,
    pub(super) from: usize,
    pub(super) to: usize,
    /// A large frame that has begun. Then nothing else waits.
    pub(super) large: Option<Large>,
    /// Frames that may come before another large one is not expected any more.
    pub(super) expects_large: u32,
    buffers: Buffers,
    pub(super) received: Arc<DirectionCount>,
}

/// A large frame that has begun.
pub(super) struct Large {
    place: Within,
    /// How much of the place is written.
    come: usize,
}

/// Where a large frame is read to.
enum Within {
    /// All of it.
    Buffer(PooledBuffer),
    /// Its last bytes; the first are here.
    Room(Vec<u8>, Box<dyn ReadBuffer>),
}

/// A large frame that has come.
pub(super) enum Whole {
    InOne(Bytes),
    InTwo(Vec<u8>, Bytes),
}

/// A room that is written, for [`Bytes`].
struct Written(Box<dyn ReadBuffer>);

impl AsRef<[u8]> for Written {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Large {
    fn room(&mut self) -> &mut [u8] {
        let place = match &mut self.place {
            Within::Buffer(buffer) => buffer.place(),
            Within::Room(_, room) => room.bytes_mut(),
        };
        &mut place[self.come..]
    }

    fn is_whole(&self) -> bool {
        let bytes = match &self.place {
            Within::Buffer(buffer) => buffer.as_ref(),
            Within::Room(_, room) => room.bytes(),
        };
        self.come == bytes.len()
    }

    fn share(self) -> Whole {
        match self.place {
            Within::Buffer(buffer) => Whole::InOne(buffer.share()),
            Within::Room(begun, room) => Whole::InTwo(begun, Bytes::from_owner(Written(room))),
        }
    }
}

impl Whole {
    pub(super) fn incoming(&self) -> Incoming<'_> {
        match self {
            Whole::InOne(frame) => Incoming::from(frame),
            Whole::InTwo(begun, last) => Incoming::in_two(begun, last),
        }
    }
}

impl FrameReader {
    pub(super) fn new(
        greeting: Greeting,
        buffers: Buffers,
        received: Arc<DirectionCount>,
    ) -> FrameReader {
        FrameReader {
            greeting,
            bytes: vec![0; size_of::<Challenge>()],
            from: 0,
            to: 0,
            large: None,
            expects_large: 0,
            buffers,
            received,
        }
    }

    /// Where to read to: while greeting, no more than a message.
    pub(super) fn room(&mut self) -> &mut [u8] {
        // Asked twice, because a value that is borrowed in one branch is not free in the other.
        if self.large.is_none() {
            return self.shared_room();
        }
        let large = self.large.as_mut();
        large.expect("just asked").room()
    }

    /// The same where no large frame has begun.
    fn shared_room(&mut self) -> &mut [u8] {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
        let begun = self.to - self.from;
        let (wanted, most) = match self.greeting {
            Greeting::Over if self.expects_large > 0 => {
                let next = self.frame_bytes().ok().flatten();
                // A large frame is read only as far as it tells where it is to lie.
                let next = next.filter(|bytes| *bytes < LARGE_BYTES).unwrap_or(0);
                (LARGE_BYTES + BETWEEN_BYTES, next.max(begun) + BETWEEN_BYTES)
            }
            Greeting::Over => (LARGE_BYTES + READ_BYTES, usize::MAX),
            // One byte at a time: bells may follow.
            Greeting::Agreeing => (1, 1),
            _ => (size_of::<Challenge>(), usize::MAX),
        };
        if self.bytes.len() - self.from < wanted {
            // A frame that has begun moves to the front, so that the rest of it fits behind.
            self.bytes.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, begun);
            if self.bytes.len() < wanted {
                self.bytes.resize(wanted, 0);
            }
        }
        let end = self.bytes.len().min(self.from.saturating_add(most));
        &mut self.bytes[self.to..end]
    }

    /// So many bytes have come into the room.
    pub(super) fn took(&mut self, bytes: usize) {
        self.received.add_bytes(bytes);
        match &mut self.large {
            Some(large) => large.come += bytes,
            None => self.to += bytes,
        }
    }

    /// A frame of so many bytes has begun, and nothing of another: the rest of it comes into a place that somebody has for its last
    /// bytes, or into a buffer of its own.
    pub(super) fn begin_large(
        &mut self,
        bytes: usize,
        place: impl FnOnce(&[u8]) -> Option<ReadTarget>,
    ) {
        let begun = &self.bytes[self.from..self.to];
        let fits = |place: &ReadTarget| {
            place.at <= begun.len() && place.at + place.room.bytes().len() == bytes
        };
        let (place, at) = match place(begun).filter(fits) {
            // The head stays apart: only the last payload lies in the owner's place.
            Some(ReadTarget { at, room }) => (Within::Room(begun[..at].to_vec(), room), at),
            None => (Within::Buffer(self.buffers.take(bytes)), 0),
        };
        let mut large = Large { place, come: 0 };
        large.room()[..begun.len() - at].copy_from_slice(&begun[at..]);
        large.come = begun.len() - at;
        self.large = Some(large);
        self.from = self.to;
    }

    /// A large frame, when all of it is there.
    pub(super) fn take_large(&mut self) -> Option<Whole> {
        let large = self.large.take_if(|large| large.is_whole())?;
        // Large frames come in a row: the next reads stop early, so that little of them is copied.
        self.expects_large = OTHERS_BETWEEN;
        Some(large.share())
    }

    /// How long the frame is that begins here, once that is known.
    pub(super) fn frame_bytes(&self) -> Result<Option<usize>, Lost> {
        let bytes = &self.bytes[self.from..self.to];
        if bytes.len() < HEADER_BYTES {
            return Ok(None);
        }
        let header = Header::decode(bytes)?;
        Ok(Some(HEADER_BYTES + header.body_bytes()))
    }

    /// A message of the greeting, when all of it is there.
    pub(super) fn message<const BYTES: usize>(&self) -> Option<[u8; BYTES]> {
        self.bytes[self.from..self.to].first_chunk().copied()
    }

    /// Goes past a message, and gives the greeting as it was.
    pub(super) fn take(&mut self, bytes: usize) -> Greeting {
        self.from += bytes;
        std::mem::replace(&mut self.greeting, Greeting::Over)
    }
}
