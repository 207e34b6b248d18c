//! Algorithms on graphs over arrays of Python, borrowed for as long as they run.

use crate::borrowed::borrowed;
use crate::report::{self, PyLedger};
use crate::run::{PyCaller, options_in_use};
use brambling::graph::{
    self as analysis, AnalysisError, EdgeList, GraphError, Ids, PageRank, Precision, VertexResults,
};
use brambling::{Caller, RunOptions};
use numpy::{Element, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

fn edge_list(
    vertices: usize,
    sources: &Bound<'_, PyArray1<u32>>,
    targets: &Bound<'_, PyArray1<u32>>,
    weights: Option<&Bound<'_, PyArray1<f64>>>,
) -> PyResult<EdgeList> {
    let mut edges = EdgeList::new(
        vertices,
        Ids::U32(borrowed(sources)?),
        Ids::U32(borrowed(targets)?),
    );
    edges.weights = weights.map(borrowed).transpose()?;
    Ok(edges)
}

/// Runs without the interpreter's lock.
fn run<T: Send>(
    py: Python<'_>,
    analyse: impl FnOnce(&RunOptions, &mut dyn Caller) -> Result<T, AnalysisError> + Send,
) -> PyResult<(T, Option<Py<PyLedger>>)> {
    let options = options_in_use(py, None)?;
    let mut caller = PyCaller::default();
    let found = py.detach(|| analyse(&options, &mut caller));
    let found = found.map_err(|error| match error {
        AnalysisError::Run(error) => caller.raise(py, error),
        other => crate::raise("BuildError", other.to_string()),
    })?;
    let ledger = report::longest(py, &options)?;
    Ok((found, ledger))
}

fn values<'py, V: Element>(py: Python<'py>, found: VertexResults<V>) -> Bound<'py, PyArray1<V>> {
    PyArray1::from_vec(py, found.values)
}

type Columns<'py> = (
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
);

/// The ids that occur in three columns, ascending, and the first two columns as places among them.
#[pyfunction]
fn relabel<'py>(
    py: Python<'py>,
    sources: PyReadonlyArray1<'py, u64>,
    targets: PyReadonlyArray1<'py, u64>,
    others: PyReadonlyArray1<'py, u64>,
) -> PyResult<Columns<'py>> {
    let (sources, targets) = (sources.as_slice()?, targets.as_slice()?);
    let others = others.as_slice()?;
    let dense = py.detach(|| analysis::relabel_with(sources, targets, others));
    let dense = dense.map_err(|error| crate::raise("BuildError", error.to_string()))?;
    Ok((
        PyArray1::from_vec(py, dense.ids),
        PyArray1::from_vec(py, dense.sources),
        PyArray1::from_vec(py, dense.targets),
    ))
}

#[pyfunction]
#[pyo3(signature = (vertices, sources, targets, weights, *, damping, tol, max_iter, personalization, single))]
#[allow(clippy::too_many_arguments)] // The parameters, each by its name.
fn pagerank<'py>(
    py: Python<'py>,
    vertices: usize,
    sources: &Bound<'py, PyArray1<u32>>,
    targets: &Bound<'py, PyArray1<u32>>,
    weights: Option<&Bound<'py, PyArray1<f64>>>,
    damping: f64,
    tol: f64,
    max_iter: u64,
    personalization: Option<&Bound<'py, PyArray1<f64>>>,
    single: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let edges = edge_list(vertices, sources, targets, weights)?;
    let how = PageRank {
        damping,
        tol,
        max_iter,
        personalization: personalization.map(borrowed).transpose()?,
        precision: if single {
            Precision::F32
        } else {
            Precision::F64
        },
    };
    let (ranked, ledger) = run(py, |options, caller| {
        analysis::pagerank_with(&edges, &how, options, caller)
    })?;
    let result = PyDict::new(py);
    result.set_item("iterations", ranked.iterations)?;
    result.set_item("converged", ranked.converged)?;
    result.set_item("change", ranked.change)?;
    result.set_item("seconds_per_iteration", ranked.seconds_per_iteration())?;
    result.set_item("tally", crate::tally(py, &ranked.tally)?)?;
    result.set_item("ledger", ledger)?;
    result.set_item("ranks", PyArray1::from_vec(py, ranked.ranks))?;
    Ok(result)
}

