//! Serves metrics by HTTP: one thread with nonblocking sockets, which waits for nobody.
//!
//! # Rules
//! * A connection is for one request, whose head has [`HEAD_BYTES_MAX`](super::request::HEAD_BYTES_MAX) bytes at most, and is cut
//!   [`CONNECTION_TIME`] after it came, however far it is.
//! * There are at most [`CONNECTIONS_MAX`]. One more takes the place of the oldest: who keeps many open takes their places from himself, and
//!   a scrape, which is over in milliseconds, finds one.
//! * Metrics are read at most once in [`FRESH`], however often somebody asks: that takes the lock of who is measured, for as long as
//!   it takes to copy numbers. Nobody who is measured waits for this thread otherwise.
//!
//! `tiny_http` would be the library for this, and has no deadlines for what comes and no bound on connections; so sockets are ours and requests
//! are `httparse`'s.

use super::super::ClusterError;
use super::connection::{Connection, ConnectionStep};
use super::request::{RequestRefusal, RequestTarget, asked, metrics, refusal};
use brambling_exchange::transports::forks::Own;
use bytes::Bytes;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a connection may take.
const CONNECTION_TIME: Duration = Duration::from_secs(5);
/// How many there are at once.
const CONNECTIONS_MAX: usize = 64;
/// Connections taken before those that there are have their turn again.
const ACCEPTED_AT_ONCE: usize = 16;
/// How long metrics are given again before they are read anew.
const FRESH: Duration = Duration::from_millis(500);
/// How long the thread sleeps at most, where no connection's time ends before.
const SLEEP: Duration = Duration::from_secs(1);
/// After how long it tries again where the system had no room for a connection.
const NO_ROOM: Duration = Duration::from_millis(100);

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
/// Which connection has news is not asked: there are few, and to look at one costs a call.
const CONNECTION: Token = Token(2);

/// An address at which metrics will be served: bound first, so that nothing was started where it is in use.
pub struct MetricsListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl MetricsListener {
    /// Binds the address; port 0 is any free one.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn bind(at: SocketAddr) -> Result<MetricsListener, ClusterError> {
        let bound = TcpListener::bind(at).and_then(|listener| {
            let address = listener.local_addr()?;
            Ok(MetricsListener { listener, address })
        });
        bound.map_err(|source| ClusterError::Metrics { at, source })
    }
}

/// Metrics that are being served. Dropping it ends that.
pub struct MetricsEndpoint {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl MetricsEndpoint {
    /// Serves what `read` gives; when it gives nothing, who was measured is no more.
    pub(in crate::cluster) fn start(
        listener: MetricsListener,
        read: impl Fn() -> Option<String> + Send + 'static,
    ) -> Result<MetricsEndpoint, ClusterError> {
        let started = MetricsEndpoint::started(listener, Box::new(read));
        started.map_err(|source| ClusterError::System { source })
    }

    fn started(listener: MetricsListener, read: Box<Read>) -> io::Result<MetricsEndpoint> {
        let MetricsListener {
            mut listener,
            address,
        } = listener;
        let poll = Poll::new()?;
        let registry = poll.registry();
        registry.register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Waker::new(registry, WAKER)?;
        let ends = Arc::<AtomicBool>::default();
        let server = Server {
            poll,
            _own: Own::new(&listener),
            listener,
            connections: VecDeque::new(),
            page: Page { read, last: None },
            ends: ends.clone(),
        };
        let builder = std::thread::Builder::new().name("brambling-metrics".into());
        let thread = builder.spawn(move || server.serve())?;
        Ok(MetricsEndpoint {
            address,
            ends,
            waker,
            thread: Some(thread),
        })
    }

    /// Where they are served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsEndpoint {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        // Without it the thread wakes up within a second all the same.
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Read = dyn Fn() -> Option<String> + Send;

/// What is served, as it was read last.
struct Page {
    read: Box<Read>,
    last: Option<(Instant, Bytes)>,
}

impl Page {
    fn at(&mut self, now: Instant) -> Option<Bytes> {
        if let Some((then, body)) = &self.last
            && now.saturating_duration_since(*then) < FRESH
        {
            return Some(body.clone());
        }
        let body = Bytes::from((self.read)()?);
        self.last = Some((now, body.clone()));
        Some(body)
    }

