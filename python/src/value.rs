//! What a partition of a Python program holds: an object, or an object per block.
#![allow(unsafe_code)] // One reading of a reference count, and one of memory that a buffer lends.

use crate::array::{Made, Views};
use crate::interpreter::attach;
use crate::sums;
use brambling::program::{DecodeError, Payload};
use numpy::PyUntypedArray;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView};
use std::borrow::Cow;
use std::sync::Arc;

struct Held {
    /// Set from the start, or when somebody first asks for what compiled code has made.
    object: PyOnceLock<Py<PyAny>>,
    made: Option<Made>,
    /// Why there is neither: the value could not leave its process, or could not be made again in this one.
    lost: Option<String>,
    /// None for what compiled code cannot read.
    views: Option<Views>,
    heap_bytes: usize,
}

impl Held {
    fn object<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let object = self
            .object
            .get_or_try_init(py, || match (&self.made, &self.lost) {
                (Some(made), _) => made.object(py),
                (None, Some(why)) => Err(crate::raise("ClusterError", why.clone())),
                (None, None) => unreachable!("an object, what compiled code made, or why not"),
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
            lost: None,
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
            lost: None,
        })))
    }

    /// Stands for a value that is lost on its way: whoever wants to see it is told why.
    fn lost(why: String) -> PyValue {
        PyValue(Some(Arc::new(Held {
            object: PyOnceLock::new(),
            made: None,
            views: None,
            heap_bytes: why.capacity(),
            lost: Some(why),
        })))
    }

    fn why_lost(&self) -> Option<&str> {
        self.0.as_ref()?.lost.as_deref()
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

    /// The same, of which an error says what it was.
    pub fn get_named<'py>(
        &self,
        py: Python<'py>,
        name: impl FnOnce() -> String,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.why_lost() {
            None => self.get(py),
            Some(why) => Err(crate::raise("ClusterError", format!("{}: {why}", name()))),
        }
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
            Ok(base) => !base.is_none() && !has_arrived(&base)?,
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

/// Whether an array lies in memory that [`taken`] has made: it came from another process, and nobody lent it.
fn has_arrived(base: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = base.py();
    let mut lender = base.clone();
    // Views of views.
    while lender.cast::<PyUntypedArray>().is_ok() {
        lender = lender.getattr(pyo3::intern!(py, "base"))?;
    }
    if !lender.is_instance_of::<PyMemoryView>() {
        return Ok(false);
    }
    let lender = lender.getattr(pyo3::intern!(py, "obj"))?;
    Ok(lender.is_instance_of::<PyByteArray>())
}

/// What an encoding begins with: nothing was there; an object follows; there is none, and why follows.
const ABSENT: u8 = 0;
const OBJECT: u8 = 1;
const LOST: u8 = 2;

fn helper<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyModule>> {
    py.import(pyo3::intern!(py, "brambling._pickled"))
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    (bytes.len() as u64).encode(out);
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let len = u64::decode(input)?;
    let all: &'a [u8] = input;
    let split = usize::try_from(len)
        .ok()
        .and_then(|len| all.split_at_checked(len));
    let (head, tail) = split.ok_or_else(|| {
        DecodeError::of::<PyValue>(format!("{len} bytes wanted, {} left", all.len()))
    })?;
    *input = tail;
    Ok(head)
}

/// The error that tells what of an object cannot be pickled, and the way out.
fn why_not(py: Python<'_>, object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let told = || -> PyResult<String> {
        let module = py.import("brambling._program.unsendable")?;
        let why = module.call_method1("why_not", (object, error.value(py)))?;
        why.extract()
    };
    told().map_or(error, |why| crate::raise("ClusterError", why))
}

/// Appends a value: its pickle, then the memory of its arrays, which is copied here and nowhere else.
fn put(value: &PyValue, out: &mut Vec<u8>) -> PyResult<()> {
    attach(|py| {
        let Some(object) = value.get(py)? else {
            out.push(ABSENT);
            return Ok(());
        };
        let parts = helper(py)?.call_method1(pyo3::intern!(py, "apart"), (&object,));
        let parts = parts.map_err(|error| why_not(py, &object, error))?;
        let (stream, lent): (Bound<'_, PyBytes>, Vec<Bound<'_, PyAny>>) = parts.extract()?;
        let lent = lent.iter().map(PyBuffer::<u8>::get);
        let buffers = lent.collect::<PyResult<Vec<_>>>()?;
        let bytes: usize = buffers.iter().map(|buffer| buffer.len_bytes() + 8).sum();
        out.reserve(1 + 8 + stream.as_bytes().len() + 8 + bytes);
        out.push(OBJECT);
        put_bytes(stream.as_bytes(), out);
        (buffers.len() as u64).encode(out);
        for buffer in &buffers {
            if buffer.len_bytes() == 0 {
                put_bytes(&[], out);
                continue;
            }
            let memory = buffer
                .as_slice_ptr()
                .ok_or_else(|| PyBufferError::new_err("an array in several pieces"))?;
            // SAFETY: the buffer lends this memory as long as it lives. Who could write it needs the
            // interpreter, which is held: what compiled code writes is not an object yet.
            put_bytes(unsafe { memory.as_ref() }, out);
        }
        Ok(())
    })
}

