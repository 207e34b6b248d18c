//! Running a program from Python: the calling thread runs the stages, and Ctrl-C ends the job.

use crate::builder::{Handle, build_error};
use crate::cluster::PyCluster;
use crate::interpreter::attach;
use crate::prints;
use crate::report::PyLedger;
use crate::value::{PyBlocks, PyValue};
use brambling::cluster::ClusterError;
use brambling::program::Program;
use brambling::{
    Advance, Caller, Error, Failure, FailureKind, Interrupted, Ledgers, Origin, Printed,
    RunOptions, SettingsError,
};
use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::sync::OnceLock;
use std::time::Duration;

/// How long work may take before it shows how far it is.
const SHOWN_AFTER: Duration = Duration::from_secs(2);
/// How often it then does.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

/// The thread that called run, which left the interpreter for as long.
#[derive(Default)]
pub struct PyCaller {
    /// What the signal's handler raised.
    raised: Option<PyErr>,
    /// When the run is shown next, from its beginning; none before the first time.
    next: Option<Duration>,
    /// Shows how far the run is; none while it is short.
    progress: Option<Py<PyAny>>,
    /// What is shown is that it waits for its turn.
    is_waiting: bool,
}

impl PyCaller {
    /// Shows something while the run goes on. An exception that is no error, such as Ctrl-C's, or of a signal's handler ends the run; whatever
    /// else goes wrong here is not worth ending it.
    fn meanwhile(&mut self, show: impl FnOnce(&mut Self, Python<'_>) -> PyResult<()>) {
        attach(|py| {
            if let Err(error) = show(self, py)
                && ends_the_run(py, &error)
            {
                self.raised = Some(error);
            }
        });
    }

    /// What shows how far the run is.
    fn progress<'py>(&mut self, py: Python<'py>, program: &str) -> PyResult<Bound<'py, PyAny>> {
        if let Some(progress) = &self.progress {
            return Ok(progress.bind(py).clone());
        }
        let class = py.import("brambling._progress")?.getattr("Progress")?;
        let progress = class.call1((program,))?;
        self.progress = Some(progress.clone().unbind());
        Ok(progress)
    }

    /// Shows how far the run is.
    fn show(&mut self, py: Python<'_>, advance: Advance<'_>) -> PyResult<()> {
        let progress = self.progress(py, advance.program)?;
        let seconds = advance.elapsed.as_secs_f64();
        let silent = advance.silent.iter();
        let silent = silent.map(|it| (it.worker.to_string(), it.so_long.as_secs_f64()));
        let silent: Vec<(String, f64)> = silent.collect();
        let told = (advance.tasks, advance.tasks_total, seconds, silent);
        progress.call_method1("show", told)?;
        Ok(())
    }
}

impl PyCaller {
    /// Nothing is shown any more.
    fn close(&mut self) {
        if let Some(progress) = self.progress.take() {
            // A terminal that has gone away is no failure of the run.
            attach(|py| drop(progress.call_method0(py, "close")));
        }
    }
}

impl Drop for PyCaller {
    fn drop(&mut self) {
        self.close();
    }
}

impl Caller for PyCaller {
    fn advanced(&mut self, advance: Advance<'_>) {
        if std::mem::take(&mut self.is_waiting) {
            self.close();
            self.next = None;
        }
        if advance.elapsed < self.next.unwrap_or(SHOWN_AFTER) {
            return;
        }
        self.next = Some(advance.elapsed + SHOWN_EVERY);
        self.meanwhile(|this, py| this.show(py, advance));
    }

    fn waits(&mut self, why: &str, so_long: Duration) {
        if so_long < self.next.unwrap_or(SHOWN_AFTER) {
            return;
        }
        self.next = Some(so_long + SHOWN_EVERY);
        self.is_waiting = true;
        self.meanwhile(|this, py| {
            let progress = this.progress(py, "")?;
            progress.call_method1("wait", (why, so_long.as_secs_f64()))?;
            Ok(())
        });
    }

    fn printed(&mut self, lines: &[Printed]) {
        self.meanwhile(|this, py| {
            // Their terminal is the one that shows how far the run is.
            if let Some(progress) = &this.progress {
                progress.call_method0(py, "give_way")?;
            }
            prints::show(py, lines)
        });
    }

    fn told(&mut self, line: &str) {
        self.meanwhile(|this, py| {
            if let Some(progress) = &this.progress {
                progress.call_method0(py, "give_way")?;
            }
            let arguments = (format!("brambling: {line}"),);
            py.import("brambling._store")?
                .call_method1("tell", arguments)?;
            Ok(())
        });
    }

