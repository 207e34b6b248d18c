//! Sockets of links in processes that this one forks: they are taken from them.
//!
//! A process that is forked has its parent's descriptors until it executes something. When the parent dies, a copy that lives on, as a helper does
//! that a kernel has forked, would keep the parent's connections open: nobody would hear of the death, and who dials would get no answer from a
//! port that is still listened at. So each child that begins puts something that is connected to nobody in their place.
//!
//! # Rules
//! * In place, not closed: what the child does not know to be gone, it may close, and by then the number may be something else.
//! * Nothing is shut down: that would end the parent's connection too.
//! * Between fork(2) and what the child does there is no lock and no memory to take: places are atomic, and never given back.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// No descriptor.
const FREE: RawFd = -1;
const PLACES: usize = 256;

/// Places of descriptors, and more of them once those are taken.
struct Places {
    all: [AtomicI32; PLACES],
    more: OnceLock<Box<Places>>,
}

impl Places {
    const fn new() -> Places {
        Places {
            all: [const { AtomicI32::new(FREE) }; PLACES],
            more: OnceLock::new(),
        }
    }

    fn take(&self, descriptor: RawFd) -> &AtomicI32 {
        // Release: a child that reads a number here knows that it was a socket. Pairs with the
        // Acquire in `on_child`.
        let taken = self.all.iter().find(|place| {
            let (ok, no) = (Ordering::AcqRel, Ordering::Relaxed);
            place.compare_exchange(FREE, descriptor, ok, no).is_ok()
        });
        taken.unwrap_or_else(|| {
            let more = self.more.get_or_init(|| Box::new(Places::new()));
            more.take(descriptor)
        })
    }
}

static SOCKETS: Places = Places::new();
/// What the children get in their place, or why they get nothing.
static NOBODY: OnceLock<Option<OwnedFd>> = OnceLock::new();

/// A socket of this process alone, until it is dropped: before the socket is closed.
pub struct Own(&'static AtomicI32);

impl Own {
    /// Takes note of a socket that was just made.
    pub fn new(socket: &impl AsRawFd) -> Own {
        NOBODY.get_or_init(watch);
        Own(SOCKETS.take(socket.as_raw_fd()))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.0.store(FREE, Ordering::Release);
    }
}

/// Has children begin as said above; where the system refuses it, they keep what they have.
fn watch() -> Option<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
    let nobody = socket_with(unix, stream, SocketFlags::CLOEXEC, None).ok()?;
    // SAFETY: `on_child` does only what a child may do between fork(2) and execve(2) (signal-safety(7)).
    let watched = unsafe { libc::pthread_atfork(None, None, Some(on_child)) };
    (watched == 0).then_some(nobody)
}

/// Runs in each child, on its only thread.
extern "C" fn on_child() {
    let Some(Some(nobody)) = NOBODY.get() else {
        return;
    };
    let mut next = Some(&SOCKETS);
    while let Some(places) = next {
        for place in &places.all {
            let socket = place.load(Ordering::Acquire);
            if socket != FREE {
                // SAFETY: both are open here, as they were in the parent. `dup3` fails only where
                // they are not, and then nothing has to be taken from the child.
                unsafe { libc::dup3(nobody.as_raw_fd(), socket, libc::O_CLOEXEC) };
            }
        }
        next = places.more.get().map(|more| &**more);
    }
}
