//! How many bytes flow over a TCP connection: one end writes for a time, the other counts.
//!
//! The rate is the receiver's, which counts from the end of a warm-up to the end of the flow: what is under way between the two is not
//! counted as if it had come. The loops know nothing of who may connect; whoever listens for others greets them first.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Written and read with one call: as iperf3 does.
pub const BLOCK_BYTES: usize = 128 << 10;

/// What of a flow's beginning is not counted: its window opens.
const WARM_UP: Duration = Duration::from_millis(100);

/// What the receiver of a flow has counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountedFlow {
    /// Bytes that came after the warm-up.
    pub bytes: u64,
    /// In this time.
    pub seconds: f64,
}

impl CountedFlow {
    /// Bytes per second; none where nothing came after the warm-up.
    pub fn bytes_per_s(self) -> Option<f64> {
        (self.bytes > 0 && self.seconds > 0.0).then(|| self.bytes as f64 / self.seconds)
    }
}

/// Writes to a connection that blocks, for some time, and ends its direction.
///
/// # Errors
/// When the connection breaks.
pub fn send_for(stream: &mut TcpStream, time: Duration) -> io::Result<()> {
    let block = vec![0x5a; BLOCK_BYTES];
    let begin = Instant::now();
    while begin.elapsed() < time {
        stream.write_all(&block)?;
    }
    stream.shutdown(Shutdown::Write)
}

/// Reads from a connection that blocks until its other end has said all.
///
/// # Errors
/// When the connection breaks.
pub fn receive_all(stream: &mut TcpStream) -> io::Result<CountedFlow> {
    let mut block = vec![0; BLOCK_BYTES];
    let begin = Instant::now();
    let (mut counts_since, mut bytes, mut last) = (None, 0, begin);
    loop {
        let read = match stream.read(&mut block) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        last = Instant::now();
        match counts_since {
            Some(_) => bytes += read as u64,
            None if last - begin >= WARM_UP => counts_since = Some(last),
            None => {}
        }
    }
    let seconds = counts_since.map_or(0.0, |since| (last - since).as_secs_f64());
    Ok(CountedFlow { bytes, seconds })
}

/// The congestion control that the system uses for a connection, such as "cubic".
///
/// # Errors
/// When the system does not tell.
pub fn congestion_control(stream: &TcpStream) -> io::Result<String> {
    Ok(rustix::net::sockopt::tcp_congestion(stream)?)
}

/// What [`loopback_flows`] has found.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopbackFlows {
    /// Of all flows together.
    pub bytes_per_s: f64,
    /// As [`congestion_control`] says.
    pub congestion: String,
}

/// How many bytes per second so many flows at once carry over the loopback device, each with a thread at either end. The threads are not
/// pinned: the system places them, as it does those of any two processes.
///
/// # Errors
/// When the system gives no sockets, or they fail.
pub fn loopback_flows(flows: usize, time: Duration) -> io::Result<LoopbackFlows> {
    let mut ends = Vec::new();
    for _ in 0..flows {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let dialed = TcpStream::connect(listener.local_addr()?)?;
        ends.push((dialed, listener.accept()?.0));
    }
    let first = ends.first().ok_or(ErrorKind::InvalidInput)?;
    let congestion = congestion_control(&first.0)?;
    let carried = thread::scope(|scope| {
        let carry = |(mut from, mut to): (TcpStream, TcpStream)| {
            let sends = scope.spawn(move || send_for(&mut from, time));
            let counts = scope.spawn(move || receive_all(&mut to));
            (sends, counts)
        };
        let threads: Vec<_> = ends.into_iter().map(carry).collect();
        let mut bytes_per_s = 0.0;
        for (sends, counts) in threads {
            sends.join().expect("sending does not panic")?;
            let flow = counts.join().expect("counting does not panic")?;
            bytes_per_s += flow.bytes_per_s().ok_or(ErrorKind::TimedOut)?;
        }
        Ok::<f64, io::Error>(bytes_per_s)
    })?;
    Ok(LoopbackFlows {
        bytes_per_s: carried,
        congestion,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_over_loopback_have_a_rate_and_a_congestion_control() {
        let found = loopback_flows(2, Duration::from_millis(250)).unwrap();
        assert!(found.bytes_per_s > 1e6, "{found:?}");
        assert!(!found.congestion.is_empty());
    }

    #[test]
    fn a_flow_that_ends_in_its_warm_up_has_no_rate() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut dialed = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut accepted = listener.accept().unwrap().0;
        let counts = thread::spawn(move || receive_all(&mut accepted));
        send_for(&mut dialed, WARM_UP / 10).unwrap();
        let flow = counts.join().unwrap().unwrap();
        assert_eq!(flow.bytes_per_s(), None);
    }
}
