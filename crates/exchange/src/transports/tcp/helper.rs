//! The thread that watches a net's links while nobody polls them, and ends those that nothing can be said on any more.
//!
//! It sleeps for a while when others have polled since it last looked: they take what comes faster than a thread that has to be woken. Before it
//! waits for events it has itself woken for what goes past the sockets ([`Sleep`]). How deep that sleep is depends on whether others look.

use super::channel::Sleep;
use super::link::Link;
use super::{DOZE, GREETING_TIME, LinkId, Lost, NetShared};
use brambling_protocol::patience::LOOKED_EACH;
use mio::event::Event;
use mio::{Events, Poll};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long the helper sleeps when others have polled since it last looked, and twice as long each time that they still do, up to
/// [`FAR_OUT_OF_THE_WAY`]: so long may frames wait when they turn to other work, and not at all when they say that they
/// [rest](super::Net::rest). Its own looks take the processor, and perhaps a lock, from those who poll.
const OUT_OF_THE_WAY: Duration = Duration::from_micros(500);
/// At most.
const FAR_OUT_OF_THE_WAY: Duration = Duration::from_millis(2);

/// What the helper remembers from one look to the next.
pub(super) struct Helper {
    poll: Poll,
    /// Links of which not all was read: none keeps the others waiting, and those who poll come first.
    unread: Vec<LinkId>,
    /// How often others had polled, and had looked.
    polls: u64,
    looks: u64,
    looked_at: Option<Instant>,
    nap: Duration,
}

impl Helper {
    pub(super) fn new(poll: Poll) -> Helper {
        Helper {
            poll,
            unread: Vec::new(),
            polls: 0,
            looks: 0,
            looked_at: None,
            nap: OUT_OF_THE_WAY,
        }
    }

    /// Watches until the net ends.
    pub(super) fn watch(mut self, shared: &NetShared) {
        let mut events = Events::with_capacity(256);
        while !shared.ends.load(Ordering::SeqCst) {
            self.stay_out_of_the_way(shared);
            self.unread.append(&mut shared.newcomers());
            let patience = self.patience(shared);
            match self.poll.poll(&mut events, Some(patience)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return shared.end_all(&error),
                Ok(()) => {}
            }
            let has_polled = shared.polls.load(Ordering::Relaxed) != self.polls;
            let is_polled = !shared.rests.swap(false, Ordering::Relaxed) && has_polled;
            for event in &events {
                self.hear(shared, event, is_polled);
            }
            self.unread.retain(|link| {
                shared.links.get(*link).is_some_and(|link| {
                    let is_left = is_polled && link.is_open();
                    // No event tells again that the socket takes more: another thread at the link
                    // may have found it full before the event came.
                    link.write_on(!is_left);
                    is_left || shared.read(&link, true).has_more
                })
            });
            shared.look_after_links();
        }
        let ended = io::Error::other("the process ends its connections");
        shared.end_all(&ended);
    }

    /// Sleeps for a while if somebody takes what comes, faster than a thread that has to be woken.
    fn stay_out_of_the_way(&mut self, shared: &NetShared) {
        let polled = shared.polls.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.polls, polled) != polled {
            std::thread::park_timeout(self.nap);
            self.nap = (self.nap * 2).min(FAR_OUT_OF_THE_WAY);
        } else {
            self.nap = OUT_OF_THE_WAY;
        }
        let looked = shared.looks.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.looks, looked) != looked {
            self.looked_at = Some(Instant::now());
        }
    }

    /// How long events are awaited: not at all while something was left unread.
    fn patience(&mut self, shared: &NetShared) -> Duration {
        let is_idle = self.unread.is_empty();
        match is_idle.then(|| self.fall_asleep(shared)) {
            Some(Sleep::Dozes) if self.unread.is_empty() => DOZE,
            Some(Sleep::Sleeps) if self.unread.is_empty() => LOOKED_EACH,
            _ => Duration::ZERO,
        }
    }

    /// Has itself woken for what goes past the sockets: how deep it sleeps. Where something has come already is noted.
    fn fall_asleep(&mut self, shared: &NetShared) -> Sleep {
        let all = shared.links.all();
        let mut sleeps = Sleep::Dozes;
        loop {
            let rest = shared.resting.load(Ordering::SeqCst) > 0;
            let looked = self.looked_at;
            if rest || looked.is_none_or(|at| at.elapsed() >= DOZE) {
                sleeps = Sleep::Sleeps;
            }
            self.unread.clear();
            let unread = all.iter().filter(|link| link.sleep(sleeps));
            self.unread.extend(unread.map(|link| link.id()));
            // A thread that rests from now on sees to it that the sleep is deep.
            if sleeps == Sleep::Sleeps || shared.resting.load(Ordering::SeqCst) == 0 {
                return sleeps;
            }
        }
    }

    /// Something is to be done on a link. What comes is left to those who poll, if somebody does.
    fn hear(&mut self, shared: &NetShared, event: &Event, is_polled: bool) {
        // The waker's event has no link.
        let Some(link) = shared.links.get(LinkId(event.token().0 as u64)) else {
            return;
        };
        link.rung();
        let is_left = is_polled && link.is_open();
        if (is_left || shared.take_up(&link, event)) && !self.unread.contains(&link.id()) {
            self.unread.push(link.id());
        }
    }
}

impl NetShared {
    /// Writes what waits, if the link takes it; whether there is something to read.
    fn take_up(&self, link: &Link, event: &Event) -> bool {
        if event.is_writable()
            && let Err(error) = link.take_up()
        {
            let why = self.last_word(link).unwrap_or(Lost::Io(error));
            self.lose(link, why);
            return false;
        }
        event.is_readable() || event.is_error() || event.is_read_closed()
    }

    /// Why the other side does not want a link that has ended before it was open, if it has said so.
    fn last_word(&self, link: &Link) -> Option<Lost> {
        let read = AssertUnwindSafe(|| link.read(&*self.owner, true));
        match catch_unwind(read) {
            Ok(Err(why @ (Lost::Greeting(_) | Lost::Tls(_)))) if !link.is_open() => Some(why),
            _ => None,
        }
    }

    /// Now and then: ends links whose greeting takes too long, and those whose other machine acknowledges nothing any more.
    fn look_after_links(&self) {
        let now = Instant::now();
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if now - *looked < LOOKED_EACH {
            return;
        }
        *looked = now;
        drop(looked);
        let ran = self.awake().look(now - self.began);
        self.buffers.give_back();
        for link in self.links.all().iter() {
            if link.greets_longer_than(GREETING_TIME, now) {
                self.lose(link, link.unanswered());
            } else if let Some(so_long) = link.cut_off(ran, now) {
                self.lose(link, Lost::Unacknowledged(so_long));
            }
        }
    }

    fn end_all(&self, why: &io::Error) {
        for link in self.links.all().iter() {
            let why = io::Error::new(why.kind(), why.to_string());
            self.lose(link, Lost::Io(why));
        }
    }
}
