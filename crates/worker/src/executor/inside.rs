//! Owns what a thread waited for in the middle of a task: it is no time of the kernel's. Whoever waits notes it; the thread's
//! book takes it at the end of a slice.

use super::ledger::TimePart;
use std::cell::Cell;
use std::time::Instant;

thread_local! {
    /// Since the thread last looked, in nanoseconds.
    static WAITED: Cell<Waited> = const { Cell::new(Waited { interpreter_ns: 0, spilling_ns: 0 }) };
}

/// What a thread waited for, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waited {
    pub(super) interpreter_ns: u64,
    pub(super) spilling_ns: u64,
}

impl Waited {
    pub(super) fn ns(self) -> u64 {
        self.interpreter_ns + self.spilling_ns
    }

    pub(super) fn parts(self) -> [(TimePart, u64); 2] {
        [
            (TimePart::Interpreter, self.interpreter_ns),
            (TimePart::Spilling, self.spilling_ns),
        ]
    }
}

/// The calling thread waits for an interpreter that runs one thread at a time, in a kernel or elsewhere: what it waits is no time of
/// the kernel's. For packages of other languages.
#[derive(Debug)]
#[must_use = "the wait ends with `end`"]
pub struct InterpreterWait(Instant);

impl InterpreterWait {
    /// It begins to wait.
    pub fn begin() -> InterpreterWait {
        InterpreterWait(Instant::now())
    }

    /// It has the interpreter.
    pub fn end(self) {
        let ns = self.0.elapsed().as_nanos() as u64;
        WAITED.with(|it| {
            let mut waited = it.get();
            waited.interpreter_ns += ns;
            it.set(waited);
        });
    }
}

/// Does something with spilled bytes, and notes how long that takes.
pub(super) fn spilling<R>(act: impl FnOnce() -> R) -> R {
    let begun = Instant::now();
    let done = act();
    let ns = begun.elapsed().as_nanos() as u64;
    WAITED.with(|it| {
        let mut waited = it.get();
        waited.spilling_ns += ns;
        it.set(waited);
    });
    done
}

/// What the calling thread has waited for since the last call.
pub(super) fn take() -> Waited {
    WAITED.with(Cell::take)
}
