//! A socket of one machine, and the memory that both sides have once they trust each other: what is said goes through that, and the socket
//! only wakes. Who dialed offers it, with a [file](passed) beside the byte that says so, or says that there is none.

mod passed;
mod shared;

use super::{ByteChannel, Sleep};
use crate::transports::tcp::Lost;
use crate::transports::tcp::buffers::BUDGETS_PART;
use crate::transports::tcp::stream::SocketStream;
use brambling_memory::{Budget, Class, Reservation};
use shared::{ALL_BYTES, Moved, SharedRings};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What is said over the socket after the greeting: that memory comes with it.
const SHARES: u8 = 1;
/// Or that there is none, and everything goes over the socket.
const SHARES_NOTHING: u8 = 0;
/// Bells read with one call.
const BELLS: usize = 64;

/// A socket that passes files, and what goes beside it.
pub(super) struct SharedMemoryChannel {
    stream: SocketStream,
    /// None: what is said goes over the socket. With its room.
    shared: OnceLock<(SharedRings, Option<Reservation>)>,
    budget: Budget,
    /// What came with the last byte before that.
    passed: Mutex<Option<OwnedFd>>,
    /// The socket has something to say that was not read: a bell, or its end.
    is_rung: AtomicBool,
    /// The other side has closed the socket: what is in the memory is the last.
    has_ended: AtomicBool,
}

impl SharedMemoryChannel {
    pub(super) fn beside(stream: SocketStream, budget: &Budget) -> SharedMemoryChannel {
        SharedMemoryChannel {
            stream,
            shared: OnceLock::new(),
            budget: budget.clone(),
            passed: Mutex::default(),
            is_rung: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }
    }

    fn passed(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was said so far went over the socket, and what comes goes through memory.
    fn use_from_now_on(&self, shared: SharedRings, room: Option<Reservation>) {
        let is_new = self.shared.set((shared, room)).is_ok();
        assert!(is_new, "agreed on once");
    }

    fn shared(&self) -> Option<&SharedRings> {
        self.shared.get().map(|(shared, _)| shared)
    }

    /// Room for memory to share, if that is a small part of the budget and there is so much left. Without it the socket does.
    fn room(&self) -> Option<Reservation> {
        let bytes = ALL_BYTES as u64;
        let is_little = bytes <= self.budget.budget_bytes() / BUDGETS_PART;
        let room = is_little.then(|| self.budget.reserve(Class::Transfer, bytes));
        room?.ok()
    }

    /// Wakes the other side's helper. A socket that takes no more bells wakes it without; that it is broken shows when it is read.
    fn ring(&self) {
        let _ = { &self.stream }.write(&[0]);
    }
}

impl ByteChannel for SharedMemoryChannel {
    fn socket(&self) -> &SocketStream {
        &self.stream
    }

    fn read(&self, place: &mut [u8]) -> Result<usize, Lost> {
        let Some(shared) = self.shared() else {
            let (bytes, file) = passed::read(&self.stream, place)?;
            if file.is_some() {
                *self.passed() = file;
            }
            return Ok(bytes);
        };
        // Asked before the read: what was written before the end is in the ring by now.
        let has_ended = self.has_ended.load(Ordering::Acquire);
        let Moved { bytes, rings } = shared.read(place)?;
        if rings {
            self.ring();
        }
        match bytes {
            0 if !has_ended => Err(io::Error::from(ErrorKind::WouldBlock).into()),
            bytes => Ok(bytes),
        }
    }

    fn write(&self, slices: &[IoSlice<'_>], wakes: Sleep) -> io::Result<usize> {
        let Some(shared) = self.shared() else {
            return { &self.stream }.write_vectored(slices);
        };
        let Moved { bytes, rings } = shared.write(slices, wakes)?;
        if rings {
            self.ring();
        }
        match bytes {
            0 => Err(ErrorKind::WouldBlock.into()),
            bytes => Ok(bytes),
        }
    }

    fn agrees(&self) -> bool {
        true
    }

    fn offer(&self) -> io::Result<()> {
        let made = self
            .room()
            .and_then(|room| Some((room, SharedRings::make().ok()?)));
        let Some((room, (shared, file))) = made else {
            return passed::pass(&self.stream, SHARES_NOTHING, None);
        };
        passed::pass(&self.stream, SHARES, Some(file.as_fd()))?;
        self.use_from_now_on(shared, Some(room));
        Ok(())
    }

    fn accept(&self, byte: u8) -> io::Result<()> {
        let file = self.passed().take();
        match (byte, file) {
            // The memory exists already, so it is used even if a small budget has no room for it.
            (SHARES, Some(file)) => self.use_from_now_on(SharedRings::open(&file)?, self.room()),
            (SHARES_NOTHING, None) => {}
            _ => {
                let why = "the other process does not say how it shares memory";
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
        }
        Ok(())
    }

    fn rings_for_room(&self) -> bool {
        self.shared().is_some()
    }

    fn sleep(&self, how: Sleep) -> bool {
        self.shared().is_some_and(|shared| shared.sleep(how))
    }

    fn rung(&self) {
        self.is_rung.store(true, Ordering::Release);
    }

    fn hear(&self) -> io::Result<bool> {
        if !self.is_rung.swap(false, Ordering::AcqRel) || self.shared().is_none() {
            return Ok(false);
        }
        let mut bells = [0; BELLS];
        loop {
            match { &self.stream }.read(&mut bells) {
                Ok(0) => {
                    self.has_ended.store(true, Ordering::Release);
                    return Ok(true);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
