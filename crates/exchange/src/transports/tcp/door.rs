//! Takes those who dial, and greets them, on a thread of its own: until they have proved that they know the token, nobody who carries
//! anything for a job sees them, reads them, or waits for them.

use super::channel::LinkChannel;
use super::greeting_slots::{GreetingSlots, GreetingStep};
use super::link::{Link, Look};
use super::stream::SocketListener;
use super::{GREETING_TIME, LinkId, LinkOrigin, Lost, NetShared, Owner, ReadTarget};
use crate::transports::forks::Own;
use crate::transports::tls::Tls;
use brambling_protocol::frame::Incoming;
use brambling_protocol::patience::LOOKED_EACH;
use mio::event::Event;
use mio::{Events, Poll, Registry, Waker};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Connections taken before those that are here have their turn again. Fewer than there are places, so that whoever has spoken is heard
/// before somebody goes for the next ones.
const ACCEPTED_AT_ONCE: usize = 64;
const LISTENERS: [mio::Token; 2] = [mio::Token(usize::MAX), mio::Token(usize::MAX - 1)];
const WAKER: mio::Token = mio::Token(usize::MAX - 2);

/// Who was taken of those who dial.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accepted {
    All,
    /// There may be more.
    Some,
    /// There may be more, and the system has no room for them now.
    NoRoom,
}

/// Where others connect, and whether all were taken who have.
struct Entrance {
    // Declared before the listener, so that it is dropped while the listener is open.
    _own: Own,
    listener: SocketListener,
    token: mio::Token,
    accepted: Accepted,
}

/// Where others come in, and those who have not yet.
pub(super) struct Door {
    poll: Poll,
    registry: Arc<Registry>,
    entrances: Vec<Entrance>,
    strangers: BTreeMap<LinkId, (Arc<Link>, GreetingStep)>,
    slots: GreetingSlots<LinkId>,
}

/// Hands a link over to those who carry frames, once it is open.
struct LetIn<'a> {
    shared: &'a NetShared,
    link: &'a Arc<Link>,
}

impl Owner for LetIn<'_> {
    fn opened(&self, link: LinkId, origin: LinkOrigin) {
        self.shared.links.insert(self.link.clone());
        self.shared.owner.opened(link, origin);
    }
    fn frame(
        &self,
        link: LinkId,
        frame: Incoming<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.shared.owner.frame(link, frame)
    }
    fn place(&self, link: LinkId, begun: &[u8]) -> Option<ReadTarget> {
        self.shared.owner.place(link, begun)
    }
    fn lost(&self, link: LinkId, why: Lost) {
        self.shared.owner.lost(link, why);
    }
}

