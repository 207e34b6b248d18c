//! The greeting of [`brambling_protocol::greeting`] on a socket that blocks.

use super::GREETING_TIME;
use crate::cluster::wire::random;
use brambling_protocol::greeting::{
    Answer, Challenge, Dialer, GreetingError, Listener, Opening, Token, Verdict,
};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// Why two sides do not talk.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unmet {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Greeting(#[from] GreetingError),
}

/// Connects, and proves to each side that the other knows the token.
pub(super) fn dial(to: SocketAddr, token: &Token) -> Result<TcpStream, Unmet> {
    let mut stream = TcpStream::connect_timeout(&to, GREETING_TIME)?;
    stream.set_nodelay(true)?;
    let until = Instant::now() + GREETING_TIME;
    let (dialer, opening) = Dialer::new(token.clone(), random()?);
    stream.write_all(&opening)?;
    let challenge: Challenge = message(&mut stream, until)?;
    stream.write_all(&dialer.on_challenge(&challenge)?)?;
    let verdict: Verdict = message(&mut stream, until)?;
    dialer.on_verdict(&verdict)?;
    Ok(stream)
}

/// Takes whoever knows the token.
pub(super) fn welcome(stream: &mut TcpStream, token: &Token) -> Result<(), Unmet> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(GREETING_TIME))?;
    let until = Instant::now() + GREETING_TIME;
    let opening: Opening = message(stream, until)?;
    let listener = match Listener::on_opening(token.clone(), &opening, random()?) {
        Ok((listener, challenge)) => {
            stream.write_all(&challenge)?;
            listener
        }
        Err((error, refusal)) => {
            // Whoever is not told finds the connection closed.
            let _ = refusal.map(|it| stream.write_all(&it));
            return Err(error.into());
        }
    };
    let answer: Answer = message(stream, until)?;
    let (verdict, is_in) = listener.on_answer(&answer);
    stream.write_all(&verdict)?;
    Ok(is_in?)
}

/// Tells a dialer that too many others are here.
pub(super) fn turn_away(stream: &mut TcpStream) {
    // A dialer that does not take it finds the connection closed.
    let _ = stream.set_nonblocking(true);
    let _ = stream.write_all(&Listener::busy());
}

/// A message of the greeting, in the time that is left for all of them.
fn message<const BYTES: usize>(stream: &mut TcpStream, until: Instant) -> io::Result<[u8; BYTES]> {
    let mut message = [0; BYTES];
    let mut read = 0;
    while read < BYTES {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut message[read..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => read += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(message)
}
