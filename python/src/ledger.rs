//! What jobs did, for Python: whoever asked for a report of a script is told of each.

use brambling::RunOptions;
use brambling::machine::Ledger;
use pyo3::prelude::*;

/// What a job did, and where its threads' time went.
#[pyclass(module = "brambling._native", name = "Ledger", frozen)]
pub struct PyLedger(pub Ledger);

/// Tells Python of the jobs that have ended under these options; gives the one that took longest.
pub fn tell(py: Python<'_>, options: &RunOptions) -> PyResult<Option<Py<PyLedger>>> {
    let ledgers = options.kept_ledgers();
    let mut longest: Option<Py<PyLedger>> = None;
    for ledger in ledgers {
        let ledger = tell_of(py, ledger)?;
        let is_longer = |it: &Py<PyLedger>| it.get().0.wall_s < ledger.get().0.wall_s;
        if longest.as_ref().is_none_or(is_longer) {
            longest = Some(ledger);
        }
    }
    Ok(longest)
}

/// Tells Python of a job that has ended.
pub fn tell_of(py: Python<'_>, ledger: Ledger) -> PyResult<Py<PyLedger>> {
    let ledger = Py::new(py, PyLedger(ledger))?;
    py.import("brambling._report")?
        .call_method1("ended", (&ledger,))?;
    Ok(ledger)
}
