//! A session: frames between two peers survive the connections that carry them.
//!
//! # Rules
//! Each side numbers its frames and keeps them until the other side has acknowledged them. After a
//! reconnection it sends again what was not acknowledged. Frames of several lanes overtake each other, so
//! a receiver takes numbers in any order, remembers those beyond the first gap, and acknowledges up to
//! the gap. A frame is acknowledged only after it was taken: delivered, forwarded or held with room.

use crate::frame::{Body, Frame};
use crate::ids::{Priority, Sequence};
use brambling_memory::mutants;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// How many frames may be without acknowledgement: bounds what a receiver remembers.
pub const UNACKNOWLEDGED_MAX: u64 = 1 << 16;

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
    /// An acknowledgement of a frame that was never sent: the peer speaks of another session.
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
    /// The first number that is missing.
    received: Sequence,
    /// Numbers beyond it that came.
    beyond: BTreeSet<Sequence>,
    /// What the peer was last told.
    told: Sequence,
}

/// A session of whole frames, each kept with its class.
pub type FrameSession = Session<(Priority, Arc<[u8]>)>;

impl FrameSession {
    /// Numbers what is said, keeps the frame until it is acknowledged, and gives its bytes.
    ///
    /// # Panics
    /// As [`Session::send`] and [`Frame::encode`].
    pub fn say(&mut self, priority: Priority, body: &Body<'_>) -> Arc<[u8]> {
        let frame = Frame {
            priority,
            sequence: Some(self.sent()),
            body: body.clone(),
        };
        let bytes = frame.to_bytes();
        self.send((priority, bytes.clone()));
        bytes
    }
}

impl<F> Default for Session<F> {
    fn default() -> Self {
        Session {
            unacknowledged: VecDeque::new(),
            acknowledged: 0,
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

    /// Whether one more frame may be sent before an acknowledgement.
    pub fn has_room(&self) -> bool {
        (self.unacknowledged.len() as u64) < UNACKNOWLEDGED_MAX
    }

    /// Numbers a frame and keeps it until it is acknowledged.
    ///
    /// # Panics
    /// If there is no room.
    pub fn send(&mut self, frame: F) -> Sequence {
        assert!(self.has_room(), "the sender asks for room first");
        let sequence = self.sent();
        self.unacknowledged.push_back(frame);
        sequence
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
        if sequence - received >= UNACKNOWLEDGED_MAX {
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

    /// The peer has every frame before `received`: they are dropped here.
    ///
    /// Insensitive to order and repetition.
    pub fn on_ack(&mut self, received: Sequence) -> Result<(), SessionError> {
        let sent = self.sent();
        if received > sent {
            return Err(SessionError::NeverSent { received, sent });
        }
        while self.acknowledged < received {
            self.unacknowledged.pop_front();
            self.acknowledged += 1;
        }
        Ok(())
    }

    /// A new connection, on which the peer says that it has every frame before `received`: returns what
    /// has to be sent again.
    pub fn on_reconnect(
        &mut self,
        received: Sequence,
    ) -> Result<impl Iterator<Item = (Sequence, &F)>, SessionError> {
        self.on_ack(received)?;
        let again = !mutants::is_on("session-forgets-on-reconnect");
        Ok((self.acknowledged..)
            .zip(&self.unacknowledged)
            .filter(move |_| again))
    }

    /// Whether all that was sent is acknowledged: a worker that leaves waits for this.
    pub fn is_settled(&self) -> bool {
        self.unacknowledged.is_empty()
    }

    fn sent(&self) -> Sequence {
        self.acknowledged + self.unacknowledged.len() as u64
    }
}
