//! Data bodies: pieces and empty marks of one exchange turn, from many source shards to one worker.

use super::error::FrameError;
use super::header::{HEADER_BYTES, Header, Kind};
use crate::ids::{Generation, JobId, Version, WorkerId};
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, GroupId, Turn};
use std::ops::Range;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Pieces and empty marks of one exchange turn.
///
/// Rules, checked when it is decoded: ranges are not empty; version ranges ascend and do not
/// overlap; the destinations of every piece, empty mark and route lie inside them; routes ascend, do not overlap and lead to workers; a tree
/// node's leaves can be counted in 64 bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Data<'a> {
    /// Whose and which.
    pub head: DataHead,
    /// The sender's version of each destination's entry.
    pub versions: Vec<VersionRange>,
    /// What the sources send.
    pub pieces: Vec<Piece<'a>>,
    /// What the sources do not send.
    pub empties: Vec<EmptyMarks>,
    /// Destinations to whom the receiver hands all of this on, as a broadcast travels; all others are its own.
    pub routes: Vec<Route>,
}

/// The sender believes destinations `first..end` to be on another worker than the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The first destination.
    pub first: u32,
    /// One past the last.
    pub end: u32,
    /// The worker.
    pub to: WorkerId,
}

/// What all pieces of a frame have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataHead {
    /// The job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// The exchange.
    pub exchange: ExchangeId,
    /// The exchange's turn.
    pub turn: Turn,
    /// The group of the destinations.
    pub group: GroupId,
}

/// The version that the sender's map has for destinations `first..end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionRange {
    /// The first destination.
    pub first: u32,
    /// One past the last.
    pub end: u32,
    /// The version.
    pub version: Version,
}

/// One source's data, or one chunk of it, for destinations `first..end` (a broadcast has several).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece<'a> {
    /// The first destination.
    pub first: u32,
    /// One past the last.
    pub end: u32,
    /// The source: a leaf is a source by itself, a node is what its leaves make together.
    pub source: TreeNode,
    /// The place of this chunk, from 0.
    pub chunk: u32,
    /// Whether this is the source's last chunk.
    pub last: bool,
    /// The bytes.
    pub payload: &'a [u8],
}

