//! Pieces over bare sockets: two threads, each of which sends the other a piece and reads the one that comes, turn after turn.

use brambling_machine::crew::{self, CrewMember};
use brambling_machine::network::polled::{loopback_pair, unix_pair};
use std::hint::black_box;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Mutex;
use std::time::Instant;

/// Which sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP on loopback.
    Tcp,
    /// Unix sockets, which are between processes of one machine.
    Unix,
}

/// How much goes with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOnce {
    /// As much as the socket takes, as much as it has, in turn.
    Whole,
    /// At most 64 KB: what is copied is still in the cache when it is read.
    Cached,
    /// At most 256 KB.
    Halfway,
}

/// A way to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop(pub Kind, pub AtOnce);

impl Loop {
    /// All of them with these sockets.
    pub const fn all(kind: Kind) -> [Loop; 3] {
        let [whole, cached, halfway] = [AtOnce::Whole, AtOnce::Cached, AtOnce::Halfway];
        [Loop(kind, whole), Loop(kind, cached), Loop(kind, halfway)]
    }

    /// Its stable name.
    pub fn name(self) -> &'static str {
        match self {
            Loop(Kind::Tcp, AtOnce::Whole) => "tcp-whole",
            Loop(Kind::Tcp, AtOnce::Cached) => "tcp-64k",
            Loop(Kind::Tcp, AtOnce::Halfway) => "tcp-256k",
            Loop(Kind::Unix, AtOnce::Whole) => "unix-whole",
            Loop(Kind::Unix, AtOnce::Cached) => "unix-64k",
            Loop(Kind::Unix, AtOnce::Halfway) => "unix-256k",
        }
    }

    fn at_once(self) -> usize {
        match self.1 {
            AtOnce::Whole => usize::MAX,
            AtOnce::Cached => 64 << 10,
            AtOnce::Halfway => 256 << 10,
        }
    }
}

/// Seconds of a turn: pieces of so many bytes both ways, added up by the receiver.
///
/// # Errors
/// When the system gives no sockets, or they fail.
pub fn exchange(how: Loop, places: &[usize], message_bytes: usize, turns: u64) -> io::Result<f64> {
    match how.0 {
        Kind::Tcp => {
            let (one, other) = loopback_pair()?;
            between(one, other, how, places, message_bytes, turns)
        }
        Kind::Unix => {
            let (one, other) = unix_pair()?;
            between(one, other, how, places, message_bytes, turns)
        }
    }
}

fn between<S: Send>(
    one: S,
    other: S,
    how: Loop,
    places: &[usize],
    message_bytes: usize,
    turns: u64,
) -> io::Result<f64>
where
    for<'a> &'a S: Read + Write,
{
    let ends = [Mutex::new(Some(one)), Mutex::new(Some(other))];
    let places: Vec<usize> = places.iter().copied().cycle().take(2).collect();
    let took = crew::run(&places, |member| {
        let end = ends[member.index()].lock().expect("no panic").take();
        turn_by_turn(
            member,
            how,
            &end.expect("each takes its own"),
            message_bytes,
            turns,
        )
    });
    took.into_iter().next().expect("there are two")
}

fn turn_by_turn<S>(
    member: &CrewMember<'_>,
    how: Loop,
    end: &S,
    message_bytes: usize,
    turns: u64,
) -> io::Result<f64>
where
    for<'a> &'a S: Read + Write,
{
    let words = message_bytes / size_of::<f64>();
    let ours: Vec<u8> = std::iter::repeat_n(1.0f64.to_le_bytes(), words)
        .flatten()
        .collect();
    let mut theirs = vec![0u8; ours.len()];
    let mut sum = 0.0;
    member.barrier();
    let begin = Instant::now();
    for _ in 0..turns {
        swap(how, end, &ours, &mut theirs)?;
        sum += black_box(add_up(black_box(&theirs)));
    }
    let took = begin.elapsed();
    member.barrier();
    assert_eq!(sum, (turns * words as u64) as f64, "all of it has come");
    Ok(took.as_secs_f64() / turns as f64)
}

fn swap<S>(how: Loop, mut end: &S, ours: &[u8], theirs: &mut [u8]) -> io::Result<()>
where
    for<'a> &'a S: Read + Write,
{
    let (mut sent, mut come) = (0, 0);
    let at_once = how.at_once();
    let none = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock => Ok(0),
        _ => Err(error),
    };
    while sent < ours.len() || come < theirs.len() {
        if sent < ours.len() {
            let until = ours.len().min(sent.saturating_add(at_once));
            sent += end.write(&ours[sent..until]).or_else(none)?;
        }
        if come < theirs.len() {
            let until = theirs.len().min(come.saturating_add(at_once));
            come += end.read(&mut theirs[come..until]).or_else(none)?;
        }
    }
    Ok(())
}

/// Many sums at once, so that additions do not wait for each other.
fn add_up(bytes: &[u8]) -> f64 {
    let mut sums = [0.0f64; 16];
    let (lines, rest) = bytes.as_chunks::<128>();
    for line in lines {
        let (words, _) = line.as_chunks::<8>();
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum += f64::from_le_bytes(*word);
        }
    }
    let (rest, _) = rest.as_chunks::<8>();
    let rest: f64 = rest.iter().map(|word| f64::from_le_bytes(*word)).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_come_whole() {
        for how in [Kind::Tcp, Kind::Unix].map(Loop::all).into_iter().flatten() {
            for message_bytes in [8, 1_024, 1 << 20] {
                let seconds = exchange(how, &[0, 1], message_bytes, 3).unwrap();
                assert!(seconds > 0.0);
            }
        }
    }
}
