//! Children that kernels fork: they have none of the engine's threads, and end when the kernel that made them returns.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicU32, Ordering};

/// How often this process was forked, from the one that loaded the package.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called in a child, right after the fork, by the interpreter.
#[pyfunction]
pub fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Has the interpreter call [`forked`].
pub fn watch(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let how = PyDict::new(py);
    how.set_item("after_in_child", wrap_pyfunction!(forked, module)?)?;
    let os = py.import("os")?;
    os.call_method("register_at_fork", (), Some(&how))?;
    Ok(())
}

/// How often this process was forked. A kernel that begins at one count and returns at another returns in a child.
pub fn count() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// A kernel has returned that began at some [count]: ends the process if it is a child now, as the interpreter ends a script.
pub fn end_if_child<T>(py: Python<'_>, began_at: u32, result: PyResult<T>) -> PyResult<T> {
    if began_at == count() {
        return result;
    }
    let error = result.err().map(|error| error.into_value(py));
    let ended = py
        .import("brambling._forked")
        .and_then(|module| module.call_method1("end", (error,)));
    // It does not come back, and whatever went wrong there: nothing of the engine goes on in a child.
    drop(ended);
    brambling::cluster::leave(brambling_cli::FAILED, || {})
}