/// Sources `sources` send nothing to destinations `first..end`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EmptyMarks {
    /// The first destination.
    pub first: u32,
    /// One past the last.
    pub end: u32,
    /// The leaves that are accounted for.
    pub sources: Range<u64>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HeadRecord {
    job: U64,
    generation: U64,
    turn: U64,
    exchange: U32,
    group: U32,
    versions: U32,
    pieces: U32,
    empties: U32,
    routes: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct VersionRecord {
    first: U32,
    end: U32,
    version: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct PieceRecord {
    index: U64,
    first: U32,
    end: U32,
    chunk: U32,
    payload_bytes: U32,
    level: u8,
    last: u8,
    reserved: U16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RouteRecord {
    first: U32,
    end: U32,
    to: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct EmptyRecord {
    start: U64,
    stop: U64,
    first: U32,
    end: U32,
}

const fn malformed(rule: &'static str) -> FrameError {
    FrameError::Malformed { rule }
}

impl<'a> Data<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.encode_tables(out);
        for piece in &self.pieces {
            out.extend_from_slice(piece.payload);
        }
    }

    /// All before the payloads.
    pub(super) fn encode_tables(&self, out: &mut Vec<u8>) {
        self.check().expect("the sender keeps the rules");
        let count = |len: usize| U32::new(u32::try_from(len).expect("a frame has far fewer"));
        let head = HeadRecord {
            job: self.head.job.0.into(),
            generation: self.head.generation.0.into(),
            turn: self.head.turn.into(),
            exchange: self.head.exchange.0.into(),
            group: self.head.group.0.into(),
            versions: count(self.versions.len()),
            pieces: count(self.pieces.len()),
            empties: count(self.empties.len()),
            routes: count(self.routes.len()),
        };
        out.extend_from_slice(head.as_bytes());
        for range in &self.versions {
            let (first, end) = (range.first.into(), range.end.into());
            let record = VersionRecord {
                first,
                end,
                version: range.version.into(),
            };
            out.extend_from_slice(record.as_bytes());
        }
        for piece in &self.pieces {
            let record = PieceRecord {
                index: piece.source.index.into(),
                first: piece.first.into(),
                end: piece.end.into(),
                chunk: piece.chunk.into(),
                payload_bytes: count(piece.payload.len()),
                level: piece.source.level,
                last: piece.last.into(),
                reserved: 0.into(),
            };
            out.extend_from_slice(record.as_bytes());
        }
        for marks in &self.empties {
            let (first, end) = (marks.first.into(), marks.end.into());
            let (start, stop) = (marks.sources.start.into(), marks.sources.end.into());
            out.extend_from_slice(
                EmptyRecord {
                    start,
                    stop,
                    first,
                    end,
                }
                .as_bytes(),
            );
        }
        for route in &self.routes {
            let record = RouteRecord {
                first: route.first.into(),
                end: route.end.into(),
                to: route.to.0.into(),
            };
            out.extend_from_slice(record.as_bytes());
        }
    }

    /// `apart` is the last payload, where that does not follow the others.
    pub(super) fn decode(bytes: &'a [u8], apart: Option<&'a [u8]>) -> Result<Data<'a>, FrameError> {
        let tables = Tables::of(bytes)?;
        let data = Data {
            head: tables.head.get(),
            versions: tables.versions.iter().map(VersionRecord::get).collect(),
            pieces: decode_pieces(tables.pieces, tables.rest, apart)?,
            empties: tables.empties.iter().map(EmptyRecord::get).collect(),
            routes: tables.routes.iter().map(RouteRecord::get).collect(),
        };
        data.check()?;
        Ok(data)
    }

    /// The rules of the type, in time n·log n whatever the bytes say.
    fn check(&self) -> Result<(), FrameError> {
        // Version ranges that touch are one span of destinations.
        let mut spans: Vec<Range<u32>> = Vec::new();
        for range in &self.versions {
            let before = spans.last().map_or(0, |span| span.end);
            if range.first >= range.end || range.first < before {
                return Err(malformed("version ranges that ascend"));
            }
            match spans.last_mut() {
                Some(span) if span.end == range.first => span.end = range.end,
                _ => spans.push(range.first..range.end),
            }
        }
        let covered = |first: u32, end: u32| {
            let span = spans.get(spans.partition_point(|span| span.end <= first));
            first < end && span.is_some_and(|span| span.start <= first && end <= span.end)
        };
        for piece in &self.pieces {
            if !covered(piece.first, piece.end) {
                return Err(malformed("pieces for destinations with a version"));
            }
            if piece.source.leaves().is_none() {
                return Err(malformed("tree nodes whose leaves can be counted"));
            }
        }
        for marks in &self.empties {
            if !covered(marks.first, marks.end) || marks.sources.is_empty() {
                return Err(malformed("empty marks for destinations with a version"));
            }
        }
        let mut before = 0;
        for route in &self.routes {
            if route.first < before || !covered(route.first, route.end) {
                return Err(malformed(
                    "routes that ascend, of destinations with a version",
                ));
            }
            if route.to == WorkerId::CONTROLLER {
                return Err(malformed("routes to workers"));
            }
            before = route.end;
        }
        Ok(())
    }
}

/// A body's tables where they lie, and what follows them.
struct Tables<'a> {
    head: &'a HeadRecord,
    versions: &'a [VersionRecord],
    pieces: &'a [PieceRecord],
    empties: &'a [EmptyRecord],
    routes: &'a [RouteRecord],
    rest: &'a [u8],
}

impl<'a> Tables<'a> {
    /// Each table is cut from the bytes at hand before anything is allocated for it.
    fn of(body: &'a [u8]) -> Result<Tables<'a>, FrameError> {
        let short = malformed("as many records as it names");
        let (head, rest) = HeadRecord::ref_from_prefix(body).map_err(|_| short)?;
        let len = |count: U32| count.get() as usize;
        let (versions, rest) =
            <[VersionRecord]>::ref_from_prefix_with_elems(rest, len(head.versions))
                .map_err(|_| short)?;
        let (pieces, rest) = <[PieceRecord]>::ref_from_prefix_with_elems(rest, len(head.pieces))
            .map_err(|_| short)?;
        let (empties, rest) = <[EmptyRecord]>::ref_from_prefix_with_elems(rest, len(head.empties))
            .map_err(|_| short)?;
        let (routes, rest) = <[RouteRecord]>::ref_from_prefix_with_elems(rest, len(head.routes))
            .map_err(|_| short)?;
        Ok(Tables {
            head,
            versions,
            pieces,
            empties,
            routes,
            rest,
        })
    }
}

/// The last payload of a frame of pieces of which only the beginning has come: a chunk of a large piece. Nothing of it was checked: it
/// may be used to find room, and for nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameTail<'a> {
    /// Whose and which.
    pub head: DataHead,
    /// The first destination.
    pub first: u32,
    /// One past the last.
    pub end: u32,
    /// The source.
    pub source: TreeNode,
    /// The place of the chunk, from 0.
    pub chunk: u32,
    /// Whether it is the source's last one.
    pub last: bool,
    /// Where it begins in the frame.
    pub at: usize,
    /// How long it is.
    pub bytes: usize,
    /// The chunk before it, where that is in the same frame: the source's first.
    pub before: Option<&'a [u8]>,
}

