//! What a link's bytes go through: the socket itself, TLS on it, or memory beside it.
//!
//! A session of TLS is locked for a look at it: encryption is not taken apart by who reads and who writes. Its lock is taken under a link's
//! reader or writer, and nothing is locked under it.

mod memory;
mod session;

pub(super) use session::Session;

use super::Lost;
use super::shared::Sleep;
use super::stream::Stream;
use crate::transports::forks::Own;
use brambling_protocol::greeting::Listener;
use memory::Memory;
use std::io::{self, IoSlice, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Read with one call where nobody has proved anything yet.
const STEP_BYTES: usize = 1 << 12;

/// A socket, and what speaks on it.
pub(super) struct Wire {
    // Before the socket: it is let go while that is open.
    _own: Own,
    pub(super) stream: Stream,
    way: Way,
}

/// How what is said goes.
enum Way {
    /// As it is.
    Plain,
    /// Encrypted.
    Tls(Box<Mutex<Session>>),
    /// As it is, to another process of this machine: through memory, once there is some.
    Memory(Memory),
}

impl Wire {
    pub(super) fn new(stream: Stream, session: Option<Session>) -> Wire {
        let way = match session {
            Some(session) => Way::Tls(Box::new(Mutex::new(session))),
            None if stream.is_local() => Way::Memory(Memory::default()),
            None => Way::Plain,
        };
        let _own = Own::new(&stream);
        Wire { _own, stream, way }
    }

    fn memory(&self) -> Option<&Memory> {
        match &self.way {
            Way::Memory(memory) => Some(memory),
            Way::Plain | Way::Tls(_) => None,
        }
    }

    /// Takes what has come, as a nonblocking socket does.
    pub(super) fn read(&self, place: &mut [u8]) -> Result<usize, Lost> {
        match &self.way {
            Way::Plain => Ok((&self.stream).read(place)?),
            Way::Tls(session) => locked(session).read(&self.stream, place),
            Way::Memory(memory) => Ok(memory.read(&self.stream, place)?),
        }
    }

    /// Writes what the socket takes, as a nonblocking socket does. Nothing to write: what waits in the session.
    pub(super) fn write(&self, slices: &[IoSlice<'_>], wakes: Sleep) -> io::Result<usize> {
        match &self.way {
            Way::Plain => (&self.stream).write_vectored(slices),
            Way::Tls(session) => locked(session).write(&self.stream, slices),
            Way::Memory(memory) => memory.write(&self.stream, slices, wakes),
        }
    }

    /// Whether what was written has not gone out.
    pub(super) fn holds_back(&self) -> bool {
        match &self.way {
            Way::Tls(session) => locked(session).holds_back(),
            Way::Plain | Way::Memory(_) => false,
        }
    }

    /// Takes what the other side said and nobody will read: without that the system breaks the connection off, and our last word may be
    /// lost with it.
    pub(super) fn drain(&self) {
        // Nothing is missed if it fails.
        let _ = (&self.stream).read(&mut [0; STEP_BYTES]);
    }

    /// Tells a dialer, to whom nothing was said yet, that too many others are being greeted. Without TLS, unless it has begun to speak that.
    pub(super) fn turn_away(&self) {
        if let Way::Tls(session) = &self.way
            && locked(session).has_begun()
        {
            return;
        }
        self.drain();
        // It fits into any socket's buffer; who does not take it is gone.
        let _ = (&self.stream).write(&Listener::busy());
    }

    // ---- memory that both sides have

    /// Whether the two sides share memory once they trust each other.
    pub(super) fn may_share(&self) -> bool {
        self.memory().is_some()
    }

    /// Whether they do.
    pub(super) fn is_shared(&self) -> bool {
        self.memory().is_some_and(Memory::is_shared)
    }

    /// Makes memory and passes it on, or says that there is none. Who dialed does so after the greeting, where the two [may
    /// share](Wire::may_share).
    pub(super) fn share(&self) -> io::Result<()> {
        self.memory().map_or(Ok(()), |it| it.share(&self.stream))
    }

    /// Opens what was passed on with this byte.
    pub(super) fn open_shared(&self, byte: u8) -> io::Result<()> {
        self.memory().map_or(Ok(()), |memory| memory.open(byte))
    }

    /// Says that the helper goes to sleep, and is to be woken for what comes through memory; whether something has come already.
    pub(super) fn sleep(&self, how: Sleep) -> bool {
        self.memory().is_some_and(|memory| memory.sleep(how))
    }

    /// The socket has something to say.
    pub(super) fn rung(&self) {
        if let Some(memory) = self.memory() {
            memory.rung();
        }
    }

    /// Takes the bells, if any were rung; whether there may be more to read, and room to write.
    pub(super) fn hear_bells(&self) -> io::Result<bool> {
        self.memory()
            .map_or(Ok(false), |memory| memory.hear_bells(&self.stream))
    }
}

fn locked(session: &Mutex<Session>) -> MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}
