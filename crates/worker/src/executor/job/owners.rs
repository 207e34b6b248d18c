//! Owns the words that say to whom shards belong, and how their owners hear that there is something
//! for them. Slices and threads call it, and whoever reads from peers. It never looks into a shard.
#![allow(unsafe_code)] // Run queues lie in cells; their thread's queue lock says who may touch them.

use super::Job;
use crate::executor::ready_queue::ReadyQueue;
use brambling_memory::held;
use std::sync::atomic::Ordering;

/// Of a shard's owner: there is none, because the shard is not here.
pub(in crate::executor) const AWAY: u32 = u32::MAX;
/// Beside a shard's owner: it has come by a move, and lives by its mailbox alone.
pub(in crate::executor) const BY_MAILBOX: u32 = 1 << 31;
/// Beside it: the shard rests there, and its owner looks at none of its marks. It is told by doorbell, and does not rest any more then.
const RESTS: u32 = 1 << 30;
/// All that stands beside an owner.
const BESIDE: u32 = BY_MAILBOX | RESTS;

impl Job {
    /// Which thread a shard belongs to now, and whether it lives by its mailbox alone; none while it is not here.
    #[inline]
    pub(in crate::executor) fn owner(&self, number: u32) -> Option<(u32, bool)> {
        // Acquire: as in `belongs_to`.
        let word = self.owners[number as usize].load(Ordering::Acquire);
        (word != AWAY).then_some((word & !BESIDE, word & BY_MAILBOX != 0))
    }

    /// Whether a shard has ever moved: it lives by its mailbox alone.
    pub(in crate::executor) fn has_moved(&self, number: u32) -> bool {
        self.owner(number).is_none_or(|(_, by_mailbox)| by_mailbox)
    }

    /// The thread to which a shard returns from wherever it is a guest.
    #[inline]
    pub(in crate::executor) fn home(&self, number: u32) -> u32 {
        self.homes[number as usize].load(Ordering::Relaxed)
    }

    /// Whether a shard belongs to a thread, as that thread sees it from under its queue lock.
    #[inline]
    pub(in crate::executor) fn belongs_to(&self, number: u32, thread: u32) -> bool {
        // Acquire: pairs with the release in `hand`; what the former owner did to the shard is visible.
        self.owners[number as usize].load(Ordering::Acquire) & !BESIDE == thread
    }

    /// Whether a shard's thread must be told by doorbell what its marks could tell it: it sleeps, or does not look; none when the shard is not here,
    /// or looks at no marks. Asked after the marks were set and the cheap fence was passed.
    #[inline]
    pub(in crate::executor) fn needs_ringing(&self, number: u32) -> Option<bool> {
        let owner = self.owners[number as usize].load(Ordering::Acquire);
        // Relaxed: a thread passes the dear fence before it turns to another job (`JobThread::part`),
        // and whoever asks here has passed the cheap one.
        let looks = |owner| owner < self.ring_from.load(Ordering::Relaxed);
        (owner & BY_MAILBOX == 0).then(|| !looks(owner) || self.parkers.of(owner).is_parked())
    }

    /// The ready queue of a thread.
    ///
    /// # Safety
    /// The calling thread is under that thread's queue lock, and holds no other reference to the queue.
    #[allow(clippy::mut_from_ref)] // The queue lock guards it.
    #[inline]
    pub(in crate::executor) unsafe fn ready(&self, thread: u32) -> &mut ReadyQueue {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.thread_states[thread as usize].ready.get() }
    }

    /// Tells a shard's owner that something arrived. Called by a thread of the job, under its queue lock.
    #[inline]
    pub(in crate::executor) fn wake(&self, number: u32, thread: u32) {
        if self.belongs_to(number, thread) {
            // SAFETY: under our own queue lock, and the reference ends here.
            unsafe { self.ready(thread) }.insert(number);
        } else {
            self.post(number);
        }
    }

    /// Tells a shard's owner by mail. One that is not here is run when it comes.
    pub(in crate::executor) fn post(&self, number: u32) {
        let Some((owner, _)) = self.owner(number) else {
            return;
        };
        // Between the look and the post a thief may take the shard: whoever takes the bit then
        // posts it on (`answer_doorbell`).
        if self.thread_states[owner as usize].doorbell.post(number) {
            self.rouse(owner);
        }
    }

    /// Wakes a thread for which something was posted. One that is at another job may be there for long: a thread that sleeps takes it then.
    fn rouse(&self, thread: u32) {
        if thread == self.threads() {
            self.wake_caller();
        } else if !self.parkers.of(thread).wake() && self.shares() {
            self.wake_one();
        }
    }

    /// Wakes one of the threads that sleep.
    pub(in crate::executor) fn wake_one(&self) {
        let mut parkers = (0..self.threads()).map(|thread| self.parkers.of(thread));
        if let Some(parker) = parkers.find(|parker| parker.is_parked()) {
            parker.wake();
        }
    }

    pub(in crate::executor) fn wake_caller(&self) {
        if let Some(thread) = &*held::lock(&self.caller) {
            thread.unpark();
        }
    }

    /// Queues what was posted for a thread.
    ///
    /// # Safety
    /// As of [`Job::ready`].
    pub(in crate::executor) unsafe fn answer_doorbell(&self, thread: u32) {
        self.thread_states[thread as usize].doorbell.take(|number| {
            if self.belongs_to(number, thread) {
                if self.owners[number as usize].load(Ordering::Relaxed) & RESTS != 0 {
                    self.adopt(number, thread);
                }
                // SAFETY: the caller's promise; the reference ends with the statement.
                unsafe { self.ready(thread) }.insert_urgent(number);
            } else {
                // The shard was handed on after the sender had looked.
                self.post(number);
            }
        });
    }

    /// Gives a shard to another thread, which runs it.
    pub(in crate::executor) fn hand(&self, number: u32, thread: u32) {
        self.adopt(number, thread);
        self.post(number);
    }

    /// Gives a stalled shard back to its home, which looks at none of its marks: it runs when it is told of something.
    pub(in crate::executor) fn rest_at(&self, number: u32, home: u32) {
        self.adopt(number, home | RESTS);
    }

    /// Makes a stolen shard this thread's own.
    pub(in crate::executor) fn adopt(&self, number: u32, thread: u32) {
        let owner = &self.owners[number as usize];
        // A load and a store do: only the owner, or a thief that has locked it out, changes the
        // word while the shard is here.
        let by_mailbox = owner.load(Ordering::Relaxed) & BY_MAILBOX;
        // Release: the new owner sees what we did to the shard.
        owner.store(thread | by_mailbox, Ordering::Release);
    }
}
