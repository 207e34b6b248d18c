//! How far two threads are from each other over loopback TCP.

use crate::cpu;
use crate::crew::{self, CrewMember};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const BATCH: u64 = 200;
const ENOUGH: Duration = Duration::from_millis(20);
type Word = [u8; 8];

/// Two ends of a connection over loopback, which do not wait for company and are not waited for.
///
/// # Errors
/// When the system gives no sockets.
pub fn loopback_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let dialed = TcpStream::connect(listener.local_addr()?)?;
    let (accepted, _) = listener.accept()?;
    for end in [&dialed, &accepted] {
        end.set_nodelay(true)?;
        end.set_nonblocking(true)?;
    }
    Ok((dialed, accepted))
}

/// Two ends of a nonblocking connection of Unix sockets, which are between processes of one machine.
///
/// # Errors
/// When the system gives no sockets.
pub fn unix_pair() -> io::Result<(UnixStream, UnixStream)> {
    let (one, other) = UnixStream::pair()?;
    one.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    Ok((one, other))
}

/// The time for eight bytes to go over loopback TCP from one thread to another and back, in microseconds. Both poll their
/// sockets, pinned to the first two CPUs of the mask; the best batch counts.
///
/// # Errors
/// When the system gives no sockets, or they fail.
pub fn polled_round_trip_us() -> io::Result<f64> {
    let places = cpu::places(2).unwrap_or_else(|_| vec![0, 0]);
    let (dialed, accepted) = loopback_pair()?;
    let ends = [Mutex::new(Some(dialed)), Mutex::new(Some(accepted))];
    let best = crew::run(&places, |member| {
        let end = ends[member.index()].lock().expect("no panic").take();
        let end = end.expect("each member takes its own");
        match member.index() {
            0 => ask(&end),
            _ => answer(member, &end).map(|()| f64::INFINITY),
        }
    });
    best.into_iter().next().expect("the first one measures")
}

/// Stops the other end by shutting down.
fn ask(end: &TcpStream) -> io::Result<f64> {
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    while begin.elapsed() < ENOUGH {
        let start = Instant::now();
        for turn in 0..BATCH {
            (&mut &*end).write_all(&turn.to_le_bytes())?;
            let mut word = Word::default();
            while !poll(end, &mut word)? {}
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / BATCH as f64);
    }
    end.shutdown(std::net::Shutdown::Both)?;
    Ok(best)
}

fn answer(_: &CrewMember<'_>, mut end: &TcpStream) -> io::Result<()> {
    let mut word = Word::default();
    loop {
        match poll(end, &mut word) {
            Ok(true) => end.write_all(&word)?,
            Ok(false) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Whether a word has come. Words are so small that they come whole.
fn poll(mut end: &TcpStream, word: &mut Word) -> io::Result<bool> {
    match end.read(word) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(some) if some == word.len() => Ok(true),
        Ok(_) => Err(ErrorKind::InvalidData.into()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_takes_time() {
        let us = polled_round_trip_us().unwrap();
        assert!(us > 0.0 && us.is_finite());
    }
}
