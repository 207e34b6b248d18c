//! The header: 32 bytes in front of every body.

use super::error::FrameError;
use super::{Body, Frame};
use crate::ids::{Priority, Sequence};
use brambling_memory::mutants;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The format that this build reads and writes. Frames are not kept: peers speak one format, which the greeting's version stands for.
pub const FORMAT: u16 = 4;
/// The header's size.
pub const HEADER_BYTES: usize = 32;
/// The most that the body of one frame may have. Senders cut larger pieces into chunks.
pub const BODY_BYTES_MAX: usize = 64 << 20;

const MAGIC: [u8; 4] = *b"BRMB";
const SEQUENCED: u8 = 1;
/// The only compression of this format: none.
const PLAIN: u8 = 0;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Layout {
    magic: [u8; 4],
    format: U16,
    kind: u8,
    priority: u8,
    compression: u8,
    flags: u8,
    reserved: U16,
    body_bytes: U32,
    body_checksum: U32,
    sequence: U64,
    /// Of all before it.
    checksum: U32,
}

const _: () = assert!(size_of::<Layout>() == HEADER_BYTES);

/// What a body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs)] // See the variants of `Body`.
pub enum Kind {
    // 1 was another greeting: its number is not given again.
    Data = 2,
    Signal = 3,
    SignalQuery = 4,
    LoopEnd = 5,
    Credit = 6,
    MapUpdate = 7,
    Ack = 8,
    Reserve = 9,
    Reserved = 10,
    ShardPart = 11,
    Arrived = 12,
    Joined = 13,
    Finished = 14,
    Failed = 15,
    Ended = 16,
    Call = 17,
    Message = 18,
    Leaves = 19,
    Parted = 20,
    Gone = 21,
    Relay = 22,
    /// [`SourceCredit`](super::SourceCredit).
    SourceCredit = 23,
    CutCall = 24,
    CutReply = 25,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 24] = [
        Kind::Data,
        Kind::Signal,
        Kind::SignalQuery,
        Kind::LoopEnd,
        Kind::Credit,
        Kind::MapUpdate,
        Kind::Ack,
        Kind::Reserve,
        Kind::Reserved,
        Kind::ShardPart,
        Kind::Arrived,
        Kind::Joined,
        Kind::Finished,
        Kind::Failed,
        Kind::Ended,
        Kind::Call,
        Kind::Message,
        Kind::Leaves,
        Kind::Parted,
        Kind::Gone,
        Kind::Relay,
        Kind::SourceCredit,
        Kind::CutCall,
        Kind::CutReply,
    ];
}

/// A header whose checksum was right and whose fields this format defines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    kind: Kind,
    priority: Priority,
    sequence: Option<Sequence>,
    body_bytes: u32,
    body_checksum: u32,
}

impl Header {
    /// The header of a body that lies in parts.
    pub(super) fn of<'a>(
        kind: Kind,
        priority: Priority,
        sequence: Option<Sequence>,
        body: impl Iterator<Item = &'a [u8]>,
    ) -> Header {
        let (mut bytes, mut checksum) = (0, crc32fast::Hasher::new());
        for part in body {
            bytes += part.len();
            checksum.update(part);
        }
        assert!(bytes <= BODY_BYTES_MAX, "a body of {bytes} bytes");
        Header {
            kind,
            priority,
            sequence,
            body_bytes: bytes as u32,
            body_checksum: checksum.finalize(),
        }
    }

    /// Reads the header at the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Header, FrameError> {
        let (layout, _) = Layout::ref_from_prefix(bytes).map_err(|_| FrameError::Truncated)?;
        if layout.magic != MAGIC {
            return Err(FrameError::NotAFrame);
        }
        // Before the checksum: another format may have it elsewhere.
        let found = layout.format.get();
        if found != FORMAT {
            return Err(FrameError::Format {
                found,
                known: FORMAT,
            });
        }
        let (_, before) = layout.checksum_and_before();
        if crc32fast::hash(before) != layout.checksum.get() && checks() {
            return Err(FrameError::Damaged { part: "header" });
        }
        let undefined = |field, found| FrameError::Undefined { field, found };
        let kind = Kind::ALL
            .into_iter()
            .find(|&kind| kind as u8 == layout.kind);
        let kind = kind.ok_or(undefined("kind", layout.kind))?;
        let priority =
            Priority::new(layout.priority).ok_or(undefined("priority", layout.priority))?;
        if layout.compression != PLAIN {
            return Err(undefined("compression", layout.compression));
        }
        if layout.flags & !SEQUENCED != 0 {
            return Err(undefined("flags", layout.flags));
        }
        if layout.reserved.get() != 0 {
            return Err(undefined("reserved field", layout.reserved.to_bytes()[0]));
        }
        let sequence = (layout.flags & SEQUENCED != 0).then_some(layout.sequence.get());
        if sequence.is_none() && layout.sequence.get() != 0 {
            return Err(FrameError::Malformed {
                rule: "a number without its flag",
            });
        }
        let body_bytes = layout.body_bytes.get();
        if body_bytes as usize > BODY_BYTES_MAX {
            let max_bytes = BODY_BYTES_MAX as u64;
            return Err(FrameError::TooLarge {
                bytes: body_bytes.into(),
                max_bytes,
            });
        }
        let body_checksum = layout.body_checksum.get();
        Ok(Header {
            kind,
            priority,
            sequence,
            body_bytes,
            body_checksum,
        })
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut layout = Layout {
            magic: MAGIC,
            format: FORMAT.into(),
            kind: self.kind as u8,
            priority: self.priority.get(),
            compression: PLAIN,
            flags: if self.sequence.is_some() {
                SEQUENCED
            } else {
                0
            },
            reserved: 0.into(),
            body_bytes: self.body_bytes.into(),
            body_checksum: self.body_checksum.into(),
            sequence: self.sequence.unwrap_or(0).into(),
            checksum: 0.into(),
        };
        let (_, before) = layout.checksum_and_before();
        layout.checksum = crc32fast::hash(before).into();
        zerocopy::transmute!(layout)
    }

    /// The frame of which this is the header.
    pub(super) fn before<'a>(&self, body: Body<'a>) -> Frame<'a> {
        Frame {
            priority: self.priority,
            sequence: self.sequence,
            body,
        }
    }

    /// What the body is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The frame's number in its session.
    pub fn sequence(&self) -> Option<Sequence> {
        self.sequence
    }

    /// How long the body is: at most [`BODY_BYTES_MAX`].
    pub fn body_bytes(&self) -> usize {
        self.body_bytes as usize
    }

    /// Whether the body is the one that the header was made for; its last bytes may lie apart.
    pub(super) fn check(&self, body: &[u8], apart: Option<&[u8]>) -> Result<(), FrameError> {
        let apart = apart.unwrap_or(&[]);
        if body.len() + apart.len() != self.body_bytes() {
            return Err(FrameError::Malformed {
                rule: "the length that the header names",
            });
        }
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(body);
        checksum.update(apart);
        if checksum.finalize() != self.body_checksum && checks() {
            return Err(FrameError::Damaged { part: "body" });
        }
        Ok(())
    }
}

impl Layout {
    fn checksum_and_before(&self) -> (&[u8], &[u8]) {
        let (before, checksum) = self.as_bytes().split_at(HEADER_BYTES - size_of::<U32>());
        (checksum, before)
    }
}

fn checks() -> bool {
    !mutants::is_on("frame-skips-checksum")
}
