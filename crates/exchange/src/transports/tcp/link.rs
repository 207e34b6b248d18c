//! Owns one connection: its greeting, the frames that come, and those that go. The net calls it
//! (`tcp.rs`), on its helper, at its door and from threads that poll. It never waits for its
//! socket, which does not block.

mod greeting;
mod reader;
mod writer;

use super::acknowledged::{Acknowledged, Owed};
use super::buffers::Buffers;
use super::carried::{self, Carried, DirectionCount};
use super::channel::{LinkChannel, Sleep};
use super::{LinkId, LinkOrigin, Lost, Owner};
use brambling_protocol::frame::{Incoming, Packet};
use brambling_protocol::greeting::{Dialer, Nonce, Token};
use bytes::Bytes;
use greeting::Greeting;
use mio::unix::SourceFd;
use mio::{Interest, Registry};
use reader::{FrameReader, LARGE_BYTES};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use writer::Writer;

/// So much of a large frame has come before its owner is asked where its last bytes are to lie: more than what tells it takes.
const TELLING_BYTES: usize = 1 << 8;
/// Calls after which others have their turn.
const READS_AT_ONCE: u32 = 16;

/// A connection, and how far it is.
pub(super) struct Link {
    id: LinkId,
    origin: LinkOrigin,
    since: Instant,
    wire: LinkChannel,
    registry: Arc<Registry>,
    /// Where it is watched until it is open: by the door, if somebody else has dialed.
    door: Option<Arc<Registry>>,
    /// Whether both sides have proved that they know the token.
    is_open: AtomicBool,
    reader: Mutex<FrameReader>,
    writer: Mutex<Writer>,
    received: Arc<DirectionCount>,
    sent: Arc<DirectionCount>,
    /// The helper looks at it.
    owed: Mutex<Owed>,
}

/// What a look at a link has brought.
#[derive(Clone, Copy, Default)]
pub(super) struct Look {
    /// Something has come.
    pub(super) has_come: bool,
    /// More may be there.
    pub(super) has_more: bool,
}

impl Link {
    pub(super) fn new(
        id: LinkId,
        wire: LinkChannel,
        origin: LinkOrigin,
        (registry, door): (&Arc<Registry>, Option<&Arc<Registry>>),
        buffers: &Buffers,
        (token, nonce): (Token, Nonce),
    ) -> Link {
        let greeting = match origin {
            LinkOrigin::Dialed => Greeting::Dialing(Box::new(Dialer::new(token, nonce)), false),
            LinkOrigin::Accepted(_) => Greeting::Listening(Box::new((token, nonce))),
        };
        wire.socket().tune();
        let (received, sent) = (
            Arc::<DirectionCount>::default(),
            Arc::<DirectionCount>::default(),
        );
        Link {
            id,
            origin,
            since: Instant::now(),
            wire,
            registry: registry.clone(),
            door: door.cloned(),
            is_open: AtomicBool::new(false),
            reader: Mutex::new(FrameReader::new(
                greeting,
                buffers.clone(),
                received.clone(),
            )),
            writer: Mutex::new(Writer {
                // Nothing goes out before there is a connection.
                is_full: origin == LinkOrigin::Dialed,
                // A link is registered for room to write, too.
                is_awaited: true,
                sent: sent.clone(),
                ..Writer::default()
            }),
            received,
            sent,
            owed: Mutex::default(),
        }
    }

    pub(super) fn id(&self) -> LinkId {
        self.id
    }

    /// What has gone over it.
    pub(super) fn carried(&self) -> Carried {
        carried::both(&self.sent, &self.received)
    }

    /// Whether frames go both ways.
    pub(super) fn is_open(&self) -> bool {
        // Acquire: pairs with the Release in `open`.
        self.is_open.load(Ordering::Acquire)
    }

    /// How it came to be.
    pub(super) fn origin(&self) -> LinkOrigin {
        self.origin
    }

    /// Whether this side, which was dialed, has answered an opening.
    pub(super) fn is_challenged(&self) -> bool {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(reader.greeting, Greeting::Listening(_))
    }

    /// Tells a dialer that too many others are being greeted, if nothing was said to it yet.
    pub(super) fn turn_away(&self) {
        if !self.is_challenged() {
            self.wire.turn_away();
        }
    }

    /// Whether its greeting takes longer than it may.
    pub(super) fn greets_longer_than(&self, time: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > time && !self.is_open.load(Ordering::Acquire)
    }

    /// Why a link ends whose greeting has taken too long.
    pub(super) fn unanswered(&self) -> Lost {
        match self.wire.socket().is_connected() {
            true => Lost::Silent,
            false => Lost::Unreached,
        }
    }

