//! Memory that two processes of one machine share: a ring of bytes for each way between them.
//!
//! It saves what a Unix socket costs: a system call for each read and write, pages of the system's own for what is under way, and a helper
//! that pushes a thread at work off its processor for each piece that comes.
//!
//! # Rules
//! * Who dials makes the memory, a file without a name that nobody can make smaller, and passes it on over the Unix socket
//!   (memfd_create(2), unix(7)) once both sides have proved that they know the token.
//! * One side writes into a ring and the other reads. Each keeps its own position to itself, and only tells the other; what the other tells
//!   is checked before anything is read or written there. A process that breaks the rules can spoil what it sends, and nothing else.
//! * What is news wakes also a reader that dozes, whose threads look by themselves now and then; anything wakes one that sleeps.
//! * **No bell is lost.** A side that is going to sleep says so and then looks once more; who has written looks afterwards whether
//!   somebody sleeps. Between the two steps of each lies a fence, so at least one of them sees what the other did. The same holds for who
//!   found the ring full and who has read. The bell is a byte over the socket.
#![allow(unsafe_code)]

use crate::transports::tcp::channel::Sleep;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, copy_nonoverlapping, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};

/// What one side may leave unread.
pub(super) const RING_BYTES: usize = 2 << 20;
/// Who waits for room hears of it when there is so much.
const WORTH_A_BELL: usize = RING_BYTES / 4;
/// Room for the positions, before the bytes.
const HEAD_BYTES: usize = 1 << 12;
pub(super) const ALL_BYTES: usize = HEAD_BYTES + 2 * RING_BYTES;

/// Alone on its cache lines, and on those that are fetched with them.
#[repr(C, align(128))]
struct Apart<T>(T);

/// What both sides know of one way. Zero at the beginning.
#[repr(C)]
struct RingDirection {
    /// How much was written since the beginning.
    written: Apart<AtomicU64>,
    /// How much of it was written with the last news.
    news: Apart<AtomicU64>,
    /// The writer waits for room.
    waits: Apart<AtomicBool>,
    /// How much was read since the beginning.
    read: Apart<AtomicU64>,
    /// How deep the reader sleeps.
    sleeps: Apart<AtomicU8>,
}

const _: () = assert!(2 * size_of::<RingDirection>() <= HEAD_BYTES);

/// One side's view of the memory. Only one thread at a time reads, and only one writes.
pub(super) struct SharedRings {
    memory: NonNull<u8>,
    /// The way that this side writes: 0 or 1.
    out: usize,
    written: AtomicU64,
    read: AtomicU64,
}

// SAFETY: no thread owns the memory; the parts that are not atomic are touched as `read` and
// `write` say.
unsafe impl Send for SharedRings {}
// SAFETY: as above.
unsafe impl Sync for SharedRings {}

/// Something was read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moved {
    pub(super) bytes: usize,
    /// The other side is to be woken.
    pub(super) rings: bool,
}

impl SharedRings {
    /// Makes the memory, for who dials, and what the other side opens it with.
    ///
    /// # Errors
    /// When the system has none to give.
    pub(super) fn make() -> io::Result<(SharedRings, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("brambling-link", flags)?;
        ftruncate(&file, ALL_BYTES as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((SharedRings::map(&file, 0)?, file))
    }

    /// Opens what the other side has made.
    ///
    /// # Errors
    /// When it is not what [`make`](SharedRings::make) makes, or the system does not map it.
    pub(super) fn open(file: &OwnedFd) -> io::Result<SharedRings> {
        // A file without this seal could be cut off later, and touching the memory beyond its new
        // end would end this process.
        let seals = fcntl_get_seals(file).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK) || fstat(file)?.st_size != ALL_BYTES as i64 {
            let why = "the other process passed on a file that is no memory to share";
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        SharedRings::map(file, 1)
    }

    fn map(file: &OwnedFd, out: usize) -> io::Result<SharedRings> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the system puts it, of as many bytes as the file has; it is
        // sealed, so it keeps them.
        let memory = unsafe { mmap(null_mut(), ALL_BYTES, access, MapFlags::SHARED, file, 0)? };
        Ok(SharedRings {
            memory: NonNull::new(memory.cast()).expect("a mapping lies somewhere"),
            out,
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
        })
    }

    fn way(&self, number: usize) -> &RingDirection {
        // SAFETY: within the first page, aligned, made of atomics only, and mapped as long as `self` is there.
        unsafe { self.memory.cast::<RingDirection>().add(number).as_ref() }
    }

    /// Where the byte at a position lies, and how many follow it before the ring's end.
    fn place(&self, way: usize, position: u64) -> (*mut u8, usize) {
        let at = position as usize % RING_BYTES;
        // SAFETY: within the mapping.
        let place = unsafe { self.memory.as_ptr().add(HEAD_BYTES + way * RING_BYTES + at) };
        (place, RING_BYTES - at)
    }

