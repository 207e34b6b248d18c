//! Links over TCP, or over [what a machine has](stream) for its own processes: nonblocking sockets that one helper thread watches and any other thread may poll.
//!
//! # Rules
//! * Until the [greeting](brambling_protocol::greeting) is over, a link reads messages of fixed sizes and nothing else; it has
//!   [`GREETING_TIME`] for that. Who has dialed is greeted at the [door](door), and has one of its [`GREETED_AT_ONCE`] [places](greeting_slots) at each step:
//!   those who carry frames do not see it before. Whoever knows no token costs a socket for that long, and on one machine the file that
//!   it may have passed on.
//! * Under [TLS](super::tls) the greeting goes inside; its time is that of both, and it has no more memory than certificates take. Whoever
//!   comes without is told so by the first bytes that it says, and costs no more.
//! * A frame's length is believed when its header's checksum is right, and bounded by
//!   [`BODY_BYTES_MAX`](brambling_protocol::frame::BODY_BYTES_MAX); only then memory is taken for it.
//! * [`Net::send`] never waits: what the socket does not take stays queued, and goes when it takes more. Credits of
//!   exchanges, not the transport, bound how much that is. Only while something waits so is the helper woken for room.
//! * A link ends once, with a reason, whatever happens on it.
//! * A link's bytes go through a [channel](channel), which may be another way than its socket. Then small frames
//!   are news: they wake the other side's helper, unless its threads poll. Large ones do not while its threads [look](Net::look) between
//!   their tasks and none [rests](Net::rest), for at most [`DOZE`]: whom they are for is at work.
//! * Nothing waits for ever: sockets are nonblocking, and the helper wakes up for the next deadline. A connection whose other end
//!   is gone without a word is noticed by the system while it is quiet ([`KEEPALIVE`](brambling_protocol::patience::KEEPALIVE)), and [here](acknowledged) while something is under way.
//! * A panic of the owner ends the link that it was handed a frame of, and nothing else.
//!
//! # Locks
//! A link's reader is locked while frames are handed up, its writer while frames are queued or written. Whoever is handed a
//! frame may send on any link: a writer is taken under a reader, never the other way about.

mod acknowledged;
mod buffers;
mod carried;
mod channel;
mod door;
mod greeting_slots;
mod helper;
mod link;
mod lost;
mod open_links;
mod stream;

pub use carried::Carried;
pub use greeting_slots::GREETED_AT_ONCE;
pub use lost::Lost;

pub use crate::read_target::{ReadBuffer, ReadTarget};

use super::tls::Tls;
use brambling_memory::Budget;
use brambling_protocol::frame::{Incoming, Packet};
use brambling_protocol::greeting::{Nonce, Token};
use brambling_protocol::patience::Awake;
use buffers::Buffers;
use channel::{LinkChannel, Sleep, TlsSession};
use door::Door;
use helper::Helper;
use link::{Link, Look};
use mio::{Poll, Registry, Waker};
use open_links::OpenLinks;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stream::SocketStream;

/// How long a greeting may take.
pub const GREETING_TIME: Duration = Duration::from_secs(5);
/// How long what is no news may wait, at most, for threads that looked lately.
const DOZE: Duration = Duration::from_millis(10);

/// A link of one net. Never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(u64);

/// How a link came to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkOrigin {
    /// This side dialed.
    Dialed,
    /// Somebody at this address did.
    Accepted(SocketAddr),
}