impl<'a> FrameTail<'a> {
    /// What the beginning of a frame says; none if it is too short for that, or of another kind.
    pub fn of(begun: &'a [u8]) -> Option<FrameTail<'a>> {
        let header = Header::decode(begun).ok()?;
        if header.kind() != Kind::Data {
            return None;
        }
        let body = &begun[HEADER_BYTES..];
        let tables = Tables::of(body).ok()?;
        let (last, others) = tables.pieces.split_last()?;
        let mut rest = tables.rest;
        let mut before = None;
        for record in others {
            let payload;
            (payload, rest) = rest.split_at_checked(record.payload_bytes.get() as usize)?;
            before = Some((record, payload));
        }
        let at = begun.len() - rest.len();
        let bytes = last.payload_bytes.get() as usize;
        if at + bytes != HEADER_BYTES + header.body_bytes() {
            return None;
        }
        let of_same = |record: &PieceRecord| {
            let same = |record: &PieceRecord| {
                let source = (record.level, record.index);
                (record.first, record.end, source)
            };
            same(record) == same(last) && record.chunk.get() == 0 && last.chunk.get() == 1
        };
        Some(FrameTail {
            head: tables.head.get(),
            first: last.first.get(),
            end: last.end.get(),
            source: last.source(),
            chunk: last.chunk.get(),
            last: last.last == 1,
            at,
            bytes,
            before: before.and_then(|(record, payload)| of_same(record).then_some(payload)),
        })
    }
}

fn decode_pieces<'a>(
    records: &[PieceRecord],
    mut payloads: &'a [u8],
    apart: Option<&'a [u8]>,
) -> Result<Vec<Piece<'a>>, FrameError> {
    let unlike = malformed("payloads as long as named");
    let mut pieces = Vec::with_capacity(records.len());
    let follow = records.len() - usize::from(apart.is_some() && !records.is_empty());
    for (place, record) in records.iter().enumerate() {
        if record.last > 1 || record.reserved.get() != 0 {
            return Err(malformed("defined flags of pieces"));
        }
        let bytes = record.payload_bytes.get() as usize;
        let payload = match apart {
            Some(apart) if place == follow => apart,
            _ => {
                let payload;
                (payload, payloads) = payloads.split_at_checked(bytes).ok_or(unlike)?;
                payload
            }
        };
        if payload.len() != bytes {
            return Err(unlike);
        }
        pieces.push(Piece {
            first: record.first.get(),
            end: record.end.get(),
            source: record.source(),
            chunk: record.chunk.get(),
            last: record.last == 1,
            payload,
        });
    }
    if !payloads.is_empty() || (apart.is_some() && records.is_empty()) {
        return Err(malformed("nothing after the last payload"));
    }
    Ok(pieces)
}

impl HeadRecord {
    fn get(&self) -> DataHead {
        DataHead {
            job: JobId(self.job.get()),
            generation: Generation(self.generation.get()),
            exchange: ExchangeId(self.exchange.get()),
            turn: self.turn.get(),
            group: GroupId(self.group.get()),
        }
    }
}

impl PieceRecord {
    fn source(&self) -> TreeNode {
        TreeNode {
            level: self.level,
            index: self.index.get(),
        }
    }
}

impl VersionRecord {
    fn get(&self) -> VersionRange {
        VersionRange {
            first: self.first.get(),
            end: self.end.get(),
            version: self.version.get(),
        }
    }
}

impl RouteRecord {
    fn get(&self) -> Route {
        Route {
            first: self.first.get(),
            end: self.end.get(),
            to: WorkerId(self.to.get()),
        }
    }
}

impl EmptyRecord {
    fn get(&self) -> EmptyMarks {
        let sources = self.start.get()..self.stop.get();
        EmptyMarks {
            first: self.first.get(),
            end: self.end.get(),
            sources,
        }
    }
}