    /// Takes what has come; no bytes: there is nothing. By one thread at a time.
    ///
    /// # Errors
    /// When the other side says what cannot be.
    pub(super) fn read(&self, into: &mut [u8]) -> io::Result<Moved> {
        let number = 1 - self.out;
        let way = self.way(number);
        let read = self.read.load(Ordering::Relaxed);
        let come = between(read, way.written.0.load(Ordering::Acquire))?;
        let bytes = come.min(into.len());
        if bytes == 0 {
            let rings = false;
            return Ok(Moved { bytes, rings });
        }
        let (from, to_end) = self.place(number, read);
        let first = bytes.min(to_end);
        // SAFETY: `first` bytes lie from there to the ring's end, the rest at its beginning. The
        // writer does not touch them before it hears that they were read; if it breaks that rule,
        // they are bytes all the same.
        unsafe {
            copy_nonoverlapping(from, into.as_mut_ptr(), first);
            let (start, _) = self.place(number, 0);
            copy_nonoverlapping(start, into.as_mut_ptr().add(first), bytes - first);
        }
        let read = read + bytes as u64;
        self.read.store(read, Ordering::Relaxed);
        way.read.0.store(read, Ordering::Release);
        fence(Ordering::SeqCst);
        let has_room = RING_BYTES - (come - bytes) >= WORTH_A_BELL;
        let rings = has_room && take(&way.waits.0);
        Ok(Moved { bytes, rings })
    }

    /// Writes what there is room for. No bytes: the ring is full, and the other side rings when it has read. By one thread at a time.
    ///
    /// # Errors
    /// When the other side says what cannot be.
    pub(super) fn write(&self, slices: &[IoSlice<'_>], wakes: Sleep) -> io::Result<Moved> {
        let way = self.way(self.out);
        let begun = self.written.load(Ordering::Relaxed);
        let mut room = RING_BYTES - between(way.read.0.load(Ordering::Acquire), begun)?;
        if room == 0 {
            way.waits.0.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            room = RING_BYTES - between(way.read.0.load(Ordering::Acquire), begun)?;
        }
        let mut written = begun;
        for slice in slices {
            let bytes = room.min(slice.len());
            let (to, to_end) = self.place(self.out, written);
            let first = bytes.min(to_end);
            // SAFETY: there is room for so many bytes, from there to the ring's end and then at its
            // beginning. The reader does not look there before it hears that they were written.
            unsafe {
                copy_nonoverlapping(slice.as_ptr(), to, first);
                let (start, _) = self.place(self.out, 0);
                copy_nonoverlapping(slice.as_ptr().add(first), start, bytes - first);
            }
            written += bytes as u64;
            room -= bytes;
        }
        let bytes = (written - begun) as usize;
        if bytes == 0 {
            let rings = wake(&way.sleeps.0, Sleep::Dozes);
            return Ok(Moved { bytes, rings });
        }
        self.written.store(written, Ordering::Relaxed);
        way.written.0.store(written, Ordering::Release);
        if wakes == Sleep::Dozes {
            way.news.0.store(written, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        let rings = wake(&way.sleeps.0, wakes);
        Ok(Moved { bytes, rings })
    }

    /// Says that whoever reads here goes to sleep, and is to be woken for what comes; whether something has come already.
    pub(super) fn sleep(&self, how: Sleep) -> bool {
        let way = self.way(1 - self.out);
        way.sleeps.0.store(how as u8, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let come = match how {
            Sleep::Dozes => way.news.0.load(Ordering::Relaxed),
            Sleep::Sleeps => way.written.0.load(Ordering::Relaxed),
        };
        // A process that breaks the rules keeps us awake, and no more.
        come > self.read.load(Ordering::Relaxed)
    }
}

impl Drop for SharedRings {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nobody refers to it any more.
        let done = unsafe { munmap(self.memory.as_ptr().cast(), ALL_BYTES) };
        debug_assert!(done.is_ok());
    }
}

/// How far apart the two positions are.
fn between(read: u64, written: u64) -> io::Result<usize> {
    let bytes = written.wrapping_sub(read);
    if bytes > RING_BYTES as u64 {
        let why = "the other process says that it has read or written what it cannot have";
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    Ok(bytes as usize)
}

/// Whether somebody sleeps at least so deep, who is woken.
fn wake(sleeps: &AtomicU8, at_least: Sleep) -> bool {
    sleeps.load(Ordering::Relaxed) >= at_least as u8 && sleeps.swap(0, Ordering::Relaxed) > 0
}

/// Whether the flag was set, which it is no longer.
fn take(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::Relaxed)
}

#[cfg(test)]
mod tests;
