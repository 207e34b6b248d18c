//! Models over arrays of Python, borrowed for as long as they are fitted.

use crate::borrowed::borrowed;
use crate::report;
use crate::run::{PyCaller, options_in_use};
use brambling::ml::{
    self, FitError, Given, KMeans, KMeansStart, LogisticRegression, Solver, Table,
};
use brambling::operators::ml::distances;
use brambling::operators::ml::logistic::{Linear, margins_block};
use brambling::operators::ml::nearest;
use brambling::operators::ml::samples::{SampleTable, SamplesError};
use brambling::operators::ml::softmax::{self, Linears};
use brambling::operators::numerics;
use brambling::operators::simd::{self, TableValue};
use brambling::program::{BLOCK_ROWS, Foreign};
use numpy::{Element, PyArray1, PyArrayDyn, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A table of either precision, without a copy.
fn table(array: &Bound<'_, PyAny>) -> PyResult<Table> {
    if let Ok(singles) = array.cast::<PyArrayDyn<f32>>() {
        return Ok(borrowed(singles)?.into());
    }
    Ok(borrowed(array.cast::<PyArrayDyn<f64>>()?)?.into())
}

fn raise(py: Python<'_>, caller: &mut PyCaller, error: FitError) -> PyErr {
    match error {
        FitError::Run(error) => caller.raise(py, error),
        other => crate::raise("BuildError", other.to_string()),
    }
}

/// Fits a logistic regression to indexes of classes.
#[pyfunction]
#[pyo3(signature = (x, y, columns, classes, *, weights=None, start=None, lbfgs, c, fit_intercept, tol, max_iter, threads=None))]
#[allow(clippy::too_many_arguments)] // The model's parameters, each by its name.
pub fn fit_logistic<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyAny>,
    y: &Bound<'py, PyArrayDyn<f64>>,
    columns: usize,
    classes: usize,
    weights: Option<&Bound<'py, PyArrayDyn<f64>>>,
    start: Option<Vec<f64>>,
    lbfgs: bool,
    c: f64,
    fit_intercept: bool,
    tol: f64,
    max_iter: u64,
    threads: Option<u32>,
) -> PyResult<Bound<'py, PyDict>> {
    let (x, y) = (table(x)?, borrowed(y)?);
    let given = Given::new(optional(weights)?, start.unwrap_or_default());
    let solver = if lbfgs {
        Solver::Lbfgs
    } else {
        Solver::GradientDescent
    };
    let model = LogisticRegression {
        c,
        fit_intercept,
        tol,
        max_iter,
        solver,
    };
    let options = options_in_use(py, threads)?;
    let mut caller = PyCaller::default();
    let result = PyDict::new(py);
    macro_rules! tell {
        ($fitted:expr, $intercepts:expr) => {{
            result.set_item("seconds_per_iteration", $fitted.seconds_per_iteration())?;
            result.set_item("intercepts", PyArray1::from_vec(py, $intercepts))?;
            result.set_item("coef", PyArray1::from_vec(py, $fitted.coef))?;
            result.set_item("iterations", $fitted.iterations)?;
            result.set_item("evaluations", $fitted.evaluations)?;
            result.set_item("converged", $fitted.converged)?;
            result.set_item("largest_gradient", $fitted.largest_gradient)?;
            result.set_item("tally", crate::tally(py, &$fitted.tally)?)?;
            result.set_item("ledger", report::longest(py, &options)?)?;
        }};
    }
    if classes == 2 {
        let fitted = py.detach(|| model.fit_given(x, y, columns, given, &options, &mut caller));
        let fitted = fitted.map_err(|error| raise(py, &mut caller, error))?;
        tell!(fitted, vec![fitted.intercept]);
    } else {
        let fitted = py.detach(|| {
            model.fit_classes_given(x, y, columns, classes, given, &options, &mut caller)
        });
        let fitted = fitted.map_err(|error| raise(py, &mut caller, error))?;
        tell!(fitted, fitted.intercepts);
    }
    Ok(result)
}

