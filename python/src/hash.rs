//! Where rows of a key go: the same on every machine, in every run.

use brambling::program::{Key, partition_of};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt, PyString, PyTuple};

/// Equal keys of Python hash equally: 1, 1.0 and True are one key, 0.0 and -0.0 are, and so are all NaNs.
fn hash(key: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(text) = key.cast::<PyString>() {
        return Ok(text.to_str()?.to_owned().key_hash());
    }
    if key.is_instance_of::<PyInt>() {
        return match key.extract::<i64>() {
            Ok(number) => Ok(number.key_hash()),
            // Beyond 64 bits the digits stand for the number.
            Err(_) => Ok((2u8, key.to_string()).key_hash()),
        };
    }
    if key.is_instance_of::<PyFloat>() {
        let number: f64 = key.extract()?;
        if number.fract() == 0.0 && number.is_finite() {
            return hash(&key.call_method0("__int__")?);
        }
        return Ok(number.key_hash());
    }
    if let Ok(bytes) = key.cast::<PyBytes>() {
        let words = bytes.as_bytes().iter().map(|byte| byte.key_hash());
        return Ok(fold(3, words));
    }
    if let Ok(parts) = key.cast::<PyTuple>() {
        let hashes = parts.iter().map(|part| hash(&part));
        return Ok(fold(4, hashes.collect::<PyResult<Vec<_>>>()?));
    }
    if key.is_none() {
        return Ok(5u64.key_hash());
    }
    // NumPy's scalars know their Python equivalent.
    match key.call_method0("item") {
        Ok(item) if !item.get_type().is(key.get_type()) => hash(&item),
        _ => Err(PyTypeError::new_err(format!(
            "{} cannot be a key; give numbers, strings, bytes, None, or tuples of these",
            key.repr()?
        ))),
    }
}

fn fold(kind: u64, hashes: impl IntoIterator<Item = u64>) -> u64 {
    let start = kind.key_hash();
    hashes
        .into_iter()
        .fold(start, |so_far, hash| (so_far, hash).key_hash())
}

/// The partition of a key.
#[pyfunction]
pub fn partition_of_key(key: &Bound<'_, PyAny>, partitions: u32) -> PyResult<u32> {
    Ok(partition_of(&hash(key)?, partitions))
}
