//! A session: frames between two peers survive the connections that carry them.
//!
//! # Rules
//! Each side numbers its frames and keeps them until the other side has acknowledged them. After a
//! reconnection it sends again what was not acknowledged. Frames of several lanes overtake each other, so
//! a receiver takes numbers in any order, remembers those beyond the first gap, and acknowledges up to
//! the gap. A frame is acknowledged only after it was taken: delivered, forwarded or held with room.
//!
//! At most [`WINDOW`] frames are under way: later ones have their numbers and wait here, and acknowledgements
//! bring them out in the order of their numbers. So a receiver remembers that many numbers at most.

use crate::frame::{Body, Frame, Packet};
use crate::ids::{Priority, Sequence};
use brambling_memory::mutants;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// How many frames may be under way without acknowledgement: bounds what a receiver remembers.
pub const WINDOW: u64 = 1 << 16;

/// Whether a frame is new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// Take it.
    New,
    /// It came before: drop it.
    Repeated,
}

/// What no honest peer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// An acknowledgement of a frame that has not gone out: the peer speaks of another session.
    #[error("frames before {received} are acknowledged and only {sent} were sent")]
    NeverSent {
        /// What the peer says it has.
        received: Sequence,
        /// What was sent.
        sent: Sequence,
    },
    /// A number too far beyond the first gap.
    #[error("frame {sequence} came while frame {received} is missing")]
    TooFarAhead {
        /// The number that came.
        sequence: Sequence,
        /// The first that is missing.
        received: Sequence,
    },
}

/// One side of a session.
#[derive(Clone, Debug)]
pub struct Session<F> {
    /// The front has the number `acknowledged`.
    unacknowledged: VecDeque<F>,
    acknowledged: Sequence,
    /// The first number that waits for the window.
    sent: Sequence,
    /// The first number that is missing.
    received: Sequence,
    /// Numbers beyond it that came.
    beyond: BTreeSet<Sequence>,
    /// What the peer was last told.
    told: Sequence,
}

/// A session of whole frames, each kept with its class.
pub type FrameSession = Session<(Priority, Packet)>;

impl FrameSession {
    /// Numbers what is said and keeps the frame until it is acknowledged. Gives its bytes if it may go now; else an
    /// acknowledgement brings it out ([`Session::on_ack`]).
    ///
    /// # Panics
    /// As [`Frame::encode`].
    #[must_use]
    pub fn say(&mut self, priority: Priority, body: &Body<'_>) -> Option<Packet> {
        let packet = self.numbered(priority, body.clone()).to_bytes().into();
        self.keep(priority, packet)
    }

    /// The same of what has payloads, which are shared as far as they are large.
    ///
    /// # Panics
    /// As [`Frame::to_packet`].
    #[must_use]
    pub fn say_with(
        &mut self,
        priority: Priority,
        body: &Body<'_>,
        payloads: &[Bytes],
    ) -> Option<Packet> {
        let frame = self.numbered(priority, body.clone());
        let packet = frame.to_packet(payloads);
        self.keep(priority, packet)
    }

    fn numbered<'a>(&self, priority: Priority, body: Body<'a>) -> Frame<'a> {
        Frame {
            priority,
            sequence: Some(self.said()),
            body,
        }
    }

    fn keep(&mut self, priority: Priority, packet: Packet) -> Option<Packet> {
        self.send((priority, packet.clone())).map(|_| packet)
    }
}

impl<F> Default for Session<F> {
    fn default() -> Self {
        Session {
            unacknowledged: VecDeque::new(),
            acknowledged: 0,
            sent: 0,
            received: 0,
            beyond: BTreeSet::new(),
            told: 0,
        }
    }
}

impl<F> Session<F> {
    /// A session in which nothing was said.
    pub fn new() -> Session<F> {
        Session::default()
    }

    /// How many frames wait until earlier ones are acknowledged.
    pub fn waiting(&self) -> u64 {
        self.said() - self.sent
    }

