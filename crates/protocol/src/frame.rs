//! Frames: what peers send each other, and its bytes.
//!
//! A frame is a header of 32 bytes and a body. The header has a checksum of its own, so its length
//! can be believed before the body is there; the body's checksum is in the header. Numbers are
//! little-endian. Data bodies are tables of fixed-size records and then payloads; the small
//! bodies are postcard.

mod control;
mod cuts;
mod data;
mod error;
mod header;
mod packet;
mod relay;

pub use control::{
    Ack, Arrived, Call, Credit, Ended, Failed, Finished, Gone, Joined, Leaves, LoopEnd, MapUpdate,
    Parted, Reserve, Reserved, Retired, ShardPart, ShardRange, SignalOutcome, SignalQuery,
    SourceCredit,
};
pub use cuts::{CutAsk, CutCall, CutOrder, CutReply, CutWord, SavedParts, SavedShards};
pub use data::{Data, DataHead, EmptyMarks, FrameTail, Piece, Route, VersionRange};
pub use error::FrameError;
pub use header::{BODY_BYTES_MAX, FORMAT, HEADER_BYTES, Header, Kind};
pub use packet::{Incoming, Packet, SHARED_BYTES};
pub use relay::{FAN_OUT, HEARERS_MAX, Hearers, News, NoHearers, Relay, WorkerRange};

use crate::ids::{Priority, Sequence};
use crate::message::Message;
use bytes::Bytes;

/// What one peer says to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Its class on the wire.
    pub priority: Priority,
    /// Its number in the session; none for what is never sent again: greetings and acknowledgements.
    pub sequence: Option<Sequence>,
    /// What it says.
    pub body: Body<'a>,
}

