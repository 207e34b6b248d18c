//! `br.model`: how long a job would take on hardware that is used to the full.
//!
//! This module takes what Python has checked to the model of `machine`. It computes nothing.

use crate::raise;
use brambling::machine::ideal::{Setup, SetupError};
use brambling::machine::units::{self, Quantity};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Bytes (`kind` is "size"), bytes per second ("rate") or seconds ("time") of a text; a
/// `ValueError` says what is wrong with it.
#[pyfunction]
pub fn quantity(text: &str, kind: &str) -> PyResult<f64> {
    let kind = match kind {
        "size" => Quantity::Size,
        "rate" => Quantity::Rate,
        "time" => Quantity::Time,
        _ => return Err(PyValueError::new_err(format!("no kind {kind}"))),
    };
    units::parse(text, kind).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The answer as JSON, and as people read it.
#[pyfunction]
#[pyo3(signature = (*, nodes, input, disk_read, disk_write, network, replication, map_ratio, reduce_ratio, external, backup, took))]
#[expect(clippy::too_many_arguments, reason = "they are those of br.model")]
pub fn ideal_time(
    nodes: u64,
    input: f64,
    disk_read: f64,
    disk_write: f64,
    network: f64,
    replication: u64,
    map_ratio: f64,
    reduce_ratio: f64,
    external: bool,
    backup: bool,
    took: Option<f64>,
) -> PyResult<(String, String)> {
    let setup = Setup {
        nodes,
        disk_read_bytes_per_s: disk_read,
        disk_write_bytes_per_s: disk_write,
        network_bytes_per_s: network,
        replication,
        input_bytes: input,
        map_ratio,
        reduce_ratio,
        external,
        backup,
    };
    let answer = setup.ideal_time(took).map_err(refused)?;
    Ok((brambling_cli::model_json(&answer), answer.to_string()))
}

/// It begins with the name of an input, as the command's options are written.
fn refused(error: SetupError) -> PyErr {
    let text = error.to_string();
    let (name, rest) = text.split_once(' ').unwrap_or((&text, ""));
    raise("BuildError", format!("{} {rest}", name.replace('-', "_")))
}