/// Rows with which k-means may begin, one after another.
#[pyfunction]
#[pyo3(signature = (x, columns, clusters, *, weights=None, plus_plus, seed, threads=None))]
#[allow(clippy::too_many_arguments)] // The samples' parts, each by its name.
pub fn start_k_means<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyArrayDyn<f64>>,
    columns: usize,
    clusters: usize,
    weights: Option<&Bound<'py, PyArrayDyn<f64>>>,
    plus_plus: bool,
    seed: u64,
    threads: Option<u32>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (x, weights) = (borrowed(x)?, optional(weights)?);
    let start = if plus_plus {
        KMeansStart::PlusPlus
    } else {
        KMeansStart::Random
    };
    let options = options_in_use(py, threads)?;
    let mut caller = PyCaller::default();
    let centres = py.detach(|| {
        start.centres_weighted(x, weights, columns, clusters, seed, &options, &mut caller)
    });
    let centres = centres.map_err(|error| raise(py, &mut caller, error))?;
    Ok(PyArray1::from_vec(py, centres))
}

/// Searches for the centres of clusters, from those given.
#[pyfunction]
#[pyo3(signature = (x, columns, centres, *, weights=None, tol, max_iter, threads=None))]
#[allow(clippy::too_many_arguments)] // The model's parameters, each by its name.
pub fn fit_k_means<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyArrayDyn<f64>>,
    columns: usize,
    centres: PyReadonlyArrayDyn<'py, f64>,
    weights: Option<&Bound<'py, PyArrayDyn<f64>>>,
    tol: f64,
    max_iter: u64,
    threads: Option<u32>,
) -> PyResult<Bound<'py, PyDict>> {
    let (x, weights) = (borrowed(x)?, optional(weights)?);
    let centres = contiguous(&centres)?.to_vec();
    let model = KMeans { tol, max_iter };
    let options = options_in_use(py, threads)?;
    let mut caller = PyCaller::default();
    let fitted =
        py.detach(|| model.fit_weighted(x, weights, columns, centres, &options, &mut caller));
    let fitted = fitted.map_err(|error| raise(py, &mut caller, error))?;
    let result = PyDict::new(py);
    result.set_item("seconds_per_iteration", fitted.seconds_per_iteration())?;
    result.set_item("centres", PyArray1::from_vec(py, fitted.centres))?;
    result.set_item("iterations", fitted.iterations)?;
    result.set_item("converged", fitted.converged)?;
    result.set_item("tally", crate::tally(py, &fitted.tally)?)?;
    result.set_item("ledger", report::longest(py, &options)?)?;
    Ok(result)
}

/// The models of the registry: their names, and what their parameters are called.
#[pyfunction]
pub fn models() -> Vec<(&'static str, Vec<&'static str>)> {
    let told = ml::MODELS.iter();
    told.map(|model| (model.name, model.parameters.to_vec()))
        .collect()
}

/// Fits a model of the registry: what it finds, by name, and `tally`.
#[pyfunction]
#[pyo3(signature = (name, x, columns, y, weights, parameters, *, threads=None))]
#[allow(clippy::too_many_arguments)] // A table's parts, and the model's.
pub fn fit_model<'py>(
    py: Python<'py>,
    name: &str,
    x: &Bound<'py, PyArrayDyn<f64>>,
    columns: usize,
    y: Option<&Bound<'py, PyArrayDyn<f64>>>,
    weights: Option<&Bound<'py, PyArrayDyn<f64>>>,
    parameters: &Bound<'py, PyDict>,
    threads: Option<u32>,
) -> PyResult<Bound<'py, PyDict>> {
    let unknown = || PyValueError::new_err(format!("there is no model {name:?}"));
    let model = ml::model(name).ok_or_else(unknown)?;
    let value = |name: &&str| parameters.as_any().get_item(name)?.extract::<f64>();
    let values: Vec<f64> = model
        .parameters
        .iter()
        .map(value)
        .collect::<PyResult<_>>()?;
    let table = SampleTable {
        x: borrowed(x)?,
        columns,
        y: optional(y)?,
        targets: y.map_or(0, |y| y.shape().get(1).copied().unwrap_or(1)),
        weights: optional(weights)?,
    };
    let options = options_in_use(py, threads)?;
    let mut caller = PyCaller::default();
    let fitted = py.detach(|| ml::fit(model, &values, table, &options, &mut caller));
    let fitted = fitted.map_err(|error| raise(py, &mut caller, error))?;
    let result = PyDict::new(py);
    for (name, values) in fitted.found.0 {
        result.set_item(name, PyArray1::from_vec(py, values))?;
    }
    result.set_item("tally", crate::tally(py, &fitted.tally)?)?;
    result.set_item("ledger", report::longest(py, &options)?)?;
    Ok(result)
}

