//! Owns a list that many threads put things into and one owner takes all of. Sources, and whoever reads from peers, put;
//! the shard's thread takes, and closes it when the shard leaves. It never waits, and it keeps no order.
//!
//! # Why nothing is lost
//! Whoever puts something in either changes the head that it has seen, and then the owner's next taking has it; or it finds the box closed, and
//! keeps what it has. Closing takes everything in the same step. So what was put in is the owner's, and what was not is still its sender's.
//!
//! # Who tells the owner
//! Whoever puts in the first thing of which nobody else tells. What is put in silently does not count: its owner hears of it in another way, and
//! perhaps not before it has what lies on top of it.
#![allow(unsafe_code)] // A stack of heap nodes: pushed by many, taken whole by one.

use super::sync::{AtomicPtr, Ordering};
use std::ptr;

struct MailboxEntry<T> {
    next: *mut MailboxEntry<T>,
    content: T,
}

/// Set in the head while something lies there of which the owner was told.
const TOLD: usize = 2;

/// Things for one owner, in no order.
pub struct Mailbox<T> {
    head: AtomicPtr<MailboxEntry<T>>,
}

// SAFETY: an entry is owned by the mailbox in which it lies, and then by whoever takes it.
unsafe impl<T: Send> Send for Mailbox<T> {}
// SAFETY: as above: a shared mailbox only takes entries in, and gives each out once.
unsafe impl<T: Send> Sync for Mailbox<T> {}

/// The head of a closed box: no entry lies there.
fn closed<T>() -> *mut MailboxEntry<T> {
    ptr::without_provenance_mut(1)
}

fn entry<T>(head: *mut MailboxEntry<T>) -> *mut MailboxEntry<T> {
    head.map_addr(|at| at & !TOLD)
}

fn is_told<T>(head: *mut MailboxEntry<T>) -> bool {
    head.addr() & TOLD != 0
}

impl<T> Mailbox<T> {
    /// An empty one, open or closed.
    pub fn new(is_open: bool) -> Mailbox<T> {
        let head = match is_open {
            true => ptr::null_mut(),
            false => closed(),
        };
        Mailbox {
            head: AtomicPtr::new(head),
        }
    }

    /// Puts something in. Whether the owner must be told of it.
    ///
    /// # Errors
    /// Gives it back when the box is closed.
    pub fn put(&self, content: T) -> Result<bool, T> {
        self.push(content, true)
    }

    /// Puts something in of which the owner hears in another way.
    ///
    /// # Errors
    /// As [`Mailbox::put`].
    pub fn put_silently(&self, content: T) -> Result<(), T> {
        self.push(content, false).map(|_| ())
    }

    fn push(&self, content: T, tells: bool) -> Result<bool, T> {
        // Relaxed: `compare_exchange_weak` below compares the head again, and nothing that it
        // points to is read.
        let mut top = self.head.load(Ordering::Relaxed);
        if top == closed() {
            return Err(content);
        }
        // Without the bit `TOLD`, which only the head has.
        let next = entry(top);
        let added = Box::into_raw(Box::new(MailboxEntry { next, content }));
        loop {
            let was_told = is_told(top);
            // The bit says that the owner was told of some entry here. It stays until all are
            // taken.
            let head = match tells || was_told {
                true => added.map_addr(|at| at | TOLD),
                false => added,
            };
            // Release: publishes the entry. Pairs with the Acquire in `empty`.
            let put =
                self.head
                    .compare_exchange_weak(top, head, Ordering::AcqRel, Ordering::Relaxed);
            match put {
                Ok(_) => return Ok(tells && !was_told),
                Err(now) if now == closed() => {
                    // SAFETY: the entry was made above, and never published.
                    return Err(unsafe { Box::from_raw(added) }.content);
                }
                Err(now) => {
                    top = now;
                    // SAFETY: as above: only this thread sees it.
                    unsafe { (*added).next = entry(top) };
                }
            }
        }
    }

    /// Whether there is anything.
    #[inline]
    pub fn has_any(&self) -> bool {
        // Acquire: as in `empty`, for whoever acts on the answer.
        let head = self.head.load(Ordering::Acquire);
        !head.is_null() && head != closed()
    }

    /// Takes all that there is, the latest first. For the owner, of an open box.
    pub fn take(&self) -> Drained<T> {
        self.empty(ptr::null_mut())
    }

    /// The same, and nothing is taken in any more.
    pub fn close(&self) -> Drained<T> {
        self.empty(closed())
    }

    /// Takes things in from now on. Called while it is closed.
    pub fn open(&self) {
        // Release: whoever puts something in sees what was made ready for it. A store does, since
        // nobody else changes a closed mailbox.
        self.head.store(ptr::null_mut(), Ordering::Release);
    }

    fn empty(&self, head: *mut MailboxEntry<T>) -> Drained<T> {
        // Acquire: pairs with the Release in `push`, so the entries can be read. Release: whoever
        // finds the mailbox closed sees what its owner did before.
        let before = self.head.swap(head, Ordering::AcqRel);
        Drained {
            next: match before == closed() {
                // Closing twice finds no entries; the mark of a closed mailbox is no address.
                true => ptr::null_mut(),
                false => entry(before),
            },
        }
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        drop(self.close());
    }
}

/// What was in a mailbox.
pub struct Drained<T> {
    next: *mut MailboxEntry<T>,
}

impl<T> Iterator for Drained<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.next.is_null() {
            return None;
        }
        // SAFETY: the entry was made in `push`, taken from the mailbox once, and is given out once.
        let entry = unsafe { Box::from_raw(self.next) };
        self.next = entry.next;
        Some(entry.content)
    }
}

impl<T> Drop for Drained<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
