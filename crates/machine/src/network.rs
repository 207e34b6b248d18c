//! What a small message costs over TCP between two threads of this machine, and how fast many bytes flow.

pub mod flow;
pub mod polled;

use crate::measure::Figure;
use crate::{cpu, crew};
use polled::loopback_pair;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

/// About what a frame takes that says a little: its header and some numbers.
pub const MESSAGE_BYTES: usize = 64;

const ROUND_TRIPS: usize = 200;
const BATCHES: usize = 20;
/// Messages under way at once, where several are.
const PIPELINED: usize = 64;

/// What messages of [`MESSAGE_BYTES`] cost over the loopback device, in microseconds: medians of some batches. Not the
/// best: a write costs least when the other end gets no CPU. Both ends poll sockets that do not block.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Loopback {
    /// One message there and back, nothing else under way.
    pub round_trip_us: f64,
    /// The system call that writes one message.
    pub write_us: f64,
    /// Writing one message and reading one answer, one system call each, while many are under way: what a message and its answer take of the
    /// thread that asks.
    pub pipelined_us: f64,
}

/// Measures messages over the loopback device, some 50 ms long, its ends pinned to the first two CPUs of the mask. On a single CPU they take
/// turns, and the figures are those of the turns.
///
/// # Errors
/// When the system gives no sockets, or they fail.
pub fn loopback() -> io::Result<Loopback> {
    let places = cpu::places(2).unwrap_or_else(|_| vec![0, 0]);
    let (near, far) = loopback_pair()?;
    let ends = [Mutex::new(Some(near)), Mutex::new(Some(far))];
    let measured = crew::run(&places, |member| {
        let end = ends[member.index()].lock().expect("no panic").take();
        let mut end = end.expect("each member takes its own");
        match member.index() {
            // The end of this side's messages is the end of the other thread: the socket is closed.
            0 => measure(&mut end).map(Some),
            _ => echo(end).map(|()| None),
        }
    });
    let [near, far] = measured.try_into().expect("two members");
    far?;
    Ok(near?.expect("the first one measures"))
}

fn measure(near: &mut TcpStream) -> io::Result<Loopback> {
    let message = [7; MESSAGE_BYTES];
    let mut answer = [0; MESSAGE_BYTES];
    let (mut round_trip, mut write, mut pipelined) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..ROUND_TRIPS {
            send(near, &message)?;
            receive(near, &mut answer)?;
        }
        round_trip.push(micros(start) / ROUND_TRIPS as f64);
        let start = Instant::now();
        for _ in 0..PIPELINED {
            send(near, &message)?;
        }
        write.push(micros(start) / PIPELINED as f64);
        let start = Instant::now();
        for _ in 0..ROUND_TRIPS {
            receive(near, &mut answer)?;
            send(near, &message)?;
        }
        pipelined.push(micros(start) / ROUND_TRIPS as f64);
        for _ in 0..PIPELINED {
            receive(near, &mut answer)?;
        }
    }
    Ok(Loopback {
        round_trip_us: median(&round_trip),
        write_us: median(&write),
        pipelined_us: median(&pipelined),
    })
}

fn median(samples: &[f64]) -> f64 {
    Figure::of(samples).median
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

/// Sends back each message as it comes, one system call for each way, until there are no more.
fn echo(mut far: TcpStream) -> io::Result<()> {
    let mut message = [0; MESSAGE_BYTES];
    loop {
        match receive(&mut far, &mut message) {
            Ok(()) => send(&mut far, &message)?,
            Err(end) if end.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn send(stream: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn receive(stream: &mut TcpStream, bytes: &mut [u8]) -> io::Result<()> {
    let (mut read, mut polls) = (0, 0u32);
    while read < bytes.len() {
        match stream.read(&mut bytes[read..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => read += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // Where both ends share a CPU, the other has to get it.
                polls += 1;
                if polls.is_multiple_of(64) {
                    thread::yield_now();
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_take_time() {
        let measured = loopback().unwrap();
        assert!(measured.write_us > 0.0);
        assert!(measured.pipelined_us > 0.0);
        assert!(measured.round_trip_us > measured.write_us);
    }
}