    /// How long the other machine has acknowledged nothing, if that is too long, as of now, when this process has run for `ran`.
    pub(super) fn cut_off(&self, ran: Duration, now: Instant) -> Option<Duration> {
        let found = Acknowledged::of(self.wire.socket().as_fd());
        let mut owed = self.owed();
        let is_overdue = owed.is_overdue(found, ran, now);
        is_overdue.then_some(owed.within)
    }

    /// How long the other machine may acknowledge nothing.
    pub(super) fn acknowledges_within(&self, within: Duration) {
        self.owed().within = within;
    }

    fn owed(&self) -> MutexGuard<'_, Owed> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it watched, for all that may happen.
    pub(super) fn register(&self) -> io::Result<()> {
        let interests = Interest::READABLE | Interest::WRITABLE;
        // Registered by its descriptor: other threads read and write the stream meanwhile.
        self.watcher().register(
            &mut SourceFd(&self.wire.socket().as_raw_fd()),
            self.token(),
            interests,
        )
    }

    /// Who watches it. Changes once, while the writer is locked.
    fn watcher(&self) -> &Registry {
        let door = self.door.as_deref().filter(|_| !self.is_open());
        door.unwrap_or(&self.registry)
    }

    /// Both sides have proved that they know the token.
    fn open(&self) -> io::Result<()> {
        let mut writer = self.writer();
        if self.door.is_none() {
            self.is_open.store(true, Ordering::Release);
            return Ok(());
        }
        let fd = self.wire.socket().as_raw_fd();
        // The link goes from the door's watcher to the helper's. No event is lost between the two,
        // since registering reports what is ready.
        self.watcher().deregister(&mut SourceFd(&fd))?;
        self.is_open.store(true, Ordering::Release);
        // A link is registered for room to write, too.
        writer.is_awaited = true;
        self.register()
    }

    fn token(&self) -> mio::Token {
        mio::Token(self.id.0 as usize)
    }

    /// Whether the helper is woken when the socket takes more.
    #[cfg(test)]
    pub(super) fn awaits_room(&self) -> bool {
        self.writer().is_awaited
    }

    /// Whether something waits for room.
    #[cfg(test)]
    pub(super) fn is_full(&self) -> bool {
        self.writer().is_full
    }

