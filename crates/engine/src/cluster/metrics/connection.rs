//! One connection: a request comes, an answer goes, and the other end closes.

use brambling_exchange::transports::forks::Own;
use bytes::{Buf, Bytes};
use mio::net::TcpStream;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Instant;

/// What is read of a connection with one call.
const READ_BYTES: usize = 1 << 12;
/// What may come after the request before the connection is cut.
const AFTERWARDS_MAX: usize = 1 << 16;

/// A connection, and how far it is.
pub(super) struct Connection {
    // Before the socket: it is let go while that is open.
    _own: Own,
    stream: TcpStream,
    /// When it is cut, however far it is.
    pub(super) deadline: Instant,
    state: ConnectionState,
}

enum ConnectionState {
    /// What has come of the request.
    Reads(Vec<u8>),
    /// What is to go.
    Writes([Bytes; 2]),
    /// The answer has gone: so many bytes came since then. To close before the other end does, with bytes of its that nobody has
    /// read, would take the answer from it.
    Drains(usize),
}

/// What becomes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionStep {
    /// It waits for its other end.
    Waits,
    Closes,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, deadline: Instant) -> Connection {
        Connection {
            _own: Own::new(&stream),
            stream,
            deadline,
            state: ConnectionState::Reads(Vec::new()),
        }
    }

    /// Goes as far as the socket lets it. `answer` gives what is to be said to what has come, once that is clear.
    pub(super) fn go_on(
        &mut self,
        mut answer: impl FnMut(&[u8]) -> Option<[Bytes; 2]>,
    ) -> ConnectionStep {
        loop {
            let gone = match &mut self.state {
                ConnectionState::Reads(come) => read(&mut self.stream, come, &mut answer),
                ConnectionState::Writes(parts) => write(&mut self.stream, parts),
                ConnectionState::Drains(bytes) => drain(&mut self.stream, bytes),
            };
            match gone {
                Ok(Some(next)) => self.state = next,
                Ok(None) => return ConnectionStep::Closes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return ConnectionStep::Waits;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // It is broken, and its other end knows.
                Err(_) => return ConnectionStep::Closes,
            }
        }
    }
}

/// The next state; none: it is over.
type Gone = io::Result<Option<ConnectionState>>;

fn read(
    stream: &mut TcpStream,
    come: &mut Vec<u8>,
    answer: &mut impl FnMut(&[u8]) -> Option<[Bytes; 2]>,
) -> Gone {
    let mut room = [0; READ_BYTES];
    loop {
        let bytes = stream.read(&mut room)?;
        if bytes == 0 {
            return Ok(None);
        }
        come.extend_from_slice(&room[..bytes]);
        if let Some(parts) = answer(come) {
            return Ok(Some(ConnectionState::Writes(parts)));
        }
    }
}

fn write(stream: &mut TcpStream, parts: &mut [Bytes; 2]) -> Gone {
    for part in parts {
        while !part.is_empty() {
            match stream.write(part)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                bytes => part.advance(bytes),
            }
        }
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(Some(ConnectionState::Drains(0)))
}

fn drain(stream: &mut TcpStream, come: &mut usize) -> Gone {
    let mut room = [0; READ_BYTES];
    while *come < AFTERWARDS_MAX {
        match stream.read(&mut room)? {
            0 => break,
            bytes => *come += bytes,
        }
    }
    Ok(None)
}
