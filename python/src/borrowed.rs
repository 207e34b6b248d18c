//! Arrays of Python, borrowed for as long as a job reads them.
#![allow(unsafe_code)] // A borrowed array's memory: the array is kept alive, and its owner leaves it alone.

use brambling::program::Foreign;
use numpy::ndarray::Dimension;
use numpy::{Element, PyArray, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

/// The values of an array, in row order, without a copy.
pub fn borrowed<T: Element + Send + Sync + 'static, D: Dimension>(
    array: &Bound<'_, PyArray<T, D>>,
) -> PyResult<Foreign<T>> {
    if !array.is_c_contiguous() || !array.data().is_aligned() {
        return Err(PyValueError::new_err(
            "the array is not C-contiguous and aligned",
        ));
    }
    if array.is_empty() {
        return Ok(Foreign::default());
    }
    let owner: Arc<Py<PyAny>> = Arc::new(array.clone().into_any().unbind());
    // SAFETY: aligned and contiguous, as checked; the owner keeps the memory alive, and whoever called leaves
    // the array alone until the job has ended.
    Ok(unsafe { Foreign::borrowed(array.data(), array.len(), owner) })
}
