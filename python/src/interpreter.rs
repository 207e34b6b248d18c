//! The one place where the package's threads ask for the interpreter.

use brambling::{InterpreterWait, held};
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;

/// Runs something with the interpreter, for which the thread waits unless it has it already.
///
/// A thread that has it may want any lock of a task's, so who has such a lock must not ask for it ([`held`]). That is a fault of ours. Tests of the
/// crates end with it; in a build for users it is told, and the job goes on: most of the time nobody else wants that lock.
#[track_caller]
pub fn attach<R>(act: impl for<'py> FnOnce(Python<'py>) -> R) -> R {
    let is_fault = held::any();
    held::forbid("the interpreter is asked for");
    let place = std::panic::Location::caller();
    let _attached = held::attached();
    let wait = InterpreterWait::begin();
    Python::attach(|py| {
        wait.end();
        if is_fault {
            tell(py, place);
        }
        act(py)
    })
}

#[cold]
fn tell(py: Python<'_>, place: &std::panic::Location<'_>) {
    let text = format!(
        "a fault in brambling itself, please report it: {place} asks for the interpreter under a lock"
    );
    let Ok(text) = std::ffi::CString::new(text) else {
        return;
    };
    // Where warnings are errors nobody is there to be told.
    let _ = PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1);
}
