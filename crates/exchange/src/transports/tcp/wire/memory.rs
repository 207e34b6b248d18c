//! A socket of one machine, and the memory that both sides have once they trust each other: what is said goes through that, and the socket
//! only wakes.

use crate::transports::tcp::shared::{Moved, Shared, Sleep};
use crate::transports::tcp::stream::Stream;
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

/// What goes over a socket that passes files.
#[derive(Default)]
pub(super) struct Memory {
    /// None: what is said goes over the socket.
    shared: OnceLock<Shared>,
    /// What came with the last byte before that.
    passed: Mutex<Option<OwnedFd>>,
    /// The socket has something to say that was not read: a bell, or its end.
    is_rung: AtomicBool,
    /// The other side has closed the socket: what is in the memory is the last.
    has_ended: AtomicBool,
}

impl Memory {
    /// Whether the two sides share memory by now.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.get().is_some()
    }

    /// As [`Wire::read`](super::Wire::read).
    pub(super) fn read(&self, stream: &Stream, place: &mut [u8]) -> io::Result<usize> {
        let Some(shared) = self.shared.get() else {
            let (bytes, file) = stream.read_passed(place)?;
            if file.is_some() {
                *self.passed() = file;
            }
            return Ok(bytes);
        };
        // Asked first: what was written before the end is there now.
        let has_ended = self.has_ended.load(Ordering::Acquire);
        let Moved { bytes, rings } = shared.read(place)?;
        if rings {
            ring(stream);
        }
        match bytes {
            0 if !has_ended => Err(ErrorKind::WouldBlock.into()),
            bytes => Ok(bytes),
        }
    }

    /// As [`Wire::write`](super::Wire::write).
    pub(super) fn write(
        &self,
        mut stream: &Stream,
        slices: &[IoSlice<'_>],
        wakes: Sleep,
    ) -> io::Result<usize> {
        let Some(shared) = self.shared.get() else {
            return stream.write_vectored(slices);
        };
        let Moved { bytes, rings } = shared.write(slices, wakes)?;
        if rings {
            ring(stream);
        }
        match bytes {
            0 => Err(ErrorKind::WouldBlock.into()),
            bytes => Ok(bytes),
        }
    }

    fn passed(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Wire::share`](super::Wire::share).
    pub(super) fn share(&self, stream: &Stream) -> io::Result<()> {
        let Ok((shared, file)) = Shared::make() else {
            return stream.pass(SHARES_NOTHING, None);
        };
        stream.pass(SHARES, Some(file.as_fd()))?;
        let is_new = self.shared.set(shared).is_ok();
        assert!(is_new, "made once");
        Ok(())
    }

    /// As [`Wire::open_shared`](super::Wire::open_shared).
    pub(super) fn open(&self, byte: u8) -> io::Result<()> {
        let file = self.passed().take();
        let shared = match (byte, file) {
            (SHARES, Some(file)) => Shared::open(&file)?,
            (SHARES_NOTHING, None) => return Ok(()),
            _ => {
                let why = "the other process does not say how it shares memory";
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
        };
        let is_new = self.shared.set(shared).is_ok();
        assert!(is_new, "opened once");
        Ok(())
    }

    /// As [`Wire::sleep`](super::Wire::sleep).
    pub(super) fn sleep(&self, how: Sleep) -> bool {
        self.shared.get().is_some_and(|shared| shared.sleep(how))
    }

    /// The socket has something to say.
    pub(super) fn rung(&self) {
        self.is_rung.store(true, Ordering::Release);
    }

    /// As [`Wire::hear_bells`](super::Wire::hear_bells).
    pub(super) fn hear_bells(&self, mut stream: &Stream) -> io::Result<bool> {
        if !self.is_rung.swap(false, Ordering::AcqRel) || !self.is_shared() {
            return Ok(false);
        }
        let mut bells = [0; BELLS];
        loop {
            match stream.read(&mut bells) {
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

/// Wakes the other side's helper. A socket that takes no more bells wakes it without; that it is broken shows when it is read.
fn ring(mut stream: &Stream) {
    let _ = stream.write(&[0]);
}