/// The kinds of frames.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Body<'a> {
    /// Pieces and empty marks of one exchange turn.
    Data(Data<'a>),
    /// The outcome of a signal.
    Signal(SignalOutcome),
    /// A question for an outcome that did not arrive.
    SignalQuery(SignalQuery),
    /// An outermost loop has ended.
    LoopEnd(LoopEnd),
    /// Destinations have retired turns of an exchange.
    Credit(Credit),
    /// News for the partition map.
    MapUpdate(MapUpdate),
    /// Frames that arrived and need not be sent again.
    Ack(Ack),
    /// A request for room for a shard.
    Reserve(Reserve),
    /// Its answer.
    Reserved(Reserved),
    /// A part of a shard.
    ShardPart(ShardPart<'a>),
    /// A shard has arrived.
    Arrived(Arrived),
    /// There is a worker.
    Joined(Joined),
    /// The program has ended for some shards.
    Finished(Finished),
    /// The job has failed on a worker.
    Failed(Failed<'a>),
    /// The job is over.
    Ended(Ended<'a>),
    /// The first frame of a job's link.
    Call(Call),
    /// What processes say to each other outside of jobs.
    Message(Message<'a>),
    /// A worker leaves.
    Leaves(Leaves),
    /// Nothing is on its way to it, or from it.
    Parted(Parted),
    /// It has left.
    Gone(Gone),
    /// News that the receiver takes and hands on.
    Relay(Relay),
    /// One source may go on.
    SourceCredit(SourceCredit),
    /// Shards are asked about a cut.
    CutCall(CutCall),
    /// What is told of it.
    CutReply(CutReply),
}

impl Body<'_> {
    /// The kind that its header names.
    pub fn kind(&self) -> Kind {
        match self {
            Body::Data(_) => Kind::Data,
            Body::Signal(_) => Kind::Signal,
            Body::SignalQuery(_) => Kind::SignalQuery,
            Body::LoopEnd(_) => Kind::LoopEnd,
            Body::Credit(_) => Kind::Credit,
            Body::MapUpdate(_) => Kind::MapUpdate,
            Body::Ack(_) => Kind::Ack,
            Body::Reserve(_) => Kind::Reserve,
            Body::Reserved(_) => Kind::Reserved,
            Body::ShardPart(_) => Kind::ShardPart,
            Body::Arrived(_) => Kind::Arrived,
            Body::Joined(_) => Kind::Joined,
            Body::Finished(_) => Kind::Finished,
            Body::Failed(_) => Kind::Failed,
            Body::Ended(_) => Kind::Ended,
            Body::Call(_) => Kind::Call,
            Body::Message(_) => Kind::Message,
            Body::Leaves(_) => Kind::Leaves,
            Body::Parted(_) => Kind::Parted,
            Body::Gone(_) => Kind::Gone,
            Body::Relay(_) => Kind::Relay,
            Body::SourceCredit(_) => Kind::SourceCredit,
            Body::CutCall(_) => Kind::CutCall,
            Body::CutReply(_) => Kind::CutReply,
        }
    }
}

impl<'a> Frame<'a> {
    /// What is said on a link that speaks of no job.
    pub fn message(message: Message<'a>) -> Frame<'a> {
        Frame {
            priority: Priority::FIRST,
            sequence: None,
            body: Body::Message(message),
        }
    }

    /// Appends the frame's bytes to `out`.
    ///
    /// # Panics
    /// If the body is larger than [`BODY_BYTES_MAX`], or its tables break the rules of [`Data`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        match &self.body {
            Body::Data(body) => body.encode(out),
            Body::Signal(body) => control::encode(body, out),
            Body::SignalQuery(body) => control::encode(body, out),
            Body::LoopEnd(body) => control::encode(body, out),
            Body::Credit(body) => control::encode(body, out),
            Body::MapUpdate(body) => control::encode(body, out),
            Body::Ack(body) => control::encode(body, out),
            Body::Reserve(body) => control::encode(body, out),
            Body::Reserved(body) => control::encode(body, out),
            Body::ShardPart(body) => control::encode(body, out),
            Body::Arrived(body) => control::encode(body, out),
            Body::Joined(body) => control::encode(body, out),
            Body::Finished(body) => control::encode(body, out),
            Body::Failed(body) => control::encode(body, out),
            Body::Ended(body) => control::encode(body, out),
            Body::Call(body) => control::encode(body, out),
            Body::Message(body) => control::encode(body, out),
            Body::Leaves(body) => control::encode(body, out),
            Body::Parted(body) => control::encode(body, out),
            Body::Gone(body) => control::encode(body, out),
            Body::Relay(body) => control::encode(body, out),
            Body::SourceCredit(body) => control::encode(body, out),
            Body::CutCall(body) => control::encode(body, out),
            Body::CutReply(body) => control::encode(body, out),
        }
        self.put_header(&mut out[start..], &[]);
    }

    /// Writes the header in front of the body, of which the last parts may lie elsewhere.
    fn put_header(&self, bytes: &mut [u8], elsewhere: &[Bytes]) {
        let (head, body) = bytes.split_at_mut(HEADER_BYTES);
        let parts = std::iter::once(&*body).chain(elsewhere.iter().map(|part| &part[..]));
        let header = Header::of(self.body.kind(), self.priority, self.sequence, parts);
        head.copy_from_slice(&header.to_bytes());
    }

    /// The frame's bytes, to be shared until they have gone.
    ///
    /// # Panics
    /// As [`Frame::encode`].
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes.into()
    }

    /// The same, of a frame of pieces or of a shard's part whose payloads are `payloads`, in their order: the large ones at its end
    /// are not copied.
    ///
    /// # Panics
    /// As [`Frame::encode`], and when it is another frame.
    pub fn to_packet(&self, payloads: &[Bytes]) -> Packet {
        let mut head = vec![0; HEADER_BYTES];
        match &self.body {
            Body::Data(data) => data.encode_tables(&mut head),
            Body::ShardPart(part) => part.encode_head(&mut head),
            other => panic!("a frame of the kind {:?} has no payloads", other.kind()),
        }
        let is_small = |payload: &Bytes| payload.len() < SHARED_BYTES;
        let copied = payloads
            .iter()
            .rposition(is_small)
            .map_or(0, |last| last + 1);
        payloads[..copied]
            .iter()
            .for_each(|payload| head.extend_from_slice(payload));
        let apart = &payloads[copied..];
        self.put_header(&mut head, apart);
        Packet::new(head.into(), apart.to_vec())
    }

    /// Reads one frame from the front of `bytes`, and tells how many it took.
    pub fn decode(bytes: &'a [u8]) -> Result<(Frame<'a>, usize), FrameError> {
        let header = Header::decode(bytes)?;
        let end = HEADER_BYTES + header.body_bytes();
        let body = bytes.get(HEADER_BYTES..end).ok_or(FrameError::Truncated)?;
        Ok((Frame::decode_body(&header, body)?, end))
    }

    /// Reads a whole frame that has come.
    pub fn come(incoming: Incoming<'a>) -> Result<Frame<'a>, FrameError> {
        let header = Header::decode(incoming.bytes())?;
        let body = &incoming.bytes()[HEADER_BYTES..];
        match incoming.apart() {
            // Its tables are read before its end is known to be one: of nothing else an end lies apart.
            Some(last) if header.kind() == Kind::Data => {
                header.check(body, Some(last))?;
                let data = Data::decode(body, Some(last))?;
                Ok(header.before(Body::Data(data)))
            }
            Some(_) => Err(FrameError::Malformed {
                rule: "pieces where a payload lies apart",
            }),
            None => Frame::decode_body(&header, body),
        }
    }

    /// Reads the body that belongs to `header`.
    pub fn decode_body(header: &Header, body: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        header.check(body, None)?;
        let body = match header.kind() {
            Kind::Data => Body::Data(Data::decode(body, None)?),
            Kind::Signal => Body::Signal(control::decode(body)?),
            Kind::SignalQuery => Body::SignalQuery(control::decode(body)?),
            Kind::LoopEnd => Body::LoopEnd(control::decode(body)?),
            Kind::Credit => Body::Credit(control::decode(body)?),
            Kind::MapUpdate => Body::MapUpdate(control::decode(body)?),
            Kind::Ack => Body::Ack(control::decode(body)?),
            Kind::Reserve => Body::Reserve(control::decode(body)?),
            Kind::Reserved => Body::Reserved(control::decode(body)?),
            Kind::ShardPart => Body::ShardPart(control::decode(body)?),
            Kind::Arrived => Body::Arrived(control::decode(body)?),
            Kind::Joined => Body::Joined(control::decode(body)?),
            Kind::Finished => Body::Finished(control::decode(body)?),
            Kind::Failed => Body::Failed(control::decode(body)?),
            Kind::Ended => Body::Ended(control::decode(body)?),
            Kind::Call => Body::Call(control::decode(body)?),
            Kind::Message => Body::Message(control::decode(body)?),
            Kind::Leaves => Body::Leaves(control::decode(body)?),
            Kind::Parted => Body::Parted(control::decode(body)?),
            Kind::Gone => Body::Gone(control::decode(body)?),
            Kind::Relay => Body::Relay(control::decode(body)?),
            Kind::SourceCredit => Body::SourceCredit(control::decode(body)?),
            Kind::CutCall => Body::CutCall(control::decode(body)?),
            Kind::CutReply => Body::CutReply(control::decode(body)?),
        };
        Ok(header.before(body))
    }
}