/// What [`put`] appended.
fn taken(input: &mut &[u8]) -> Result<PyValue, DecodeError> {
    let stream = take_bytes(input)?;
    let count = u64::decode(input)?;
    let buffers = (0..count).map(|_| take_bytes(input));
    let buffers = buffers.collect::<Result<Vec<_>, _>>()?;
    let made = attach(|py| {
        let buffers = buffers.iter().map(|bytes| PyByteArray::new(py, bytes));
        let buffers = PyList::new(py, buffers.collect::<Vec<_>>())?;
        let parts = (PyBytes::new(py, stream), buffers);
        PyValue::new(&helper(py)?.call_method1(pyo3::intern!(py, "together"), parts)?)
    });
    // What its classes do when they are called is the user's affair: the bytes are what was sent.
    Ok(made.unwrap_or_else(|error| {
        PyValue::lost(format!(
            "its value cannot be made again in another process ({error}): its class does not take what it says of itself when it is \
             pickled; give the class a __reduce__ that does, or keep or send something else"
        ))
    }))
}

impl Payload for PyValue {
    const INTERPRETED: bool = true;
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("Python object")
    }
    fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |held| held.heap_bytes)
    }
    fn encode(&self, out: &mut Vec<u8>) {
        let before = out.len();
        let why = match self.why_lost() {
            Some(why) => why.to_owned(),
            None => match put(self, out) {
                Ok(()) => return,
                Err(error) => attach(|py| error.value(py).to_string()),
            },
        };
        // Encoding cannot fail: who wants to see the value is told why there is none.
        out.truncate(before);
        out.push(LOST);
        why.encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            ABSENT => Ok(PyValue(None)),
            OBJECT => taken(input),
            LOST => Ok(PyValue::lost(String::decode(input)?)),
            other => Err(DecodeError::of::<PyValue>(format!("form {other}"))),
        }
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

    /// How many rows each block has, where the blocks are parts of the whole: then only the whole travels.
    fn rows_of_whole(&self) -> Option<Vec<u64>> {
        if !self.whole.is_set() || !self.values.iter().all(PyValue::is_set) {
            return None;
        }
        attach(|py| {
            let parts = (self.whole.get(py)?, self.list(py)?);
            let rows = helper(py)?.call_method1(pyo3::intern!(py, "rows_of"), parts)?;
            rows.extract::<Option<Vec<u64>>>()
        })
        .unwrap_or(None)
    }
}

/// The parts of a whole that have so many rows.
fn cut(whole: &PyValue, rows: Vec<u64>) -> Result<Vec<PyValue>, DecodeError> {
    if whole.why_lost().is_some() {
        return Ok(vec![whole.clone(); rows.len()]);
    }
    let parts = attach(|py| {
        let parts = (whole.get(py)?, rows);
        let parts = helper(py)?.call_method1(pyo3::intern!(py, "cut"), parts)?;
        let parts: Vec<Bound<'_, PyAny>> = parts.extract()?;
        parts.iter().map(PyValue::new).collect::<PyResult<Vec<_>>>()
    });
    parts.map_err(|error| DecodeError::of::<PyBlocks>(error.to_string()))
}

impl Payload for PyBlocks {
    const INTERPRETED: bool = true;
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("blocks of Python objects")
    }
    fn heap_bytes(&self) -> usize {
        let own = self.values.capacity() * size_of::<PyValue>();
        own + self.values.iter().map(PyValue::heap_bytes).sum::<usize>()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        let rows = self.rows_of_whole();
        self.first.encode(out);
        self.whole.encode(out);
        rows.encode(out);
        if rows.is_none() {
            self.values.encode(out);
        }
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let first = u64::decode(input)?;
        let whole = PyValue::decode(input)?;
        let values = match Option::<Vec<u64>>::decode(input)? {
            Some(rows) => cut(&whole, rows)?,
            None => Vec::decode(input)?,
        };
        // Whoever walks the blocks counts from the first to the one after the last.
        if first.checked_add(values.len() as u64).is_none() {
            return Err(DecodeError::of::<Self>(format!("a first block {first}")));
        }
        Ok(PyBlocks {
            first,
            values,
            whole,
        })
    }
}