    fn check(&mut self) -> Result<(), Interrupted> {
        if self.raised.is_some() {
            return Err(Interrupted);
        }
        attach(|py| match py.check_signals() {
            Ok(()) => Ok(()),
            Err(error) => {
                self.raised = Some(error);
                Err(Interrupted)
            }
        })
    }

    fn run_stages(&mut self, run: &mut dyn FnMut()) {
        // Attached once for many stages.
        attach(|_| run());
    }
}

impl PyCaller {
    /// The exception for an error of a job.
    pub fn raise(&mut self, py: Python<'_>, error: Error) -> PyErr {
        match error {
            Error::Build(error) => build_error(error),
            Error::Settings(error) => settings_error(error),
            Error::Failure(failure) => self.raise_failure(py, failure),
            Error::Cluster(error @ ClusterError::PackagesDiffer(_)) => {
                crate::raise("VersionMismatch", error.to_string())
            }
            Error::Cluster(error @ ClusterError::NoRoom { .. }) => {
                crate::raise("OutOfMemory", error.to_string())
            }
            Error::Cluster(error) => crate::raise("ClusterError", error.to_string()),
            Error::Store(error) => crate::raise("StoreError", error.to_string()),
            Error::Restore(error) => crate::raise("StoreError", error.to_string()),
            other => crate::raise("Error", other.to_string()),
        }
    }

    fn raise_failure(&mut self, py: Python<'_>, failure: Failure) -> PyErr {
        let text = failure.to_string();
        match failure {
            Failure::Interrupted => self
                .raised
                .take()
                .unwrap_or_else(|| PyKeyboardInterrupt::new_err(())),
            Failure::Kernel {
                stage,
                partition,
                turn,
                mut error,
            } => {
                let source = error
                    .take_source()
                    .and_then(|source| source.downcast::<PyErr>().ok());
                let cause = match source {
                    // Ctrl-C or sys.exit in a kernel is no failure of the kernel.
                    Some(cause) if ends_the_run(py, &cause) => return *cause,
                    Some(cause) => Some(*cause),
                    None => None,
                };
                crate::raise_kernel_error(py, text, &stage, partition, turn, cause)
            }
            Failure::Panic {
                stage,
                partition,
                turn,
                ..
            } => crate::raise_kernel_error(py, text, &stage, partition, turn, None),
            Failure::OutOfMemory { .. } => crate::raise("OutOfMemory", text),
            Failure::Stalled { .. } => crate::raise("Stalled", text),
            Failure::Elsewhere {
                origin: Some(origin),
                ..
            } => raise_far(py, text, &origin),
            Failure::Elsewhere { .. } => crate::raise("ClusterError", text),
            _ => crate::raise("Error", text),
        }
    }
}

/// Whether an exception is nobody's failure but leaves the run as it is: one that is no error, or that a signal's handler raised.
fn ends_the_run(py: Python<'_>, error: &PyErr) -> bool {
    if !error.is_instance_of::<PyException>(py) {
        return true;
    }
    let from_a_handler = || -> PyResult<bool> {
        let signals = py.import("brambling._signals")?;
        let raised = signals.call_method1("from_a_handler", (error.traceback(py),))?;
        raised.extract()
    };
    from_a_handler().unwrap_or(false)
}

/// The exception for a failure on a worker: the one that it would be here.
fn raise_far(py: Python<'_>, text: String, origin: &Origin) -> PyErr {
    match origin.kind {
        FailureKind::OutOfMemory => return crate::raise("OutOfMemory", text),
        FailureKind::Stalled => return crate::raise("Stalled", text),
        FailureKind::Kernel => {}
    }
    let told_in = text.find(&origin.message);
    let end = told_in.map_or(text.len(), |start| start + origin.message.len());
    let (headline, traceback) = text.split_at(end);
    let (headline, cause) = match cause_far(py, &origin.cause, traceback.trim_start()) {
        Some(cause) if !cause.is_instance_of::<PyException>(py) => return cause,
        Some(cause) => (headline.to_owned(), Some(cause)),
        None => (text, None),
    };
    let Origin {
        stage,
        partition,
        turn,
        ..
    } = origin;
    crate::raise_kernel_error(py, headline, stage, *partition, *turn, cause)
}

/// The exception that a kernel raised on a worker, with the traceback from there; none that cannot be made here.
fn cause_far(py: Python<'_>, packed: &[u8], traceback: &str) -> Option<PyErr> {
    if packed.is_empty() {
        return None;
    }
    let unpacked = || -> PyResult<Option<Bound<'_, PyAny>>> {
        let remote = py.import("brambling._remote")?;
        let packed = PyBytes::new(py, packed);
        let made = remote.call_method1("unpacked", (packed, traceback))?;
        Ok((!made.is_none()).then_some(made))
    };
    unpacked().ok().flatten().map(PyErr::from_value)
}

