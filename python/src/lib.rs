//! The Python package's native half: builds programs from Python's statements, runs them with Python
//! functions as kernels, and connects the models and the command.

mod alone;
mod apart;
mod array;
mod borrowed;
mod builder;
mod builtin;
mod cluster;
mod coflows;
mod command;
mod compiled;
mod forks;
mod graph;
mod hash;
mod ideal;
mod interpreter;
mod interrupts;
mod kernels;
mod loads;
mod map_reduce;
mod ml;
mod prints;
mod probes;
mod report;
mod reserve;
mod run;
mod settings;
mod sums;
mod value;

use brambling::Tally;
use interpreter::attach;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An exception of the package, by the name of its class.
pub(crate) fn raise(class: &str, message: String) -> PyErr {
    attach(|py| {
        let made = py
            .import("brambling._errors")
            .and_then(|module| module.getattr(class)?.call1((message,)));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

/// A `KernelError` that says where, from the exception that the kernel raised.
pub(crate) fn raise_kernel_error(
    py: Python<'_>,
    message: String,
    stage: &str,
    partition: u32,
    turn: u64,
    cause: Option<PyErr>,
) -> PyErr {
    let error = raise("KernelError", message);
    let value = error.value(py);
    // The class has these attributes: setting them fails only when memory runs out.
    let _ = value.setattr("stage", stage);
    let _ = value.setattr("partition", partition);
    let _ = value.setattr("turn", turn);
    error.set_cause(py, cause);
    error
}

/// What a run did, for Python, which logs it.
pub(crate) fn tally<'py>(py: Python<'py>, tally: &Tally) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("wall_s", tally.wall.as_secs_f64())?;
    dict.set_item("busy_s", tally.busy.as_secs_f64())?;
    dict.set_item("tasks", tally.tasks)?;
    dict.set_item("threads", tally.threads)?;
    dict.set_item("peak_bytes", tally.peak_bytes)?;
    dict.set_item("sent_bytes", tally.sent_bytes)?;
    py.import("brambling._log")?
        .call_method1("ended", (&dict,))?;
    Ok(dict)
}

#[pymodule]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    forks::watch(module)?;
    let told_after_s = brambling::cluster::TOLD_AFTER.as_secs_f64();
    module.add("silence_told_after_s", told_after_s)?;
    module.add_class::<builder::Builder>()?;
    module.add_class::<run::Outcome>()?;
    module.add_class::<report::PyLedger>()?;
    module.add_class::<report::PyReport>()?;
    module.add_class::<cluster::PyCluster>()?;
    module.add_class::<prints::PrintPlace>()?;
    module.add_function(wrap_pyfunction!(prints::print_place, module)?)?;
    module.add_function(wrap_pyfunction!(prints::print_here, module)?)?;
    module.add_class::<reserve::Reserved>()?;
    module.add_function(wrap_pyfunction!(reserve::reserve, module)?)?;
    module.add_function(wrap_pyfunction!(builder::block_rows, module)?)?;
    module.add_function(wrap_pyfunction!(builder::partitions_for, module)?)?;
    module.add_function(wrap_pyfunction!(builder::blocks_of_partition, module)?)?;
    module.add_function(wrap_pyfunction!(hash::partition_of_key, module)?)?;
    module.add_function(wrap_pyfunction!(builtin::builtin_code, module)?)?;
    module.add_function(wrap_pyfunction!(builtin::logistic_gradient, module)?)?;
    module.add_function(wrap_pyfunction!(probes::read_bandwidth, module)?)?;
    module.add_function(wrap_pyfunction!(report::least_seconds, module)?)?;
    module.add_function(wrap_pyfunction!(probes::processor, module)?)?;
    module.add_function(wrap_pyfunction!(ideal::quantity, module)?)?;
    module.add_function(wrap_pyfunction!(coflows::coflow_simulate, module)?)?;
    module.add_function(wrap_pyfunction!(ideal::ideal_time, module)?)?;
    module.add_function(wrap_pyfunction!(ml::fit_logistic, module)?)?;
    module.add_function(wrap_pyfunction!(ml::start_k_means, module)?)?;
    module.add_function(wrap_pyfunction!(ml::fit_k_means, module)?)?;
    module.add_function(wrap_pyfunction!(ml::nearest_centres, module)?)?;
    module.add_function(wrap_pyfunction!(ml::centre_distances, module)?)?;
    module.add_function(wrap_pyfunction!(ml::margins, module)?)?;
    module.add_function(wrap_pyfunction!(ml::class_margins, module)?)?;
    module.add_function(wrap_pyfunction!(ml::sigmoid, module)?)?;
    module.add_function(wrap_pyfunction!(ml::log_probabilities, module)?)?;
    module.add_function(wrap_pyfunction!(ml::models, module)?)?;
    module.add_function(wrap_pyfunction!(ml::fit_model, module)?)?;
    graph::add_to(module)?;
    module.add_function(wrap_pyfunction!(map_reduce::map_reduce_builtin, module)?)?;
    module.add_class::<map_reduce::PyPartsWriter>()?;
    module.add_function(wrap_pyfunction!(run::clear_stored, module)?)?;
    module.add_function(wrap_pyfunction!(settings::setting, module)?)?;
    module.add_function(wrap_pyfunction!(command::command, module)?)?;
    Ok(())
}
