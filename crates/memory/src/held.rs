//! Locks that tasks may want, and what nobody does under one of them.
//!
//! # The rule
//! A thread may hold an interpreter (Python's) while it wants such a lock. So whoever has such a lock never waits for an interpreter, nor runs
//! what an interpreter may run: a value of its is neither encoded nor decoded nor cloned nor dropped there. Else two threads wait for each other
//! for ever, and nobody says so.
//!
//! # How it is kept
//! Such locks are taken by [`lock`], which counts them for each thread. Where an interpreter is asked for, and where a value of one is handled, [`any`] is
//! looked at: tests panic ([`forbid`]). What has to be dropped under a lock, wherever that is, is dropped when the thread has let go of
//! its last one ([`drop_later`]). In which order threads take them, and the interpreter, tests [`watch`].

mod order;

pub use order::{Attached, attached, orders, watch};

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

thread_local! {
    static HELD: Cell<u32> = const { Cell::new(0) };
    static LEFT: Cell<bool> = const { Cell::new(false) };
    static LATER: RefCell<Vec<Box<dyn Dropped>>> = const { RefCell::new(Vec::new()) };
}

/// Anything, to be dropped.
trait Dropped {}
impl<T> Dropped for T {}

/// A lock that a task may want. What a panic of another thread left is taken as it is.
#[track_caller]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> Held<'_, T> {
    let lies_at = std::ptr::from_ref(mutex).cast::<()>() as usize;
    let watched = order::wants(std::any::type_name::<T>(), lies_at);
    // Counted when it is had: until then this thread holds nothing.
    let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    let inside = Inside::enter();
    let watched = Watched::<T>(watched, PhantomData);
    Held {
        guard,
        inside,
        watched,
    }
}

/// Whether this thread holds such a lock.
#[inline]
pub fn any() -> bool {
    HELD.get() > 0
}

/// Says that what follows may wait for an interpreter.
///
/// # Panics
/// In tests, when this thread holds a lock that a task may want. A build for users asks only where it [watches](watch).
#[inline]
#[track_caller]
pub fn forbid(what: &str) {
    let asks = cfg!(any(feature = "mutants", debug_assertions)) || order::watches();
    if asks && any() && !std::thread::panicking() {
        panic!("{what} under a lock that a task may want, while a task may have the interpreter");
    }
}

/// Drops a value, when this thread has let go of its last such lock.
pub fn drop_later<T: Send + 'static>(value: T) {
    if !any() {
        return drop(value);
    }
    // A thread that is ending has no place for it any more, and drops it at once.
    let _ = LATER.try_with(|later| later.borrow_mut().push(Box::new(value)));
    LEFT.set(true);
}

/// A locked value.
pub struct Held<'a, T: ?Sized> {
    // Dropped in this order: what waits is dropped when the lock is free.
    guard: MutexGuard<'a, T>,
    inside: Inside,
    watched: Watched<T>,
}

/// Where a lock lies that is watched.
struct Watched<T: ?Sized>(Option<usize>, PhantomData<*const T>);

impl<T: ?Sized> Drop for Watched<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(lies_at) = self.0 {
            order::let_go(std::any::type_name::<T>(), lies_at);
        }
    }
}

impl<T: ?Sized> Deref for Held<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Held<'_, T> {
    /// Waits without the lock until somebody tells.
    #[must_use]
    pub fn wait(self, news: &Condvar) -> Self {
        let Held {
            guard,
            inside,
            watched,
        } = self;
        let guard = news.wait(guard).unwrap_or_else(PoisonError::into_inner);
        Held {
            guard,
            inside,
            watched,
        }
    }

    /// The same, at most so long.
    #[must_use]
    pub fn wait_at_most(self, news: &Condvar, time: Duration) -> Self {
        let Held {
            guard,
            inside,
            watched,
        } = self;
        let waited = news.wait_timeout(guard, time);
        let (guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        Held {
            guard,
            inside,
            watched,
        }
    }
}

/// One lock more that this thread holds.
struct Inside(PhantomData<*const ()>);

impl Inside {
    #[inline]
    fn enter() -> Inside {
        HELD.set(HELD.get() + 1);
        Inside(PhantomData)
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
        if LEFT.get() && !any() {
            settle();
        }
    }
}

#[cold]
fn settle() {
    LEFT.set(false);
    let later = LATER.try_with(|later| std::mem::take(&mut *later.borrow_mut()));
    drop(later);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    struct Asks(Arc<Mutex<Vec<bool>>>);

    impl Drop for Asks {
        fn drop(&mut self) {
            // The test's own, which is not counted.
            self.0.lock().unwrap().push(any());
        }
    }

    #[test]
    fn what_is_dropped_under_a_lock_goes_when_the_last_one_is_free() {
        let asked = Arc::<Mutex<Vec<bool>>>::default();
        // Of two classes: tests beside this one may watch.
        let (outer, inner) = (Mutex::new(1_u8), Mutex::new(2_u16));
        drop_later(Asks(asked.clone()));
        assert_eq!(*asked.lock().unwrap(), [false], "at once without a lock");
        let first = lock(&outer);
        let second = lock(&inner);
        drop_later(Asks(asked.clone()));
        assert!(any());
        drop(first);
        assert_eq!(asked.lock().unwrap().len(), 1, "one is held");
        drop(second);
        assert!(!any());
        assert_eq!(*asked.lock().unwrap(), [false, false]);
    }

    #[test]
    fn what_waits_for_news_holds_it_again() {
        let (mutex, news) = (Mutex::new(0), Condvar::new());
        let mut held = lock(&mutex).wait_at_most(&news, Duration::from_millis(1));
        *held += 1;
        assert!(any());
        drop(held);
        assert!(!any());
        assert_eq!(*mutex.lock().unwrap(), 1);
    }

    #[test]
    fn an_interpreter_is_not_asked_for_under_a_lock() {
        forbid("nothing is held");
        let mutex = Mutex::new(());
        let asks = std::panic::catch_unwind(|| {
            let _held = lock(&mutex);
            forbid("a value is encoded");
        });
        // What watches may have been asked for by the test of the order.
        let asserts = cfg!(any(feature = "mutants", debug_assertions)) || order::watches();
        assert_eq!(asks.is_err(), asserts);
        assert!(!any(), "also after a panic");
    }
}
