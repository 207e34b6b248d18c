//! Threads that wait for files, so that no thread of a worker does.
//!
//! # States of a request
//! ```text
//! given ──► queued ──► running ──► ended ──► taken
//!   │          └────── cancelled ────┘
//!   └► come again, when the queue is full
//! ```
//!
//! # Rules
//! * A request that was queued ends: done, failed or cancelled. Its end lies in its [`Ticket`] before its waker is woken, and is taken without
//!   waiting.
//! * The queue has a bound. Whoever gives a request beyond it gets it back, and is woken when it may come again: one for each request that
//!   leaves the queue, and all when none is left there, so that one that does not come again keeps nobody waiting.
//! * When the pool is closed, what is queued is cancelled, what runs ends, and whoever waits for room is woken. What is given later is cancelled
//!   at once. A pool that is dropped is closed, and has no thread any more then.
//! * Wakers are woken, and requests dropped, under no lock.
//! * Requests of one thread may overtake each other: whoever needs an order gives the next one when the last one has ended.

use crate::requests::FileError;
use brambling_memory::mutants;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::{self, JoinHandle};

/// So many requests are with the system at once. One would leave a disk idle between requests and let a reading wait behind a
/// writing; a few of the size of a chunk fill what a disk can do, and more only take CPUs from workers. With a wrong number spilling is
/// slower, and nothing else is different.
const THREADS: usize = 4;

/// So many requests wait at most. Their buffers are charged by whoever gives them; the bound keeps one job from putting another one's
/// requests behind thousands of its own.
const QUEUED_MAX: usize = 256;

/// What a thread of the pool does.
pub trait Request: Send + 'static {
    /// What comes of it.
    type Done: Send + 'static;

    /// Does it, for as long as that takes.
    ///
    /// # Errors
    /// What went wrong, with the file's name.
    fn run(self) -> Result<Self::Done, FileError>;

    /// What it does to what, for an error: "reading part.3".
    fn name(&self) -> String;
}

/// Threads for files.
#[derive(Debug)]
pub struct FilePool {
    shared: Arc<FilePoolShared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct FilePoolShared {
    queue: Mutex<Queue>,
    news: Condvar,
    queued_max: usize,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Box<dyn Queued>>,
    /// Who found it full.
    waiting: VecDeque<Waker>,
    is_closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Queue({} requests, {} waiting)",
            self.requests.len(),
            self.waiting.len()
        )
    }
}

/// A request with its end's place.
trait Queued: Send {
    fn run(self: Box<Self>);
    fn cancel(self: Box<Self>);
}

struct Given<R: Request> {
    request: R,
    slot: Arc<Slot<R::Done>>,
    under_way: UnderWay,
}

/// Requests of all pools that were queued and have not ended.
static UNDER_WAY: AtomicI64 = AtomicI64::new(0);

/// How many requests of this process wait for files: for whoever tells what an idle thread waits for. An estimate, since they come
/// and go meanwhile.
pub fn files_under_way() -> u64 {
    // Relaxed: a count guards nothing.
    UNDER_WAY.load(Ordering::Relaxed).max(0) as u64
}

/// Requests that a fork has left in another process never end here.
pub(crate) fn forget_under_way() {
    UNDER_WAY.store(0, Ordering::Relaxed);
}

/// Counts a request for as long as it lives.
#[derive(Debug)]
struct UnderWay;

