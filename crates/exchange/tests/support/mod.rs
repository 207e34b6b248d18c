//! Two ends of links, and what is said on them.

// Each test has its own selection.
#![allow(dead_code)]

pub mod certificates;

use brambling_exchange::transports::tcp::{
    Carried, LinkId, LinkOrigin, Lost, Net, NetOptions, Owner,
};
use brambling_exchange::transports::tls::Tls;
use brambling_memory::Budget;
use brambling_program::{GroupId, ShardId};
use brambling_protocol::frame::{Ack, Body, Frame, Incoming, ShardPart};
use brambling_protocol::greeting::{Nonce, Token};
use brambling_protocol::{Generation, JobId, Priority};
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Far longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Whether the tests are those of `local.rs`: the same ones over Unix sockets.
pub fn is_local() -> bool {
    env!("CARGO_CRATE_NAME") == "local"
}

#[derive(Debug)]
pub enum Event {
    Opened(LinkId, LinkOrigin),
    Frame(LinkId, Vec<u8>),
    Lost(LinkId, Lost),
}

/// Hands everything to the test; refuses acknowledgements of frame 666.
struct Tell(Mutex<Sender<Event>>);

impl Tell {
    fn say(&self, event: Event) {
        // A test that is over does not listen.
        let _ = self.0.lock().unwrap().send(event);
    }
}

impl Owner for Tell {
    fn opened(&self, link: LinkId, origin: LinkOrigin) {
        self.say(Event::Opened(link, origin));
    }
    fn frame(
        &self,
        link: LinkId,
        frame: Incoming<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let frame = frame.bytes();
        if frame == ack(666).as_ref() {
            return Err("nobody has sent so many".into());
        }
        self.say(Event::Frame(link, frame.to_vec()));
        Ok(())
    }
    fn lost(&self, link: LinkId, why: Lost) {
        self.say(Event::Lost(link, why));
    }
}

pub struct Side {
    pub net: Net,
    pub events: Receiver<Event>,
}

pub fn nonce() -> Nonce {
    static USED: AtomicU64 = AtomicU64::new(0);
    let mut nonce = [0; 32];
    nonce[..8].copy_from_slice(&USED.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    nonce
}

impl Side {
    pub fn new(token: u8, listens: bool) -> Side {
        Side::with(token, listens, None)
    }

    pub fn with(token: u8, listens: bool, tls: Option<Tls>) -> Side {
        let bind = listens.then(|| "127.0.0.1:0".parse().unwrap());
        Side::of(token, bind, tls, is_local())
    }

    /// Listens, and cannot be reached without TCP.
    pub fn over_tcp(token: u8) -> Side {
        Side::of(token, Some("127.0.0.1:0".parse().unwrap()), None, false)
    }

    /// Listens there.
    pub fn bound(token: u8, at: SocketAddr) -> Side {
        Side::of(token, Some(at), None, is_local())
    }

    fn of(token: u8, bind: Option<SocketAddr>, tls: Option<Tls>, local: bool) -> Side {
        let (sender, events) = channel();
        let options = NetOptions {
            bind,
            token: Token::new([token; 32]),
            nonce,
            tls,
            local,
            budget: Budget::unlimited(),
        };
        let net = Net::new(options, Arc::new(Tell(Mutex::new(sender)))).unwrap();
        Side { net, events }
    }

    pub fn at(&self) -> SocketAddr {
        self.net.listens_at().unwrap()
    }

    pub fn next(&self) -> Event {
        self.events
            .recv_timeout(PATIENCE)
            .expect("something happens")
    }

    /// One link opens, whatever strangers say, and nothing of theirs is heard.
    pub fn opens_among_strangers(&self) {
        loop {
            match self.next() {
                Event::Opened(..) => break,
                Event::Lost(..) => {}
                Event::Frame(_, frame) => panic!("{frame:?} of a stranger"),
            }
        }
        self.hears_nothing();
    }

    pub fn opened(&self) -> (LinkId, LinkOrigin) {
        match self.next() {
            Event::Opened(link, origin) => (link, origin),
            other => panic!("{other:?}"),
        }
    }

    /// The next frame, which comes on this link.
    pub fn frame(&self, link: LinkId) -> Vec<u8> {
        match self.next() {
            Event::Frame(from, frame) if from == link => frame,
            other => panic!("{other:?}"),
        }
    }

    pub fn lost(&self) -> Lost {
        match self.next() {
            Event::Lost(_, why) => why,
            other => panic!("{other:?}"),
        }
    }

    /// What its links have carried: bytes that the other side has may be counted here a moment later.
    pub fn carries(&self, expected: Carried) {
        let deadline = Instant::now() + PATIENCE;
        while self.net.carried() != expected && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!(self.net.carried(), expected);
    }

    /// Nothing that strangers do gets beyond the net, except that their links end.
    pub fn hears_nothing(&self) {
        for event in self.events.try_iter() {
            assert!(matches!(event, Event::Lost(..)), "{event:?}");
        }
    }
}

pub fn ack(received: u64) -> Bytes {
    let (priority, sequence) = (Priority::FIRST, None);
    let body = Body::Ack(Ack { received });
    Frame {
        priority,
        sequence,
        body,
    }
    .to_bytes()
}

pub fn part(bytes: &[u8]) -> Bytes {
    let shard = ShardId {
        group: GroupId(0),
        index: 0,
    };
    let body = Body::ShardPart(ShardPart {
        job: JobId(1),
        generation: Generation(0),
        shard,
        version: 1,
        part: 0,
        parts: 1,
        bytes,
    });
    Frame {
        priority: Priority::LAST,
        sequence: Some(0),
        body,
    }
    .to_bytes()
}

/// Two nets with a link between them.
pub fn pair() -> (Side, LinkId, Side, LinkId) {
    linked(Side::new(1, true), Side::new(1, false))
}

/// The same of nets that are there.
pub fn linked(listening: Side, dialing: Side) -> (Side, LinkId, Side, LinkId) {
    dialing.net.dial(listening.at()).unwrap();
    let ((here, dialed), (there, accepted)) = (dialing.opened(), listening.opened());
    assert_eq!(dialed, LinkOrigin::Dialed);
    let from = |origin| matches!(origin, LinkOrigin::Accepted(from) if from.ip().is_loopback());
    assert!(from(accepted), "{accepted:?}");
    (dialing, here, listening, there)
}
