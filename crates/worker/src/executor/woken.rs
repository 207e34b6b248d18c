//! Completions: which suspended tasks of a shard were woken, and what wakes them.
//!
//! A completion belongs to one task: the shard's, at one position. It may be cloned, and woken from any thread, any number of times, at any
//! time. A task that is suspended then is called again. One that was called since, has ended, or has left with its shard is not: what wakes it
//! knows nothing of what came after.

use super::job::Job;
use brambling_memory::held;
use brambling_program::Position;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Wake, Waker};

/// Tasks of a shard that were woken since it last looked.
#[derive(Default)]
pub(super) struct Woken {
    /// Whether there are any: all that a slice looks at.
    has_any: AtomicBool,
    tasks: Mutex<Vec<Position>>,
}

impl Woken {
    /// A task is woken. Whether that is news: what comes again before the shard has looked adds nothing.
    fn note(&self, at: Position) -> bool {
        let mut tasks = held::lock(&self.tasks);
        let is_news = !tasks.contains(&at);
        if is_news {
            tasks.push(at);
            // Set under the lock: a thread that takes the tasks clears the flag, and must not clear
            // it for a task that it has not taken.
            self.has_any.store(true, Ordering::Release);
        }
        is_news
    }

    /// Whether any task was woken.
    #[inline]
    pub(super) fn has_any(&self) -> bool {
        // Acquire: pairs with the Release in `note`. A stale `false` is harmless: the waker posts
        // the shard afterwards.
        self.has_any.load(Ordering::Acquire)
    }

    /// The tasks that were woken.
    pub(super) fn take(&self) -> Vec<Position> {
        let mut tasks = held::lock(&self.tasks);
        // Relaxed: the lock orders it against `note`.
        self.has_any.store(false, Ordering::Relaxed);
        std::mem::take(&mut tasks)
    }
}

/// Wakes one task.
struct Completion {
    job: Weak<Job>,
    number: u32,
    at: Position,
}

impl Wake for Completion {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(job) = self.job.upgrade() else {
            return;
        };
        if job.residents[self.number as usize].woken.note(self.at) {
            job.post(self.number);
        }
    }
}

/// Has a shard looked at.
struct Look {
    job: Weak<Job>,
    number: u32,
}

impl Wake for Look {
    fn wake(self: Arc<Self>) {
        if let Some(job) = self.job.upgrade() {
            job.post(self.number);
        }
    }
}

/// What has a shard looked at, whatever its tasks wait for.
pub(super) fn look(job: Weak<Job>, number: u32) -> Waker {
    Waker::from(Arc::new(Look { job, number }))
}

/// What wakes the task of a shard at a position.
pub(super) fn completion(job: Weak<Job>, number: u32, at: Position) -> Waker {
    Waker::from(Arc::new(Completion { job, number, at }))
}
