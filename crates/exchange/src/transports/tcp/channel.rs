//! What carries a link's bytes: a socket alone, TLS on it, or memory beside it.
//!
//! A link speaks to a [`ByteChannel`] and knows none by its name; which one serves it is found when it begins ([`LinkChannel::new`]). The socket is there in any case: it
//! is watched, says that the connection has ended, and wakes whoever sleeps.
//!
//! # Rules
//! * A channel reads and writes as a nonblocking socket does. One thread at a time reads, and one writes; anybody may ask the rest.
//! * Until both sides have proved that they know the token, all that is said goes over the socket. If a channel [`agrees`](ByteChannel::agrees), who
//!   dialed says one more byte then, and from the next one on the two may use what they have agreed on.
//! * What does not go over the socket wakes by a bell: something to read there, which [`hear`](ByteChannel::hear) takes.
//! * A session of TLS is locked for a look at it: encryption is not taken apart by who reads and who writes. A channel's locks are taken under a
//!   link's reader or writer, and nothing is locked under them.

mod memory;
mod tls_session;

pub(super) use tls_session::TlsSession;

use super::Lost;
use super::stream::SocketStream;
use crate::transports::forks::Own;
use brambling_memory::{Budget, held};
use brambling_protocol::greeting::Listener;
use memory::SharedMemoryChannel;
use std::io::{self, IoSlice, Read, Write};
use std::ops::Deref;
use tls_session::Encrypted;

/// Read with one call where nobody has proved anything yet.
const STEP_BYTES: usize = 1 << 12;

/// How deep whoever reads sleeps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum Sleep {
    /// Others look now and then: only news wakes.
    Dozes = 1,
    /// Nobody looks: whatever comes wakes.
    Sleeps = 2,
}

/// What a link needs of what carries its bytes.
pub(super) trait ByteChannel: Send + Sync {
    /// Its socket.
    fn socket(&self) -> &SocketStream;

    /// Takes what has come; no bytes: nothing comes any more.
    ///
    /// # Errors
    /// As of a nonblocking socket, or why the other side is not heard.
    fn read(&self, place: &mut [u8]) -> Result<usize, Lost>;

    /// Writes what there is room for, and wakes whoever sleeps at least so deep. Nothing to write: what it [holds back](ByteChannel::holds_back).
    ///
    /// # Errors
    /// As of a nonblocking socket.
    fn write(&self, slices: &[IoSlice<'_>], wakes: Sleep) -> io::Result<usize>;

    /// Whether what was written has not gone out.
    fn holds_back(&self) -> bool {
        false
    }

    /// Whether the other side, to whom nothing was said yet, understands what goes over the socket as it is.
    fn is_plain(&self) -> bool {
        true
    }

    /// Whether the two sides agree on something once they trust each other: see [`offer`](ByteChannel::offer).
    fn agrees(&self) -> bool {
        false
    }

    /// Says with one byte over the socket what the two are to use from now on. Who dialed does so, if both sides [agree](ByteChannel::agrees).
    ///
    /// # Errors
    /// As of a nonblocking socket.
    fn offer(&self) -> io::Result<()> {
        Ok(())
    }

    /// Takes up what was offered with this byte.
    ///
    /// # Errors
    /// When nobody offers that who is honest, or the system has no room for it.
    fn accept(&self, _byte: u8) -> io::Result<()> {
        Ok(())
    }

    /// Whether a bell tells that there is room again. Otherwise the socket is watched for that.
    fn rings_for_room(&self) -> bool {
        false
    }

    /// Whoever reads goes to sleep, and is to be woken for what comes; whether something has come that no bell will tell of.
    fn sleep(&self, _how: Sleep) -> bool {
        false
    }

    /// The socket has something to say: a bell may be among it.
    fn rung(&self) {}

    /// Takes the bells, if any were rung; whether there may be more to read, and room to write.
    ///
    /// # Errors
    /// When the socket is broken.
    fn hear(&self) -> io::Result<bool> {
        Ok(false)
    }
}

/// A socket alone: all goes over it as it is said.
struct Bare(SocketStream);

impl ByteChannel for Bare {
    fn socket(&self) -> &SocketStream {
        &self.0
    }

    fn read(&self, place: &mut [u8]) -> Result<usize, Lost> {
        held::forbid("a socket is read");
        Ok({ &self.0 }.read(place)?)
    }

    fn write(&self, slices: &[IoSlice<'_>], _wakes: Sleep) -> io::Result<usize> {
        held::forbid("a socket is written");
        { &self.0 }.write_vectored(slices)
    }
}

/// A link's channel, whose socket is not for processes that this one forks.
pub(super) struct LinkChannel {
    // Declared before the socket, so that it is dropped while the socket is open.
    _own: Own,
    carrier: Box<dyn ByteChannel>,
}

impl LinkChannel {
    pub(super) fn new(
        stream: SocketStream,
        session: Option<TlsSession>,
        budget: &Budget,
    ) -> LinkChannel {
        match session {
            Some(session) => LinkChannel::of(Encrypted::new(stream, session)),
            // A channel for shared memory: it uses the socket until both sides have memory to
            // share, and only without TLS, since both have to trust each other.
            None if stream.is_local() => {
                LinkChannel::of(SharedMemoryChannel::beside(stream, budget))
            }
            None => LinkChannel::of(Bare(stream)),
        }
    }

    pub(super) fn of(carrier: impl ByteChannel + 'static) -> LinkChannel {
        LinkChannel {
            _own: Own::new(carrier.socket()),
            carrier: Box::new(carrier),
        }
    }

    /// Takes what the other side said and nobody will read: without that the system breaks the connection off, and our last word may be
    /// lost with it.
    pub(super) fn drain(&self) {
        // Nothing is lost if the read fails.
        let _ = self.socket().read(&mut [0; STEP_BYTES]);
    }

    /// Tells a dialer, to whom nothing was said yet, that too many others are being greeted. Without TLS, unless it has begun to speak that.
    pub(super) fn turn_away(&self) {
        if !self.is_plain() {
            return;
        }
        self.drain();
        // The answer fits into any socket's buffer; a dialer that does not take it is gone.
        let _ = self.socket().write(&Listener::busy());
    }
}

impl Deref for LinkChannel {
    type Target = dyn ByteChannel;

    fn deref(&self) -> &Self::Target {
        &*self.carrier
    }
}
