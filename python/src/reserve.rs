//! What a kernel in Python takes of its job's memory: `ctx.reserve` asks here, where the thread that runs the kernel knows its job's budget.
#![allow(unsafe_code)] // The budget of a kernel that runs, which outlives its call.

use brambling::program::{Context, KernelError, OutOfMemory, Reservation};
use pyo3::prelude::*;
use std::cell::Cell;
use std::ptr::NonNull;

thread_local! {
    /// The context of the kernel that this thread runs; none: it runs none.
    static HERE: Cell<Option<NonNull<Context<'static>>>> = const { Cell::new(None) };
    /// What was refused to it last.
    static REFUSED: Cell<Option<OutOfMemory>> = const { Cell::new(None) };
}

/// While it lives, what the thread runs is a kernel that may take memory.
pub struct KernelScope(Option<NonNull<Context<'static>>>);

impl Drop for KernelScope {
    fn drop(&mut self) {
        HERE.set(self.0);
    }
}

/// A kernel begins. What this gives must be dropped before its context is used otherwise.
pub fn enter(context: &Context<'_>) -> KernelScope {
    REFUSED.set(None);
    // The lifetime is forgotten; the guard ends before the loan.
    KernelScope(HERE.replace(Some(NonNull::from(context).cast())))
}

/// The refusal that an exception passes on; none of any other exception.
pub fn passed_on(py: Python<'_>, error: &PyErr) -> Option<KernelError> {
    let refused = REFUSED.take()?;
    let is_it = error.value(py).to_string() == refused.to_string();
    is_it.then(|| refused.into())
}

/// Bytes that a kernel has taken.
#[pyclass]
pub struct Reserved(Option<Reservation>);

#[pymethods]
impl Reserved {
    #[getter]
    fn nbytes(&self) -> u64 {
        self.0.as_ref().map_or(0, Reservation::bytes)
    }

    fn release(&mut self) {
        self.0 = None;
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&mut self, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) {
        self.release();
    }
}

/// Takes so many bytes for the kernel that this thread runs.
#[pyfunction]
pub fn reserve(bytes: u64) -> PyResult<Reserved> {
    let Some(context) = HERE.get() else {
        return Err(crate::raise(
            "Error",
            "ctx.reserve was called where its kernel does not run: call it in the kernel, on the thread that runs it, before it returns".into(),
        ));
    };
    // SAFETY: whoever entered it lends it until it leaves again, and nobody writes to it meanwhile.
    let taken = unsafe { context.as_ref() }.reserve(bytes);
    let room = taken.map_err(|refused| {
        REFUSED.set(Some(refused));
        crate::raise("OutOfMemory", refused.to_string())
    })?;
    Ok(Reserved(Some(room)))
}