    /// Numbers a frame and keeps it until it is acknowledged. Gives its number if it may go now.
    #[must_use]
    pub fn send(&mut self, frame: F) -> Option<Sequence> {
        let sequence = self.said();
        self.unacknowledged.push_back(frame);
        self.open().next().map(|_| sequence)
    }

    /// Takes those out of the queue that the window has room for.
    fn open(&mut self) -> Range<Sequence> {
        let open = self.said().min(self.acknowledged.saturating_add(WINDOW));
        let first = std::mem::replace(&mut self.sent, open);
        first..open
    }

    fn kept(&self, sequences: Range<Sequence>) -> impl Iterator<Item = (Sequence, &F)> {
        let place = |sequence: Sequence| (sequence - self.acknowledged) as usize;
        let kept = self
            .unacknowledged
            .range(place(sequences.start)..place(sequences.end));
        sequences.zip(kept)
    }

    /// Judges a number that came. Call it before the frame is taken, and [`Session::ack`] after.
    pub fn receive(&mut self, sequence: Sequence) -> Result<Received, SessionError> {
        let received = self.received;
        if sequence < received || self.beyond.contains(&sequence) {
            let twice = mutants::is_on("session-delivers-twice");
            return Ok(if twice {
                Received::New
            } else {
                Received::Repeated
            });
        }
        if sequence - received >= WINDOW {
            return Err(SessionError::TooFarAhead { sequence, received });
        }
        self.beyond.insert(sequence);
        if mutants::is_on("session-acknowledges-gaps") {
            self.received = sequence + 1;
        }
        while self.beyond.remove(&self.received) {
            self.received += 1;
        }
        Ok(Received::New)
    }

    /// The first number that is missing, if the peer was not told yet.
    pub fn ack(&mut self) -> Option<Sequence> {
        let old = std::mem::replace(&mut self.told, self.received);
        (old != self.received).then_some(self.received)
    }

    /// As [`Session::ack`], once the peer was not told of so many.
    pub fn ack_after(&mut self, frames: u64) -> Option<Sequence> {
        if self.received - self.told < frames {
            return None;
        }
        self.ack()
    }

    /// The first number that is missing: what a greeting says.
    pub fn received(&self) -> Sequence {
        self.received
    }

    /// The peer has every frame before `received`: they are dropped here. Returns those that waited for it and have
    /// to be sent now.
    ///
    /// Insensitive to order and repetition.
    pub fn on_ack(
        &mut self,
        received: Sequence,
    ) -> Result<impl Iterator<Item = (Sequence, &F)>, SessionError> {
        let sent = self.sent;
        if received > sent {
            return Err(SessionError::NeverSent { received, sent });
        }
        while self.acknowledged < received {
            self.unacknowledged.pop_front();
            self.acknowledged += 1;
        }
        let opened = self.open();
        Ok(self.kept(opened))
    }

    /// A new connection, on which the peer says that it has every frame before `received`: returns what
    /// has to be sent again, and what may be sent now.
    ///
    /// What the peer was told last may have been lost with the old connection: it is told again.
    pub fn on_reconnect(
        &mut self,
        received: Sequence,
    ) -> Result<impl Iterator<Item = (Sequence, &F)>, SessionError> {
        let _ = self.on_ack(received)?;
        self.told = 0;
        let again = !mutants::is_on("session-forgets-on-reconnect");
        Ok(self
            .kept(self.acknowledged..self.sent)
            .filter(move |_| again))
    }

    /// Whether all that was sent is acknowledged: a worker that leaves waits for this.
    pub fn is_settled(&self) -> bool {
        self.unacknowledged.is_empty()
    }

    /// Whether the peer is up: it has acknowledged something, or has said something.
    pub fn is_up(&self) -> bool {
        self.acknowledged > 0 || self.received > 0
    }

    /// The first number that nothing has.
    fn said(&self) -> Sequence {
        self.acknowledged + self.unacknowledged.len() as u64
    }
}