/// An array that may be missing, without a copy.
fn optional(array: Option<&Bound<'_, PyArrayDyn<f64>>>) -> PyResult<Foreign<f64>> {
    array.map_or_else(|| Ok(Foreign::default()), borrowed)
}

/// Checks that rows and centres have as many columns as is said, and that there is a centre.
fn check_centres(x: &[f64], columns: usize, centres: &[f64]) -> PyResult<()> {
    SamplesError::check(x.len(), 0, columns)
        .and_then(|()| SamplesError::check(centres.len(), 0, columns))
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    if centres.is_empty() {
        return Err(PyValueError::new_err("there is no centre"));
    }
    Ok(())
}

/// The nearest centre of each row, and the sum of the squared distances, each by its row's weight: the same bits on every CPU.
#[pyfunction]
#[pyo3(signature = (x, columns, centres, weights=None))]
pub fn nearest_centres<'py>(
    py: Python<'py>,
    x: PyReadonlyArrayDyn<'py, f64>,
    columns: usize,
    centres: PyReadonlyArrayDyn<'py, f64>,
    weights: Option<PyReadonlyArrayDyn<'py, f64>>,
) -> PyResult<(Bound<'py, PyArray1<i32>>, f64)> {
    let (x, centres) = (contiguous(&x)?, contiguous(&centres)?);
    check_centres(x, columns, centres)?;
    let weights = weights.as_ref().map(contiguous).transpose()?;
    if let Some(weights) = weights.filter(|weights| weights.len() * columns != x.len()) {
        let (rows, weights) = (x.len() / columns, weights.len());
        let error = SamplesError::Weights { rows, weights };
        return Err(PyValueError::new_err(error.to_string()));
    }
    let (labels, inertia) = py.detach(|| {
        let labels = nearest::labels(simd::active(), x, columns, centres);
        let inertia = match weights {
            None => distances::inertia(x, columns, centres, &labels),
            Some(weights) => distances::weighted_inertia(x, weights, columns, centres, &labels),
        };
        // As scikit-learn has them.
        let labels = labels.into_iter().map(|label| label as i32).collect();
        (labels, inertia)
    });
    // No centre is the nearest where all are infinitely far.
    if !inertia.is_finite() {
        return Err(crate::raise(
            "BuildError",
            SamplesError::TooLarge.to_string(),
        ));
    }
    Ok((PyArray1::from_vec(py, labels), inertia))
}

/// The distances of each row to each centre, row by row: the same bits on every CPU.
#[pyfunction]
pub fn centre_distances<'py>(
    py: Python<'py>,
    x: PyReadonlyArrayDyn<'py, f64>,
    columns: usize,
    centres: PyReadonlyArrayDyn<'py, f64>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (x, centres) = (contiguous(&x)?, contiguous(&centres)?);
    check_centres(x, columns, centres)?;
    let found = py.detach(|| distances::distances(simd::active(), x, columns, centres));
    Ok(PyArray1::from_vec(py, found))
}

