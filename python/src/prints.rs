//! What Python prints on a worker, told apart by job and stage. Kernels that were built for a job of a cluster know where to print, and the
//! thread that runs one knows its kernel: what replaces `sys.stdout` there asks when something is printed.

use brambling::Printed;
use brambling::cluster::{Prints, Stream};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::cell::RefCell;
use std::sync::Arc;

/// Where a kernel prints.
pub struct Place {
    prints: Prints,
    /// Its stage; empty while the program is built.
    stage: String,
}

thread_local! {
    /// Where what runs on this thread prints; none: where the process was started.
    static HERE: RefCell<Option<Arc<Place>>> = const { RefCell::new(None) };
}

fn here() -> Option<Arc<Place>> {
    HERE.with_borrow(Option::clone)
}

/// While it lives, what the thread runs prints to a place. Then it prints where it did before.
pub struct Entered(Option<Arc<Place>>);

impl Drop for Entered {
    fn drop(&mut self) {
        HERE.set(self.0.take());
    }
}

impl Place {
    /// Where a job's program prints while it is built.
    pub fn of(prints: &Prints) -> Arc<Place> {
        Arc::new(Place {
            prints: prints.clone(),
            stage: String::new(),
        })
    }

    /// Where a stage prints of a program that is built on this thread: nowhere else than what builds it.
    pub fn of_stage(stage: &str) -> Option<Arc<Place>> {
        let prints = here()?.prints.clone();
        let stage = stage.to_owned();
        Some(Arc::new(Place { prints, stage }))
    }

    pub fn enter(self: &Arc<Place>) -> Entered {
        Entered(HERE.replace(Some(self.clone())))
    }
}

/// A place, for threads that a kernel starts.
#[pyclass(module = "brambling._native", frozen)]
pub struct PrintPlace(Arc<Place>);

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
        false => Stream::Out,
        true => Stream::Err,
    };
    here().is_some_and(|place| {
        // Half a pair of surrogates is no letter.
        let text = text.to_string_lossy();
        place.prints.print(stream, &place.stage, &text)
    })
}

/// Shows what kernels have printed on workers.
pub fn show(py: Python<'_>, lines: &[Printed]) -> PyResult<()> {
    let lines = lines
        .iter()
        .map(|line| (line.stream == Stream::Err, line.to_string()));
    let lines: Vec<(bool, String)> = lines.collect();
    py.import("brambling._prints")?
        .call_method1("show", (lines,))?;
    Ok(())
}
