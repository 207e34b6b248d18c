//! One connection: its greeting, the frames that come, and those that go.

use super::buffers::{Buffer, Buffers};
use super::carried::{self, Carried, Count};
use super::shared::Sleep;
use super::stream::Stream;
use super::wire::Wire;
use super::{LinkId, Lost, Origin, Owner, Place, Room};
use brambling_protocol::frame::{HEADER_BYTES, Header, Incoming, Packet};
use brambling_protocol::greeting::{
    Answer, Challenge, Dialer, Listener, Nonce, Opening, Token, Verdict,
};
use bytes::Bytes;
use mio::unix::SourceFd;
use mio::{Interest, Registry};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Room for what comes with one call, where no large frame has begun.
const READ_BYTES: usize = 1 << 16;
/// A frame of so many bytes is read into a buffer of its own.
const LARGE_BYTES: usize = 1 << 15;
/// The room after a large frame: another one is likely, and what is read of it here is copied.
const BETWEEN_BYTES: usize = 1 << 10;
/// So much of a large frame has come before its owner is asked where its last bytes are to lie: more than what tells it takes.
const TELLING_BYTES: usize = 1 << 8;
/// After a large frame, so many others come before the next one is not expected any more.
const OTHERS_BETWEEN: u32 = 8;
/// Calls after which others have their turn.
const READS_AT_ONCE: u32 = 16;
/// Frames written with one call.
const WRITTEN_AT_ONCE: usize = 64;

/// A connection, and how far it is.
pub(super) struct Link {
    id: LinkId,
    origin: Origin,
    since: Instant,
    wire: Wire,
    registry: Arc<Registry>,
    /// Whether both sides have proved that they know the token.
    is_open: AtomicBool,
    reader: Mutex<Reader>,
    writer: Mutex<Writer>,
    received: Arc<Count>,
    sent: Arc<Count>,
}

/// What a look at a link has brought.
#[derive(Clone, Copy, Default)]
pub(super) struct Look {
    /// Something has come.
    pub(super) has_come: bool,
    /// More may be there.
    pub(super) has_more: bool,
}

struct Reader {
    greeting: Greeting,
    /// What has come and was not handed up: `bytes[from..to]`.
    bytes: Vec<u8>,
    from: usize,
    to: usize,
    /// A large frame that has begun. Then nothing else waits.
    large: Option<Large>,
    /// Frames that may come before another large one is not expected any more.
    expects_large: u32,
    buffers: Buffers,
    received: Arc<Count>,
}

/// A large frame that has begun.
struct Large {
    place: Within,
    /// How much of the place is written.
    come: usize,
}

/// Where a large frame is read to.
enum Within {
    /// All of it.
    Buffer(Buffer),
    /// Its last bytes; the first are here.
    Room(Vec<u8>, Box<dyn Room>),
}

/// A large frame that has come.
enum Whole {
    InOne(Bytes),
    InTwo(Vec<u8>, Bytes),
}

/// A room that is written, for [`Bytes`].
struct Written(Box<dyn Room>);

impl AsRef<[u8]> for Written {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Large {
    fn room(&mut self) -> &mut [u8] {
        let place = match &mut self.place {
            Within::Buffer(buffer) => buffer.place(),
            Within::Room(_, room) => room.bytes_mut(),
        };
        &mut place[self.come..]
    }

    fn is_whole(&self) -> bool {
        let bytes = match &self.place {
            Within::Buffer(buffer) => buffer.as_ref(),
            Within::Room(_, room) => room.bytes(),
        };
        self.come == bytes.len()
    }

    fn share(self) -> Whole {
        match self.place {
            Within::Buffer(buffer) => Whole::InOne(buffer.share()),
            Within::Room(begun, room) => Whole::InTwo(begun, Bytes::from_owner(Written(room))),
        }
    }
}

impl Whole {
    fn incoming(&self) -> Incoming<'_> {
        match self {
            Whole::InOne(frame) => Incoming::from(frame),
            Whole::InTwo(begun, last) => Incoming::in_two(begun, last),
        }
    }
}

