//! The command, with Python as its host.

use crate::cluster::PySource;
use crate::interpreter::attach;
use pyo3::prelude::*;
use std::cell::Cell;
use std::ffi::OsString;
use std::path::Path;

/// An object of Python that runs scripts and knows the examples.
struct PyHost {
    host: Py<PyAny>,
    /// Whether the process has become a worker.
    is_worker: Cell<bool>,
}

impl PyHost {
    /// Calls a method that handles its own exceptions; one that gets out is printed, and counts as a failure.
    fn ask<R>(&self, method: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>, failed: R) -> R {
        attach(|py| {
            method(self.host.bind(py)).unwrap_or_else(|error| {
                error.print(py);
                failed
            })
        })
    }
}

impl brambling_cli::Host for PyHost {
    fn run_script(&mut self, path: &Path, args: &[String]) -> u8 {
        self.ask(
            |host| host.call_method1("run_script", (path, args))?.extract(),
            brambling_cli::FAILED,
        )
    }

    fn examples(&self) -> Vec<(String, String)> {
        self.ask(|host| host.call_method0("examples")?.extract(), Vec::new())
    }

    fn run_example(&mut self, name: &str, args: &[String]) -> u8 {
        self.ask(
            |host| host.call_method1("run_example", (name, args))?.extract(),
            brambling_cli::FAILED,
        )
    }

    fn benches(&self) -> Vec<(String, String)> {
        self.ask(|host| host.call_method0("benches")?.extract(), Vec::new())
    }

    fn run_bench(&mut self, name: &str, options: brambling_cli::HostBench) -> u8 {
        let options = (name, options.threads, options.smoke, options.json);
        self.ask(
            |host| host.call_method1("run_bench", options)?.extract(),
            brambling_cli::FAILED,
        )
    }

    fn source(&self) -> Option<Box<dyn brambling::cluster::Source>> {
        self.is_worker.set(true);
        // What kernels run does not wait for the cluster, which waits for them.
        self.ask(
            |host| {
                let module = host.py().import("brambling._cluster")?;
                module.call_method0("be_worker").map(drop)
            },
            (),
        );
        Some(Box::new(PySource))
    }

    fn connect(&mut self, to: brambling_cli::HostCluster<'_>) -> Result<(), String> {
        attach(|py| {
            let host = self.host.bind(py);
            let connected = host.call_method1("connect", (to.address, to.token_file, to.tls));
            connected
                .map(drop)
                .map_err(|error| error.value(py).to_string())
        })
    }

    fn run_kept(&mut self, program: &[u8], folder: &Path) -> u8 {
        self.ask(
            |host| {
                let program = pyo3::types::PyBytes::new(host.py(), program);
                host.call_method1("run_kept", (program, folder))?.extract()
            },
            brambling_cli::FAILED,
        )
    }

    fn command(&self) -> Vec<OsString> {
        self.ask(|host| host.call_method0("command")?.extract(), Vec::new())
    }

    fn forget_variable(&mut self, variable: &str) {
        self.ask(
            |host| host.call_method1("forget_variable", (variable,)).map(drop),
            (),
        );
    }

    fn versions(&self) -> Vec<(String, String)> {
        self.ask(|host| host.call_method0("versions")?.extract(), Vec::new())
    }

    fn interrupted(&mut self) -> bool {
        // The signal's handler raises KeyboardInterrupt: the command ends by itself, with its own code.
        attach(|py| py.check_signals().is_err())
    }
}

/// Runs the command; `args` begins with the program's own name. The result is the exit code.
#[pyfunction]
pub fn command(py: Python<'_>, args: Vec<OsString>, host: Py<PyAny>) -> u8 {
    let mut host = PyHost {
        host,
        is_worker: Cell::new(false),
    };
    py.detach(|| {
        let code = brambling_cli::main(args, &mut host);
        if host.is_worker.get() {
            // Back in the interpreter it would end itself, and with it the threads of kernels that run.
            brambling::cluster::leave(code, flush);
        }
        code
    })
}

/// Writes what Python has kept of what was printed.
fn flush() {
    attach(|py| {
        let sys = py.import("sys");
        for name in ["stdout", "stderr"] {
            // Closed, or gone: then there is nothing to write to.
            let _ = (sys.as_ref().ok())
                .and_then(|sys| sys.getattr(name).ok())
                .and_then(|stream| stream.call_method0("flush").ok());
        }
    });
}
