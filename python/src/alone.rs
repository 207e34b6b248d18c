//! Whose turn it is to run loops of numba's threads, where those serve one caller at a time and end the process otherwise.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

static TURN: Mutex<()> = Mutex::new(());
/// Whether there is code that needs it. Functions of the interpreter may call such code too, and take turns with it from then on.
static IS_NEEDED: AtomicBool = AtomicBool::new(false);

/// Until it is dropped.
pub type PyTurn = MutexGuard<'static, ()>;

pub fn is_needed() {
    // Relaxed: the code that needs it is handed over by locks.
    IS_NEEDED.store(true, Ordering::Relaxed);
}

/// For machine code, on a thread that does not hold the interpreter: who has the turn may want it.
pub fn turn() -> PyTurn {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For a function of the interpreter, which is let go while another has the turn; nothing while there is no such code.
pub fn turn_with_interpreter(py: Python<'_>) -> Option<PyTurn> {
    // Relaxed: as above.
    while IS_NEEDED.load(Ordering::Relaxed) {
        match TURN.try_lock() {
            Ok(turn) => return Some(turn),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => py.detach(|| drop(turn())),
        }
    }
    None
}
