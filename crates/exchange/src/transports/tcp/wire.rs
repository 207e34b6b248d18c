//! What a link's bytes go through: the socket itself, or TLS on it.
//!
//! # Under TLS
//! * A session is locked for a look at it: encryption is not taken apart by who reads and who writes. Its lock is taken under a link's
//!   reader or writer, and nothing is locked under it.
//! * Until its handshake is over no more than [`HANDSHAKE_BYTES`] are taken of the other side, in steps of [`STEP_BYTES`]: more than any
//!   certificate of a cluster takes.
//! * What was encrypted goes out before anything else is encrypted, so that at most [`ENCRYPTED_BYTES`] wait here, beside the link's queue.
//! * The end of a connection is no word of TLS. What was cut off is missing in a session of frames, and sent again.

use super::Lost;
use super::shared::{Moved, Shared, Sleep};
use super::stream::Stream;
use crate::transports::tls::TlsError;
use brambling_protocol::greeting::{
    Challenge, GreetingError, Listener, begins_greeting, begins_tls, refusal,
};
use rustls::Connection;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What may come of one side before its handshake is over.
const HANDSHAKE_BYTES: usize = 1 << 14;
/// Read with one call until then.
const STEP_BYTES: usize = 1 << 12;
/// Read with one call after that.
const READ_BYTES: usize = 1 << 16;
/// What is encrypted at once.
const ENCRYPTED_BYTES: usize = 1 << 18;
/// The first byte of whatever TLS sends.
const TLS_KINDS: RangeInclusive<u8> = 0x14..=0x17;

/// A socket, and what speaks on it.
pub(super) struct Wire {
    pub(super) stream: Stream,
    /// None: what is said goes as it is.
    session: Option<Box<Mutex<Session>>>,
    /// Memory that both sides have: what is said goes through it, and the socket only wakes.
    shared: OnceLock<Shared>,
    /// What came with the last byte before that.
    passed: Mutex<Option<OwnedFd>>,
    /// The socket has something to say that was not read: a bell, or its end.
    is_rung: AtomicBool,
    /// The other side has closed the socket: what is in the memory is the last.
    has_ended: AtomicBool,
}

/// What is said over a Unix socket after the greeting: that memory comes with it.
const SHARES: u8 = 1;
/// Or that there is none, and everything goes over the socket.
const SHARES_NOTHING: u8 = 0;
/// Bells read with one call.
const BELLS: usize = 64;

