//! One side of TLS on a socket.
//!
//! * Until its handshake is over no more than [`HANDSHAKE_BYTES`] are taken of the other side, in steps of [`STEP_BYTES`]: more than any
//!   certificate of a cluster takes.
//! * What was encrypted goes out before anything else is encrypted, so that at most [`ENCRYPTED_BYTES`] wait here, beside the link's queue.
//! * The end of a connection is no word of TLS. What was cut off is missing in a session of frames, and sent again.

use super::{ByteChannel, STEP_BYTES, Sleep};
use crate::transports::tcp::Lost;
use crate::transports::tcp::stream::SocketStream;
use crate::transports::tls::TlsError;
use brambling_protocol::greeting::{
    Challenge, GreetingError, Listener, begins_greeting, begins_tls, refusal,
};
use rustls::Connection;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What may come of one side before its handshake is over.
const HANDSHAKE_BYTES: usize = 1 << 14;
/// Read with one call after that.
const READ_BYTES: usize = 1 << 16;
/// What is encrypted at once.
const ENCRYPTED_BYTES: usize = 1 << 18;
/// The first byte of whatever TLS sends.
const TLS_KINDS: RangeInclusive<u8> = 0x14..=0x17;

/// What the other side has begun to say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    Nothing,
    Tls,
    /// It speaks without TLS.
    Plainly,
}

/// A socket with TLS on it.
pub(super) struct Encrypted {
    stream: SocketStream,
    session: Mutex<TlsSession>,
}

impl Encrypted {
    pub(super) fn new(stream: SocketStream, session: TlsSession) -> Encrypted {
        let session = Mutex::new(session);
        Encrypted { stream, session }
    }

    fn session(&self) -> MutexGuard<'_, TlsSession> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ByteChannel for Encrypted {
    fn socket(&self) -> &SocketStream {
        &self.stream
    }

    fn read(&self, place: &mut [u8]) -> Result<usize, Lost> {
        self.session().read(&self.stream, place)
    }

    fn write(&self, slices: &[IoSlice<'_>], _wakes: Sleep) -> io::Result<usize> {
        self.session().write(&self.stream, slices)
    }

    fn holds_back(&self) -> bool {
        self.session().connection.wants_write()
    }

    fn is_plain(&self) -> bool {
        self.session().begun == Begun::Nothing
    }
}

/// One side of TLS.
pub(in crate::transports::tcp) struct TlsSession {
    connection: Connection,
    begun: Begun,
    /// What has come, and was not given to the connection: `come[from..to]`.
    come: Vec<u8>,
    from: usize,
    to: usize,
    /// What has come before the handshake was over.
    handshake_bytes: usize,
}

impl TlsSession {
    pub(in crate::transports::tcp) fn new(mut connection: Connection) -> TlsSession {
        connection.set_buffer_limit(Some(ENCRYPTED_BYTES));
        TlsSession {
            connection,
            begun: Begun::Nothing,
            come: vec![0; STEP_BYTES],
            from: 0,
            to: 0,
            handshake_bytes: 0,
        }
    }

    fn read(&mut self, stream: &SocketStream, place: &mut [u8]) -> Result<usize, Lost> {
        loop {
            match self.connection.reader().read(place) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return Ok(done?),
            }
            if self.from == self.to && !self.take(stream)? {
                return Ok(0);
            }
            if self.begun == Begun::Plainly {
                return Err(self.refused(stream)?);
            }
            self.decrypt(stream)?;
        }
    }

    /// Takes bytes off the socket; false: there will be no more.
    fn take(&mut self, mut stream: &SocketStream) -> Result<bool, Lost> {
        let handshakes = self.connection.is_handshaking();
        if !handshakes && self.come.len() < READ_BYTES {
            self.come.resize(READ_BYTES, 0);
        }
        let bytes = stream.read(&mut self.come)?;
        (self.from, self.to) = (0, bytes);
        if bytes > 0 && self.begun == Begun::Nothing {
            self.begin(stream)?;
        }
        if handshakes {
            self.handshake_bytes += bytes;
            if self.handshake_bytes > HANDSHAKE_BYTES {
                return Err(TlsError::TooMuch.into());
            }
        }
        Ok(bytes > 0)
    }

    /// The first bytes tell whether the other side speaks TLS.
    fn begin(&mut self, mut stream: &SocketStream) -> Result<(), Lost> {
        let first = &self.come[..self.to];
        self.begun = match &self.connection {
            Connection::Client(_) if begins_greeting(first) => Begun::Plainly,
            // An alert counts as TLS, too: the connection knows what to do with it.
            Connection::Client(_) if TLS_KINDS.contains(&first[0]) => Begun::Tls,
            Connection::Server(_) if begins_tls(first) => Begun::Tls,
            Connection::Server(_) if begins_greeting(first) => {
                // The answer fits into any socket's buffer; a dialer that does not take it is gone.
                let _ = stream.write(&Listener::tls_needed());
                return Err(GreetingError::TlsNeeded.into());
            }
            _ => return Err(GreetingError::NotBrambling.into()),
        };
        Ok(())
    }

    /// Why whom this side dialed does not speak TLS, once it has said so.
    fn refused(&mut self, mut stream: &SocketStream) -> Result<Lost, Lost> {
        const BYTES: usize = size_of::<Challenge>();
        while self.to < BYTES {
            match stream.read(&mut self.come[self.to..BYTES])? {
                0 => return Ok(GreetingError::NotBrambling.into()),
                bytes => self.to += bytes,
            }
        }
        let challenge = self.come.first_chunk().expect("so many have come");
        Ok(refusal(challenge).into())
    }

    /// Gives the connection some of what has come, and answers what is to be answered.
    fn decrypt(&mut self, stream: &SocketStream) -> Result<(), Lost> {
        let mut rest = &self.come[self.from..self.to];
        let bytes = self.connection.read_tls(&mut rest)?;
        if bytes == 0 {
            // The other side has said that it ends, and yet sends more.
            return Err(Lost::Ended);
        }
        self.from += bytes;
        let done = self.connection.process_new_packets();
        // Flushed even if that failed: the other side is to know why. What the socket does not take
        // now goes later, and the next read shows whether the connection is broken.
        let _ = self.flush(stream);
        done.map(drop).map_err(|error| TlsError::from(error).into())
    }

    fn flush(&mut self, mut stream: &SocketStream) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut stream) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => drop(done?),
            }
        }
        Ok(())
    }

    fn write(&mut self, stream: &SocketStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush(stream)?;
        if slices.is_empty() {
            return Ok(0);
        }
        let bytes = self.connection.writer().write_vectored(slices)?;
        if bytes == 0 && slices.iter().any(|slice| !slice.is_empty()) {
            // Before the handshake is over only so much is kept; no greeting comes near it.
            return Err(ErrorKind::WouldBlock.into());
        }
        match self.flush(stream) {
            // The bytes were taken; the next write shows that the socket is full.
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(bytes),
        }
    }
}