fn contiguous<'a, T: Element>(array: &'a PyReadonlyArrayDyn<'_, T>) -> PyResult<&'a [T]> {
    array
        .as_slice()
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Numbers of either precision.
#[derive(FromPyObject)]
pub enum Numbers<'py> {
    Doubles(PyReadonlyArrayDyn<'py, f64>),
    Singles(PyReadonlyArrayDyn<'py, f32>),
}

/// Margins w · x + b of rows: the same bits on every CPU.
#[pyfunction]
pub fn margins<'py>(
    py: Python<'py>,
    x: Numbers<'py>,
    weights: PyReadonlyArrayDyn<'py, f64>,
    intercept: f64,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let weights = contiguous(&weights)?;
    let model = Linear { weights, intercept };
    let out = match &x {
        Numbers::Doubles(x) => margins_of(py, contiguous(x)?, model),
        Numbers::Singles(x) => margins_of(py, contiguous(x)?, model),
    };
    Ok(PyArray1::from_vec(py, out?))
}

fn margins_of<E: TableValue>(py: Python<'_>, x: &[E], model: Linear<'_>) -> PyResult<Vec<f64>> {
    let columns = model.weights.len();
    if columns == 0 || !x.len().is_multiple_of(columns) {
        return Err(unlike());
    }
    Ok(py.detach(|| {
        let mut out = vec![0.0; x.len() / columns];
        let blocks = x.chunks(BLOCK_ROWS * columns);
        for (block, out) in blocks.zip(out.chunks_mut(BLOCK_ROWS)) {
            margins_block(simd::active(), block, model, out);
        }
        out
    }))
}

fn unlike() -> PyErr {
    PyValueError::new_err("the rows are not as long as the weights")
}

/// The margin of each row for each class, row by row, or the probability: the same bits on every CPU.
#[pyfunction]
#[pyo3(signature = (x, weights, intercepts, *, probabilities))]
pub fn class_margins<'py>(
    py: Python<'py>,
    x: Numbers<'py>,
    weights: PyReadonlyArrayDyn<'py, f64>,
    intercepts: PyReadonlyArrayDyn<'py, f64>,
    probabilities: bool,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (weights, intercepts) = (contiguous(&weights)?, contiguous(&intercepts)?);
    let model = Linears {
        weights,
        intercepts,
    };
    let out = match &x {
        Numbers::Doubles(x) => class_margins_of(py, contiguous(x)?, model, probabilities),
        Numbers::Singles(x) => class_margins_of(py, contiguous(x)?, model, probabilities),
    };
    Ok(PyArray1::from_vec(py, out?))
}

fn class_margins_of<E: TableValue>(
    py: Python<'_>,
    x: &[E],
    model: Linears<'_>,
    probabilities: bool,
) -> PyResult<Vec<f64>> {
    let classes = model.intercepts.len();
    if classes == 0 || model.weights.is_empty() || !model.weights.len().is_multiple_of(classes) {
        return Err(unlike());
    }
    let columns = model.weights.len() / classes;
    if !x.len().is_multiple_of(columns) {
        return Err(unlike());
    }
    Ok(py.detach(|| {
        let mut out = vec![0.0; x.len() / columns * classes];
        let blocks = x.chunks(BLOCK_ROWS * columns);
        for (block, out) in blocks.zip(out.chunks_mut(BLOCK_ROWS * classes)) {
            if probabilities {
                softmax::probabilities_block(simd::active(), block, columns, model, out);
            } else {
                softmax::margins_block(simd::active(), block, columns, model, out);
            }
        }
        out
    }))
}

/// 1 ÷ (1 + e⁻ˣ): the same bits on every CPU.
#[pyfunction]
pub fn sigmoid<'py>(
    py: Python<'py>,
    x: PyReadonlyArrayDyn<'py, f64>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let x = contiguous(&x)?;
    let mut out = vec![0.0; x.len()];
    numerics::sigmoid(simd::active(), x, &mut out);
    Ok(PyArray1::from_vec(py, out))
}

/// The logarithm of each class's probability, of margins for each class: the same bits on every CPU.
#[pyfunction]
pub fn log_probabilities<'py>(
    py: Python<'py>,
    margins: PyReadonlyArrayDyn<'py, f64>,
    classes: usize,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let margins = contiguous(&margins)?;
    if classes == 0 || !margins.len().is_multiple_of(classes) {
        return Err(unlike());
    }
    let mut out = margins.to_vec();
    softmax::log_probabilities(simd::active(), &mut out, classes);
    Ok(PyArray1::from_vec(py, out))
}