#[pyfunction]
fn connected_components<'py>(
    py: Python<'py>,
    vertices: usize,
    sources: &Bound<'py, PyArray1<u32>>,
    targets: &Bound<'py, PyArray1<u32>>,
    weights: Option<&Bound<'py, PyArray1<f64>>>,
) -> PyResult<Bound<'py, PyArray1<u32>>> {
    let edges = edge_list(vertices, sources, targets, weights)?;
    let (found, _) = run(py, |options, caller| {
        analysis::connected_components(&edges, options, caller)
    })?;
    Ok(values(py, found))
}

/// Hops; the largest number where no way leads.
#[pyfunction]
#[pyo3(signature = (vertices, sources, targets, weights, *, start))]
fn bfs<'py>(
    py: Python<'py>,
    vertices: usize,
    sources: &Bound<'py, PyArray1<u32>>,
    targets: &Bound<'py, PyArray1<u32>>,
    weights: Option<&Bound<'py, PyArray1<f64>>>,
    start: usize,
) -> PyResult<Bound<'py, PyArray1<u32>>> {
    let edges = edge_list(vertices, sources, targets, weights)?;
    let (found, _) = run(py, |options, caller| {
        analysis::bfs(&edges, start, options, caller)
    })?;
    let hops = found.values.into_iter();
    Ok(PyArray1::from_iter(
        py,
        hops.map(|hops| hops.unwrap_or(u32::MAX)),
    ))
}

/// Lengths of ways. So many edges were `given`; those that follow them lead back, and self-loops do not.
#[pyfunction]
#[pyo3(signature = (vertices, sources, targets, weights, *, given, start))]
fn sssp<'py>(
    py: Python<'py>,
    vertices: usize,
    sources: &Bound<'py, PyArray1<u32>>,
    targets: &Bound<'py, PyArray1<u32>>,
    weights: Option<&Bound<'py, PyArray1<f64>>>,
    given: usize,
    start: usize,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let edges = edge_list(vertices, sources, targets, weights)?;
    let (found, _) = run(py, |options, caller| {
        let found = analysis::sssp(&edges, start, options, caller);
        found.map_err(|error| as_given(error, &edges, given))
    })?;
    Ok(values(py, found))
}

/// Names an edge that leads back by the one that was given.
fn as_given(mut error: AnalysisError, edges: &EdgeList, given: usize) -> AnalysisError {
    if let AnalysisError::Graph(GraphError::Distance { edge, .. }) = &mut error
        && *edge >= given
    {
        let mut both = (0..given).filter(|&at| edges.sources.at(at) != edges.targets.at(at));
        *edge = both.nth(*edge - given).expect("each of them leads back");
    }
    error
}

#[pyfunction]
#[pyo3(signature = (vertices, sources, targets, weights, *, turns))]
fn label_propagation<'py>(
    py: Python<'py>,
    vertices: usize,
    sources: &Bound<'py, PyArray1<u32>>,
    targets: &Bound<'py, PyArray1<u32>>,
    weights: Option<&Bound<'py, PyArray1<f64>>>,
    turns: u64,
) -> PyResult<Bound<'py, PyArray1<u32>>> {
    let edges = edge_list(vertices, sources, targets, weights)?;
    let (found, _) = run(py, |options, caller| {
        analysis::label_propagation(&edges, turns, options, caller)
    })?;
    Ok(values(py, found))
}

#[pyfunction]
fn local_clustering<'py>(
    py: Python<'py>,
    vertices: usize,
    sources: &Bound<'py, PyArray1<u32>>,
    targets: &Bound<'py, PyArray1<u32>>,
    weights: Option<&Bound<'py, PyArray1<f64>>>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let edges = edge_list(vertices, sources, targets, weights)?;
    let (found, _) = run(py, |options, caller| {
        analysis::local_clustering(&edges, options, caller)
    })?;
    Ok(values(py, found))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(relabel, module)?)?;
    module.add_function(wrap_pyfunction!(pagerank, module)?)?;
    module.add_function(wrap_pyfunction!(connected_components, module)?)?;
    module.add_function(wrap_pyfunction!(bfs, module)?)?;
    module.add_function(wrap_pyfunction!(sssp, module)?)?;
    module.add_function(wrap_pyfunction!(label_propagation, module)?)?;
    module.add_function(wrap_pyfunction!(local_clustering, module)?)
}
