//! Kernels that come with the package, as machine code of the form that compiled maps call.
#![allow(unsafe_code)] // Addresses that arrive as words.

use crate::compiled::{DONE, FAILED, TOO_SMALL};
use brambling::operators::ml::logistic::{ComputeLoss, Labelled, Linear, Partial, gradient_block};
use brambling::operators::simd;
use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// # Safety
/// `address` is that of `len` doubles, which nobody writes while `'a` lasts.
unsafe fn doubles<'a>(address: i64, len: i64) -> &'a [f64] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(address as *const f64, len as usize) }
}

fn gradient(x: &[f64], y: &[f64], weights: &[f64]) -> Option<Partial> {
    let columns = weights.len();
    if columns == 0 || x.len() != y.len() * columns {
        return None;
    }
    let mut partial = Partial::new(columns);
    let block = Labelled { x, y, columns };
    let model = Linear {
        weights,
        intercept: 0.0,
    };
    gradient_block(
        simd::active(),
        block,
        model,
        ComputeLoss::Skipped,
        &mut partial,
    );
    Some(partial)
}

/// Words: the result's address, room and length; then (x, y) and the weights, each with its lengths.
unsafe extern "C" fn logistic_gradient_code(words: *mut i64) -> i64 {
    // SAFETY: a compiled map gives as many words, as `builtin_code` says.
    let words = unsafe { std::slice::from_raw_parts_mut(words, 10) };
    let [
        out,
        room,
        length,
        x,
        rows,
        columns,
        y,
        labels,
        weights,
        count,
    ] = words
    else {
        unreachable!("ten words")
    };
    if *columns != *count {
        return FAILED;
    }
    *length = *count;
    if *count > *room {
        return TOO_SMALL;
    }
    // SAFETY: these are arrays in C order that the map holds.
    let (x, y, weights) = unsafe {
        (
            doubles(*x, *rows * *columns),
            doubles(*y, *labels),
            doubles(*weights, *count),
        )
    };
    let Some(partial) = gradient(x, y, weights) else {
        return FAILED;
    };
    // SAFETY: there is room for as many as were asked for.
    let out = unsafe { std::slice::from_raw_parts_mut(*out as *mut f64, weights.len()) };
    out.copy_from_slice(partial.gradient());
    DONE
}

/// The address of a kernel's code.
#[pyfunction]
pub fn builtin_code(name: &str) -> PyResult<usize> {
    match name {
        "logistic_gradient" => Ok(logistic_gradient_code as *const () as usize),
        _ => Err(PyValueError::new_err(format!("no kernel {name:?}"))),
    }
}

/// Σ (p − y) x over rows, p being the sigmoid of each row's product with the weights.
#[pyfunction]
pub fn logistic_gradient<'py>(
    py: Python<'py>,
    x: PyReadonlyArray2<'py, f64>,
    y: PyReadonlyArray1<'py, f64>,
    weights: PyReadonlyArray1<'py, f64>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let shapes = (x.shape()[0], x.shape()[1], y.len(), weights.len());
    let wrong = || {
        PyValueError::new_err(format!(
            "X has {} rows of {} columns, y {} labels and weights {} values; give a label for each row and a weight \
             for each column",
            shapes.0, shapes.1, shapes.2, shapes.3
        ))
    };
    if shapes.0 != shapes.2 || shapes.1 != shapes.3 {
        return Err(wrong());
    }
    let partial = gradient(x.as_slice()?, y.as_slice()?, weights.as_slice()?).ok_or_else(wrong)?;
    Ok(PyArray1::from_slice(py, partial.gradient()))
}
