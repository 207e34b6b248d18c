//! A cluster's processes with Python as their host: workers that build what clients send, and clients.

use crate::builder::Builder;
use crate::interpreter::attach;
use crate::interrupts;
use crate::loads;
use crate::prints::PrintTarget;
use crate::run::{self, Outcome, PyCaller};
use brambling::cluster::{CAUSE_BYTES_MAX, Cluster, ClusterError, Prints, Rendezvous, Source};
use brambling::program::{Bindings, Plan, Program};
use brambling::{Caller, Failure, Interrupted};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::Arc;

/// Builds programs of what `brambling._program.travel.dumps` gave.
pub struct PySource;

impl Source for PySource {
    fn program(&self, bytes: &[u8], prints: &Prints) -> Result<Program, String> {
        let _here = PrintTarget::of(prints).enter();
        attach(|py| {
            let made = || -> PyResult<Program> {
                let travel = py.import("brambling._program.travel")?;
                let loaded = travel.call_method1("loads", (PyBytes::new(py, bytes),))?;
                // Others of the job compare what this has loaded, if kernels run here.
                loads::tell(py, prints)?;
                let builder = loaded.getattr("builder")?;
                Ok(builder.cast::<Builder>()?.borrow().program())
            };
            made().map_err(|error| traceback(py, &error))
        })
    }

    fn caller(&self) -> Box<dyn Caller> {
        Box::new(WorkerCaller::new())
    }

    fn ended(&self, prints: &Prints) {
        // What compiled kernels have had loaded is seen here at the latest. Models, and benches, have no kernels in Python.
        if prints.has_loaded() {
            let _ = attach(|py| loads::tell(py, prints));
        }
    }

    fn kernel(&self, prints: &Prints) -> Option<String> {
        interrupts::kernel(prints)
    }

    fn interrupt(&self, prints: &Prints) {
        interrupts::interrupt(prints);
    }

    fn cause(&self, failure: &Failure) -> Vec<u8> {
        let packed = |raised: &PyErr| -> PyResult<Vec<u8>> {
            attach(|py| {
                let remote = py.import("brambling._remote")?;
                remote
                    .call_method1("packed", (raised.value(py), CAUSE_BYTES_MAX))?
                    .extract()
            })
        };
        // What cannot be sent is told as text.
        let packed = raised(failure).and_then(|raised| packed(raised).ok());
        packed.unwrap_or_default()
    }

    fn explain(&self, failure: &Failure) -> String {
        let text = failure.to_string();
        match raised(failure) {
            Some(raised) => attach(|py| format!("{text}\n{}", traceback(py, raised))),
            None => text,
        }
    }
}

/// The exception that a kernel raised.
fn raised(failure: &Failure) -> Option<&PyErr> {
    let Failure::Kernel { error, .. } = failure else {
        return None;
    };
    std::error::Error::source(error)?.downcast_ref::<PyErr>()
}

/// An exception with its traceback, as the interpreter would print it.
fn traceback(py: Python<'_>, error: &PyErr) -> String {
    let lines = || -> PyResult<String> {
        let format = py.import("traceback")?.getattr("format_exception")?;
        let lines: Vec<String> = format.call1((error.value(py),))?.extract()?;
        Ok(lines.concat())
    };
    match lines() {
        Ok(text) => text.trim_end().to_owned(),
        // Not even that can be said of it.
        Err(_) => error.to_string(),
    }
}

/// The thread of a job on a worker: nobody presses Ctrl-C there. While it lives, BLAS has one thread, as in any run.
struct WorkerCaller(Option<Py<PyAny>>);

impl WorkerCaller {
    fn new() -> WorkerCaller {
        let enter = |py: Python<'_>| -> PyResult<Py<PyAny>> {
            let limit = py
                .import("brambling._blas")?
                .call_method0("one_blas_thread")?;
            limit.call_method0("__enter__")?;
            Ok(limit.unbind())
        };
        // Without it kernels that use BLAS are slower, and right.
        WorkerCaller(attach(|py| enter(py).ok()))
    }
}