impl Door {
    /// Opens where others connect; also what wakes its thread.
    ///
    /// # Errors
    /// When the address cannot be bound, or the system gives no poll.
    pub(super) fn open(at: SocketAddr, local: bool) -> io::Result<(Door, SocketAddr, Waker)> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = Waker::new(&registry, WAKER)?;
        let (listeners, at) = SocketListener::bind(at, local)?;
        let mut entrances = Vec::new();
        for (mut listener, token) in listeners.into_iter().zip(LISTENERS) {
            listener.register(&registry, token)?;
            entrances.push(Entrance {
                _own: Own::new(&listener),
                listener,
                token,
                accepted: Accepted::All,
            });
        }
        let door = Door {
            poll,
            registry: Arc::new(registry),
            entrances,
            strangers: BTreeMap::new(),
            slots: GreetingSlots::new(),
        };
        Ok((door, at, waker))
    }

    /// Greets until the net ends.
    pub(super) fn greet(mut self, shared: &NetShared) {
        let mut events = Events::with_capacity(1_024);
        // Links that may have more to read.
        let mut unread: Vec<LinkId> = Vec::new();
        let mut looked = Instant::now();
        while !shared.ends.load(Ordering::SeqCst) {
            let is_some = |entrance: &Entrance| entrance.accepted == Accepted::Some;
            let is_idle = unread.is_empty() && !self.entrances.iter().any(is_some);
            let patience = match is_idle {
                true => LOOKED_EACH,
                false => Duration::ZERO,
            };
            match self.poll.poll(&mut events, Some(patience)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return self.send_all_away(shared, &error),
                Ok(()) => {}
            }
            let left = std::mem::take(&mut unread);
            for link in left {
                self.hear(shared, link, None, &mut unread);
            }
            for event in &events {
                let token = event.token();
                let entrance = self.entrances.iter_mut().find(|it| it.token == token);
                match entrance {
                    Some(entrance) => entrance.accepted = Accepted::Some,
                    None if token == WAKER => {}
                    None => self.hear(shared, LinkId(token.0 as u64), Some(event), &mut unread),
                }
            }
            for at in 0..self.entrances.len() {
                if self.entrances[at].accepted != Accepted::All {
                    self.entrances[at].accepted = self.accept(shared, at);
                }
            }
            let now = Instant::now();
            if now - looked >= LOOKED_EACH {
                looked = now;
                self.end_slow_greetings(shared, now);
            }
        }
        let ended = io::Error::other("the process ends its connections");
        self.send_all_away(shared, &ended);
    }

    /// Takes those who dial.
    fn accept(&mut self, shared: &NetShared, entrance: usize) -> Accepted {
        for _ in 0..ACCEPTED_AT_ONCE {
            match self.entrances[entrance].listener.accept() {
                // Without memory or descriptors the dialer sees a closed connection, and tries again.
                Ok(Some((stream, from))) => {
                    let _ = shared.session(Tls::listen).and_then(|it| {
                        self.add(shared, LinkChannel::new(stream, it, &shared.budget), from)
                    });
                }
                // No honest process of another user comes this way.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Accepted::All,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // No descriptors, or no memory, and no event tells when there are some again.
                Err(_) => match self.slots.make_room() {
                    Some(gone) => self.put_out(shared, gone),
                    None => return Accepted::NoRoom,
                },
            }
        }
        Accepted::Some
    }

    fn add(&mut self, shared: &NetShared, wire: LinkChannel, from: SocketAddr) -> io::Result<()> {
        let step = match wire.socket().is_local() {
            true => GreetingStep::OfOurUser,
            false => GreetingStep::Silent,
        };
        let link = shared.link_of(wire, LinkOrigin::Accepted(from), Some(&self.registry));
        link.register()?;
        let id = link.id();
        self.strangers.insert(id, (link, step));
        if let Some(gone) = self.slots.come(id, step, from) {
            self.put_out(shared, gone);
        }
        Ok(())
    }

    /// Something has come from a stranger, or there is room for what it is told.
    fn hear(
        &mut self,
        shared: &NetShared,
        id: LinkId,
        event: Option<&Event>,
        unread: &mut Vec<LinkId>,
    ) {
        let Some((link, step)) = self.strangers.get(&id).cloned() else {
            return;
        };
        match heard(shared, &link, event) {
            Err(why) => self.send_away(shared, id, why),
            Ok(_) if link.is_open() => {
                self.forget(id);
                // Bytes that come from now on are read by those who carry frames.
                shared.welcome(id);
            }
            Ok(look) => {
                if look.has_more && !unread.contains(&id) {
                    unread.push(id);
                }
                if step == GreetingStep::Silent && link.is_challenged() {
                    self.move_on(shared, id, &link);
                }
            }
        }
    }

    /// Somebody has taken a step.
    fn move_on(&mut self, shared: &NetShared, id: LinkId, link: &Arc<Link>) {
        self.strangers
            .insert(id, (link.clone(), GreetingStep::Challenged));
        self.slots.go(id);
        let LinkOrigin::Accepted(from) = link.origin() else {
            unreachable!("strangers have dialed")
        };
        if let Some(gone) = self.slots.come(id, GreetingStep::Challenged, from) {
            self.put_out(shared, gone);
        }
    }

    /// Sends away whom there is no place for any more.
    fn put_out(&mut self, shared: &NetShared, id: LinkId) {
        if let Some((link, GreetingStep::Silent | GreetingStep::OfOurUser)) =
            self.strangers.get(&id)
        {
            link.turn_away();
        }
        self.send_away(shared, id, Lost::CrowdedOut);
    }

    fn send_away(&mut self, shared: &NetShared, id: LinkId, why: Lost) {
        let Some(link) = self.forget(id) else { return };
        match link.is_open() {
            true => shared.lose(&link, why),
            false => shared.end(&link, why),
        }
    }

    fn forget(&mut self, id: LinkId) -> Option<Arc<Link>> {
        self.slots.go(id);
        self.strangers.remove(&id).map(|(link, _)| link)
    }

    fn end_slow_greetings(&mut self, shared: &NetShared, now: Instant) {
        let is_slow = |link: &Link| link.greets_longer_than(GREETING_TIME, now);
        let slow = self.strangers.iter().filter(|(_, (link, _))| is_slow(link));
        let slow: Vec<LinkId> = slow.map(|(id, _)| *id).collect();
        for id in slow {
            self.send_away(shared, id, Lost::Silent);
        }
    }

    fn send_all_away(mut self, shared: &NetShared, why: &io::Error) {
        for id in self.strangers.keys().copied().collect::<Vec<_>>() {
            let why = io::Error::new(why.kind(), why.to_string());
            self.send_away(shared, id, Lost::Io(why));
        }
    }
}

/// Writes what waits for a stranger, and takes what has come from it.
fn heard(shared: &NetShared, link: &Arc<Link>, event: Option<&Event>) -> Result<Look, Lost> {
    if event.is_some_and(Event::is_writable)
        && let Err(error) = link.take_up()
    {
        return Err(Lost::Io(error));
    }
    let owner = LetIn { shared, link };
    // As for any link: a panic may leave the owner's state broken, and the link ends.
    let read = AssertUnwindSafe(|| link.read(&owner, true));
    catch_unwind(read).unwrap_or(Err(Lost::Panicked))
}