pub fn settings_error(error: SettingsError) -> PyErr {
    let mut text = error.to_string();
    if let Some(source) = std::error::Error::source(&error)
        && !text.contains(&source.to_string())
    {
        text = format!("{text}: {source}");
    }
    crate::raise("SettingsError", text)
}

pub fn options(threads: Option<u32>, weight: Option<u32>) -> RunOptions {
    let options = RunOptions::new();
    let options = threads.map_or(options.clone(), |threads| options.threads(threads));
    weight.map_or(options.clone(), |weight| options.weight(weight))
}

/// The same, with where its snapshots and results are kept.
pub fn kept(
    options: RunOptions,
    store: Option<String>,
    snapshot_every: Option<String>,
) -> RunOptions {
    let options = match store {
        Some(store) => options.store(store),
        None => options,
    };
    match snapshot_every {
        Some(every) => options.snapshot_every(every),
        None => options,
    }
}

/// The script has reached its end: what it has stored goes. Not where a command runs the script, which sees how it ended.
#[pyfunction]
pub fn clear_stored() -> PyResult<()> {
    if brambling::is_commanded() {
        return Ok(());
    }
    brambling::clear_stored().map_err(|error| crate::raise("StoreError", error.to_string()))
}

/// Whether this process was forked from one that had run something.
pub fn is_forked() -> bool {
    static STARTED_IN: OnceLock<u32> = OnceLock::new();
    *STARTED_IN.get_or_init(std::process::id) != std::process::id()
}

/// Refuses to run in a process that was forked off one whose threads it does not have: it would wait for
/// them forever.
pub fn check_process() -> PyResult<()> {
    if !is_forked() {
        return Ok(());
    }
    Err(crate::raise(
        "Error",
        "this process was forked from one that had run a program, and its threads were left behind; start \
         processes by multiprocessing's \"spawn\" or \"forkserver\", or fork before the first run"
            .to_owned(),
    ))
}

/// How a model or an analysis runs: on the cluster that is in use, else on threads of this process.
pub fn options_in_use(py: Python<'_>, threads: Option<u32>) -> PyResult<RunOptions> {
    check_process()?;
    let options = options(threads, None).ledgers(&Ledgers::default());
    let current = py.import("brambling._cluster")?.call_method0("current")?;
    if current.is_none() {
        return Ok(options);
    }
    let cluster = current.getattr("_native")?;
    let cluster = cluster.cast::<PyCluster>()?.borrow().open()?;
    Ok(options.on(&cluster))
}

/// The kept datasets of a finished job.
#[pyclass(module = "brambling._native")]
pub struct Outcome {
    outcome: brambling::Outcome,
    handles: Vec<Handle>,
}

impl Outcome {
    pub fn new(outcome: brambling::Outcome, handles: Vec<Handle>) -> Outcome {
        Outcome { outcome, handles }
    }
}

pub fn run(
    py: Python<'_>,
    program: Program,
    handles: Vec<Handle>,
    options: &RunOptions,
) -> PyResult<Outcome> {
    check_process()?;
    let mut caller = PyCaller::default();
    let outcome = py.detach(|| options.run_with(program, &mut caller));
    match outcome {
        Ok(outcome) => Ok(Outcome::new(outcome, handles)),
        Err(error) => Err(caller.raise(py, error)),
    }
}

#[pymethods]
impl Outcome {
    /// The values of a dataset: one per partition, or one per block.
    fn values<'py>(&mut self, py: Python<'py>, dataset: u32) -> PyResult<Bound<'py, PyList>> {
        let handle = self.handles[dataset as usize];
        let list = PyList::empty(py);
        for index in 0..self.outcome.partitions(handle.id()) {
            let value = self.outcome.value(handle.id(), index);
            match handle {
                Handle::Opaque(_) => {
                    let value = value.get::<PyValue>().expect("the dataset's type");
                    list.append(value.get(py)?)?;
                }
                Handle::Blocked(_) => {
                    let blocks = value.get::<PyBlocks>().expect("the dataset's type");
                    for value in blocks.list(py)?.try_iter()? {
                        list.append(value?)?;
                    }
                }
            }
        }
        Ok(list)
    }

    /// What the job did.
    fn tally<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::tally(py, &self.outcome.tally())
    }

    /// What it did, and where its threads' time went.
    fn ledger(&mut self) -> PyLedger {
        PyLedger(self.outcome.ledger())
    }
}
