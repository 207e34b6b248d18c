//! Links between a controller and the others: in order each way, each way perhaps blocked for a while.

use brambling_controller::registry::PeerLink;
use brambling_protocol::frame::{Body, Frame};
use brambling_protocol::message::Message;
use brambling_protocol::{JobKey, Sequence, WorkerId};
use std::collections::VecDeque;

/// Who is at the far end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Far {
    Worker(usize),
    Client(usize),
}

/// What goes over a link.
#[derive(Clone, Debug)]
pub enum Parcel {
    /// A message, as its frame.
    Said(Vec<u8>),
    /// A frame of a job, of or to a member.
    OfJob(JobKey, WorkerId, Vec<u8>),
    /// A member greets a job's controller: it has all frames before this one.
    Greets(JobKey, WorkerId, Sequence),
    /// The answer.
    Greeted(JobKey, Sequence),
}

impl Parcel {
    pub fn said(message: Message<'_>) -> Parcel {
        Parcel::Said(Frame::message(message).to_bytes().to_vec())
    }
}

/// Acts on a message.
pub fn read<R>(bytes: &[u8], act: impl FnOnce(Message<'_>) -> R) -> R {
    match Frame::decode(bytes).expect("a whole frame").0.body {
        Body::Message(message) => act(message),
        other => unreachable!("no message: {:?}", other.kind()),
    }
}

/// A link.
pub struct Wire {
    /// Which controller, by its term.
    pub term: u32,
    pub link: PeerLink,
    pub far: Far,
    /// To the controller, and from it.
    pub up: VecDeque<Parcel>,
    pub down: VecDeque<Parcel>,
    /// Until then nothing comes through.
    pub up_blocked: u64,
    pub down_blocked: u64,
    pub is_open: bool,
}

impl Wire {
    pub fn new(term: u32, link: PeerLink, far: Far) -> Wire {
        Wire {
            term,
            link,
            far,
            up: VecDeque::new(),
            down: VecDeque::new(),
            up_blocked: 0,
            down_blocked: 0,
            is_open: true,
        }
    }
}
