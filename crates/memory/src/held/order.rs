//! In which order threads take locks: tests ask whether two of them could wait for each other for ever.
//!
//! # How a deadlock is found without one
//! Locks of one class guard values of one type; the interpreter is a class of its own. Once tests [watch](watch), each thread keeps which it has. Whenever
//! it wants one more, "this class after that one" is noted for all threads together. Where what is noted goes round in a circle, some threads in
//! some order wait for each other for ever, whether or not they ever did; where one class comes after itself, two threads may take two locks of it
//! in either order. Both are told at once, with who took what and where.
//!
//! In a process that does not watch all of this is one load for each lock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static WATCHES: AtomicBool = AtomicBool::new(false);
static ORDERS: Mutex<Orders> = Mutex::new(Orders(BTreeMap::new()));

thread_local! {
    static HAS: RefCell<Vec<Had>> = const { RefCell::new(Vec::new()) };
}

/// The class of the interpreter.
const INTERPRETER: &str = "the interpreter";

/// A lock that a thread has.
#[derive(Clone, Copy)]
struct Had {
    class: &'static str,
    /// Where the lock lies: which of its class it is.
    lies_at: usize,
    taken_at: &'static Location<'static>,
}

/// How one class came after another for the first time.
struct After {
    thread: String,
    first: Had,
    then: Had,
}

/// By what was had, then by what was wanted.
struct Orders(BTreeMap<&'static str, BTreeMap<&'static str, After>>);

/// From now on the order of locks is looked at, in the whole process. For tests.
pub fn watch() {
    WATCHES.store(true, Ordering::SeqCst);
}

/// How many orders of two classes have been seen. For tests that ask whether anything was.
pub fn orders() -> usize {
    let orders = ORDERS.lock().unwrap_or_else(PoisonError::into_inner);
    orders.0.values().map(BTreeMap::len).sum()
}

/// Whether it is.
#[inline]
pub(super) fn watches() -> bool {
    WATCHES.load(Ordering::Relaxed)
}

/// This thread has the interpreter for as long as it has this.
#[must_use]
pub struct Attached(Option<usize>);

/// Says that this thread asks for the interpreter.
///
/// # Panics
/// In tests that watch, when it could wait for ever.
#[track_caller]
pub fn attached() -> Attached {
    Attached(wants(INTERPRETER, 0))
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(lies_at) = self.0 {
            let_go(INTERPRETER, lies_at);
        }
    }
}

/// Before a thread takes a lock; where it lies, if the process watches.
#[inline]
#[track_caller]
pub(super) fn wants(class: &'static str, lies_at: usize) -> Option<usize> {
    if !watches() {
        return None;
    }
    take_note(class, lies_at);
    Some(lies_at)
}

#[cold]
#[track_caller]
fn take_note(class: &'static str, lies_at: usize) {
    let then = Had {
        class,
        lies_at,
        taken_at: Location::caller(),
    };
    let found = HAS.with_borrow_mut(|has| {
        // It has it already: an interpreter may be asked for again and again.
        let is_had = has
            .iter()
            .any(|it| (it.class, it.lies_at) == (class, lies_at));
        let mut circles = has
            .iter()
            .filter(|_| !is_had)
            .filter_map(|first| note(*first, then));
        let found = circles.next();
        has.push(then);
        found
    });
    if let Some(found) = found
        && !std::thread::panicking()
    {
        let_go(class, lies_at);
        panic!("{found}");
    }
}

pub(super) fn let_go(class: &'static str, lies_at: usize) {
    // A thread that ends has no list any more.
    let _ = HAS.try_with(|has| {
        let mut has = has.borrow_mut();
        let at = has
            .iter()
            .rposition(|it| (it.class, it.lies_at) == (class, lies_at));
        at.map(|at| has.remove(at))
    });
}

/// Notes an order; how it goes round in a circle with others, if it does.
fn note(first: Had, then: Had) -> Option<String> {
    let mut orders = ORDERS.lock().unwrap_or_else(PoisonError::into_inner);
    let after = orders.0.entry(first.class).or_default();
    if after.contains_key(then.class) {
        return None;
    }
    let thread = std::thread::current()
        .name()
        .unwrap_or("a thread")
        .to_owned();
    let way = orders.way(then.class, first.class);
    let circle = way.map(|way| {
        let mut told = "threads may wait for each other for ever:".to_owned();
        let own = After {
            thread: thread.clone(),
            first,
            then,
        };
        [&own]
            .into_iter()
            .chain(way)
            .for_each(|after| after.tell(&mut told));
        told
    });
    let after = After {
        thread,
        first,
        then,
    };
    orders
        .0
        .entry(first.class)
        .or_default()
        .insert(then.class, after);
    circle
}

impl Orders {
    /// How one gets from a class to another, each after the one before.
    fn way(&self, from: &'static str, to: &str) -> Option<Vec<&After>> {
        let mut ways = vec![(from, Vec::new())];
        let mut seen = vec![from];
        while let Some((at, way)) = ways.pop() {
            if at == to {
                return Some(way);
            }
            for (&next, after) in self.0.get(at).into_iter().flatten() {
                if !seen.contains(&next) {
                    seen.push(next);
                    let mut longer = way.clone();
                    longer.push(after);
                    ways.push((next, longer));
                }
            }
        }
        None
    }
}

impl After {
    fn tell(&self, told: &mut String) {
        let After {
            thread,
            first,
            then,
        } = self;
        let _ = write!(
            told,
            "\n  {thread} wants {} at {} while it has {}, taken at {}",
            then.class, then.taken_at, first.class, first.taken_at
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::lock;
    use super::*;
    use std::panic::catch_unwind;

    struct One;
    struct Other;
    struct Third;

    /// One test for all: what is noted is the process's.
    #[test]
    fn orders_that_go_round_in_a_circle_are_told() {
        watch();
        let (one, other, third) = (Mutex::new(One), Mutex::new(Other), Mutex::new(Third));
        {
            let _one = lock(&one);
            let _other = lock(&other);
        }
        {
            let _other = lock(&other);
            let _third = lock(&third);
        }
        // The same order again is none.
        let _one = lock(&one);
        drop(lock(&third));
        drop(_one);
        let _third = lock(&third);
        let told = catch_unwind(|| drop(lock(&one))).unwrap_err();
        let told = told.downcast_ref::<String>().unwrap();
        assert!(told.contains("wait for each other"), "{told}");
        assert!(
            told.contains("One at") && told.contains("Third, taken at"),
            "{told}"
        );
        drop(_third);
        drop(lock(&one));
        // Two of one class.
        let another = Mutex::new(Third);
        let _third = lock(&third);
        assert!(catch_unwind(|| drop(lock(&another))).is_err());
        drop(_third);
        // The interpreter, which a thread may ask for again, and a lock in either order.
        let alone = Mutex::new(0_u8);
        let attached = super::attached();
        drop(super::attached());
        drop(lock(&alone));
        drop(attached);
        let _alone = lock(&alone);
        assert!(catch_unwind(|| drop(super::attached())).is_err());
    }
}
