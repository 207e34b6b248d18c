//! `br.coflow`: how long coflows take under each policy.
//!
//! This module takes the options as the command has them, and gives what came of each coflow. It computes nothing.

use crate::interpreter::attach;
use crate::raise;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

/// Of a policy: its name, the summary as JSON, and of each coflow its name, arrival, time, time alone and bytes.
type PolicyTimes = (
    String,
    String,
    Vec<u64>,
    Vec<f64>,
    Vec<f64>,
    Vec<f64>,
    Vec<f64>,
);

/// Simulates as `brambling coflow simulate` does with these options.
#[pyfunction]
pub fn coflow_simulate(py: Python<'_>, words: Vec<String>) -> PyResult<Vec<PolicyTimes>> {
    let mut signal: Option<PyErr> = None;
    let mut interrupted = || {
        // What a handler of the caller's raises is raised here, and not lost to a later look.
        if signal.is_none() {
            signal = attach(|py| py.check_signals().err());
        }
        signal.is_some()
    };
    let found = py.detach(|| brambling_cli::coflow_simulate(&words, &mut interrupted));
    if let Some(raised) = signal {
        return Err(raised);
    }
    let found = found.map_err(|error| match error {
        Some(error) => raise("BuildError", error),
        None => PyKeyboardInterrupt::new_err(()),
    })?;
    Ok(found
        .into_iter()
        .map(|(policy, outcome)| {
            let of = |value: fn(&brambling::coflow::simulate::Took) -> f64| {
                outcome.coflows.iter().map(value).collect::<Vec<f64>>()
            };
            (
                policy.to_string(),
                brambling_cli::coflow_json(&outcome),
                outcome.coflows.iter().map(|it| it.name).collect(),
                of(|it| it.arrival_s),
                of(|it| it.cct_s),
                of(|it| it.isolated_s),
                of(|it| it.bytes),
            )
        })
        .collect())
}