impl UnderWay {
    fn begin() -> UnderWay {
        UNDER_WAY.fetch_add(1, Ordering::Relaxed);
        UnderWay
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where a request's end is put.
#[derive(Debug)]
struct Slot<T> {
    state: Mutex<State<T>>,
    ended: Condvar,
}

#[derive(Debug)]
enum State<T> {
    Queued(Waker),
    Running(Waker),
    Ended(Result<T, FileError>),
    Taken,
}

/// The place of a request's end.
#[derive(Debug)]
#[must_use = "a request's end is taken here"]
pub struct Ticket<T> {
    slot: Arc<Slot<T>>,
    name: String,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FilePool {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system gives none.
    pub fn start() -> std::io::Result<FilePool> {
        FilePool::of(THREADS, QUEUED_MAX)
    }

    /// Starts so many threads.
    pub(crate) fn with_threads(threads: usize) -> std::io::Result<FilePool> {
        FilePool::of(threads, QUEUED_MAX)
    }

    fn of(threads: usize, queued_max: usize) -> std::io::Result<FilePool> {
        let shared = Arc::new(FilePoolShared {
            queue: Mutex::default(),
            news: Condvar::new(),
            queued_max,
        });
        let mut pool = FilePool {
            shared,
            threads: Vec::new(),
        };
        for index in 0..threads {
            let shared = pool.shared.clone();
            let named = thread::Builder::new().name(format!("brambling-file-{index}"));
            pool.threads.push(named.spawn(move || shared.work())?);
        }
        Ok(pool)
    }

    /// Queues a request. The waker is woken when its end lies in the ticket.
    ///
    /// # Errors
    /// Gives the request back when the queue is full: the waker is woken when there is room.
    pub fn give<R: Request>(&self, request: R, waker: &Waker) -> Result<Ticket<R::Done>, R> {
        let mut queue = lock(&self.shared.queue);
        if !queue.is_closed && queue.requests.len() >= self.shared.queued_max {
            if !queue.waiting.iter().any(|other| other.will_wake(waker)) {
                queue.waiting.push_back(waker.clone());
            }
            return Err(request);
        }
        let slot = Arc::new(Slot {
            state: Mutex::new(State::Queued(waker.clone())),
            ended: Condvar::new(),
        });
        let ticket = Ticket {
            slot: slot.clone(),
            name: request.name(),
        };
        let given = Box::new(Given {
            request,
            slot,
            under_way: UnderWay::begin(),
        });
        if queue.is_closed {
            drop(queue);
            given.cancel();
        } else {
            queue.requests.push_back(given);
            drop(queue);
            self.shared.news.notify_one();
        }
        Ok(ticket)
    }

    /// Cancels what is queued, and what is given from here on.
    pub fn close(&self) {
        let (requests, waiting) = {
            let mut queue = lock(&self.shared.queue);
            queue.is_closed = true;
            let requests = std::mem::take(&mut queue.requests);
            (requests, std::mem::take(&mut queue.waiting))
        };
        self.shared.news.notify_all();
        if !mutants::is_on("pool-forgets-its-queue") {
            requests.into_iter().for_each(Queued::cancel);
        }
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Does a request on a thread of the pool and waits for its end: for whoever cannot wait otherwise yet.
    ///
    /// # Errors
    /// As the request, or that the pool is closed.
    pub fn finish<R: Request>(&self, mut request: R) -> Result<R::Done, FileError> {
        let waker = Waker::from(Arc::new(Unparked(thread::current())));
        loop {
            match self.give(request, &waker) {
                Ok(ticket) => return ticket.wait(),
                Err(back) => request = back,
            }
            // Who was woken meanwhile does not wait; who is woken for another reason comes again early.
            thread::park();
        }
    }
}

struct Unparked(thread::Thread);

impl std::task::Wake for Unparked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Drop for FilePool {
    fn drop(&mut self) {
        self.close();
        let own = thread::current().id();
        for thread in self.threads.drain(..) {
            // A request may have had the last handle: its thread ends by itself.
            if thread.thread().id() != own {
                let _ = thread.join();
            }
        }
    }
}

impl FilePoolShared {
    /// A thread's life.
    fn work(&self) {
        while let Some((request, woken)) = self.next() {
            woken.into_iter().for_each(Waker::wake);
            request.run();
        }
    }

    /// The next request, and who may come again for that; none when the pool is closed.
    fn next(&self) -> Option<(Box<dyn Queued>, Vec<Waker>)> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(request) = queue.requests.pop_front() {
                let woken = match queue.requests.len() {
                    0 => queue.waiting.len(),
                    _ => queue.waiting.len().min(1),
                };
                let woken = queue.waiting.drain(..woken).collect();
                return Some((request, woken));
            }
            if queue.is_closed {
                return None;
            }
            queue = self
                .news
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<R: Request> Queued for Given<R> {
    fn run(self: Box<Self>) {
        let Given {
            request,
            slot,
            under_way,
        } = *self;
        if !slot.begin() {
            return;
        }
        let name = request.name();
        // Our own fault ends a request, not the thread that others wait for.
        let end = catch_unwind(AssertUnwindSafe(|| request.run()));
        // Before the end is told: whoever is woken by the last one waits for no file any more.
        drop(under_way);
        slot.end(end.unwrap_or_else(|_| Err(FileError::Panicked { what: name })));
    }

    fn cancel(self: Box<Self>) {
        let Given { request, slot, .. } = *self;
        slot.end(Err(FileError::Cancelled {
            what: request.name(),
        }));
    }
}

impl<T> Slot<T> {
    /// Whether it is to be done: nobody has cancelled it.
    fn begin(&self) -> bool {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Taken) {
            State::Queued(waker) => {
                *state = State::Running(waker);
                true
            }
            other => {
                *state = other;
                false
            }
        }
    }

    fn end(&self, end: Result<T, FileError>) {
        let before = {
            let mut state = lock(&self.state);
            match &*state {
                State::Queued(_) | State::Running(_) => {
                    std::mem::replace(&mut *state, State::Ended(end))
                }
                // It was cancelled before.
                State::Ended(_) | State::Taken => return,
            }
        };
        self.ended.notify_all();
        if let State::Queued(waker) | State::Running(waker) = before {
            waker.wake();
        }
    }
}

impl<T> Ticket<T> {
    /// The request's end, once: none before it has ended, nor again.
    pub fn take(&mut self) -> Option<Result<T, FileError>> {
        let mut state = lock(&self.slot.state);
        match std::mem::replace(&mut *state, State::Taken) {
            State::Ended(end) => Some(end),
            other => {
                *state = other;
                None
            }
        }
    }

    /// The request's end, once; before that the waker takes the place of the one that is woken then.
    /// When its end was taken before, that it was cancelled.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Result<T, FileError>> {
        let mut state = lock(&self.slot.state);
        if let State::Queued(kept) | State::Running(kept) = &mut *state {
            let same = kept.will_wake(waker);
            let before = (!same).then(|| std::mem::replace(kept, waker.clone()));
            drop(state);
            drop(before);
            return Poll::Pending;
        }
        drop(state);
        Poll::Ready(self.take().unwrap_or_else(|| Err(self.cancelled())))
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// As the request; that it was cancelled, if its end was taken before.
    pub fn wait(mut self) -> Result<T, FileError> {
        let mut state = lock(&self.slot.state);
        while matches!(*state, State::Queued(_) | State::Running(_)) {
            let waited = self.slot.ended.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.take().unwrap_or_else(|| Err(self.cancelled()))
    }

    /// Nobody wants it any more. If it has not begun it never does, and its end is that; whether it is so. Its waker is not woken for that.
    pub fn cancel(&mut self) -> bool {
        let before = {
            let mut state = lock(&self.slot.state);
            if !matches!(*state, State::Queued(_)) {
                return false;
            }
            let end = State::Ended(Err(self.cancelled()));
            std::mem::replace(&mut *state, end)
        };
        self.slot.ended.notify_all();
        drop(before);
        true
    }

    fn cancelled(&self) -> FileError {
        FileError::Cancelled {
            what: self.name.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
