//! Values that behave as an interpreter's objects do: whoever encodes, decodes, copies or drops one waits until it has the only interpreter there is,
//! and kernels that handle some have it while they run.
//!
//! So threads that wait for each other, one with the interpreter for a lock and one with the lock for the interpreter, do so here as they would with
//! Python; and where such a value is handled under a lock that a task may want, it says so at once, whether or not anybody waits.

use crate::kernels::RandomValue;
use crate::random_program::Joins;
use brambling_memory::held;
use brambling_program::{DecodeError, Payload};
use std::borrow::Cow;
use std::cell::{Cell as Place, RefCell};
use std::sync::{Mutex, MutexGuard, PoisonError};

static INTERPRETER: Mutex<()> = Mutex::new(());

thread_local! {
    /// How often this thread has asked for it and not given it back, and what it has.
    static ASKED: Place<u32> = const { Place::new(0) };
    static HAD: RefCell<Option<MutexGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// Does something with the interpreter, which this thread may have already.
///
/// # Panics
/// When this thread has a lock that a task may want.
#[track_caller]
pub fn attached<R>(act: impl FnOnce() -> R) -> R {
    assert!(
        !held::any() || std::thread::panicking(),
        "the interpreter is asked for under a lock that a task may want"
    );
    let attached = (held::attached(), Attached::enter());
    let done = act();
    drop(attached);
    done
}

struct Attached;

impl Attached {
    fn enter() -> Attached {
        if ASKED.replace(ASKED.get() + 1) == 0 {
            let had = INTERPRETER.lock().unwrap_or_else(PoisonError::into_inner);
            HAD.set(Some(had));
        }
        Attached
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        ASKED.set(ASKED.get() - 1);
        if ASKED.get() == 0 {
            HAD.set(None);
        }
    }
}

/// An object. Nothing more is known of it than its numbers.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Object(Vec<u64>);

impl Clone for Object {
    fn clone(&self) -> Object {
        attached(|| Object(self.0.clone()))
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // An empty one is none.
        if !self.0.is_empty() {
            attached(|| self.0.clear());
        }
    }
}

impl Payload for Object {
    const INTERPRETED: bool = true;
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("object")
    }
    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        attached(|| self.0.encode(out));
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        attached(|| Vec::decode(input).map(Object))
    }
}

impl RandomValue for Object {
    fn digest(&self) -> u64 {
        attached(|| self.0.digest())
    }
    fn set(&mut self, hash: u64) {
        // What it was is dropped.
        *self = attached(|| {
            let mut numbers = Vec::new();
            numbers.set(hash);
            Object(numbers)
        });
    }
}

impl Joins for Object {
    fn join(&mut self, other: &mut Self) {
        attached(|| self.0.append(&mut other.0));
    }
    fn take(&mut self) -> Vec<u64> {
        attached(|| std::mem::take(&mut self.0))
    }
}
