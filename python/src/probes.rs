//! What the machine can do, for those who want to know how far from it they are.

use brambling::machine::{IsaLevel, cpu, probes};
use numpy::{PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// The CPU's model and its best instruction set, as the benches in Rust tell them.
#[pyfunction]
pub fn processor() -> PyResult<(String, &'static str)> {
    let read = cpu::Processor::read().map_err(|error| PyOSError::new_err(error.to_string()))?;
    let model = read.model.unwrap_or_else(|| "unknown".to_owned());
    Ok((model, IsaLevel::detect().name()))
}

/// Bytes per second at which an array can be read: the best of several loops and rounds.
#[pyfunction]
pub fn read_bandwidth(
    py: Python<'_>,
    array: &Bound<'_, PyArrayDyn<f64>>,
    threads: usize,
    rounds: u32,
) -> PyResult<f64> {
    if !array.is_c_contiguous() || array.len() < 1 << 10 {
        return Err(PyValueError::new_err(
            "array must be C-contiguous with at least 1,024 numbers",
        ));
    }
    let array = array.readonly();
    let data: &[f64] = array
        .as_slice()
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let places = cpu::places(threads).map_err(|error| PyOSError::new_err(error.to_string()))?;
    Ok(py.detach(|| {
        let mut best = 0.0f64;
        for _ in 0..rounds {
            for read_loop in probes::ReadLoop::available() {
                best = best.max(probes::read_bandwidth(read_loop, &[data], &places));
            }
        }
        // Measured in bytes per nanosecond.
        best * 1e9
    }))
}
