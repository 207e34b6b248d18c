//! What has gone over links: counted by whoever writes or reads them, for whoever looks now and then.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// What has gone over the links of a net since it began, those that have ended included. Only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Bytes that sockets have taken, greetings among them.
    pub sent_bytes: u64,
    /// Frames that open links were given, whether or not they arrived.
    pub sent_frames: u64,
    /// Bytes that have come, greetings among them.
    pub received_bytes: u64,
    /// Whole frames that have come.
    pub received_frames: u64,
}

impl AddAssign for Carried {
    fn add_assign(&mut self, more: Carried) {
        self.sent_bytes += more.sent_bytes;
        self.sent_frames += more.sent_frames;
        self.received_bytes += more.received_bytes;
        self.received_frames += more.received_frames;
    }
}

/// One direction of a link. Written by whoever has the lock of that direction, and nobody else: no exchange is atomic.
#[derive(Default)]
pub(super) struct DirectionCount {
    bytes: AtomicU64,
    frames: AtomicU64,
}

impl DirectionCount {
    pub(super) fn add_bytes(&self, more: usize) {
        add(&self.bytes, more as u64);
    }

    pub(super) fn add_frames(&self, more: u64) {
        add(&self.frames, more);
    }
}

/// Both directions of a link.
pub(super) fn both(sent: &DirectionCount, received: &DirectionCount) -> Carried {
    Carried {
        sent_bytes: sent.bytes.load(Ordering::Relaxed),
        sent_frames: sent.frames.load(Ordering::Relaxed),
        received_bytes: received.bytes.load(Ordering::Relaxed),
        received_frames: received.frames.load(Ordering::Relaxed),
    }
}

fn add(counter: &AtomicU64, more: u64) {
    let before = counter.load(Ordering::Relaxed);
    // A load and a store do: each direction has a lock, so one thread at a time counts.
    counter.store(before.wrapping_add(more), Ordering::Relaxed);
}
