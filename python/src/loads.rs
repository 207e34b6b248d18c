//! What a worker has loaded of packages, for the clients of jobs whose kernels run there.

use crate::prints::PrintTarget;
use brambling::cluster::Prints;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The interpreter's modules.
static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
/// How many there were when what was loaded was last looked at.
static SEEN: AtomicUsize = AtomicUsize::new(0);

/// Tells a job's client what this worker has loaded.
pub fn tell(py: Python<'_>, prints: &Prints) -> PyResult<()> {
    let loaded = py.import("brambling._cluster")?.call_method0("loaded")?;
    let loaded: Vec<(String, String)> = loaded.extract()?;
    prints.loaded(&loaded);
    Ok(())
}

/// After a kernel: tells it if modules have come.
pub fn tell_news(py: Python<'_>, place: &PrintTarget) -> PyResult<()> {
    let modules = MODULES.get_or_try_init(py, || {
        let modules = py.import("sys")?.getattr("modules")?;
        Ok::<_, PyErr>(modules.cast_into::<PyDict>()?.unbind())
    })?;
    let count = modules.bind(py).len();
    if SEEN.swap(count, Ordering::Relaxed) == count {
        return Ok(());
    }
    tell(py, place.prints())
}