/// Whose turn it is.
enum Greeting {
    /// The opening is to be sent as soon as there is a connection; then a challenge comes.
    Dialing(Box<(Dialer, Opening)>, bool),
    /// An answer was sent: a verdict comes.
    Answered(Box<Dialer>),
    /// An opening comes.
    Listening(Box<(Token, Nonce)>),
    /// A challenge was sent: an answer comes.
    Challenged(Box<Listener>),
    /// A verdict was sent: what both share comes, where that is possible.
    Sharing,
    Over,
}

#[derive(Default)]
struct Writer {
    /// Parts of frames.
    queue: VecDeque<Bytes>,
    /// How much of the first was written.
    written: usize,
    /// The socket takes no more: it will say when it does.
    is_full: bool,
    /// The helper is woken when the socket takes more: only while something waits for that.
    is_awaited: bool,
    /// A small frame was queued since the queue was empty: it may be what somebody waits for.
    has_news: bool,
    has_ended: bool,
    sent: Arc<Count>,
}

impl Link {
    pub(super) fn new(
        id: LinkId,
        wire: Wire,
        origin: Origin,
        registry: &Arc<Registry>,
        buffers: &Buffers,
        (token, nonce): (Token, Nonce),
    ) -> Link {
        let greeting = match origin {
            Origin::Dialed => Greeting::Dialing(Box::new(Dialer::new(token, nonce)), false),
            Origin::Accepted(_) => Greeting::Listening(Box::new((token, nonce))),
        };
        wire.stream.tune();
        let (received, sent) = (Arc::<Count>::default(), Arc::<Count>::default());
        Link {
            id,
            origin,
            since: Instant::now(),
            wire,
            registry: registry.clone(),
            is_open: AtomicBool::new(false),
            reader: Mutex::new(Reader {
                greeting,
                bytes: vec![0; size_of::<Challenge>()],
                from: 0,
                to: 0,
                large: None,
                expects_large: 0,
                buffers: buffers.clone(),
                received: received.clone(),
            }),
            writer: Mutex::new(Writer {
                // Nothing goes out before there is a connection.
                is_full: origin == Origin::Dialed,
                // As it is registered.
                is_awaited: true,
                sent: sent.clone(),
                ..Writer::default()
            }),
            received,
            sent,
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
        self.is_open.load(Ordering::Acquire)
    }

    /// Whether somebody dialed who has not proved anything yet.
    pub(super) fn is_stranger(&self) -> bool {
        matches!(self.origin, Origin::Accepted(_)) && !self.is_open.load(Ordering::Acquire)
    }

    /// Whether its greeting takes longer than it may.
    pub(super) fn greets_longer_than(&self, time: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > time && !self.is_open.load(Ordering::Acquire)
    }

    pub(super) fn register(&self) -> io::Result<()> {
        let interests = Interest::READABLE | Interest::WRITABLE;
        // By its descriptor: others read and write the stream meanwhile.
        self.registry.register(
            &mut SourceFd(&self.wire.stream.as_raw_fd()),
            self.token(),
            interests,
        )
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
        if std::mem::replace(&mut writer.is_awaited, is_awaited) == is_awaited {
            return Ok(());
        }
        let interests = match is_awaited {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        let fd = self.wire.stream.as_raw_fd();
        let mut source = SourceFd(&fd);
        self.registry
            .reregister(&mut source, self.token(), interests)
    }

    /// Nothing is read or written any more.
    pub(super) fn shut(&self) {
        // Both fail when the connection is gone, which is what they are for.
        let _ = self
            .registry
            .deregister(&mut SourceFd(&self.wire.stream.as_raw_fd()));
        let _ = self.wire.stream.shut();
        let mut writer = self.writer();
        writer.has_ended = true;
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
        if let Some(error) = self.wire.stream.take_error()? {
            return Err(error);
        }
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Greeting::Dialing(dialing, is_said) = &mut reader.greeting
            && !*is_said
        {
            if !self.wire.stream.is_connected() {
                return Ok(());
            }
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
        writer.write(&self.wire)?;
        // Who has read makes the socket readable where memory is shared.
        self.await_room(writer, writer.is_full && !self.wire.is_shared())
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
        for _ in 0..READS_AT_ONCE {
            match self.wire.read(reader.room()) {
                Ok(0) => return Err(Lost::Ended),
                Ok(bytes) => {
                    reader.took(bytes);
                    read.has_come = true;
                    self.hand_up(&mut reader, owner)?;
                }
                Err(Lost::Io(error)) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    // No event tells of bells that were taken: whoever takes them does what they are rung for.
                    ErrorKind::WouldBlock if self.wire.hear_bells()? => {
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

    fn hand_up(&self, reader: &mut Reader, owner: &dyn Owner) -> Result<(), Lost> {
        while !matches!(reader.greeting, Greeting::Over) {
            if !self.greet(reader, owner)? {
                return Ok(());
            }
        }
        if let Some(frame) = reader.take_large() {
            reader.received.add_frames(1);
            let taken = owner.frame(self.id, frame.incoming());
            return taken.map_err(Lost::Refused);
        }
        while reader.large.is_none()
            && let Some(bytes) = reader.frame_bytes()?
        {
            let Some(frame) = reader.bytes[reader.from..reader.to].get(..bytes) else {
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

    /// Takes the next message of the greeting; false when it is not all there.
    fn greet(&self, reader: &mut Reader, owner: &dyn Owner) -> Result<bool, Lost> {
        let next = match &reader.greeting {
            Greeting::Dialing(dialing, _) => {
                let Some(challenge) = reader.message::<{ size_of::<Challenge>() }>() else {
                    return Ok(false);
                };
                let answer = dialing.0.on_challenge(&challenge)?;
                self.send([Bytes::copy_from_slice(&answer)]);
                let Greeting::Dialing(dialing, _) = reader.take(challenge.len()) else {
                    unreachable!("just seen")
                };
                Greeting::Answered(Box::new(dialing.0))
            }
            Greeting::Answered(dialer) => {
                let Some(verdict) = reader.message::<{ size_of::<Verdict>() }>() else {
                    return Ok(false);
                };
                dialer.on_verdict(&verdict)?;
                reader.take(verdict.len());
                if self.wire.may_share() {
                    self.wire.share()?;
                    self.sent.add_bytes(1);
                }
                Greeting::Over
            }
            Greeting::Listening(listening) => {
                let Some(opening) = reader.message::<{ size_of::<Opening>() }>() else {
                    return Ok(false);
                };
                let (token, nonce) = &**listening;
                let listener = match Listener::on_opening(token.clone(), &opening, *nonce) {
                    Ok((listener, challenge)) => {
                        self.send([Bytes::copy_from_slice(&challenge)]);
                        listener
                    }
                    Err((error, refusal)) => {
                        if let Some(refusal) = refusal {
                            self.send([Bytes::copy_from_slice(&refusal)]);
                            self.wire.drain();
                        }
                        return Err(error.into());
                    }
                };
                reader.take(opening.len());
                Greeting::Challenged(Box::new(listener))
            }
            Greeting::Challenged(listener) => {
                let Some(answer) = reader.message::<{ size_of::<Answer>() }>() else {
                    return Ok(false);
                };
                let (verdict, is_in) = listener.on_answer(&answer);
                self.send([Bytes::copy_from_slice(&verdict)]);
                is_in?;
                reader.take(answer.len());
                match self.wire.may_share() {
                    true => Greeting::Sharing,
                    false => Greeting::Over,
                }
            }
            Greeting::Sharing => {
                let Some([byte]) = reader.message() else {
                    return Ok(false);
                };
                reader.take(1);
                self.wire.open_shared(byte)?;
                Greeting::Over
            }
            Greeting::Over => return Ok(true),
        };
        reader.greeting = next;
        if matches!(reader.greeting, Greeting::Over) {
            self.is_open.store(true, Ordering::Release);
            owner.opened(self.id, self.origin);
        }
        Ok(true)
    }
}

impl Reader {
    /// Where to read to: while greeting, no more than a message.
    fn room(&mut self) -> &mut [u8] {
        // Asked twice: what is borrowed in one branch is not free in the other.
        if self.large.is_none() {
            return self.shared_room();
        }
        let large = self.large.as_mut();
        large.expect("just asked").room()
    }

    /// The same where no large frame has begun.
    fn shared_room(&mut self) -> &mut [u8] {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
        let begun = self.to - self.from;
        let (wanted, most) = match self.greeting {
            Greeting::Over if self.expects_large > 0 => {
                let next = self.frame_bytes().ok().flatten();
                // Of a large one, no more than what tells where it is to lie.
                let next = next.filter(|bytes| *bytes < LARGE_BYTES).unwrap_or(0);
                (LARGE_BYTES + BETWEEN_BYTES, next.max(begun) + BETWEEN_BYTES)
            }
            Greeting::Over => (LARGE_BYTES + READ_BYTES, usize::MAX),
            // Bells may follow.
            Greeting::Sharing => (1, 1),
            _ => (size_of::<Challenge>(), usize::MAX),
        };
        if self.bytes.len() - self.from < wanted {
            self.bytes.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, begun);
            if self.bytes.len() < wanted {
                self.bytes.resize(wanted, 0);
            }
        }
        let end = self.bytes.len().min(self.from.saturating_add(most));
        &mut self.bytes[self.to..end]
    }

    /// So many bytes have come into the room.
    fn took(&mut self, bytes: usize) {
        self.received.add_bytes(bytes);
        match &mut self.large {
            Some(large) => large.come += bytes,
            None => self.to += bytes,
        }
    }

    /// A frame of so many bytes has begun, and nothing of another: the rest of it comes into a place that somebody has for its last
    /// bytes, or into a buffer of its own.
    fn begin_large(&mut self, bytes: usize, place: impl FnOnce(&[u8]) -> Option<Place>) {
        let begun = &self.bytes[self.from..self.to];
        let fits =
            |place: &Place| place.at <= begun.len() && place.at + place.room.bytes().len() == bytes;
        let (place, at) = match place(begun).filter(fits) {
            Some(Place { at, room }) => (Within::Room(begun[..at].to_vec(), room), at),
            None => (Within::Buffer(self.buffers.take(bytes)), 0),
        };
        let mut large = Large { place, come: 0 };
        large.room()[..begun.len() - at].copy_from_slice(&begun[at..]);
        large.come = begun.len() - at;
        self.large = Some(large);
        self.from = self.to;
    }

    /// A large frame, when all of it is there.
    fn take_large(&mut self) -> Option<Whole> {
        let large = self.large.take_if(|large| large.is_whole())?;
        self.expects_large = OTHERS_BETWEEN;
        Some(large.share())
    }

    /// How long the frame is that begins here, once that is known.
    fn frame_bytes(&self) -> Result<Option<usize>, Lost> {
        let bytes = &self.bytes[self.from..self.to];
        if bytes.len() < HEADER_BYTES {
            return Ok(None);
        }
        let header = Header::decode(bytes)?;
        Ok(Some(HEADER_BYTES + header.body_bytes()))
    }

    /// A message of the greeting, when all of it is there.
    fn message<const BYTES: usize>(&self) -> Option<[u8; BYTES]> {
        self.bytes[self.from..self.to].first_chunk().copied()
    }

    /// Goes past a message, and gives the greeting as it was.
    fn take(&mut self, bytes: usize) -> Greeting {
        self.from += bytes;
        std::mem::replace(&mut self.greeting, Greeting::Over)
    }
}

impl Writer {
    /// Writes what the socket takes.
    fn write(&mut self, wire: &Wire) -> io::Result<()> {
        while !self.is_full && (!self.queue.is_empty() || wire.holds_back()) {
            let mut slices = [IoSlice::new(&[]); WRITTEN_AT_ONCE];
            let mut count = 0;
            for (slice, frame) in slices.iter_mut().zip(&self.queue) {
                let from = if count == 0 { self.written } else { 0 };
                *slice = IoSlice::new(&frame[from..]);
                count += 1;
            }
            let wakes = match self.has_news {
                true => Sleep::Dozes,
                false => Sleep::Sleeps,
            };
            match wire.write(&slices[..count], wakes) {
                Ok(bytes) => self.wrote(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_full = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wrote(&mut self, bytes: usize) {
        self.sent.add_bytes(bytes);
        self.written += bytes;
        while let Some(first) = self.queue.front()
            && self.written >= first.len()
        {
            self.written -= first.len();
            self.queue.pop_front();
        }
        self.has_news &= !self.queue.is_empty();
    }
}

/// Tells a dialer that too many others are being greeted.
pub(super) fn turn_away(mut stream: &Stream) {
    // It fits into any socket's buffer; who does not take it is gone.
    let _ = stream.write(&Listener::busy());
}