    /// What is said to what has come of a request; nothing while it goes on.
    fn answer(&mut self, come: &[u8]) -> Option<[Bytes; 2]> {
        match asked(come) {
            RequestTarget::Unclear => None,
            RequestTarget::Other(why, with) => Some(refusal(why, with)),
            RequestTarget::Metrics(with) => Some(match self.at(Instant::now()) {
                Some(body) => metrics(&body, with),
                None => refusal(RequestRefusal::Over, with),
            }),
        }
    }
}

/// Who was taken of those who dial.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accepted {
    All,
    /// There may be more.
    Some,
    /// There may be more, and the system has no room for them now.
    NoRoom,
}

struct Server {
    poll: Poll,
    // Before the listener: it is let go while that is open.
    _own: Own,
    listener: TcpListener,
    /// By their age: the oldest, which has the next deadline, first.
    connections: VecDeque<Connection>,
    page: Page,
    ends: Arc<AtomicBool>,
}

impl Server {
    fn serve(mut self) {
        let mut events = Events::with_capacity(CONNECTIONS_MAX);
        let mut accepted = Accepted::All;
        while !self.ends.load(Ordering::SeqCst) {
            let patience = self.patience(accepted, Instant::now());
            match self.poll.poll(&mut events, Some(patience)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::error!(%error, "metrics are served no longer");
                    return;
                }
                Ok(()) => {}
            }
            accepted = self.accept();
            let Server {
                connections, page, ..
            } = &mut self;
            connections
                .retain_mut(|it| it.go_on(|come| page.answer(come)) == ConnectionStep::Waits);
            self.cut_slow(Instant::now());
        }
    }

    fn patience(&self, accepted: Accepted, now: Instant) -> Duration {
        let next = self.connections.front();
        let next = next.map_or(SLEEP, |it| it.deadline.saturating_duration_since(now));
        match accepted {
            Accepted::All => next.min(SLEEP),
            Accepted::Some => Duration::ZERO,
            Accepted::NoRoom => next.min(NO_ROOM),
        }
    }

    fn accept(&mut self) -> Accepted {
        for _ in 0..ACCEPTED_AT_ONCE {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Accepted::All,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) =>
                {
                    continue;
                }
                // No descriptors, or no memory. No event will tell that there are some again.
                Err(_) => return Accepted::NoRoom,
            };
            let interests = Interest::READABLE | Interest::WRITABLE;
            let registry = self.poll.registry();
            if registry
                .register(&mut stream, CONNECTION, interests)
                .is_err()
            {
                // Its other end sees that it is closed.
                continue;
            }
            if self.connections.len() == CONNECTIONS_MAX {
                self.connections.pop_front();
            }
            let deadline = Instant::now() + CONNECTION_TIME;
            self.connections
                .push_back(Connection::new(stream, deadline));
        }
        Accepted::Some
    }

    fn cut_slow(&mut self, now: Instant) {
        while let Some(first) = self.connections.front()
            && first.deadline <= now
        {
            self.connections.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn metrics_are_read_anew_when_they_are_old_and_not_before() {
        let reads = Arc::new(AtomicU64::new(0));
        let counted = reads.clone();
        let read = move || match counted.fetch_add(1, Ordering::Relaxed) {
            2 => None,
            number => Some(number.to_string()),
        };
        let mut page = Page {
            read: Box::new(read),
            last: None,
        };
        let begin = Instant::now();
        let mut at = |after: Duration| page.at(begin + after);
        let nearly = FRESH - Duration::from_millis(1);
        assert_eq!(at(Duration::ZERO), Some(Bytes::from("0")));
        assert_eq!(at(nearly), Some(Bytes::from("0")));
        assert_eq!(at(FRESH), Some(Bytes::from("1")));
        assert_eq!(at(FRESH + nearly), Some(Bytes::from("1")));
        // Who was measured is no more.
        assert_eq!(at(FRESH * 2), None);
        assert_eq!(reads.load(Ordering::Relaxed), 3);
    }
}
