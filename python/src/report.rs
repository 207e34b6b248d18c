//! What a job did, and the report of it, for Python.

use brambling::RunOptions;
use brambling::machine::report::Pipeline;
use brambling::machine::{Ledger, Report, least};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// What a job did, and where its threads' time went.
#[pyclass(module = "brambling._native", name = "Ledger", frozen)]
pub struct PyLedger(pub Ledger);

#[pymethods]
impl PyLedger {
    #[new]
    fn from_json(json: &str) -> PyResult<PyLedger> {
        let ledger = Ledger::from_json(json);
        let ledger = ledger.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(PyLedger(ledger))
    }

    /// All of it, as JSON.
    fn json(&self) -> String {
        self.0.to_json()
    }

    /// As the JSON that it is made of again. Models keep one, and are copied and sent: the threads' moments stay behind, which are many
    /// times as large as a model.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (String,)) {
        let mut ledger = slf.get().0.clone();
        let threads = ledger.workers.iter_mut().flat_map(|it| &mut it.threads);
        threads.for_each(|thread| thread.moments.clear());
        (slf.get_type().into_any(), (ledger.to_json(),))
    }
}

/// Of the jobs that have ended under these options, the one that took longest.
pub fn longest(py: Python<'_>, options: &RunOptions) -> PyResult<Option<Py<PyLedger>>> {
    let ledgers = options.kept_ledgers().into_iter();
    let longest = ledgers.max_by(|one, other| one.wall_s.total_cmp(&other.wall_s));
    longest.map(|it| Py::new(py, PyLedger(it))).transpose()
}

/// How near a job came to what its machines can do.
#[pyclass(module = "brambling._native", name = "Report", frozen)]
pub struct PyReport(Report);

#[pymethods]
impl PyReport {
    #[new]
    fn new(py: Python<'_>, ledger: &Bound<'_, PyLedger>) -> PyReport {
        let ledger = ledger.get().0.clone();
        PyReport(py.detach(|| Report::of(ledger)))
    }

    #[getter]
    fn actual_seconds(&self) -> f64 {
        self.0.actual_seconds
    }

    #[getter]
    fn ideal_seconds(&self) -> Option<f64> {
        self.0.ideal_seconds
    }

    #[getter]
    fn share_of_ideal(&self) -> Option<f64> {
        self.0.share_of_ideal
    }

    #[getter]
    fn bound_by(&self) -> Option<&'static str> {
        self.0.bound_by.map(|resource| resource.name())
    }

    #[getter]
    fn is_probed(&self) -> bool {
        self.0.probed
    }

    #[getter]
    fn advice(&self) -> Vec<String> {
        let advice = self.0.advice.iter();
        advice.map(|advice| advice.text.clone()).collect()
    }

    /// The steps of a map-reduce, as JSON.
    fn map_reduce_steps(&self) -> String {
        self.0.pipeline_json(Pipeline::MapReduce)
    }

    fn headline(&self) -> String {
        self.0.headline()
    }

    fn text(&self) -> String {
        self.0.to_text()
    }

    fn json(&self) -> String {
        self.0.to_json()
    }

    fn html(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.to_html())
    }

    fn fragment(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.to_html_fragment())
    }

    fn trace(&self, py: Python<'_>) -> Vec<u8> {
        py.detach(|| self.0.to_trace())
    }

    fn trace_json(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.to_trace_json())
    }
}

/// The least seconds in which so many threads of this machine read a table and do so many operations, and what decides them.
#[pyfunction]
pub fn least_seconds(
    py: Python<'_>,
    read_bytes: f64,
    flops: f64,
    threads: usize,
) -> PyResult<(f64, &'static str)> {
    let least = py.detach(|| least::least(read_bytes, flops, threads));
    let least = least.map_err(|error| PyOSError::new_err(error.to_string()))?;
    Ok((least.seconds, least.bound_by.name()))
}