/// Whoever owns the links. Called on the helper and on threads that poll, one call at a time for a link.
pub trait Owner: Send + Sync {
    /// Both sides know the token: frames may go both ways.
    fn opened(&self, link: LinkId, origin: LinkOrigin);
    /// A whole frame has come; its header is sound, its body was not looked at. A large one lies in a buffer of its own, or ends in its
    /// owner's [place](Owner::place).
    ///
    /// # Errors
    /// When nobody who is honest says that: the link ends, with this reason.
    fn frame(
        &self,
        link: LinkId,
        frame: Incoming<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
    /// A large frame has begun, of which these bytes are there: where its last ones are to lie, if the owner knows a place for them.
    /// Nothing but the header was checked.
    fn place(&self, _link: LinkId, _begun: &[u8]) -> Option<ReadTarget> {
        None
    }
    /// The link has ended, or never opened. What was sent may or may not have arrived.
    fn lost(&self, link: LinkId, why: Lost);
}

/// How a net is made.
pub struct NetOptions {
    /// Where to listen; port 0 is any free one. None: only dial.
    pub bind: Option<SocketAddr>,
    /// What every process of the cluster knows.
    pub token: Token,
    /// Gives random bytes, others each time.
    pub nonce: fn() -> Nonce,
    /// What all links speak TLS with, both ways; none: nothing is encrypted.
    pub tls: Option<Tls>,
    /// Whether processes of this machine reach each other by Unix sockets and, without TLS, through memory, which are faster than TCP.
    pub local: bool,
    /// What links take beside what their owners count: the memory that two processes share, and buffers that lie idle.
    pub budget: Budget,
}

/// Links to other processes, a thread that watches them, and one for those who dial. Dropping it ends them all.
pub struct Net {
    shared: Arc<NetShared>,
    /// The helper, and whoever greets those who dial.
    threads: Vec<JoinHandle<()>>,
}

struct NetShared {
    owner: Arc<dyn Owner>,
    token: Token,
    nonce: fn() -> Nonce,
    tls: Option<Tls>,
    local: bool,
    budget: Budget,
    buffers: Buffers,
    registry: Arc<Registry>,
    waker: Waker,
    /// Wakes whoever greets those who dial, if this net listens.
    at_door: Option<Waker>,
    links: OpenLinks,
    /// Links that were opened at the door: something may have come on them of which no event tells.
    newcomers: Mutex<Vec<LinkId>>,
    next: AtomicU64,
    listens_at: Option<SocketAddr>,
    ends: AtomicBool,
    /// How often threads have polled, going round.
    polls: AtomicU64,
    /// How often they have, or have looked between other work.
    looks: AtomicU64,
    /// Somebody who polled rests, and the helper has not seen it yet.
    rests: AtomicBool,
    /// How many of those who polled rest.
    resting: AtomicUsize,
    began: Instant,
    /// When the helper last looked for greetings that take too long, and for links that are cut off.
    looked: Mutex<Instant>,
    /// How long it has run.
    awake: Mutex<Awake>,
}

const WAKER: mio::Token = mio::Token(usize::MAX);

impl Net {
    /// Starts to listen and to watch.
    ///
    /// # Errors
    /// When the address cannot be bound, or the system gives no thread or poll.
    pub fn new(options: NetOptions, owner: Arc<dyn Owner>) -> io::Result<Net> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = Waker::new(&registry, WAKER)?;
        let bound = options.bind.map(|at| Door::open(at, options.local));
        let (door, listens_at, at_door) = match bound.transpose()? {
            Some((door, at, waker)) => (Some(door), Some(at), Some(waker)),
            None => (None, None, None),
        };
        let shared = Arc::new(NetShared {
            owner,
            token: options.token,
            nonce: options.nonce,
            tls: options.tls,
            local: options.local,
            buffers: Buffers::within(options.budget.budget_bytes()),
            budget: options.budget,
            registry: Arc::new(registry),
            waker,
            at_door,
            links: OpenLinks::default(),
            next: AtomicU64::new(0),
            newcomers: Mutex::default(),
            listens_at,
            ends: AtomicBool::new(false),
            polls: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            rests: AtomicBool::new(false),
            resting: AtomicUsize::new(0),
            began: Instant::now(),
            looked: Mutex::new(Instant::now()),
            awake: Mutex::default(),
        });
        let mut net = Net {
            shared,
            threads: Vec::new(),
        };
        let watched = net.shared.clone();
        net.start("brambling-net", move || Helper::new(poll).watch(&watched))?;
        if let Some(door) = door {
            let greets = net.shared.clone();
            net.start("brambling-door", move || door.greet(&greets))?;
        }
        Ok(net)
    }

    fn start(&mut self, name: &str, act: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let builder = std::thread::Builder::new().name(name.into());
        self.threads.push(builder.spawn(act)?);
        Ok(())
    }

    /// Where it listens.
    pub fn listens_at(&self) -> Option<SocketAddr> {
        self.shared.listens_at
    }

    /// Begins to connect. The owner hears how that ends.
    ///
    /// # Errors
    /// When the system has no socket to give, or no random bytes for TLS.
    pub fn dial(&self, to: SocketAddr) -> io::Result<LinkId> {
        let session = self.shared.session(|tls| tls.dial(to.ip()))?;
        let stream = SocketStream::dial(to, self.shared.local)?;
        let wire = LinkChannel::new(stream, session, &self.shared.budget);
        let link = self.shared.link_of(wire, LinkOrigin::Dialed, None);
        let id = link.id();
        self.shared.links.insert(link.clone());
        if let Err(error) = link.register() {
            self.shared.links.remove(id);
            return Err(error);
        }
        Ok(id)
    }

    /// Sends frames, after those before them. Does nothing on a link that has ended: its owner hears of that.
    pub fn send(&self, link: LinkId, frames: impl IntoIterator<Item: Into<Packet>>) {
        if let Some(link) = self.shared.links.get(link) {
            link.send(frames);
        }
    }

    /// Takes what has come on any link, if no other thread is at it, and sends what waits there. For threads that would otherwise
    /// be idle: while there are some, the helper stays out of their way. Whether anything came or went.
    pub fn poll(&self) -> bool {
        self.shared.polls.fetch_add(1, Ordering::Relaxed);
        self.look()
    }

    /// The same for threads that do so again and again between other work: what is no news may wait for them, unless some other thread
    /// [rests](Net::rest).
    pub fn look(&self) -> bool {
        self.shared.looks.fetch_add(1, Ordering::Relaxed);
        let mut moved = false;
        for link in self.shared.links.all().iter() {
            moved |= link.write_on(false);
            moved |= self.shared.read(link, false).has_come;
        }
        moved
    }

