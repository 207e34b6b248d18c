//! Where rows of a key go: the same on every machine, in every run, and as in Rust.

use brambling::program::key;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt, PyString, PyTuple};

/// Which kind of key a value of Python is. How each kind is hashed stands in `key`.
fn hash(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(key::text(text.to_str()?));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(if let Ok(number) = value.extract::<i64>() {
            key::integer(i128::from(number))
        } else if let Ok(number) = value.extract::<u64>() {
            key::integer(i128::from(number))
        } else {
            key::digits(&value.to_string())
        });
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(key::float(value.extract()?));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(key::bytes(bytes.as_bytes()));
    }
    if let Ok(parts) = value.cast::<PyTuple>() {
        let hashes = parts.iter().map(|part| hash(&part));
        return Ok(key::tuple(hashes.collect::<PyResult<Vec<_>>>()?));
    }
    if value.is_none() {
        return Ok(key::nothing());
    }
    // NumPy's scalars know their Python equivalent.
    match value.call_method0("item") {
        Ok(item) if !item.get_type().is(value.get_type()) => hash(&item),
        _ => Err(PyTypeError::new_err(format!(
            "{} cannot be a key; give numbers, strings, bytes, None, or tuples of these",
            value.repr()?
        ))),
    }
}

/// The partition of a key.
#[pyfunction]
pub fn partition_of_key(key: &Bound<'_, PyAny>, partitions: u32) -> PyResult<u32> {
    Ok(key::partition(hash(key)?, partitions))
}
