//! What a partition of a Python program holds: an object, or an object per block.
#![allow(unsafe_code)] // One reading of a reference count.

use crate::array::{Made, Views};
use crate::sums;
use brambling::program::{DecodeError, Payload};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;
use std::borrow::Cow;
use std::sync::Arc;

struct Held {
    /// Set from the start, or when somebody first asks for what compiled code has made.
    object: PyOnceLock<Py<PyAny>>,
    made: Option<Made>,
    /// None for what compiled code cannot read.
    views: Option<Views>,
    heap_bytes: usize,
}

impl Held {
    fn object<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let object = self.object.get_or_try_init(py, || match &self.made {
            Some(made) => made.object(py),
            None => unreachable!("an object, or what compiled code made"),
        })?;
        Ok(object.bind(py).clone())
    }
}

/// A Python object, shared between datasets. Cloned and dropped on any thread: the count is Rust's, and
/// pyo3 puts off the last release until somebody holds the interpreter.
#[derive(Clone, Default)]
pub struct PyValue(Option<Arc<Held>>);

impl PyValue {
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<PyValue> {
        let held = PyOnceLock::new();
        // It is empty.
        let _ = held.set(object.py(), object.clone().unbind());
        Ok(PyValue(Some(Arc::new(Held {
            object: held,
            made: None,
            views: Views::of(object),
            heap_bytes: heap_bytes(object)?,
        }))))
    }

    /// What compiled code has made, on any thread.
    pub fn made(made: Made) -> PyValue {
        PyValue(Some(Arc::new(Held {
            object: PyOnceLock::new(),
            views: Some(made.views()),
            heap_bytes: made.heap_bytes(),
            made: Some(made),
        })))
    }

    /// Adds another value in place, where that needs no interpreter; false when it does.
    pub fn add(&mut self, right: &PyValue) -> bool {
        let (Some(left), Some(right)) = (self.views(), right.views()) else {
            return false;
        };
        if !sums::can_add(left, right) {
            return false;
        }
        let own = self.0.as_mut().and_then(Arc::get_mut);
        if let Some(made) = own.and_then(|held| held.made.as_mut())
            && sums::add(made, right)
        {
            return true;
        }
        let Some(left) = self.views() else {
            return false;
        };
        let mut made = sums::copied(left);
        let added = sums::add(&mut made, right);
        *self = PyValue::made(made);
        added
    }

    /// What compiled code may read; none when it cannot, or nothing is there.
    pub fn views(&self) -> Option<&Views> {
        self.0.as_ref()?.views.as_ref()
    }

    pub fn get<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.as_ref().map(|held| held.object(py)).transpose()
    }

    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Takes the object for writing, and tells whether nobody else can see it.
    pub fn take<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyAny>, bool)>> {
        let Some(held) = self.0.take() else {
            return Ok(None);
        };
        let is_alone = Arc::strong_count(&held) == 1;
        let object = held.object(py)?;
        // What compiled code reads without the interpreter must not be written by others.
        drop(held);
        // SAFETY: the object is alive, and the interpreter is held.
        let unseen = is_alone && unsafe { pyo3::ffi::Py_REFCNT(object.as_ptr()) } == 1;
        Ok(Some((object, unseen)))
    }
}

/// Bytes that an object owns, as far as it says: of arrays their elements when they own them, of
/// everything else what `sys.getsizeof` knows. Elements of a collection are not visited.
fn heap_bytes(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    let py = object.py();
    if let Ok(bytes) = object.getattr(pyo3::intern!(py, "nbytes")) {
        let borrowed = match object.getattr(pyo3::intern!(py, "base")) {
            Ok(base) => !base.is_none(),
            Err(_) => false,
        };
        return Ok(if borrowed {
            0
        } else {
            bytes.extract().unwrap_or(0)
        });
    }
    let size = py
        .import(pyo3::intern!(py, "sys"))?
        .call_method1(pyo3::intern!(py, "getsizeof"), (object, 0))?;
    size.extract()
}

fn pickled(value: &PyValue) -> PyResult<Vec<u8>> {
    Python::attach(|py| match value.get(py)? {
        None => Ok(Vec::new()),
        Some(object) => {
            let bytes = py.import("cloudpickle")?.call_method1("dumps", (object,))?;
            Ok(bytes.cast::<PyBytes>()?.as_bytes().to_vec())
        }
    })
}

fn unpickled(bytes: &[u8]) -> PyResult<PyValue> {
    Python::attach(|py| {
        let object = py
            .import("pickle")?
            .call_method1("loads", (PyBytes::new(py, bytes),))?;
        PyValue::new(&object)
    })
}

impl Payload for PyValue {
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("Python object")
    }
    fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |held| held.heap_bytes)
    }
    fn encode(&self, out: &mut Vec<u8>) {
        // Nothing leaves this process yet: whoever sends values will have to check that they can be pickled.
        pickled(self)
            .expect("a value that is sent can be pickled")
            .encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let bytes = Vec::<u8>::decode(input)?;
        if bytes.is_empty() {
            return Ok(PyValue(None));
        }
        unpickled(&bytes).map_err(|error| DecodeError::of::<PyValue>(error.to_string()))
    }
}

/// The blocks of one partition. A block may have no value.
#[derive(Clone, Default)]
pub struct PyBlocks {
    pub first: u64,
    pub values: Vec<PyValue>,
    /// The whole partition, where it lies in one piece.
    pub whole: PyValue,
}

impl PyBlocks {
    /// What `per="partition"` hands over: the partition in one piece, or the list of its blocks' values.
    pub fn whole<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.whole.get(py)? {
            Some(whole) => Ok(whole),
            None => self.list(py),
        }
    }

    pub fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let values = self
            .values
            .iter()
            .filter_map(|value| value.get(py).transpose());
        Ok(pyo3::types::PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)?.into_any())
    }
}

impl Payload for PyBlocks {
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("blocks of Python objects")
    }
    fn heap_bytes(&self) -> usize {
        let own = self.values.capacity() * size_of::<PyValue>();
        own + self.values.iter().map(PyValue::heap_bytes).sum::<usize>()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.first.encode(out);
        self.values.encode(out);
        self.whole.encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(PyBlocks {
            first: u64::decode(input)?,
            values: Vec::decode(input)?,
            whole: PyValue::decode(input)?,
        })
    }
}
