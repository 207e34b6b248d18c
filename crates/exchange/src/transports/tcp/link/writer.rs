//! Owns what goes on a link, in the order in which it was said. The link calls it, one thread at a
//! time. It never waits for room in the socket.

use crate::transports::tcp::carried::DirectionCount;
use crate::transports::tcp::channel::{ByteChannel, Sleep};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;

/// Frames written with one call.
const WRITTEN_AT_ONCE: usize = 64;

/// What goes on a link, and was not written.
#[derive(Default)]
pub(super) struct Writer {
    /// Parts of frames.
    pub(super) queue: VecDeque<Bytes>,
    /// How much of the first was written.
    pub(super) written: usize,
    /// The socket takes no more: it will say when it does.
    pub(super) is_full: bool,
    /// The helper is woken when the socket takes more: only while something waits for that.
    pub(super) is_awaited: bool,
    /// A small frame was queued since the queue was empty: it may be what somebody waits for.
    pub(super) has_news: bool,
    pub(super) has_ended: bool,
    pub(super) sent: Arc<DirectionCount>,
}

impl Writer {
    /// Writes what the socket takes.
    pub(super) fn write(&mut self, wire: &dyn ByteChannel) -> io::Result<()> {
        while !self.is_full && (!self.queue.is_empty() || wire.holds_back()) {
            let mut slices = [IoSlice::new(&[]); WRITTEN_AT_ONCE];
            let mut count = 0;
            for (slice, frame) in slices.iter_mut().zip(&self.queue) {
                // Only the first frame can have gone out in part.
                let from = if count == 0 { self.written } else { 0 };
                *slice = IoSlice::new(&frame[from..]);
                count += 1;
            }
            let wakes = match self.has_news {
                true => Sleep::Dozes,
                false => Sleep::Sleeps,
            };
            match wire.write(&slices[..count], wakes) {
                Ok(bytes) => self.wrote(bytes),
                // Full until an event, or a thread that polls, says that there is room again.
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_full = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wrote(&mut self, bytes: usize) {
        self.sent.add_bytes(bytes);
        self.written += bytes;
        while let Some(first) = self.queue.front()
            && self.written >= first.len()
        {
            self.written -= first.len();
            self.queue.pop_front();
        }
        self.has_news &= !self.queue.is_empty();
    }
}
