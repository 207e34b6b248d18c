//! What Python prints on a worker, told apart by job and stage. Kernels that were built for a job of a cluster know where to print, and the
//! thread that runs one knows its kernel: what replaces `sys.stdout` there asks when something is printed.

use crate::{forks, interrupts};
use brambling::Printed;
use brambling::cluster::{PrintStream, Prints};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::cell::RefCell;
use std::sync::Arc;

/// Where a kernel prints.
pub struct PrintTarget {
    prints: Prints,
    /// Its stage; empty while the program is built.
    stage: String,
}

thread_local! {
    /// Where what runs on this thread prints; none: where the process was started.
    static HERE: RefCell<Option<Arc<PrintTarget>>> = const { RefCell::new(None) };
}

fn here() -> Option<Arc<PrintTarget>> {
    HERE.with_borrow(Option::clone)
}

/// While it lives, what the thread runs prints to a place, and is its kernel. Then it prints where it did before.
pub struct PrintScope {
    place: Option<Arc<PrintTarget>>,
    kernel: *const PrintTarget,
}

impl Drop for PrintScope {
    fn drop(&mut self) {
        interrupts::runs(self.kernel);
        HERE.set(self.place.take());
    }
}

impl PrintTarget {
    /// Where a job's program prints while it is built.
    pub fn of(prints: &Prints) -> Arc<PrintTarget> {
        let prints = prints.clone();
        PrintTarget::new(prints, String::new())
    }

    fn new(prints: Prints, stage: String) -> Arc<PrintTarget> {
        let place = Arc::new(PrintTarget { prints, stage });
        interrupts::add_place(&place);
        place
    }

    /// Whether it is of the job that prints there.
    pub fn is_of(&self, prints: &Prints) -> bool {
        self.prints.are(prints)
    }

    pub fn prints(&self) -> &Prints {
        &self.prints
    }

    pub fn stage(&self) -> &str {
        &self.stage
    }

    /// Where a stage prints of a program that is built on this thread: nowhere else than what builds it.
    pub fn of_stage(stage: &str) -> Option<Arc<PrintTarget>> {
        let prints = here()?.prints.clone();
        Some(PrintTarget::new(prints, stage.to_owned()))
    }

    pub fn enter(self: &Arc<PrintTarget>) -> PrintScope {
        let place = HERE.replace(Some(self.clone()));
        let kernel = interrupts::runs(Arc::as_ptr(self));
        PrintScope { place, kernel }
    }
}

/// A place, for threads that a kernel starts.
#[pyclass(module = "brambling._native", frozen)]
pub struct PrintPlace(Arc<PrintTarget>);

#[pymethods]
impl PrintPlace {
    /// This thread prints there from now on.
    fn enter(&self) {
        HERE.set(Some(self.0.clone()));
    }
}

/// Where this thread prints; None: where the process was started.
#[pyfunction]
pub fn print_place() -> Option<PrintPlace> {
    here().map(PrintPlace)
}

/// Prints for the kernel that runs on this thread. False: there is none, or its job is over.
#[pyfunction]
pub fn print_here(text: &Bound<'_, PyString>, to_errors: bool) -> bool {
    let stream = match to_errors {
        false => PrintStream::Out,
        true => PrintStream::Err,
    };
    // Nobody sends what a forked child keeps, and another thread may have held the lock.
    let here = here().filter(|_| forks::count() == 0);
    here.is_some_and(|place| {
        // Half a pair of surrogates is no letter.
        let text = text.to_string_lossy();
        place.prints.print(stream, &place.stage, &text)
    })
}

/// Shows what kernels have printed on workers.
pub fn show(py: Python<'_>, lines: &[Printed]) -> PyResult<()> {
    let lines = lines
        .iter()
        .map(|line| (line.stream == PrintStream::Err, line.to_string()));
    let lines: Vec<(bool, String)> = lines.collect();
    py.import("brambling._prints")?
        .call_method1("show", (lines,))?;
    Ok(())
}