impl Wire {
    pub(super) fn new(stream: Stream, session: Option<Session>) -> Wire {
        let session = session.map(|session| Box::new(Mutex::new(session)));
        Wire {
            stream,
            session,
            shared: OnceLock::new(),
            passed: Mutex::new(None),
            is_rung: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Takes what has come, as a nonblocking socket does.
    pub(super) fn read(&self, place: &mut [u8]) -> Result<usize, Lost> {
        if let Some(session) = &self.session {
            return locked(session).read(&self.stream, place);
        }
        match self.shared.get() {
            Some(shared) => Ok(self.read_shared(shared, place)?),
            None if !self.stream.passes_files() => Ok((&self.stream).read(place)?),
            None => {
                let (bytes, file) = self.stream.read_passed(place)?;
                if file.is_some() {
                    *self.passed() = file;
                }
                Ok(bytes)
            }
        }
    }

    fn passed(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_shared(&self, shared: &Shared, place: &mut [u8]) -> io::Result<usize> {
        // Asked first: what was written before the end is there now.
        let has_ended = self.has_ended.load(Ordering::Acquire);
        let Moved { bytes, rings } = shared.read(place)?;
        if rings {
            self.ring();
        }
        match bytes {
            0 if !has_ended => Err(ErrorKind::WouldBlock.into()),
            bytes => Ok(bytes),
        }
    }

    /// Takes the bells, if any were rung; whether there may be more to read, and room to write.
    pub(super) fn hear_bells(&self) -> io::Result<bool> {
        if !self.is_rung.swap(false, Ordering::AcqRel) || !self.is_shared() {
            return Ok(false);
        }
        let mut bells = [0; BELLS];
        loop {
            match (&self.stream).read(&mut bells) {
                Ok(0) => {
                    self.has_ended.store(true, Ordering::Release);
                    return Ok(true);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The socket has something to say.
    pub(super) fn rung(&self) {
        self.is_rung.store(true, Ordering::Release);
    }

    /// Wakes the other side's helper. A socket that takes no more bells wakes it without; that it is broken shows when it is read.
    fn ring(&self) {
        let _ = (&self.stream).write(&[0]);
    }

    /// Writes what the socket takes, as a nonblocking socket does. Nothing to write: what waits in the session.
    pub(super) fn write(&self, slices: &[IoSlice<'_>], wakes: Sleep) -> io::Result<usize> {
        if let Some(session) = &self.session {
            return locked(session).write(&self.stream, slices);
        }
        let Some(shared) = self.shared.get() else {
            return (&self.stream).write_vectored(slices);
        };
        let Moved { bytes, rings } = shared.write(slices, wakes)?;
        if rings {
            self.ring();
        }
        match bytes {
            0 => Err(ErrorKind::WouldBlock.into()),
            bytes => Ok(bytes),
        }
    }

    // ---- memory that both sides have

    /// Whether the two sides share memory once they trust each other.
    pub(super) fn may_share(&self) -> bool {
        self.session.is_none() && self.stream.passes_files()
    }

    /// Whether they do.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.get().is_some()
    }

    /// Makes memory and passes it on, or says that there is none. Who dialed does so after the greeting.
    pub(super) fn share(&self) -> io::Result<()> {
        let Ok((shared, file)) = Shared::make() else {
            return self.stream.pass(SHARES_NOTHING, None);
        };
        self.stream.pass(SHARES, Some(file.as_fd()))?;
        let is_new = self.shared.set(shared).is_ok();
        assert!(is_new, "made once");
        Ok(())
    }

    /// Opens what was passed on with this byte.
    pub(super) fn open_shared(&self, byte: u8) -> io::Result<()> {
        let file = self.passed().take();
        let shared = match (byte, file) {
            (SHARES, Some(file)) => Shared::open(&file)?,
            (SHARES_NOTHING, None) => return Ok(()),
            _ => {
                let why = "the other process does not say how it shares memory";
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
        };
        let is_new = self.shared.set(shared).is_ok();
        assert!(is_new, "opened once");
        Ok(())
    }

    /// Says that the helper goes to sleep, and is to be woken for what comes through memory; whether something has come already.
    pub(super) fn sleep(&self, how: Sleep) -> bool {
        self.shared.get().is_some_and(|shared| shared.sleep(how))
    }

    /// Whether what was written has not gone out.
    pub(super) fn holds_back(&self) -> bool {
        let holds = |session: &Mutex<Session>| locked(session).connection.wants_write();
        self.session.as_deref().is_some_and(holds)
    }

    /// Takes what the other side said and nobody will read: without that the system breaks the connection off, and our last word may be
    /// lost with it.
    pub(super) fn drain(&self) {
        // Nothing is missed if it fails.
        let _ = (&self.stream).read(&mut [0; STEP_BYTES]);
    }
}

fn locked(session: &Mutex<Session>) -> MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the other side has begun to say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    Nothing,
    Tls,
    /// It speaks without TLS.
    Plainly,
}

/// One side of TLS.
pub(super) struct Session {
    connection: Connection,
    begun: Begun,
    /// What has come, and was not given to the connection: `come[from..to]`.
    come: Vec<u8>,
    from: usize,
    to: usize,
    /// What has come before the handshake was over.
    handshake_bytes: usize,
}

impl Session {
    pub(super) fn new(mut connection: Connection) -> Session {
        connection.set_buffer_limit(Some(ENCRYPTED_BYTES));
        Session {
            connection,
            begun: Begun::Nothing,
            come: vec![0; STEP_BYTES],
            from: 0,
            to: 0,
            handshake_bytes: 0,
        }
    }

    fn read(&mut self, stream: &Stream, place: &mut [u8]) -> Result<usize, Lost> {
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
    fn take(&mut self, mut stream: &Stream) -> Result<bool, Lost> {
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
    fn begin(&mut self, mut stream: &Stream) -> Result<(), Lost> {
        let first = &self.come[..self.to];
        self.begun = match &self.connection {
            Connection::Client(_) if begins_greeting(first) => Begun::Plainly,
            // Also an alert: the connection knows what to make of it.
            Connection::Client(_) if TLS_KINDS.contains(&first[0]) => Begun::Tls,
            Connection::Server(_) if begins_tls(first) => Begun::Tls,
            Connection::Server(_) if begins_greeting(first) => {
                // It fits into any socket's buffer; who does not take it is gone.
                let _ = stream.write(&Listener::tls_needed());
                return Err(GreetingError::TlsNeeded.into());
            }
            _ => return Err(GreetingError::NotBrambling.into()),
        };
        Ok(())
    }

    /// Why whom this side dialed does not speak TLS, once it has said so.
    fn refused(&mut self, mut stream: &Stream) -> Result<Lost, Lost> {
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
    fn decrypt(&mut self, stream: &Stream) -> Result<(), Lost> {
        let mut rest = &self.come[self.from..self.to];
        let bytes = self.connection.read_tls(&mut rest)?;
        if bytes == 0 {
            // It has said that it ends, and goes on.
            return Err(Lost::Ended);
        }
        self.from += bytes;
        let done = self.connection.process_new_packets();
        // Also when that failed: the other side is to know why. What does not go now goes when the socket takes more, and that the
        // connection is broken shows when it is read.
        let _ = self.flush(stream);
        done.map(drop).map_err(|error| TlsError::from(error).into())
    }

    fn flush(&mut self, mut stream: &Stream) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut stream) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => drop(done?),
            }
        }
        Ok(())
    }

    fn write(&mut self, stream: &Stream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush(stream)?;
        if slices.is_empty() {
            return Ok(0);
        }
        let bytes = self.connection.writer().write_vectored(slices)?;
        if bytes == 0 && slices.iter().any(|slice| !slice.is_empty()) {
            // Before the handshake is over no more is kept than this, which no greeting comes near.
            return Err(ErrorKind::WouldBlock.into());
        }
        match self.flush(stream) {
            // It was taken; that the socket is full shows when it is given more.
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(bytes),
        }
    }
}