impl Drop for WorkerCaller {
    fn drop(&mut self) {
        if let Some(limit) = self.0.take() {
            attach(|py| {
                let none = py.None();
                let _ = limit.call_method1(py, "__exit__", (&none, &none, &none));
            });
        }
    }
}

impl Caller for WorkerCaller {
    fn check(&mut self) -> Result<(), Interrupted> {
        Ok(())
    }
    fn run_stages(&mut self, run: &mut dyn FnMut()) {
        attach(|_| run());
    }
}

fn raise(error: ClusterError) -> PyErr {
    crate::raise("ClusterError", error.to_string())
}

/// A connection to a cluster.
#[pyclass(module = "brambling._native", name = "Cluster")]
pub struct PyCluster {
    /// None: it was closed.
    cluster: Option<Arc<Cluster>>,
}

impl PyCluster {
    pub fn open(&self) -> PyResult<Arc<Cluster>> {
        self.cluster.clone().ok_or_else(|| {
            let text = "the connection to the cluster was closed; connect again with br.connect";
            crate::raise("ClusterError", text.to_owned())
        })
    }
}

/// Ends a connection.
fn end(cluster: Option<Arc<Cluster>>) {
    match run::is_forked() {
        // Its threads were left behind, and nobody would ever have waited for them.
        true => std::mem::forget(cluster),
        false => drop(cluster),
    }
}

impl Drop for PyCluster {
    fn drop(&mut self) {
        end(self.cluster.take());
    }
}

#[pymethods]
impl PyCluster {
    #[new]
    #[pyo3(signature = (address, token_file, tls))]
    fn new(
        py: Python<'_>,
        address: Option<String>,
        token_file: Option<PathBuf>,
        tls: Option<PathBuf>,
    ) -> PyResult<PyCluster> {
        run::check_process()?;
        let connected = py.detach(|| {
            let (token_file, tls) = (token_file.as_deref(), tls.as_deref());
            let at = Rendezvous::find(address.as_deref(), token_file, tls)?;
            Cluster::connect(&at)
        });
        let cluster = Some(Arc::new(connected.map_err(raise)?));
        Ok(PyCluster { cluster })
    }

    /// Where the controller is.
    fn address(&self) -> PyResult<String> {
        Ok(self.open()?.address().to_string())
    }

    /// How the cluster fares, as JSON.
    fn status(&self, py: Python<'_>) -> PyResult<String> {
        let cluster = self.open()?;
        let status = py.detach(|| cluster.status());
        Ok(brambling_cli::status_json(status.map_err(raise)?))
    }

    /// Runs a program that the workers build of bytes.
    #[pyo3(signature = (builder, bytes, weight, snapshot_every = None))]
    fn run(
        &self,
        py: Python<'_>,
        builder: &Builder,
        bytes: &[u8],
        weight: Option<u32>,
        snapshot_every: Option<String>,
    ) -> PyResult<Outcome> {
        run::check_process()?;
        let cluster = self.open()?;
        let (mut program, handles) = (builder.program(), builder.handles());
        let mut caller = PyCaller::default();
        let outcome = py.detach(|| {
            brambling::give_restored(&mut program)?;
            let plan = Plan::compile(Arc::new(program), &Bindings::default())?;
            let is_given = snapshot_every.is_some();
            let options = run::kept(run::options(None, weight), None, snapshot_every);
            let resolved = options.resolve()?;
            let every = is_given.then_some(resolved.snapshot_every);
            cluster.run_saved(plan, bytes, resolved.weight, every, &mut caller)
        });
        match outcome {
            Ok(outcome) => Ok(Outcome::new(outcome, handles)),
            Err(error) => Err(caller.raise(py, error)),
        }
    }

    /// Ends the connection.
    fn close(&mut self, py: Python<'_>) {
        let cluster = self.cluster.take();
        py.detach(|| end(cluster));
    }
}
