//! What a job did, for Python.

use brambling::RunOptions;
use brambling::machine::Ledger;
use pyo3::prelude::*;

/// What a job did, and where its threads' time went.
#[pyclass(module = "brambling._native", name = "Ledger", frozen)]
pub struct PyLedger(pub Ledger);

/// Of the jobs that have ended under these options, the one that took longest.
pub fn longest(py: Python<'_>, options: &RunOptions) -> PyResult<Option<Py<PyLedger>>> {
    let ledgers = options.kept_ledgers().into_iter();
    let longest = ledgers.max_by(|one, other| one.wall_s.total_cmp(&other.wall_s));
    longest.map(|it| Py::new(py, PyLedger(it))).transpose()
}