    /// Has the helper woken when the socket takes more, at once if it does by now, or not any more.
    fn await_room(&self, writer: &mut Writer, is_awaited: bool) -> io::Result<()> {
        // A system call only when it changes.
        if std::mem::replace(&mut writer.is_awaited, is_awaited) == is_awaited {
            return Ok(());
        }
        let interests = match is_awaited {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        let fd = self.wire.socket().as_raw_fd();
        let mut source = SourceFd(&fd);
        self.watcher()
            .reregister(&mut source, self.token(), interests)
    }

    /// Nothing is read or written any more.
    pub(super) fn shut(&self) {
        let mut writer = self.writer();
        // Both fail when the connection is gone, which is what they are for.
        let _ = self
            .watcher()
            .deregister(&mut SourceFd(&self.wire.socket().as_raw_fd()));
        let _ = self.wire.socket().shut();
        writer.has_ended = true;
        // Frames may own memory of pieces: it goes back now, not with the last handle of the link.
        writer.queue.clear();
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- what goes

    /// Queues frames, and writes what the socket takes. An error shows when the link is read.
    pub(super) fn send(&self, frames: impl IntoIterator<Item: Into<Packet>>) {
        let mut writer = self.writer();
        if writer.has_ended {
            return;
        }
        let mut count = 0;
        let frames = frames.into_iter().inspect(|_| count += 1);
        for frame in frames {
            let mut bytes = 0;
            let parts = frame.into().into_iter().inspect(|part| bytes += part.len());
            writer.queue.extend(parts);
            // Small frames are news: who only dozes is woken for them, and not for parts of large
            // ones.
            writer.has_news |= bytes < LARGE_BYTES;
        }
        // What is said before is the greeting.
        if self.is_open() {
            writer.sent.add_frames(count);
        }
        // The reading side sees that the connection is broken, and ends the link.
        let _ = self.write(&mut writer);
    }

    /// Writes what waits, if the socket takes more of it by now; whether it did. `waits` says whether to wait for another thread that is
    /// at it: one that queues frames takes the socket for full until it is told otherwise. Who does not wait has to come again.
    pub(super) fn write_on(&self, waits: bool) -> bool {
        if !self.is_open.load(Ordering::Relaxed) {
            return false;
        }
        // A thread that polls many links must not wait for one that somebody else writes.
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(_) if waits => self.writer(),
            Err(_) => return false,
        };
        if writer.queue.is_empty() && !self.wire.holds_back() {
            return false;
        }
        let before = (writer.queue.len(), writer.written);
        writer.is_full = false;
        // The reading side sees that the connection is broken, and ends the link.
        let _ = self.write(&mut writer);
        before != (writer.queue.len(), writer.written)
    }

    /// The socket takes more, or is connected.
    pub(super) fn take_up(&self) -> io::Result<()> {
        if let Some(error) = self.wire.socket().take_error()? {
            return Err(error);
        }
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Greeting::Dialing(dialing, is_said) = &mut reader.greeting
            && !*is_said
        {
            if !self.wire.socket().is_connected() {
                return Ok(());
            }
            // Events may come twice before the socket has taken it.
            *is_said = true;
            let opening = dialing.1;
            self.writer()
                .queue
                .push_front(Bytes::copy_from_slice(&opening));
        }
        drop(reader);
        let mut writer = self.writer();
        writer.is_full = false;
        self.write(&mut writer)
    }

    /// Writes what the socket takes, and has the helper woken for the rest.
    fn write(&self, writer: &mut Writer) -> io::Result<()> {
        writer.write(&*self.wire)?;
        self.await_room(writer, writer.is_full && !self.wire.rings_for_room())
    }

    // ---- what comes

    /// The socket has something to say.
    pub(super) fn rung(&self) {
        self.wire.rung();
    }

    /// Says that the helper goes to sleep; whether something has come that no event will tell of.
    pub(super) fn sleep(&self, how: Sleep) -> bool {
        self.wire.sleep(how)
    }

    /// Takes what has come and hands frames up. An error ends the link. Where another thread is at it and the caller does not wait
    /// for it, nothing happens.
    pub(super) fn read(&self, owner: &dyn Owner, waits: bool) -> Result<Look, Lost> {
        let mut read = Look::default();
        let mut reader = match self.reader.try_lock() {
            Ok(reader) => reader,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if !waits => return Ok(read),
            Err(TryLockError::WouldBlock) => {
                self.reader.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        let was_open = self.is_open();
        // A peer that sends without end must not keep the others from being read.
        for _ in 0..READS_AT_ONCE {
            // It is others who read on.
            if self.is_open() != was_open {
                break;
            }
            match self.wire.read(reader.room()) {
                // An empty read of a nonblocking socket is its end; nothing to read is
                // `WouldBlock`.
                Ok(0) => return Err(Lost::Ended),
                Ok(bytes) => {
                    reader.took(bytes);
                    read.has_come = true;
                    self.hand_up(&mut reader, owner)?;
                }
                Err(Lost::Io(error)) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    // No event tells of bells that were taken: whoever takes them does what they are rung for.
                    ErrorKind::WouldBlock if self.wire.hear()? => {
                        self.write_on(true);
                    }
                    // Or it is not connected yet.
                    ErrorKind::WouldBlock | ErrorKind::NotConnected => return Ok(read),
                    _ => return Err(Lost::Io(error)),
                },
                Err(why) => return Err(why),
            }
        }
        read.has_more = true;
        Ok(read)
    }

    fn hand_up(&self, reader: &mut FrameReader, owner: &dyn Owner) -> Result<(), Lost> {
        while !matches!(reader.greeting, Greeting::Over) {
            if !self.greet(reader, owner)? {
                return Ok(());
            }
        }
        // A large frame is read alone, so nothing lies behind it yet.
        if let Some(frame) = reader.take_large() {
            reader.received.add_frames(1);
            let taken = owner.frame(self.id, frame.incoming());
            return taken.map_err(Lost::Refused);
        }
        while reader.large.is_none()
            && let Some(bytes) = reader.frame_bytes()?
        {
            let Some(frame) = reader.bytes[reader.from..reader.to].get(..bytes) else {
                // Enough of it has come to say where it is to lie: the rest is read to there.
                if bytes >= LARGE_BYTES && reader.to - reader.from >= TELLING_BYTES {
                    reader.begin_large(bytes, |begun| owner.place(self.id, begun));
                }
                return Ok(());
            };
            reader.received.add_frames(1);
            let taken = owner.frame(self.id, Incoming::from(frame));
            taken.map_err(Lost::Refused)?;
            reader.from += bytes;
            reader.expects_large = reader.expects_large.saturating_sub(1);
        }
        Ok(())
    }
}