    /// A thread that polled does so no longer, until it [resumes](Net::resume): the helper takes over, also if others still poll.
    pub fn rest(&self) {
        self.shared.resting.fetch_add(1, Ordering::SeqCst);
        self.shared.rests.store(true, Ordering::Relaxed);
        let all = self.shared.links.all();
        let unread = all.iter().filter(|link| link.sleep(Sleep::Sleeps));
        if unread.count() > 0 {
            // Without a waker the helper wakes up for its next look all the same.
            let _ = self.shared.waker.wake();
        }
        self.unpark();
    }

    /// A thread that rested polls again, or has gone.
    pub fn resume(&self) {
        self.shared.resting.fetch_sub(1, Ordering::SeqCst);
    }

    fn unpark(&self) {
        if let Some(helper) = self.threads.first() {
            helper.thread().unpark();
        }
    }

    /// What has gone over its links until now.
    pub fn carried(&self) -> Carried {
        self.shared.links.carried()
    }

    /// How long it has run, to a second: time in which its process was stopped does not count.
    pub fn ran(&self) -> Duration {
        self.shared.awake().ran()
    }

    /// A link ends when the other machine has acknowledged nothing for so long, instead of
    /// [`ACKNOWLEDGED_WITHIN`](brambling_protocol::patience::ACKNOWLEDGED_WITHIN).
    pub fn acknowledges_within(&self, link: LinkId, within: Duration) {
        if let Some(link) = self.shared.links.get(link) {
            link.acknowledges_within(within);
        }
    }

    /// Ends a link. The owner hears of it as of any other end.
    pub fn close(&self, link: LinkId) {
        if let Some(link) = self.shared.links.get(link) {
            self.shared.lose(&link, Lost::Closed);
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        // Without a waker the helper wakes up for its next look all the same.
        let _ = self.shared.waker.wake();
        self.unpark();
        if let Some(waker) = &self.shared.at_door {
            let _ = waker.wake();
        }
        // A thread of the net may be the last to drop it: that one ends without being waited for.
        let me = std::thread::current().id();
        for thread in std::mem::take(&mut self.threads) {
            if thread.thread().id() != me {
                let _ = thread.join();
            }
        }
    }
}

impl NetShared {
    /// What a new link speaks TLS with, if it is to.
    fn session(
        &self,
        make: impl FnOnce(&Tls) -> Result<rustls::Connection, rustls::Error>,
    ) -> io::Result<Option<TlsSession>> {
        let connection = self.tls.as_ref().map(make).transpose();
        Ok(connection.map_err(io::Error::other)?.map(TlsSession::new))
    }

    fn link_of(
        &self,
        wire: LinkChannel,
        origin: LinkOrigin,
        door: Option<&Arc<Registry>>,
    ) -> Arc<Link> {
        let id = LinkId(self.next.fetch_add(1, Ordering::Relaxed));
        let greets = (self.token.clone(), (self.nonce)());
        let watched = (&self.registry, door);
        let link = Link::new(id, wire, origin, watched, &self.buffers, greets);
        Arc::new(link)
    }

    /// The helper looks what has come on a link while it was at the door.
    fn welcome(&self, link: LinkId) {
        self.newcomers().push(link);
        // Without a waker the helper wakes up for its next look all the same.
        let _ = self.waker.wake();
    }

    fn newcomers(&self) -> MutexGuard<'_, Vec<LinkId>> {
        let newcomers = self.newcomers.lock();
        newcomers.unwrap_or_else(PoisonError::into_inner)
    }

    fn awake(&self) -> MutexGuard<'_, Awake> {
        self.awake.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a link, once.
    fn lose(&self, link: &Link, why: Lost) {
        if self.links.remove(link.id()).is_some() {
            self.shut(link, why);
        }
    }

    /// Ends a link that never opened, and that nobody but the door knows.
    fn end(&self, stranger: &Link, why: Lost) {
        self.links.add_ended(stranger);
        self.shut(stranger, why);
    }

    fn shut(&self, link: &Link, why: Lost) {
        link.shut();
        // An owner that panics here has heard of the loss all the same.
        let _ = catch_unwind(AssertUnwindSafe(|| self.owner.lost(link.id(), why)));
    }

    /// Takes what has come. `waits` says whether to wait for another thread that is at it.
    fn read(&self, link: &Link, waits: bool) -> Look {
        // A panic may leave the owner's state broken, which its own locks then tell. The link
        // itself is sound, and ends.
        let read = AssertUnwindSafe(|| link.read(&*self.owner, waits));
        match catch_unwind(read).unwrap_or(Err(Lost::Panicked)) {
            Ok(read) => read,
            Err(why) => {
                self.lose(link, why);
                Look::default()
            }
        }
    }
}

#[cfg(test)]
mod tests;
