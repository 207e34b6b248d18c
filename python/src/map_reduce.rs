//! Map-reduce by built-in functions, and the writing of what functions of Python have given.

use crate::report::PyLedger;
use crate::run::{PyCaller, options_in_use};
use brambling::map_reduce::{self as job, MapFunction, MapReduce, MapReduceError, ReduceFunction};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use std::path::PathBuf;

fn map_named(name: &str) -> Option<MapFunction> {
    match name {
        "words" => Some(MapFunction::Words),
        "lines" => Some(MapFunction::Lines),
        _ => None,
    }
}

fn reduce_named(name: &str) -> Option<ReduceFunction> {
    match name {
        "sum" => Some(ReduceFunction::Sum),
        "count" => Some(ReduceFunction::Count),
        "min" => Some(ReduceFunction::Min),
        "max" => Some(ReduceFunction::Max),
        _ => None,
    }
}

fn refused(class: &str, name: &str) -> PyErr {
    crate::raise(
        "BuildError",
        format!("there is no built-in {class} {name:?}"),
    )
}

fn raise(py: Python<'_>, caller: &mut PyCaller, error: MapReduceError) -> PyErr {
    if let MapReduceError::Run(error) = error {
        return caller.raise(py, error);
    }
    if let Some(error) = error.as_io() {
        return error.into();
    }
    let class = match error {
        MapReduceError::Copies(_) => "ClusterError",
        _ => "BuildError",
    };
    crate::raise(class, format!("map_reduce: {error}"))
}

/// A key as text: bytes that are no UTF-8 become lone surrogates, as in names of files.
fn text<'py>(py: Python<'py>, key: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match std::str::from_utf8(key) {
        Ok(key) => Ok(PyString::new(py, key).into_any()),
        Err(_) => PyBytes::new(py, key).call_method1("decode", ("utf-8", "surrogateescape")),
    }
}

/// Runs a built-in map and a built-in reduce over files, on all threads.
#[pyfunction]
#[pyo3(signature = (files, *, map, reduce, output=None, partitions=None, backup, replication, threads=None))]
#[allow(clippy::too_many_arguments)] // The parameters, each by its name.
pub fn map_reduce_builtin<'py>(
    py: Python<'py>,
    files: Vec<PathBuf>,
    map: &str,
    reduce: &str,
    output: Option<PathBuf>,
    partitions: Option<u32>,
    backup: bool,
    replication: u32,
    threads: Option<u32>,
) -> PyResult<Bound<'py, PyDict>> {
    let how = MapReduce {
        map: map_named(map).ok_or_else(|| refused("map", map))?,
        reduce: reduce_named(reduce).ok_or_else(|| refused("reduce", reduce))?,
        output,
        partitions,
        backup,
        replication,
        ..MapReduce::default()
    };
    let options = options_in_use(py, threads)?;
    let mut caller = PyCaller::default();
    let found = py.detach(|| job::map_reduce(&files, &how, &options, &mut caller));
    let found = found.map_err(|error| raise(py, &mut caller, error))?;
    let pairs = PyDict::new(py);
    for (key, value) in py.detach(|| found.sorted()) {
        pairs.set_item(text(py, key)?, value)?;
    }
    let result = PyDict::new(py);
    result.set_item("pairs", pairs)?;
    result.set_item("keys", found.keys)?;
    result.set_item("files", found.files)?;
    result.set_item("tally", crate::tally(py, &found.tally)?)?;
    result.set_item("ledger", Py::new(py, PyLedger(found.ledger))?)?;
    Ok(result)
}

/// Writes the parts of an output, which appears when all are there.
#[pyclass(name = "PartsWriter", unsendable)]
pub struct PyPartsWriter(Option<job::PartsWriter>);

impl PyPartsWriter {
    /// Waits for the disk without the interpreter.
    fn with<T: Send>(
        &mut self,
        py: Python<'_>,
        work: impl FnOnce(&mut job::PartsWriter) -> Result<T, MapReduceError> + Send,
    ) -> PyResult<T> {
        let Some(parts) = &mut self.0 else {
            return Err(crate::raise(
                "BuildError",
                "the parts are written".to_string(),
            ));
        };
        let done = py.detach(|| work(parts));
        done.map_err(|error| raise(py, &mut PyCaller::default(), error))
    }
}

#[pymethods]
impl PyPartsWriter {
    #[new]
    fn new(py: Python<'_>, output: PathBuf) -> PyResult<PyPartsWriter> {
        let begun = py.detach(|| job::PartsWriter::begin(&output));
        let begun = begun.map_err(|error| raise(py, &mut PyCaller::default(), error))?;
        Ok(PyPartsWriter(Some(begun)))
    }

    /// Begins the next part.
    fn begin_part(&mut self, py: Python<'_>) -> PyResult<()> {
        self.with(py, job::PartsWriter::begin_part)
    }

    /// Appends bytes to it.
    fn write(&mut self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        self.with(py, |parts| parts.write(bytes))
    }

    /// Gives the directory its name, and the names of its files.
    fn commit(&mut self, py: Python<'_>) -> PyResult<Vec<PathBuf>> {
        let Some(parts) = self.0.take() else {
            return Ok(Vec::new());
        };
        let written = py.detach(|| parts.commit());
        written.map_err(|error| raise(py, &mut PyCaller::default(), error))
    }

    /// Takes away what was written and has no name yet.
    fn abandon(&mut self) {
        self.0 = None;
    }
}
